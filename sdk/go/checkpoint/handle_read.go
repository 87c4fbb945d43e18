package checkpoint

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// names makes the standard input that names paths beneath a root.
func names(paths []string) io.Reader {
	var b bytes.Buffer
	for _, p := range paths {
		b.WriteString("./" + p + "\x00")
	}
	return &b
}

// hasTar reports whether the sandbox has GNU tar.
func (s *shell) hasTar(ctx context.Context) (bool, error) {
	out, err := s.output(ctx, "tar --version 2>/dev/null || true", nil)
	return strings.Contains(string(out), "GNU tar"), err
}

// read calls fn with the contents of each of paths beneath dir, in one stream. Those that vanish are passed over where tar
// tells; fn gets no more than there is.
func (s *shell) read(ctx context.Context, dir string, paths []string, fn func(path string, r io.Reader) error) error {
	if len(paths) == 0 {
		return nil
	}
	byTar, err := s.hasTar(ctx)
	if err != nil {
		return err
	}
	if !byTar {
		return s.readEach(ctx, dir, paths, fn)
	}
	script := fmt.Sprintf("LC_ALL=C; export LC_ALL; cd %s && exec tar --format=gnu --no-recursion --null -T - -cf -", quoted(dir))
	err = s.run(ctx, script, names(paths), func(r io.Reader) error {
		files := tar.NewReader(r)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return errorf(ErrInvalidWorkspace, "the archive that the sandbox sends cannot be read: %v", err)
			}
			if h.Typeflag != tar.TypeReg {
				continue // it became something else
			}
			if err := fn(strings.TrimPrefix(h.Name, "./"), files); err != nil {
				return err
			}
		}
	})
	if status, ok := errors.AsType[*statusError](err); ok && status.status <= 2 {
		return nil // files changed or vanished: whoever asked looks again
	}
	return err
}

// readEach reads files with one program for each.
func (s *shell) readEach(ctx context.Context, dir string, paths []string, fn func(path string, r io.Reader) error) error {
	script := fmt.Sprintf(`cd %s && xargs -0 sh -c 'for f do if [ -f "$f" ]; then base64 < "$f" || exit; fi; echo .; done' sh`, quoted(dir))
	return s.run(ctx, script, names(paths), func(r io.Reader) error {
		lines := bufio.NewReaderSize(r, 64<<10)
		for _, p := range paths {
			text := &untilDot{r: lines}
			if err := fn(p, base64.NewDecoder(base64.StdEncoding, text)); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// untilDot reads lines up to one that is a dot.
type untilDot struct {
	r    *bufio.Reader
	line []byte
	done bool
}

func (u *untilDot) Read(p []byte) (int, error) {
	for len(u.line) == 0 {
		if u.done {
			return 0, io.EOF
		}
		line, err := u.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, io.ErrUnexpectedEOF
		}
		if u.done = string(line) == ".\n"; !u.done {
			u.line = line
		}
	}
	n := copy(p, u.line)
	u.line = u.line[n:]
	return n, nil
}

package checkpoint

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"io"
	"time"
)

// stager writes entries into a directory of a sandbox as one stream.
type stager interface {
	dir(at string, w *wanted) error
	file(at string, w *wanted, content func(io.Writer) error) error
	link(at string, w *wanted) error
	hard(at, first string) error
	close() error
}

// tarStager writes an archive.
type tarStager struct {
	w     *tar.Writer
	owner bool
}

func newTarStager(w io.Writer, owner bool) *tarStager { return &tarStager{tar.NewWriter(w), owner} }

func (t *tarStager) head(at string, w *wanted) *tar.Header {
	h := &tar.Header{Name: at, Mode: int64(w.Mode), ModTime: time.Unix(w.Mtime.Sec, int64(w.Mtime.Nsec)), Format: tar.FormatPAX}
	if t.owner {
		h.Uid, h.Gid = int(w.UID), int(w.GID)
	}
	return h
}

func (t *tarStager) dir(at string, w *wanted) error {
	h := t.head(at+"/", w)
	h.Typeflag = tar.TypeDir
	return t.w.WriteHeader(h)
}

func (t *tarStager) file(at string, w *wanted, content func(io.Writer) error) error {
	h := t.head(at, w)
	h.Typeflag, h.Size = tar.TypeReg, int64(w.Content.Size)
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	return content(t.w)
}

func (t *tarStager) link(at string, w *wanted) error {
	h := t.head(at, w)
	h.Typeflag, h.Linkname = tar.TypeSymlink, w.Target
	return t.w.WriteHeader(h)
}

func (t *tarStager) hard(at, first string) error {
	return t.w.WriteHeader(&tar.Header{Name: at, Linkname: first, Typeflag: tar.TypeLink, Format: tar.FormatPAX})
}

func (t *tarStager) close() error { return t.w.Close() }

// scriptStager writes a script of the shell, for sandboxes without tar. Modes and times are set later.
type scriptStager struct{ w io.Writer }

func (s *scriptStager) dir(at string, _ *wanted) error {
	_, err := fmt.Fprintf(s.w, "mkdir %s\n", quoted("./"+at))
	return err
}

func (s *scriptStager) file(at string, _ *wanted, content func(io.Writer) error) error {
	if _, err := fmt.Fprintf(s.w, "base64 -d > %s <<'_'\n", quoted("./"+at)); err != nil {
		return err
	}
	lines := &lineWriter{w: s.w}
	enc := base64.NewEncoder(base64.StdEncoding, lines)
	if err := content(enc); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(s.w, "\n_\n")
	return err
}

func (s *scriptStager) link(at string, w *wanted) error {
	_, err := fmt.Fprintf(s.w, "ln -s -- %s %s\n", quoted(w.Target), quoted("./"+at))
	return err
}

func (s *scriptStager) hard(at, first string) error {
	_, err := fmt.Fprintf(s.w, "ln %s %s\n", quoted("./"+first), quoted("./"+at))
	return err
}

func (s *scriptStager) close() error { return nil }

// lineWriter breaks lines, since a shell reads them whole.
type lineWriter struct {
	w  io.Writer
	at int
}

const lineLength = 4096

func (l *lineWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), lineLength-l.at)
		if _, err := l.w.Write(p[:n]); err != nil {
			return written, err
		}
		written, l.at, p = written+n, l.at+n, p[n:]
		if l.at == lineLength {
			if _, err := io.WriteString(l.w, "\n"); err != nil {
				return written, err
			}
			l.at = 0
		}
	}
	return written, nil
}

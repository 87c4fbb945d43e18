package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// Handle is a sandbox that is worked in from outside, with a POSIX shell and the usual programs in it (find, stat, sha256sum,
// base64; tar makes it fast). Numeric owners, modes, times, links of both kinds and names of any bytes are kept; holes of
// sparse files are filled, and attributes are not seen.
type Handle interface {
	// ID names the sandbox for as long as it lives: what is remembered of its directories is kept under it.
	ID() string

	// Capabilities say what Exec can carry.
	Capabilities() Capabilities

	// Exec runs "sh -c script" in the sandbox and returns its exit status when it has ended. An error says that it could
	// not be run, or not be followed to its end.
	Exec(ctx context.Context, e Exec) (status int, err error)
}

// Exec is a command to be run.
type Exec struct {
	Script string
	Stdin  io.Reader // nil for none, and always without the capability
	Stdout io.Writer // gets the output as it comes
	Stderr io.Writer
}

// Capabilities say what a sandbox can do. The zero value is right for one that only runs commands and returns their output as
// text.
type Capabilities struct {
	Stdin  bool // Exec feeds Stdin, of any bytes
	Binary bool // Stdout gets the bytes of the command, not text that was decoded from them
}

// ExecHandle makes a Handle of a function that runs commands.
func ExecHandle(id string, can Capabilities, run func(ctx context.Context, e Exec) (status int, err error)) Handle {
	return &execHandle{id, can, run}
}

type execHandle struct {
	id  string
	can Capabilities
	run func(context.Context, Exec) (int, error)
}

func (h *execHandle) ID() string                                    { return h.id }
func (h *execHandle) Capabilities() Capabilities                    { return h.can }
func (h *execHandle) Exec(ctx context.Context, e Exec) (int, error) { return h.run(ctx, e) }

// shell runs scripts in a sandbox.
type shell struct{ Handle }

// scriptChunk is how much of a stream one command line carries to a sandbox without standard input, in bytes of base64. A
// system takes 128 KiB at least.
const scriptChunk = 64 << 10

// errorTail is how much of a script's complaints an error repeats.
const errorTail = 2 << 10

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > errorTail {
		t.b = t.b[len(t.b)-errorTail:]
	}
	return len(p), nil
}

// statusError reports a script that ended with another status than 0.
type statusError struct {
	status int
	said   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("a command in the sandbox ended with status %d: %s", e.status, strings.TrimSpace(e.said))
}

// run runs a script. stdin may be nil; read gets the bytes of its output.
func (s *shell) run(ctx context.Context, script string, stdin io.Reader, read func(io.Reader) error) error {
	if stdin != nil && !s.Capabilities().Stdin {
		path, err := s.upload(ctx, stdin)
		if err != nil {
			return err
		}
		script = fmt.Sprintf("trap 'rm -f %s' EXIT\n{\n%s\n} < %s", path, script, path)
		stdin = nil
	}
	if !s.Capabilities().Binary {
		// The status of a pipeline is that of base64: the other one goes around it.
		script = "exec 4>&1\nstatus=$( { { (\n" + script + "\n) 3>&- 4>&-; echo \"$?\" >&3; } | base64 >&4; } 3>&1 )\nexit \"$status\""
	}
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		var r io.Reader = out
		if !s.Capabilities().Binary {
			r = base64.NewDecoder(base64.StdEncoding, out)
		}
		err := read(r)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		out.CloseWithError(err) // ends the command
		done <- err
	}()
	said := &tail{}
	status, err := s.Exec(ctx, Exec{Script: script, Stdin: stdin, Stdout: in, Stderr: said})
	in.Close()
	failed := <-done
	switch {
	case status != 0 && err == nil:
		return &statusError{status, string(said.b)}
	case failed != nil:
		return failed
	}
	return err
}

// do runs a script whose output does not matter.
func (s *shell) do(ctx context.Context, script string, stdin io.Reader) error {
	return s.run(ctx, script, stdin, func(io.Reader) error { return nil })
}

// output runs a script and returns its output.
func (s *shell) output(ctx context.Context, script string, stdin io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := s.run(ctx, script, stdin, func(r io.Reader) error {
		_, err := io.Copy(&b, r)
		return err
	})
	return b.Bytes(), err
}

// upload writes a stream into a file of the sandbox, some of it with each command.
func (s *shell) upload(ctx context.Context, r io.Reader) (path string, err error) {
	path = "/tmp/.cairn-" + rand.Text()
	buf := make([]byte, scriptChunk/4*3)
	for first := true; ; first = false {
		n, err := io.ReadFull(r, buf)
		if n == 0 && !first {
			return path, nil
		}
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return "", err
		}
		script := fmt.Sprintf("umask 077; printf %%s '%s' | base64 -d >> %s", base64.StdEncoding.EncodeToString(buf[:n]), path)
		if err := s.do(ctx, script, nil); err != nil {
			return "", err
		}
	}
}

// quoted makes one word of the shell of any bytes but NUL.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

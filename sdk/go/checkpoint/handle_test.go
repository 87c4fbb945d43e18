package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sandbox is a directory of this machine that is only worked in through a shell.
func sandbox(id string, can Capabilities, path string, scripts *int) Handle {
	return ExecHandle(id, can, func(ctx context.Context, e Exec) (int, error) {
		if e.Stdin != nil && !can.Stdin {
			return 0, errors.New("standard input without the capability")
		}
		if scripts != nil {
			*scripts++
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", e.Script)
		cmd.Env = []string{"PATH=" + path}
		cmd.Stdin, cmd.Stderr = e.Stdin, e.Stderr
		cmd.Stdout = e.Stdout
		var text *textOnly
		if !can.Binary {
			text = &textOnly{w: e.Stdout}
			cmd.Stdout = text
		}
		err := cmd.Run()
		if _, ok := errors.AsType[*exec.ExitError](err); ok {
			err = nil
		}
		if text != nil && text.bad {
			return 0, errors.New("a byte that is no text")
		}
		return cmd.ProcessState.ExitCode(), err
	})
}

// textOnly notes bytes that would not survive being decoded as text.
type textOnly struct {
	w   interface{ Write([]byte) (int, error) }
	bad bool
}

func (t *textOnly) Write(p []byte) (int, error) {
	t.bad = t.bad || bytes.ContainsFunc(p, func(r rune) bool { return r >= 0x80 || r < ' ' && r != '\n' })
	return t.w.Write(p)
}

// poor returns a PATH whose find has no -printf, and which has no tar.
func poor(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "stat", "readlink", "base64", "sha256sum", "xargs", "ls", "head", "mkdir", "mv", "rm", "ln", "chmod", "touch", "date", "cat", "chown"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	find, err := exec.LookPath("find")
	if err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nfor a do [ \"$a\" != -printf ] || exit 1; done\nexec " + find + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "find"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// odd makes a tree with what a tree can have.
func odd(t *testing.T, dir string) {
	t.Helper()
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	write(t, dir, map[string]string{
		"a.txt": "text\n", "empty": "", "deep/er/x": "x", "name with 'quotes' and \"more\"": "q", "line\nend": "n", "-rf": "dash", "back\\slash": "b",
		"non-\xff-utf8": "u", "ö/😀": "s", "bin/big": string(big), "dot.": ".", "dir./f": "d", ".hidden/f": "h", "same-1": "linked", "nul": "a\x00b\xff",
	})
	past := time.Unix(1_600_000_000, 123_456_789)
	for _, step := range []error{
		os.Mkdir(filepath.Join(dir, "empty dir"), 0o755),
		os.Link(filepath.Join(dir, "same-1"), filepath.Join(dir, "deep/same-2")),
		os.Symlink("a.txt", filepath.Join(dir, "link")),
		os.Symlink("nowhere/at all", filepath.Join(dir, "deep/dangling")),
		os.Symlink("deep", filepath.Join(dir, "link to dir")),
		os.Chmod(filepath.Join(dir, "a.txt"), 0o751),
		os.Chmod(filepath.Join(dir, "deep/er/x"), 0o400),
		os.Chtimes(filepath.Join(dir, "a.txt"), past, past),
		os.Chtimes(filepath.Join(dir, "deep/er"), past, past),
		os.Chmod(filepath.Join(dir, "deep/er"), 0o555),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	open(t, dir)
}

// open lets a tree that odd made be removed in the end.
func open(t *testing.T, dir string) {
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "deep/er"), 0o755) })
}

// stat describes everything beneath dir, times included.
func stat(t *testing.T, dir string) map[string]string {
	t.Helper()
	all, inodes := map[string]string{}, map[uint64]string{}
	err := filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		sys := st.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%v %d.%09d ", st.Mode(), sys.Mtim.Sec, sys.Mtim.Nsec)
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			first, ok := inodes[sys.Ino]
			if !ok {
				inodes[sys.Ino], first = rel, ""
			}
			text += fmt.Sprintf("%x linked %q of %d", b, first, sys.Nlink)
		case st.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += target
		}
		all[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func equalTrees(t *testing.T, got, want string) {
	t.Helper()
	g, w := stat(t, got), stat(t, want)
	for p := range w {
		if g[p] != w[p] {
			t.Errorf("%q is %.200q, want %.200q", p, g[p], w[p])
		}
	}
	for p := range g {
		if _, ok := w[p]; !ok {
			t.Errorf("%q is too many", p)
		}
	}
}

// handles lists what sandboxes can do.
func handles(t *testing.T) map[string]func(id string, scripts *int) Handle {
	path := os.Getenv("PATH")
	bare := poor(t)
	return map[string]func(string, *int) Handle{
		"streams":        func(id string, n *int) Handle { return sandbox(id, Capabilities{Stdin: true, Binary: true}, path, n) },
		"text":           func(id string, n *int) Handle { return sandbox(id, Capabilities{Stdin: true}, path, n) },
		"exec alone":     func(id string, n *int) Handle { return sandbox(id, Capabilities{}, path, n) },
		"poor":           func(id string, n *int) Handle { return sandbox(id, Capabilities{Stdin: true, Binary: true}, bare, n) },
		"poor and alone": func(id string, n *int) Handle { return sandbox(id, Capabilities{}, bare, n) },
	}
}

// TestHandleEqualsLocal captures and restores in sandboxes and on this machine,
// crosswise.
func TestHandleEqualsLocal(t *testing.T) {
	for name, start := range handles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a := newWorld(t), t.TempDir()
			odd(t, a)
			full := &Policy{Base: "full"}
			scripts := 0
			p := w.capture(a)
			p.Policy, p.Handle = full, start("A", &scripts)
			first := mustCapture(t, p)
			if again := mustCapture(t, p); !again.Unchanged {
				t.Errorf("captured again: %+v", again)
			}
			local := w.capture(a)
			local.Policy, local.ExpectedHead = full, &first.Checkpoint.ID
			if c := mustCapture(t, local); !c.Unchanged {
				t.Error("a local capture of the same files has another root")
			}
			fresh := filepath.Join(t.TempDir(), "new/root")
			open(t, fresh)
			mustRestore(t, w.restore(fresh))
			equalTrees(t, fresh, a)
			b := filepath.Join(t.TempDir(), "b")
			open(t, b)
			r := w.restore(b)
			r.Handle = start("B", &scripts)
			if got := mustRestore(t, r); got.LeftOut.Total > 0 {
				t.Errorf("left out: %+v", got.LeftOut)
			}
			equalTrees(t, b, a)
			disturb(t, b)
			dry := r
			dry.DryRun = true
			plan := mustRestore(t, dry)
			got := mustRestore(t, r)
			equalTrees(t, b, a)
			if plan.Changed.Total != got.Changed.Total || plan.Removed.Total != got.Removed.Total || got.Removed.Total == 0 {
				t.Errorf("a dry run tells of %d and %d changes, the restore made %d and %d", plan.Changed.Total, plan.Removed.Total, got.Changed.Total, got.Removed.Total)
			}
			if idle := mustRestore(t, r); idle.Changed.Total+idle.Removed.Total > 0 {
				t.Errorf("with nothing to do: %+v", idle)
			}
			if _, err := os.Stat("/tmp/.cairn-"); err == nil {
				t.Error("something is left in /tmp")
			}
		})
	}
}

// disturb changes a tree that odd made.
func disturb(t *testing.T, dir string) {
	t.Helper()
	path := func(p string) string { return filepath.Join(dir, p) }
	for _, step := range []error{
		os.Chmod(path("deep/er"), 0o755),
		os.Chmod(path("deep/er/x"), 0o600),
		os.WriteFile(path("deep/er/x"), []byte("y"), 0o600),
		os.Chmod(path("deep/er"), 0o555),
		os.WriteFile(path("a.txt"), []byte("other"), 0o600),
		os.WriteFile(path("bin/new"), []byte("new"), 0o600),
		os.Mkdir(path("new dir"), 0o700),
		os.WriteFile(path("new dir/f"), nil, 0o400),
		os.Chmod(path("new dir"), 0o500),
		os.Remove(path("link")),
		os.Mkdir(path("link"), 0o755),
		os.WriteFile(path("link/f"), []byte("in the way"), 0o644),
		os.Remove(path("same-1")),
		os.WriteFile(path("same-1"), []byte("linked"), 0o644),
		os.RemoveAll(path("ö")),
		os.WriteFile(path("ö"), []byte("a file"), 0o644),
		os.Remove(path("empty dir")),
		os.Symlink("/etc", path("empty dir")),
		os.Remove(path("-rf")),
		os.Symlink("deep", path("-rf")),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
}

func TestHandleRefusesAndSkips(t *testing.T) {
	w, a := newWorld(t), t.TempDir()
	h := sandbox("A", Capabilities{Stdin: true, Binary: true}, os.Getenv("PATH"), nil)
	write(t, a, map[string]string{"f": "1", "node_modules/x": "2"})
	for _, step := range []error{
		os.Symlink("/etc/passwd", filepath.Join(a, "out")), os.Symlink("out", filepath.Join(a, "via")), os.Symlink(a, filepath.Join(a, "self")),
		syscall.Mkfifo(filepath.Join(a, "fifo"), 0o600),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	p := w.capture(a)
	p.Handle = h
	_, err := Capture(t.Context(), p)
	refused, ok := errors.AsType[*UnsupportedEntryError](err)
	if !ok || refused.Total != 3 {
		t.Fatalf("links that leave the root, and a fifo: %v", err)
	}
	_, err = Capture(t.Context(), w.capture(a))
	if local, ok := errors.AsType[*UnsupportedEntryError](err); !ok || fmt.Sprint(local.Entries) != fmt.Sprint(refused.Entries) {
		t.Errorf("refused %v, on this machine %v", refused, err)
	}
	p.Policy = &Policy{Base: "default", Exclude: refused.Excludes}
	if c := mustCapture(t, p); c.LeftOut.Total != 4 || c.Checkpoint.Stats.Files != 1 {
		t.Errorf("with the excludes: %+v", c)
	}
	p.Roots = []Root{{Path: filepath.Join(a, "nothing")}}
	if _, err := Capture(t.Context(), p); !errors.Is(err, ErrInvalidWorkspace) {
		t.Errorf("a root that is not there: %v", err)
	}
}

func TestHandleChangesNothingWithoutTheObjects(t *testing.T) {
	for name, open := range handles(t) {
		w, a, b := newWorld(t), t.TempDir(), t.TempDir()
		write(t, a, map[string]string{"f": "what is lost", "g": "what is there"})
		mustCapture(t, w.capture(a))
		write(t, b, map[string]string{"g": "as it was"})
		before := stat(t, b)
		r := w.restore(b)
		r.Handle = open("B", nil)
		for corrupt, want := range map[bool]Code{false: ErrMissingBlob, true: ErrInvalidBlob} {
			r.Blobs = &loser{Memory: w.Memory, text: "what is lost", corrupt: corrupt}
			if _, err := Restore(t.Context(), r); !errors.Is(err, want) {
				t.Errorf("%s: restore with %v: %v", name, want, err)
			}
			after := stat(t, b)
			delete(before, ".")
			delete(after, ".")
			if fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("%s: changed to %v", name, after)
			}
		}
	}
}

func TestHandleSparesLiveSecrets(t *testing.T) {
	w, a := newWorld(t), t.TempDir()
	h := sandbox("A", Capabilities{Stdin: true, Binary: true}, os.Getenv("PATH"), nil)
	secret := "npm_0123456789"
	write(t, a, map[string]string{".npmrc": "token=" + secret + "\n", "f": "1"})
	p := w.capture(a)
	p.Handle, p.Secrets = h, []Secret{{Name: "NPM", Value: secret}}
	mustCapture(t, p)
	w.objects.Each(func(_ Digest, b []byte) {
		if strings.Contains(string(b), secret) {
			t.Error("the secret is stored")
		}
	})
	write(t, a, map[string]string{"f": "2"})
	r := w.restore(a)
	r.Handle = h
	mustRestore(t, r)
	same(t, files(t, a), map[string]string{".npmrc": "token=" + secret + "\n", "f": "1"})
	b := t.TempDir()
	r = w.restore(b)
	r.Handle, r.Secrets = h, p.Secrets
	mustRestore(t, r)
	same(t, files(t, b), map[string]string{".npmrc": "token=" + secret + "\n", "f": "1"})
	r = w.restore(t.TempDir())
	r.Handle = h
	if got := mustRestore(t, r); got.LeftOut.Total != 1 {
		t.Errorf("without the secret: %+v", got.LeftOut)
	}
}

// TestHandleUndo undoes a restore in a sandbox, with an excluded path that stays.
func TestHandleUndo(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "of the thread"})
	mustCapture(t, w.capture(a))
	before := map[string]string{"f": "mine", "g/h": "mine too", "node_modules/x": "stays"}
	write(t, b, before)
	r := w.restore(b)
	r.Handle = sandbox("B", Capabilities{Stdin: true, Binary: true}, os.Getenv("PATH"), nil)
	mustRestore(t, r)
	same(t, files(t, b), map[string]string{"f": "of the thread", "node_modules/x": "stays"})
	if _, err := Undo(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, b), before)
}

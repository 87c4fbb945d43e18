package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// program makes a program that stands for git.
func program(t *testing.T, script string) *Git {
	t.Helper()
	path := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return New(Config{Program: path, Slots: 1})
}

func view(t *testing.T) *Dir {
	t.Helper()
	room := NewRoom(t.TempDir())
	d, err := room.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), room.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func run(g *Git, d *Dir, c Command) (string, error) {
	var out bytes.Buffer
	c.Name, c.Out = PackObjects, &out
	if c.MaxOutput == 0 {
		c.MaxOutput = 1 << 20
	}
	err := g.Run(context.Background(), d, c)
	return out.String(), err
}

// TestRealGit makes a pack of nothing.
func TestRealGit(t *testing.T) {
	out, err := run(New(Config{}), view(t), Command{Options: []string{"--stdout", "-q", "--delta-base-offset", "--threads=1"}})
	if err != nil || !strings.HasPrefix(out, "PACK") || len(out) != 32 {
		t.Errorf("%q, %v", out, err)
	}
	_, err = run(New(Config{}), view(t), Command{Options: []string{"--stdout"}, In: strings.NewReader(strings.Repeat("1", 40) + " x\n")})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Status != 128 || !strings.Contains(exit.Stderr, "1111") {
		t.Errorf("an object that is not there: %v", err)
	}
}

func TestSurroundings(t *testing.T) {
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_OBJECT_DIRECTORY", "/elsewhere")
	t.Setenv("SECRET", "hunter2")
	d := view(t)
	out, err := run(program(t, `pwd; env; echo "$@"`), d, Command{Options: []string{"-q"}, Args: []string{"--evil"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, d.path+"\n") || !strings.Contains(out, "GIT_DIR="+d.shared) || !strings.HasSuffix(out, " pack-objects -q --end-of-options --evil\n") {
		t.Errorf("git sees\n%s", out)
	}
	for _, bad := range []string{"hunter2", "GIT_CONFIG_COUNT", "/elsewhere"} {
		if strings.Contains(out, bad) {
			t.Errorf("git sees %s", bad)
		}
	}
}

func TestRefusals(t *testing.T) {
	g, d := program(t, "echo ran"), view(t)
	for _, o := range []string{"--upload-pack=sh", "--", "x", "--all-progress", ""} {
		if out, err := run(g, d, Command{Options: []string{o}}); err == nil {
			t.Errorf("option %q: %q", o, out)
		}
	}
	for name, c := range map[string]Command{
		"command":      {Name: "gc", Out: io.Discard, MaxOutput: 1},
		"blame path":   {Name: Blame, Args: []string{"--evil"}, Out: io.Discard, MaxOutput: 1},
		"blame commit": {Name: Blame, Args: []string{"--evil", "--", "f"}, Out: io.Discard, MaxOutput: 1},
		"blame option": {Name: Blame, Options: []string{"-S/etc/passwd"}, Args: []string{strings.Repeat("1", 40), "--", "f"}, Out: io.Discard, MaxOutput: 1},
		"no bound":     {Name: PackObjects, Out: io.Discard},
		"nobody reads": {Name: PackObjects, MaxOutput: 1},
	} {
		if err := g.Run(context.Background(), d, c); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	if _, err := run(New(Config{Program: "no-such-git"}), d, Command{}); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("without git: %v", err)
	}
}

// gone waits until a process is no more.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 500 {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

// TestEnds ends runs in all ways; what git started ends with it.
func TestEnds(t *testing.T) {
	const child = "sleep 1000 & echo $! >child; echo $!; wait"
	for name, tc := range map[string]struct {
		c    Command
		stop bool
		want error
	}{
		"time":   {Command{Timeout: 300 * time.Millisecond}, false, context.DeadlineExceeded},
		"output": {Command{MaxOutput: 1}, false, ErrOutput},
		"caller": {Command{}, true, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			d := view(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			tc.c.Name, tc.c.Out = PackObjects, io.Discard
			if tc.c.MaxOutput == 0 {
				tc.c.MaxOutput = 100
			}
			if tc.stop {
				go func() {
					for range 500 {
						if pid, err := os.ReadFile(filepath.Join(d.path, "child")); err == nil && len(pid) > 0 {
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					cancel()
				}()
			}
			if err := program(t, child).Run(ctx, d, tc.c); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			pid, err := os.ReadFile(filepath.Join(d.path, "child"))
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
			if err != nil {
				t.Fatal(err)
			}
			gone(t, n)
		})
	}
	// A writer that fails ends the run with its error.
	broken := errors.New("broken")
	err := program(t, "echo x; sleep 1000").Run(context.Background(), view(t), Command{Name: PackObjects, Out: failing{broken}, MaxOutput: 100})
	if !errors.Is(err, broken) {
		t.Errorf("a reader that is gone: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestSlots runs no more at a time than there are slots.
func TestSlots(t *testing.T) {
	g := program(t, `mkdir running || exit 3; sleep 0.05; rmdir running`)
	d := view(t)
	errs := make(chan error, 5)
	for range cap(errs) {
		go func() {
			_, err := run(g, d, Command{})
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// Who waits for a slot can give up.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g.slots <- struct{}{}
	if err := g.Run(ctx, d, Command{Name: PackObjects, Out: io.Discard, MaxOutput: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
}

// TestPackTwice puts a pack into a view that has it.
func TestPackTwice(t *testing.T) {
	d := view(t)
	for range 2 {
		if err := d.AddPack(object.Hash(object.Blob, nil), strings.NewReader("PACK"), []byte("index")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoom makes and gives up many views at once: what one holds no other sees,
// and nothing is left in the end.
func TestRoom(t *testing.T) {
	scratch := t.TempDir()
	room := NewRoom(scratch)
	var all sync.WaitGroup
	for i := range 4 * maxRemovals {
		all.Go(func() {
			d, err := room.NewDir()
			if err != nil {
				t.Error(err)
				return
			}
			for range 2 {
				err := d.MakePack(func(w io.Writer) ([]byte, error) {
					_, err := io.WriteString(w, strconv.Itoa(i))
					return []byte("index"), err
				})
				if err != nil {
					t.Error(err)
				}
			}
			files, err := os.ReadDir(d.packDir())
			if err != nil || len(files) != 4 {
				t.Errorf("a view with two packs has %v, %v", files, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := room.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("%v are left behind, %v", left, err)
	}
	if _, err := room.NewDir(); err != nil {
		t.Errorf("a room that is used again: %v", err)
	}
	if err := room.Close(); err != nil {
		t.Error(err)
	}
	unused := NewRoom(filepath.Join(scratch, "missing"))
	if _, err := unused.NewDir(); err == nil {
		t.Error("a room makes views in a directory that is not there")
	}
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
}

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWhoKeepsWhomOut opens a root for each use while it is in use.
func TestWhoKeepsWhomOut(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	other := filepath.Join(t.TempDir(), "state of another user")
	for name, c := range map[string]struct {
		first, second use
		thread, state string
		handle        string
		free          bool
	}{
		"two captures of a thread":                  {first: capturing, second: capturing},
		"captures of two threads":                   {first: capturing, second: capturing, thread: "u", free: true},
		"a capture in a restore":                    {first: restoring, second: capturing, thread: "u"},
		"a restore in a capture":                    {first: capturing, second: restoring, thread: "u"},
		"a restore in a restore":                    {first: restoring, second: restoring, thread: "u"},
		"a dry run in a restore":                    {first: restoring, second: looking, thread: "u"},
		"a restore by another user":                 {first: capturing, second: restoring, state: other},
		"a restore in a sandbox during another":     {first: restoring, second: restoring, thread: "u", handle: "h"},
		"captures of two threads in a sandbox":      {first: capturing, second: capturing, thread: "u", handle: "h", free: true},
		"a restore in a sandbox by another machine": {first: capturing, second: restoring, handle: "h", state: other, free: true},
	} {
		s, err := openState(w.state, w.Identity(), "t", c.handle, []Root{{Path: dir}}, c.first)
		if err != nil {
			t.Fatal(err)
		}
		thread, state := "t", w.state
		if c.thread != "" {
			thread = c.thread
		}
		if c.state != "" {
			state = c.state
		}
		again, err := openState(state, w.Identity(), thread, c.handle, []Root{{Path: dir}}, c.second)
		if c.free != (err == nil) || err != nil && !errors.Is(err, ErrWriterConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if again != nil {
			again.close()
		}
		s.close()
		if s, err = openState(state, w.Identity(), thread, c.handle, []Root{{Path: dir}}, restoring); err != nil {
			t.Errorf("after %s: %v", name, err)
		} else {
			s.close()
		}
	}
}

// TestTwoRestoresOfOneNewRoot opens a root that is not there for two threads.
func TestTwoRestoresOfOneNewRoot(t *testing.T) {
	w, dir := newWorld(t), filepath.Join(t.TempDir(), "new")
	s, err := openState(w.state, w.Identity(), "t", "", []Root{{Path: dir}}, restoring)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	_, err = openState(w.state, w.Identity(), "u", "", []Root{{Path: dir}}, restoring)
	if !errors.Is(err, ErrWriterConflict) || !strings.Contains(err.Error(), `restore of thread "t"`) {
		t.Errorf("the second one: %v", err)
	}
}

// TestCaptureWaitsForARestore captures with a wait while a restore is at work.
func TestCaptureWaitsForARestore(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	s, err := openState(w.state, w.Identity(), "u", "", []Root{{Path: dir}}, restoring)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Capture(t.Context(), w.capture(dir)); !errors.Is(err, ErrWriterConflict) {
		t.Errorf("without a wait: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, s.close)
	p := w.capture(dir)
	p.WaitBusy = time.Minute
	mustCapture(t, p)
}

// TestNowhereToRemember captures and restores where no directory can be written:
// what one process does belongs together, and the result says that more does not.
func TestNowhereToRemember(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	nowhere := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(nowhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"f": "1"})
	s := &state{store: w.Identity(), thread: "t", roots: []Root{{Path: dir}}}
	if err := s.load(s.roots[0]); err != nil || s.known[0] || s.cache() != "" {
		t.Fatalf("before anything: %+v, %v", s, err)
	}
	if err := s.update(func(m *memory) { m.Head = "c" }); err != nil {
		t.Fatal(err)
	}
	again := &state{store: w.Identity(), thread: "t", roots: s.roots}
	if err := again.load(again.roots[0]); err != nil || !again.known[0] || again.mem[0].Head != "c" {
		t.Errorf("after it: %+v, %v", again, err)
	}
	if err := again.reset([]memory{{Root: again.mem[0].Root}}, []bool{false}); err != nil {
		t.Fatal(err)
	}
	last := &state{store: w.Identity(), thread: "t", roots: s.roots}
	if err := last.load(last.roots[0]); err != nil || last.known[0] {
		t.Errorf("after a reset: %+v, %v", last, err)
	}
	if _, err := stateDir(filepath.Join(nowhere, "state"), nil); err == nil {
		t.Error("a given directory that cannot be made is taken")
	}
	if found, err := stateDir("", []Root{{Path: "/"}}); found != "" || err != nil {
		t.Errorf("where everything is the root: %q, %v", found, err)
	}
}

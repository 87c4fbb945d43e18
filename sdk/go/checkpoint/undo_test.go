package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// undone returns the bytes that are kept to undo restores.
func undoBytes(t *testing.T, state string) (n int64) {
	t.Helper()
	err := filepath.Walk(state, func(path string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() && strings.Contains(path, ".undo") {
			n += st.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUndoKeepsOnlyWhatTheThreadLacks looks at what is kept, and when it goes.
func TestUndoKeepsOnlyWhatTheThreadLacks(t *testing.T) {
	w, a := newWorld(t), t.TempDir()
	noise := func(seed string) string { return strings.Repeat(seed, 300_000) }
	write(t, a, map[string]string{"saved": noise("0123456789")})
	first := mustCapture(t, w.capture(a)).Checkpoint.ID
	write(t, a, map[string]string{"saved": noise("9876543210"), "own": "not saved"})
	second := mustCapture(t, w.capture(a)).Checkpoint.ID
	write(t, a, map[string]string{"own": "still not saved"})
	now := files(t, a)
	old := w.restore(a)
	old.Checkpoint = first
	mustRestore(t, old)
	if n := undoBytes(t, w.state); n == 0 || n > 64<<10 {
		t.Errorf("%d bytes are kept, though the thread has all but a few", n)
	}
	if s, err := openState(w.state, w.Identity(), "t", "", []Root{{Path: a}}, looking); err != nil || s.mem[0].Head != first {
		t.Errorf("after the restore: %v", err)
	} else {
		s.close()
	}
	if _, err := Undo(t.Context(), w.restore(a)); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, a), now)
	if n := undoBytes(t, w.state); n != 0 {
		t.Errorf("%d bytes are kept after the undo", n)
	}
	if c := mustCapture(t, w.capture(a)); c.Checkpoint.Parent != second {
		t.Errorf("the files came from %q, want %q", c.Checkpoint.Parent, second)
	}
	mustRestore(t, old)
	old.NoUndo = true
	mustRestore(t, old)
	if _, err := Undo(t.Context(), w.restore(a)); !errors.Is(err, ErrNothingToUndo) || undoBytes(t, w.state) != 0 {
		t.Errorf("after a restore that keeps nothing: %v", err)
	}
}

// TestAFailedRestoreLeavesTheUndo restores, and then something that is lost.
func TestAFailedRestoreLeavesTheUndo(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "1"})
	first := mustCapture(t, w.capture(a)).Checkpoint.ID
	write(t, a, map[string]string{"f": "what is lost"})
	mustCapture(t, w.capture(a))
	write(t, b, map[string]string{"f": "mine"})
	r := w.restore(b)
	r.Checkpoint = first
	mustRestore(t, r)
	lost := w.restore(b)
	lost.Blobs = &loser{Memory: w.Memory, text: "what is lost"}
	if _, err := Restore(t.Context(), lost); !errors.Is(err, ErrMissingBlob) {
		t.Fatalf("a restore of what is lost: %v", err)
	}
	same(t, files(t, b), map[string]string{"f": "1"})
	if _, err := Undo(t.Context(), w.restore(b)); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, b), map[string]string{"f": "mine"})
}

// TestUndoOfAnInterruptedRestore completes an interrupted restore by another one
// and goes back to what was there before the first of them.
func TestUndoOfAnInterruptedRestore(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "1", "g": "2"})
	c := mustCapture(t, w.capture(a)).Checkpoint
	before := map[string]string{"f": "mine", "h": "mine too"}
	write(t, b, before)
	// What a restore does until it dies in the middle of its changes.
	p := w.restore(b)
	r, err := newRestore(&p)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := r.readRoot(t.Context(), c.Root)
	if err == nil {
		err = r.open(t.Context(), stored)
	}
	if err == nil {
		err = r.keep(t.Context(), stored)
	}
	if err == nil {
		err = r.state.update(func(m *memory) { m.Restoring = c.ID })
	}
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	write(t, b, map[string]string{"f": "1"})

	mustRestore(t, w.restore(b))
	same(t, files(t, b), files(t, a))
	if _, err := Undo(t.Context(), w.restore(b)); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, b), before)
}

// TestRestoreIsWholeOrNothing ends the context of a restore while it fetches, and
// once it has begun to change files.
func TestRestoreIsWholeOrNothing(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "the last one", "g": "2"})
	mustCapture(t, w.capture(a))
	write(t, b, map[string]string{"f": "mine"})
	ctx, stop := context.WithCancelCause(t.Context())
	r := w.restore(b)
	enough := errors.New("enough")
	r.Blobs = &stopping{w.Memory, "the last one", func() { stop(enough) }}
	if _, err := Restore(ctx, r); !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
		t.Errorf("the restore ended with %v", err)
	}
	same(t, files(t, b), map[string]string{"f": "mine"})
	if c, err := Capture(t.Context(), w.capture(b)); !errors.Is(err, ErrHeadConflict) {
		t.Errorf("a capture where nothing was restored: %+v, %v", c, err)
	}
}

// stopping calls stop when an object is fetched.
type stopping struct {
	*Memory
	text string
	stop func()
}

func (s *stopping) Fetch(ctx context.Context, at Scope, digests []Digest, fn func(Digest, []byte) error) error {
	return s.Memory.Fetch(ctx, at, digests, func(d Digest, b []byte) error {
		if bytes.Equal(b, []byte(s.text)) {
			s.stop()
		}
		return fn(d, b)
	})
}

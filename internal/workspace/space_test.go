package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// TestWhatDoesNotFitIsRefused restores into file systems without room, which no
// directory of the target is there yet.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	from, m := t.TempDir(), &tree.Memory{}
	write(t, filepath.Join(from, "large"), strings.Repeat("x", 100_000))
	write(t, filepath.Join(from, "small"), "y")
	c := capture(t, options(from), m)
	for what, left := range map[string]space{
		"bytes":   {bytes: 100_000},
		"entries": {bytes: 1 << 30, entries: 1, counted: true},
	} {
		above := t.TempDir()
		to := filepath.Join(above, "not", "there")
		asked := ""
		_, err := Restore(t.Context(), RestoreOptions{
			Roots: []Root{{"r", to}}, room: func(path string) (space, error) { asked = path; return left, nil },
		}, m, c.Root)
		e, ok := errors.AsType[*SpaceError](err)
		if !ok || e.What != what || e.Need <= e.Free || asked != to || !strings.Contains(err.Error(), what) {
			t.Errorf("without room for %s: %v", what, err)
		}
		if names, err := os.ReadDir(above); err != nil || len(names) != 0 {
			t.Errorf("it left %v (%v)", names, err)
		}
	}
	restored(t, filepath.Join(t.TempDir(), "new"), m, c.Root, func(o *RestoreOptions) {
		o.room = func(string) (space, error) { return space{bytes: 100_001, entries: 2, counted: true}, nil }
	})
}

// TestRootsShareTheRoom restores two roots into one file system that has room for
// one of them.
func TestRootsShareTheRoom(t *testing.T) {
	a, b, m := t.TempDir(), t.TempDir(), &tree.Memory{}
	write(t, filepath.Join(a, "f"), strings.Repeat("x", 1000))
	write(t, filepath.Join(b, "f"), strings.Repeat("y", 1000))
	o := options(a)
	o.Roots = []Root{{"a", a}, {"b", b}}
	c := capture(t, o, m)
	for free, fits := range map[uint64]bool{1999: false, 2000: true} {
		_, err := Restore(t.Context(), RestoreOptions{
			Roots: []Root{{"a", filepath.Join(t.TempDir(), "a")}, {"b", filepath.Join(t.TempDir(), "b")}},
			room:  func(string) (space, error) { return space{bytes: free}, nil },
		}, m, c.Root)
		if _, refused := errors.AsType[*SpaceError](err); refused == fits || fits && err != nil {
			t.Errorf("with %d bytes free: %v", free, err)
		}
	}
}

func TestRoomIsThatOfTheNearestDirectory(t *testing.T) {
	dir := t.TempDir()
	far, err := room(filepath.Join(dir, "not", "there", "yet"))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if far.device != st.Dev || far.bytes == 0 {
		t.Errorf("it is %+v", far)
	}
	write(t, filepath.Join(dir, "file"), "")
	if _, err := room(filepath.Join(dir, "file", "beneath")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("beneath a file: %v", err)
	}
}

// TestAFailedRestoreLeavesNoRoot restores objects that are lost into a root that
// is not there.
func TestAFailedRestoreLeavesNoRoot(t *testing.T) {
	from, m := t.TempDir(), &tree.Memory{}
	write(t, filepath.Join(from, "f"), "lost")
	c := capture(t, options(from), m)
	m.Delete(tree.Sum([]byte("lost")))
	to := filepath.Join(t.TempDir(), "to")
	if _, err := Restore(t.Context(), RestoreOptions{Roots: []Root{{"r", to}}}, m, c.Root); err == nil {
		t.Fatal("it was restored")
	}
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the root: %v", err)
	}
}

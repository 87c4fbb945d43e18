package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// TestFewOpenFilesAreEnough captures, restores and removes trees that are deeper and
// wider than the process may have files open.
func TestFewOpenFilesAreEnough(t *testing.T) {
	dir, m := t.TempDir(), &tree.Memory{}
	write(t, dir+"/"+strings.Repeat("d/", 1000)+"file", "deep")
	write(t, dir+"/"+strings.Repeat("d/", 500)+"other/file", "beside")
	for i := range 1500 {
		write(t, fmt.Sprintf("%s/wide/%04d/file", dir, i), fmt.Sprint(i))
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 400, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	root := capture(t, options(dir), m).Root
	to, cache := filepath.Join(t.TempDir(), "to"), filepath.Join(t.TempDir(), "cache")
	cached := func(o *RestoreOptions) { o.Cache = cache }
	restored(t, to, m, root, cached)
	o := options(to)
	o.Cache = cache
	if again := capture(t, o, m).Root; again != root {
		t.Error("the tree does not come back as it was")
	}
	write(t, to+"/"+strings.Repeat("d/", 900)+"more/file", "more")
	restored(t, to, m, root, cached)
	if again := capture(t, options(to), m).Root; again != root {
		t.Error("a deep change is not undone")
	}
	restored(t, to, m, capture(t, options(t.TempDir()), m).Root, cached)
	if names, err := os.ReadDir(to); err != nil || len(names) > 0 {
		t.Errorf("after a restore of nothing there is %v, %v", names, err)
	}
}

// TestAFullDiskChangesNothing restores into a file system that gets full although
// it said that there was room, and captures where the stat cache has none.
func TestAFullDiskChangesNothing(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	defer func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	}()
	dir, m := t.TempDir(), &tree.Memory{}
	for i := range 4000 {
		write(t, fmt.Sprintf("%s/%02d/%04d", dir, i%50, i), strings.Repeat(fmt.Sprint(i), 50))
	}
	root := capture(t, options(dir), m).Root

	to := small + "/to"
	write(t, to+"/old/file", "stays")
	write(t, to+"/10/0010", "stays as well")
	before := snapshot(t, to)
	_, err := Restore(t.Context(), RestoreOptions{
		Roots: []Root{{"r", to}}, room: func(string) (space, error) { return space{bytes: 1 << 40, entries: 1 << 40}, nil },
	}, m, root)
	var incomplete *IncompleteError
	if !errors.Is(err, unix.ENOSPC) || errors.As(err, &incomplete) {
		t.Errorf("a restore that fills the disk: %v", err)
	}
	compare(t, "the target of a failed restore", snapshot(t, to), before)

	o := options(dir)
	o.Cache = small + "/cache"
	if _, err := Scan(t.Context(), o, m); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "stat cache") {
		t.Errorf("a capture whose stat cache fills the disk: %v", err)
	}
	if names, err := os.ReadDir(small); err != nil || len(names) != 1 {
		t.Errorf("it leaves %v, %v", names, err)
	}
}

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFullStateDirectoryChangesNothing captures and restores while what they remember has no room: neither the thread nor
// the root changes, and both work once there is room.
func TestAFullStateDirectoryChangesNothing(t *testing.T) {
	state := t.TempDir()
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=128k,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	defer func() {
		if err := unix.Unmount(state, 0); err != nil {
			t.Error(err)
		}
	}()
	root, store := t.TempDir(), &Memory{}
	file := filepath.Join(root, "file")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	capture := func() error {
		_, err := Capture(t.Context(), CaptureParams{Store: store, Blobs: store, Thread: "t", Roots: []Root{{Name: "r", Path: root}}, StateDir: state})
		return err
	}
	restore := func() error {
		_, err := Restore(t.Context(), RestoreParams{Store: store, Blobs: store, Thread: "t", Roots: []Root{{Name: "r", Path: root}}, StateDir: state})
		return err
	}
	write(file, "first")
	if err := capture(); err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(state, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the file system does not get full: %v", err)
	}
	write(file, "second")
	if err := capture(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a capture without room: %v", err)
	}
	if now, err := store.Head(t.Context(), "t"); now != head || err != nil {
		t.Errorf("the head is %q, %v, want %q", now, err, head)
	}
	if err := restore(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a restore without room: %v", err)
	}
	if b, err := os.ReadFile(file); string(b) != "second" || err != nil {
		t.Errorf("the file is %q, %v", b, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(capture(), restore()); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

package server

import (
	"os"
	"path/filepath"
	"testing"
)

// TestScratch removes what processes left that ended without cleaning up, and
// nothing of those that live.
func TestScratch(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "scratch")
	open := func() *scratchDir {
		d, err := openScratch(parent)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.path, "file"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	live, dead := open(), open()
	if err := dead.held.Close(); err != nil { // as the end of a process does
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "scratch-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := open()
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v; want those of the two that live", entries, err)
	}
	for _, d := range []*scratchDir{live, other} {
		if _, err := os.Stat(filepath.Join(d.path, "file")); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("%v are left behind, %v", entries, err)
	}
	if _, err := openScratch(filepath.Join(parent, "\x00")); err == nil {
		t.Error("a directory that cannot be made is no fault")
	}
}

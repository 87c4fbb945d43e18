package repo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// TestIndexThroughScratch compares the index of a pack of so many objects that it
// goes through a scratch file with git's, and looks for what is left behind.
func TestIndexThroughScratch(t *testing.T) {
	git := repotest.NewGit(t)
	var data bytes.Buffer
	w := pack.NewWriter(&data, spooledIndex)
	for i := range spooledIndex {
		if _, err := w.Add(object.Blob, fmt.Appendf(nil, "%x", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "many.pack")
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	git.Run("index-pack", path)
	want, err := os.ReadFile(filepath.Join(dir, "many.idx"))
	if err != nil {
		t.Fatal(err)
	}

	scratch := t.TempDir()
	e := New(Config{Scratch: scratch})
	var stored pack.Buffer
	index, types, err := e.receiveIndexed(t.Context(), bytes.NewReader(data.Bytes()), &stored, pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(index.Bytes(), want) {
		t.Error("the index differs from git's")
	}
	if len(types) != spooledIndex || types[0] != object.Blob {
		t.Errorf("%d types, the first is %v", len(types), types[0])
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left in the scratch directory: %v, %v", left, err)
	}
}

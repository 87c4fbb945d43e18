package dir_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/blobtest"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/fsx"
)

func open(tb testing.TB, fsys fsx.FS) blob.Store {
	tb.Helper()
	s, err := dir.Open(fsys)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// onDisk returns a new store on the real file system whose temporary area must
// be empty when the test ends.
func onDisk(tb testing.TB) blob.Store {
	fsys, err := fsx.NewOS(filepath.Join(tb.TempDir(), "blobs"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { wantNoTemp(tb, fsys) })
	return open(tb, fsys)
}

func wantNoTemp(tb testing.TB, fsys fsx.FS) {
	tb.Helper()
	if left, err := fsys.ReadDir("tmp"); err != nil || len(left) > 0 {
		tb.Errorf("temporary area holds %v, %v", left, err)
	}
}

func inMemory(tb testing.TB) blob.Store { return open(tb, fsx.NewMem()) }

func TestOnDisk(t *testing.T) { blobtest.Test(t, onDisk) }

func TestInMemory(t *testing.T) { blobtest.Test(t, inMemory) }

func TestLarge(t *testing.T) { blobtest.TestLarge(t, onDisk, 16<<20) }

func TestCrash(t *testing.T) {
	blobtest.TestCrash(t, func(fsys fsx.FS) (blob.Store, error) { return dir.Open(fsys) })
}

func BenchmarkOnDisk(b *testing.B) { blobtest.Benchmark(b, onDisk) }

func TestObjectIsFile(t *testing.T) {
	s := onDisk(t)
	if err := s.Put(t.Context(), "a/file", strings.NewReader("content"), 7); err != nil {
		t.Fatal(err)
	}
	o, err := s.Open(t.Context(), "a/file")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	f, ok := o.(blob.FileObject)
	if !ok {
		t.Fatalf("object is a %T, want a blob.FileObject", o)
	}
	if got, err := io.ReadAll(f.File()); string(got) != "content" || err != nil {
		t.Errorf("file holds %q, %v", got, err)
	}
}

// TestReopen checks that a store finds its objects again, ignores foreign files
// and keeps an upload of another process that is under way.
func TestReopen(t *testing.T) {
	mem := fsx.NewMem()
	s := open(t, mem)
	for i := range 100 {
		if err := s.Put(t.Context(), blob.Key(fmt.Sprintf("k/%02d", i)), strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Create(t.Context(), "k/open")
	if err != nil {
		t.Fatal(err)
	}
	if err := fsx.WriteFile(mem, "objects/00/Not A Key", strings.NewReader("foreign"), -1); err != nil {
		t.Fatal(err)
	}
	again := open(t, mem)
	if err := w.Finish(t.Context()); err != nil {
		t.Errorf("upload across a second Open: %v", err)
	}
	n := 0
	for _, err := range again.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 101 {
		t.Errorf("list has %d objects, want 101", n)
	}
}

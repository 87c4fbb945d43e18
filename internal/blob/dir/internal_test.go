package dir

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/fsx"
)

func TestListInBatches(t *testing.T) {
	s, err := Open(fsx.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	const objects = 100
	for i := range objects {
		if err := s.Put(t.Context(), blob.Key(fmt.Sprintf("l/%03d", i)), strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, batch := range []int{1, 7, 50, objects, objects + 1} {
		i := 0
		for info, err := range s.list(t.Context(), "l/", batch) {
			if err != nil {
				t.Fatal(err)
			}
			if want := blob.Key(fmt.Sprintf("l/%03d", i)); info.Key != want {
				t.Fatalf("batch %d: object %d is %q, want %q", batch, i, info.Key, want)
			}
			i++
		}
		if i != objects {
			t.Errorf("batch %d: listed %d objects, want %d", batch, i, objects)
		}
	}
}

func TestSweepRemovesStaleUploads(t *testing.T) {
	mem := fsx.NewMem()
	s, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Create(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	left := func() int {
		entries, err := mem.ReadDir(tmpDir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if err := s.sweep(time.Now().Add(-staleAfter)); err != nil || left() != 1 {
		t.Errorf("sweep of a young upload: %v, %d left", err, left())
	}
	if err := s.sweep(time.Now().Add(time.Second)); err != nil || left() != 0 {
		t.Errorf("sweep of a stale upload: %v, %d left", err, left())
	}
}

// FuzzFileNames checks that file names lead back to their keys and that other
// names do not pass for keys.
func FuzzFileNames(f *testing.F) {
	for _, seed := range []string{"a/b", "a~b", "packs/1.idx", ".hidden", "A"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := blob.ParseKey(s); err == nil {
			name := file(key)
			if back, err := keyOf(name[strings.LastIndexByte(name, '/')+1:]); back != key || err != nil {
				t.Errorf("%q is stored as %q, which reads %q, %v", key, name, back, err)
			}
		}
		if key, err := keyOf(s); err == nil && !strings.HasSuffix(file(key), "/"+s) && !strings.Contains(s, "/") {
			t.Errorf("file name %q passes for %q", s, key)
		}
	})
}

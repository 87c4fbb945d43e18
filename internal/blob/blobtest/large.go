package blobtest

import (
	"crypto/sha256"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
)

// TestLarge streams 100 MB in and out and fails when the heap grows by more than
// limit bytes meanwhile. A store that holds objects in memory cannot pass.
func TestLarge(t *testing.T, newStore New, limit uint64) {
	s := newStore(t)
	const size = 100_000_000
	peak := watchHeap(t)
	want := sha256.New()
	if err := s.Put(t.Context(), "large/object", io.TeeReader(io.LimitReader(Stream("large"), size), want), -1); err != nil {
		t.Fatal(err)
	}
	o, err := s.Open(t.Context(), "large/object")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Size() != size {
		t.Fatalf("object has %d bytes, want %d", o.Size(), size)
	}
	for name, read := range map[string]func(w io.Writer) (int64, error){
		"ReadAt": func(w io.Writer) (int64, error) {
			return io.Copy(w, io.NewSectionReader(o, 0, size))
		},
		"WriteTo": func(w io.Writer) (int64, error) { return blob.WriteTo(w, o) },
	} {
		got := sha256.New()
		if n, err := read(got); n != size || err != nil || string(got.Sum(nil)) != string(want.Sum(nil)) {
			t.Errorf("%s: %d bytes, %v; or their digest differs", name, n, err)
		}
	}
	if grown := peak(); grown > limit {
		t.Errorf("heap grew by %d bytes, limit %d", grown, limit)
	}
}

// watchHeap samples the heap until the returned function is called, which says
// by how much it grew at most.
func watchHeap(t *testing.T) func() uint64 {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	base := heap()
	var most uint64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, heap())
			}
		}
	})
	stop := sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(stop)
	return func() uint64 {
		stop()
		return max(most, base) - base
	}
}

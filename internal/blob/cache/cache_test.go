package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/blobtest"
	"github.com/cairnstate/cairn/internal/blob/cache"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/blob/s3"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/testkit"
)

func onDisk(tb testing.TB) blob.Store {
	fsys, err := fsx.NewOS(filepath.Join(tb.TempDir(), "cache"))
	if err != nil {
		tb.Fatal(err)
	}
	return inFS(tb, fsys)
}

func inFS(tb testing.TB, fsys fsx.FS) blob.Store {
	s, err := dir.Open(fsys)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func onS3(tb testing.TB) blob.Store {
	server := testkit.S3(tb)
	s, err := s3.Open(tb.Context(), s3.Config{
		Bucket: server.Bucket, Endpoint: server.Endpoint, Region: server.Region, PathStyle: true,
		AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func over(tb testing.TB, remote, local blob.Store, limit int64) *cache.Store {
	tb.Helper()
	s, err := cache.Open(context.Background(), remote, local, limit)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func TestStore(t *testing.T) {
	inMemory := func(testing.TB) blob.Store { return mem.New() }
	for _, test := range []struct {
		name   string
		remote blobtest.New
		limit  int64
	}{
		{"mem/nothing fits", inMemory, 0},
		{"mem/something fits", inMemory, 10 << 20},
		{"mem/all fits", inMemory, 1 << 40},
		{"dir", func(tb testing.TB) blob.Store { return inFS(tb, fsx.NewMem()) }, 10 << 20},
		{"s3", onS3, 10 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			blobtest.Test(t, func(tb testing.TB) blob.Store { return over(tb, test.remote(tb), onDisk(tb), test.limit) })
		})
	}
}

func TestLarge(t *testing.T) {
	blobtest.TestLarge(t, func(tb testing.TB) blob.Store { return over(tb, onDisk(tb), onDisk(tb), 1<<30) }, 16<<20)
}

func BenchmarkOverS3(b *testing.B) {
	blobtest.Benchmark(b, func(tb testing.TB) blob.Store { return over(tb, onS3(tb), onDisk(tb), 1<<30) })
}

// counter counts the objects opened.
type counter struct {
	blob.Store
	opens atomic.Int64
	gate  chan struct{} // when set, Open waits for it
}

func (c *counter) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	c.opens.Add(1)
	if c.gate != nil {
		<-c.gate
	}
	return c.Store.Open(ctx, key)
}

func put(t *testing.T, s blob.Store, key blob.Key, n int) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(strings.Repeat("x", n)), int64(n)); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, s blob.Store, key blob.Key) blob.Object {
	t.Helper()
	o, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatalf("open %q: %v", key, err)
	}
	return o
}

func read(t *testing.T, s blob.Store, key blob.Key) {
	t.Helper()
	if err := open(t, s, key).Close(); err != nil {
		t.Fatal(err)
	}
}

func held(t *testing.T, local blob.Store) string {
	t.Helper()
	var keys []string
	for info, err := range local.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(info.Key))
	}
	return strings.Join(keys, " ")
}

func TestOneDownloadForManyReaders(t *testing.T) {
	remote := &counter{Store: mem.New(), gate: make(chan struct{})}
	s := over(t, remote, onDisk(t), 1000)
	put(t, remote, "a", 100)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if data, err := blobtest.ReadAll(s, "a"); err != nil || len(data) != 100 {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
		})
	}
	close(remote.gate)
	wg.Wait()
	if n := remote.opens.Load(); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	o := open(t, s, "a")
	defer o.Close()
	if f, ok := o.(blob.FileObject); !ok {
		t.Errorf("cached object is a %T, want a blob.FileObject", o)
	} else if data, err := io.ReadAll(f.File()); len(data) != 100 || err != nil {
		t.Errorf("file has %d bytes, %v", len(data), err)
	}
}

func TestEvictsLeastRecentlyUsed(t *testing.T) {
	remote, local := &counter{Store: mem.New()}, onDisk(t)
	s := over(t, remote, local, 250)
	for _, key := range []blob.Key{"a", "b", "c", "d"} {
		put(t, remote, key, 100)
	}
	put(t, remote, "too-large", 251)
	for _, step := range []struct {
		read blob.Key
		held string
	}{{"a", "a"}, {"b", "a b"}, {"a", "a b"}, {"c", "a c"}, {"a", "a c"}, {"too-large", "a c"}, {"d", "a d"}} {
		read(t, s, step.read)
		if got := held(t, local); got != step.held {
			t.Fatalf("after reading %q the cache holds %q, want %q", step.read, got, step.held)
		}
	}
	if err := s.Delete(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if got := held(t, local); got != "a" {
		t.Errorf("after a deletion the cache holds %q", got)
	}
}

func TestPinnedObjectsStay(t *testing.T) {
	remote, local := mem.New(), onDisk(t)
	s := over(t, remote, local, 250)
	for _, key := range []blob.Key{"a", "b", "c"} {
		put(t, remote, key, 100)
	}
	a, b := open(t, s, "a"), open(t, s, "b")
	read(t, s, "c") // bypasses the cache: nothing may go
	if got := held(t, local); got != "a b" {
		t.Errorf("cache holds %q, want both open objects", got)
	}
	for range 2 { // the second Close must not unpin again
		a.Close()
	}
	read(t, s, "c")
	if got := held(t, local); got != "b c" {
		t.Errorf("cache holds %q, want the open object and the last read", got)
	}
	b.Close()
}

func TestReopen(t *testing.T) {
	remote, local := &counter{Store: mem.New()}, onDisk(t)
	for i := range 5 {
		put(t, remote, blob.Key(fmt.Sprint(i)), 100)
	}
	first := over(t, remote, local, 1000)
	for i := range 5 {
		read(t, first, blob.Key(fmt.Sprint(i)))
	}
	first.Close()
	before := remote.opens.Load()
	second := over(t, remote, local, 350)
	if got := len(strings.Fields(held(t, local))); got != 3 {
		t.Errorf("a smaller cache holds %d objects, want 3", got)
	}
	for _, key := range strings.Fields(held(t, local)) {
		read(t, second, blob.Key(key))
	}
	if n := remote.opens.Load() - before; n != 0 {
		t.Errorf("%d downloads of what an earlier run cached", n)
	}
}

// TestFullDisk checks that a cache that cannot keep anything costs no read.
func TestFullDisk(t *testing.T) {
	disk := fsx.NewMem()
	inFS(t, disk)
	writes := func(op fsx.Op, _ string) bool { return op == fsx.OpWrite }
	s := over(t, mem.New(), inFS(t, fsx.NewFault(disk, fsx.FailFrom(1, writes, fsx.ErrNoSpace))), 1<<20)
	put(t, s, "a", 1000)
	for range 3 {
		if data, err := blobtest.ReadAll(s, "a"); err != nil || len(data) != 1000 {
			t.Errorf("read %d bytes, %v", len(data), err)
		}
	}
}

// TestLostCopy removes and truncates copies behind the cache's back.
func TestLostCopy(t *testing.T) {
	remote, local := mem.New(), mem.New()
	s := over(t, remote, local, 1<<20)
	put(t, remote, "a", 1000)
	for _, damage := range []func(){
		func() {},
		func() { put(t, local, "a", 10) },
	} {
		read(t, s, "a")
		if err := local.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		damage()
		for range 2 {
			if data, err := blobtest.ReadAll(s, "a"); err != nil || len(data) != 1000 {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
		}
	}
}

func TestCancelledReaderLeaves(t *testing.T) {
	remote := &counter{Store: mem.New(), gate: make(chan struct{})}
	s := over(t, remote, mem.New(), 1000)
	put(t, remote, "a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.Open(ctx, "a")
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v, want %v", err, context.Canceled)
	}
	close(remote.gate)
	read(t, s, "a")
	s.Close()
	read(t, s, "a")
}

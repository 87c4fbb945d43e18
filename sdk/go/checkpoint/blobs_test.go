package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// bucket is a KeyedStore in memory that can fail.
type bucket struct {
	mu   sync.Mutex
	keys map[string][]byte
	fail error
	busy int // calls at a time
	most int
}

func (b *bucket) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy++
	b.most = max(b.most, b.busy)
	return b.fail
}

func (b *bucket) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
}

func (b *bucket) Has(ctx context.Context, key string) (bool, error) {
	_, ok, err := b.Get(ctx, key)
	return ok, err
}

func (b *bucket) Get(_ context.Context, key string) ([]byte, bool, error) {
	defer b.leave()
	if err := b.enter(); err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.keys[key]
	return data, ok, nil
}

func (b *bucket) Put(_ context.Context, key string, data []byte) error {
	defer b.leave()
	if err := b.enter(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[key] = append([]byte(nil), data...)
	return nil
}

// TestKeyed keeps the bytes of a workspace in a bucket of the application, and finds
// out what is missing there, has changed, or does not answer.
func TestKeyed(t *testing.T) {
	ctx, store := t.Context(), &bucket{keys: map[string][]byte{}}
	heads, blobs := &Memory{}, Keyed(store)
	work := t.TempDir()
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(work, fmt.Sprint(i)), fmt.Appendf(nil, "file %d", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	capture := func(state string) (*Captured, error) {
		return Capture(ctx, CaptureParams{Store: heads, Blobs: blobs, Thread: "t", Roots: []Root{{Path: work}}, StateDir: state, AnyHead: true})
	}
	restore := func(into string) error {
		_, err := Restore(ctx, RestoreParams{Store: heads, Blobs: blobs, Thread: "t", Roots: []Root{{Path: into}}, StateDir: t.TempDir()})
		return err
	}
	state := t.TempDir()
	saved, err := capture(state)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := store.keys[keyPrefix+saved.Checkpoint.Root.String()]; !ok || len(store.keys) != 102 {
		t.Fatalf("%d keys, with the root's: %v; want 100 files, a directory and the root", len(store.keys), ok)
	}
	into := filepath.Join(t.TempDir(), "into")
	if err := restore(into); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(into, "42")); string(b) != "file 42" {
		t.Errorf("a restored file holds %q (%v)", b, err)
	}
	if store.most > keyedParallel {
		t.Errorf("%d calls at a time, want at most %d", store.most, keyedParallel)
	}

	whole := maps.Clone(store.keys)
	for key, data := range whole {
		if strings.HasPrefix(string(data), "file 7") {
			delete(store.keys, key)
			break
		}
	}
	into = filepath.Join(t.TempDir(), "into")
	missing := &MissingBlobError{}
	if err := restore(into); !errors.As(err, &missing) || len(missing.Digests) != 1 {
		t.Errorf("a restore with a missing key ends with %v", err)
	}
	store.keys = maps.Clone(whole)
	for key, data := range whole {
		if string(data) == "file 8" {
			store.keys[key] = []byte("another")
		}
	}
	if err := restore(into); !errors.Is(err, ErrInvalidBlob) {
		t.Errorf("a restore with other bytes ends with %v", err)
	}
	store.keys, store.fail = whole, errors.New("the bucket is away")
	if err := restore(into); !errors.Is(err, store.fail) {
		t.Errorf("a restore from a bucket that is away ends with %v", err)
	}
	if left, err := os.ReadDir(into); err == nil && len(left) > 0 {
		t.Errorf("restores that failed left %v", left)
	}
	if err := os.WriteFile(filepath.Join(work, "new"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := capture(state); !errors.Is(err, store.fail) {
		t.Errorf("a capture into a bucket that is away ends with %v", err)
	}
	store.fail = nil
	if _, err := capture(state); err != nil {
		t.Errorf("the capture after it ends with %v", err)
	}
}

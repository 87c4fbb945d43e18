// Package mem is the reference blob.Store: objects in memory.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
)

// Store keeps objects in memory. Its durability is that of the process.
type Store struct {
	mu      sync.RWMutex
	objects map[blob.Key]stored
}

type stored struct {
	data    []byte
	modTime time.Time
}

var _ blob.Store = (*Store)(nil)

// New returns an empty Store.
func New() *Store { return &Store{objects: map[blob.Key]stored{}} }

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key blob.Key, r io.Reader, size int64) error {
	w, err := s.Create(ctx, key)
	if err != nil {
		return err
	}
	return blob.Fill(ctx, w, r, size)
}

// Create implements blob.Store.
func (s *Store) Create(ctx context.Context, key blob.Key) (blob.Writer, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	return &writer{store: s, key: key, ctx: ctx}, nil
}

// Open implements blob.Store.
func (s *Store) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	o, err := s.get(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	return object{bytes.NewReader(o.data)}, nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	o, err := s.get(ctx, "stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Key: key, Size: int64(len(o.data)), ModTime: o.modTime}, nil
}

func (s *Store) get(ctx context.Context, op string, key blob.Key) (stored, error) {
	if err := key.Validate(); err != nil {
		return stored{}, err
	}
	if err := ctx.Err(); err != nil {
		return stored{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return stored{}, fmt.Errorf("%s %q: %w", op, string(key), blob.ErrNotFound)
	}
	return o, nil
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		s.mu.RLock()
		keys := slices.Sorted(maps.Keys(s.objects))
		s.mu.RUnlock()
		for _, key := range keys {
			if err := ctx.Err(); err != nil {
				yield(blob.Info{}, err)
				return
			}
			if !strings.HasPrefix(string(key), prefix) {
				continue
			}
			s.mu.RLock()
			o, ok := s.objects[key]
			s.mu.RUnlock()
			if ok && !yield(blob.Info{Key: key, Size: int64(len(o.data)), ModTime: o.modTime}, nil) {
				return
			}
		}
	}
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key blob.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

type writer struct {
	store *Store
	key   blob.Key
	ctx   context.Context
	buf   bytes.Buffer
	ended bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, fmt.Errorf("write %q: %w", string(w.key), blob.ErrEnded)
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.buf.Write(p)
}

func (w *writer) Finish(ctx context.Context) error {
	if w.ended {
		return fmt.Errorf("finish %q: %w", string(w.key), blob.ErrEnded)
	}
	w.ended = true
	if err := ctx.Err(); err != nil {
		return err
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if _, ok := w.store.objects[w.key]; ok {
		return fmt.Errorf("create %q: %w", string(w.key), blob.ErrExists)
	}
	w.store.objects[w.key] = stored{data: w.buf.Bytes(), modTime: time.Now()}
	return nil
}

func (w *writer) Abort() { w.ended = true }

// object hides the reader's offset, which readers would share.
type object struct{ r *bytes.Reader }

func (o object) ReadAt(p []byte, off int64) (int, error) { return o.r.ReadAt(p, off) }
func (o object) Size() int64                             { return o.r.Size() }
func (o object) Close() error                            { return nil }

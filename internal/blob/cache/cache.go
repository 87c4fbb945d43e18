// Package cache is a blob.Store that keeps whole copies of the objects read from
// a remote store in a local one, up to a number of bytes. Objects are immutable
// and keys are never reused, so that a copy is never stale; a copy may outlive
// a deletion that another process made.
package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/blob"
)

// Store reads through a local store; everything else goes to the remote one.
type Store struct {
	blob.Store // the remote
	local      blob.Store
	limit      int64

	ctx    context.Context // of downloads, which any number of readers share
	cancel context.CancelFunc
	loads  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	bytes   int64 // of all entries, those being downloaded included
	entries map[blob.Key]*entry
	order   *list.List // of *entry, most recently used first
}

var _ blob.Store = (*Store)(nil)

// entry is an object in the local store or on its way there. Only ready and
// cached may be read without the Store's lock, cached after ready is closed.
type entry struct {
	key    blob.Key
	size   int64
	pins   int // readers; a pinned entry is not evicted
	place  *list.Element
	ready  chan struct{}
	cached bool // whether the download succeeded
}

// Open returns a cache of remote in local, of at most limit bytes. Nothing else
// may use local. Copies of an earlier run are used again. Close ends it.
func Open(ctx context.Context, remote, local blob.Store, limit int64) (*Store, error) {
	s := &Store{Store: remote, local: local, limit: limit, entries: map[blob.Key]*entry{}, order: list.New()}
	var found []blob.Info
	for info, err := range local.List(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("open blob cache: %w", err)
		}
		found = append(found, info)
	}
	slices.SortFunc(found, func(a, b blob.Info) int { return a.ModTime.Compare(b.ModTime) })
	for _, info := range found {
		e := &entry{key: info.Key, size: info.Size, ready: make(chan struct{}), cached: true}
		close(e.ready)
		s.add(e)
		s.bytes += e.size
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.evict(ctx, 0); err != nil {
		return nil, fmt.Errorf("open blob cache: %w", err)
	}
	return s, nil
}

// Close ends downloads and waits for them. Open objects stay readable; later
// reads go to the remote store.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.loads.Wait()
}

// Open implements blob.Store. It waits until the object is in the cache; one
// that does not fit, or cannot be kept, is read from the remote store.
func (s *Store) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	e, err := s.pin(ctx, key)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return s.Store.Open(ctx, key)
	}
	o, err := s.local.Open(ctx, key)
	if err == nil && o.Size() == e.size {
		pinned := object{Object: o, unpin: sync.OnceFunc(func() { s.unpin(e) })}
		if f, ok := o.(blob.FileObject); ok {
			return fileObject{object: pinned, file: f.File()}, nil
		}
		return pinned, nil
	}
	s.unpin(e)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		o.Close() // damaged: it is not as long as it was
	}
	s.drop(ctx, e)
	return s.Store.Open(ctx, key)
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key blob.Key) error {
	if err := s.Store.Delete(ctx, key); err != nil {
		return err
	}
	s.mu.Lock()
	e := s.entries[key]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	select {
	case <-e.ready: // a download that found the object before must not keep it
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.drop(ctx, e); err != nil {
		return fmt.Errorf("delete %q from the cache: %w", string(key), err)
	}
	return nil
}

// pin returns the entry of a key, held against eviction, once it is in the local
// store; or nil when it cannot be there.
func (s *Store) pin(ctx context.Context, key blob.Key) (*entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		if s.closed {
			s.mu.Unlock()
			return nil, nil
		}
		e = &entry{key: key, ready: make(chan struct{})}
		s.add(e)
		s.loads.Go(func() { s.load(e) })
	}
	e.pins++
	s.order.MoveToFront(e.place)
	s.mu.Unlock()
	select {
	case <-e.ready:
	case <-ctx.Done():
		s.unpin(e)
		return nil, ctx.Err()
	}
	if !e.cached {
		s.unpin(e)
		return nil, nil
	}
	return e, nil
}

func (s *Store) unpin(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pins--
}

// add enters e. The caller holds the lock or is alone.
func (s *Store) add(e *entry) {
	s.entries[e.key] = e
	e.place = s.order.PushFront(e)
}

// forget removes the entry e unless that has happened. The caller holds the lock.
func (s *Store) forget(e *entry) {
	if s.entries[e.key] == e {
		delete(s.entries, e.key)
		s.order.Remove(e.place)
		s.bytes -= e.size
	}
}

// drop forgets an entry and deletes its copy.
func (s *Store) drop(ctx context.Context, e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.key] != e {
		return nil
	}
	s.forget(e)
	return s.local.Delete(ctx, e.key)
}

// load downloads an entry's object. Without success the entry is forgotten, and
// its readers ask the remote store, which tells them why.
func (s *Store) load(e *entry) {
	err := s.download(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.cached = err == nil
	if err != nil {
		s.forget(e)
	}
	close(e.ready)
}

// errNoRoom says that an object does not fit beside the pinned ones.
var errNoRoom = errors.New("no room in the cache")

func (s *Store) download(e *entry) error {
	o, err := s.Store.Open(s.ctx, e.key)
	if err != nil {
		return err
	}
	defer o.Close()
	if err := s.reserve(e, o.Size()); err != nil {
		return err
	}
	w, err := s.local.Create(s.ctx, e.key)
	if err != nil {
		return err
	}
	defer w.Abort()
	n, err := blob.WriteTo(w, o)
	if err != nil {
		return err
	}
	if n != e.size {
		return fmt.Errorf("copy of %d bytes of an object of %d: %w", n, e.size, blob.ErrSize)
	}
	return w.Finish(s.ctx)
}

// reserve makes room for an entry.
func (s *Store) reserve(e *entry, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > s.limit {
		return errNoRoom // and nothing is evicted for it
	}
	if err := s.evict(s.ctx, size); err != nil {
		return err
	}
	if s.bytes+size > s.limit {
		return errNoRoom
	}
	e.size = size
	s.bytes += size
	return nil
}

// evict deletes what was used longest ago until size bytes fit or only pinned
// entries are left. The caller holds the lock or is alone.
func (s *Store) evict(ctx context.Context, size int64) error {
	for place := s.order.Back(); place != nil && s.bytes+size > s.limit; {
		e := place.Value.(*entry)
		place = place.Prev()
		if e.pins > 0 || !e.cached {
			continue
		}
		if err := s.local.Delete(ctx, e.key); err != nil {
			return err
		}
		s.forget(e)
	}
	return nil
}

// object is a cached copy, pinned until it is closed.
type object struct {
	blob.Object
	unpin func()
}

func (o object) Close() error {
	defer o.unpin()
	return o.Object.Close()
}

type fileObject struct {
	object
	file *os.File
}

var _ blob.FileObject = fileObject{}

func (o fileObject) File() *os.File { return o.file }

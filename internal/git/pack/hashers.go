package pack

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/git/object"
)

// workers returns how many goroutines share the work.
func workers() int { return runtime.GOMAXPROCS(0) }

// hasher names objects and passes them to Visit.
type hasher struct {
	x *indexer
	h *object.Hasher
}

func newHasher(x *indexer) *hasher { return &hasher{x, object.NewHasher(object.Blob, 0)} }

// name finds the ID of an object held in memory.
func (h *hasher) name(obj uint32, t object.Type, data []byte) error {
	h.h.Reset(t, int64(len(data)))
	h.h.Write(data)
	return h.done(obj, t, int64(len(data)), data)
}

// done records and reports the object whose content the Hasher has seen.
func (h *hasher) done(obj uint32, t object.Type, size int64, data []byte) error {
	rows := h.x.rows
	id, err := h.h.Sum()
	if err != nil {
		return fmt.Errorf("object at byte %d of the pack: %w", rows.offset(obj), err)
	}
	*rows.id(obj) = id
	*rows.typ(obj) = t
	if h.x.opts.Visit == nil {
		return nil
	}
	if t == object.Blob && size > MaxVisitBlob {
		data = nil
	} else if data == nil {
		data = []byte{}
	}
	return h.x.opts.Visit(Object{id, t, size, rows.offset(obj), data})
}

// batchSize is how many bytes of small objects are hashed together.
const batchSize = 512 << 10

// batchItems is how many objects at most are hashed together.
const batchItems = 4096

// batch is a number of inflated objects on their way to be hashed.
type batch struct {
	buf   []byte
	items []batchItem
}

type batchItem struct{ obj, start, end uint32 }

// hashers hash objects while the next ones are inflated.
type hashers struct {
	x    *indexer
	own  *hasher // of the receiving goroutine
	cur  *batch
	full chan *batch
	free chan *batch
	wg   sync.WaitGroup

	started int
	failed  atomic.Pointer[error]
}

func newHashers(x *indexer) *hashers {
	n := workers() + 2
	return &hashers{x: x, own: newHasher(x), cur: new(batch), full: make(chan *batch, n), free: make(chan *batch, n)}
}

// add inflates an object of size bytes, at most MaxVisitBlob, to be hashed.
func (h *hashers) add(obj uint32, size int) error {
	b := h.cur
	if len(b.items) > 0 && (len(b.buf)+size > batchSize || len(b.items) == batchItems) {
		if err := h.send(); err != nil {
			return err
		}
		b = h.cur
	}
	start := len(b.buf)
	b.buf = slices.Grow(b.buf, size)[:start+size]
	if err := h.x.in.inflateTo(b.buf[start:]); err != nil {
		return err
	}
	b.items = append(b.items, batchItem{obj, uint32(start), uint32(len(b.buf))})
	return nil
}

// send gives the current batch to a goroutine and takes an empty one.
func (h *hashers) send() error {
	if err := h.failed.Load(); err != nil {
		return *err
	}
	if h.started < workers() {
		h.started++
		h.wg.Go(h.run)
		h.full <- h.cur
		h.cur = new(batch)
		return nil
	}
	h.full <- h.cur
	h.cur = <-h.free
	return nil
}

func (h *hashers) run() {
	own := newHasher(h.x)
	for b := range h.full {
		if h.failed.Load() == nil {
			if err := b.hash(own); err != nil {
				h.failed.CompareAndSwap(nil, &err)
			}
		}
		b.buf, b.items = b.buf[:0], b.items[:0]
		h.free <- b
	}
}

func (b *batch) hash(h *hasher) error {
	for _, it := range b.items {
		if err := h.name(it.obj, h.x.rows.kind(it.obj), b.buf[it.start:it.end]); err != nil {
			return err
		}
	}
	return nil
}

// finish hashes what is left, if wanted, and waits for the goroutines.
func (h *hashers) finish(wanted bool) error {
	close(h.full)
	var err error
	if wanted {
		err = h.cur.hash(h.own)
	}
	h.wg.Wait()
	if failed := h.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// addBlob hashes a large blob while it is inflated, never holding it.
func (h *hashers) addBlob(obj uint32, size int64) error {
	const parts = 4
	h.own.h.Reset(object.Blob, size)
	full, free := make(chan []byte, parts), make(chan []byte, parts)
	for range parts {
		free <- make([]byte, 0, streamPart)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for part := range full {
			h.own.h.Write(part)
			free <- part
		}
	})
	err := h.x.in.inflateStream(size, func(part []byte) error {
		full <- append((<-free)[:0], part...)
		return nil
	})
	close(full)
	wg.Wait()
	if err != nil {
		return err
	}
	return h.own.done(obj, object.Blob, size, nil)
}

package checkpoint

import (
	"bytes"
	"context"
	"sync"

	"github.com/cairnstate/cairn/internal/tree"
)

// Objects are sent in batches, some of them at a time: what is held of them is bounded by their product.
const (
	batchObjects = 4096
	batchBytes   = 8 << 20
	batches      = 3 // under way at a time
	seenMax      = 1 << 18
)

// upload sends the objects of a capture that are missing. It is a workspace.Sink.
type upload struct {
	blobs Blobs
	at    Scope
	ctx   context.Context
	stop  context.CancelCauseFunc
	queue chan []Object
	wg    sync.WaitGroup

	mu   sync.Mutex
	next []Object
	size int
	seen map[Digest]bool // lately put, so that equal objects are not asked for again
	sent Sent
	told func(Sent)
}

// Sent counts objects that were put.
type Sent struct {
	Objects uint64
	Bytes   uint64
}

func newUpload(ctx context.Context, blobs Blobs, at Scope, told func(Sent)) *upload {
	u := &upload{blobs: blobs, at: at, queue: make(chan []Object), seen: map[Digest]bool{}, told: told}
	u.ctx, u.stop = context.WithCancelCause(ctx)
	for range batches {
		u.wg.Go(func() {
			for b := range u.queue {
				if err := u.send(b); err != nil {
					u.stop(err)
				}
			}
		})
	}
	return u
}

// Put takes an object, and waits while enough of them are under way.
func (u *upload) Put(_ context.Context, o tree.Object) error {
	u.mu.Lock()
	if u.seen[o.Digest] {
		u.mu.Unlock()
		return nil
	}
	if len(u.seen) >= seenMax {
		clear(u.seen)
	}
	u.seen[o.Digest] = true
	o.Bytes = bytes.Clone(o.Bytes)
	u.next = append(u.next, o)
	u.size += len(o.Bytes)
	var full []Object
	if u.size >= batchBytes || len(u.next) >= batchObjects {
		full, u.next, u.size = u.next, nil, 0
	}
	u.mu.Unlock()
	return u.hand(full)
}

// hand gives a batch to whoever sends.
func (u *upload) hand(b []Object) error {
	if len(b) > 0 {
		select {
		case u.queue <- b:
		case <-u.ctx.Done():
		}
	}
	return context.Cause(u.ctx)
}

// send puts those of a batch that are missing.
func (u *upload) send(b []Object) error {
	digests := make([]Digest, len(b))
	for i, o := range b {
		digests[i] = o.Digest
	}
	missing, err := u.blobs.Missing(u.ctx, u.at, digests)
	if err != nil || len(missing) == 0 {
		return err
	}
	want := make(map[Digest]bool, len(missing))
	for _, d := range missing {
		want[d] = true
	}
	var put []Object
	total := 0
	for _, o := range b {
		if want[o.Digest] {
			put = append(put, o)
			total += len(o.Bytes)
		}
	}
	if err := u.blobs.Put(u.ctx, u.at, put); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent.Objects += uint64(len(put))
	u.sent.Bytes += uint64(total)
	if u.told != nil {
		u.told(u.sent)
	}
	return nil
}

// finish sends what is left and waits for all of it.
func (u *upload) finish() (Sent, error) {
	u.mu.Lock()
	last := u.next
	u.next = nil
	u.mu.Unlock()
	err := u.hand(last)
	u.close()
	if cause := context.Cause(u.ctx); cause != nil {
		err = cause
	}
	u.stop(nil)
	return u.sent, err
}

// abort ends the upload after an error.
func (u *upload) abort(err error) {
	u.stop(err)
	u.close()
}

func (u *upload) close() {
	close(u.queue)
	u.wg.Wait()
}

package checkpoint

import (
	"context"
	"sync"

	"github.com/cairnstate/cairn/internal/tree"
)

// Objects are sent in batches, some of them at a time: what is held of them is bounded by the number of batches.
const (
	batchObjects = 4096
	batchBytes   = 8 << 20
	firstBytes   = 128 << 10 // what a batch has room for before it turns out to need more
	batchSenders = 3
	batchCount   = batchSenders + 2 // one is filled, and one waits
	seenMax      = 1 << 18
)

// batch holds objects, whose bytes lie in one buffer. It is used again when they were sent.
type batch struct {
	objects []Object
	buffer  []byte
	size    int
}

// add copies an object. It returns false, and does nothing, if that does not fit.
func (b *batch) add(o tree.Object) bool {
	if len(b.objects) > 0 && (len(b.objects) == batchObjects || b.size+len(o.Bytes) > batchBytes) {
		return false
	}
	if len(b.buffer)+len(o.Bytes) > cap(b.buffer) {
		room := batchBytes // objects that were added before keep the buffer they are in
		if b.size+len(o.Bytes) <= firstBytes {
			room = firstBytes
		}
		b.buffer = make([]byte, 0, max(room, len(o.Bytes)))
	}
	at := len(b.buffer)
	b.buffer = append(b.buffer, o.Bytes...)
	o.Bytes = b.buffer[at:len(b.buffer):len(b.buffer)]
	b.objects = append(b.objects, o)
	b.size += len(o.Bytes)
	return true
}

// reset empties the batch.
func (b *batch) reset() {
	clear(b.objects)
	b.objects, b.buffer, b.size = b.objects[:0], b.buffer[:0], 0
}

// upload sends the objects of a capture that are missing. It is a workspace.Sink.
type upload struct {
	blobs Blobs
	at    Scope
	fresh bool // the thread knows nothing: all is missing
	ctx   context.Context
	stop  context.CancelCauseFunc
	queue chan *batch
	wg    sync.WaitGroup

	// Whoever puts an object may have to wait for a batch, and with it everybody else who does.
	filling sync.Mutex
	next    *batch
	free    chan *batch // those that were made and are not in use
	made    int
	seen    map[Digest]struct{} // lately put, so that equal objects are not asked for again

	mu   sync.Mutex
	sent Sent
	told func(Sent)
}

// Sent counts objects that were put.
type Sent struct {
	Objects uint64
	Bytes   uint64
}

// newUpload returns an upload. fresh says that the thread knows no objects, so that blobs need not be asked.
func newUpload(ctx context.Context, blobs Blobs, at Scope, fresh bool, told func(Sent)) *upload {
	u := &upload{
		blobs: blobs, at: at, fresh: fresh, told: told,
		queue: make(chan *batch), free: make(chan *batch, batchCount), seen: map[Digest]struct{}{},
	}
	u.ctx, u.stop = context.WithCancelCause(ctx)
	for range batchSenders {
		u.wg.Go(func() {
			for b := range u.queue {
				if err := u.send(b); err != nil {
					u.stop(err)
					continue // something may still read its bytes
				}
				b.reset()
				u.free <- b
			}
		})
	}
	return u
}

// Put takes an object, and waits while enough of them are under way.
func (u *upload) Put(_ context.Context, o tree.Object) error {
	u.filling.Lock()
	defer u.filling.Unlock()
	if _, ok := u.seen[o.Digest]; ok {
		return nil
	}
	if len(u.seen) >= seenMax {
		clear(u.seen)
	}
	u.seen[o.Digest] = struct{}{}
	for {
		if u.next == nil {
			if err := u.begin(); err != nil {
				return err
			}
		}
		if u.next.add(o) {
			return nil
		}
		if err := u.hand(); err != nil {
			return err
		}
	}
}

// begin gets an empty batch.
func (u *upload) begin() error {
	select {
	case u.next = <-u.free:
		return nil
	default:
	}
	if u.made < batchCount {
		u.made++
		u.next = &batch{}
		return nil
	}
	select {
	case u.next = <-u.free:
		return nil
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
}

// hand gives the batch to whoever sends.
func (u *upload) hand() error {
	if u.next != nil && len(u.next.objects) > 0 {
		select {
		case u.queue <- u.next:
			u.next = nil
		case <-u.ctx.Done():
		}
	}
	return context.Cause(u.ctx)
}

// send puts those of a batch that are missing.
func (u *upload) send(b *batch) error {
	put, err := u.missing(b.objects)
	if err != nil || len(put) == 0 {
		return err
	}
	if err := u.blobs.Put(u.ctx, u.at, put); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range put {
		u.sent.Bytes += uint64(len(o.Bytes))
	}
	u.sent.Objects += uint64(len(put))
	if u.told != nil {
		u.told(u.sent)
	}
	return nil
}

// missing returns those of objects that have to be put, in their place.
func (u *upload) missing(objects []Object) ([]Object, error) {
	if u.fresh {
		return objects, nil
	}
	digests := make([]Digest, len(objects))
	for i, o := range objects {
		digests[i] = o.Digest
	}
	missing, err := u.blobs.Missing(u.ctx, u.at, digests)
	if err != nil || len(missing) == len(objects) {
		return objects, err
	}
	want := make(map[Digest]struct{}, len(missing))
	for _, d := range missing {
		want[d] = struct{}{}
	}
	put := objects[:0]
	for _, o := range objects {
		if _, ok := want[o.Digest]; ok {
			put = append(put, o)
		}
	}
	return put, nil
}

// finish sends what is left and waits for all of it.
func (u *upload) finish() (Sent, error) {
	u.filling.Lock()
	err := u.hand()
	u.filling.Unlock()
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

package content

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	// flushObjects is after how many objects an upload is flushed by itself, so that
	// its memory is bounded.
	flushObjects = 1 << 18
	// maxPublish bounds how often a flush looks again for what it dropped, because
	// something was condemned meanwhile.
	maxPublish = 50
)

// Stored counts what an upload has received since its last Flush.
type Stored struct {
	Objects int64 // received
	Bytes   int64 // of them as they are
	New     int64 // objects that the org did not have
	Packed  int64 // bytes of the packs that they made
}

// Upload receives objects of one thread. Each is hashed; what the org has already
// is dropped, the rest is packed while more arrives. Only after Flush is anything
// durable, and then Received has it. After an error the upload has ended: what
// was written since the last Flush is dropped. One goroutine uses it; others may
// use uploads of the same id.
type Upload struct {
	store   *Store
	org     meta.OrgID
	id      string
	thread  string
	ctx     context.Context
	done    func()
	view    *view
	packer  packer
	batch   *batch
	work    chan *batch // to the workers
	order   chan *batch // the same, in the order in which they were written
	packed  chan struct{}
	workers sync.WaitGroup
	err     error // once it has ended
	// reservation ends with what is published next, "" for none; published is called
	// then.
	reservation string
	published   func()
	begun       bool // another request has made it
	parts       int  // that were published

	mu       sync.Mutex
	received map[tree.Digest]bool // true for those that the org had
	stored   Stored               // since the last call of Flush
	fault    error                // of a worker or the packer
}

// Begin starts or continues an upload under an id that the client chose. ctx
// covers all of it; Close must be called. It is ErrUpload when the id is another
// thread's.
func (s *Store) Begin(ctx context.Context, org meta.OrgID, thread, id string) (*Upload, error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return nil, err
	}
	u := &Upload{store: s, org: org, id: id, thread: thread, ctx: ctx, done: done, packer: packer{store: s}}
	if err := u.open(); err != nil {
		done()
		return nil, err
	}
	return u, nil
}

func (u *Upload) open() (err error) {
	row, err := u.store.cfg.Meta.ContentUpload(u.ctx, u.org, u.id)
	if err == nil && row.Thread != u.thread {
		return ErrUpload
	}
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return fmt.Errorf("read upload %q: %w", u.id, err)
	}
	u.begun = err == nil
	u.received = make(map[tree.Digest]bool)
	return nil
}

// start begins the goroutines that receive, which end with drain.
func (u *Upload) start() (err error) {
	if u.view, err = u.store.view(u.ctx, u.org); err != nil {
		return err
	}
	n := u.store.workers
	u.work, u.order, u.packed = make(chan *batch, n), make(chan *batch, n), make(chan struct{})
	for range n {
		u.workers.Go(func() {
			for b := range u.work {
				if err := u.process(b); err != nil {
					u.fail(err)
				}
				close(b.ready)
			}
		})
	}
	go u.pack()
	return nil
}

// pack puts the new objects of the batches into packs, in the order in which
// they were written.
func (u *Upload) pack() {
	defer close(u.packed)
	for b := range u.order {
		<-b.ready
		for i := range b.new {
			if u.failed() != nil {
				break
			}
			if err := u.packer.add(u.ctx, &b.new[i]); err != nil {
				u.fail(err)
			}
		}
		b.release()
	}
}

func (u *Upload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fault == nil {
		u.fault = err
	}
}

func (u *Upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fault
}

// Within names a reservation of the org's space, which ends whenever what was written is
// published: then published is called.
func (u *Upload) Within(reservation string, published func()) {
	u.reservation, u.published = reservation, published
}

// Forget ends the upload, and with it what keeps those of its objects that were
// published on the way to an error, unless another request has made it.
func (u *Upload) Forget(ctx context.Context) {
	if u.parts == 0 || u.begun {
		return
	}
	// What stays ends with its time.
	_ = u.store.apply(ctx, u.org, &meta.ContentChange{EndUpload: u.id})
	u.store.Deleted(u.org)
}

// Write takes a copy of an object. That its bytes are not those that its digest
// names may be reported by a later call: a *tree.CorruptError.
func (u *Upload) Write(ctx context.Context, o tree.Object) error {
	m := frame.Member{Digest: o.Digest, Kind: o.Kind, Length: len(o.Bytes)}
	return u.WriteGroup(ctx, &frame.Group{Members: []frame.Member{m}, Encoding: frame.Raw, Length: m.Length, Bytes: o.Bytes})
}

// WriteGroup is Write for all objects of a group. One that the client compressed is
// stored as it is if nearly all of it is new, after a look at what it contains.
func (u *Upload) WriteGroup(ctx context.Context, g *frame.Group) error {
	if err := u.usable(ctx); err != nil {
		return err
	}
	if err := g.Check(); err != nil {
		return u.end(fmt.Errorf("%w: %w", tree.ErrInvalid, err))
	}
	b := u.batch
	if b != nil && b.objects > 0 && (b.length+g.Length > batchBytes || b.objects+len(g.Members) > batchCount) {
		if err := u.send(ctx); err != nil {
			return err
		}
		b = nil
	}
	if b == nil {
		b = batches.Get().(*batch)
		b.ready = make(chan struct{})
		u.batch = b
	}
	b.at = append(b.at, len(b.raw))
	b.raw = append(b.raw, g.Bytes...)
	first := len(b.members)
	b.members = append(b.members, g.Members...)
	b.groups = append(b.groups, frame.Group{Members: b.members[first:], Encoding: g.Encoding, Length: g.Length, Bytes: g.Bytes})
	b.objects += len(g.Members)
	b.length += g.Length
	u.mu.Lock()
	n := len(u.received)
	u.mu.Unlock()
	if n >= flushObjects {
		return u.flush(ctx)
	}
	return nil
}

// usable returns the error that ended the upload.
func (u *Upload) usable(ctx context.Context) error {
	if u.err != nil {
		return u.err
	}
	if err := errors.Join(u.failed(), context.Cause(ctx), context.Cause(u.ctx)); err != nil {
		return u.end(err)
	}
	return nil
}

// send hands the batch to the workers.
func (u *Upload) send(ctx context.Context) error {
	b := u.batch
	if b == nil {
		return nil
	}
	u.batch = nil
	members := b.members
	for i := range b.groups {
		g := &b.groups[i]
		g.Bytes = b.raw[b.at[i] : b.at[i]+len(g.Bytes)]
		g.Members, members = members[:len(g.Members)], members[len(g.Members):]
	}
	if u.work == nil {
		if err := u.start(); err != nil {
			return u.end(err)
		}
	}
	// The workers and the packer always come to an end: neither waits for long.
	u.order <- b
	u.work <- b
	return nil
}

// drain waits for everything that was written and ends the goroutines.
func (u *Upload) drain(ctx context.Context) error {
	err := u.send(ctx)
	if u.work != nil {
		close(u.order)
		close(u.work)
		u.workers.Wait()
		<-u.packed
		u.work = nil
	}
	return errors.Join(err, u.failed())
}

// Flush makes what was written durable and returns what that was. Objects that
// were dropped because the org had them, and that it lost meanwhile, end in a
// *tree.MissingError: send them again in a new upload.
func (u *Upload) Flush(ctx context.Context) (Stored, error) {
	if err := u.usable(ctx); err != nil {
		return Stored{}, err
	}
	if err := u.flush(ctx); err != nil {
		return Stored{}, err
	}
	stored := u.stored
	u.stored = Stored{}
	return stored, nil
}

func (u *Upload) flush(ctx context.Context) error {
	if err := u.drain(ctx); err != nil {
		return u.end(err)
	}
	if len(u.received) == 0 {
		return nil
	}
	if err := u.packer.finish(u.ctx); err != nil {
		return u.end(err)
	}
	if err := u.publish(ctx); err != nil {
		return u.end(err)
	}
	u.parts++
	if u.published != nil {
		u.published()
	}
	for i := range u.packer.finished {
		u.stored.Packed += u.packer.finished[i].Bytes
	}
	u.packer.finished = nil
	clear(u.received)
	u.store.wake(u.org)
	return nil
}

// publish adds the packs and the list of what was received in one Change.
func (u *Upload) publish(ctx context.Context) error {
	digests := make([]tree.Digest, 0, len(u.received))
	for d := range u.received {
		digests = append(digests, d)
	}
	slices.SortFunc(digests, compareDigests)
	list, replaces, err := u.store.addList(u.ctx, u.org, u.id, digests)
	if err != nil {
		return err
	}
	write := &meta.ContentUploadWrite{ID: u.id, Thread: u.thread, Lease: u.store.cfg.UploadLease, AddList: list, Replaces: replaces}
	for range maxPublish {
		c := &meta.ContentChange{PutUpload: write, AddPacks: u.packer.finished, Reservation: u.reservation}
		if u.dropped() {
			c.Generation = &u.view.generation
		}
		err = u.store.apply(ctx, u.org, c)
		if !refused(err, meta.ConflictGeneration) {
			break
		}
		// Something was condemned: is what was dropped still there?
		if err := u.recheck(); err != nil {
			u.store.drop(u.ctx, list.Key)
			return err
		}
	}
	switch {
	case err == nil:
		return nil
	case refused(err, meta.ConflictUploadThread):
		err = ErrUpload
	case refused(err, meta.ConflictUpload, meta.ConflictGeneration):
		err = ErrAgain
	case refused(err), full(err):
	default:
		u.packer.finished = nil // whether they are named is unknown: they stay
		return err
	}
	u.store.drop(u.ctx, list.Key)
	return err
}

func full(err error) bool {
	var e *QuotaError
	return errors.As(err, &e)
}

// dropped reports whether something was not stored because the org had it.
func (u *Upload) dropped() bool {
	for _, had := range u.received {
		if had {
			return true
		}
	}
	return false
}

// recheck looks again for what was dropped.
func (u *Upload) recheck() (err error) {
	if u.view, err = u.store.view(u.ctx, u.org); err != nil {
		return err
	}
	missing := &tree.MissingError{}
	for d, had := range u.received {
		if !had {
			continue
		}
		ok, err := u.view.has(u.ctx, d)
		if err != nil && !corrupt(err) {
			return err
		}
		if !ok {
			missing.Digests = append(missing.Digests, d)
		}
	}
	if len(missing.Digests) > 0 {
		return missing
	}
	return nil
}

// end ends the upload with an error.
func (u *Upload) end(err error) error {
	if u.err == nil {
		u.err, u.batch = err, nil
		_ = u.drain(u.ctx) // the first error counts
		u.packer.abort(u.ctx)
	}
	return err
}

// Close ends the upload. What was not flushed is dropped; what was stays until an
// append has named it, or the upload's time is over.
func (u *Upload) Close() {
	if u.done == nil {
		return
	}
	_ = u.end(ErrEnded) // it is given by later calls
	u.done()
	u.done = nil
}

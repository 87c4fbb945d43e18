package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/tree"
)

// Leases of a Memory.
const (
	leaseDuration = 2 * time.Minute
	leaseRenewal  = 45 * time.Second
)

// Memory is a Store, and Blobs, of one process: for tests and for development. The zero value is ready.
type Memory struct {
	// Now is the clock of leases and of checkpoints; time.Now when nil.
	Now func() time.Time

	objects tree.Memory

	mu       sync.Mutex
	identity string
	records  map[string]*Checkpoint
	threads  map[string]*memoryThread
	done     map[string]Appended // by key
}

// memoryThread is what a Memory knows of a thread. Its last fence outlives its leases.
type memoryThread struct {
	head  string
	fence int64
	lease *Lease
}

var (
	_ Store   = (*Memory)(nil)
	_ Forker  = (*Memory)(nil)
	_ Counter = (*Memory)(nil)
	_ Blobs   = (*Memory)(nil)
)

// lock returns the function that unlocks.
func (m *Memory) lock() func() {
	m.mu.Lock()
	if m.records == nil {
		m.identity = "memory:" + rand.Text()
		m.records, m.threads, m.done = map[string]*Checkpoint{}, map[string]*memoryThread{}, map[string]Appended{}
	}
	return m.mu.Unlock
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// thread returns a thread, which need not exist.
func (m *Memory) thread(name string) *memoryThread {
	t := m.threads[name]
	if t == nil {
		t = &memoryThread{}
		m.threads[name] = t
	}
	return t
}

// Identity is different for each Memory.
func (m *Memory) Identity() string {
	defer m.lock()()
	return m.identity
}

// Get returns a checkpoint. See Store.
func (m *Memory) Get(_ context.Context, id string) (*Checkpoint, error) {
	if err := checkIDs(id); err != nil {
		return nil, err
	}
	defer m.lock()()
	c := m.records[id]
	if c == nil {
		return nil, errorf(ErrMissingCheckpoint, "there is no checkpoint %q", id)
	}
	return c.clone(true), nil
}

// clone copies a checkpoint, whole or as a list has it.
func (c *Checkpoint) clone(whole bool) *Checkpoint {
	n := *c
	if c.Git != nil {
		git := *c.Git
		n.Git = &git
	}
	if c.From != nil {
		from := *c.From
		n.From = &from
	}
	n.Files, n.Artifacts, n.Conversation = nil, nil, nil
	if whole {
		n.Files, n.Artifacts = slices.Clone(c.Files), slices.Clone(c.Artifacts)
		for _, message := range c.Conversation {
			n.Conversation = append(n.Conversation, slices.Clone(message))
		}
	}
	return &n
}

// List yields the checkpoints of a thread as they are when it is called. See Store.
func (m *Memory) List(_ context.Context, thread string, o ListOptions) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		if err := checkIDs(thread); err != nil {
			yield(nil, err)
			return
		}
		unlock := m.lock()
		var all []*Checkpoint
		for _, c := range m.records {
			if c.Thread == thread && (o.Label == "" || c.Label == o.Label) {
				all = append(all, c.clone(o.Whole))
			}
		}
		unlock()
		slices.SortFunc(all, func(a, b *Checkpoint) int {
			if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
				return n
			}
			return strings.Compare(a.ID, b.ID)
		})
		if o.Newest {
			slices.Reverse(all)
		}
		for i, c := range all {
			if o.Limit > 0 && i == o.Limit || !yield(c, nil) {
				return
			}
		}
	}
}

// Head returns the newest checkpoint of a thread. See Store.
func (m *Memory) Head(_ context.Context, thread string) (string, error) {
	if err := checkIDs(thread); err != nil {
		return "", err
	}
	defer m.lock()()
	return m.thread(thread).head, nil
}

// Append makes a checkpoint the head. See Store.
func (m *Memory) Append(_ context.Context, a Append) (*Appended, error) {
	defer m.lock()()
	if was, ok := m.done[a.Key]; ok {
		was.Checkpoint = was.Checkpoint.clone(false)
		return &was, nil
	}
	c := a.Checkpoint.clone(true)
	if c.ID == "" {
		c.ID = rand.Text()
	}
	if err := checkIDs(append([]string{c.Thread, c.ID}, optional(a.ExpectedHead, c.Parent)...)...); err != nil {
		return nil, err
	}
	if a.Writer != nil && a.Writer.Thread != c.Thread {
		return nil, errorf(ErrWriterLost, "the writer is that of thread %q, not of %q", a.Writer.Thread, c.Thread)
	}
	if err := checkContents(c); err != nil {
		return nil, err
	}
	if err := m.mayWrite(c.Thread, a.Writer); err != nil {
		return nil, err
	}
	if m.records[c.ID] != nil {
		return nil, errorf(ErrDuplicateID, "there is a checkpoint %q already", c.ID)
	}
	t := m.thread(c.Thread)
	if !a.AnyHead && t.head != a.ExpectedHead {
		return nil, &HeadConflictError{Thread: c.Thread, Expected: a.ExpectedHead, Head: t.head}
	}
	if c.Native() {
		c.Parent = t.head
	} else if c.Parent != t.head {
		return nil, errorf(ErrParentMismatch, "the parent %q is not the head %q", c.Parent, t.head)
	}
	if head := m.records[t.head]; head != nil && c.Native() && !a.Always && sameContents(head, c) {
		return m.answer(a.Key, Appended{Checkpoint: head.clone(false), Unchanged: true}), nil
	}
	m.publish(t, c, a.Writer)
	return m.answer(a.Key, Appended{Checkpoint: c.clone(false)}), nil
}

// sameContents reports whether appending c after head would tell nothing new.
func sameContents(head, c *Checkpoint) bool {
	return head.Root == c.Root && (c.Label == "" || c.Label == head.Label) && (c.Git == nil || head.Git != nil && *c.Git == *head.Git) &&
		slices.Equal(head.Artifacts, c.Artifacts) &&
		slices.EqualFunc(head.Conversation, c.Conversation, func(a, b json.RawMessage) bool { return string(a) == string(b) })
}

// publish stores c as the head of t.
func (m *Memory) publish(t *memoryThread, c *Checkpoint, w *Writer) {
	if c.CreatedAt.IsZero() {
		c.CreatedAt = m.now().UTC().Truncate(time.Millisecond)
	}
	if c.Reason == "" {
		if c.Reason = Automatic; c.Label != "" {
			c.Reason = Named
		}
	}
	m.records[c.ID] = c
	if t.head = c.ID; w == nil {
		t.fence++ // the append was a writer of its own
		t.lease = nil
	}
}

// answer remembers what an append with a key did.
func (m *Memory) answer(key string, a Appended) *Appended {
	if key != "" {
		m.done[key] = Appended{Checkpoint: a.Checkpoint.clone(false), Unchanged: a.Unchanged}
	}
	return &a
}

// mayWrite checks the lease of w, or that there is none to respect.
func (m *Memory) mayWrite(thread string, w *Writer) error {
	t := m.thread(thread)
	current := t.lease != nil && t.lease.ExpiresAt.After(m.now())
	switch {
	case w == nil && current:
		return errorf(ErrWriterConflict, "another writer has thread %q; try later", thread)
	case w != nil && (!current || t.lease.Writer != *w):
		return errorf(ErrWriterLost, "the lease of thread %q has expired, or another writer has it", thread)
	}
	return nil
}

// DeleteHead takes the head off a thread. See Store.
func (m *Memory) DeleteHead(_ context.Context, thread, id string, w Writer) error {
	if err := checkIDs(thread, id, w.Thread); err != nil {
		return err
	}
	defer m.lock()()
	if w.Thread != thread {
		return errorf(ErrWriterLost, "the writer is that of thread %q, not of %q", w.Thread, thread)
	}
	if err := m.mayWrite(thread, &w); err != nil {
		return err
	}
	t := m.thread(thread)
	if t.head != id {
		return errorf(ErrNotHead, "%q is not the head of thread %q", id, thread)
	}
	parent := m.records[id].Parent
	delete(m.records, id)
	if t.head = parent; m.records[parent] == nil {
		t.head = ""
	}
	return nil
}

// Acquire gives the lease of a thread for two minutes. See Store.
func (m *Memory) Acquire(_ context.Context, thread string) (*Lease, error) {
	if err := checkIDs(thread); err != nil {
		return nil, err
	}
	defer m.lock()()
	if err := m.mayWrite(thread, nil); err != nil {
		return nil, err
	}
	t := m.thread(thread)
	t.fence++
	t.lease = &Lease{
		Writer:    Writer{Thread: thread, OwnerToken: rand.Text(), Fence: t.fence},
		ExpiresAt: m.now().Add(leaseDuration), RenewAfter: leaseRenewal,
	}
	lease := *t.lease
	return &lease, nil
}

// Renew prolongs a lease. See Store.
func (m *Memory) Renew(_ context.Context, w Writer) (*Lease, error) {
	if err := checkIDs(w.Thread); err != nil {
		return nil, err
	}
	defer m.lock()()
	if err := m.mayWrite(w.Thread, &w); err != nil {
		return nil, err
	}
	t := m.thread(w.Thread)
	t.lease.ExpiresAt = m.now().Add(leaseDuration)
	lease := *t.lease
	return &lease, nil
}

// Release ends a lease. See Store.
func (m *Memory) Release(_ context.Context, w Writer) error {
	if err := checkIDs(w.Thread); err != nil {
		return err
	}
	defer m.lock()()
	if t := m.thread(w.Thread); t.lease != nil && t.lease.Writer == w {
		t.lease = nil
	}
	return nil
}

// ForkFrom starts a thread from a checkpoint. See Forker.
func (m *Memory) ForkFrom(_ context.Context, f ForkParams) (*Checkpoint, error) {
	if f.ID == "" {
		f.ID = rand.Text()
	}
	ids := append([]string{f.Checkpoint, f.Thread, f.ID}, optional(f.Source)...)
	if f.Writer != nil {
		ids = append(ids, f.Writer.Thread)
	}
	if err := checkIDs(ids...); err != nil {
		return nil, err
	}
	defer m.lock()()
	source := m.records[f.Checkpoint]
	switch {
	case f.Source == f.Thread || source != nil && source.Thread == f.Thread:
		return nil, errorf(ErrForkThreadMismatch, "a fork needs another thread than %q", f.Thread)
	case source == nil:
		return nil, errorf(ErrForkSourceNotFound, "there is no checkpoint %q", f.Checkpoint)
	case f.Source != "" && source.Thread != f.Source:
		return nil, errorf(ErrForkThreadMismatch, "checkpoint %q is not of thread %q", f.Checkpoint, f.Source)
	case f.Writer != nil && f.Writer.Thread != f.Thread:
		return nil, errorf(ErrWriterLost, "the writer is that of thread %q, not of %q", f.Writer.Thread, f.Thread)
	}
	if err := m.mayWrite(f.Thread, f.Writer); err != nil {
		return nil, err
	}
	t := m.thread(f.Thread)
	if t.head != "" || m.records[f.ID] != nil {
		return nil, errorf(ErrForkDestinationInUse, "thread %q has checkpoints, or there is a checkpoint %q", f.Thread, f.ID)
	}
	c := source.clone(true)
	c.ID, c.Thread, c.Parent, c.CreatedAt, c.Reason, c.Label, c.Run, c.Pinned = f.ID, f.Thread, "", f.CreatedAt, ForkRoot, "", "", false
	c.From = &Fork{Thread: source.Thread, Checkpoint: source.ID}
	m.publish(t, c, f.Writer)
	return c.clone(true), nil
}

// References counts the uses of blobs. See Counter.
func (m *Memory) References(context.Context) iter.Seq2[Reference, error] {
	return func(yield func(Reference, error) bool) {
		counts := map[string]int{}
		unlock := m.lock()
		for _, c := range m.records {
			for key := range c.keys() {
				counts[key]++
			}
		}
		unlock()
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			if !yield(Reference{key, counts[key]}, nil) {
				return
			}
		}
	}
}

// Missing returns the objects that it does not have. See Blobs.
func (m *Memory) Missing(_ context.Context, _ Scope, digests []Digest) ([]Digest, error) {
	var missing []Digest
	for _, d := range digests {
		if !m.objects.Has(d) {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// Put keeps copies of objects. See Blobs.
func (m *Memory) Put(ctx context.Context, _ Scope, objects []Object) error {
	for _, o := range objects {
		if tree.Sum(o.Bytes) != o.Digest {
			return errorf(ErrInvalidBlob, "object %s has other bytes than its digest names", o.Digest)
		}
		if err := m.objects.Put(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Fetch gives objects. See Blobs.
func (m *Memory) Fetch(ctx context.Context, _ Scope, digests []Digest, fn func(Digest, []byte) error) error {
	return missingBlobs(m.objects.Get(ctx, digests, fn))
}

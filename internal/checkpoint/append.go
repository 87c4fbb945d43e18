package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// maxRetries is how often a change is decided again because the thread or the
// objects of the org changed meanwhile.
const maxRetries = 16

// maxText bounds in bytes what a checkpoint's row says of where it came from.
const maxText = 1024

// errBusy says that too much changed at the same time.
var errBusy = fmt.Errorf("others change the thread at the same time: %w", meta.ErrUnavailable)

// moved reports whether an error asks to decide again.
func moved(err error) bool {
	_, ok := errors.AsType[*movedError](err)
	return ok
}

// Head is the checkpoint that an append expects at the head of its thread.
type Head struct {
	ID  string // "" for none
	Any bool   // whatever it is
}

// NewCheckpoint is a native checkpoint that is to be appended.
type NewCheckpoint struct {
	Thread   string
	ID       string // "" makes one
	Root     tree.Digest
	Upload   string // that has its objects, "" for none
	Expected Head
	Lease    *Lease // nil takes it and gives it back
	Label    string
	Reason   string
	Run      string
	// Conversation and Artifacts are JSON; nil for none.
	Conversation, Artifacts []byte
	Git                     *Git
	Created                 *float64 // nil is now
	// Always appends also what is equal to the head.
	Always bool
	// Record makes the row that is kept for the request's idempotency key; nil keeps
	// none.
	Record func(Appended) *meta.Idempotency
}

// Appended is what became of an append.
type Appended struct {
	Checkpoint Checkpoint
	// Unchanged says that nothing was appended because the head is equal.
	Unchanged bool
}

// check refuses what no state of the thread could make right.
func (n *NewCheckpoint) check() error {
	if err := CheckThread(n.Thread); err != nil {
		return err
	}
	if n.ID == "" {
		n.ID = NewID()
	}
	if err := CheckID(n.ID); err != nil {
		return err
	}
	if !n.Expected.Any && n.Expected.ID != "" {
		if err := CheckID(n.Expected.ID); err != nil {
			return err
		}
	}
	if n.Created != nil && (math.IsNaN(*n.Created) || math.IsInf(*n.Created, 0)) {
		return refuse(InvalidEntry, "the time of the checkpoint is no finite number")
	}
	if len(n.Label) > meta.MaxLabel {
		return refuse(InvalidEntry, "the label has %d bytes, at most %d are allowed", len(n.Label), meta.MaxLabel)
	}
	// These are in the checkpoint's row, which every list reads.
	texts := [][2]string{{"run", n.Run}, {"reason", n.Reason}}
	if g := n.Git; g != nil {
		texts = append(texts, [][2]string{{"repository", g.Repo}, {"branch", g.Branch}, {"commit", g.Commit}}...)
	}
	for _, t := range texts {
		if len(t[1]) > maxText {
			return refuse(InvalidEntry, "the %s has %d bytes, at most %d are allowed", t[0], len(t[1]), maxText)
		}
	}
	return nil
}

// Append verifies a native checkpoint and appends it. The error is an *Error for
// what the thread refuses, and tree.ErrInvalid for objects that no client makes.
func (e *Engine) Append(ctx context.Context, c Caller, n NewCheckpoint) (Appended, error) {
	if err := n.check(); err != nil {
		return Appended{}, err
	}
	a := appending{engine: e, caller: c, new: &n}
	if err := a.documents(); err != nil {
		return Appended{}, err
	}
	for range maxRetries {
		done, err := a.try(ctx)
		if !moved(err) && !(n.Expected.Any && is(err, StaleHead)) {
			return done, err
		}
	}
	return Appended{}, errBusy
}

// appending is an append under way.
type appending struct {
	engine                  *Engine
	caller                  Caller
	new                     *NewCheckpoint
	conversation, artifacts *object
}

func (a *appending) documents() (err error) {
	if len(a.new.Conversation) > 0 {
		if a.conversation, err = newDocument(a.new.Conversation); err != nil {
			return err
		}
	}
	if len(a.new.Artifacts) > 0 {
		a.artifacts, err = newDocument(a.new.Artifacts)
	}
	return err
}

// try appends to the thread as it is now.
func (a *appending) try(ctx context.Context) (Appended, error) {
	n, e := a.new, a.engine
	k, err := e.known(ctx, a.caller.Org, n.Thread)
	if err != nil {
		return Appended{}, err
	}
	expected := n.Expected.ID
	if n.Expected.Any {
		expected = k.thread.Head
	}
	if expected != k.thread.Head {
		return Appended{}, a.refused(ctx, expected, nil)
	}
	if same, err := a.unchanged(ctx, k); err != nil {
		return Appended{}, err
	} else if same != nil {
		return Appended{Checkpoint: *same, Unchanged: true}, nil
	}
	var received *content.Received
	if n.Upload != "" {
		received, err = e.cfg.Content.Received(ctx, a.caller.Org, n.Thread, uploadID(n.Thread, n.Upload))
		if err != nil && !errors.Is(err, content.ErrUpload) {
			return Appended{}, err
		}
	}
	v := e.newVerifier(a.caller.Org, k, received)
	held, err := v.root(ctx, n.Root)
	if err != nil {
		return Appended{}, a.refused(ctx, expected, err)
	}
	added, list := v.finish()
	cp := a.checkpoint(held, expected)
	cp.Added = added
	segments, err := e.add(k, list)
	if err != nil {
		return Appended{}, err
	}
	done, err := a.apply(ctx, k, cp, segments)
	return done, e.recounted(ctx, a.caller.Org, k, err)
}

// refused finds out why an append is refused that has been found to fail with err, or
// that is not onto the head.
func (a *appending) refused(ctx context.Context, expected string, err error) error {
	return a.engine.refused(ctx, a.caller, a.change(nil, expected), a.checkpoint(tree.Summary{}, expected), err)
}

// refused finds out why an append is refused: the lease and the id come before the
// head, and all of them before err, which says what the objects lack. err is nil where
// the head is found to be another one.
func (e *Engine) refused(ctx context.Context, c Caller, t *meta.ThreadChange, cp *Checkpoint, err error) error {
	row, bad := cp.row()
	if bad != nil {
		return bad
	}
	// Should the head be the expected one, nothing else is wrong than err, or it is
	// decided again.
	t.Append, t.Segments = row, &meta.SegmentChange{AtVersion: -1}
	_, refused := e.apply(ctx, c.change(t))
	switch {
	case refused == nil:
		return fmt.Errorf("append to thread %q: applied without being verified", t.Name)
	case err != nil && moved(refused):
		return err
	}
	return refused
}

// change is the change of the thread that appends a row.
func (a *appending) change(row *meta.Checkpoint, expected string) *meta.ThreadChange {
	n := a.new
	return &meta.ThreadChange{Name: n.Thread, Append: row, Expected: expected, Writer: n.Lease.writer(), Unheld: n.Lease == nil}
}

// checkpoint is what is to be appended.
func (a *appending) checkpoint(held tree.Summary, parent string) *Checkpoint {
	n := a.new
	root := digest(n.Root)
	cp := &Checkpoint{
		ID: n.ID, Thread: n.Thread, Parent: parent, Label: n.Label,
		Facts: Facts{Kind: Native, Reason: n.Reason, Run: n.Run, Root: &root, Git: n.Git, Stats: Stats(held)},
	}
	if n.Created != nil {
		cp.Created = *n.Created
	} else {
		cp.Created = a.engine.Now()
	}
	if a.conversation != nil {
		cp.Conversation = &a.conversation.document
	}
	if a.artifacts != nil {
		cp.Artifacts = &a.artifacts.document
	}
	return cp
}

// unchanged returns the head when it has what is to be appended, and the writer may
// write; nil otherwise.
func (a *appending) unchanged(ctx context.Context, k *known) (*Checkpoint, error) {
	n := a.new
	if n.Always || k.thread.Head == "" {
		return nil, nil
	}
	head, err := a.engine.Checkpoint(ctx, a.caller.Org, k.thread.Head)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Code == MissingCheckpoint {
		return nil, &movedError{meta.ConflictHead}
	}
	if err != nil {
		return nil, err
	}
	if !a.same(&head) {
		return nil, nil
	}
	if _, err := a.engine.Checkpoint(ctx, a.caller.Org, n.ID); !is(err, MissingCheckpoint) {
		return nil, err // the append tells that the id is taken
	}
	if n.Lease != nil {
		_, err := a.engine.apply(ctx, meta.Change{
			Org: a.caller.Org, Token: a.caller.Token, Thread: &meta.ThreadChange{Name: n.Thread, Writer: n.Lease.writer()},
		})
		return &head, err
	}
	if a.engine.Busy(&k.thread) {
		return nil, &Error{Code: WriterConflict}
	}
	return &head, nil
}

// same reports whether the head says all that is to be appended. A label or an origin
// that is not given says nothing.
func (a *appending) same(head *Checkpoint) bool {
	n := a.new
	root, ok := head.RootDigest()
	return ok && root == n.Root && (n.Label == "" || n.Label == head.Label) && (n.Git == nil || head.Git != nil && *n.Git == *head.Git) &&
		a.conversation.same(head.Conversation) && a.artifacts.same(head.Artifacts)
}

// same reports whether o is the document that is stored; none is equal to none.
func (o *object) same(stored *document) bool {
	if o == nil || stored == nil {
		return o == nil && stored == nil
	}
	return o.content() == stored.content()
}

// apply stores the documents of a checkpoint and appends it.
func (a *appending) apply(ctx context.Context, k *known, cp *Checkpoint, segments *newSegments) (Appended, error) {
	n, e := a.new, a.engine
	documents := segments.documents
	for _, o := range []*object{a.conversation, a.artifacts} {
		if o != nil {
			documents = append(documents, o)
		}
	}
	done := Appended{Checkpoint: *cp}
	return done, e.append(ctx, a.caller, appendChange{
		thread: a.change(nil, cp.Parent), checkpoint: cp, known: k, segments: segments, documents: documents, upload: n.Upload, endUpload: true,
	}, func() *meta.Idempotency {
		if n.Record == nil {
			return nil
		}
		return n.Record(done)
	})
}

// appendChange is what an append writes.
type appendChange struct {
	thread     *meta.ThreadChange
	checkpoint *Checkpoint
	known      *known
	segments   *newSegments
	documents  []*object
	upload     string // that has its objects, "" for none
	endUpload  bool
}

// append makes documents durable and applies the change.
func (e *Engine) append(ctx context.Context, c Caller, a appendChange, record func() *meta.Idempotency) error {
	row, err := a.checkpoint.row()
	if err != nil {
		return err
	}
	a.thread.Append = row
	if len(a.segments.change.Add) > 0 {
		a.thread.Segments = &a.segments.change
	}
	objects := &meta.ContentChange{Generation: &a.known.generation}
	if a.endUpload && a.upload != "" {
		objects.EndUpload = uploadID(a.thread.Name, a.upload)
	}
	if len(a.documents) > 0 {
		upload := a.upload
		if !a.endUpload || upload == "" {
			upload = NewID()
			objects.EndUpload = uploadID(a.thread.Name, upload)
		}
		if err := e.put(ctx, c.Org, a.thread.Name, upload, a.documents...); err != nil {
			return err
		}
	}
	change := c.change(a.thread)
	change.Content = objects
	if row := record(); row != nil {
		change.Idempotency = row
	}
	_, err = e.apply(ctx, change)
	return err
}

package checkpoint

import (
	"context"
	"math"

	"github.com/cairnstate/cairn/internal/meta"
)

// Fork asks for a thread that begins with the files of a checkpoint.
type Fork struct {
	// Source is the checkpoint, SourceThread the thread that it is expected in; "" for
	// any that MaySee allows.
	Source, SourceThread string
	MaySee               func(thread string) (bool, error)
	Thread               string // to begin
	ID                   string // of its first checkpoint; "" makes one
	Created              *float64
	Lease                *Lease // nil takes it and gives it back
	Record               func(Checkpoint) *meta.Idempotency
}

// Fork begins a thread. Nothing is copied but the row; the two threads have nothing
// to do with each other afterwards.
func (e *Engine) Fork(ctx context.Context, c Caller, f Fork) (Checkpoint, error) {
	if f.ID == "" {
		f.ID = NewID()
	}
	for _, id := range []string{f.Source, f.ID} {
		if err := CheckID(id); err != nil {
			return Checkpoint{}, err
		}
	}
	if err := CheckThread(f.Thread); err != nil {
		return Checkpoint{}, err
	}
	if f.SourceThread != "" {
		if err := CheckThread(f.SourceThread); err != nil {
			return Checkpoint{}, err
		}
	}
	if f.Created != nil && (math.IsNaN(*f.Created) || math.IsInf(*f.Created, 0)) {
		return Checkpoint{}, refuse(InvalidEntry, "the time of the checkpoint is no finite number")
	}
	if f.SourceThread == f.Thread {
		return Checkpoint{}, &Error{Code: ForkSourceMismatch, What: "a thread cannot be forked into itself"}
	}
	source, err := e.Checkpoint(ctx, c.Org, f.Source)
	allowed := false
	if err == nil {
		allowed, err = f.MaySee(source.Thread)
	}
	switch {
	case is(err, MissingCheckpoint), err == nil && !allowed:
		return Checkpoint{}, &Error{Code: ForkSourceNotFound}
	case err != nil:
		return Checkpoint{}, err
	}
	if source.Thread == f.Thread {
		return Checkpoint{}, &Error{Code: ForkSourceMismatch, What: "a thread cannot be forked into itself"}
	}
	root := source
	root.ID, root.Thread, root.Parent, root.Label, root.Pinned, root.Added, root.Seq = f.ID, f.Thread, "", "", false, 0, 1
	root.Reason, root.Run = "fork-root", ""
	root.Source = &Source{Thread: source.Thread, Checkpoint: source.ID}
	if root.Created = e.Now(); f.Created != nil {
		root.Created = *f.Created
	}
	row, err := root.row()
	if err != nil {
		return Checkpoint{}, err
	}
	change := c.change(&meta.ThreadChange{
		Name: f.Thread, ForkOf: &meta.ForkSource{ID: f.Source, Thread: f.SourceThread}, Writer: f.Lease.writer(), Unheld: f.Lease == nil, Append: row,
	})
	if f.Record != nil {
		change.Idempotency = f.Record(root)
	}
	_, err = e.apply(ctx, change)
	return root, err
}

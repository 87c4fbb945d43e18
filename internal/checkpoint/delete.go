package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// DeleteHead deletes the head of a thread by the rules of TanStack AI.
func (e *Engine) DeleteHead(ctx context.Context, c Caller, thread, id string, l Lease) (head string, err error) {
	if err := CheckThread(thread); err != nil {
		return "", err
	}
	if err := CheckID(id); err != nil {
		return "", err
	}
	v, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Writer: l.writer(), DeleteHead: id}))
	if err != nil {
		return "", err
	}
	return v.Thread.Head, nil
}

// Delete deletes a checkpoint of a thread. Those after it keep their parent's id;
// when it was the head, the newest that is left becomes the head, and then nobody
// but the holder of l may hold the lease.
func (e *Engine) Delete(ctx context.Context, c Caller, thread, id string, l *Lease) (head string, err error) {
	for range maxRetries {
		t, err := e.Thread(ctx, c.Org, thread)
		if err != nil {
			return "", err
		}
		change := &meta.ThreadChange{Name: thread, Writer: l.writer(), Delete: id}
		if l == nil && t.Head == id {
			change.Unheld = true
		}
		// Whether it is the head must not change meanwhile.
		change.Segments = &meta.SegmentChange{AtVersion: t.Version}
		v, err := e.apply(ctx, c.change(change))
		if err == nil {
			return v.Thread.Head, nil
		}
		if !moved(err) {
			return "", err
		}
	}
	return "", errBusy
}

// DeleteThread deletes a thread with all its checkpoints and returns how many
// there were. Without a lease nobody may hold it.
func (e *Engine) DeleteThread(ctx context.Context, c Caller, thread string, l *Lease) (int64, error) {
	v, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Writer: l.writer(), Unheld: l == nil, DeleteThread: true}))
	if err != nil {
		return 0, err
	}
	return v.DeletedCount, nil
}

// Pin keeps a checkpoint from retention and deletion, or ends that.
func (e *Engine) Pin(ctx context.Context, c Caller, thread, id string, pinned bool) error {
	_, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, SetPinned: &meta.PinChange{ID: id, Pinned: pinned}}))
	return err
}

// Rule says which checkpoints of a thread are not kept. The head and pinned ones
// always are.
type Rule struct {
	// Keep are how many of the newest are kept.
	Keep int64
	// Older selects those that were appended longer ago; 0 selects all.
	Older time.Duration
	// Label selects those with a label; nil selects all.
	Label *string
}

// Pruned is what a rule has deleted, or would.
type Pruned struct {
	IDs  []string // the oldest first
	Kept int64
	More bool // there is more to delete
}

// maxPruned is how many checkpoints one Prune deletes at most.
const maxPruned = 1000

// Prune deletes what a rule does not keep; a dry run only says what that is.
func (e *Engine) Prune(ctx context.Context, c Caller, thread string, r Rule, dry bool) (Pruned, error) {
	q := meta.PruneQuery{Org: c.Org, Thread: thread, Keep: r.Keep, Label: r.Label, Limit: maxPruned + 1}
	if r.Older > 0 {
		q.Before = e.cfg.Clock().Add(-r.Older)
	}
	rows, err := e.cfg.Meta.Prunable(ctx, q)
	if err != nil {
		return Pruned{}, fmt.Errorf("find checkpoints to prune: %w", err)
	}
	p := Pruned{More: len(rows) > maxPruned}
	for _, row := range rows[:min(len(rows), maxPruned)] {
		p.IDs = append(p.IDs, row.ID)
	}
	t, err := e.Thread(ctx, c.Org, thread)
	if err != nil {
		return Pruned{}, err
	}
	p.Kept = max(t.Checkpoints-int64(len(p.IDs)), 0)
	if dry || len(p.IDs) == 0 {
		return p, nil
	}
	v, err := e.apply(ctx, c.change(&meta.ThreadChange{Name: thread, Prune: p.IDs}))
	if err != nil {
		return Pruned{}, err
	}
	p.IDs, p.Kept = v.Deleted, v.Thread.Checkpoints
	return p, nil
}

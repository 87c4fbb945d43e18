package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Deleted is what a deletion leaves.
type Deleted struct {
	ID   string
	Head string // of the thread, "" for none
}

// Kept makes the row that is kept for a request's idempotency key of what became of
// it; nil keeps none.
type Kept[R any] func(R) *meta.Idempotency

// decided applies a change that was decided on a thread as it is, and decides anew
// while others change it. decide returns the change and what becomes of it.
func decided[R any](ctx context.Context, e *Engine, c Caller, thread string, record Kept[R], decide func(t *meta.Thread) (*meta.ThreadChange, R, error)) (R, error) {
	var none R
	for range maxRetries {
		t, err := e.Thread(ctx, c.Org, thread)
		if err != nil {
			return none, err
		}
		change, result, err := decide(&t)
		if err != nil {
			return none, err
		}
		change.Segments = &meta.SegmentChange{AtVersion: t.Version}
		full := c.change(change)
		if record != nil {
			full.Idempotency = record(result)
		}
		_, err = e.apply(ctx, full)
		if err == nil {
			return result, nil
		}
		if !moved(err) {
			return none, err
		}
	}
	return none, errBusy
}

// without returns the head of a thread once a checkpoint is deleted.
func (e *Engine) without(ctx context.Context, t *meta.Thread, id string) (string, error) {
	if t.Head != id {
		return t.Head, nil
	}
	head, err := e.cfg.Meta.NewestCheckpoint(ctx, t.Org, t.Name, id)
	if err != nil {
		return "", fmt.Errorf("find the head of a thread: %w", err)
	}
	return head, nil
}

// DeleteHead deletes the head of a thread by the rules of TanStack AI.
func (e *Engine) DeleteHead(ctx context.Context, c Caller, thread, id string, l Lease, record Kept[Deleted]) (Deleted, error) {
	if err := CheckThread(thread); err != nil {
		return Deleted{}, err
	}
	if err := CheckID(id); err != nil {
		return Deleted{}, err
	}
	return decided(ctx, e, c, thread, record, func(t *meta.Thread) (*meta.ThreadChange, Deleted, error) {
		head, err := e.without(ctx, t, id)
		return &meta.ThreadChange{Name: thread, Writer: l.writer(), DeleteHead: id}, Deleted{id, head}, err
	})
}

// Delete deletes a checkpoint of a thread. Those after it keep their parent's id;
// when it was the head, the newest that is left becomes the head, and then nobody
// but the holder of l may hold the lease.
func (e *Engine) Delete(ctx context.Context, c Caller, thread, id string, l *Lease, record Kept[Deleted]) (Deleted, error) {
	return decided(ctx, e, c, thread, record, func(t *meta.Thread) (*meta.ThreadChange, Deleted, error) {
		head, err := e.without(ctx, t, id)
		return &meta.ThreadChange{Name: thread, Writer: l.writer(), Unheld: l == nil && t.Head == id, Delete: id}, Deleted{id, head}, err
	})
}

// DeleteThread deletes a thread with all its checkpoints and returns how many
// there were. Without a lease nobody may hold it.
func (e *Engine) DeleteThread(ctx context.Context, c Caller, thread string, l *Lease, record Kept[int64]) (int64, error) {
	return decided(ctx, e, c, thread, record, func(t *meta.Thread) (*meta.ThreadChange, int64, error) {
		return &meta.ThreadChange{Name: thread, Writer: l.writer(), Unheld: l == nil, DeleteThread: true}, t.Checkpoints, nil
	})
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
func (e *Engine) Prune(ctx context.Context, c Caller, thread string, r Rule, dry bool, record Kept[Pruned]) (Pruned, error) {
	if dry {
		t, err := e.Thread(ctx, c.Org, thread)
		if err != nil {
			return Pruned{}, err
		}
		return e.prunable(ctx, &t, r)
	}
	return decided(ctx, e, c, thread, record, func(t *meta.Thread) (*meta.ThreadChange, Pruned, error) {
		p, err := e.prunable(ctx, t, r)
		return &meta.ThreadChange{Name: thread, Prune: p.IDs}, p, err
	})
}

// prunable finds what a rule does not keep of a thread.
func (e *Engine) prunable(ctx context.Context, t *meta.Thread, r Rule) (Pruned, error) {
	q := meta.PruneQuery{Org: t.Org, Thread: t.Name, Keep: r.Keep, Label: r.Label, Limit: maxPruned + 1}
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
	p.Kept = max(t.Checkpoints-int64(len(p.IDs)), 0)
	return p, nil
}

package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Reference is a key with the number of checkpoints that name it.
type Reference struct {
	Key   Key
	Count int64
}

// References returns up to limit keys that manifests of a thread name, AllThreads
// for all of the org, in order, those after the given one. Each page reads every
// manifest's keys; it holds no more than it returns.
func (e *Engine) References(ctx context.Context, org meta.OrgID, thread string, after *Key, limit int) ([]Reference, error) {
	page := references{limit: limit}
	var read tree.Digest // whose keys are in whole: manifests in a row often name the same
	var whole []Key
	err := e.eachManifest(ctx, org, thread, func(c *Checkpoint) error {
		if d := c.Keys.content().Digest; d != read {
			var err error
			if whole, err = e.readKeys(ctx, org, c); err != nil {
				return err
			}
			read = d
		}
		list := whole
		if after != nil {
			at, found := slices.BinarySearchFunc(list, *after, Key.compare)
			if found {
				at++
			}
			list = list[at:]
		}
		page.count(list)
		return nil
	})
	return page.list, err
}

// eachManifest calls fn for the manifests that name keys.
func (e *Engine) eachManifest(ctx context.Context, org meta.OrgID, thread string, fn func(*Checkpoint) error) error {
	var last meta.Checkpoint
	for n := eachPage; n == eachPage; {
		var rows []meta.Checkpoint
		var err error
		if thread == AllThreads {
			rows, err = e.cfg.Meta.AllCheckpoints(ctx, org, last.ID, eachPage)
		} else {
			rows, err = e.cfg.Meta.Checkpoints(ctx, meta.CheckpointQuery{
				Org: org, Thread: thread, Started: last.ID != "", AfterCreated: last.Created, AfterID: last.ID, Limit: eachPage,
			})
		}
		if err != nil {
			return fmt.Errorf("read checkpoints: %w", err)
		}
		for _, row := range rows {
			if last = row; !row.Manifest {
				continue
			}
			c, err := checkpointOf(row)
			if err != nil {
				return err
			}
			if c.Keys == nil {
				continue
			}
			if err := fn(&c); err != nil {
				return err
			}
		}
		n = len(rows)
	}
	return nil
}

const eachPage = 256

// references are the smallest keys that were counted, in order.
type references struct {
	list  []Reference
	limit int
}

// count adds sorted keys.
func (r *references) count(add []Key) {
	out := make([]Reference, 0, min(len(r.list)+len(add), r.limit))
	old := r.list
	for len(out) < r.limit && (len(old) > 0 || len(add) > 0) {
		switch {
		case len(add) == 0 || len(old) > 0 && old[0].Key.compare(add[0]) < 0:
			out, old = append(out, old[0]), old[1:]
		case len(old) == 0 || old[0].Key.compare(add[0]) > 0:
			out, add = append(out, Reference{add[0], 1}), add[1:]
		default:
			out = append(out, Reference{old[0].Key, old[0].Count + 1})
			old, add = old[1:], add[1:]
		}
	}
	r.list = out
}

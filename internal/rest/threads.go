package rest

import (
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/tree"
)

// exact refuses ids with the character that stands for what is no Unicode: a lone
// surrogate in JSON becomes one, and different ids must not become the same.
func exact(ids ...string) error {
	for _, id := range ids {
		if strings.ContainsRune(id, '\ufffd') {
			return service.ThreadError(&checkpoint.Error{Code: checkpoint.InvalidID})
		}
	}
	return nil
}

// lease reads the lease that a writer says it holds; nil for none.
func lease(w *api.Writer) *checkpoint.Lease {
	if w == nil {
		return nil
	}
	return &checkpoint.Lease{Token: w.OwnerToken, Fence: w.Fence}
}

func (c *call) thread(t meta.Thread) api.Thread {
	out := api.Thread{Name: t.Name, Head: t.Head, Checkpoints: t.Checkpoints, Bytes: t.Bytes, Busy: c.Service.Checkpoints.Busy(&t)}
	if t.Checkpoints > 0 {
		out.CreatedAt, out.UpdatedAt = stamp(t.CreatedAt), stamp(t.UpdatedAt)
	}
	return out
}

func (c *call) getThread(q api.GetThread) (api.Thread, error) {
	if err := checkpoint.CheckThread(q.Thread); err != nil {
		return api.Thread{}, service.ThreadError(err)
	}
	t, err := c.Service.Checkpoints.Thread(c.ctx, c.access.Org.ID, q.Thread)
	if err != nil {
		return api.Thread{}, err
	}
	return c.thread(t), nil
}

// Bounds of pages of threads and checkpoints.
const (
	threadsDefault, threadsMax     = 100, 1000
	entriesDefault, entriesMax     = 1000, 10000
	manifestsDefault, manifestsMax = 20, 100
)

func (c *call) listThreads(q api.ListThreads) (api.ThreadPage, error) {
	page := api.ThreadPage{Threads: []api.Thread{}}
	after, err := textPosition(q.Cursor, threadCursor)
	if err != nil {
		return page, err
	}
	limit := pageSize(q.Limit, threadsDefault, threadsMax)
	list, err := c.Service.Threads(c.ctx, c.access, meta.ThreadQuery{Prefix: q.Prefix, After: after, Limit: limit + 1})
	if err != nil {
		return page, err
	}
	if len(list) > limit {
		list = list[:limit]
		page.HasMore, page.NextCursor = true, afterName(threadCursor, list[limit-1].Name)
	}
	for _, t := range list {
		page.Threads = append(page.Threads, c.thread(t))
	}
	return page, nil
}

func (c *call) deleteThread(q api.DeleteThread) (api.DeletedThread, error) {
	answer := func(n int64) api.DeletedThread { return api.DeletedThread{Thread: q.Thread, Checkpoints: n} }
	n, err := c.Service.Checkpoints.DeleteThread(c.ctx, c.access.Caller("DELETE thread"), q.Thread, lease(q.Lease), record(c, answer))
	return answer(n), service.ThreadError(err)
}

func milliseconds(ms int64) (time.Duration, error) {
	if ms < 0 || ms > int64(checkpoint.MaxLease/time.Millisecond) || ms > 0 && ms < int64(checkpoint.MinLease/time.Millisecond) {
		return 0, invalid("duration_ms is %d: use %d to %d", ms, checkpoint.MinLease.Milliseconds(), checkpoint.MaxLease.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func granted(thread string, g checkpoint.Granted) api.Lease {
	return api.Lease{
		ThreadID: thread, OwnerToken: g.Token, Fence: g.Fence, ExpiresAt: g.Expires.UnixMilli(), RenewAfterMS: g.RenewAfter.Milliseconds(),
	}
}

func (c *call) acquireLease(q api.AcquireLease) (api.Lease, error) {
	d, err := milliseconds(q.DurationMS)
	if err != nil {
		return api.Lease{}, err
	}
	// Whoever sends a request again, because its answer was lost, has the lease.
	owner := ""
	if key := c.r.Header.Get(keyHeader); key != "" && len(key) <= maxKey {
		sum := tree.Sum([]byte(c.access.IdempotencyKey(key) + q.Thread + key))
		owner = sum.String()
	}
	g, err := c.Service.Checkpoints.Acquire(c.ctx, c.access.Caller("POST lease"), q.Thread, owner, d)
	return granted(q.Thread, g), service.ThreadError(err)
}

func (c *call) renewLease(q api.RenewLease) (api.Lease, error) {
	d, err := milliseconds(q.DurationMS)
	if err != nil {
		return api.Lease{}, err
	}
	l := checkpoint.Lease{Token: q.OwnerToken, Fence: q.Fence}
	g, err := c.Service.Checkpoints.Renew(c.ctx, c.access.Caller("POST lease/renew"), q.Thread, l, d)
	return granted(q.Thread, g), service.ThreadError(err)
}

func (c *call) releaseLease(q api.ReleaseLease) (api.ReleasedLease, error) {
	l := checkpoint.Lease{Token: q.OwnerToken, Fence: q.Fence}
	err := c.Service.Checkpoints.Release(c.ctx, c.access.Caller("DELETE lease"), q.Thread, l)
	return api.ReleasedLease{ThreadID: q.Thread}, service.ThreadError(err)
}

func (c *call) pruneThread(q api.PruneThread) (api.PrunedThread, error) {
	if q.KeepLast == nil && q.OlderThanSeconds == nil && (q.Label == nil || *q.Label == "") {
		return api.PrunedThread{}, invalid("say what is deleted with keep_last, older_than_seconds or label")
	}
	r := checkpoint.Rule{Label: q.Label}
	if q.KeepLast != nil {
		r.Keep = *q.KeepLast
	}
	if q.OlderThanSeconds != nil {
		const most = int64(100 * 365 * 24 * time.Hour / time.Second)
		if *q.OlderThanSeconds < 0 || *q.OlderThanSeconds > most {
			return api.PrunedThread{}, invalid("older_than_seconds is %d: use 0 to %d", *q.OlderThanSeconds, most)
		}
		r.Older = time.Duration(*q.OlderThanSeconds) * time.Second
	}
	if r.Keep < 0 {
		return api.PrunedThread{}, invalid("keep_last is %d: use 0 or more", r.Keep)
	}
	answer := func(p checkpoint.Pruned) api.PrunedThread {
		out := api.PrunedThread{Deleted: p.IDs, Kept: p.Kept, DryRun: q.DryRun, HasMore: p.More}
		if out.Deleted == nil {
			out.Deleted = []string{}
		}
		return out
	}
	p, err := c.Service.Checkpoints.Prune(c.ctx, c.access.Caller("POST prune"), q.Thread, r, q.DryRun, record(c, answer))
	return answer(p), service.ThreadError(err)
}

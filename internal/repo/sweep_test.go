package repo

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
)

// sweptMeta lets another process, whose clock is ahead, sweep between an upload
// and its Change.
type sweptMeta struct {
	meta.Store
	left  atomic.Int64 // Changes with an upload that are swept
	sweep func()
}

func (s *sweptMeta) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	uploaded := c.AddPack != nil && !c.AddPack.Inline || c.ReplacePacks != nil && len(c.ReplacePacks.Add) > 0
	if uploaded && s.left.Add(-1) >= 0 {
		s.sweep()
	}
	return s.Store.Apply(ctx, c)
}

// TestSweptUpload: a push, a commit and a repack whose uploads were swept away
// before their Change upload again; when it happens time and again they fail and
// leave nothing.
func TestSweptUpload(t *testing.T) {
	var s *sweptMeta
	w := newWorld(t, options{inlineLimit: 64, meta: func(store meta.Store) meta.Store {
		s = &sweptMeta{Store: store}
		return s
	}})
	ctx := context.Background()
	s.sweep = func() {
		other := New(Config{
			Meta: s.Store, Blobs: w.blobs, ODB: w.engine.cfg.ODB, Process: "other",
			Clock: func() time.Time { return time.Now().Add(time.Hour) },
		})
		res, err := other.Sweep(ctx)
		if err != nil || res.Uploads == 0 {
			t.Errorf("the other process swept %+v, %v; want an upload", res, err)
		}
	}
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 3)

	s.left.Store(1)
	wantStatus(t, w.push(r.ID, g.packRevs(c[0].String()), wire.Command{Ref: "refs/heads/main", New: c[0]}), map[string]string{"refs/heads/main": ""})
	w.fsck(r.ID)
	s.left.Store(maxUploads - 1)
	w.commit(r.ID, "one", map[string]string{"f": "1"})
	w.fsck(r.ID)
	s.left.Store(1)
	if res := w.collect(r.ID, CollectOptions{Full: true}); res.PacksAfter != 1 {
		t.Errorf("%+v after a repack, want one pack", res)
	}
	w.fsck(r.ID)

	s.left.Store(maxUploads)
	tip := w.ref(r.ID, "refs/heads/main")
	rc := w.engine.Receiver(w.writer, w.view(r.ID), Normal)
	push := &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/next", New: c[2]}}}
	if res, err := rc.Receive(ctx, push, strings.NewReader(string(g.packRevs(c[2].String(), "^"+c[0].String())))); err == nil {
		t.Errorf("a push whose every upload is swept says %+v", res)
	}
	if at := w.ref(r.ID, "refs/heads/main"); at != tip || !w.ref(r.ID, "refs/heads/next").IsZero() {
		t.Errorf("main is at %s, want %s, and next must not exist", at, tip)
	}
	w.fsck(r.ID)
	if uploads, err := w.meta.Uploads(ctx); err != nil || len(uploads) > 0 {
		t.Errorf("uploads are left: %v, %v", uploads, err)
	}
}

// TestSweepPrunesEvents: a sweep drops old events in as many batches as it takes,
// and none where all are kept.
func TestSweepPrunesEvents(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	const many = 2*sweepBatch + 10
	for range many {
		c := meta.Change{Org: w.org, Repo: r.ID, Events: []meta.Event{{Type: "push"}}}
		if v, err := w.meta.Apply(t.Context(), c); err != nil || !v.Applied {
			t.Fatal(v, err)
		}
	}
	later := time.Duration(0)
	w.engine.cfg.Clock = func() time.Time { return time.Now().Add(later) }
	for _, row := range []struct {
		keep, later time.Duration
		left        int
	}{{0, 1000 * time.Hour, many}, {time.Hour, 30 * time.Minute, many}, {time.Hour, 2 * time.Hour, 1}} {
		w.engine.cfg.EventsKeep, later = row.keep, row.later
		if _, err := w.engine.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list, err := w.meta.Events(t.Context(), w.org, 0, many); err != nil || len(list) != row.left {
			t.Errorf("kept for %v, after %v: %d events, want %d, %v", row.keep, row.later, len(list), row.left, err)
		}
	}
	if n := w.engine.Background().PrunedEvents; n != many-1 {
		t.Errorf("%d events were counted", n)
	}
}

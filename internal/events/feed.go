package events

import (
	"context"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// pollEvery is how often events of other processes are looked for while
// somebody waits.
const pollEvery = time.Second

// Feed is a metadata store that tells readers when an org may have new events:
// at once when this process wrote them, and within a second when another one
// did. It costs writers nothing while nobody waits. It is safe for concurrent
// use.
type Feed struct {
	meta.Store

	mu      sync.Mutex
	waiting map[meta.OrgID]map[*watch]struct{}
	count   int
	last    int64 // position that polls have come to; -1 when it is not known
}

var _ meta.Store = (*Feed)(nil)

// watch is one reader that waits.
type watch struct{ wake chan<- struct{} }

// NewFeed returns a Feed on a store.
func NewFeed(m meta.Store) *Feed {
	return &Feed{Store: m, waiting: make(map[meta.OrgID]map[*watch]struct{}), last: -1}
}

// Apply implements meta.Store.
func (f *Feed) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	v, err := f.Store.Apply(ctx, c)
	if v.Applied && len(c.Events) > 0 {
		f.tell(c.Org)
	}
	return v, err
}

// Watch sends to wake, unless it is full, whenever the org may have new events,
// until stop is called. wake must have room for one. Events that were written
// before Watch returned may not be told: read after it, and again after each
// wake.
func (f *Feed) Watch(org meta.OrgID, wake chan<- struct{}) (stop func()) {
	w := &watch{wake: wake}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting[org] == nil {
		f.waiting[org] = make(map[*watch]struct{})
	}
	f.waiting[org][w] = struct{}{}
	f.count++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.waiting[org], w)
		if len(f.waiting[org]) == 0 {
			delete(f.waiting, org)
		}
		f.count--
	})
}

// tell wakes the readers of some orgs.
func (f *Feed) tell(orgs ...meta.OrgID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, org := range orgs {
		for w := range f.waiting[org] {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// Run looks for the events of other processes until ctx ends. report takes
// errors; the next look comes a second later.
func (f *Feed) Run(ctx context.Context, report func(error)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.poll(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// poll wakes the readers of orgs that have events since the last poll. When it
// is not known what the last one saw, it wakes all.
func (f *Feed) poll(ctx context.Context) error {
	f.mu.Lock()
	last, waiting := f.last, f.count
	f.mu.Unlock()
	switch {
	case waiting == 0:
		last = -1
	case last < 0:
		now, err := f.LastEvent(ctx)
		if err != nil {
			return err
		}
		last = now
		f.tell(f.watched()...)
	default:
		orgs, now, err := f.EventOrgs(ctx, last)
		if err != nil {
			return err
		}
		last = now
		f.tell(orgs...)
	}
	f.mu.Lock()
	f.last = last
	f.mu.Unlock()
	return nil
}

// watched returns the orgs whose events somebody waits for.
func (f *Feed) watched() []meta.OrgID {
	f.mu.Lock()
	defer f.mu.Unlock()
	orgs := make([]meta.OrgID, 0, len(f.waiting))
	for org := range f.waiting {
		orgs = append(orgs, org)
	}
	return orgs
}

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
)

// Schedule is how long after each failed attempt of an event the next one is
// made; after the last attempt the event is given up. Each time is changed by up
// to a fifth at random.
var Schedule = []time.Duration{
	time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
}

// Defaults of Config.
const (
	DefaultLease        = 15 * time.Second
	DefaultDisableAfter = 72 * time.Hour
)

// Config is what a Deliverer stands on.
type Config struct {
	Feed   *events.Feed
	Sender *Sender
	// Process names this process in leases.
	Process string
	// Report takes errors that nobody waits for; work goes on after them.
	Report func(error)
	// Schedule replaces the one of this package in tests.
	Schedule []time.Duration
	// DisableAfter is how long all attempts may fail until the endpoint is
	// disabled; 0 means DefaultDisableAfter.
	DisableAfter time.Duration
	// Lease is how long another process waits after this one died; 0 means
	// DefaultLease.
	Lease time.Duration
}

// Deliverer delivers the events of all orgs to their endpoints. Of several
// processes on one store, one at a time delivers to each endpoint.
type Deliverer struct {
	cfg   Config
	nudge chan struct{}
	stale atomic.Bool // which orgs have endpoints may have changed

	mu      sync.Mutex
	working map[meta.WebhookID]*worker
	counts  struct{ attempts, failures, givenUp, disabled atomic.Int64 }
}

// New returns a Deliverer.
func New(c Config) *Deliverer {
	if c.Schedule == nil {
		c.Schedule = Schedule
	}
	if c.DisableAfter == 0 {
		c.DisableAfter = DefaultDisableAfter
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	return &Deliverer{cfg: c, nudge: make(chan struct{}, 1), working: make(map[meta.WebhookID]*worker)}
}

// Figures say how deliveries go.
type Figures struct {
	Attempts int64 // made
	Failures int64 // attempts that failed
	GivenUp  int64 // events whose last attempt failed
	Disabled int64 // endpoints that were disabled because they failed too long
	Backlog  int64 // events that wait at the endpoints this process delivers to; it looks ahead by maxWindow at each
	// Lag is the age of the oldest event that waits, in seconds.
	Lag int64
}

// Figures returns the figures of this process.
func (d *Deliverer) Figures() Figures {
	f := Figures{
		Attempts: d.counts.attempts.Load(), Failures: d.counts.failures.Load(),
		GivenUp: d.counts.givenUp.Load(), Disabled: d.counts.disabled.Load(),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.working {
		f.Backlog += w.backlog.Load()
		if oldest := w.oldest.Load(); oldest != 0 {
			f.Lag = max(f.Lag, int64(time.Since(time.UnixMicro(oldest)).Seconds()))
		}
	}
	return f
}

// Changed makes the Deliverer look at once what endpoints there are.
func (d *Deliverer) Changed() {
	d.stale.Store(true)
	d.wake()
}

func (d *Deliverer) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// Times of looking for endpoints that have something to deliver.
const (
	lookEvery = time.Second
	lookPause = 20 * time.Millisecond
	orgsEvery = 5 * time.Second
	maxDue    = 256
)

// Run delivers until ctx ends; attempts under way are then ended.
func (d *Deliverer) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	watched := make(map[meta.OrgID]func())
	defer func() {
		for _, stop := range watched {
			stop()
		}
	}()
	var orgsAt time.Time
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if d.stale.Swap(false) || time.Since(orgsAt) > orgsEvery {
			orgsAt = time.Now()
			d.report(ctx, d.watch(ctx, watched))
		}
		full, err := d.look(ctx, &workers)
		d.report(ctx, err)
		if full {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-d.nudge:
			pause(ctx, lookPause)
		}
	}
}

func pause(ctx context.Context, t time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(t):
	}
}

func (d *Deliverer) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		d.cfg.Report(fmt.Errorf("webhooks: %w", err))
	}
}

// watch makes the events of exactly the orgs that have endpoints known at once.
func (d *Deliverer) watch(ctx context.Context, watched map[meta.OrgID]func()) error {
	orgs, err := d.cfg.Feed.WebhookOrgs(ctx)
	if err != nil {
		return err
	}
	there := make(map[meta.OrgID]bool, len(orgs))
	for _, org := range orgs {
		there[org] = true
		if watched[org] == nil {
			watched[org] = d.cfg.Feed.Watch(org, d.nudge)
		}
	}
	for org, stop := range watched {
		if !there[org] {
			stop()
			delete(watched, org)
		}
	}
	return nil
}

// look starts workers for endpoints that have something to deliver. full says
// that there may be more.
func (d *Deliverer) look(ctx context.Context, workers *sync.WaitGroup) (full bool, err error) {
	ids, err := d.cfg.Feed.DueWebhooks(ctx, maxDue)
	if err != nil {
		return false, err
	}
	started := 0
	for _, id := range ids {
		w, err := d.take(ctx, id)
		if err != nil {
			return false, err
		}
		if w == nil {
			continue
		}
		started++
		workers.Go(func() {
			err := w.run(ctx)
			d.report(ctx, err)
			d.mu.Lock()
			delete(d.working, id)
			d.mu.Unlock()
			if err == nil {
				d.wake() // for what came while the worker ended
			}
		})
	}
	return len(ids) == maxDue && started > 0, nil
}

// take takes the lease on an endpoint, nil when another worker has it.
func (d *Deliverer) take(ctx context.Context, id meta.WebhookID) (*worker, error) {
	d.mu.Lock()
	taken := d.working[id] != nil
	d.mu.Unlock()
	if taken {
		return nil, nil
	}
	w := newWorker(d, id)
	if err := w.renew(ctx); err != nil {
		if errors.Is(err, meta.ErrNotFound) {
			err = nil
		}
		return nil, err
	}
	d.mu.Lock()
	d.working[id] = w
	d.mu.Unlock()
	return w, nil
}

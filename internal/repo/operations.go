package repo

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// ErrLeaseLost ends operations of a process that could not renew its heartbeat:
// the bytes that they read or write may be removed by others.
var ErrLeaseLost = errors.New("the server lost its lease on the metadata store")

// operations are what this process is doing, by which other processes know
// which retired bytes it may still read. It is safe for concurrent use.
type operations struct {
	mu      sync.Mutex
	running *list.List // of *operation, oldest first
	until   time.Time  // when the lease ends; zero before the first heartbeat
}

type operation struct {
	began  time.Time
	cancel context.CancelCauseFunc
}

// Begin registers an operation that reads or writes repositories. Its context
// ends, with ErrLeaseLost, when the process can no longer vouch for it. done
// must be called.
func (e *Engine) Begin(ctx context.Context) (opCtx context.Context, done func(), err error) {
	o := &e.operations
	o.mu.Lock()
	defer o.mu.Unlock()
	now := e.cfg.Clock()
	if !o.until.IsZero() && now.After(o.until) {
		return nil, nil, ErrLeaseLost
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if o.running == nil {
		o.running = list.New()
	}
	el := o.running.PushBack(&operation{began: now, cancel: cancel})
	return ctx, func() {
		cancel(context.Canceled)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.running.Remove(el)
	}, nil
}

// holdsLease reports whether this process may publish uploaded bytes: others
// remove the uploads of a process that is gone.
func (e *Engine) holdsLease() bool {
	o := &e.operations
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.until.IsZero() || e.cfg.Clock().Before(o.until)
}

// oldest returns when the oldest running operation began, or zero.
func (o *operations) oldest() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running == nil || o.running.Len() == 0 {
		return time.Time{}
	}
	return o.running.Front().Value.(*operation).began
}

// renewed extends the lease.
func (o *operations) renewed(until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = until
}

// expire ends all operations once the lease has ended.
func (o *operations) expire(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until.IsZero() || now.Before(o.until) || o.running == nil {
		return
	}
	for el := o.running.Front(); el != nil; el = el.Next() {
		el.Value.(*operation).cancel(ErrLeaseLost)
	}
}

// Heartbeat tells the other processes that this one lives and since when its
// oldest operation runs. When it fails for longer than the lease, the running
// operations are ended.
func (e *Engine) Heartbeat(ctx context.Context) error {
	began := e.cfg.Clock()
	err := e.cfg.Meta.Heartbeat(ctx, meta.Process{ID: e.cfg.Process, Oldest: e.operations.oldest(), Lease: e.cfg.Lease})
	if err != nil {
		e.operations.expire(e.cfg.Clock())
		return fmt.Errorf("renew heartbeat: %w", err)
	}
	// A margin, so that this process stops before others take it for dead.
	e.operations.renewed(began.Add(e.cfg.Lease - e.cfg.Lease/4))
	return nil
}

// Run renews the heartbeat, sweeps, expires and compacts until ctx ends. Errors that no
// request waits for go to report.
func (e *Engine) Run(ctx context.Context, report func(error)) {
	e.reporter.Store(&report)
	defer e.reporter.Store(nil)
	beat := time.NewTicker(e.cfg.Lease / 4)
	defer beat.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	try := func(f func(context.Context) error) {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
	sweepOnce := func(ctx context.Context) error { _, err := e.Sweep(ctx); return err }
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	expireOnce := func(ctx context.Context) error { _, err := e.Expire(ctx); return err }
	try(e.Heartbeat)
	try(sweepOnce)
	var sweeping, expiring, compacting sync.WaitGroup
	defer sweeping.Wait()
	defer expiring.Wait()
	expiring.Go(func() { try(expireOnce) })
	compacting.Go(func() { e.compact(ctx) })
	defer compacting.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			try(e.Heartbeat)
		case <-sweep.C:
			// Beside the heartbeat, which must not wait for it.
			sweeping.Wait()
			sweeping.Go(func() { try(sweepOnce) })
		case <-expire.C:
			expiring.Wait()
			expiring.Go(func() { try(expireOnce) })
		}
	}
}

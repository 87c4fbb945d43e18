package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
)

// Defaults of Config.
const (
	DefaultLease    = 10 * time.Second
	DefaultPoll     = 5 * time.Second
	DefaultIdle     = time.Minute
	DefaultTimeout  = time.Hour
	DefaultMaxRefs  = 30_000
	DefaultParallel = 4
)

// DefaultPauses are how long a sync that failed for a passing reason waits
// before it begins again; after the last it has failed for good.
var DefaultPauses = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}

// Config is what a Syncer is made of. Zero values mean the defaults.
type Config struct {
	Meta    meta.Store
	Engine  *repo.Engine
	Secrets *secret.Keyring
	// Hosts says which hosts may be asked.
	Hosts *netguard.Guard
	// Plain are the hosts, as host or host:port, that are asked without TLS.
	Plain map[string]bool
	// Roots verify the hosts' certificates; nil means the system's.
	Roots *x509.CertPool
	// Process names this process in leases.
	Process string
	// Lease is for how long a sync is held without being renewed.
	Lease time.Duration
	// Poll is how often syncs are looked for that others asked for.
	Poll time.Duration
	// Idle ends a sync whose upstream sends nothing for this long, Timeout one
	// that takes longer as a whole.
	Idle, Timeout time.Duration
	MaxRefs       int
	Parallel      int
	Pauses        []time.Duration
	Log           *slog.Logger
}

// Syncer runs the syncs that were asked for. It is safe for concurrent use.
type Syncer struct {
	Config
	transport http.RoundTripper
	wake      chan struct{}

	started, succeeded, failed, nanos atomic.Int64
}

// Figures count what a Syncer did since it was made.
type Figures struct {
	// Started counts the runs that began, Succeeded and Failed how runs ended; a
	// run that was detached, taken over or given back is neither.
	Started, Succeeded, Failed int64
	// Took is the time of the runs that ended.
	Took time.Duration
}

// Figures returns the figures as they are now.
func (s *Syncer) Figures() Figures {
	return Figures{
		Started: s.started.Load(), Succeeded: s.succeeded.Load(), Failed: s.failed.Load(), Took: time.Duration(s.nanos.Load()),
	}
}

// New returns a Syncer. Hosts may be nil: then all are refused.
func New(c Config) *Syncer {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxRefs = cmp.Or(c.MaxRefs, DefaultMaxRefs)
	c.Parallel = cmp.Or(c.Parallel, DefaultParallel)
	if c.Pauses == nil {
		c.Pauses = DefaultPauses
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := c.Hosts.Transport(&tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12})
	t.DisableCompression = true
	return &Syncer{Config: c, transport: t, wake: make(chan struct{}, 1)}
}

// Wake makes Run look for syncs at once.
func (s *Syncer) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Check returns a source in its normal form, or why it cannot be followed: an
// *InvalidError or a *netguard.RefusedError. It asks no network.
func (s *Syncer) Check(src Source) (Source, error) {
	src, err := src.Normalize()
	if err != nil {
		return src, err
	}
	return src, s.Hosts.CheckURL(src.url(s.Plain[src.Host]))
}

// Run runs syncs until ctx ends, then gives those under way back.
func (s *Syncer) Run(ctx context.Context) {
	slots := make(chan struct{}, s.Parallel)
	var running sync.WaitGroup
	defer running.Wait()
	if err := s.reseal(ctx); err != nil && ctx.Err() == nil {
		s.Log.Error("encrypt credentials with the first key", "err", err)
	}
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	for {
		due, err := s.Meta.SyncsDue(ctx, s.Parallel)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("look for syncs", "err", err)
		}
		for _, job := range due {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			running.Go(func() {
				defer func() { <-slots; s.Wake() }()
				s.serve(ctx, job)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-poll.C:
		}
	}
}

// serve runs one sync and records how it ended.
func (s *Syncer) serve(ctx context.Context, job meta.Sync) {
	r, err := s.begin(ctx, job)
	if err == nil {
		err = s.hold(ctx, r)
	}
	switch {
	case err == nil, errors.Is(err, repo.ErrSyncLost), errors.Is(err, meta.ErrNotFound), ctx.Err() != nil:
	default:
		s.Log.Error("sync not recorded", "repo", int64(job.Repo), "err", err)
	}
}

// begin takes a sync. ErrSyncLost says that another process has.
func (s *Syncer) begin(ctx context.Context, job meta.Sync) (*run, error) {
	r := &run{Syncer: s, job: job, started: time.Now()}
	r.job.Attempts++
	var err error
	if r.upstream, err = s.Meta.Upstream(ctx, job.Repo); err != nil {
		return nil, err
	}
	if r.repo, err = s.Meta.Repo(ctx, job.Repo); err != nil {
		return nil, err
	}
	r.upstream.Runs++
	begin := &meta.BeginSync{ID: job.ID, Owner: s.Process, Lease: s.Lease, AtRuns: r.upstream.Runs - 1}
	err = s.Engine.Follow(ctx, repo.Writer{Route: route}, r.repo, meta.FollowChange{BeginSync: begin}, r.event(events.TypeSyncStarted, nil, nil))
	if err == nil {
		s.started.Add(1)
	}
	return r, err
}

// hold runs a sync that was taken while its lease is renewed, and ends it.
func (s *Syncer) hold(ctx context.Context, r *run) error {
	work, cancel := context.WithTimeoutCause(ctx, s.Timeout, &Error{Message: fmt.Sprintf("the sync took longer than %s", s.Timeout)})
	defer cancel()
	work, lose := context.WithCancelCause(work)
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renew(work, r.job.ID, lose) })
	err := r.sync(work)
	if err != nil && work.Err() != nil {
		err = context.Cause(work)
	}
	lose(context.Canceled)
	renewing.Wait()
	// What follows must be recorded although the server stops.
	end, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	switch {
	case err == nil:
		s.succeeded.Add(1)
		s.nanos.Add(int64(time.Since(r.started)))
		s.Log.Info("sync succeeded", "repo", r.repo.Name, "run", r.upstream.Runs, "ms", time.Since(r.started).Milliseconds())
		return nil
	case errors.Is(err, repo.ErrSyncLost):
		return err
	case ctx.Err() != nil:
		return s.Meta.RenewSync(end, r.job.ID, s.Process, 0) // for another process
	}
	if err = r.fail(end, err); err == nil {
		s.failed.Add(1)
		s.nanos.Add(int64(time.Since(r.started)))
	}
	return err
}

// renew keeps the lease of a sync until ctx ends, and ends the sync when it was
// detached or taken over.
func (s *Syncer) renew(ctx context.Context, id meta.SyncID, lose context.CancelCauseFunc) {
	tick := time.NewTicker(s.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.Meta.RenewSync(ctx, id, s.Process, s.Lease)
		if errors.Is(err, meta.ErrNotFound) {
			lose(repo.ErrSyncLost)
			return
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("sync lease not renewed", "err", err)
		}
	}
}

// resealPage is how many credentials are read at a time.
const resealPage = 100

// reseal encrypts the credentials that an older key encrypted with the first
// one, so that the older key can go. It says how many remain, for want of a key
// or because their repository is deleted.
func (s *Syncer) reseal(ctx context.Context) error {
	if s.Secrets == nil {
		return nil
	}
	made, left := 0, 0
	for after := meta.CredentialID(0); ; {
		page, err := s.Meta.Credentials(ctx, after, resealPage)
		if err != nil {
			return err
		}
		for _, c := range page {
			after = c.ID
			if s.Secrets.Current(c.Secret) {
				continue
			}
			plain, err := s.Secrets.Open(CredentialRow(c.ID), c.Secret)
			if err != nil {
				left++
				continue
			}
			if c.Secret, err = s.Secrets.Seal(CredentialRow(c.ID), plain); err != nil {
				return err
			}
			err = s.Engine.Follow(ctx, repo.Writer{Route: "secret key rotation"}, meta.Repo{ID: c.Repo, Org: c.Org},
				meta.FollowChange{PutCredential: &c, Replace: true})
			var gone *repo.GoneError
			var changed *repo.NotFoundError
			switch {
			case err == nil:
				made++
			case errors.As(err, &gone): // it may come back
				left++
			case !errors.As(err, &changed):
				return err
			}
		}
		if len(page) < resealPage {
			break
		}
	}
	if made > 0 || left > 0 {
		s.Log.Info("credentials encrypted with the first key", "count", made, "left", left)
	}
	return nil
}

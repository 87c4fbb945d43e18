// Package repo is the repository engine: one repository on a metadata store and
// an object database. Reads go through immutable views of one version; refs
// change through one function.
package repo

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/signature"
)

// Defaults of Config.
const (
	DefaultGrace       = 15 * time.Minute
	DefaultCacheBytes  = 256 << 20
	DefaultAnswerBytes = 64 << 20
	// DefaultKeyRetention is how long answers to idempotency keys are kept.
	DefaultKeyRetention = 24 * time.Hour
	// DefaultGarbageGrace is how long unreachable objects are kept.
	DefaultGarbageGrace = 14 * 24 * time.Hour
	// DefaultUndeleteWindow is how long a deleted repository can come back.
	DefaultUndeleteWindow = 14 * 24 * time.Hour
)

// Config is what an Engine is made of.
type Config struct {
	Meta meta.Store
	ODB  *odb.Store
	// Clock returns the time; nil means time.Now.
	Clock func() time.Time
	// Process names this process in heartbeats and uploads.
	Process string
	// Grace is how long an object stays fetchable after the last ref that
	// reached it moved away; 0 means DefaultGrace.
	Grace time.Duration
	// GarbageGrace is how long objects stay stored after a repack found that
	// nothing reaches them; 0 means DefaultGarbageGrace, less than 0 not at all.
	GarbageGrace time.Duration
	// UndeleteWindow is how long a deleted repository keeps what it holds, so that
	// it can come back; 0 means DefaultUndeleteWindow, less than 0 not at all.
	UndeleteWindow time.Duration
	// KeyRetention is how long answers to requests with an idempotency key are
	// kept; 0 means DefaultKeyRetention.
	KeyRetention time.Duration
	// EventsKeep is how long events are kept, beside those that an endpoint is
	// still to get; 0 keeps them all.
	EventsKeep time.Duration
	// CacheBytes bounds the memory of cached views, those left out that are larger
	// than a quarter of it: they have four times as much. 0 means
	// DefaultCacheBytes.
	CacheBytes int64
	// AnswerBytes bounds the memory of cached answers to fetches; 0 means
	// DefaultAnswerBytes.
	AnswerBytes int64
	// Limits bound what a request may ask for.
	Limits Limits
	// Blobs is where the packs of ODB are, for sweeps and checks.
	Blobs blob.Store
	// Secrets opens the keys with which the server signs; nil where no org has one.
	Secrets *secret.Keyring
	// Scratch is a local directory for what does not fit in memory while a push
	// or commit arrives.
	Scratch string
	// Git runs the git program for repacks; nil means the one on the path.
	Git *gitcmd.Git
	// Tasks runs it for requests, which must not wait for repacks; nil means the
	// one on the path.
	Tasks *gitcmd.Git
	// Lease is how long this process counts as alive after a heartbeat; 0 means
	// DefaultLease.
	Lease time.Duration
}

// Engine serves all repositories of one metadata store. It is safe for
// concurrent use. Close must be called.
type Engine struct {
	cfg     Config
	views   viewCache
	flights singleflight.Group
	answers *lru.Cache[answerKey, []byte]
	last    *lru.Cache[lastKey, lastValue]
	details *lru.Cache[FilesQuery, *FileDetails]
	roots   *lru.Cache[object.ID, object.ID] // root trees of commits that others are made upon
	// histories are lists of commits that somebody is reading page by page.
	histories *lru.Cache[historyKey, *history]
	greps     greps
	modules   *lru.Cache[object.ID, struct{}] // .gitmodules files that are known to be good
	room      *gitcmd.Room
	writing
}

// New returns an Engine.
func New(cfg Config) *Engine {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.KeyRetention == 0 {
		cfg.KeyRetention = DefaultKeyRetention
	}
	if cfg.UndeleteWindow == 0 {
		cfg.UndeleteWindow = DefaultUndeleteWindow
	}
	if cfg.GarbageGrace == 0 {
		cfg.GarbageGrace = DefaultGarbageGrace
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.AnswerBytes == 0 {
		cfg.AnswerBytes = DefaultAnswerBytes
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Git == nil {
		cfg.Git = gitcmd.New(gitcmd.Config{})
	}
	if cfg.Tasks == nil {
		cfg.Tasks = gitcmd.New(gitcmd.Config{Slots: max(gitcmd.DefaultSlots, runtime.GOMAXPROCS(0))})
	}
	return &Engine{
		cfg: cfg,
		writing: writing{skew: clockSkew, jobs: jobs{folds: newQueue(), repacks: newQueue()}, rings: rings{lru.New[meta.OrgID, knownRing](ringBytes)},
			signers: signers{lru.New[meta.OrgID, *signature.Signer](signerBytes)}},
		views:     newViewCache(cfg.CacheBytes),
		modules:   lru.New[object.ID, struct{}](knownModulesBytes),
		answers:   lru.New[answerKey, []byte](cfg.AnswerBytes),
		last:      lru.New[lastKey, lastValue](cfg.CacheBytes / 16),
		details:   lru.New[FilesQuery, *FileDetails](cfg.CacheBytes / 16),
		roots:     lru.New[object.ID, object.ID](cfg.CacheBytes / 64),
		histories: lru.New[historyKey, *history](cfg.CacheBytes / 8),
		greps:     newGreps(cfg.CacheBytes / 16),
		room:      gitcmd.NewRoom(cfg.Scratch),
	}
}

// Close removes what is left of work for git. Nothing may run any more.
func (e *Engine) Close() error { return e.room.Close() }

// patience bounds how long a reader waits for a writer of this process to lay what
// it has written over the view, before it reads that itself.
const patience = time.Millisecond

// View returns an immutable view of a repository at r's version or a later one.
// r is fresh from the metadata store.
func (e *Engine) View(ctx context.Context, r meta.Repo) (*View, error) {
	near, ok := e.views.get(r.ID)
	if ok && near.repo.Version < r.Version {
		near, ok = e.follow(ctx, near, r.Version)
	}
	if ok && near.repo.Version >= r.Version {
		return near, nil
	}
	key := strconv.FormatInt(int64(r.ID), 16) + "@" + strconv.FormatInt(r.Version, 16)
	got, err, _ := e.flights.Do(key, func() (any, error) {
		// Others may wait for this flight: one caller's end must not fail them.
		v, err := e.load(context.WithoutCancel(ctx), r, near)
		if err != nil {
			return nil, err
		}
		if now, ok := e.views.get(r.ID); !ok || now.repo.Version < v.repo.Version {
			e.views.put(v)
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	return got.(*View), nil
}

// follow waits, while this process writes to the repository of a view, for one of a
// version, and returns the newest there is.
func (e *Engine) follow(ctx context.Context, near *View, version int64) (v *View, ok bool) {
	id := near.repo.ID
	var timeout <-chan time.Time
	for v, ok = near, true; ok && v.repo.Version < version; v, ok = e.views.get(id) {
		// The Change may have ended since the view was looked up.
		ended := e.feed.next(id)
		if now, at := e.views.get(id); ended == nil || at && now.repo.Version >= version {
			return now, at
		}
		if timeout == nil {
			timeout = time.After(patience)
		}
		select {
		case <-ended:
		case <-timeout:
			return e.views.get(id)
		case <-ctx.Done():
			return v, true
		}
	}
	return v, ok
}

// logPage is how many entries of the ref log a view is refreshed from; after
// more all refs are read anew.
const logPage = 4096

// load makes a view, from near (nil for none) when the ref log reaches back to
// it.
func (e *Engine) load(ctx context.Context, r meta.Repo, near *View) (*View, error) {
	if near != nil && near.repo.Version < r.Version {
		v, ok, err := e.refresh(ctx, r, near)
		if err != nil || ok {
			return v, err
		}
	}
	page, err := e.cfg.Meta.Refs(ctx, meta.RefQuery{Repo: r.ID})
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	v := &View{engine: e, repo: r, refs: newRefTable(page.Refs)}
	if page.Version == r.Version {
		return v, nil
	}
	// The repository moved on between the caller's read and this one. Its row,
	// read now, is at least as new as the refs: the log leads from them to it.
	v.repo.Version = page.Version
	now, err := e.cfg.Meta.Repo(ctx, r.ID)
	if err != nil {
		return nil, fmt.Errorf("read repository: %w", err)
	}
	if !now.Deleted.IsZero() {
		return nil, &GoneError{Repo: r.ID}
	}
	v, ok, err := e.refresh(ctx, now, v)
	if err == nil && !ok {
		err = fmt.Errorf("ref log of repository %d does not reach from version %d to %d", r.ID, page.Version, now.Version)
	}
	return v, err
}

// refresh makes a view at r's version from an earlier one and the ref log. It
// returns false when the log does not reach back.
func (e *Engine) refresh(ctx context.Context, r meta.Repo, near *View) (*View, bool, error) {
	v := &View{engine: e, repo: r, refs: near.refs}
	var entries []meta.RefLogEntry
	if near.repo.Version != r.Version {
		var complete bool
		var err error
		entries, complete, err = e.cfg.Meta.RefLog(ctx, r.ID, near.repo.Version, logPage)
		if err != nil {
			return nil, false, fmt.Errorf("read ref log: %w", err)
		}
		if !complete || len(entries) == logPage {
			return nil, false, nil
		}
		for len(entries) > 0 && entries[len(entries)-1].Version > r.Version {
			entries = entries[:len(entries)-1]
		}
		v.refs = near.refs.apply(entries)
	}
	v.inherit(near, entries)
	return v, true, nil
}

// weigh tells the cache that a view has grown.
func (e *Engine) weigh(v *View) {
	if now, ok := e.views.get(v.repo.ID); ok && now == v {
		e.views.put(v)
	}
}

// since returns the time from which tips that left a ref still count.
func (e *Engine) since() time.Time { return e.cfg.Clock().Add(-e.cfg.Grace) }

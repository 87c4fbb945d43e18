// Package server composes a running Cairn: storage from the configuration, use
// cases, handlers and listeners. It is the only place where implementations are
// chosen.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/cache"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/blob/s3"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/webhook"
)

// Storage is what a server or an operator command works on.
type Storage struct {
	Meta meta.Store
	// Feed is Meta for whoever waits for events.
	Feed   *events.Feed
	Blobs  blob.Store
	Engine *repo.Engine
	// Content keeps the objects of checkpoints.
	Content *content.Store
	// Checkpoints keeps threads; it says what objects are referred to.
	Checkpoints *checkpoint.Engine
	// Secrets encrypts what must not be readable in the database. It is nil when
	// the database is elsewhere and no key was given: secrets are then refused.
	Secrets *secret.Keyring
	// Guard says which hosts may be connected to at the wish of others.
	Guard *netguard.Guard

	objects *odb.Store
	ranged  blob.Store // Blobs without copies of whole objects
	process string     // names this process
	close   func() error
}

// CacheUse says whether a process keeps copies of a bucket's objects on disk.
// One process may use a cache directory at a time.
type CacheUse bool

// The server keeps copies; operator commands, which run beside it, do not.
const (
	UseCache CacheUse = true
	NoCache  CacheUse = false
)

// OpenStorage opens the metadata and the bytes that the configuration names and
// brings their schema up to date. Several processes may have them open.
func OpenStorage(ctx context.Context, cfg config.Config, use CacheUse) (*Storage, error) {
	if cfg.Data != "" {
		if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
	}
	guard, err := netguard.New(cfg.AllowHosts)
	if err != nil {
		return nil, &config.UsageError{Setting: "allow-host", Reason: err.Error()}
	}
	secrets, err := openSecrets(cfg)
	if err != nil {
		return nil, err
	}
	m, err := openMeta(ctx, cfg)
	if err != nil {
		return nil, err
	}
	feed := events.NewFeed(m)
	st := &Storage{Meta: feed, Feed: feed, Secrets: secrets, Guard: guard, close: m.Close}
	if err := st.openBytes(ctx, cfg, use); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// databaseFile is the embedded database in the data directory.
const databaseFile = "cairn.db"

// HasData reports whether the directory that the configuration names was used
// before. A database elsewhere answers for itself: then it is true.
func HasData(cfg config.Config) bool {
	if cfg.DatabaseURL != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(cfg.Data, databaseFile))
	return err == nil
}

func openMeta(ctx context.Context, cfg config.Config) (meta.Store, error) {
	if cfg.DatabaseURL != "" {
		return sqlstore.OpenPostgres(ctx, cfg.DatabaseURL, sqlstore.PostgresOptions{})
	}
	return sqlstore.OpenSQLite(ctx, filepath.Join(cfg.Data, databaseFile), sqlstore.SQLiteOptions{})
}

func (st *Storage) openBytes(ctx context.Context, cfg config.Config, use CacheUse) error {
	work := cfg.CacheDir
	if work == "" {
		work = filepath.Join(cfg.Data, "cache")
	}
	own, err := openScratch(filepath.Join(work, "scratch"))
	if err != nil {
		return fmt.Errorf("make the directory for received packs: %w", err)
	}
	st.closeBefore(own.Close)
	scratch := own.path
	if err := st.openBlobs(ctx, cfg, filepath.Join(work, "objects"), use); err != nil {
		return err
	}
	process := strings.ToLower(rand.Text())
	st.process = process
	grace := cfg.UnseenGrace
	if grace == 0 {
		grace = 1 // the engine takes 0 for its default
	}
	garbage := cfg.GarbageGrace
	if garbage == 0 {
		garbage = -1 // likewise
	}
	window := cfg.UndeleteWindow
	if window == 0 {
		window = -1
	}
	st.objects = odb.New(odb.Config{
		Meta: st.Meta, Blobs: st.Blobs, Scratch: scratch, Process: process,
		InlineLimit: max(cfg.InlinePack, 1), CacheBytes: cfg.MemoryCache / 2, // the store takes 0 for its default
	})
	st.Engine = repo.New(repo.Config{
		Meta:           st.Meta,
		ODB:            st.objects,
		Blobs:          st.Blobs,
		Secrets:        st.Secrets,
		Scratch:        scratch,
		Process:        process,
		Grace:          grace,
		GarbageGrace:   garbage,
		UndeleteWindow: window,
		KeyRetention:   cfg.KeyRetention,
		EventsKeep:     cfg.EventsKeep,
		CacheBytes:     cfg.MemoryCache / 4,
		AnswerBytes:    cfg.MemoryCache / 4,
		Limits:         repo.Limits{MaxObject: cfg.MaxObject, MaxPack: cfg.MaxPush},
	})
	st.closeBefore(st.Engine.Close)
	st.Content = content.New(content.Config{
		Meta: st.Meta, Blobs: st.Blobs, Packs: st.ranged, Process: process, Begin: st.Engine.Begin,
		InlineLimit: int(max(cfg.InlinePack, 1)), CacheBytes: cfg.MemoryCache / 4,
	})
	st.Checkpoints = checkpoint.New(checkpoint.Config{Meta: st.Meta, Content: st.Content, Process: process, CacheBytes: max(cfg.MemoryCache/8, 1)})
	return nil
}

func (st *Storage) openBlobs(ctx context.Context, cfg config.Config, cacheDir string, use CacheUse) error {
	if cfg.Bucket == "" {
		local, err := openDir(filepath.Join(cfg.Data, "blobs"))
		if err != nil {
			return err
		}
		st.Blobs, st.ranged = local, local
		return nil
	}
	bucket, err := s3.ParseURL(cfg.Bucket, s3.Env{
		AccessKeyID: cfg.S3.AccessKey, SecretAccessKey: cfg.S3.SecretKey, SessionToken: cfg.S3.SessionToken, Region: cfg.S3.Region,
	})
	if err != nil {
		return &config.UsageError{Setting: "bucket", Reason: err.Error()}
	}
	remote, err := s3.Open(ctx, bucket)
	if err != nil {
		return err
	}
	st.Blobs, st.ranged = remote, remote
	if use == NoCache {
		return nil
	}
	local, err := openDir(cacheDir)
	if err != nil {
		return err
	}
	cached, err := cache.Open(ctx, remote, local, cfg.CacheSize)
	if err != nil {
		return err
	}
	st.Blobs = cached
	st.closeBefore(func() error {
		cached.Close()
		return nil
	})
	return nil
}

// closeBefore has something closed before all that was opened until now.
func (st *Storage) closeBefore(f func() error) {
	rest := st.close
	st.close = func() error { return errors.Join(f(), rest()) }
}

func openDir(path string) (*dir.Store, error) {
	fsys, err := fsx.NewOS(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory for bytes: %w", err)
	}
	return dir.Open(fsys)
}

// Endpoints manages the webhook endpoints of the storage.
func (st *Storage) Endpoints() *webhook.Endpoints {
	return &webhook.Endpoints{
		Meta: st.Meta, Secrets: st.Secrets, Guard: st.Guard, Sender: webhook.NewSender(st.Secrets, st.Guard, nil),
	}
}

// Close releases the storage.
func (st *Storage) Close() error { return st.close() }

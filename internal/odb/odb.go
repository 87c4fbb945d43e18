// Package odb is the object database of a repository: the packs of one pack
// set, looked up as one. Packs are immutable, so that everything here may be
// cached by pack and set and is never stale.
package odb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
)

// KeyPrefix begins the keys of all large packs.
const KeyPrefix = "packs/"

// Suffixes of the blobs that hold one large pack, after meta.Pack.Key.
const (
	PackSuffix  = ".pack"
	IndexSuffix = ".idx"
	GraphSuffix = ".graph"
)

// Defaults of Config.
const (
	DefaultInlineLimit = 64 << 10
	DefaultCacheBytes  = 256 << 20
	DefaultMaxObject   = pack.MaxStructured
)

// Config is what a Store is made of.
type Config struct {
	Meta  meta.Store
	Blobs blob.Store
	// Scratch is a local directory for packs while they arrive and for large
	// objects while they are read. What a crash leaves there is of no use.
	Scratch string
	// Process names the uploads of this process.
	Process string
	// InlineLimit is the size in bytes up to which a pack is a row of meta; 0
	// means DefaultInlineLimit.
	InlineLimit int64
	// CacheBytes bounds the memory of all caches; 0 means DefaultCacheBytes.
	CacheBytes int64
	// MaxObject bounds the size in bytes of an object that must be in memory as
	// a whole; 0 means DefaultMaxObject. Streams have no such limit.
	MaxObject int64
}

// Store opens pack sets. It is made once per process and is safe for concurrent
// use.
type Store struct {
	cfg    Config
	limits pack.Limits
	bases  *pack.Cache
	packs  *lru.Cache[meta.PackID, *Pack]
	trees  *lru.Cache[treeKey, []byte]
	sets   *lru.Cache[int64, *DB]
	// tails finds a DB by its last pack, from which a longer one is extended.
	tails   *lru.Cache[meta.PackID, *DB]
	flights singleflight.Group

	counts struct {
		sync.Mutex
		corrupt int64
	}
}

type treeKey struct {
	pack meta.PackID
	pos  int32
}

// CorruptError says that an object or pack which meta or another object
// promises is absent or damaged. It is never "not found".
type CorruptError struct {
	Object object.ID // zero when a whole pack is concerned
	Pack   meta.PackID
	Err    error // the cause; nil when the object is in no pack
}

// Error names what is corrupt and why.
func (e *CorruptError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("repository is corrupt: object %s is in none of its packs", e.Object)
	case e.Object.IsZero():
		return fmt.Sprintf("repository is corrupt: pack %d: %v", e.Pack, e.Err)
	}
	return fmt.Sprintf("repository is corrupt: object %s of pack %d: %v", e.Object, e.Pack, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// New returns a Store.
func New(cfg Config) *Store {
	if cfg.InlineLimit == 0 {
		cfg.InlineLimit = DefaultInlineLimit
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.MaxObject == 0 {
		cfg.MaxObject = DefaultMaxObject
	}
	return &Store{
		cfg:    cfg,
		limits: pack.Limits{MaxObject: cfg.MaxObject, Scratch: func() (pack.Scratch, error) { return unnamed(cfg.Scratch) }},
		bases:  pack.NewCache(cfg.CacheBytes / 8),
		packs:  lru.New[meta.PackID, *Pack](cfg.CacheBytes / 2),
		trees:  lru.New[treeKey, []byte](cfg.CacheBytes / 8),
		sets:   lru.New[int64, *DB](cfg.CacheBytes / 8),
		tails:  lru.New[meta.PackID, *DB](cfg.CacheBytes / 8),
	}
}

// unnamed makes a file in dir that is gone when it is closed.
func unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "object-*")
	if err != nil {
		return nil, fmt.Errorf("create scratch file for an object: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("take the name of a scratch file: %w", err), f.Close())
	}
	return f, nil
}

// CorruptCount returns how many corruptions were met since the start.
func (s *Store) CorruptCount() int64 {
	s.counts.Lock()
	defer s.counts.Unlock()
	return s.counts.corrupt
}

// corrupt counts and returns a corruption.
func (s *Store) corrupt(e *CorruptError) error {
	s.counts.Lock()
	s.counts.corrupt++
	s.counts.Unlock()
	return e
}

// Open returns the packs of a set as one database. Set 0 is empty.
func (s *Store) Open(ctx context.Context, set int64) (*DB, error) {
	if set == 0 {
		return &DB{store: s}, nil
	}
	if db, ok := s.sets.Get(set); ok {
		return db, nil
	}
	v, err, _ := s.flights.Do(fmt.Sprintf("set %d", set), func() (any, error) {
		// Others may wait for this flight: one caller's end must not fail them.
		return s.open(context.WithoutCancel(ctx), set)
	})
	if err != nil {
		return nil, err
	}
	return v.(*DB), nil
}

func (s *Store) open(ctx context.Context, set int64) (*DB, error) {
	ids, err := s.cfg.Meta.PackIDs(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("read pack set %d: %w", set, err)
	}
	db := s.longestKnown(ids)
	added, err := s.load(ctx, ids[len(db.packs):])
	if err != nil {
		return nil, err
	}
	for _, p := range added {
		db = db.With(p)
	}
	s.keep(set, db)
	return db, nil
}

// keep remembers an opened set.
func (s *Store) keep(set int64, db *DB) {
	weight := db.bytes()
	s.sets.Put(set, db, weight)
	if n := len(db.packs); n > 0 {
		s.tails.Put(db.packs[n-1].info.ID, db, weight)
	}
}

// longestKnown returns an opened DB whose packs are the first of ids, or an
// empty one.
func (s *Store) longestKnown(ids []meta.PackID) *DB {
	const reach = 64 // sets grow by a pack or a few at a time
	for n := len(ids); n > 0 && n > len(ids)-reach; n-- {
		db, ok := s.tails.Get(ids[n-1])
		if ok && len(db.packs) == n && db.startsLike(ids) {
			return db
		}
	}
	return &DB{store: s}
}

func (db *DB) startsLike(ids []meta.PackID) bool {
	for i, p := range db.packs {
		if p.info.ID != ids[i] {
			return false
		}
	}
	return true
}

// Package content keeps the objects of checkpoints: those of package tree, named
// by the SHA-256 of their bytes, of every org apart. Objects lie in immutable
// packs; index files say where, and are merged so that few have to be asked.
// docs/format.md has the bytes, and the orders that must hold.
package content

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// KeyPrefix begins the keys of all blobs of this package.
const KeyPrefix = "content/"

// Defaults of Config.
const (
	DefaultCacheBytes  = 128 << 20
	DefaultInlineLimit = 64 << 10
	DefaultUploadLease = 24 * time.Hour
)

// Errors that callers tell apart. Objects that are missing are a
// *tree.MissingError, and those whose bytes are not what their digest names a
// *tree.CorruptError.
var (
	// ErrUpload says that an upload is unknown, expired or of another thread.
	ErrUpload = errors.New("unknown upload")
	// ErrEnded says that an Upload was used after an error, or after Close.
	ErrEnded = errors.New("the upload has ended")
	// ErrAgain says that what was received cannot be kept, because the process had
	// lost its lease, or sweeps came in between all the time. Sending it again helps.
	ErrAgain = errors.New("the upload was interrupted, send it again")
)

// Config is what a Store is made of.
type Config struct {
	Meta meta.Store
	// Blobs keeps packs and index files.
	Blobs blob.Store
	// Packs, if set, reads packs by ranges where Blobs would fetch the whole.
	Packs blob.Store
	// Process names the uploads of this process.
	Process string
	// Begin registers an operation of the process, as repo.Engine does: what it
	// reads stays until it is done. nil asks for nothing.
	Begin func(ctx context.Context) (context.Context, func(), error)
	// CacheBytes bounds the memory for index blocks, groups and small objects; 0 means
	// DefaultCacheBytes.
	CacheBytes int64
	// InlineLimit is the size in bytes up to which a pack is a row of meta; 0 means
	// DefaultInlineLimit.
	InlineLimit int
	// UploadLease is how long an upload is kept after it was last written to; 0
	// means DefaultUploadLease.
	UploadLease time.Duration
	// Clock is that of Meta; nil means time.Now.
	Clock func() time.Time
}

// Store keeps the objects of all orgs. It is made once per process and is safe
// for concurrent use.
type Store struct {
	cfg     Config
	blocks  *lru.Cache[blockKey, []byte]
	tables  *lru.Cache[meta.ContentID, *table]
	views   *lru.Cache[meta.OrgID, *view]
	objects *lru.Cache[objectKey, []byte]
	groups  *lru.Cache[groupKey, []byte] // decoded
	flights singleflight.Group
	workers int
	figures figures
	// due are orgs whose packs or index files want to be put together.
	due chan meta.OrgID
	// suspects are packs of which something could not be read.
	suspects chan packKey
	// distrusted are index files that were found damaged.
	distrusted sync.Map
	deleted    struct {
		sync.Mutex
		orgs map[meta.OrgID]struct{} // to be swept
	}
}

type objectKey struct {
	org    meta.OrgID
	digest tree.Digest
}

// New returns a Store.
func New(cfg Config) *Store {
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.InlineLimit == 0 {
		cfg.InlineLimit = DefaultInlineLimit
	}
	if cfg.UploadLease == 0 {
		cfg.UploadLease = DefaultUploadLease
	}
	if cfg.Packs == nil {
		cfg.Packs = cfg.Blobs
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Begin == nil {
		cfg.Begin = func(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }
	}
	return &Store{
		cfg:      cfg,
		blocks:   lru.New[blockKey, []byte](cfg.CacheBytes / 4),
		groups:   lru.New[groupKey, []byte](cfg.CacheBytes / 2),
		tables:   lru.New[meta.ContentID, *table](cfg.CacheBytes / 12),
		views:    lru.New[meta.OrgID, *view](cfg.CacheBytes / 12),
		objects:  lru.New[objectKey, []byte](cfg.CacheBytes / 12),
		workers:  max(2, min(runtime.GOMAXPROCS(0), 8)),
		due:      make(chan meta.OrgID, 1024),
		suspects: make(chan packKey, 1024),
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the sum of tables and trailers.
func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Generation returns a number that changes whenever an object that was present
// may have become missing. See meta.ContentChange.
func (s *Store) Generation(ctx context.Context, org meta.OrgID) (int64, error) {
	v, err := s.cfg.Meta.ContentVersion(ctx, org)
	if err != nil {
		return 0, fmt.Errorf("read the version of stored objects: %w", err)
	}
	return v.Generation, nil
}

// Lengths returns how long the objects are, in the order of digests, and -1 for those
// that Missing would return.
func (s *Store) Lengths(ctx context.Context, org meta.OrgID, digests []tree.Digest) ([]int64, error) {
	return s.lengths(ctx, org, digests, func(state meta.ContentState) bool { return state == meta.ContentLive })
}

// Gone returns those of digests that no pack of the org has, in whatever state.
func (s *Store) Gone(ctx context.Context, org meta.OrgID, digests []tree.Digest) ([]tree.Digest, error) {
	list, err := s.lengths(ctx, org, digests, func(meta.ContentState) bool { return true })
	var gone []tree.Digest
	for i, n := range list {
		if n < 0 {
			gone = append(gone, digests[i])
		}
	}
	return gone, err
}

func (s *Store) lengths(ctx context.Context, org meta.OrgID, digests []tree.Digest, counts func(meta.ContentState) bool) ([]int64, error) {
	list := make([]int64, len(digests))
	if len(digests) == 0 {
		return list, nil
	}
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for n := 0; ; n++ {
		v, err := s.view(ctx, org)
		for i := 0; i < len(digests) && err == nil; i++ {
			list[i] = -1
			err = v.find(ctx, digests[i], func(l *location) bool {
				if counts(l.state) {
					list[i] = int64(l.raw)
				}
				return list[i] < 0
			})
		}
		if err == nil {
			return list, nil
		}
		if n == maxRefresh || !s.stale(org, err) {
			return nil, err
		}
	}
}

// Missing returns those of digests that the org does not have, or which are in
// condemned or damaged packs only, as of a generation: a Change that names the
// others must require that it is still the same. It returns them in order.
func (s *Store) Missing(ctx context.Context, org meta.OrgID, digests []tree.Digest) (missing []tree.Digest, generation int64, err error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	for range maxRefresh {
		var v *view
		if v, err = s.view(ctx, org); err != nil {
			return nil, 0, err
		}
		missing = missing[:0]
		for _, d := range digests {
			var ok bool
			if ok, err = v.has(ctx, d); err != nil {
				break
			}
			if !ok {
				missing = append(missing, d)
			}
		}
		if err == nil {
			return missing, v.generation, nil
		}
		if !s.stale(org, err) {
			break
		}
	}
	return nil, 0, err
}

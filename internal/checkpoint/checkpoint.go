// Package checkpoint keeps the checkpoints of workspaces: threads with one head
// each, leases that let one writer in, and what every thread knows of the org's
// objects. Rows are in meta, bytes in package content.
package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Config is what an Engine is made of.
type Config struct {
	Meta    meta.Store
	Content *content.Store
	// Process names the reservations of this process.
	Process string
	// Clock is that of Meta; nil means time.Now.
	Clock func() time.Time
	// CacheBytes bounds the memory for what threads know, and as much again for the
	// entries of manifests; 0 means 64 MiB.
	CacheBytes int64
}

// Engine answers for the threads of all orgs. It is safe for concurrent use.
type Engine struct {
	cfg       Config
	segments  *lru.Cache[int64, []byte]
	manifests *lru.Cache[tree.Digest, []item] // by the digest of their document
}

// New returns an Engine.
func New(cfg Config) *Engine {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = 64 << 20
	}
	return &Engine{cfg: cfg, segments: lru.New[int64, []byte](cfg.CacheBytes), manifests: lru.New[tree.Digest, []item](cfg.CacheBytes)}
}

// Caller is who asks for a change, and what is recorded of it.
type Caller struct {
	Org meta.OrgID
	// AllThreads says that the caller may see every thread of the org.
	AllThreads bool
	// Metered says that the org has limits, ThreadBytes how many bytes each thread may
	// know; 0 is any number.
	Metered     bool
	ThreadBytes int64
	Token       *meta.TokenStamp // nil for the operator
	Subject     string
	Route       string
	Agent       string
	// Idempotency is written with the change, unless nil.
	Idempotency *meta.Idempotency
}

// change begins the Change of a caller.
func (c *Caller) change(t *meta.ThreadChange) meta.Change {
	return meta.Change{
		Org: c.Org, Token: c.Token, Subject: c.Subject, Route: c.Route, Agent: c.Agent, Idempotency: c.Idempotency, Thread: t,
	}
}

// apply applies a Change; what it refuses is a typed error.
func (e *Engine) apply(ctx context.Context, c meta.Change) (*meta.ThreadVerdict, error) {
	v, err := e.cfg.Meta.Apply(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("change thread: %w", err)
	}
	if !v.Applied {
		return nil, refusal(v.Conflict)
	}
	if v.Thread != nil && v.Thread.DeletedCount > 0 {
		e.cfg.Content.Deleted(c.Org)
	}
	return v.Thread, nil
}

// Lease proves that a writer holds the lease of a thread.
type Lease struct {
	Token string
	Fence int64
}

// writer is l as it is stored: only a digest of the token is.
func (l *Lease) writer() *meta.ThreadWriter {
	if l == nil {
		return nil
	}
	d := tree.Sum([]byte(l.Token))
	return &meta.ThreadWriter{Owner: d[:], Fence: l.Fence}
}

// Kinds of checkpoints.
const (
	Native   = "native"   // a tree of objects
	Manifest = "manifest" // a list of files, kept as it was given
)

// Git is where a workspace came from.
type Git struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Source is the checkpoint that another one was forked from.
type Source struct {
	Thread     string `json:"thread"`
	Checkpoint string `json:"checkpoint"`
}

// Stats count what a checkpoint holds.
type Stats struct {
	Entries uint64 `json:"entries"`
	Files   uint64 `json:"files"`
	Bytes   uint64 `json:"bytes"`
}

// Checkpoint is one checkpoint.
type Checkpoint struct {
	ID      string
	Thread  string
	Seq     int64
	Parent  string  // "" for none
	Created float64 // milliseconds since 1970
	Label   string
	Pinned  bool
	Added   int64 // bytes of objects that the thread did not know before
	Facts
}

// Facts is what is stored of a checkpoint beside what can be searched for. It is
// stored as JSON.
type Facts struct {
	Kind   string  `json:"kind"`
	Reason string  `json:"reason,omitempty"`
	Run    string  `json:"run,omitempty"`
	Stats  Stats   `json:"stats"`
	Git    *Git    `json:"git,omitempty"`
	Source *Source `json:"source,omitempty"`
	// Root names the root object of a native checkpoint.
	Root *digest `json:"root,omitempty"`
	// External says that the bytes of a manifest's files are kept by the
	// application.
	External bool `json:"external,omitempty"`
	// Manifest is the envelope of a manifest, with everything but the lists that
	// follow; Files its files, Keys the blobs that it names.
	Manifest     *document `json:"manifest,omitempty"`
	Files        *document `json:"files,omitempty"`
	Keys         *document `json:"keys,omitempty"`
	Conversation *document `json:"conversation,omitempty"`
	Artifacts    *document `json:"artifacts,omitempty"`
}

// documents returns those that the checkpoint has.
func (f *Facts) documents() []*document {
	var all []*document
	for _, d := range []*document{f.Manifest, f.Files, f.Keys, f.Conversation, f.Artifacts} {
		if d != nil {
			all = append(all, d)
		}
	}
	return all
}

// digest is a tree.Digest that is hex in JSON.
type digest tree.Digest

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(text []byte) error {
	parsed, err := tree.ParseDigest(string(text))
	*d = digest(parsed)
	return err
}

// RootDigest returns the digest of the root object, false where there is none.
func (c *Checkpoint) RootDigest() (tree.Digest, bool) {
	if c.Root == nil {
		return tree.Digest{}, false
	}
	return tree.Digest(*c.Root), true
}

// checkpointOf reads a row.
func checkpointOf(row meta.Checkpoint) (Checkpoint, error) {
	c := Checkpoint{
		ID: row.ID, Thread: row.Thread, Seq: row.Seq, Parent: row.Parent, Created: row.Created, Label: row.Label,
		Pinned: row.Pinned, Added: row.Added,
	}
	if err := json.Unmarshal(row.Body, &c.Facts); err != nil {
		return c, fmt.Errorf("checkpoint %q: %w: %w", row.ID, err, meta.ErrCorrupt)
	}
	return c, nil
}

// row is c as it is stored.
func (c *Checkpoint) row() (*meta.Checkpoint, error) {
	body, err := json.Marshal(&c.Facts)
	if err != nil {
		return nil, fmt.Errorf("store checkpoint %q: %w", c.ID, err)
	}
	return &meta.Checkpoint{
		ID: c.ID, Parent: c.Parent, Created: c.Created, Label: c.Label, Added: c.Added, Manifest: c.Kind == Manifest, Body: body,
	}, nil
}

// Checkpoint returns a checkpoint of an org, or the code MissingCheckpoint.
func (e *Engine) Checkpoint(ctx context.Context, org meta.OrgID, id string) (Checkpoint, error) {
	return e.CheckpointIn(ctx, org, id, func(string) bool { return true })
}

// CheckpointIn is Checkpoint for a caller who may see some threads. One of another
// thread is missing before anything is read out of it, which would take time.
func (e *Engine) CheckpointIn(ctx context.Context, org meta.OrgID, id string, covers func(thread string) bool) (Checkpoint, error) {
	row, err := e.cfg.Meta.Checkpoint(ctx, org, id)
	if errors.Is(err, meta.ErrNotFound) || err == nil && !covers(row.Thread) {
		return Checkpoint{}, &Error{Code: MissingCheckpoint}
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return checkpointOf(row)
}

// Thread returns a thread; one that nothing was written to has no id.
func (e *Engine) Thread(ctx context.Context, org meta.OrgID, name string) (meta.Thread, error) {
	t, err := e.cfg.Meta.Thread(ctx, org, name)
	if errors.Is(err, meta.ErrNotFound) {
		return meta.Thread{Org: org, Name: name}, nil
	}
	if err != nil {
		return t, fmt.Errorf("read thread: %w", err)
	}
	return t, nil
}

// Threads returns a page of threads that have checkpoints, by name.
func (e *Engine) Threads(ctx context.Context, q meta.ThreadQuery) ([]meta.Thread, error) {
	list, err := e.cfg.Meta.ListThreads(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	return list, nil
}

// List returns a page of the checkpoints of a thread.
func (e *Engine) List(ctx context.Context, q meta.CheckpointQuery) ([]Checkpoint, error) {
	rows, err := e.cfg.Meta.Checkpoints(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	return checkpointsOf(rows)
}

func checkpointsOf(rows []meta.Checkpoint) ([]Checkpoint, error) {
	list := make([]Checkpoint, len(rows))
	for i, row := range rows {
		var err error
		if list[i], err = checkpointOf(row); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Busy reports whether somebody holds the lease of a thread.
func (e *Engine) Busy(t *meta.Thread) bool { return t.LeaseUntil.After(e.cfg.Clock()) }

// Now returns the time in milliseconds since 1970.
func (e *Engine) Now() float64 { return float64(e.cfg.Clock().UnixMilli()) }

// NewID returns an id for a checkpoint, in the form of those that clients of Cairn
// make.
func NewID() string { return "cp-" + rand.Text() }

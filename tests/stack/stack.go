// Package stack puts Cairn's stores and its engine together inside a test's
// process, on a file system that the test chooses and breaks.
package stack

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo"
)

// Org is the tenant of every Stack.
const Org meta.OrgID = 1

// Lease is how long a Stack counts as alive after a heartbeat.
const Lease = time.Hour

// UploadLease is how long an upload of checkpoints' objects is kept.
const UploadLease = 2 * time.Hour

// Writer is who writes.
var Writer = repo.Writer{Org: Org, OrgName: "acme", Subject: "tester", Route: "test"}

// Options say on what a Stack stands.
type Options struct {
	// FS holds the database and the blobs.
	FS fsx.FS
	// Blobs, when set, wraps the blob store.
	Blobs func(blob.Store) blob.Store
	// Meta, when set, wraps the metadata store.
	Meta func(meta.Store) meta.Store
	// Postgres, when set, is the address of the database to use instead.
	Postgres string
	// Inline is the size in bytes up to which a pack is a row; 0 is the default. Packs
	// of checkpoints' objects are rows up to the same size.
	Inline int64
	// Clock may be nil.
	Clock *Clock
	// Background runs what a server does beside requests.
	Background bool
}

// Stack is one open instance of all of Cairn below HTTP.
type Stack struct {
	Meta   meta.Store
	Blobs  blob.Store
	Engine *repo.Engine
	// Content and Checkpoints are the objects, and the threads, of checkpoints.
	Content     *content.Store
	Checkpoints *checkpoint.Engine
	// VFS is the name by which SQLite knows the file system.
	VFS string

	postgres   string // "" for SQLite
	dir        string // scratch files and the WAL index
	unregister func()
	stop       context.CancelFunc
	running    sync.WaitGroup
	mu         sync.Mutex
	reported   []error
}

var systems atomic.Int64

// Clock is a clock that can be put forward.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// now is Now, or nil for no clock.
func (c *Clock) now() func() time.Time {
	if c == nil {
		return nil
	}
	return c.Now
}

// Copy returns a clock of its own that shows the same time.
func (c *Clock) Copy() *Clock {
	d := &Clock{}
	d.Pass(time.Duration(c.ahead.Load()))
	return d
}

// Pass lets time pass.
func (c *Clock) Pass(d time.Duration) { c.ahead.Add(int64(d)) }

// Open opens a Stack, with its org made if it is new.
func Open(ctx context.Context, o Options) (_ *Stack, err error) {
	clock := o.Clock
	if clock == nil {
		clock = &Clock{}
	}
	s := &Stack{VFS: fmt.Sprintf("stack-%d", systems.Add(1)), unregister: func() {}, stop: func() {}}
	if s.dir, err = os.MkdirTemp("", "cairn-stack-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if o.Postgres != "" {
		s.postgres = o.Postgres
		s.Meta, err = sqlstore.OpenPostgres(ctx, o.Postgres, sqlstore.PostgresOptions{Clock: o.Clock.now()})
	} else {
		s.unregister = sqlstore.RegisterVFS(s.VFS, o.FS, s.dir)
		s.Meta, err = sqlstore.OpenSQLite(ctx, "/meta.db", sqlstore.SQLiteOptions{VFS: s.VFS, Clock: clock.Now, Readers: 4})
	}
	if err != nil {
		s.Meta = nil
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	if o.Meta != nil {
		s.Meta = o.Meta(s.Meta)
	}
	if s.Blobs, err = dir.Open(o.FS); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if o.Blobs != nil {
		s.Blobs = o.Blobs(s.Blobs)
	}
	objects := odb.New(odb.Config{Meta: s.Meta, Blobs: s.Blobs, Scratch: s.dir, Process: s.VFS, InlineLimit: o.Inline, CacheBytes: 8 << 20})
	s.Engine = repo.New(repo.Config{
		Meta: s.Meta, Blobs: s.Blobs, ODB: objects, Process: s.VFS, Scratch: s.dir, Clock: clock.Now, CacheBytes: 8 << 20, Grace: 1, Lease: Lease,
		GarbageGrace: time.Hour,
	})
	s.Content = content.New(content.Config{
		Meta: s.Meta, Blobs: s.Blobs, Process: s.VFS, Begin: s.Engine.Begin, CacheBytes: 8 << 20, InlineLimit: int(o.Inline), Clock: clock.Now,
		UploadLease: UploadLease,
	})
	s.Checkpoints = checkpoint.New(checkpoint.Config{Meta: s.Meta, Content: s.Content, Process: s.VFS, Clock: clock.Now})
	v, err := s.Meta.Apply(ctx, meta.Change{Org: Org, CreateOrg: &meta.Org{ID: Org, Name: "acme"}})
	if err != nil {
		return nil, fmt.Errorf("create org: %w", err)
	}
	if !v.Applied && v.Conflict.Kind != meta.ConflictID && v.Conflict.Kind != meta.ConflictName {
		return nil, fmt.Errorf("create org: %s", v.Conflict.Kind)
	}
	if o.Background {
		run, stop := context.WithCancel(ctx)
		s.stop = stop
		s.running.Go(func() { s.Engine.Run(run, s.report) })
		s.running.Go(func() {
			s.Content.Run(run, content.Background{Report: s.report, Roots: s.Checkpoints.Live, Swept: s.Checkpoints.ForgetBlobs})
		})
	}
	return s, nil
}

func (s *Stack) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = append(s.reported, err)
}

// Reported returns the errors of the work in the background.
func (s *Stack) Reported() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reported
}

// Close ends the Stack and removes what of it is outside the file system.
func (s *Stack) Close() error {
	s.stop()
	s.running.Wait()
	var err error
	if s.Meta != nil {
		err = s.Meta.Close()
	}
	s.unregister()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Scratch returns the names of the scratch files that are left when the engine
// has given up what it keeps for later requests. It may be used further.
func (s *Stack) Scratch() ([]string, error) {
	if err := s.Engine.Close(); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(s.dir, "*-[0-9]*"))
}

// Database opens the database for reading, beside the store.
func (s *Stack) Database() (*sql.DB, error) {
	if s.postgres != "" {
		return sql.Open("pgx", s.postgres)
	}
	return sql.Open("sqlite3", "file:///meta.db?vfs="+s.VFS+"&_pragma=query_only(on)")
}

// View returns a view of a repository as it is now.
func (s *Stack) View(ctx context.Context, id meta.RepoID) (*repo.View, error) {
	r, err := s.Meta.Repo(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.Engine.View(ctx, r)
}

// Refs returns the stored refs of a repository.
func (s *Stack) Refs(ctx context.Context, id meta.RepoID) (map[string]object.ID, error) {
	page, err := s.Meta.Refs(ctx, meta.RefQuery{Repo: id})
	if err != nil {
		return nil, err
	}
	refs := make(map[string]object.ID, len(page.Refs))
	for _, ref := range page.Refs {
		refs[ref.Name] = ref.ID
	}
	return refs, nil
}

// RefusedError is a push of which something was refused.
type RefusedError struct{ Result wire.PushResult }

// Error lists the refusals.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %+v", e.Result) }

// Push pushes as the wire protocol does. Anything refused is a *RefusedError.
func (s *Stack) Push(ctx context.Context, id meta.RepoID, p *wire.Push, pack []byte) error {
	v, err := s.View(ctx, id)
	if err != nil {
		return err
	}
	var src io.Reader
	if pack != nil {
		src = bytes.NewReader(pack)
	}
	res, err := s.Engine.Receiver(Writer, v, repo.Normal).Receive(ctx, p, src)
	if err != nil {
		return err
	}
	bad := res.Unpack != ""
	for _, ref := range res.Refs {
		bad = bad || ref.Error != ""
	}
	if bad {
		return &RefusedError{res}
	}
	return nil
}

// Commit writes one file upon a branch through the commit API. expected may be
// nil.
func (s *Stack) Commit(ctx context.Context, id meta.RepoID, branch string, expected *object.ID, path, text string) (repo.CommitResult, error) {
	v, err := s.View(ctx, id)
	if err != nil {
		return repo.CommitResult{}, err
	}
	contents := s.Engine.NewContents(context.Background(), repo.Writer{}, meta.Repo{})
	defer contents.Close()
	content := contents.New()
	if _, err := io.WriteString(content, text); err != nil {
		return repo.CommitResult{}, err
	}
	if err := content.Close(); err != nil {
		return repo.CommitResult{}, err
	}
	return s.Engine.Commit(ctx, Writer, v, repo.CommitRequest{
		TargetBranch: branch, Expected: expected, Message: "Save " + path, Author: Someone, Committer: Someone,
		Files: []repo.FileEdit{{Path: path, Content: content}}, Contents: contents,
	})
}

// Someone signs all commits.
var Someone = object.Signature{Name: "A U Thor", Email: "author@example.com", When: 1700000000, Zone: "+0000"}

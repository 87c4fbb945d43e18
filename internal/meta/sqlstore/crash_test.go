package sqlstore_test

import (
	"context"
	"crypto/sha1"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
)

// freezer is a SQLite file system whose writes can be held up, so that files can
// be copied as a killed process would leave them.
type freezer struct {
	vfs.VFS
	mu sync.RWMutex
}

func (z *freezer) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfsutil.WrapOpen(z.VFS, name, flags) // for temporary files
}

func (z *freezer) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(z.VFS, name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &frozenFile{File: f, freezer: z}, flags, nil
}

// frozenFile holds up the writes of one file.
type frozenFile struct {
	vfs.File
	freezer *freezer
}

func (f *frozenFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *frozenFile) WriteAt(p []byte, off int64) (int, error) {
	f.freezer.mu.RLock()
	defer f.freezer.mu.RUnlock()
	return f.File.WriteAt(p, off)
}

func (f *frozenFile) Truncate(size int64) error {
	f.freezer.mu.RLock()
	defer f.freezer.mu.RUnlock()
	return f.File.Truncate(size)
}

// copyTo copies a database and its log, between two writes.
func (z *freezer) copyTo(from, to string) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, suffix := range [...]string{"", "-wal"} {
		data, err := os.ReadFile(from + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(to+suffix, data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSQLiteCrash copies the database at random points under load: each copy
// opens and holds every Change that was acknowledged before, whole.
func TestSQLiteCrash(t *testing.T) {
	z := &freezer{VFS: vfs.Find("")}
	vfs.Register("freezer", z)
	t.Cleanup(func() { vfs.Unregister("freezer") })
	path := filepath.Join(t.TempDir(), "meta.db")
	s, err := sqlstore.OpenSQLite(t.Context(), path, sqlstore.SQLiteOptions{VFS: "freezer"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	org, repo := meta.OrgID(meta.NewID(time.Now())), meta.RepoID(meta.NewID(time.Now()))
	apply(t, s, meta.Change{Org: org, CreateOrg: &meta.Org{Name: "acme"}})
	apply(t, s, meta.Change{Org: org, Repo: repo, CreateRepo: &meta.Repo{Name: "r"}})

	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	acknowledged := make(map[int64]object.ID) // by version
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			var old object.ID
			for n := 0; ctx.Err() == nil; n++ {
				c := commit(org, repo, fmt.Sprintf("refs/heads/%d", w), old, sha1.Sum(fmt.Appendf(nil, "%d %d", w, n)))
				v, err := s.Apply(context.Background(), c)
				if err != nil || !v.Applied {
					t.Errorf("apply: %+v, %v", v.Conflict, err)
					return
				}
				old = c.Refs[0].New
				mu.Lock()
				acknowledged[v.Version] = old
				mu.Unlock()
			}
		})
	}
	for i := range 40 {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		mu.Lock()
		want := make(map[int64]object.ID, len(acknowledged))
		for version, id := range acknowledged {
			want[version] = id
		}
		mu.Unlock()
		copied := filepath.Join(t.TempDir(), "copy.db")
		if err := z.copyTo(path, copied); err != nil {
			t.Fatal(err)
		}
		checkCopy(t, copied, repo, want)
		if t.Failed() {
			t.Fatalf("copy %d of %s", i, path)
		}
	}
	stop()
	writers.Wait()
}

// commit is a Change with a ref, a pack, an event and an idempotency row.
func commit(org meta.OrgID, repo meta.RepoID, ref string, old, to object.ID) meta.Change {
	return meta.Change{
		Org: org, Repo: repo, Refs: []meta.RefWrite{{Name: ref, Old: old, New: to}},
		AddPack: &meta.PackWrite{
			Pack: meta.Pack{ID: meta.PackID(meta.NewID(time.Now())), Class: meta.PackInsert, Inline: true, Tips: []object.ID{to}},
			Data: to[:],
		},
		Events:      []meta.Event{{Type: "push", Body: []byte(to.String())}},
		Idempotency: &meta.Idempotency{Key: to.String(), Status: 200},
	}
}

func apply(tb testing.TB, s meta.Store, c meta.Change) meta.Verdict {
	tb.Helper()
	v, err := s.Apply(context.Background(), c)
	if err != nil || !v.Applied {
		tb.Fatalf("apply: %+v, %v", v.Conflict, err)
	}
	return v
}

// checkCopy opens a copy and compares it with what was acknowledged.
func checkCopy(t *testing.T, path string, repo meta.RepoID, want map[int64]object.ID) {
	t.Helper()
	s, err := sqlstore.OpenSQLite(t.Context(), path, sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	row, err := s.Repo(ctx, repo)
	if err != nil {
		t.Fatal(err)
	}
	packs, err := s.PackSet(ctx, row.PackSet)
	if err != nil {
		t.Fatal(err)
	}
	log, _, err := s.RefLog(ctx, repo, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(ctx, 0, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if n := int(row.Version) - 1; len(packs) != n || len(log) != n || len(events) != n || n < len(want) {
		t.Errorf("version %d with %d packs, %d log entries, %d events; %d were acknowledged",
			row.Version, len(packs), len(log), len(events), len(want))
		return
	}
	tips := make(map[string]object.ID)
	var ids []meta.PackID
	for i, e := range log {
		if id, known := want[e.Version]; known && id != e.New {
			t.Errorf("version %d has %v, acknowledged was %v", e.Version, e.New, id)
		}
		if packs[i].Tips[0] != e.New || string(events[i].Body) != e.New.String() {
			t.Errorf("version %d is in pieces", e.Version)
		}
		if _, err := s.Idempotency(ctx, row.Org, e.New.String()); err != nil {
			t.Errorf("version %d has no idempotency row: %v", e.Version, err)
		}
		tips[e.Name] = e.New
		ids = append(ids, packs[i].ID)
	}
	if data, err := s.SmallPacks(ctx, ids); err != nil || len(data) != len(log) {
		t.Errorf("%d small packs, %v", len(data), err)
	}
	page, err := s.Refs(ctx, meta.RefQuery{Repo: repo})
	if err != nil || len(page.Refs) != len(tips) {
		t.Fatalf("%d refs, want %d, %v", len(page.Refs), len(tips), err)
	}
	for _, ref := range page.Refs {
		if ref.ID != tips[ref.Name] {
			t.Errorf("%s is %v, the log says %v", ref.Name, ref.ID, tips[ref.Name])
		}
	}
	integrity(t, path)
}

// integrity runs SQLite's own check.
func integrity(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var answer string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&answer); err != nil || answer != "ok" {
		t.Errorf("integrity check: %q, %v", answer, err)
	}
}

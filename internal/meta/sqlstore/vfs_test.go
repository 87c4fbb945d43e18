package sqlstore_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/metatest"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
)

var systems atomic.Int64

// openOn opens the database of a file system.
func openOn(tb testing.TB, fsys fsx.FS, clock func() time.Time) meta.Store {
	tb.Helper()
	name := fmt.Sprintf("test-%d", systems.Add(1))
	unregister := sqlstore.RegisterVFS(name, fsys, tb.TempDir())
	tb.Cleanup(unregister)
	s, err := sqlstore.OpenSQLite(tb.Context(), "/meta.db", sqlstore.SQLiteOptions{VFS: name, Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// TestVFS holds the store to its contract on an fsx.FS.
func TestVFS(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		metatest.Test(t, func(tb testing.TB, clock func() time.Time) meta.Store { return openOn(tb, fsx.NewMem(), clock) })
	})
}

// TestVFSWritesPlainFiles reads a database written through an fsx.FS as SQLite
// itself does.
func TestVFSWritesPlainFiles(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	fsys, err := fsx.NewOS(root)
	if err != nil {
		t.Fatal(err)
	}
	s := openOn(t, fsys, nil)
	org := meta.OrgID(meta.NewID(time.Now()))
	apply(t, s, meta.Change{Org: org, CreateOrg: &meta.Org{Name: "acme"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Stat("meta.db-wal"); err == nil {
		t.Error("the log is left after the last connection has gone")
	}
	plain, err := sqlstore.OpenSQLite(t.Context(), filepath.Join(root, "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if orgs, err := plain.ListOrgs(t.Context(), "", 10); err != nil || len(orgs) != 1 || orgs[0].Name != "acme" {
		t.Errorf("orgs %v, %v", orgs, err)
	}
	integrity(t, filepath.Join(root, "meta.db"))
}

// TestFullDisk: a change that finds no space says so, changes nothing, and goes
// through once there is some.
func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	fsys := fsx.NewFault(fsx.NewMem(), func(op fsx.Op, _ string) error {
		if full.Load() && op == fsx.OpWrite {
			return fsx.ErrNoSpace
		}
		return nil
	})
	s := openOn(t, fsys, nil)
	create := meta.Change{Org: meta.OrgID(meta.NewID(time.Now())), CreateOrg: &meta.Org{Name: "acme"}}
	full.Store(true)
	if _, err := s.Apply(t.Context(), create); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a change on a full disk: %v, want ENOSPC", err)
	}
	full.Store(false)
	if orgs, err := s.ListOrgs(t.Context(), "", 10); err != nil || len(orgs) != 0 {
		t.Errorf("orgs %v, %v; want none", orgs, err)
	}
	apply(t, s, create)
}

// TestFullDiskAtEveryWrite lets the disk fill up at each write of some Changes,
// those of a checkpoint of the log included: all that fail say why, and have not
// taken effect, and what comes once there is space goes through.
func TestFullDiskAtEveryWrite(t *testing.T) {
	grows := map[fsx.Op]bool{fsx.OpWrite: true, fsx.OpTruncate: true, fsx.OpEdit: true, fsx.OpSync: true, fsx.OpSyncDir: true}
	for n := int64(1); ; n++ {
		var full, armed atomic.Bool
		var ops atomic.Int64
		fsys := fsx.NewFault(fsx.NewMem(), func(op fsx.Op, _ string) error {
			if armed.Load() && grows[op] && (full.Load() || ops.Add(1) == n) {
				full.Store(true)
				return fsx.ErrNoSpace
			}
			return nil
		})
		s := openOn(t, fsys, nil)
		armed.Store(true)
		made, tried := 0, 0
		for tried < 3 || full.Load() && tried < 6 {
			name := fmt.Sprint("org", tried)
			tried++
			v, err := s.Apply(t.Context(), meta.Change{Org: meta.OrgID(meta.NewID(time.Now())), CreateOrg: &meta.Org{Name: name}})
			if err == nil && v.Applied {
				made++
			} else if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("operation %d: change %d says %+v, %v; want ENOSPC", n, tried, v, err)
			}
		}
		hit := full.Load()
		armed.Store(false)
		apply(t, s, meta.Change{Org: meta.OrgID(meta.NewID(time.Now())), CreateOrg: &meta.Org{Name: "later"}})
		if orgs, err := s.ListOrgs(t.Context(), "", 10); err != nil || len(orgs) != made+1 {
			t.Errorf("operation %d: %d orgs, %v; want %d", n, len(orgs), err, made+1)
		}
		s.Close()
		if !hit {
			if n < 5 {
				t.Errorf("only %d operations", n-1)
			}
			return
		}
	}
}

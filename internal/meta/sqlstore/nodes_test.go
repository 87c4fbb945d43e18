package sqlstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/testkit"
)

// eachEngine runs a test with a function that opens the same database again and
// again, as several processes do.
func eachEngine(t *testing.T, test func(t *testing.T, open func() (*sqlstore.Store, error), raw func() *sql.DB)) {
	rawDB := func(t *testing.T, driver, dsn string) *sql.DB {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "odd ?name#%41.db")
		test(t, func() (*sqlstore.Store, error) {
			return sqlstore.OpenSQLite(t.Context(), path, sqlstore.SQLiteOptions{})
		}, func() *sql.DB { return rawDB(t, "sqlite3", path) })
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the database is not where it was asked for: %v", err)
		}
	})
	t.Run("Postgres", func(t *testing.T) {
		dsn := testkit.Postgres(t)
		test(t, func() (*sqlstore.Store, error) {
			return sqlstore.OpenPostgres(t.Context(), dsn, sqlstore.PostgresOptions{Conns: 8})
		}, func() *sql.DB { return rawDB(t, "pgx", dsn) })
	})
}

// TestOpenTogether: processes that start at the same time all find the schema.
func TestOpenTogether(t *testing.T) {
	eachEngine(t, func(t *testing.T, open func() (*sqlstore.Store, error), _ func() *sql.DB) {
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				s, err := open()
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				if err := s.Ping(t.Context()); err != nil {
					t.Errorf("ping: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		all.Wait()
	})
}

// TestTooNew: a program refuses a schema that it does not know.
func TestTooNew(t *testing.T) {
	eachEngine(t, func(t *testing.T, open func() (*sqlstore.Store, error), raw func() *sql.DB) {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		db := raw()
		if _, err := db.Exec(`INSERT INTO schema_version (version_id, is_applied) VALUES (9999, true)`); err != nil {
			t.Fatal(err)
		}
		if _, err := open(); !errors.Is(err, meta.ErrTooNew) {
			t.Fatalf("error %v, want %v", err, meta.ErrTooNew)
		}
		if _, err := db.Exec(`DELETE FROM schema_version WHERE version_id = 9999`); err != nil {
			t.Fatal(err)
		}
		if s, err = open(); err != nil {
			t.Fatal(err)
		}
		s.Close()
	})
}

// TestNodes: several processes on one database are one store.
func TestNodes(t *testing.T) {
	eachEngine(t, func(t *testing.T, open func() (*sqlstore.Store, error), _ func() *sql.DB) {
		const nodes, writers, rounds = 3, 8, 6
		var stores []*sqlstore.Store
		for range nodes {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			stores = append(stores, s)
		}
		org, repo := meta.OrgID(meta.NewID(time.Now())), meta.RepoID(meta.NewID(time.Now()))
		apply(t, stores[0], meta.Change{Org: org, CreateOrg: &meta.Org{Name: "acme"}})
		apply(t, stores[0], meta.Change{Org: org, Repo: repo, CreateRepo: &meta.Repo{Name: "r"}})

		var all sync.WaitGroup
		var named, swapped, recorded [rounds]atomic.Int64
		for n, s := range stores {
			for w := range writers {
				all.Go(func() {
					var old object.ID
					for i := range rounds {
						to := object.ID{byte(n + 1), byte(w), byte(i)}
						apply(t, s, commit(org, repo, fmt.Sprintf("refs/heads/%d/%d", n, w), old, to))
						old = to
						count := func(c meta.Change, kind meta.ConflictKind, won *atomic.Int64) {
							c.Org = org
							v, err := s.Apply(t.Context(), c)
							if err != nil {
								t.Errorf("apply: %v", err)
							} else if v.Applied {
								won.Add(1)
							} else if v.Conflict.Kind != kind {
								t.Errorf("conflict %+v, want %q", v.Conflict, kind)
							}
						}
						count(meta.Change{Repo: meta.RepoID(meta.NewID(time.Now())), CreateRepo: &meta.Repo{Name: fmt.Sprint("name ", i)}},
							meta.ConflictName, &named[i])
						count(meta.Change{Repo: repo, Refs: []meta.RefWrite{{Name: fmt.Sprint("refs/tags/", i), New: to}}},
							meta.ConflictRef, &swapped[i])
						count(meta.Change{Idempotency: &meta.Idempotency{Key: fmt.Sprint("key ", i)}},
							meta.ConflictReplay, &recorded[i])
					}
				})
			}
		}
		all.Wait()
		for i := range rounds {
			if named[i].Load() != 1 || swapped[i].Load() != 1 || recorded[i].Load() != 1 {
				t.Errorf("round %d: %d made the name, %d the tag, %d the key", i, named[i].Load(), swapped[i].Load(), recorded[i].Load())
			}
		}
		for _, s := range stores {
			events, err := s.Events(t.Context(), org, 0, 1000)
			if err != nil || len(events) != nodes*writers*rounds {
				t.Fatalf("%d events, %v", len(events), err)
			}
			for i := 1; i < len(events); i++ {
				if events[i].Version <= events[i-1].Version {
					t.Fatalf("event %d has version %d after %d", i, events[i].Version, events[i-1].Version)
				}
			}
			row, err := s.Repo(t.Context(), repo)
			if err != nil || row.Version != 1+nodes*writers*rounds+rounds {
				t.Errorf("version %d, %v", row.Version, err)
			}
			if packs, err := s.PackSet(t.Context(), row.PackSet); err != nil || len(packs) != nodes*writers*rounds {
				t.Errorf("%d packs, %v", len(packs), err)
			}
		}
	})
}

// TestIdleRepositorySize: a repository with one branch costs at most 1 KiB, all
// rows and indexes counted.
func TestIdleRepositorySize(t *testing.T) {
	eachEngine(t, func(t *testing.T, open func() (*sqlstore.Store, error), raw func() *sql.DB) {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		db := raw()
		size := func() (n int64) {
			t.Helper()
			err := db.QueryRow(`SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&n)
			if err != nil {
				err = db.QueryRow(`SELECT sum(pg_total_relation_size(oid)) FROM pg_class
					WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`).Scan(&n)
			}
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		org := meta.OrgID(meta.NewID(time.Now()))
		apply(t, s, meta.Change{Org: org, CreateOrg: &meta.Org{Name: "acme"}})
		before := size()
		const repos, writers = 3000, 100
		var next atomic.Int64
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for n := next.Add(1); n <= repos; n = next.Add(1) {
					id := meta.RepoID(meta.NewID(time.Now()))
					apply(t, s, meta.Change{
						Org: org, Repo: id, CreateRepo: &meta.Repo{Name: fmt.Sprintf("agents/sandbox-%08d", n), DefaultBranch: "main"},
						Refs:    []meta.RefWrite{{Name: "refs/heads/main", New: object.ID{1, byte(n)}}},
						Subject: "agent-7c9e6679", Route: "POST /api/v1/repos",
					})
				}
			})
		}
		all.Wait()
		if each := (size() - before) / repos; each > 1024 {
			t.Errorf("a repository takes %d bytes", each)
		} else {
			t.Logf("a repository takes %d bytes", each)
		}
	})
}

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3", for migrations

	"github.com/cairnstate/cairn/internal/meta"
)

// SQLiteOptions adjusts OpenSQLite; its zero value is the default.
type SQLiteOptions struct {
	// Clock replaces the system's clock in tests.
	Clock func() time.Time
	// VFS names the registered SQLite file system to use; "" is the default one.
	VFS string
	// Readers bounds the connections for reads; 0 takes four per processor.
	Readers int
}

// OpenSQLite opens the database file at path, makes it when it is missing, and
// brings its schema up to date. Other processes may have it open as well.
func OpenSQLite(ctx context.Context, path string, opts SQLiteOptions) (*Store, error) {
	e := &sqliteEngine{clock: opts.Clock}
	if e.clock == nil {
		e.clock = time.Now
	}
	readers := opts.Readers
	if readers == 0 {
		readers = 4 * runtime.GOMAXPROCS(0)
	}
	vfs, unregister, err := watchSpace(opts.VFS, &e.full)
	if err != nil {
		return nil, fmt.Errorf("sqlite database %q: %w", path, err)
	}
	e.unregister = unregister
	if err := e.open(ctx, path, vfs, readers); err != nil {
		unregister()
		return nil, fmt.Errorf("sqlite database %q: %w", path, e.sort(err).place(err))
	}
	s := &Store{engine: e}
	s.lanes = newLanes(1, s.runBatch)
	return s, nil
}

func (e *sqliteEngine) open(ctx context.Context, path, vfs string, readers int) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// Writers rewrite the same pages again and again: a longer log brings fewer
	// of them into the database. 16 MiB are replayed in a moment.
	writing := sqliteURL(abs, vfs, "journal_mode(wal)", "wal_autocheckpoint(4096)", "cache_size(-65536)")
	if err := migrateSQLite(ctx, writing); err != nil {
		return err
	}
	if e.write, err = openSQLiteConn(ctx, writing); err != nil {
		return err
	}
	e.reads = newSQLitePool(sqliteURL(abs, vfs, "query_only(on)", "cache_size(-8192)"), readers)
	return nil
}

// sqliteURL names a database with the pragmas of its connections.
func sqliteURL(abs, vfs string, pragmas ...string) string {
	// busy_timeout comes first, so that the others wait for their locks too.
	q := url.Values{"_pragma": append([]string{"busy_timeout(10000)"}, pragmas...), "_txlock": {"immediate"}}
	q["_pragma"] = append(q["_pragma"], "synchronous(full)")
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: q.Encode(), OmitHost: true}
	return u.String()
}

func migrateSQLite(ctx context.Context, url string) error {
	db, err := sql.Open("sqlite3", url)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	return migrate(ctx, db, sqliteMigrations)
}

// sqliteEngine writes through one connection, which only the writing lane uses.
type sqliteEngine struct {
	clock      func() time.Time
	full       atomic.Bool // the disk was, since the last write began
	unregister func()      // the file system
	write      *sqliteConn
	reads      *sqlitePool
}

var _ engine = (*sqliteEngine)(nil)

func (e *sqliteEngine) dialect() dialect { return dialect{now: e.clock} }

// lane is the same for all Changes: SQLite has one writer.
func (e *sqliteEngine) lane(*meta.Change) int64 { return 0 }

func (e *sqliteEngine) query(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error {
	c, err := e.reads.get(ctx)
	if err != nil {
		return err
	}
	defer e.reads.put(c)
	return c.run(ctx, text, args, row)
}

// placeEvents has nothing to do: rows get their position as they are written.
func (e *sqliteEngine) placeEvents(context.Context, *Store) error { return nil }

func (e *sqliteEngine) sort(err error) fault {
	if errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.LOCKED) || errors.Is(err, context.DeadlineExceeded) {
		return faultUnavailable
	}
	if errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY) {
		return faultRetry
	}
	if errors.Is(err, sqlite3.FULL) || errors.Is(err, syscall.ENOSPC) ||
		e.full.Load() && (errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.CANTOPEN)) {
		return faultFull
	}
	return faultOther
}

func (e *sqliteEngine) close() error {
	defer e.unregister()
	return errors.Join(e.reads.close(), e.write.close())
}

func (e *sqliteEngine) begin(ctx context.Context) (txn, error) {
	e.full.Store(false)
	tx := &sqliteTxn{conn: e.write}
	return tx, tx.conn.run(ctx, `BEGIN IMMEDIATE`, nil, nil)
}

// sqliteTxn is the transaction of the writing connection.
type sqliteTxn struct {
	conn  *sqliteConn
	ended bool
}

var _ txn = (*sqliteTxn)(nil)

func (tx *sqliteTxn) run(ctx context.Context, stmts []stmt) error {
	for i := range stmts {
		if err := tx.conn.run(ctx, stmts[i].text, stmts[i].args, stmts[i].row); err != nil {
			return err
		}
	}
	return nil
}

func (tx *sqliteTxn) commit(ctx context.Context, stmts []stmt) (sent bool, err error) {
	if err := tx.run(ctx, stmts); err != nil {
		return false, err
	}
	// A COMMIT that fails leaves the transaction open, or rolled back, but an
	// I/O error may have come after the record was written.
	if err := tx.conn.run(context.WithoutCancel(ctx), `COMMIT`, nil, nil); err != nil {
		return true, err
	}
	tx.ended = true
	return true, nil
}

func (tx *sqliteTxn) rollback() {
	if tx.ended {
		return
	}
	// An error here means that SQLite has rolled back already.
	_ = tx.conn.run(context.Background(), `ROLLBACK`, nil, nil)
}

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

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
	e := &sqliteEngine{clock: opts.Clock, prepared: make(map[string]*sql.Stmt)}
	if e.clock == nil {
		e.clock = time.Now
	}
	writes, err := openSQLitePool(path, opts.VFS, 1, "journal_mode(wal)", "cache_size(-65536)")
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, writes, sqliteMigrations); err != nil {
		writes.Close()
		return nil, fmt.Errorf("sqlite database %q: %w", path, err)
	}
	if e.conn, err = writes.Conn(ctx); err != nil {
		writes.Close()
		return nil, fmt.Errorf("sqlite database %q: %w", path, err)
	}
	e.writes = writes
	readers := opts.Readers
	if readers == 0 {
		readers = 4 * runtime.GOMAXPROCS(0)
	}
	reads, err := openSQLitePool(path, opts.VFS, readers, "query_only(on)", "cache_size(-8192)")
	if err != nil {
		e.close()
		return nil, err
	}
	s := &Store{reads: reads, engine: e}
	s.lanes = newLanes(1, s.runBatch)
	return s, nil
}

// openSQLitePool opens a pool of n connections with the given pragmas.
func openSQLitePool(path, vfs string, n int, pragmas ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite database %q: %w", path, err)
	}
	// busy_timeout comes first, so that the others wait for their locks too.
	q := url.Values{"_pragma": append([]string{"busy_timeout(10000)"}, pragmas...), "_txlock": {"immediate"}}
	q["_pragma"] = append(q["_pragma"], "synchronous(full)")
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: q.Encode(), OmitHost: true}
	db, err := sql.Open("sqlite3", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite database %q: %w", path, err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// sqliteEngine writes through one connection, which only the writing lane uses.
type sqliteEngine struct {
	clock    func() time.Time
	writes   *sql.DB
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

var _ engine = (*sqliteEngine)(nil)

func (e *sqliteEngine) dialect() dialect { return dialect{now: e.clock} }

// lane is the same for all Changes: SQLite has one writer.
func (e *sqliteEngine) lane(*meta.Change) int64 { return 0 }

// prepare gives a statement SQLite's numbered placeholders.
func (e *sqliteEngine) prepare(text string) (string, bool) {
	return strings.ReplaceAll(text, "$", "?"), true
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
	return faultOther
}

func (e *sqliteEngine) close() error {
	for _, st := range e.prepared {
		st.Close()
	}
	if e.conn != nil {
		e.conn.Close()
	}
	return e.writes.Close()
}

func (e *sqliteEngine) begin(ctx context.Context) (txn, error) {
	tx := &sqliteTxn{engine: e}
	return tx, tx.exec(ctx, stmt{text: `BEGIN IMMEDIATE`})
}

// sqliteTxn is the transaction of the writing connection.
type sqliteTxn struct {
	engine *sqliteEngine
	ended  bool
}

var _ txn = (*sqliteTxn)(nil)

func (tx *sqliteTxn) run(ctx context.Context, stmts []stmt) error {
	for i := range stmts {
		if err := tx.exec(ctx, stmts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (tx *sqliteTxn) exec(ctx context.Context, s stmt) error {
	st := tx.engine.prepared[s.text]
	if st == nil {
		text, _ := tx.engine.prepare(s.text)
		var err error
		if st, err = tx.engine.conn.PrepareContext(ctx, text); err != nil {
			return err
		}
		tx.engine.prepared[s.text] = st
	}
	if s.row == nil {
		_, err := st.ExecContext(ctx, bind(s.args)...)
		return err
	}
	rows, err := st.QueryContext(ctx, bind(s.args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (tx *sqliteTxn) commit(ctx context.Context, stmts []stmt) (sent bool, err error) {
	if err := tx.run(ctx, stmts); err != nil {
		return false, err
	}
	// A COMMIT that fails leaves the transaction open, or rolled back, but an
	// I/O error may have come after the record was written.
	if err := tx.exec(context.WithoutCancel(ctx), stmt{text: `COMMIT`}); err != nil {
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
	tx.engine.conn.ExecContext(context.Background(), `ROLLBACK`)
}

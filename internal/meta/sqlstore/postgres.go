package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/cairnstate/cairn/internal/meta"
)

// PostgresOptions adjusts OpenPostgres; its zero value is the default.
type PostgresOptions struct {
	// Clock replaces the server's clock in tests.
	Clock func() time.Time
	// Conns bounds the connections to the server; 0 takes eight per processor.
	Conns int
}

// OpenPostgres connects to the PostgreSQL database (version 14 or newer) that
// url names and brings its schema up to date. Other processes may use it too.
func OpenPostgres(ctx context.Context, url string, opts PostgresOptions) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if opts.Conns == 0 {
		opts.Conns = 8 * runtime.GOMAXPROCS(0)
	}
	cfg.MaxConns = int32(max(opts.Conns, 2))
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	e := &postgresEngine{pool: pool, reads: stdlib.OpenDBFromPool(pool), clock: opts.Clock}
	s := &Store{engine: e}
	// Half of the connections write, so that reads never wait for all of them.
	s.lanes = newLanes(int(cfg.MaxConns)/2, s.runBatch)
	if err := migrate(ctx, e.reads, postgresMigrations); err != nil {
		err = fmt.Errorf("postgres: %w", s.fail(ctx, err))
		s.Close()
		return nil, err
	}
	return s, nil
}

// postgresEngine writes each lane's batch through a connection of the pool.
type postgresEngine struct {
	pool  *pgxpool.Pool
	reads *sql.DB // on pool
	clock func() time.Time
	other atomic.Int64 // lanes of writes that are not Changes
}

var _ engine = (*postgresEngine)(nil)

const postgresClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// dialect: a Change reads its org under a shared advisory lock, and one that
// writes the org (a floor, say) takes it alone, so that no Change that an older
// floor let through is committed after the new floor was answered.
func (e *postgresEngine) dialect() dialect {
	return dialect{
		now: e.clock, clock: postgresClock,
		shareOrg: `SELECT pg_advisory_xact_lock_shared($1)`, lockOrg: `SELECT pg_advisory_xact_lock($1)`,
		forUpdate: ` FOR UPDATE`, forShare: ` FOR SHARE`,
	}
}

// lane puts the Changes of one repository or thread together, and those that
// make repositories or write their org.
func (e *postgresEngine) lane(c *meta.Change) int64 {
	switch {
	case c == nil:
		return -e.other.Add(1) << 1
	case c.Thread != nil:
		h := fnv.New64a()
		h.Write([]byte(c.Thread.Name))
		return (int64(h.Sum64()>>2) ^ int64(c.Org)) << 1
	case c.Repo == 0 || c.CreateRepo != nil:
		return int64(c.Org)<<1 | 1
	}
	return int64(c.Repo) << 1
}

// query leaves it to the driver to keep statements prepared.
func (e *postgresEngine) query(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error {
	rows, err := e.reads.QueryContext(ctx, text, bind(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Close(); err != nil {
		return err
	}
	return rows.Err()
}

// SQLSTATE codes and classes that decide what becomes of a transaction.
const (
	pgUnique        = "23505"
	pgSerialization = "40"
	pgConnection    = "08"
	pgResources     = "53"
	pgIntervention  = "57P"
)

func (e *postgresEngine) sort(err error) fault {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch code := answer.Code; {
		case code == pgUnique || strings.HasPrefix(code, pgSerialization):
			return faultRetry
		case strings.HasPrefix(code, pgConnection), strings.HasPrefix(code, pgResources), strings.HasPrefix(code, pgIntervention):
			return faultUnavailable
		}
		return faultOther
	}
	var refused *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &refused) || errors.As(err, &network) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) ||
		pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return faultUnavailable
	}
	return faultOther
}

// placeEvents implements engine. The row of event_head is the lock: whoever
// holds it sees all rows that its former holder placed, and those that it does
// not see yet get a later position.
func (e *postgresEngine) placeEvents(ctx context.Context, s *Store) error {
	waiting := false
	const look = `SELECT id FROM events WHERE position IS NULL LIMIT 1`
	err := s.query(ctx, look, nil, func(scanFunc) error { waiting = true; return nil })
	if err != nil || !waiting {
		return err
	}
	return s.write(ctx, func(int64) []stmt {
		return []stmt{
			exec(`SELECT last FROM event_head FOR UPDATE`),
			exec(`WITH placed AS (
				UPDATE events e SET position = h.last + u.n
				FROM event_head h, (SELECT id, row_number() OVER (ORDER BY id) AS n FROM events WHERE position IS NULL) u
				WHERE e.id = u.id RETURNING e.position)
				UPDATE event_head SET last = greatest(last, coalesce((SELECT max(position) FROM placed), 0))`),
		}
	})
}

func (e *postgresEngine) close() error {
	err := e.reads.Close()
	e.pool.Close()
	return err
}

func (e *postgresEngine) begin(ctx context.Context) (txn, error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &postgresTxn{conn: conn}, nil
}

// postgresTxn is one transaction. BEGIN travels with the first statements and
// COMMIT with the last.
type postgresTxn struct {
	conn  *pgxpool.Conn
	begun bool
}

var _ txn = (*postgresTxn)(nil)

func (tx *postgresTxn) run(ctx context.Context, stmts []stmt) error {
	if len(stmts) == 0 && tx.begun {
		return nil
	}
	return tx.send(ctx, stmts, false)
}

func (tx *postgresTxn) send(ctx context.Context, stmts []stmt, commit bool) error {
	var batch pgx.Batch
	if !tx.begun {
		batch.Queue(`BEGIN`)
	}
	for i := range stmts {
		q := batch.Queue(stmts[i].text, bind(stmts[i].args)...)
		if row := stmts[i].row; row != nil {
			q.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := row(rows.Scan); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		}
	}
	if commit {
		batch.Queue(`COMMIT`)
	}
	tx.begun = true
	return tx.conn.SendBatch(ctx, &batch).Close()
}

// commit implements txn. What the server answered with an error has been rolled
// back; anything else may have been committed.
func (tx *postgresTxn) commit(ctx context.Context, stmts []stmt) (sent bool, err error) {
	err = tx.send(ctx, stmts, true)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && !strings.HasPrefix(answer.Code, pgIntervention) {
		return false, err
	}
	return true, err
}

// rollback gives the connection back; the pool drops one that is broken.
func (tx *postgresTxn) rollback() {
	if tx.begun && !tx.conn.Conn().IsClosed() && tx.conn.Conn().PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// An error here means that the connection is lost, and with it the
		// transaction.
		tx.conn.Exec(ctx, `ROLLBACK`)
	}
	tx.conn.Release()
}

// Package sqlstore implements the metadata contract on SQL: one implementation
// with two dialects, SQLite (embedded) and PostgreSQL.
//
// # How a Change is applied
//
// Changes that wait in one lane (all of them on SQLite, those of one repository
// on PostgreSQL) are applied together in one transaction: what their
// preconditions need is loaded (load.go), each Change is decided in memory on
// top of the ones before it (decide.go), and what the applied ones leave behind
// is written and committed once (flush.go). A refused Change has touched
// nothing. On PostgreSQL that is two round trips however many Changes there are.
//
// Statements are written once, with $1 placeholders. Strings are stored as
// bytes in both dialects, so that names compare and sort as bytes.
package sqlstore

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Store is a metadata engine on one SQL database. It is made by OpenSQLite or
// OpenPostgres and is safe for concurrent use.
type Store struct {
	engine engine
	lanes  *lanes
}

var _ meta.Store = (*Store)(nil)

// engine is what differs between the dialects.
type engine interface {
	// begin starts a write transaction.
	begin(ctx context.Context) (txn, error)
	// lane says which Changes are applied together: those with equal lanes. nil
	// stands for a write that is not a Change.
	lane(c *meta.Change) int64
	// placeEvents gives positions to committed events that have none.
	placeEvents(ctx context.Context, s *Store) error
	// query runs one read statement and hands each row to row.
	query(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error
	// sort classifies an error of the database.
	sort(err error) fault
	// dialect returns the words in which the statements differ.
	dialect() dialect
	close() error
}

// dialect holds the words in which the statements differ. An empty statement
// is left out.
type dialect struct {
	now       func() time.Time // the clock; nil asks the database with clock
	clock     string           // a query for the time in Unix microseconds
	shareOrg  string           // keep an org from being written
	lockOrg   string           // keep an org from being read or written by other Changes
	forUpdate string
	forShare  string
}

// fault is what an error of the database means for a transaction.
type fault uint8

const (
	faultOther       fault = iota
	faultRetry             // rolled back because of another transaction: run it again
	faultUnavailable       // the database does not answer
	faultFull              // the database has no space left
)

// place gives an error with a fault its place in the contract.
func (f fault) place(err error) error {
	switch f {
	case faultOther:
		return err
	case faultFull:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return fmt.Errorf("%w: %w", meta.ErrUnavailable, err)
}

// txn is one write transaction.
type txn interface {
	// run executes statements in order, in one round trip where it can.
	run(ctx context.Context, stmts []stmt) error
	// commit executes statements and commits. sent is false when the
	// transaction certainly had no effect.
	commit(ctx context.Context, stmts []stmt) (sent bool, err error)
	rollback()
}

// stmt is one SQL statement with its arguments. row, when set, takes each row
// of the result; it scans into *int64 and *[]byte only.
type stmt struct {
	text string
	args []any
	row  func(scan scanFunc) error
}

// scanFunc copies the columns of the current row.
type scanFunc func(dest ...any) error

// exec makes a statement without a result.
func exec(text string, args ...any) stmt { return stmt{text: text, args: args} }

// bind returns arguments as the drivers take them: strings as bytes.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = bindOne(a)
	}
	return out
}

func bindOne(arg any) any {
	switch v := arg.(type) {
	case string:
		return []byte(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case int:
		return int64(v)
	case meta.OrgID:
		return int64(v)
	case meta.RepoID:
		return int64(v)
	case meta.PackID:
		return int64(v)
	case meta.WebhookID:
		return int64(v)
	case meta.CredentialID:
		return int64(v)
	case meta.SyncID:
		return int64(v)
	case meta.ThreadID:
		return int64(v)
	case meta.ContentID:
		return v[:]
	}
	return arg
}

// query runs one read statement and hands each row to row.
func (s *Store) query(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error {
	return s.fail(ctx, s.engine.query(ctx, text, args, row))
}

// one runs a read statement of at most one row; absent is meta.ErrNotFound.
func (s *Store) one(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error {
	found := false
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		found = true
		return row(scan)
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return err
}

// fail gives an error of the database its place in the contract.
func (s *Store) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("metadata query: %w", context.Cause(ctx))
	}
	return fmt.Errorf("metadata query: %w", s.engine.sort(err).place(err))
}

// Ping implements meta.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.query(ctx, `SELECT count(*) FROM (SELECT id FROM orgs LIMIT 1) AS o`, nil, func(scan scanFunc) error {
		var n int64
		return scan(&n)
	})
}

// Close implements meta.Store.
func (s *Store) Close() error {
	s.lanes.close()
	return s.engine.close()
}

// unixMicro returns a time as it is stored; the zero time is 0.
func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// timeOf returns a stored time.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

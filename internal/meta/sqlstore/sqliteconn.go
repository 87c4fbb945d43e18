package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
)

// sqliteConn is a connection with the statements that it has prepared. One
// goroutine uses it at a time. Package database/sql would take longer than
// SQLite itself for statements as small as ours.
type sqliteConn struct {
	*sqlite3.Conn
	prepared map[string]*sqlite3.Stmt // by text with $ placeholders
}

func openSQLiteConn(ctx context.Context, url string) (*sqliteConn, error) {
	c, err := sqlite3.OpenContext(ctx, url)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{Conn: c, prepared: make(map[string]*sqlite3.Stmt)}, nil
}

func (c *sqliteConn) close() error {
	for _, st := range c.prepared {
		st.Close()
	}
	clear(c.prepared)
	return c.Close()
}

// run executes a statement to its end, or until ctx ends, and hands each row to
// row, which may be nil.
func (c *sqliteConn) run(ctx context.Context, text string, args []any, row func(scan scanFunc) error) error {
	defer c.SetInterrupt(c.SetInterrupt(ctx))
	err := c.step(text, args, row)
	if errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

func (c *sqliteConn) step(text string, args []any, row func(scan scanFunc) error) error {
	st := c.prepared[text]
	if st == nil {
		var err error
		// SQLite numbers its placeholders with a question mark.
		if st, _, err = c.PrepareFlags(strings.ReplaceAll(text, "$", "?"), sqlite3.PREPARE_PERSISTENT); err != nil {
			return err
		}
		c.prepared[text] = st
	}
	for i, arg := range args {
		if err := bindSQLite(st, i+1, arg); err != nil {
			return err
		}
	}
	if row == nil {
		return st.Exec()
	}
	scan := func(dest ...any) error { return scanSQLite(st, dest) }
	for st.Step() {
		if err := row(scan); err != nil {
			st.Reset()
			return err
		}
	}
	if err := st.Err(); err != nil {
		st.Reset()
		return err
	}
	return st.Reset()
}

// bindSQLite gives a parameter its value; strings are bytes.
func bindSQLite(st *sqlite3.Stmt, n int, arg any) error {
	switch v := bindOne(arg).(type) {
	case int64:
		return st.BindInt64(n, v)
	case []byte:
		return st.BindBlob(n, v)
	}
	return fmt.Errorf("parameter %d has type %T, which is not stored", n, arg)
}

// scanSQLite copies the columns of the current row.
func scanSQLite(st *sqlite3.Stmt, dest []any) error {
	for i, d := range dest {
		switch d := d.(type) {
		case *int64:
			*d = st.ColumnInt64(i)
		case *[]byte:
			*d = bytes.Clone(st.ColumnRawBlob(i))
		default:
			return fmt.Errorf("column %d cannot be read into %T", i, d)
		}
	}
	return st.Err()
}

var errSQLiteClosed = errors.New("the metadata store is closed")

// sqlitePool is connections for reads. The one that was used last comes first:
// what it knows of the database is the newest.
type sqlitePool struct {
	url   string
	slots chan struct{} // one for each connection in use

	mu     sync.Mutex
	idle   []*sqliteConn
	closed bool
}

func newSQLitePool(url string, n int) *sqlitePool {
	return &sqlitePool{url: url, slots: make(chan struct{}, n)}
}

// get returns a connection, which put takes back.
func (p *sqlitePool) get(ctx context.Context) (*sqliteConn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := p.take()
	if c == nil && err == nil {
		c, err = openSQLiteConn(ctx, p.url)
	}
	if err != nil {
		<-p.slots
	}
	return c, err
}

// take returns the idle connection that was used last, nil when there is none.
func (p *sqlitePool) take() (*sqliteConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errSQLiteClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

func (p *sqlitePool) put(c *sqliteConn) {
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	<-p.slots
}

// close refuses new reads and waits for those that run.
func (p *sqlitePool) close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	for range cap(p.slots) {
		<-p.slots
	}
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

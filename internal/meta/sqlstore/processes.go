package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// processMemory is how long an expired process is remembered, in microseconds.
const processMemory = int64(24 * time.Hour / time.Microsecond)

// Heartbeat implements meta.Store.
func (s *Store) Heartbeat(ctx context.Context, p meta.Process) error {
	return s.write(ctx, func(now int64) []stmt {
		return []stmt{
			exec(`INSERT INTO processes (id, oldest, lease, renewed) VALUES ($1, $2, $3, $4)
				ON CONFLICT (id) DO UPDATE SET oldest = excluded.oldest, lease = excluded.lease, renewed = excluded.renewed`,
				p.ID, unixMicro(p.Oldest), p.Lease.Microseconds(), now),
			exec(`DELETE FROM processes WHERE renewed + lease < $1`, now-processMemory),
		}
	})
}

// Processes implements meta.Store.
func (s *Store) Processes(ctx context.Context) ([]meta.Process, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	var processes []meta.Process
	const text = `SELECT id, oldest, lease, renewed FROM processes WHERE renewed + lease > $1 ORDER BY id`
	err = s.query(ctx, text, []any{now}, func(scan scanFunc) error {
		var id []byte
		var oldest, lease, renewed int64
		err := scan(&id, &oldest, &lease, &renewed)
		processes = append(processes, meta.Process{
			ID: string(id), Oldest: timeOf(oldest), Lease: time.Duration(lease) * time.Microsecond, Renewed: timeOf(renewed),
		})
		return err
	})
	return processes, err
}

// now reads the engine's clock.
func (s *Store) now(ctx context.Context) (now int64, err error) {
	d := s.engine.dialect()
	if d.now != nil {
		return d.now().UnixMicro(), nil
	}
	err = s.one(ctx, d.clock, nil, func(scan scanFunc) error { return scan(&now) })
	return now, err
}

// BeginUpload implements meta.Store.
func (s *Store) BeginUpload(ctx context.Context, u meta.Upload) error {
	if u.Key == "" || len(u.Key) > meta.MaxName {
		return fmt.Errorf("upload %q: the key must have 1 to %d bytes", u.Key, meta.MaxName)
	}
	return s.write(ctx, func(now int64) []stmt {
		return []stmt{exec(`INSERT INTO uploads (blob_key, process, at) VALUES ($1, $2, $3)
			ON CONFLICT (blob_key) DO UPDATE SET process = excluded.process, at = excluded.at`, u.Key, u.Process, now)}
	})
}

// EndUpload implements meta.Store.
func (s *Store) EndUpload(ctx context.Context, key string) error {
	return s.write(ctx, func(int64) []stmt {
		return []stmt{exec(`DELETE FROM uploads WHERE blob_key = $1`, key)}
	})
}

// RetireUpload implements meta.Store. A Change that publishes the upload comes
// before or after it: in no transaction of both, and where transactions run beside
// each other the lock waits for what becomes of the row.
func (s *Store) RetireUpload(ctx context.Context, key string) (taken bool, err error) {
	err = s.lanes.do(ctx, s.engine.lane(nil), &job{alone: true, stmts: func(now int64) []stmt {
		taken = false
		return []stmt{
			{`INSERT INTO retired (blob_key, at) SELECT blob_key, $2 FROM uploads WHERE blob_key = $1` + s.engine.dialect().forUpdate + `
				ON CONFLICT (blob_key) DO NOTHING RETURNING blob_key`, []any{key, now},
				func(scanFunc) error { taken = true; return nil }},
			exec(`DELETE FROM uploads WHERE blob_key = $1`, key),
		}
	}})
	return taken, err
}

// Uploads implements meta.Store: the oldest first.
func (s *Store) Uploads(ctx context.Context) ([]meta.Upload, error) {
	var uploads []meta.Upload
	const text = `SELECT blob_key, process, at FROM uploads ORDER BY at, blob_key`
	err := s.query(ctx, text, nil, func(scan scanFunc) error {
		var key, process []byte
		var at int64
		err := scan(&key, &process, &at)
		uploads = append(uploads, meta.Upload{Key: string(key), Process: string(process), At: timeOf(at)})
		return err
	})
	return uploads, err
}

// Retired implements meta.Store: the oldest first.
func (s *Store) Retired(ctx context.Context, before time.Time, limit int) ([]meta.Retired, error) {
	var retired []meta.Retired
	const text = `SELECT blob_key, at FROM retired WHERE at <= $1 ORDER BY at, blob_key LIMIT $2`
	err := s.query(ctx, text, []any{before.UnixMicro(), limit}, func(scan scanFunc) error {
		var key []byte
		var at int64
		err := scan(&key, &at)
		retired = append(retired, meta.Retired{Key: string(key), At: timeOf(at)})
		return err
	})
	return retired, err
}

// ForgetRetired implements meta.Store.
func (s *Store) ForgetRetired(ctx context.Context, keys []string) error {
	return s.write(ctx, func(int64) []stmt {
		stmts := make([]stmt, len(keys))
		for i, key := range keys {
			stmts[i] = exec(`DELETE FROM retired WHERE blob_key = $1`, key)
		}
		return stmts
	})
}

// PruneIdempotency implements meta.Store.
func (s *Store) PruneIdempotency(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = s.lanes.do(ctx, s.engine.lane(nil), &job{alone: true, stmts: func(int64) []stmt {
		n = 0
		return []stmt{{`DELETE FROM idempotency WHERE (org, idem_key) IN
			(SELECT org, idem_key FROM idempotency WHERE at < $1 ORDER BY at LIMIT $2) RETURNING idem_key`,
			[]any{unixMicro(before), limit}, func(scanFunc) error { n++; return nil }}}
	}})
	return n, err
}

const selectIdempotency = `SELECT status, at, request, body FROM idempotency WHERE org = $1 AND idem_key = $2`

func scanIdempotency(key string, scan scanFunc) (meta.Idempotency, error) {
	row := meta.Idempotency{Key: key}
	var status, at int64
	var request []byte
	err := scan(&status, &at, &request, &row.Body)
	copy(row.Request[:], request)
	row.Status, row.At = int(status), timeOf(at)
	return row, err
}

// Idempotency implements meta.Store.
func (s *Store) Idempotency(ctx context.Context, org meta.OrgID, key string) (meta.Idempotency, error) {
	var row meta.Idempotency
	err := s.one(ctx, selectIdempotency, []any{org, key}, func(scan scanFunc) (err error) {
		row, err = scanIdempotency(key, scan)
		return err
	})
	return row, err
}

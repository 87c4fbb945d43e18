package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

const checkpointColumns = `c.org, c.id, c.seq, c.parent, c.created, c.label, c.pinned, c.added, c.manifest, c.body, c.written_at, t.name`

// ofThread joins checkpoints with their threads.
const ofThread = ` FROM threads t JOIN checkpoints c ON c.thread = t.id `

func scanCheckpoint(scan scanFunc) (meta.Checkpoint, error) {
	var org, seq, created, pinned, added, manifest, writtenAt int64
	var id, parent, label, body, thread []byte
	err := scan(&org, &id, &seq, &parent, &created, &label, &pinned, &added, &manifest, &body, &writtenAt, &thread)
	return meta.Checkpoint{
		Org: meta.OrgID(org), ID: string(id), Thread: string(thread), Seq: seq, Parent: string(parent), Created: numberOf(created),
		Label: string(label), Pinned: pinned != 0, Added: added, Manifest: manifest != 0, Body: body, WrittenAt: timeOf(writtenAt),
	}, err
}

func (s *Store) listCheckpoints(ctx context.Context, text string, args []any) ([]meta.Checkpoint, error) {
	var list []meta.Checkpoint
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		c, err := scanCheckpoint(scan)
		list = append(list, c)
		return err
	})
	return list, err
}

// Thread implements meta.Store.
func (s *Store) Thread(ctx context.Context, org meta.OrgID, name string) (meta.Thread, error) {
	var row threadRow
	err := s.one(ctx, `SELECT `+threadColumns+` FROM threads t WHERE t.org = $1 AND t.name = $2`, []any{org, name},
		func(scan scanFunc) error { return scan(row.dest()...) })
	return row.thread(), err
}

// ListThreads implements meta.Store.
func (s *Store) ListThreads(ctx context.Context, q meta.ThreadQuery) ([]meta.Thread, error) {
	text := `SELECT ` + threadColumns + ` FROM threads t WHERE t.org = $1 AND t.checkpoints > 0 AND t.name >= $2 AND t.name > $3`
	args := []any{q.Org, q.Prefix, q.After, q.Limit}
	if end, ok := prefixEnd(q.Prefix); ok {
		text += ` AND t.name < $5`
		args = append(args, end)
	}
	var threads []meta.Thread
	err := s.query(ctx, text+` ORDER BY t.name LIMIT $4`, args, func(scan scanFunc) error {
		var row threadRow
		err := scan(row.dest()...)
		threads = append(threads, row.thread())
		return err
	})
	return threads, err
}

// Checkpoint implements meta.Store.
func (s *Store) Checkpoint(ctx context.Context, org meta.OrgID, id string) (c meta.Checkpoint, err error) {
	err = s.one(ctx, `SELECT `+checkpointColumns+` FROM checkpoints c JOIN threads t ON t.org = c.org AND t.id = c.thread WHERE c.org = $1 AND c.id = $2`,
		[]any{org, id}, func(scan scanFunc) (err error) {
			c, err = scanCheckpoint(scan)
			return err
		})
	return c, err
}

// Checkpoints implements meta.Store.
func (s *Store) Checkpoints(ctx context.Context, q meta.CheckpointQuery) ([]meta.Checkpoint, error) {
	text := `SELECT ` + checkpointColumns + ofThread + `WHERE t.org = $1 AND t.name = $2`
	args := []any{q.Org, q.Thread, q.Limit}
	beyond, order := `>`, ` ORDER BY c.created, c.id`
	if q.Descending {
		beyond, order = `<`, ` ORDER BY c.created DESC, c.id DESC`
	}
	if q.Started {
		args = append(args, sortable(q.AfterCreated), q.AfterID)
		text += fmt.Sprintf(` AND (c.created, c.id) %s ($%d, $%d)`, beyond, len(args)-1, len(args))
	}
	if q.Label != nil {
		args = append(args, *q.Label)
		text += fmt.Sprintf(` AND c.label = $%d`, len(args))
	}
	return s.listCheckpoints(ctx, text+order+` LIMIT $3`, args)
}

// AllCheckpoints implements meta.Store.
func (s *Store) AllCheckpoints(ctx context.Context, org meta.OrgID, after string, limit int) ([]meta.Checkpoint, error) {
	return s.listCheckpoints(ctx, `SELECT `+checkpointColumns+` FROM checkpoints c JOIN threads t ON t.org = c.org AND t.id = c.thread
		WHERE c.org = $1 AND c.id > $2 ORDER BY c.id LIMIT $3`, []any{org, after, limit})
}

// NewestCheckpoint implements meta.Store.
func (s *Store) NewestCheckpoint(ctx context.Context, org meta.OrgID, thread, except string) (newest string, err error) {
	const text = `SELECT c.id FROM threads t JOIN checkpoints c ON c.thread = t.id WHERE t.org = $1 AND t.name = $2 AND c.id <> $3 ORDER BY c.seq DESC LIMIT 1`
	err = s.query(ctx, text, []any{org, thread, except}, func(scan scanFunc) error {
		var id []byte
		err := scan(&id)
		newest = string(id)
		return err
	})
	return newest, err
}

// Prunable implements meta.Store.
func (s *Store) Prunable(ctx context.Context, q meta.PruneQuery) ([]meta.Checkpoint, error) {
	text := `SELECT ` + checkpointColumns + ofThread + `WHERE t.org = $1 AND t.name = $2 AND c.id <> t.head AND c.pinned = 0`
	args := []any{q.Org, q.Thread, q.Limit}
	if q.Keep > 0 {
		args = append(args, q.Keep-1)
		text += fmt.Sprintf(` AND c.seq < (SELECT k.seq FROM checkpoints k WHERE k.thread = t.id ORDER BY k.seq DESC LIMIT 1 OFFSET $%d)`, len(args))
	}
	if !q.Before.IsZero() {
		args = append(args, q.Before.UnixMicro())
		text += fmt.Sprintf(` AND c.written_at < $%d`, len(args))
	}
	if q.Label != nil {
		args = append(args, *q.Label)
		text += fmt.Sprintf(` AND c.label = $%d`, len(args))
	}
	return s.listCheckpoints(ctx, text+` ORDER BY c.seq LIMIT $3`, args)
}

// Segments implements meta.Store: thread and segments come from one statement.
func (s *Store) Segments(ctx context.Context, org meta.OrgID, thread string) (t meta.Thread, segments []meta.Segment, err error) {
	const text = `SELECT coalesce(g.id, 0), coalesce(g.entries, 0), coalesce(g.data, $3), coalesce(g.ref, $3), ` + threadColumns + `
		FROM threads t LEFT JOIN thread_segments g ON g.thread = t.id WHERE t.org = $1 AND t.name = $2 ORDER BY g.entries DESC, g.id`
	found := false
	err = s.query(ctx, text, []any{org, thread, ""}, func(scan scanFunc) error {
		var row threadRow
		var id, keys int64
		var data, ref []byte
		err := scan(append([]any{&id, &keys, &data, &ref}, row.dest()...)...)
		found, t = true, row.thread()
		if id != 0 {
			segments = append(segments, meta.Segment{ID: id, Keys: keys, Data: data, Ref: ref})
		}
		return err
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return t, segments, err
}

// LiveCheckpoints implements meta.Store: one statement sees one moment.
func (s *Store) LiveCheckpoints(ctx context.Context, org meta.OrgID, yield func(body, segment []byte) error) error {
	const text = `SELECT body, $2 FROM checkpoints WHERE org = $1
		UNION ALL SELECT $2, ref FROM thread_segments WHERE org = $1 AND length(ref) > 0`
	return s.query(ctx, text, []any{org, ""}, func(scan scanFunc) error {
		var body, segment []byte
		if err := scan(&body, &segment); err != nil {
			return err
		}
		return yield(body, segment)
	})
}

// LargeBlobs implements meta.Store.
func (s *Store) LargeBlobs(ctx context.Context, org meta.OrgID, sums [][32]byte) ([]meta.LargeBlob, error) {
	var list []meta.LargeBlob
	for some := range slices.Chunk(sums, maxIn) {
		marks, size := inList(2, len(some))
		args := make([][]byte, len(some))
		for i := range some {
			args[i] = some[i][:]
		}
		more, err := s.listLargeBlobs(ctx, `org = $1 AND sum IN (`+marks+`)`, inArgs([]any{org}, args, size))
		list = append(list, more...)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ListLargeBlobs implements meta.Store.
func (s *Store) ListLargeBlobs(ctx context.Context, org meta.OrgID, after [32]byte, limit int) ([]meta.LargeBlob, error) {
	return s.listLargeBlobs(ctx, `org = $1 AND sum > $2 ORDER BY sum LIMIT $3`, []any{org, after[:], limit})
}

func (s *Store) listLargeBlobs(ctx context.Context, where string, args []any) (list []meta.LargeBlob, err error) {
	err = s.query(ctx, `SELECT sum, recipe, size, put_at FROM large_blobs WHERE `+where, args, func(scan scanFunc) error {
		var sum, recipe []byte
		var putAt int64
		var b meta.LargeBlob
		err := scan(&sum, &recipe, &b.Size, &putAt)
		if err == nil && (len(sum) != len(b.Sum) || len(recipe) != len(b.Recipe)) {
			return fmt.Errorf("digests of a large blob have %d and %d bytes: %w", len(sum), len(recipe), meta.ErrCorrupt)
		}
		copy(b.Sum[:], sum)
		copy(b.Recipe[:], recipe)
		b.PutAt = timeOf(putAt)
		list = append(list, b)
		return err
	})
	return list, err
}

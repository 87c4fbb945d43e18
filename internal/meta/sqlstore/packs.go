package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

const packColumns = `p.id, p.class, p.inline, p.exact, p.bytes, p.objects, p.created_at, p.repo, p.blob_key, p.tips, p.boundary`

// scanPack reads packColumns and what follows them.
func scanPack(scan scanFunc, more ...any) (meta.Pack, error) {
	var id, class, inline, exact, bytes, objects, createdAt, repo int64
	var key, tips, boundary []byte
	into := []any{&id, &class, &inline, &exact, &bytes, &objects, &createdAt, &repo, &key, &tips, &boundary}
	if err := scan(append(into, more...)...); err != nil {
		return meta.Pack{}, err
	}
	p := meta.Pack{
		ID: meta.PackID(id), Repo: meta.RepoID(repo), Class: meta.PackClass(class), Inline: inline != 0, Key: string(key), Bytes: bytes,
		Objects: objects, Exact: exact != 0, CreatedAt: timeOf(createdAt),
	}
	var err error
	if p.Tips, err = idsOf(tips); err != nil {
		return p, err
	}
	p.Boundary, err = idsOf(boundary)
	return p, err
}

// wantPack notes what adding a pack depends on.
func (b *batch) wantPack(p *meta.PackWrite) {
	b.pack(p.ID)
	if !p.Inline {
		b.uploads[p.Key] = false
	}
}

// loadPacks finds out which of the ids that packs are to have are taken.
func (b *batch) loadPacks(stmts []stmt) []stmt {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(b.packs)), maxIn) {
		marks, size := inList(1, len(ids))
		stmts = append(stmts, stmt{`SELECT id FROM packs WHERE id IN (` + marks + `)`, inArgs(nil, ids, size),
			func(scan scanFunc) error {
				var id int64
				err := scan(&id)
				b.packs[meta.PackID(id)].taken = true
				return err
			}})
	}
	return stmts
}

// loadUploads finds out which uploads are still there, and keeps them until the
// batch is committed.
func (b *batch) loadUploads(stmts []stmt) []stmt {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(b.uploads)), maxIn) {
		marks, size := inList(1, len(keys))
		stmts = append(stmts, stmt{
			`SELECT blob_key FROM uploads WHERE blob_key IN (` + marks + `) ORDER BY blob_key` + b.forUpdate,
			inArgs(nil, keys, size), func(scan scanFunc) error {
				var key []byte
				err := scan(&key)
				b.uploads[string(key)] = true
				return err
			}})
	}
	return stmts
}

// PackIDs implements meta.Store.
func (s *Store) PackIDs(ctx context.Context, id int64) ([]meta.PackID, error) {
	ids, _, err := s.packIDs(ctx, id)
	return ids, err
}

// packIDs returns the packs of a set and how many repositories have it.
func (s *Store) packIDs(ctx context.Context, id int64) (ids []meta.PackID, repos int64, err error) {
	if id == 0 {
		return nil, 0, nil
	}
	err = s.one(ctx, `SELECT repos, packs FROM pack_sets WHERE id = $1`, []any{id}, func(scan scanFunc) error {
		var packs []byte
		err := scan(&repos, &packs)
		if err == nil {
			ids, err = packsOf(packs)
		}
		return err
	})
	return ids, repos, err
}

// PackSet implements meta.Store. A set never changes, so a set that is there
// after its packs were read was there all the time.
func (s *Store) PackSet(ctx context.Context, id int64) ([]meta.ListedPack, error) {
	ids, repos, err := s.packIDs(ctx, id)
	if err != nil {
		return nil, err
	}
	packs, err := byID(ctx, s, `SELECT `+packColumns+`, p.sets FROM packs p WHERE p.id IN `, ids,
		func(scan scanFunc) (meta.PackID, meta.ListedPack, error) {
			var sets int64
			p, err := scanPack(scan, &sets)
			return p.ID, meta.ListedPack{Pack: p, Shared: repos > 1 || sets > 1}, err
		})
	if errors.Is(err, meta.ErrNotFound) {
		if _, again := s.PackIDs(ctx, id); again != nil {
			return nil, again
		}
		return nil, fmt.Errorf("pack set %d: a pack that it lists is missing: %w", id, meta.ErrCorrupt)
	}
	return packs, err
}

// PacksByID implements meta.Store.
func (s *Store) PacksByID(ctx context.Context, ids []meta.PackID) ([]meta.Pack, error) {
	return byID(ctx, s, `SELECT `+packColumns+` FROM packs p WHERE p.id IN `, ids,
		func(scan scanFunc) (meta.PackID, meta.Pack, error) {
			p, err := scanPack(scan)
			return p.ID, p, err
		})
}

// SmallPacks implements meta.Store.
func (s *Store) SmallPacks(ctx context.Context, ids []meta.PackID) ([][]byte, error) {
	return byID(ctx, s, `SELECT pack, data FROM small_packs WHERE pack IN `, ids,
		func(scan scanFunc) (meta.PackID, []byte, error) {
			var id int64
			var data []byte
			err := scan(&id, &data)
			return meta.PackID(id), data, err
		})
}

// byID reads the rows of some packs, in the order asked.
func byID[T any](ctx context.Context, s *Store, text string, ids []meta.PackID,
	row func(scan scanFunc) (meta.PackID, T, error)) ([]T, error) {
	rows := make(map[meta.PackID]T, len(ids))
	for chunk := range slices.Chunk(ids, maxIn) {
		marks, size := inList(1, len(chunk))
		err := s.query(ctx, text+`(`+marks+`)`, inArgs(nil, chunk, size), func(scan scanFunc) error {
			id, v, err := row(scan)
			rows[id] = v
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]T, len(ids))
	for i, id := range ids {
		v, ok := rows[id]
		if !ok {
			return nil, fmt.Errorf("pack %d: %w", id, meta.ErrNotFound)
		}
		out[i] = v
	}
	return out, nil
}

// keyPage is how many keys LivePackKeys reads at a time.
const keyPage = 10000

// LivePackKeys implements meta.Store. Uploads come first: one that is published
// meanwhile has been seen as an upload.
func (s *Store) LivePackKeys(ctx context.Context, yield func(key string) error) error {
	uploads, err := s.Uploads(ctx)
	if err != nil {
		return err
	}
	for i := range uploads {
		if err := yield(uploads[i].Key); err != nil {
			return err
		}
	}
	const text = `SELECT id, blob_key FROM packs WHERE id > $1 ORDER BY id LIMIT $2`
	for after := int64(-1 << 63); ; {
		var keys []string
		n := 0
		err := s.query(ctx, text, []any{after, keyPage}, func(scan scanFunc) error {
			var key []byte
			err := scan(&after, &key)
			n++
			if len(key) > 0 {
				keys = append(keys, string(key))
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := yield(key); err != nil {
				return err
			}
		}
		if n < keyPage {
			return nil
		}
	}
}

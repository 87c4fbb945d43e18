package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// contentID reads a stored id; no bytes are the zero id.
func contentID(b []byte) (meta.ContentID, error) {
	var id meta.ContentID
	if len(b) != 0 && len(b) != len(id) {
		return id, fmt.Errorf("stored content id %x has %d bytes: %w", b, len(b), meta.ErrCorrupt)
	}
	copy(id[:], b)
	return id, nil
}

// contentIDs reads a stored list of ids.
func contentIDs(b []byte) ([]meta.ContentID, error) {
	const size = len(meta.ContentID{})
	if len(b)%size != 0 {
		return nil, fmt.Errorf("stored list of content ids has %d bytes: %w", len(b), meta.ErrCorrupt)
	}
	var ids []meta.ContentID
	for ; len(b) > 0; b = b[size:] {
		ids = append(ids, meta.ContentID(b[:size]))
	}
	return ids, nil
}

func storedContentIDs(ids []meta.ContentID) []byte {
	b := make([]byte, 0, len(ids)*len(meta.ContentID{}))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// ContentVersion implements meta.Store.
func (s *Store) ContentVersion(ctx context.Context, org meta.OrgID) (v meta.ContentVersion, err error) {
	err = s.query(ctx, `SELECT version, generation FROM content_orgs WHERE org = $1`, []any{org},
		func(scan scanFunc) error { return scan(&v.Version, &v.Generation) })
	return v, err
}

const contentPackColumns = `p.org, p.state, p.bytes, p.raw_bytes, p.table_at, p.objects, p.created_at, p.changed_at, p.checked_at, p.id, p.in_index, p.blob_key`

func scanContentPack(scan scanFunc, first ...any) (meta.ContentPack, error) {
	var org, state, bytes, raw, table, objects, created, changed, checked int64
	var id, index, key []byte
	err := scan(append(first, &org, &state, &bytes, &raw, &table, &objects, &created, &changed, &checked, &id, &index, &key)...)
	if err != nil {
		return meta.ContentPack{}, err
	}
	p := meta.ContentPack{
		Org: meta.OrgID(org), State: meta.ContentState(state), Key: string(key), Bytes: bytes, RawBytes: raw, TableAt: table, Objects: objects,
		CreatedAt: timeOf(created), ChangedAt: timeOf(changed), CheckedAt: timeOf(checked),
	}
	if p.ID, err = contentID(id); err != nil {
		return p, err
	}
	p.Index, err = contentID(index)
	return p, err
}

// ContentView implements meta.Store, in one statement: so it is of one moment.
func (s *Store) ContentView(ctx context.Context, org meta.OrgID) (v meta.ContentView, err error) {
	const text = `SELECT 1, ` + contentPackColumns + ` FROM content_packs p WHERE p.org = $1 AND p.apart = 1
		UNION ALL SELECT 2, org, 0, bytes, objects, packs, 0, 0, 0, 0, id, dead, blob_key FROM content_indexes WHERE org = $1
		UNION ALL SELECT 3, org, 0, version, generation, 0, 0, 0, 0, 0, $2, $2, $2 FROM content_orgs WHERE org = $1
		ORDER BY 1, 11`
	err = s.query(ctx, text, []any{org, []byte{}}, func(scan scanFunc) error {
		var kind, skip, bytes, objects, packs int64
		var id, dead, key []byte
		err := scan(&kind, &skip, &skip, &bytes, &objects, &packs, &skip, &skip, &skip, &skip, &id, &dead, &key)
		if err != nil {
			return err
		}
		switch kind {
		case 1:
			p, err := scanContentPack(scan, &skip)
			v.Packs = append(v.Packs, p)
			return err
		case 2:
			index := meta.ContentIndex{Key: string(key), Bytes: bytes, Objects: objects, Packs: packs}
			if index.ID, err = contentID(id); err != nil {
				return err
			}
			index.Dead, err = contentIDs(dead)
			v.Indexes = append(v.Indexes, index)
			return err
		}
		v.Version, v.Generation = bytes, objects
		return nil
	})
	return v, err
}

// ContentPack implements meta.Store.
func (s *Store) ContentPack(ctx context.Context, org meta.OrgID, id meta.ContentID) (p meta.ContentPack, err error) {
	err = s.one(ctx, `SELECT `+contentPackColumns+` FROM content_packs p WHERE p.org = $1 AND p.id = $2`, []any{org, id[:]},
		func(scan scanFunc) (err error) {
			p, err = scanContentPack(scan)
			return err
		})
	return p, err
}

func (s *Store) contentPacks(ctx context.Context, where string, args ...any) ([]meta.ContentPack, error) {
	var list []meta.ContentPack
	err := s.query(ctx, `SELECT `+contentPackColumns+` FROM content_packs p WHERE `+where, args, func(scan scanFunc) error {
		p, err := scanContentPack(scan)
		list = append(list, p)
		return err
	})
	return list, err
}

// ContentPacks implements meta.Store.
func (s *Store) ContentPacks(ctx context.Context, org meta.OrgID, after meta.ContentID, limit int) ([]meta.ContentPack, error) {
	return s.contentPacks(ctx, `p.org = $1 AND p.id > $2 ORDER BY p.id LIMIT $3`, org, after[:], limit)
}

// SmallContentPacks implements meta.Store.
func (s *Store) SmallContentPacks(ctx context.Context, org meta.OrgID, below int64, limit int) ([]meta.ContentPack, error) {
	return s.contentPacks(ctx, `p.org = $1 AND p.state = 1 AND p.bytes < $2 ORDER BY p.bytes, p.id LIMIT $3`, org, below, limit)
}

// UncheckedContentPacks implements meta.Store.
func (s *Store) UncheckedContentPacks(ctx context.Context, before time.Time, limit int) ([]meta.ContentPack, error) {
	return s.contentPacks(ctx, `p.checked_at < $1 AND p.state <> 3 ORDER BY p.checked_at LIMIT $2`, before.UnixMicro(), limit)
}

// ContentData implements meta.Store.
func (s *Store) ContentData(ctx context.Context, org meta.OrgID, id meta.ContentID) (data []byte, err error) {
	err = s.one(ctx, `SELECT data FROM content_data WHERE org = $1 AND id = $2`, []any{org, id[:]},
		func(scan scanFunc) error { return scan(&data) })
	return data, err
}

// contentUploads reads uploads with their lists, in one statement.
func (s *Store) contentUploads(ctx context.Context, where string, args ...any) ([]meta.ContentUpload, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	var list []meta.ContentUpload
	args = append(args, now, []byte{})
	text := fmt.Sprintf(`SELECT u.id, u.thread, u.begun_at, u.expires_at, coalesce(l.bytes, 0), coalesce(l.objects, 0),
		coalesce(l.id, $%[2]d), coalesce(l.blob_key, $%[2]d), coalesce(l.data, $%[2]d)
		FROM content_uploads u LEFT JOIN content_lists l ON l.org = u.org AND l.upload = u.id
		WHERE %[3]s AND u.expires_at > $%[1]d ORDER BY u.id, l.id`, len(args)-1, len(args), where)
	err = s.query(ctx, text, args, func(scan scanFunc) error {
		var id, thread, listID, key, data []byte
		var begun, expires, bytes, objects int64
		if err := scan(&id, &thread, &begun, &expires, &bytes, &objects, &listID, &key, &data); err != nil {
			return err
		}
		if n := len(list); n == 0 || list[n-1].ID != string(id) {
			list = append(list, meta.ContentUpload{ID: string(id), Thread: string(thread), Begun: timeOf(begun), Expires: timeOf(expires)})
		}
		if len(listID) == 0 {
			return nil
		}
		l := meta.ContentList{Key: string(key), Data: data, Bytes: bytes, Objects: objects}
		var err error
		l.ID, err = contentID(listID)
		u := &list[len(list)-1]
		u.Lists = append(u.Lists, l)
		return err
	})
	return list, err
}

// ContentUpload implements meta.Store.
func (s *Store) ContentUpload(ctx context.Context, org meta.OrgID, id string) (meta.ContentUpload, error) {
	list, err := s.contentUploads(ctx, `u.org = $1 AND u.id = $2`, org, id)
	if err == nil && len(list) == 0 {
		err = meta.ErrNotFound
	}
	if err != nil {
		return meta.ContentUpload{}, err
	}
	return list[0], nil
}

// ContentUploads implements meta.Store.
func (s *Store) ContentUploads(ctx context.Context, org meta.OrgID) ([]meta.ContentUpload, error) {
	return s.contentUploads(ctx, `u.org = $1`, org)
}

// ContentOrgs implements meta.Store.
func (s *Store) ContentOrgs(ctx context.Context, after meta.OrgID, limit int) ([]meta.OrgID, error) {
	var orgs []meta.OrgID
	const text = `SELECT org FROM content_orgs WHERE org > $1 ORDER BY org LIMIT $2`
	err := s.query(ctx, text, []any{after, limit}, func(scan scanFunc) error {
		var org int64
		err := scan(&org)
		orgs = append(orgs, meta.OrgID(org))
		return err
	})
	return orgs, err
}

// LiveContentKeys implements meta.Store.
func (s *Store) LiveContentKeys(ctx context.Context, yield func(key string, bytes int64) error) error {
	for _, table := range [...]string{"content_packs", "content_indexes", "content_lists"} {
		err := s.query(ctx, `SELECT bytes, blob_key FROM `+table+` WHERE blob_key <> $1`, []any{[]byte{}}, func(scan scanFunc) error {
			var bytes int64
			var key []byte
			if err := scan(&bytes, &key); err != nil {
				return err
			}
			return yield(string(key), bytes)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

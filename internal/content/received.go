package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

func compareDigests(a, b tree.Digest) int { return bytes.Compare(a[:], b[:]) }

const (
	// inlineList is up to how many bytes a list of digests is a row.
	inlineList = 64 << 10
	// maxLists is after how many lists of an upload some are put together.
	maxLists = 32
)

// Received are the digests that an upload has received, those also that the org
// had before.
type Received struct {
	store *Store
	lists []*table
}

// Received returns what an upload of a thread has received so far. It is
// ErrUpload when there is no such upload, or it has expired.
func (s *Store) Received(ctx context.Context, org meta.OrgID, thread, id string) (*Received, error) {
	row, err := s.cfg.Meta.ContentUpload(ctx, org, id)
	if errors.Is(err, meta.ErrNotFound) || err == nil && row.Thread != thread {
		return nil, ErrUpload
	}
	if err != nil {
		return nil, fmt.Errorf("read upload %q: %w", id, err)
	}
	r := &Received{store: s}
	for i := range row.Lists {
		t, err := s.openList(ctx, &row.Lists[i])
		if err != nil {
			return nil, err
		}
		r.lists = append(r.lists, t)
	}
	return r, nil
}

// Has reports whether the upload has received an object.
func (r *Received) Has(ctx context.Context, d tree.Digest) (bool, error) {
	ctx, done, err := r.store.cfg.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	for _, t := range r.lists {
		if ok, err := t.has(ctx, d); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func (s *Store) openList(ctx context.Context, l *meta.ContentList) (*table, error) {
	if l.Key != "" {
		if t, ok := s.tables.Get(l.ID); ok {
			return t, nil
		}
		t, err := openTable(ctx, l.ID, listMagic, l.Bytes, s.blocks, s.reader(s.cfg.Blobs, l.Key, l.Bytes, 0))
		if err != nil {
			return nil, fmt.Errorf("list %s of an upload: %w", l.ID, err)
		}
		s.tables.Put(l.ID, t, t.weight())
		return t, nil
	}
	data := l.Data
	t, err := openTable(ctx, l.ID, listMagic, int64(len(data)), nil, func(_ context.Context, p []byte, off int64) error {
		copy(p, data[off:])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s of an upload: %w", l.ID, err)
	}
	return t, nil
}

// addList stores a list of digests for an upload. When it has many lists, the new
// one takes in those that are not much larger than it, so that each digest is
// copied a few times. A large list is a blob that nothing names yet.
func (s *Store) addList(ctx context.Context, org meta.OrgID, id string, digests []tree.Digest) (*meta.ContentList, []meta.ContentID, error) {
	row, err := s.cfg.Meta.ContentUpload(ctx, org, id)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return nil, nil, fmt.Errorf("read upload %q: %w", id, err)
	}
	var replaces []meta.ContentID
	if len(row.Lists) >= maxLists {
		var old []*table
		for _, i := range smallTail(row.Lists, int64(len(digests)), func(l *meta.ContentList) int64 { return l.Objects }) {
			t, err := s.openList(ctx, &row.Lists[i])
			if err != nil {
				return nil, nil, err
			}
			old = append(old, t)
			replaces = append(replaces, row.Lists[i].ID)
		}
		if digests, err = unite(ctx, digests, old); err != nil {
			return nil, nil, err
		}
	}
	var b bytes.Buffer
	_, err = writeTable(&b, nil, func(fn func(*record) error) error {
		for _, d := range digests {
			if err := fn(&record{digest: d}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	l := &meta.ContentList{ID: newID(), Bytes: int64(b.Len()), Objects: int64(len(digests))}
	if b.Len() <= inlineList {
		l.Data = b.Bytes()
		return l, replaces, nil
	}
	l.Key = keyOf(l.ID, listSuffix)
	if err := s.name(ctx, l.Key); err != nil {
		return nil, nil, err
	}
	if err := s.cfg.Blobs.Put(ctx, blob.Key(l.Key), &b, l.Bytes); err != nil {
		s.drop(ctx, l.Key)
		return nil, nil, fmt.Errorf("store the list of an upload: %w", err)
	}
	return l, replaces, nil
}

// unite returns digests and those of some lists, in order, each once.
func unite(ctx context.Context, digests []tree.Digest, lists []*table) ([]tree.Digest, error) {
	set := make(map[tree.Digest]struct{}, len(digests))
	for _, d := range digests {
		set[d] = struct{}{}
	}
	for _, t := range lists {
		err := t.each(ctx, func(_ int, r *record) error {
			set[r.digest] = struct{}{}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return sortedSet(set), nil
}

package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// maxRefresh bounds how often a look-up begins anew because what it looked into
// was replaced meanwhile.
const maxRefresh = 8

// view is an org's packs and index files at one version. It is immutable.
type view struct {
	store      *Store
	org        meta.OrgID
	version    int64
	generation int64
	parts      []part
	// unreadable are packs whose tables are damaged: nothing is found in them.
	unreadable []meta.ContentPack
	weight     int64
}

// part is a table with the states of its packs.
type part struct {
	*table
	states []meta.ContentState // by number; 0 for a pack that is gone
	inline []byte              // of a small pack: all its bytes
}

// location is where an object was found.
type location struct {
	place
	id     meta.ContentID
	state  meta.ContentState
	inline []byte
	part   int
	pos    int
}

// view returns the org's content as it is now.
func (s *Store) view(ctx context.Context, org meta.OrgID) (*view, error) {
	now, err := s.cfg.Meta.ContentVersion(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read the version of stored objects: %w", err)
	}
	if v, ok := s.views.Get(org); ok && v.version >= now.Version {
		return v, nil
	}
	got, err, _ := s.flights.Do(fmt.Sprintf("view %d %d", org, now.Version), func() (any, error) {
		// Others may wait for this flight: one caller's end must not fail them.
		return s.openView(context.WithoutCancel(ctx), org)
	})
	if err != nil {
		return nil, err
	}
	return got.(*view), nil
}

// openView reads an org's content anew, again while it changes under the read.
func (s *Store) openView(ctx context.Context, org meta.OrgID) (v *view, err error) {
	for range maxRefresh {
		var rows meta.ContentView
		if rows, err = s.cfg.Meta.ContentView(ctx, org); err != nil {
			return nil, fmt.Errorf("read where objects are stored: %w", err)
		}
		v, err = s.makeView(ctx, org, &rows)
		if err == nil && len(v.unreadable) == 0 {
			s.views.Put(org, v, v.weight)
			return v, nil
		}
		now, again := s.cfg.Meta.ContentVersion(ctx, org)
		if again != nil {
			return nil, errors.Join(err, again)
		}
		if now.Version == rows.Version {
			break // what is named is not there
		}
	}
	if err != nil {
		if corrupt(err) {
			s.figures.corrupt.Add(1)
			s.wake(org)
		}
		return nil, err
	}
	for i := range v.unreadable {
		if p := &v.unreadable[i]; p.State != meta.ContentDamaged {
			s.suspect(org, p.ID)
		}
	}
	s.views.Put(org, v, v.weight)
	return v, nil
}

// corrupt reports whether err says that what meta names is damaged or absent.
func corrupt(err error) bool {
	var damage *TableError
	return errors.As(err, &damage) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, blob.ErrNotFound) || errors.Is(err, meta.ErrNotFound)
}

// stale reports whether an error may be due to a view that is old by now, and
// forgets the view then.
func (s *Store) stale(org meta.OrgID, err error) bool {
	if !corrupt(err) {
		return false
	}
	s.views.Remove(org)
	return true
}

func (s *Store) makeView(ctx context.Context, org meta.OrgID, rows *meta.ContentView) (*view, error) {
	v := &view{store: s, org: org, version: rows.Version, generation: rows.Generation, weight: 256}
	apart := make(map[meta.ContentID]meta.ContentState)
	small := s.knownSmall(org)
	for i := range rows.Packs {
		p := &rows.Packs[i]
		if p.Index != (meta.ContentID{}) {
			apart[p.ID] = p.State
			continue
		}
		t, known := small[p.ID]
		var err error
		if !known {
			t, err = s.packTable(ctx, p)
		}
		if corrupt(err) {
			v.unreadable = append(v.unreadable, *p)
			continue
		}
		if err != nil {
			return nil, err
		}
		t.states = []meta.ContentState{p.State}
		v.parts = append(v.parts, t)
		v.weight += t.weight() + int64(len(t.inline))
	}
	for i := range rows.Indexes {
		t, err := s.indexTable(ctx, &rows.Indexes[i])
		if err != nil {
			return nil, err
		}
		p := part{table: t, states: make([]meta.ContentState, t.packs)}
		for k := range p.states {
			p.states[k] = meta.ContentLive
		}
		for id, state := range apart {
			if k, ok := t.number(id); ok {
				p.states[k] = state
			}
		}
		for _, id := range rows.Indexes[i].Dead {
			if k, ok := t.number(id); ok {
				p.states[k] = 0
			}
		}
		v.parts = append(v.parts, p)
		v.weight += t.weight() + int64(len(p.states))
	}
	return v, nil
}

// knownSmall returns the small packs that the last view of an org had: what is in
// them does not change.
func (s *Store) knownSmall(org meta.OrgID) map[meta.ContentID]part {
	small := make(map[meta.ContentID]part)
	if v, ok := s.views.Get(org); ok {
		for i := range v.parts {
			if p := &v.parts[i]; p.inline != nil {
				small[p.id] = *p
			}
		}
	}
	return small
}

// number returns a pack's number in the table.
func (t *table) number(id meta.ContentID) (int, bool) {
	k := sort.Search(len(t.ids), func(k int) bool { return bytes.Compare(t.ids[k][:], id[:]) >= 0 })
	return k, k < len(t.ids) && t.ids[k] == id
}

// packTable opens the table of a pack.
func (s *Store) packTable(ctx context.Context, p *meta.ContentPack) (part, error) {
	size := p.Bytes - packTrailer - p.TableAt
	if p.Key != "" {
		if t, ok := s.tables.Get(p.ID); ok {
			return part{table: t}, nil
		}
		t, err := openTable(ctx, p.ID, indexMagic, size, s.blocks, s.reader(s.cfg.Packs, p.Key, p.Bytes, p.TableAt))
		if err != nil {
			return part{}, fmt.Errorf("pack %s: %w", p.ID, err)
		}
		if err := t.isOf(p.ID); err != nil {
			return part{}, err
		}
		s.tables.Put(p.ID, t, t.weight())
		return part{table: t}, nil
	}
	data, err := s.cfg.Meta.ContentData(ctx, p.Org, p.ID)
	if err != nil {
		return part{}, fmt.Errorf("read small pack %s: %w", p.ID, err)
	}
	if int64(len(data)) != p.Bytes || p.TableAt < packHeader || size < 0 {
		return part{}, damaged("small pack %s has %d bytes where its row says %d", p.ID, len(data), p.Bytes)
	}
	own := data[p.TableAt : p.TableAt+size]
	t, err := openTable(ctx, p.ID, indexMagic, size, nil, func(_ context.Context, b []byte, off int64) error {
		copy(b, own[off:])
		return nil
	})
	if err != nil {
		return part{}, fmt.Errorf("small pack %s: %w", p.ID, err)
	}
	if err := t.isOf(p.ID); err != nil {
		return part{}, err
	}
	return part{table: t, inline: data}, nil
}

// isOf checks that the table is that of one pack.
func (t *table) isOf(id meta.ContentID) error {
	if t.packs != 1 || t.ids[0] != id {
		return damaged("pack %s has the table of another", id)
	}
	return nil
}

func (s *Store) indexTable(ctx context.Context, x *meta.ContentIndex) (*table, error) {
	if t, ok := s.tables.Get(x.ID); ok {
		return t, nil
	}
	t, err := openTable(ctx, x.ID, indexMagic, x.Bytes, s.blocks, s.reader(s.cfg.Blobs, x.Key, x.Bytes, 0))
	if err != nil {
		return nil, fmt.Errorf("index file %s: %w", x.ID, err)
	}
	s.tables.Put(x.ID, t, t.weight())
	return t, nil
}

// reader returns what reads from a blob, beginning at base.
func (s *Store) reader(blobs blob.Store, key string, size, base int64) func(context.Context, []byte, int64) error {
	return func(ctx context.Context, p []byte, off int64) error {
		o, err := blob.MustOpen(ctx, blobs, blob.Key(key), size)
		if err != nil {
			return err
		}
		defer o.Close()
		return readFull(o, p, base+off)
	}
}

// readFull fills p from an object.
func readFull(o blob.Object, p []byte, off int64) error {
	if n, err := o.ReadAt(p, off); n < len(p) {
		return fmt.Errorf("read %d bytes at %d, got %d: %w", len(p), off, n, err)
	}
	return nil
}

// find calls fn with each place of an object in packs that are there, until it
// returns false.
func (v *view) find(ctx context.Context, d tree.Digest, fn func(l *location) bool) error {
	for i := range v.parts {
		p, more := &v.parts[i], true
		err := p.find(ctx, d, func(pos int, at place) bool {
			if state := p.states[at.pack]; state != 0 {
				more = fn(&location{place: at, id: p.ids[at.pack], state: state, inline: p.inline, part: i, pos: pos})
			}
			return more
		})
		if err != nil {
			if !v.skip(p, err) {
				return err
			}
			continue
		}
		if !more {
			return nil
		}
	}
	return nil
}

// skip reports whether one can do without a table that was found damaged: that of
// one pack, whose objects count as missing then. An index file is made anew.
func (v *view) skip(p *part, err error) bool {
	if !corrupt(err) {
		return false
	}
	if p.packs == 1 && p.ids[0] == p.id {
		v.store.suspect(v.org, p.id)
		return true
	}
	v.store.distrust(v.org, p.id)
	return false
}

// has reports whether a live pack has an object.
func (v *view) has(ctx context.Context, d tree.Digest) (found bool, err error) {
	err = v.find(ctx, d, func(l *location) bool {
		found = l.state == meta.ContentLive
		return !found
	})
	return found, err
}

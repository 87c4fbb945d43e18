package content

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
)

// slack is the share of dead bytes, in percent, that may stay in packs of which
// more is alive.
const slack = 8

// Swept counts what a sweep found and did, in stored bytes.
type Swept struct {
	Objects   int64 // that are stored, copies included
	Live      int64 // of them referred to
	Bytes     int64 // of packs that were not condemned before
	DeadBytes int64 // of objects in them that nothing refers to
	Condemned int   // packs
	Rescued   int   // packs that were condemned and are needed
	Removed   int   // packs
	Freed     int64 // bytes of them
	// Missing counts objects that something refers to and no pack has whole. While
	// one of them may itself refer to others, nothing is condemned or removed.
	Missing int64
	Hidden  bool
}

// usage is a pack with what is alive in it.
type usage struct {
	id    meta.ContentID
	state meta.ContentState
	live  int64
	total int64
}

// Sweep removes what nothing refers to, in two steps. A pack with much that is dead
// is condemned: what is alive in it is copied, and the rest counts as missing, so
// that a Change that relied on it is refused, or was committed before. The next
// sweep looks again for what refers to it, copies that too, and removes the pack.
// Bytes go when no operation can be reading them. Objects that an upload has
// received count as referred to until it ends or expires.
func (s *Store) Sweep(ctx context.Context, org meta.OrgID, roots Roots) (res Swept, err error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return res, err
	}
	defer done()
	if err := s.apply(ctx, org, &meta.ContentChange{ExpireUploads: true}); err != nil {
		return res, err
	}
	m, packs, err := s.survey(ctx, org, roots, &res)
	if corrupt(err) {
		// An index file is damaged: it can be made anew.
		if _, err := s.Tidy(ctx, org); err != nil {
			return res, err
		}
		m, packs, err = s.survey(ctx, org, roots, &res)
	}
	if err != nil {
		return res, err
	}
	if res.Missing, res.Hidden = m.lost, m.hidden; m.hidden {
		return res, nil
	}
	for i := range packs {
		if p := &packs[i]; p.state != meta.ContentLive {
			if err := m.settle(ctx, p, &res); err != nil {
				return res, err
			}
		}
	}
	if err := m.dropUnreadable(ctx, &res); err != nil {
		return res, err
	}
	res.Condemned, err = m.condemnAll(ctx, wasteful(packs))
	if res.Condemned > 0 {
		s.wake(org)
	}
	return res, err
}

// Survey says what a sweep would find, and changes nothing. Packs that it would
// condemn are those that Condemned counts.
func (s *Store) Survey(ctx context.Context, org meta.OrgID, roots Roots) (res Swept, err error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return res, err
	}
	defer done()
	m, packs, err := s.survey(ctx, org, roots, &res)
	if err != nil {
		return res, err
	}
	if res.Missing, res.Hidden = m.lost, m.hidden; !m.hidden {
		res.Condemned = len(wasteful(packs))
	}
	return res, nil
}

// survey finds out what is alive in each pack of an org.
func (s *Store) survey(ctx context.Context, org meta.OrgID, roots Roots, res *Swept) (*marker, []usage, error) {
	*res = Swept{}
	v, err := s.view(ctx, org)
	if err != nil {
		return nil, nil, err
	}
	m := s.newMarker(v)
	if err := m.markAll(ctx, roots); err != nil {
		return nil, nil, err
	}
	packs, err := m.usage(ctx, res)
	return m, packs, err
}

// usage sums up what is alive in each pack.
func (m *marker) usage(ctx context.Context, res *Swept) ([]usage, error) {
	byID := make(map[meta.ContentID]*usage)
	for i := range m.view.parts {
		p := &m.view.parts[i]
		err := p.each(ctx, func(pos int, r *record) error {
			if p.states[r.pack] == 0 {
				return nil
			}
			u := byID[p.ids[r.pack]]
			if u == nil {
				u = &usage{id: p.ids[r.pack], state: p.states[r.pack]}
				byID[u.id] = u
			}
			// With what it takes in the table.
			size := r.share() + int64(digestSize+placeSize)
			u.total += size
			res.Objects++
			if m.live[i].has(pos) {
				res.Live++
				u.live += size
			}
			return nil
		})
		if err != nil && !m.view.skip(p, err) {
			return nil, err
		}
		if err != nil {
			delete(byID, p.id)
			m.unreadable = append(m.unreadable, meta.ContentPack{ID: p.id, State: p.states[0]})
		}
	}
	packs := make([]usage, 0, len(byID))
	for _, u := range byID {
		packs = append(packs, *u)
		if u.state == meta.ContentLive {
			res.Bytes += u.total
			res.DeadBytes += u.total - u.live
		}
	}
	return packs, nil
}

// wasteful returns the live packs that are to go: those of which most is dead, and
// of the others the worst, until little that is dead is left in all.
func wasteful(packs []usage) []*usage {
	var list []*usage
	total, dead := int64(0), int64(0)
	for i := range packs {
		p := &packs[i]
		if p.state != meta.ContentLive {
			continue
		}
		total, dead = total+p.total, dead+p.total-p.live
		if p.live < p.total {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *usage) int {
		return cmp.Compare(float64(a.live)/float64(a.total), float64(b.live)/float64(b.total))
	})
	for i, p := range list {
		if p.live*2 > p.total && dead*100 <= total*slack {
			return list[:i]
		}
		dead, total = dead-(p.total-p.live), total-(p.total-p.live)
	}
	return list
}

// condemnGroup is how many packs are condemned in one Change, so that the generation
// rises seldom.
const condemnGroup = 64

// condemnAll condemns packs, those of a group one by one if one of it is not as it
// was. It returns how many.
func (m *marker) condemnAll(ctx context.Context, packs []*usage) (n int, err error) {
	for group := range slices.Chunk(packs, condemnGroup) {
		done, err := m.condemn(ctx, group)
		if done == 0 && err == nil && len(group) > 1 {
			for i := range group {
				one, err := m.condemn(ctx, group[i:i+1])
				if err != nil {
					return n, err
				}
				done += one
			}
		}
		if n += done; err != nil {
			return n, err
		}
	}
	return n, nil
}

// condemn copies what is alive in packs and condemns them, all or none of those that
// can be read, and returns how many.
func (m *marker) condemn(ctx context.Context, packs []*usage) (int, error) {
	p := &packer{store: m.store}
	defer p.abort(ctx)
	c := meta.ContentChange{}
	for _, u := range packs {
		if u.live > 0 {
			row, ok, err := m.store.row(ctx, m.view.org, u.id)
			if err != nil {
				return 0, err
			}
			if !ok {
				continue
			}
			if ok, err = m.rescue(ctx, p, row); err != nil {
				return 0, err
			}
			if !ok {
				continue
			}
		}
		c.SetPacks = append(c.SetPacks, meta.ContentPackState{ID: u.id, From: meta.ContentLive, To: meta.ContentCondemned})
	}
	if len(c.SetPacks) == 0 {
		return 0, nil
	}
	ok, err := m.store.replace(ctx, m.view.org, p, c)
	if !ok || err != nil {
		return 0, err
	}
	return len(c.SetPacks), nil
}

// rescue copies the objects of a pack that are alive there. It reports false when
// one of them cannot be read: the pack stays.
func (m *marker) rescue(ctx context.Context, p *packer, row *meta.ContentPack) (bool, error) {
	objects, err := m.store.contents(ctx, row)
	if corrupt(err) {
		m.store.suspect(row.Org, row.ID)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var alive []found
	for i := range objects {
		at, err := m.view.best(ctx, objects[i].digest)
		if err != nil {
			return false, err
		}
		if at != nil && at.id == row.ID && m.live[at.part].has(at.pos) {
			alive = append(alive, objects[i])
		}
	}
	broken, err := m.store.copyObjects(ctx, p, alive)
	if len(broken) > 0 {
		m.store.suspect(row.Org, row.ID)
	}
	return len(broken) == 0, err
}

// settle removes a pack that is condemned, after it has copied what is referred to:
// such a pack never becomes live again, so that whoever has seen it condemned knows
// what it is. A damaged one goes once nothing refers to what only it has.
func (m *marker) settle(ctx context.Context, u *usage, res *Swept) error {
	s, org := m.store, m.view.org
	row, ok, err := s.row(ctx, org, u.id)
	if !ok || err != nil {
		return err
	}
	p := &packer{store: s}
	defer p.abort(ctx)
	c := meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: u.id, From: u.state}}}
	switch {
	case u.live == 0:
	case u.state == meta.ContentDamaged:
		return nil
	default:
		if ok, err := m.rescue(ctx, p, row); !ok || err != nil {
			return err
		}
	}
	ok, err = s.replace(ctx, org, p, c)
	if !ok || err != nil {
		return err
	}
	if u.live > 0 {
		res.Rescued++
	}
	res.Removed++
	res.Freed += row.Bytes
	return nil
}

// dropUnreadable removes damaged packs of which nothing can be found, once nothing
// is missing that could have been in them.
func (m *marker) dropUnreadable(ctx context.Context, res *Swept) error {
	if m.lost > 0 {
		return nil
	}
	for _, p := range append(m.unreadable, m.view.unreadable...) {
		if p.State != meta.ContentDamaged {
			continue
		}
		ok, err := m.store.replace(ctx, m.view.org, &packer{store: m.store}, meta.ContentChange{
			RemovePacks: []meta.ContentPackState{{ID: p.ID, From: p.State}},
		})
		if err != nil {
			return err
		}
		if ok {
			res.Removed++
			res.Freed += p.Bytes
		}
	}
	return nil
}

// row reads a pack's row; false when the pack is gone.
func (s *Store) row(ctx context.Context, org meta.OrgID, id meta.ContentID) (*meta.ContentPack, bool, error) {
	row, err := s.cfg.Meta.ContentPack(ctx, org, id)
	if err != nil {
		if corrupt(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("read pack %s: %w", id, err)
	}
	return &row, true, nil
}

package content

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	// maxApart is how many packs without an index file there may be before small
	// ones are put together.
	maxApart = 32
	// maxUncovered is how many large ones there may be before they get an index file.
	maxUncovered = 16
	// foldBelow is below which size a pack counts as small.
	foldBelow = 16 << 20
	// foldBytes bounds what is put together at a time.
	foldBytes = 256 << 20
	// foldPacks is how many small packs are looked at.
	foldPacks = 1024
)

// Tidied counts what Tidy did.
type Tidied struct {
	Folded  int // small packs that were put together
	Packs   int // that were made of them
	Indexed int // packs that got an index file
	Indexes int // index files that were put together, or made anew
}

// Tidy keeps the number of packs and index files of an org small, if that is due:
// small packs are put together, and packs and index files get a new index file, so
// that each object is copied a few times however many there are. An index file
// that is damaged is made anew from its packs. It may run anywhere beside all else.
func (s *Store) Tidy(ctx context.Context, org meta.OrgID) (t Tidied, err error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return t, err
	}
	defer done()
	rows, err := s.rows(ctx, org)
	if err != nil {
		return t, err
	}
	if err := s.repairIndexes(ctx, org, rows, &t); err != nil {
		return t, err
	}
	if len(uncovered(rows)) > maxApart {
		if err := s.fold(ctx, org, &t); err != nil {
			return t, err
		}
		if rows, err = s.rows(ctx, org); err != nil {
			return t, err
		}
	}
	return t, s.index(ctx, org, rows, &t)
}

func (s *Store) rows(ctx context.Context, org meta.OrgID) (*meta.ContentView, error) {
	rows, err := s.cfg.Meta.ContentView(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read where objects are stored: %w", err)
	}
	return &rows, nil
}

// uncovered returns the live packs that no index file has.
func uncovered(rows *meta.ContentView) []meta.ContentPack {
	return slices.DeleteFunc(slices.Clone(rows.Packs), func(p meta.ContentPack) bool {
		return p.State != meta.ContentLive || p.Index != (meta.ContentID{})
	})
}

// fold puts small packs together.
func (s *Store) fold(ctx context.Context, org meta.OrgID, t *Tidied) error {
	small, err := s.cfg.Meta.SmallContentPacks(ctx, org, foldBelow, foldPacks)
	if err != nil {
		return fmt.Errorf("read small packs: %w", err)
	}
	p := &packer{store: s}
	defer p.abort(ctx)
	seen := make(map[tree.Digest]struct{})
	var remove []meta.ContentPackState
	total := int64(0)
	for _, i := range smallTail(small, 0, func(p *meta.ContentPack) int64 { return p.Bytes }) {
		row := &small[i]
		if total += row.Bytes; total > foldBytes {
			break
		}
		objects, err := s.contents(ctx, row)
		if err != nil && !corrupt(err) {
			return err
		}
		if err == nil {
			objects = slices.DeleteFunc(objects, func(f found) bool { _, ok := seen[f.digest]; return ok })
			var broken []found
			if broken, err = s.copyObjects(ctx, p, objects); err != nil {
				return err
			}
			if len(broken) == 0 {
				for i := range objects {
					seen[objects[i].digest] = struct{}{}
				}
				remove = append(remove, meta.ContentPackState{ID: row.ID, From: meta.ContentLive})
				continue
			}
		}
		s.suspect(org, row.ID) // it stays, and what was copied of it is there twice
	}
	if len(remove) < 2 {
		return nil
	}
	if err := p.finish(ctx); err != nil {
		return err
	}
	made := len(p.finished)
	ok, err := s.replace(ctx, org, p, meta.ContentChange{RemovePacks: remove, Moved: true})
	if ok {
		t.Folded, t.Packs = t.Folded+len(remove), t.Packs+made
	}
	return err
}

// index makes an index file of the packs that have none, and of those index files
// that are not much larger.
func (s *Store) index(ctx context.Context, org meta.OrgID, rows *meta.ContentView, t *Tidied) error {
	packs := slices.DeleteFunc(uncovered(rows), func(p meta.ContentPack) bool { return p.Key == "" })
	var wasteful []int
	for i := range rows.Indexes {
		if x := &rows.Indexes[i]; int64(len(x.Dead))*2 > x.Packs {
			wasteful = append(wasteful, i)
		}
	}
	if len(packs) < maxUncovered && len(wasteful) == 0 {
		return nil
	}
	var from []merged
	write := &meta.ContentIndexWrite{}
	added := int64(0)
	for i := range packs {
		part, err := s.packTable(ctx, &packs[i])
		if corrupt(err) {
			s.suspect(org, packs[i].ID)
			continue
		}
		if err != nil {
			return err
		}
		from = append(from, merged{table: part.table})
		write.Covers = append(write.Covers, packs[i].ID)
		added += packs[i].Objects
	}
	for _, i := range smallTail(rows.Indexes, added, func(x *meta.ContentIndex) int64 { return x.Objects }) {
		if !slices.Contains(wasteful, i) {
			wasteful = append(wasteful, i)
		}
	}
	for _, i := range wasteful {
		x := &rows.Indexes[i]
		table, err := s.indexTable(ctx, x)
		if err != nil {
			return err
		}
		from = append(from, merged{table, setOf(x.Dead)})
		write.Replaces = append(write.Replaces, meta.ContentIndexSeen{ID: x.ID, Dead: len(x.Dead)})
	}
	if len(from) == 0 {
		return nil
	}
	ok, err := s.addIndex(ctx, org, from, write)
	if ok {
		t.Indexed, t.Indexes = t.Indexed+len(write.Covers), t.Indexes+len(write.Replaces)
	}
	return err
}

// addIndex makes an index file and adds it in place of others. It reports false
// when it was refused, because others were faster.
func (s *Store) addIndex(ctx context.Context, org meta.OrgID, from []merged, write *meta.ContentIndexWrite) (bool, error) {
	x, err := s.mergeTables(ctx, from)
	if err != nil {
		return false, err
	}
	write.ContentIndex = *x
	err = s.apply(ctx, org, &meta.ContentChange{AddIndex: write})
	if err == nil {
		return true, nil
	}
	if refused(err, meta.ConflictContent, meta.ConflictUpload) {
		s.drop(ctx, x.Key)
		return false, nil
	}
	if errors.Is(err, meta.ErrNotApplied) {
		s.drop(ctx, x.Key)
	}
	return false, err
}

// repairIndexes makes index files anew that cannot be read.
func (s *Store) repairIndexes(ctx context.Context, org meta.OrgID, rows *meta.ContentView, t *Tidied) error {
	for i := range rows.Indexes {
		x := &rows.Indexes[i]
		table, err := s.indexTable(ctx, x)
		if _, ok := s.distrusted.Load(x.ID); ok && err == nil {
			err = table.each(ctx, func(int, *record) error { return nil })
		}
		if err != nil && !corrupt(err) {
			return err
		}
		if err != nil {
			if err := s.repairIndex(ctx, org, x, t); err != nil {
				return err
			}
		}
		s.distrusted.Delete(x.ID)
	}
	return nil
}

// repairIndex makes an index file anew from the tables of its packs.
func (s *Store) repairIndex(ctx context.Context, org meta.OrgID, x *meta.ContentIndex, t *Tidied) error {
	var from []merged
	for after := (meta.ContentID{}); ; {
		packs, err := s.cfg.Meta.ContentPacks(ctx, org, after, pageOfPacks)
		if err != nil {
			return fmt.Errorf("read packs: %w", err)
		}
		for i := range packs {
			if after = packs[i].ID; packs[i].Index != x.ID {
				continue
			}
			part, err := s.packTable(ctx, &packs[i])
			if corrupt(err) {
				s.suspect(org, packs[i].ID)
				continue
			}
			if err != nil {
				return err
			}
			from = append(from, merged{table: part.table})
		}
		if len(packs) < pageOfPacks {
			break
		}
	}
	ok, err := s.addIndex(ctx, org, from, &meta.ContentIndexWrite{Replaces: []meta.ContentIndexSeen{{ID: x.ID, Dead: len(x.Dead)}}})
	if ok {
		t.Indexes++
	}
	return err
}

// pageOfPacks is how many rows are read at a time.
const pageOfPacks = 1000

func setOf(ids []meta.ContentID) map[meta.ContentID]bool {
	set := make(map[meta.ContentID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

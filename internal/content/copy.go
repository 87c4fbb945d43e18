package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// contents returns the objects of a pack in the order in which they lie, as its
// own table has them.
func (s *Store) contents(ctx context.Context, row *meta.ContentPack) ([]found, error) {
	t, err := s.packTable(ctx, row)
	if err != nil {
		return nil, err
	}
	list := make([]found, 0, t.records)
	err = t.each(ctx, func(_ int, r *record) error {
		list = append(list, found{r.digest, location{place: r.place, id: row.ID, state: row.State, inline: t.inline}})
		return nil
	})
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.offset, b.offset) })
	return list, err
}

// copyObjects puts objects of one pack into others, as they are stored, in the
// order in which they lie. Each is checked first; those that are not whole are
// returned.
func (s *Store) copyObjects(ctx context.Context, to *packer, objects []found) (broken []found, err error) {
	objects = slices.Clone(objects)
	for _, sp := range spans(objects) {
		held := buffers.Get().(*[]byte)
		b, err := s.readRange(ctx, &sp, held)
		if err != nil && !corrupt(err) {
			buffers.Put(held)
			return broken, err
		}
		if err != nil {
			broken = append(broken, sp.objects...)
			buffers.Put(held)
			continue
		}
		bad, err := s.copySpan(ctx, to, &sp, b)
		buffers.Put(held)
		if broken = append(broken, bad...); err != nil {
			return broken, err
		}
	}
	return broken, nil
}

func (s *Store) copySpan(ctx context.Context, to *packer, sp *span, b []byte) (broken []found, err error) {
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	for i := range sp.objects {
		p := &sp.objects[i]
		at := int64(p.offset) - sp.from
		e := encoded{digest: p.digest, kind: p.kind, enc: p.enc, raw: int(p.raw), bytes: b[at : at+int64(p.length)]}
		if err := c.verify(&e); err != nil {
			broken = append(broken, *p)
			continue
		}
		if to == nil {
			continue
		}
		if err := to.add(ctx, &e); err != nil {
			return broken, err
		}
	}
	return broken, context.Cause(ctx)
}

// verify checks that an object is what its digest names.
func (c *codec) verify(e *encoded) error {
	var err error
	if c.plain, err = c.decompress(c.plain[:0], e); err != nil {
		return err
	}
	if tree.Sum(c.plain) != e.digest {
		return &tree.CorruptError{Digest: e.digest}
	}
	if cap(c.plain) > spanBytes {
		c.plain = nil
	}
	return nil
}

// replace applies a Change that puts the packs of p in the place of others. It is
// done by others when it is refused: then it reports false.
func (s *Store) replace(ctx context.Context, org meta.OrgID, p *packer, c meta.ContentChange) (bool, error) {
	if err := p.finish(ctx); err != nil {
		return false, err
	}
	c.AddPacks = p.finished
	err := s.apply(ctx, org, &c)
	switch {
	case err == nil:
		p.finished = nil
		return true, nil
	case refused(err, meta.ConflictContent, meta.ConflictGeneration, meta.ConflictUpload):
		return false, nil
	case errors.Is(err, meta.ErrNotApplied):
	default:
		p.finished = nil // whether they are named is unknown: they stay
	}
	return false, fmt.Errorf("replace packs: %w", err)
}

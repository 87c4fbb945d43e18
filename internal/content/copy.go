package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/frame"
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
	slices.SortFunc(list, compareFound)
	return list, err
}

// recover returns the objects that are whole in a pack whose table is damaged: it
// reads one after the other until one cannot be made out.
func (s *Store) recover(ctx context.Context, row *meta.ContentPack) ([]found, error) {
	size := row.Bytes
	var inline []byte
	var o blob.Object
	var err error
	if row.Key == "" {
		if inline, err = s.cfg.Meta.ContentData(ctx, row.Org, row.ID); err == nil {
			size = int64(len(inline))
		}
	} else if o, err = s.cfg.Packs.Open(ctx, blob.Key(row.Key)); err == nil {
		defer o.Close()
		size = min(size, o.Size())
	}
	if corrupt(err) {
		return nil, nil // nothing is left
	}
	if err != nil {
		return nil, fmt.Errorf("read pack %s: %w", row.ID, err)
	}
	var r io.ReaderAt = o
	if inline != nil {
		r = bytes.NewReader(inline)
	}
	var list []found
	var b, plain []byte
	seen := make(map[tree.Digest]bool) // what a group has in vain may be there twice
	for at := int64(packHeader); at < min(size, row.TableAt); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		g, n, err := groupAt(r, at, size, &b)
		if err != nil && !corrupt(err) {
			return nil, fmt.Errorf("read pack %s: %w", row.ID, err)
		}
		if err != nil {
			break
		}
		at += n
		if plain, err = frame.Decompress(plain[:0], g.Encoding, g.Bytes, g.Length); err != nil {
			continue
		}
		p := place{offset: uint32(at - int64(len(g.Bytes))), length: uint32(len(g.Bytes)), total: uint32(g.Length), enc: g.Encoding}
		for i := range g.Members {
			p.raw, p.kind = uint32(g.Members[i].Length), g.Members[i].Kind
			if d := tree.Sum(plain[p.at : p.at+p.raw]); !seen[d] {
				seen[d] = true
				list = append(list, found{d, location{place: p, id: row.ID, state: row.State, inline: inline}})
			}
			p.at += p.raw
		}
	}
	return list, nil
}

// groupAt reads the group that begins at a place of a pack, and says how long it
// is. b is used again.
func groupAt(r io.ReaderAt, at, size int64, b *[]byte) (g frame.Group, n int64, err error) {
	*b = slices.Grow((*b)[:0], groupHeader)[:min(groupHeader, size-at)]
	if _, err := r.ReadAt(*b, at); err != nil && !errors.Is(err, io.EOF) {
		return g, 0, err
	}
	g, stored, begins, err := parseGroup(*b)
	if err != nil {
		return g, 0, err
	}
	if n = int64(begins + stored); n > size-at {
		return g, 0, damaged("a group that does not end")
	}
	*b = slices.Grow((*b)[:0], stored)[:stored]
	if _, err := r.ReadAt(*b, at+int64(begins)); err != nil && !errors.Is(err, io.EOF) {
		return g, 0, err
	}
	g.Bytes = *b
	return g, n, nil
}

// copyObjects puts objects of one pack into others, in the order in which they lie;
// a nil packer only looks at them. Each is checked first; those that are not whole
// are returned.
func (s *Store) copyObjects(ctx context.Context, to *packer, objects []found) (broken []found, err error) {
	c := copier{to: to}
	if to != nil {
		c.grouper.Give = func(g *frame.Group) error { return to.add(ctx, g) }
	}
	for _, sp := range spans(slices.Clone(objects)) {
		held := buffers.Get().(*[]byte)
		b, err := s.readRange(ctx, &sp, held)
		switch {
		case err == nil:
			err = c.span(ctx, &sp, b)
		case corrupt(err):
			c.broken, err = append(c.broken, sp.objects...), nil
		}
		release(held)
		if err != nil {
			return c.broken, err
		}
	}
	return c.broken, c.grouper.Close()
}

// copier copies objects.
type copier struct {
	to      *packer
	grouper frame.Grouper // of those that are taken out of their groups
	plain   []byte
	broken  []found
}

func (c *copier) span(ctx context.Context, sp *span, b []byte) error {
	for group := range groupsOf(sp.objects) {
		from := int64(group[0].offset) - sp.from
		if err := c.group(ctx, group, b[from:from+int64(group[0].length)]); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// group copies objects of one group, which is stored in b.
func (c *copier) group(ctx context.Context, objects []found, b []byte) (err error) {
	p := &objects[0].place
	if c.plain, err = frame.Decompress(c.plain[:0], p.enc, b, int(p.total)); err != nil {
		c.broken = append(c.broken, objects...)
		return nil
	}
	whole := make([]found, 0, len(objects))
	wanted := 0
	for i := range objects {
		f := &objects[i]
		if tree.Sum(c.plain[f.at:f.at+f.raw]) != f.digest {
			c.broken = append(c.broken, *f)
			continue
		}
		whole, wanted = append(whole, *f), wanted+int(f.raw)
	}
	if c.to == nil {
		return nil
	}
	if g := asStored(whole, b); g != nil && keeps(p.enc, len(b), int(p.total), wanted) {
		return c.to.add(ctx, g)
	}
	for i := range whole {
		f := &whole[i]
		if err := c.grouper.Add(tree.Object{Kind: f.kind, Digest: f.digest, Bytes: c.plain[f.at : f.at+f.raw]}); err != nil {
			return err
		}
	}
	return nil
}

// asStored returns the group of objects that is stored in b, in which what lies
// between them has no digest; nil where they overlap.
func asStored(objects []found, b []byte) *frame.Group {
	if len(objects) == 0 {
		return nil
	}
	p := &objects[0].place
	g := &frame.Group{Encoding: p.enc, Length: int(p.total), Bytes: b}
	at := uint32(0)
	hole := func(to uint32) {
		if to > at {
			g.Members = append(g.Members, frame.Member{Kind: tree.Chunk, Length: int(to - at)})
		}
	}
	for i := range objects {
		f := &objects[i]
		if f.at < at {
			return nil
		}
		hole(f.at)
		g.Members = append(g.Members, frame.Member{Digest: f.digest, Kind: f.kind, Length: int(f.raw)})
		at = f.at + f.raw
	}
	hole(p.total)
	if len(g.Members) > frame.MaxObjects {
		return nil
	}
	return g
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

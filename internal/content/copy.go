package content

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstate/cairn/internal/blob"
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
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	var list []found
	var b []byte
	for at := int64(packHeader); at < min(size, row.TableAt); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, n, err := entryAt(r, at, size, &b)
		if err != nil && !corrupt(err) {
			return nil, fmt.Errorf("read pack %s: %w", row.ID, err)
		}
		if err != nil {
			break
		}
		at += n
		if c.plain, err = c.decompress(c.plain[:0], &e); err != nil {
			continue
		}
		list = append(list, found{tree.Sum(c.plain), location{id: row.ID, state: row.State, inline: inline, place: place{
			offset: uint32(at - int64(len(e.bytes))), length: uint32(len(e.bytes)), raw: uint32(e.raw), kind: e.kind, enc: e.enc,
		}}})
	}
	return list, nil
}

// entryAt reads the entry that begins at a place of a pack, and says how long it
// is. b is used again.
func entryAt(r io.ReaderAt, at, size int64, b *[]byte) (e encoded, n int64, err error) {
	var head [entryHeader]byte
	some := head[:min(entryHeader, size-at)]
	if _, err := r.ReadAt(some, at); err != nil && !errors.Is(err, io.EOF) {
		return e, 0, err
	}
	e, length, begins, err := parseEntry(some)
	if err != nil {
		return e, 0, err
	}
	if n = int64(begins + length); n > size-at {
		return e, 0, damaged("an object that does not end")
	}
	*b = slices.Grow((*b)[:0], length)[:length]
	if _, err := r.ReadAt(*b, at+int64(begins)); err != nil && !errors.Is(err, io.EOF) {
		return e, 0, err
	}
	e.bytes = *b
	return e, n, nil
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

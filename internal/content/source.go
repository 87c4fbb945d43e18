package content

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	// spanBytes bounds what is read at a time, stored or decompressed, unless one
	// object alone has more.
	spanBytes = 4 << 20
	// spanGap is how much between two objects is read rather than left out.
	spanGap = 32 << 10
	// readers is how many reads of one Get are under way at a time.
	readers = 4
	// cachedObject is up to which size an object other than a chunk is kept in
	// memory after a read.
	cachedObject = 64 << 10
)

// Source returns the objects of an org, from any pack that has them whole. It
// gives only bytes that it has hashed. Who asks must have found out what the
// caller may see. Digests that no pack has are a *tree.MissingError; of those that
// packs have, and none of them whole, the first is a *tree.CorruptError. Both come
// after all others were given.
func (s *Store) Source(org meta.OrgID) tree.Source { return &source{s, org} }

type source struct {
	store *Store
	org   meta.OrgID
}

// found is an object and where a copy of it lies.
type found struct {
	digest tree.Digest
	location
}

// stored names a copy of an object.
type stored struct {
	pack   meta.ContentID
	digest tree.Digest
}

// Get implements tree.Source.
func (f *source) Get(ctx context.Context, digests []tree.Digest, fn func(d tree.Digest, b []byte) error) error {
	s := f.store
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	var want []tree.Digest
	for _, d := range digests {
		b, ok := s.objects.Get(objectKey{f.org, d})
		if !ok {
			want = append(want, d)
		} else if err := fn(d, b); err != nil {
			return err
		}
	}
	bad := make(map[stored]bool) // copies that were not whole
	missing := &tree.MissingError{}
	var corrupted []tree.Digest
	for n := 0; len(want) > 0; n++ {
		v, err := s.view(ctx, f.org)
		if err != nil {
			return err
		}
		places, lost, broken, err := v.locate(ctx, want, bad)
		if err != nil {
			if n < maxRefresh && s.stale(f.org, err) {
				continue
			}
			return err
		}
		missing.Digests = append(missing.Digests, lost...)
		corrupted = append(corrupted, broken...)
		want = want[:0]
		err = s.read(ctx, spans(places), false, func(p *found, b []byte) error {
			if p.kind != tree.Chunk && len(b) <= cachedObject {
				s.objects.Put(objectKey{f.org, p.digest}, bytes.Clone(b), int64(len(b)))
			}
			return fn(p.digest, b)
		}, func(p *found, _ error) {
			bad[stored{p.id, p.digest}] = true
			want = append(want, p.digest)
			s.suspect(f.org, p.id)
		})
		if err != nil {
			return err
		}
	}
	switch {
	case corrupted != nil:
		s.figures.corrupt.Add(1)
		return &tree.CorruptError{Digest: corrupted[0]}
	case missing.Digests != nil:
		return missing
	}
	return nil
}

// locate finds a copy of each of digests that is not bad, the best one: of a live
// pack before others. missing are in no pack, broken in no other pack than bad
// ones.
func (v *view) locate(ctx context.Context, digests []tree.Digest, bad map[stored]bool) (places []found, missing, broken []tree.Digest, err error) {
	for _, d := range digests {
		var best *location
		any := false
		err := v.find(ctx, d, func(l *location) bool {
			any = true
			if !bad[stored{l.id, d}] && (best == nil || l.state < best.state) {
				best = l
			}
			return best == nil || best.state != meta.ContentLive
		})
		switch {
		case err != nil:
			return nil, nil, nil, err
		case best != nil:
			places = append(places, found{d, *best})
		case any:
			broken = append(broken, d)
		default:
			missing = append(missing, d)
		}
	}
	return places, missing, broken, nil
}

// span is a part of a pack that is read at once.
type span struct {
	objects []found
	from    int64
	size    int64
}

// spans puts objects together that lie near each other.
func spans(places []found) []span {
	slices.SortFunc(places, func(a, b found) int {
		if c := bytes.Compare(a.id[:], b.id[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.offset, b.offset)
	})
	var list []span
	raw, start := int64(0), 0
	for i := range places {
		p := &places[i]
		from, size := int64(p.offset), int64(p.length)
		if n := len(list); n > 0 && places[i-1].id == p.id {
			last := &list[n-1]
			grown := from + size - last.from
			if from-(last.from+last.size) <= spanGap && grown <= spanBytes && raw+int64(p.raw) <= spanBytes {
				last.size = max(last.size, grown)
				last.objects = places[start : i+1]
				raw += int64(p.raw)
				continue
			}
		}
		start, raw = i, int64(p.raw)
		list = append(list, span{objects: places[i : i+1], from: from, size: size})
	}
	return list
}

// Encoded is an object as it is stored, which nobody has looked into.
type Encoded struct {
	Digest tree.Digest
	Kind   tree.Kind
	Zstd   bool // Bytes are one zstd frame of it
	Length int  // of the object
	Bytes  []byte
}

// Encoded calls fn for each of digests, in any order but not at the same time, with
// the object as it is stored: whoever decodes it must compare it with its digest,
// and come back to Source for one that is another. b is valid during the call only.
// Digests that no pack has are a *tree.MissingError, after the others.
func (s *Store) Encoded(ctx context.Context, org meta.OrgID, digests []tree.Digest, fn func(e Encoded) error) error {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	for n := 0; ; n++ {
		v, err := s.view(ctx, org)
		if err != nil {
			return err
		}
		places, missing, _, err := v.locate(ctx, digests, nil)
		if err != nil {
			if n < maxRefresh && s.stale(org, err) {
				continue
			}
			return err
		}
		var lost []tree.Digest
		err = s.read(ctx, spans(places), true, func(p *found, b []byte) error {
			return fn(Encoded{Digest: p.digest, Kind: p.kind, Zstd: p.enc == encZstd, Length: int(p.raw), Bytes: b})
		}, func(p *found, _ error) { lost = append(lost, p.digest) })
		switch {
		case err != nil:
			return err
		case missing != nil:
			return &tree.MissingError{Digests: missing}
		case lost == nil:
			return nil
		}
		// What cannot be read there is looked for elsewhere, and hashed.
		return s.Source(org).Get(ctx, lost, func(d tree.Digest, b []byte) error {
			return fn(Encoded{Digest: d, Kind: kindOf(b), Length: len(b), Bytes: b})
		})
	}
}

// kindOf is a kind under which so many bytes can be given.
func kindOf(b []byte) tree.Kind {
	if len(b) > tree.MaxChunk {
		return tree.Recipe
	}
	return tree.Chunk
}

// readSpan is a span with the objects that were in it.
type readSpan struct {
	*span
	plain []byte
	ends  []int   // of the objects in plain
	errs  []error // why an object is not whole
	err   error   // why nothing was read
}

// buffers are for what is read and decompressed.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// read reads spans, some at a time, and calls give with each object that is whole,
// and lost with each that is not. Neither is called at the same time as another.
// Encoded objects are given as they are stored.
func (s *Store) read(ctx context.Context, list []span, encoded bool, give func(p *found, b []byte) error, lost func(p *found, err error)) error {
	if len(list) == 1 {
		r := s.readSpan(ctx, &list[0], encoded)
		return r.give(give, lost)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo, ready := make(chan *span), make(chan *readSpan)
	var workers sync.WaitGroup
	for range min(readers, len(list)) {
		workers.Go(func() {
			for sp := range todo {
				r := s.readSpan(ctx, sp, encoded)
				select {
				case ready <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		defer close(ready)
		defer workers.Wait()
		defer close(todo)
		for i := range list {
			select {
			case todo <- &list[i]:
			case <-ctx.Done():
				return
			}
		}
	}()
	var first error
	for r := range ready {
		if first == nil {
			if first = r.give(give, lost); first != nil {
				cancel()
			}
		}
	}
	if first != nil {
		return first
	}
	return context.Cause(ctx)
}

// give hands on what was read and releases it.
func (r *readSpan) give(give func(*found, []byte) error, lost func(*found, error)) error {
	defer func() {
		if cap(r.plain) <= 2*spanBytes {
			b := r.plain[:0]
			buffers.Put(&b)
		}
	}()
	if r.err != nil {
		return r.err
	}
	start := 0
	for i := range r.objects {
		if r.errs[i] != nil {
			lost(&r.objects[i], r.errs[i])
			continue
		}
		if err := give(&r.objects[i], r.plain[start:r.ends[i]]); err != nil {
			return err
		}
		start = r.ends[i]
	}
	return nil
}

// readSpan reads the objects of a span, and unless they are to stay encoded checks
// them.
func (s *Store) readSpan(ctx context.Context, sp *span, asStored bool) *readSpan {
	r := &readSpan{span: sp, ends: make([]int, len(sp.objects)), errs: make([]error, len(sp.objects))}
	held := buffers.Get().(*[]byte)
	defer buffers.Put(held)
	b, err := s.readRange(ctx, sp, held)
	if err != nil {
		if !corrupt(err) {
			r.err = err
			return r
		}
		for i := range r.errs {
			r.errs[i] = err
		}
		return r
	}
	if asStored {
		r.plain = (*buffers.Get().(*[]byte))[:0]
		for i := range sp.objects {
			p := &sp.objects[i]
			at := int64(p.offset) - sp.from
			r.plain = append(r.plain, b[at:at+int64(p.length)]...)
			r.ends[i] = len(r.plain)
		}
		return r
	}
	total := 0
	for i := range sp.objects {
		total += int(sp.objects[i].raw)
	}
	r.plain = slices.Grow((*buffers.Get().(*[]byte))[:0], total)
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	for i := range sp.objects {
		p := &sp.objects[i]
		at := int64(p.offset) - sp.from
		e := encoded{kind: p.kind, enc: p.enc, raw: int(p.raw), bytes: b[at : at+int64(p.length)]}
		start := len(r.plain)
		out, err := c.decompress(r.plain, &e)
		if err == nil && tree.Sum(out[start:]) != p.digest {
			err = &tree.CorruptError{Digest: p.digest}
		}
		if err != nil {
			r.errs[i] = err
			continue
		}
		r.plain, r.ends[i] = out, len(out)
	}
	return r
}

// readRange returns the stored bytes of a span.
func (s *Store) readRange(ctx context.Context, sp *span, held *[]byte) ([]byte, error) {
	p := &sp.objects[0]
	if p.inline != nil {
		if sp.from+sp.size > int64(len(p.inline)) {
			return nil, damaged("small pack %s ends before object %s", p.id, p.digest)
		}
		return p.inline[sp.from : sp.from+sp.size], nil
	}
	o, err := s.cfg.Packs.Open(ctx, blob.Key(keyOf(p.id, packSuffix)))
	if err != nil {
		return nil, fmt.Errorf("read pack %s: %w", p.id, err)
	}
	defer o.Close()
	if sp.from+sp.size > o.Size() {
		return nil, damaged("pack %s ends before object %s", p.id, sp.objects[len(sp.objects)-1].digest)
	}
	if int64(cap(*held)) < sp.size {
		*held = make([]byte, sp.size)
	}
	b := (*held)[:sp.size]
	if err := readFull(o, b, sp.from); err != nil {
		return nil, fmt.Errorf("read pack %s: %w", p.id, err)
	}
	return b, nil
}

package content

import (
	"bytes"
	"context"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// cachedObject is up to which size an object other than a chunk is kept in memory
// after a read.
const cachedObject = 64 << 10

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
		err = s.read(ctx, places, true, func(p *found, b []byte, _ bool) error {
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

// orderedBatch is how many objects Ordered looks up at a time.
const orderedBatch = 2048

// Ordered calls fn with each of digests, which differ, in their order, so that it does
// not tell how they are stored. Whoever gets them must compare them with their
// digests unless check is set, and come back with it for one that is another. b is
// valid during the call only. A digest that no pack has is a *tree.MissingError.
func (s *Store) Ordered(ctx context.Context, org meta.OrgID, digests []tree.Digest, check bool, fn func(d tree.Digest, b []byte) error) error {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	for len(digests) > 0 {
		some := digests[:min(len(digests), orderedBatch)]
		places, err := s.places(ctx, org, some)
		if err != nil {
			return err
		}
		for start := 0; start < len(places); {
			end, size := start, 0
			for end < len(places) && (end == start || size+int(places[end].raw) <= spanBytes) {
				size += int(places[end].raw)
				end++
			}
			if err := s.window(ctx, org, places[start:end], check, fn); err != nil {
				return err
			}
			start = end
		}
		digests = digests[len(some):]
	}
	return nil
}

// places finds a copy of each of digests, in their order.
func (s *Store) places(ctx context.Context, org meta.OrgID, digests []tree.Digest) ([]found, error) {
	for n := 0; ; n++ {
		v, err := s.view(ctx, org)
		if err != nil {
			return nil, err
		}
		places, missing, _, err := v.locate(ctx, digests, nil)
		switch {
		case err != nil && n < maxRefresh && s.stale(org, err):
		case err != nil:
			return nil, err
		case missing != nil:
			return nil, &tree.MissingError{Digests: missing}
		default:
			return places, nil
		}
	}
}

// window reads objects and gives them in their order.
func (s *Store) window(ctx context.Context, org meta.OrgID, places []found, check bool, fn func(d tree.Digest, b []byte) error) error {
	got := make(map[tree.Digest][]byte, len(places))
	keep := func(d tree.Digest, b []byte, kept bool) error {
		if !kept {
			b = bytes.Clone(b)
		}
		got[d] = b
		return nil
	}
	var lost []tree.Digest
	err := s.read(ctx, append([]found(nil), places...), check, func(p *found, b []byte, kept bool) error {
		return keep(p.digest, b, kept)
	}, func(p *found, _ error) { lost = append(lost, p.digest) })
	if err == nil && lost != nil {
		// What cannot be read there is looked for elsewhere, and hashed.
		err = s.Source(org).Get(ctx, lost, func(d tree.Digest, b []byte) error { return keep(d, b, false) })
	}
	for i := 0; i < len(places) && err == nil; i++ {
		err = fn(places[i].digest, got[places[i].digest])
	}
	return err
}

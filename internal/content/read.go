package content

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	// spanBytes bounds what is read at a time, stored or decompressed, unless one
	// object alone has more.
	spanBytes = 4 << 20
	// spanGap is how much between two groups is read rather than left out.
	spanGap = 64 << 10
	// readers is how many reads of one Get are under way at a time.
	readers = 4
)

// groupKey names a group of a pack.
type groupKey struct {
	pack   meta.ContentID
	offset uint32
}

// span is a part of a pack that is read at once.
type span struct {
	objects []found
	from    int64
	size    int64
}

// compareFound is the order in which objects lie.
func compareFound(a, b found) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.offset, b.offset), cmp.Compare(a.at, b.at), cmp.Compare(a.raw, b.raw))
}

// spans puts groups together that lie near each other.
func spans(places []found) []span {
	slices.SortFunc(places, compareFound)
	var list []span
	raw, start := int64(0), 0
	for i := range places {
		p := &places[i]
		from, size := int64(p.offset), int64(p.length)
		if n := len(list); n > 0 && places[i-1].id == p.id {
			last := &list[n-1]
			grown, more := from+size-last.from, int64(p.total)
			same := places[i-1].offset == p.offset
			if same {
				more = 0
			}
			if same || from-(last.from+last.size) <= spanGap && grown <= spanBytes && raw+more <= spanBytes {
				last.size = max(last.size, grown)
				last.objects = places[start : i+1]
				raw += more
				continue
			}
		}
		start, raw = i, int64(p.total)
		list = append(list, span{objects: places[i : i+1], from: from, size: size})
	}
	return list
}

// groupsOf gives objects that are in order, those of each group together.
func groupsOf(objects []found) iter.Seq[[]found] {
	return func(yield func([]found) bool) {
		for start := 0; start < len(objects); {
			end := start + 1
			for end < len(objects) && objects[end].id == objects[start].id && objects[end].offset == objects[start].offset {
				end++
			}
			if !yield(objects[start:end]) {
				return
			}
			start = end
		}
	}
}

// readSpan is a span with the objects that were in it.
type readSpan struct {
	*span
	bytes [][]byte // of the objects
	kept  []bool   // which of them nobody changes any more
	errs  []error  // why an object is not whole
	err   error    // why nothing was read
	plain []*[]byte
}

// buffers are for what is read and decompressed.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func release(b *[]byte) {
	if cap(*b) <= 2*spanBytes {
		buffers.Put(b)
	}
}

// read reads objects, some at a time, and calls give with each, and lost with each
// that is not whole. Neither is called at the same time as another. Only with check
// are objects compared with their digests. kept bytes stay valid after the call.
func (s *Store) read(ctx context.Context, places []found, check bool, give func(p *found, b []byte, kept bool) error, lost func(p *found, err error)) error {
	slices.SortFunc(places, compareFound)
	rest := make([]found, 0, len(places))
	for group := range groupsOf(places) {
		plain, ok := s.groups.Get(groupKey{group[0].id, group[0].offset})
		if !ok {
			rest = append(rest, group...)
			continue
		}
		for i := range group {
			b, err := group[i].in(plain, check)
			if err != nil {
				s.groups.Remove(groupKey{group[i].id, group[i].offset})
				lost(&group[i], err)
			} else if err := give(&group[i], b, true); err != nil {
				return err
			}
		}
	}
	list := spans(rest)
	if len(list) == 1 {
		return s.readSpan(ctx, &list[0], check).give(give, lost)
	}
	return s.readSpans(ctx, list, check, give, lost)
}

func (s *Store) readSpans(ctx context.Context, list []span, check bool, give func(p *found, b []byte, kept bool) error, lost func(p *found, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo, ready := make(chan *span), make(chan *readSpan)
	var workers sync.WaitGroup
	for range min(readers, len(list)) {
		workers.Go(func() {
			for sp := range todo {
				r := s.readSpan(ctx, sp, check)
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
func (r *readSpan) give(give func(*found, []byte, bool) error, lost func(*found, error)) error {
	defer func() {
		for _, b := range r.plain {
			release(b)
		}
	}()
	if r.err != nil {
		return r.err
	}
	for i := range r.objects {
		if r.errs[i] != nil {
			lost(&r.objects[i], r.errs[i])
		} else if err := give(&r.objects[i], r.bytes[i], r.kept[i]); err != nil {
			return err
		}
	}
	return nil
}

// in returns the object in the bytes of its group.
func (f *found) in(plain []byte, check bool) ([]byte, error) {
	b := plain[f.at : f.at+f.raw : f.at+f.raw]
	if check && tree.Sum(b) != f.digest {
		return nil, &tree.CorruptError{Digest: f.digest}
	}
	return b, nil
}

// readSpan reads the objects of a span.
func (s *Store) readSpan(ctx context.Context, sp *span, check bool) *readSpan {
	n := len(sp.objects)
	r := &readSpan{span: sp, bytes: make([][]byte, n), kept: make([]bool, n), errs: make([]error, n)}
	held := buffers.Get().(*[]byte)
	defer release(held)
	b, err := s.readRange(ctx, sp, held)
	if err != nil && !corrupt(err) {
		r.err = err
		return r
	}
	i := 0
	for group := range groupsOf(sp.objects) {
		var plain []byte
		kept, bad := false, err
		if bad == nil {
			plain, kept, bad = s.decode(r, &group[0], b)
		}
		for k := range group {
			r.kept[i], r.errs[i] = kept, bad
			if bad == nil {
				r.bytes[i], r.errs[i] = group[k].in(plain, check)
			}
			if r.errs[i] != nil {
				s.groups.Remove(groupKey{group[0].id, group[0].offset})
			}
			i++
		}
	}
	return r
}

// decode decodes the group of an object. One of several objects is kept in memory:
// the others are often wanted next, or by another read at the same time.
func (s *Store) decode(r *readSpan, p *found, b []byte) (plain []byte, kept bool, err error) {
	from := int64(p.offset) - r.from
	b = b[from : from+int64(p.length)]
	if p.total == p.raw {
		held := buffers.Get().(*[]byte)
		*held, err = frame.Decompress((*held)[:0], p.enc, b, int(p.total))
		r.plain = append(r.plain, held)
		return *held, false, err
	}
	key := groupKey{p.id, p.offset}
	got, err, _ := s.flights.Do(fmt.Sprintf("group %s %d", p.id, p.offset), func() (any, error) {
		if plain, ok := s.groups.Get(key); ok {
			return plain, nil
		}
		plain, err := frame.Decompress(make([]byte, 0, p.total), p.enc, b, int(p.total))
		if err == nil {
			s.groups.Put(key, plain, int64(len(plain)))
		}
		return plain, err
	})
	return got.([]byte), true, err
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

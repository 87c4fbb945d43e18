package content

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Roots calls yield with every object of an org that something refers to, with its
// kind: roots of checkpoints, and recipes and chunks that are referred to by
// themselves. What they refer to in turn need not be named. All of it must be of
// one moment after the call began; a fork or an append that was committed before
// is in it.
type Roots func(ctx context.Context, org meta.OrgID, yield func(kind tree.Kind, d tree.Digest) error) error

// bitmap is a set of small numbers.
type bitmap []uint64

func (b bitmap) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i int)      { b[i/64] |= 1 << (i % 64) }

// marker finds out what is referred to, over one view: a bit or two for each
// object that is stored.
type marker struct {
	store  *Store
	view   *view
	source tree.Source
	live   []bitmap // per part: objects that are referred to, the copy that is to stay
	walked []bitmap // those of which what they refer to is known
	todo   []node
	// later are objects that the view does not have: they came after it, or are
	// missing.
	later map[node]bool
	// missing are objects that something refers to and no pack has whole; hidden says
	// that among them is one of which it is not known what it refers to.
	missing []tree.Digest
	lost    int64
	// unreadable are packs whose tables were found damaged.
	unreadable []meta.ContentPack
	hidden     bool
}

// node is an object whose contents are to be looked at.
type node struct {
	kind   tree.Kind
	digest tree.Digest
}

const (
	markBatch = 256
	// maxRoots is how many roots are kept until they are looked into.
	maxRoots = 1 << 16
	// maxLater is how many objects that the view does not have are kept until they are
	// looked for.
	maxLater = 1 << 18
	// maxReported bounds the digests that are kept of those that are missing.
	maxReported = 1000
)

func (s *Store) newMarker(v *view) *marker {
	m := &marker{store: s, view: v, source: s.Source(v.org), later: make(map[node]bool), live: make([]bitmap, len(v.parts)), walked: make([]bitmap, len(v.parts))}
	for i := range v.parts {
		m.live[i] = make(bitmap, (v.parts[i].records+63)/64)
		m.walked[i] = make(bitmap, (v.parts[i].records+63)/64)
	}
	return m
}

// best returns the copy of an object that stays if only one does, or nil.
func (v *view) best(ctx context.Context, d tree.Digest) (best *location, err error) {
	err = v.find(ctx, d, func(l *location) bool {
		if best == nil || l.state < best.state {
			best = l
		}
		return best.state != meta.ContentLive
	})
	return best, err
}

// mark notes that something refers to an object.
func (m *marker) mark(ctx context.Context, kind tree.Kind, d tree.Digest) error {
	at, err := m.view.best(ctx, d)
	if err != nil {
		return err
	}
	if at == nil {
		n := node{kind, d}
		if m.later[n] {
			return nil
		}
		m.later[n] = true
		if kind != tree.Chunk {
			m.todo = append(m.todo, n)
		} else if len(m.later) >= maxLater {
			return m.lookLater(ctx)
		}
		return nil
	}
	if at.state == meta.ContentDamaged && kind == tree.Chunk && !m.live[at.part].has(at.pos) {
		m.miss(kind, d) // of others it shows when they are read
	}
	m.live[at.part].set(at.pos)
	if kind != tree.Chunk && !m.walked[at.part].has(at.pos) {
		m.walked[at.part].set(at.pos)
		m.todo = append(m.todo, node{kind, d})
	}
	return nil
}

// lookLater looks for chunks that the view does not have.
func (m *marker) lookLater(ctx context.Context) error {
	var digests []tree.Digest
	for n := range m.later {
		if n.kind == tree.Chunk {
			digests = append(digests, n.digest)
			delete(m.later, n)
		}
	}
	gone, _, err := m.store.Missing(ctx, m.view.org, digests)
	if err != nil {
		return err
	}
	for _, d := range gone {
		m.miss(tree.Chunk, d)
	}
	return nil
}

func (m *marker) miss(kind tree.Kind, d tree.Digest) {
	m.lost++
	m.hidden = m.hidden || kind != tree.Chunk
	if len(m.missing) < maxReported {
		m.missing = append(m.missing, d)
	}
}

// walk looks into what was marked until nothing is left. Memory follows the width
// of the trees.
func (m *marker) walk(ctx context.Context) error {
	for len(m.todo) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cut := max(0, len(m.todo)-markBatch)
		kinds := make(map[tree.Digest][]tree.Kind)
		var digests []tree.Digest
		for _, n := range m.todo[cut:] {
			if kinds[n.digest] == nil {
				digests = append(digests, n.digest)
			}
			kinds[n.digest] = append(kinds[n.digest], n.kind)
		}
		m.todo = m.todo[:cut]
		if err := m.batch(ctx, digests, kinds); err != nil {
			return err
		}
	}
	return nil
}

// batch looks into some objects. Those that cannot be read are missing.
func (m *marker) batch(ctx context.Context, digests []tree.Digest, kinds map[tree.Digest][]tree.Kind) error {
	left := make(map[tree.Digest]bool, len(digests))
	for _, d := range digests {
		left[d] = true
	}
	err := m.source.Get(ctx, digests, func(d tree.Digest, b []byte) error {
		delete(left, d)
		for _, kind := range kinds[d] {
			err := children(kind, b, func(kind tree.Kind, d tree.Digest) error { return m.mark(ctx, kind, d) })
			if errors.Is(err, tree.ErrInvalid) {
				m.miss(kind, d)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	var missing *tree.MissingError
	var corrupted *tree.CorruptError
	if err != nil && !errors.As(err, &missing) && !errors.As(err, &corrupted) {
		return err
	}
	for d := range left {
		m.miss(kinds[d][0], d)
	}
	return nil
}

// children calls fn with each object that one refers to.
func children(kind tree.Kind, b []byte, fn func(kind tree.Kind, d tree.Digest) error) error {
	switch kind {
	case tree.Recipe:
		parts, err := tree.DecodeRecipe(b)
		if err != nil {
			return err
		}
		for i := range parts {
			if err := fn(tree.Chunk, parts[i].Digest); err != nil {
				return err
			}
		}
	case tree.Index:
		pages, err := tree.DecodeIndex(b)
		if err != nil {
			return err
		}
		for i := range pages {
			if err := fn(tree.Dir, pages[i].Digest); err != nil {
				return err
			}
		}
	case tree.Dir:
		entries, err := tree.DecodeDir(b)
		if err != nil {
			return err
		}
		return eachEntry(entries, fn)
	case tree.Root:
		t, err := tree.DecodeRoot(b)
		if err != nil {
			return err
		}
		if err := contentOf(&t.Links, fn); err != nil {
			return err
		}
		return eachEntry(t.Roots, fn)
	}
	return nil
}

func eachEntry(entries []tree.Entry, fn func(kind tree.Kind, d tree.Digest) error) error {
	for i := range entries {
		e := &entries[i]
		var err error
		switch {
		case e.Type == tree.Directory && e.Paged:
			err = fn(tree.Index, e.Dir)
		case e.Type == tree.Directory:
			err = fn(tree.Dir, e.Dir)
		case e.Type == tree.File:
			err = contentOf(&e.Content, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func contentOf(c *tree.Content, fn func(kind tree.Kind, d tree.Digest) error) error {
	switch {
	case c.Size == 0:
		return nil
	case c.Chunked:
		return fn(tree.Recipe, c.Digest)
	}
	return fn(tree.Chunk, c.Digest)
}

// markAll marks what uploads have received and what roots reach, in this order: an
// upload that ends between both has become a root.
func (m *marker) markAll(ctx context.Context, roots Roots) error {
	uploads, err := m.store.cfg.Meta.ContentUploads(ctx, m.view.org)
	if err != nil {
		return fmt.Errorf("read uploads: %w", err)
	}
	for i := range uploads {
		for k := range uploads[i].Lists {
			t, err := m.store.openList(ctx, &uploads[i].Lists[k])
			if corrupt(err) {
				continue // its upload has ended, or has to begin anew
			}
			if err != nil {
				return err
			}
			err = t.each(ctx, func(_ int, r *record) error {
				at, err := m.view.best(ctx, r.digest)
				if at != nil {
					m.live[at.part].set(at.pos)
				}
				return err
			})
			if err != nil && !corrupt(err) {
				return err
			}
		}
	}
	err = roots(ctx, m.view.org, func(kind tree.Kind, d tree.Digest) error {
		if err := m.mark(ctx, kind, d); err != nil || len(m.todo) < maxRoots {
			return err
		}
		return m.walk(ctx)
	})
	if err == nil {
		err = m.walk(ctx)
	}
	if err == nil {
		err = m.lookLater(ctx)
	}
	if err != nil {
		return fmt.Errorf("find what is referred to: %w", err)
	}
	return nil
}

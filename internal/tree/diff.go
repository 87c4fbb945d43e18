package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Change is one entry that differs between two trees. Old is nil where it was
// added, New where it was removed; a directory added or removed is one change,
// with nothing for what lies beneath it.
type Change struct {
	Path     string // the name of the root, and names with slashes between them
	Old, New *Entry
}

// ErrSkip is returned by a function that is called with a directory and wants
// nothing of what lies beneath it.
var ErrSkip = errors.New("nothing beneath")

// Diff calls fn for each difference from before to after, in order of their paths,
// name by name and a directory before what is in it, strictly after a path, "" for
// all. Equal directories, equal pages of large ones and what lies before the path are
// not read. A directory whose own entry is all that differs (by its digest) is a
// change too; fn may return ErrSkip for it. Of the pages on the way a bounded part
// stays in memory; the others are read again on the way back.
func Diff(ctx context.Context, src Source, before, after *Tree, from string, fn func(Change) error) error {
	d := &differ{ctx: ctx, src: src, fn: fn}
	var names []string
	if from != "" {
		names = strings.Split(from, "/")
	}
	return d.merge("", 0, &side{differ: d, entries: before.Roots}, &side{differ: d, entries: after.Roots}, names)
}

type differ struct {
	ctx context.Context
	src Source
	fn  func(Change) error
	// held is how many bytes the pages on the way to where it is take.
	held int
}

// maxHeld bounds the pages that a comparison keeps on its way down.
const maxHeld = 16 << 20

// side is a directory of one tree, read as far as it is needed.
type side struct {
	*differ
	parts   []Node // pages that were not read yet
	had     map[Digest]bool
	entries []Entry
	page    *Node  // that entries are of, nil for those of a root object
	size    int    // of entries in memory, about
	from    string // entries with names before it are not needed
}

// side begins to read a directory, without the pages that other has too.
func (d *differ) side(n Node, parts, other []Node, from string) *side {
	s := &side{differ: d, parts: parts, had: make(map[Digest]bool, len(other)), from: from}
	for _, o := range other {
		s.had[o.Digest] = true
	}
	return s
}

// next returns the entry that follows, nil at the end.
func (s *side) next() (*Entry, error) {
	for {
		for len(s.entries) > 0 && s.entries[0].Name < s.from {
			s.entries = s.entries[1:]
		}
		if len(s.entries) > 0 {
			return &s.entries[0], nil
		}
		if len(s.parts) == 0 {
			return nil, nil
		}
		p := s.parts[0]
		if s.parts = s.parts[1:]; s.had[p.Digest] || p.next != "" && p.next <= s.from {
			continue
		}
		b, err := FetchOne(s.ctx, s.src, p.Digest)
		if err != nil {
			return nil, err
		}
		if s.entries, err = DecodeDir(b); err != nil {
			return nil, err
		}
		s.page, s.size = &p, len(b)+256*len(s.entries)
		if err := p.check(s.entries); err != nil {
			return nil, err
		}
	}
}

// leave is called before a comparison goes on beneath name. It returns what to call
// afterwards.
func (s *side) leave(name string) func() {
	if s.page == nil {
		return func() {}
	}
	if size := s.size; s.held+size <= maxHeld {
		s.held += size
		return func() { s.held -= size }
	}
	// The page is read again, from behind the name on.
	s.parts, s.entries, s.from = append([]Node{*s.page}, s.parts...), nil, name+"\x00"
	return func() {}
}

// parts returns the pages of n in order, or n itself.
func (d *differ) parts(n Node) ([]Node, error) {
	if !n.Paged {
		return []Node{n}, nil
	}
	b, err := FetchOne(d.ctx, d.src, n.Digest)
	if err != nil {
		return nil, err
	}
	pages, err := DecodeIndex(b)
	if err != nil {
		return nil, err
	}
	nodes, err := n.pages(pages)
	slices.Reverse(nodes)
	return nodes, err
}

// pair reports what differs in a directory of both trees, after some names.
func (d *differ) pair(prefix string, old, now Node, after []string) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	olds, err := d.parts(old)
	if err != nil {
		return err
	}
	news, err := d.parts(now)
	if err != nil {
		return err
	}
	from := ""
	if len(after) > 0 {
		from = after[0]
	}
	return d.merge(prefix, now.depth+1, d.side(old, olds, news, from), d.side(now, news, olds, from), after)
}

// merge reports the differences of two directories, after some names.
func (d *differ) merge(prefix string, depth int, before, after *side, beyond []string) error {
	for {
		c := Change{}
		old, err := before.next()
		if err != nil {
			return fmt.Errorf("compare %q: %w", prefix, err)
		}
		now, err := after.next()
		if err != nil {
			return fmt.Errorf("compare %q: %w", prefix, err)
		}
		var name string
		switch {
		case old == nil && now == nil:
			return nil
		case now == nil, old != nil && old.Name <= now.Name:
			name = old.Name
		default:
			name = now.Name
		}
		if old != nil && old.Name == name {
			c.Old, before.entries = old, before.entries[1:]
		}
		if now != nil && now.Name == name {
			c.New, after.entries = now, after.entries[1:]
		}
		// The names that were asked for lead to one entry, whose directory goes on.
		reported, within := false, []string(nil)
		if len(beyond) > 0 {
			switch {
			case name < beyond[0]:
				continue
			case name == beyond[0]:
				reported, within = true, beyond[1:]
			}
			beyond = nil
		}
		beneath, err := d.entry(prefix, depth, c, name, reported)
		if err != nil {
			return err
		}
		if beneath == nil {
			continue
		}
		back, again := before.leave(name), after.leave(name)
		err = d.pair(beneath.path, beneath.old, beneath.new, within)
		back()
		if again(); err != nil {
			return err
		}
	}
}

// pair is a directory of both trees whose digests differ.
type pair struct {
	path     string // with a slash at its end
	old, new Node
}

// entry reports one name of a directory, unless it was, and returns the directory in
// which more differs, nil for none.
func (d *differ) entry(prefix string, depth int, c Change, name string, reported bool) (*pair, error) {
	if c.Old != nil && c.New != nil && Equal(c.Old, c.New) {
		return nil, nil
	}
	c.Path = prefix + name
	if !reported {
		if err := d.fn(c); errors.Is(err, ErrSkip) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	if c.Old == nil || c.New == nil || c.Old.Type != Directory || c.New.Type != Directory || c.Old.Dir == c.New.Dir {
		return nil, nil
	}
	return &pair{c.Path + "/", nodeAt(depth, c.Old), nodeAt(depth, c.New)}, nil
}

// nodeAt returns the node of a directory's entry with no more of its path than the
// depth.
func nodeAt(depth int, e *Entry) Node {
	return Node{Digest: e.Dir, Paged: e.Paged, Summary: e.Summary, depth: depth}
}

// Equal reports whether two entries are the same in everything.
func Equal(a, b *Entry) bool {
	return string(AppendEntry(nil, a)) == string(AppendEntry(nil, b))
}

package tree

import (
	"context"
	"fmt"
	"strings"
)

// Change is one entry that differs between two trees. Old is nil where it was
// added, New where it was removed; a directory added or removed is one change,
// with nothing for what lies beneath it.
type Change struct {
	Path     string // the name of the root, and names with slashes between them
	Old, New *Entry
}

// pair is a directory of both trees whose digests differ.
type pair struct{ old, new Node }

// Diff calls fn for each difference from before to after. Equal directories and
// equal pages of large ones are not read. Changes of one directory come in order
// of their names; a directory whose own entry is all that differs (by its digest)
// is a change too.
func Diff(ctx context.Context, src Source, before, after *Tree, fn func(Change) error) error {
	d := &differ{ctx: ctx, src: src, fn: fn}
	if err := d.merge("", before.Roots, after.Roots); err != nil {
		return err
	}
	for len(d.todo) > 0 {
		p := d.todo[len(d.todo)-1]
		d.todo = d.todo[:len(d.todo)-1]
		if err := d.pair(p); err != nil {
			return fmt.Errorf("compare %q: %w", p.new.Path, err)
		}
	}
	return nil
}

type differ struct {
	ctx  context.Context
	src  Source
	fn   func(Change) error
	todo []pair
}

func (d *differ) pair(p pair) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	olds, err := d.parts(p.old)
	if err != nil {
		return err
	}
	news, err := d.parts(p.new)
	if err != nil {
		return err
	}
	before, err := d.entries(p.old, olds, news)
	if err != nil {
		return err
	}
	after, err := d.entries(p.new, news, olds)
	if err != nil {
		return err
	}
	return d.merge(p.new.Path+"/", before, after)
}

// parts returns the pages of n, or n itself.
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
	return n.pages(pages)
}

// entries returns those of the parts that the other side does not have too.
func (d *differ) entries(n Node, parts, other []Node) ([]Entry, error) {
	had := make(map[Digest]bool, len(other))
	for _, o := range other {
		had[o.Digest] = true
	}
	var all []Entry
	for i := len(parts) - 1; i >= 0; i-- {
		if p := parts[i]; !had[p.Digest] {
			b, err := FetchOne(d.ctx, d.src, p.Digest)
			if err != nil {
				return nil, err
			}
			entries, err := DecodeDir(b)
			if err != nil {
				return nil, err
			}
			if err := p.check(entries); err != nil {
				return nil, err
			}
			all = append(all, entries...)
		}
	}
	return all, nil
}

// merge reports the differences of two lists in order of names.
func (d *differ) merge(prefix string, before, after []Entry) error {
	for len(before) > 0 || len(after) > 0 {
		c := Change{}
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = strings.Compare(before[0].Name, after[0].Name)
		}
		if order <= 0 {
			c.Old, before = &before[0], before[1:]
			c.Path = prefix + c.Old.Name
		}
		if order >= 0 {
			c.New, after = &after[0], after[1:]
			c.Path = prefix + c.New.Name
		}
		if c.Old != nil && c.New != nil {
			if Equal(c.Old, c.New) {
				continue
			}
			if c.Old.Type == Directory && c.New.Type == Directory && c.Old.Dir != c.New.Dir {
				d.todo = append(d.todo, pair{NodeOf(c.Path, c.Old), NodeOf(c.Path, c.New)})
			}
		}
		if err := d.fn(c); err != nil {
			return err
		}
	}
	return nil
}

// Equal reports whether two entries are the same in everything.
func Equal(a, b *Entry) bool {
	return string(AppendEntry(nil, a)) == string(AppendEntry(nil, b))
}

package graph

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// Listed is an object as List yields it.
type Listed struct {
	ID   object.ID
	Loc  odb.Loc
	Type object.Type
	// Name is the name of a tree's entry, nil for a root and for what tips name.
	// It is valid during the call.
	Name []byte
}

// List adds to set everything that tips reach, and yields each object that was
// not there before: commits newest first, then what the tips name besides, then
// trees and blobs from the newest commit to the oldest, as git orders packs.
// What set holds at first must be there with all that it reaches.
func (g *Graph) List(ctx context.Context, tips []object.ID, set *ObjectSet, yield func(Listed) error) error {
	l := &lister{g: g, ctx: ctx, set: set, yield: yield}
	commits, err := l.commits(tips)
	if err != nil {
		return err
	}
	for _, id := range tips {
		if err := l.named(id); err != nil {
			return err
		}
	}
	var last object.ID
	for _, n := range commits {
		if last, err = l.root(g.nodes[n].tree, last); err != nil {
			return fmt.Errorf("commit %s: %w", g.ID(n), err)
		}
	}
	return nil
}

type lister struct {
	g     *Graph
	ctx   context.Context
	set   *ObjectSet
	yield func(Listed) error
	steps int
	// waiting are trees that lie too deep to be walked where they are met.
	waiting []besides
}

// besides is a tree to be listed, with one at the same path that has been.
type besides struct{ id, beside object.ID }

// commits lists the commits newest first.
func (l *lister) commits(tips []object.ID) ([]Node, error) {
	g := l.g
	roots, err := g.peelAll(l.ctx, tips)
	if err != nil {
		return nil, err
	}
	w := g.NewWalk()
	push := func(n Node) {
		if !l.set.Has(g.nodes[n].loc) {
			w.Push(g, n)
		}
	}
	for _, n := range roots {
		push(n)
	}
	var out []Node
	for steps := 0; ; steps++ {
		if steps%checkEvery == 0 && l.ctx.Err() != nil {
			return nil, l.ctx.Err()
		}
		n, ok := w.Next()
		if !ok {
			break
		}
		out = append(out, n)
		for _, p := range g.Parents(n) {
			push(p)
		}
	}
	for _, n := range out {
		l.set.Add(g.nodes[n].loc)
		if err := l.yield(Listed{ID: g.ID(n), Loc: g.nodes[n].loc, Type: object.Commit}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// named lists what a tip is, if it is no commit: tags down to what they name,
// and trees.
func (l *lister) named(id object.ID) error {
	for {
		loc, ok := l.g.db.Find(id)
		if !ok {
			_, err := l.g.db.Type(l.ctx, id) // tells what is missing
			return err
		}
		if l.set.Has(loc) {
			return nil
		}
		t, err := l.g.db.Type(l.ctx, id)
		if err != nil {
			return err
		}
		if t == object.Tree {
			_, err := l.root(id, object.Zero)
			return err
		}
		l.set.Add(loc)
		if err := l.yield(Listed{ID: id, Loc: loc, Type: t}); err != nil || t != object.Tag {
			return err
		}
		_, data, err := l.g.db.Get(l.ctx, id)
		if err != nil {
			return err
		}
		if id, _, err = object.TagTarget(data); err != nil {
			return fmt.Errorf("tag: %w", err)
		}
	}
}

// root lists a root tree and returns the last one that was listed: beside has
// been, so that what both have at the same path need not be looked at.
func (l *lister) root(id, beside object.ID) (object.ID, error) {
	if id == beside {
		return id, nil
	}
	loc, ok := l.g.db.Find(id)
	if !ok {
		_, err := l.g.db.Type(l.ctx, id)
		return beside, err
	}
	if !l.set.Add(loc) {
		return id, nil
	}
	if err := l.yield(Listed{ID: id, Loc: loc, Type: object.Tree}); err != nil {
		return id, err
	}
	err := l.tree(id, beside, 0)
	for err == nil && len(l.waiting) > 0 {
		t := l.waiting[len(l.waiting)-1]
		l.waiting = l.waiting[:len(l.waiting)-1]
		err = l.tree(t.id, t.beside, 0)
	}
	return id, err
}

// tree lists what is in a tree; beside is a tree of which everything is listed,
// or zero.
func (l *lister) tree(id, beside object.ID, depth int) error {
	if depth >= maxNested {
		l.waiting = append(l.waiting, besides{id, beside})
		return nil
	}
	if l.steps++; l.steps%256 == 0 && l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	data, err := l.g.db.Tree(l.ctx, id)
	if err != nil {
		return err
	}
	var other cursor
	if !beside.IsZero() {
		old, err := l.g.db.Tree(l.ctx, beside)
		if err != nil {
			return err
		}
		other = newCursor(old, true)
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		old, both := other.seek(e)
		t := e.Mode.Type()
		if both && old.ID == e.ID || t == object.Commit {
			continue
		}
		loc, ok := l.g.db.Find(e.ID)
		if !ok {
			_, err := l.g.db.Type(l.ctx, e.ID)
			return err
		}
		if !l.set.Add(loc) {
			continue
		}
		if err := l.yield(Listed{ID: e.ID, Loc: loc, Type: t, Name: e.Name}); err != nil {
			return err
		}
		if t != object.Tree {
			continue
		}
		if !both {
			old.ID = object.Zero
		}
		if err := l.tree(e.ID, old.ID, depth+1); err != nil {
			return err
		}
	}
	return it.Err()
}

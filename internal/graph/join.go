package graph

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/odb"
)

// Join returns the commit table of a pack that holds what the packs [lo, hi) of
// db hold, from their tables alone; nil when those do not tell all generations.
func Join(ctx context.Context, db *odb.DB, lo, hi int32, idx *pack.Index) ([]byte, error) {
	var commits []Commit
	seen := make(map[object.ID]bool)
	for place := lo; place < hi; place++ {
		p := db.Pack(place)
		t, err := tableOf(ctx, p)
		if err != nil {
			return nil, err
		}
		for r := range t.n {
			id := p.Index().ID(int(t.pos(r)))
			if !seen[id] {
				seen[id] = true
				commits = append(commits, t.commit(r, id, p.Index()))
			}
		}
	}
	var fault error
	data, err := Encode(idx, commits, func(id object.ID) (uint32, bool) {
		gen, err := storedGeneration(ctx, db, id)
		fault = cmp.Or(fault, err)
		return gen, gen != 0
	})
	if fault != nil {
		return nil, fault
	}
	if _, unknown := errors.AsType[*MissingParentError](err); unknown {
		return nil, nil
	}
	return data, err
}

// commit returns a record of the table of a pack.
func (t *Table) commit(r int, id object.ID, idx *pack.Index) Commit {
	rec := t.record(r)
	c := Commit{ID: id, Tree: object.ID(rec[4:24]), Time: int64(binary.BigEndian.Uint64(rec[24:]))}
	lo, hi := t.span(r)
	for k := lo; k < hi; k++ {
		v := be32(t.parents, int(k))
		if v < uint32(t.n) {
			c.Parents = append(c.Parents, idx.ID(int(t.pos(int(v)))))
		} else {
			c.Parents = append(c.Parents, t.outsideID(v-uint32(t.n)))
		}
	}
	return c
}

// storedGeneration returns the generation of a commit as the table of its pack
// has it, 0 when it does not.
func storedGeneration(ctx context.Context, db *odb.DB, id object.ID) (uint32, error) {
	loc, ok := db.Find(id)
	if !ok {
		return 0, nil
	}
	t, err := tableOf(ctx, db.Pack(loc.Pack))
	if err != nil {
		return 0, err
	}
	r, ok := t.find(loc.Pos)
	if !ok {
		return 0, nil
	}
	return binary.BigEndian.Uint32(t.record(r)[32:]), nil
}

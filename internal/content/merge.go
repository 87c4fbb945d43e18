package content

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
)

// merged is a table that goes into a new one, and which of its packs the new one leaves out.
type merged struct {
	*table
	dead map[meta.ContentID]bool
}

// mergeTables stores one index file with the records of some tables. Nothing names
// it yet but its upload row.
func (s *Store) mergeTables(ctx context.Context, from []merged) (*meta.ContentIndex, error) {
	ids := []meta.ContentID{} // nil would make a list of digests
	for _, m := range from {
		for _, id := range m.ids {
			if !m.dead[id] {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b meta.ContentID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	x := &meta.ContentIndex{ID: newID(), Packs: int64(len(ids))}
	x.Key = keyOf(x.ID, indexSuffix)
	if err := s.name(ctx, x.Key); err != nil {
		return nil, err
	}
	w, err := s.cfg.Blobs.Create(ctx, blob.Key(x.Key))
	if err != nil {
		return nil, fmt.Errorf("store an index file: %w", err)
	}
	defer w.Abort()
	numbers := renumber(from, ids)
	l, err := writeTable(w, ids, func(fn func(*record) error) error { return mergeRecords(ctx, from, numbers, fn) })
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil {
		s.drop(ctx, x.Key)
		return nil, fmt.Errorf("store an index file: %w", err)
	}
	x.Bytes, x.Objects = l.size(), int64(l.records)
	return x, nil
}

// renumber returns for each table the new numbers of its packs; -1 for one that is
// left out.
func renumber(from []merged, ids []meta.ContentID) [][]int {
	numbers := make([][]int, len(from))
	for i, m := range from {
		numbers[i] = make([]int, len(m.ids))
		for k, id := range m.ids {
			n, ok := slices.BinarySearchFunc(ids, id, func(a, b meta.ContentID) int { return bytes.Compare(a[:], b[:]) })
			if !ok || m.dead[id] {
				n = -1
			}
			numbers[i][k] = n
		}
	}
	return numbers
}

// mergeRecords gives the records of some tables in order.
func mergeRecords(ctx context.Context, from []merged, numbers [][]int, fn func(*record) error) error {
	h := &cursors{}
	advance := func(c *numbered) (bool, error) {
		for {
			ok, err := c.next(ctx)
			if !ok || err != nil {
				return false, err
			}
			if n := c.numbers[c.pack]; n >= 0 {
				c.at = c.record
				c.at.pack = uint32(n)
				return true, nil
			}
		}
	}
	for i := range from {
		c := &numbered{cursor: from[i].walk(), numbers: numbers[i]}
		ok, err := advance(c)
		if err != nil {
			return err
		}
		if ok {
			*h = append(*h, c)
		}
	}
	heap.Init(h)
	var last record
	for n := 0; h.Len() > 0; n++ {
		c := (*h)[0]
		// A pack that two tables have gives each of its records once.
		if n == 0 || last.compare(&c.at) != 0 {
			if err := fn(&c.at); err != nil {
				return err
			}
		}
		last = c.at
		ok, err := advance(c)
		switch {
		case err != nil:
			return err
		case ok:
			heap.Fix(h, 0)
		default:
			heap.Pop(h)
		}
		if n%blockLen == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// numbered is a cursor whose packs have other numbers in the new table.
type numbered struct {
	*cursor
	numbers []int
	at      record
}

// cursors is a heap, the least record first.
type cursors []*numbered

func (h cursors) Len() int           { return len(h) }
func (h cursors) Less(i, k int) bool { return h[i].at.compare(&h[k].at) < 0 }
func (h cursors) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

// Push implements heap.Interface.
func (h *cursors) Push(x any) { *h = append(*h, x.(*numbered)) }

// Pop implements heap.Interface.
func (h *cursors) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}

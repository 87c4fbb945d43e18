package repo

import (
	"cmp"
	"context"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
)

// Common names commits that are here, a few at a time, until another server has
// said enough of which it has too: first those that it is likely to have, then
// the tips of branches and tags, then what lies below each tip at growing
// distances. So it takes few steps to come below any divergence, and at most the
// same again is sent too much. It is not safe for concurrent use.
type Common struct {
	graph  *graph.Graph
	chains []*chain
	turn   int
	told   map[object.ID]*chain
}

// chain is the way from one commit along first parents.
type chain struct {
	at    graph.Node
	jump  int // commits to the next one to name; 0 for the tip
	ended bool
}

// maxChains bounds the tips that Common goes down from, beside likely commits.
const maxChains = 4096

// Common starts to name commits. likely are commits that the other server had
// some time ago; those that are not reachable here are left out.
func (v *View) Common(ctx context.Context, likely []object.ID) (*Common, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	c := &Common{graph: g, told: make(map[object.ID]*chain)}
	for _, id := range likely {
		n, ok := g.Node(id)
		if !ok {
			continue
		}
		lacks, err := v.Reachable(ctx, id)
		if err != nil {
			return nil, err
		}
		if lacks.IsZero() {
			c.chains = append(c.chains, &chain{at: n})
		}
	}
	var tips []*chain
	for _, prefix := range []string{refname.HeadsPrefix, refname.TagsPrefix} {
		v.refs.each(prefix, "", func(ref meta.Ref) bool {
			id := ref.ID
			if !ref.Peeled.IsZero() {
				id = ref.Peeled
			}
			if n, ok := g.Node(id); ok {
				tips = append(tips, &chain{at: n})
			}
			return true
		})
	}
	slices.SortStableFunc(tips, func(a, b *chain) int { return cmp.Compare(g.Generation(b.at), g.Generation(a.at)) })
	c.chains = append(c.chains, tips[:min(len(tips), maxChains)]...)
	return c, nil
}

// Next returns up to n commits that were not named yet. Fewer are the last.
func (c *Common) Next(n int) []object.ID {
	var ids []object.ID
	for len(ids) < n && len(c.chains) > 0 {
		if c.turn >= len(c.chains) {
			c.turn = 0
			c.chains = slices.DeleteFunc(c.chains, func(ch *chain) bool { return ch.ended })
			continue
		}
		ch := c.chains[c.turn]
		c.turn++
		if id, ok := c.step(ch); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// step moves a chain to its next commit; false says that there is none to name.
// Where another way was before, the chain ends: below lies the same.
func (c *Common) step(ch *chain) (object.ID, bool) {
	moved := 0
	for ; moved < ch.jump; moved++ {
		parents := c.graph.Parents(ch.at)
		if len(parents) == 0 {
			break
		}
		ch.at = parents[0]
	}
	if ch.jump > 0 && moved == 0 {
		ch.ended = true
		return object.ID{}, false
	}
	ch.jump = max(1, 2*ch.jump)
	id := c.graph.ID(ch.at)
	if _, ch.ended = c.told[id]; ch.ended {
		return id, false
	}
	c.told[id] = ch
	return id, true
}

// Known says that the other server has a commit that Next named; what lies below
// it need not be named.
func (c *Common) Known(id object.ID) {
	if ch := c.told[id]; ch != nil {
		ch.ended = true
	}
}

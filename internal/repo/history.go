package repo

import (
	"context"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
)

// CommitsQuery asks for a part of the history of a commit.
type CommitsQuery struct {
	Tip object.ID // the caller has resolved it
	// Path, when set, keeps the commits that git log shows for a path: those that
	// change it, along the sides of merges that it came from.
	Path string
	// Skip is how many commits the caller has seen already.
	Skip  int
	Limit int
}

// Commits returns up to Limit commits as git log lists them, newest first, and
// whether there are more. The list of a tip never changes. A Skip beyond its end
// is an *InvalidError.
func (v *View) Commits(ctx context.Context, q CommitsQuery) (ids []object.ID, more bool, err error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, false, err
	}
	tip, ok := g.Node(q.Tip)
	if !ok {
		return nil, false, &NotFoundError{What: "commit", Name: q.Tip.String()}
	}
	key := historyKey{v.repo.ID, q.Tip, q.Path}
	h, ok := v.engine.histories.Get(key)
	if !ok {
		h = newHistory(q.Path)
	}
	if err := h.lock(ctx); err != nil {
		return nil, false, err
	}
	defer h.unlock()
	if h.walk == nil || !g.Continues(h.origin) {
		h.restart(g, tip)
	}
	err = h.fill(ctx, g, q.Skip+q.Limit+1)
	v.engine.histories.Put(key, h, h.bytes())
	if err != nil {
		return nil, false, err
	}
	if q.Skip > len(h.listed) {
		return nil, false, invalid("the history of %s has no more than %d commits", q.Tip, len(h.listed))
	}
	end := min(q.Skip+q.Limit, len(h.listed))
	for _, n := range h.listed[q.Skip:end] {
		ids = append(ids, g.ID(n))
	}
	return ids, len(h.listed) > end, nil
}

type historyKey struct {
	repo meta.RepoID
	tip  object.ID
	path string
}

// history is the list of a tip's commits as far as somebody asked for it, and
// where to go on: page after page costs what the page costs.
type history struct {
	turn   chan struct{} // holds one value while somebody uses what follows
	origin graph.Origin  // of the nodes
	path   []string      // names from the root; nil lists all commits
	walk   *graph.Walk   // nil: begin anew
	listed []graph.Node
	// at is what path is in the commits that the walk will come to.
	at map[graph.Node]trail
}

func newHistory(path string) *history {
	h := &history{turn: make(chan struct{}, 1)}
	if path != "" {
		h.path = strings.Split(path, "/")
	}
	return h
}

func (h *history) lock(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *history) unlock() { <-h.turn }

func (h *history) restart(g *graph.Graph, tip graph.Node) {
	h.walk, h.listed, h.at, h.origin = g.NewWalk(), nil, map[graph.Node]trail{}, g.Origin()
	h.walk.Push(g, tip)
}

// bytes estimates the memory of the history.
func (h *history) bytes() int64 {
	n := 512 + int64(cap(h.listed))*4
	if h.walk != nil {
		n += h.walk.Bytes()
	}
	for _, name := range h.path {
		n += int64(len(name)) + 16
	}
	for _, t := range h.at {
		n += 64 + int64(len(t))*32
	}
	return n
}

// fill lists commits until there are n or no more.
func (h *history) fill(ctx context.Context, g *graph.Graph, n int) error {
	for len(h.listed) < n {
		if err := ctx.Err(); err != nil {
			return err
		}
		at, ok := h.walk.Next()
		if !ok {
			return nil
		}
		shown, err := true, error(nil)
		if h.path == nil {
			for _, p := range g.Parents(at) {
				h.walk.Push(g, p)
			}
		} else if shown, err = h.follow(ctx, g, at); err != nil {
			h.walk = nil // the commit was taken and not dealt with
			return err
		}
		if shown {
			h.listed = append(h.listed, at)
		}
	}
	return nil
}

// follow walks on from a commit to the parents that the path may come from, and
// reports whether the commit changes it. As git simplifies history, a path that
// is the same in some parent is followed there alone, into the first such one.
func (h *history) follow(ctx context.Context, g *graph.Graph, n graph.Node) (changed bool, err error) {
	mine, known := h.at[n]
	if !known {
		if mine, err = h.trail(ctx, g, n, nil); err != nil {
			return false, err
		}
	}
	delete(h.at, n)
	parents := g.Parents(n)
	theirs := make([]trail, len(parents))
	for i, p := range parents {
		if theirs[i], err = h.trail(ctx, g, p, mine); err != nil {
			return false, err
		}
		if h.end(theirs[i]) == h.end(mine) {
			if h.walk.Push(g, p) {
				h.at[p] = theirs[i]
			}
			return false, nil
		}
	}
	for i, p := range parents {
		if h.walk.Push(g, p) {
			h.at[p] = theirs[i]
		}
	}
	return len(parents) > 0 || h.end(mine) != child{}, nil
}

// trail is what a commit has at each step of a path, the root tree first. It ends
// with the last that exists.
type trail []child

// end returns what is at the path itself; zero when nothing is.
func (h *history) end(t trail) child {
	if len(t) <= len(h.path) {
		return child{}
	}
	return t[len(h.path)]
}

// trail returns the trail of the path in a commit. From where it meets near, that
// of a commit close by, the two are the same and nothing is read.
func (h *history) trail(ctx context.Context, g *graph.Graph, n graph.Node, near trail) (trail, error) {
	at := child{object.ModeDir, g.Tree(n)}
	t := make(trail, 0, max(len(near), 1))
	for i := 0; ; i++ {
		if i < len(near) && near[i] == at {
			return append(t, near[i:]...), nil
		}
		t = append(t, at)
		if i == len(h.path) || !at.mode.IsDir() {
			return t, nil
		}
		data, err := g.DB().Tree(ctx, at.id)
		if err != nil {
			return nil, err
		}
		e, ok, err := object.Find(data, h.path[i])
		if err != nil || !ok {
			return t, err
		}
		at = child{e.Mode.Canonical(), e.ID}
	}
}

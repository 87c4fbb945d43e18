package crash_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/tests/stack"
)

// inlineLimit makes packs of some kilobytes large ones.
const inlineLimit = 4 << 10

// worker does one thing after another to repositories of its own.
type worker struct {
	name   string
	stack  *stack.Stack
	clock  *stack.Clock
	author stack.Author
	rand   *rand.Rand
	mu     sync.Mutex // of tracks, which the loss of power looks at
	tracks []*track
	// threads are those of checkpoints. With only, nothing is done to repositories.
	threads []*track
	only    bool
	// lines are what the worker has made, by repository and tip.
	lines map[string]map[object.ID]stack.Line
	// failed takes the errors of operations; without it there must be none.
	failed func(step string, err error)
}

func newWorker(name string, s *stack.Stack, clock *stack.Clock, seed uint64) *worker {
	rng := rand.New(rand.NewPCG(seed, 0xc4a5))
	return &worker{name: name, stack: s, clock: clock, rand: rng, author: stack.Author{Rand: rng}, lines: make(map[string]map[object.ID]stack.Line)}
}

const mainRef = "refs/heads/main"

// operate runs one operation on a repository. do returns the moves of refs that
// it asked for, also when it fails. made are the lines that it adds to.
func (w *worker) operate(ctx context.Context, what string, t *track, do func(id meta.RepoID) (next state, err error), made ...stack.Line) error {
	for _, l := range made {
		w.lines[t.name][l.Tip] = l
	}
	before, id, err := t.look(ctx, w.stack)
	if err != nil {
		return w.fail(what, err)
	}
	if !t.settle(before) {
		return &lostError{fmt.Sprintf("before %s: %s is %s, it was %s", what, t.name, before, t.now())}
	}
	t.begin()
	next, err := do(id)
	if err == nil {
		t.end(next)
		return nil
	}
	if w.failed == nil {
		t.end(before)
		return fmt.Errorf("%s of %s: %w", what, t.name, err)
	}
	if wrong := misleading(err); wrong != "" {
		return &lostError{fmt.Sprintf("%s of %s: a fault of the disk is told as %s: %v", what, t.name, wrong, err)}
	}
	w.failed(what, err)
	// It may have happened or not, as a whole.
	got, _, err := t.look(ctx, w.stack)
	if err != nil {
		t.leave(next)
		return w.fail(what, err)
	}
	if !got.equal(before) && !got.equal(next) {
		return &lostError{fmt.Sprintf("%s of %s failed: it is %s, it was %s and was to be %s", what, t.name, got, before, next)}
	}
	t.end(got)
	return nil
}

func (w *worker) fail(what string, err error) error {
	if w.failed == nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	w.failed(what, err)
	return errUnreadable
}

// errUnreadable says that the state of a repository cannot be read now.
var errUnreadable = errors.New("the state cannot be read")

// lostError is a broken promise.
type lostError struct{ what string }

func (e *lostError) Error() string { return e.what }

// misleading names what an error that a disk caused must not be.
func misleading(err error) string {
	var refused *stack.RefusedError
	var stale *repo.StaleError
	var gone *repo.GoneError
	var missing *repo.NotFoundError
	var lacking *tree.MissingError
	if _, ok := errors.AsType[*checkpoint.Error](err); ok {
		return "a refusal"
	}
	switch {
	case errors.As(err, &refused), errors.As(err, &stale):
		return "a refusal"
	case errors.As(err, &lacking), errors.As(err, &gone), errors.As(err, &missing), errors.Is(err, meta.ErrNotFound), errors.Is(err, blob.ErrNotFound):
		return "something absent"
	}
	return ""
}

// line returns what a ref points to.
func (w *worker) line(t *track, ref string) stack.Line { return w.lines[t.name][t.now().refs[ref]] }

// track returns a new one.
func (w *worker) track(lines map[object.ID]stack.Line) *track {
	t := newTrack(fmt.Sprintf("%s-%d", w.name, len(w.tracks)), false)
	w.mu.Lock()
	w.tracks = append(w.tracks, t)
	w.mu.Unlock()
	w.lines[t.name] = maps.Clone(lines)
	return t
}

// create makes a repository.
func (w *worker) create(ctx context.Context) error {
	t := w.track(map[object.ID]stack.Line{})
	return w.operate(ctx, "create", t, func(meta.RepoID) (state, error) {
		_, err := w.stack.Engine.Create(ctx, stack.Writer, repo.CreateRequest{Name: t.name})
		return state{refs: map[string]object.ID{}}, err
	})
}

// push grows a ref from what another, or itself, points to; the zero line gives
// it a history that begins anew.
func (w *worker) push(ctx context.Context, t *track, ref string, from stack.Line, n, size int) error {
	next, pack := w.author.Grow(from, n, size)
	was := t.now()
	return w.operate(ctx, "push", t, func(id meta.RepoID) (state, error) {
		moves := map[string]object.ID{ref: next.Tip}
		return was.with(moves), w.stack.Push(ctx, id, &wire.Push{Commands: []wire.Command{{Ref: ref, Old: was.refs[ref], New: next.Tip}}}, pack)
	}, next)
}

// move makes and removes refs in one atomic push without a pack.
func (w *worker) move(ctx context.Context, t *track, moves map[string]object.ID) error {
	was := t.now()
	return w.operate(ctx, "move", t, func(id meta.RepoID) (state, error) {
		p := &wire.Push{Atomic: true}
		for _, ref := range slices.Sorted(maps.Keys(moves)) {
			p.Commands = append(p.Commands, wire.Command{Ref: ref, Old: was.refs[ref], New: moves[ref]})
		}
		return was.with(moves), w.stack.Push(ctx, id, p, nil)
	})
}

// commit writes upon main by the commit API.
func (w *worker) commit(ctx context.Context, t *track, size int) error {
	path, text := fmt.Sprintf("saved%d", w.rand.IntN(4)), w.author.Text(size)
	was := t.now()
	next := w.line(t, mainRef).Saved(path, text)
	return w.operate(ctx, "commit", t, func(id meta.RepoID) (state, error) {
		got, err := w.stack.Commit(ctx, id, "main", nil, path, text)
		if err == nil && got.Commit != next.Tip {
			return state{}, &lostError{fmt.Sprintf("commit %s was made, %s was to be", got.Commit, next.Tip)}
		}
		return was.with(map[string]object.ID{mainRef: next.Tip}), err
	}, next)
}

// fork copies a repository.
func (w *worker) fork(ctx context.Context, source *track) error {
	t := w.track(w.lines[source.name])
	refs := maps.Clone(source.now().refs)
	_, id, err := look(ctx, w.stack, source.name)
	if err != nil {
		return w.fail("fork", err)
	}
	return w.operate(ctx, "fork", t, func(meta.RepoID) (state, error) {
		v, err := w.stack.View(ctx, id)
		if err == nil {
			_, err = w.stack.Engine.Fork(ctx, stack.Writer, v, repo.ForkRequest{CreateRequest: repo.CreateRequest{Name: t.name}})
		}
		return state{refs: refs}, err
	})
}

// remove deletes a repository, or purges a deleted one.
func (w *worker) remove(ctx context.Context, t *track) error {
	purge := t.now().deleted
	return w.operate(ctx, "remove", t, func(id meta.RepoID) (state, error) {
		r, err := w.stack.Meta.Repo(ctx, id)
		if err != nil {
			return state{}, err
		}
		if purge {
			return state{absent: true}, w.stack.Engine.Purge(ctx, stack.Writer, r)
		}
		return state{deleted: true}, w.stack.Engine.Delete(ctx, stack.Writer, r)
	})
}

// collect compacts a repository, which changes nothing that can be seen.
func (w *worker) collect(ctx context.Context, t *track) error {
	was := t.now()
	return w.operate(ctx, "collect", t, func(id meta.RepoID) (state, error) {
		_, err := w.stack.Engine.Collect(ctx, id, repo.CollectOptions{Full: true})
		return was, err
	})
}

// sweep removes what is not used any more.
func (w *worker) sweep(ctx context.Context) error {
	w.clock.Pass(10 * time.Minute)
	err := w.stack.Engine.Heartbeat(ctx)
	if err == nil {
		_, err = w.stack.Engine.Sweep(ctx)
	}
	if err != nil && w.failed != nil {
		w.failed("sweep", err)
		return nil
	}
	return err
}

// any returns a repository that lives, if there is one with commits.
func (w *worker) any() *track {
	var live []*track
	for _, t := range w.tracks {
		if now := t.now(); !now.absent && !now.deleted && !now.refs[mainRef].IsZero() {
			live = append(live, t)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rand.IntN(len(live))]
}

// step does one thing of many.
func (w *worker) step(ctx context.Context) error {
	if w.only {
		return w.threadStep(ctx)
	}
	t := w.any()
	if t == nil || w.rand.IntN(12) == 0 && len(w.tracks) < 8 {
		if err := w.create(ctx); err != nil {
			return err
		}
		t = w.tracks[len(w.tracks)-1]
		if t.now().absent {
			return nil
		}
		return w.push(ctx, t, mainRef, stack.Line{}, 1, 100)
	}
	side := fmt.Sprintf("refs/heads/side%d", w.rand.IntN(4))
	ref, from := mainRef, w.line(t, mainRef)
	if w.rand.IntN(3) == 0 {
		ref = side
		if l := w.line(t, side); !l.Tip.IsZero() {
			from = l
		}
	}
	switch n := w.rand.IntN(25); {
	case n < 5:
		return w.push(ctx, t, ref, from, 1+w.rand.IntN(2), 200)
	case n < 10:
		return w.push(ctx, t, ref, from, 3, 2<<10)
	case n < 12:
		return w.push(ctx, t, ref, stack.Line{}, 2, 1<<10)
	case n < 16:
		return w.commit(ctx, t, 100+w.rand.IntN(200))
	case n < 18:
		moves := map[string]object.ID{"refs/tags/" + w.author.Text(8)[5:6]: t.now().refs[mainRef]}
		if now := t.now().refs[side]; now.IsZero() {
			moves[side] = t.now().refs[mainRef]
		} else {
			moves[side] = object.Zero
		}
		return w.move(ctx, t, moves)
	case n < 20 && len(w.tracks) < 10:
		return w.fork(ctx, t)
	case n < 22 && len(w.tracks) > 3:
		if err := w.remove(ctx, t); err != nil || w.rand.IntN(2) == 0 || !t.now().deleted {
			return err
		}
		return w.remove(ctx, t)
	case n < 24:
		return w.collect(ctx, t)
	default:
		return w.sweep(ctx)
	}
}

// known returns the tracks so far; other goroutines call it.
func (w *worker) known() []*track {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.tracks, w.threads)
}

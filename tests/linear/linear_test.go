package linear_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/stack"
)

// groups are the refs that clients contend for; those of one group may be pushed
// together.
var groups = [][]string{
	{"refs/heads/a", "refs/heads/b"},
	{"refs/heads/c"},
	{"refs/heads/d"},
	{"refs/heads/e", "refs/heads/f", "refs/heads/g"},
}

// arena is a repository that many clients write at once, on one node or several.
type arena struct {
	nodes []*stack.Stack
	id    meta.RepoID
	base  object.ID // a commit that is always there
	start time.Time

	mu      sync.Mutex
	history []operation
}

func newArena(t *testing.T, nodes int, o stack.Options) *arena {
	t.Helper()
	o.FS, o.Inline = fsx.NewMem(), 2<<10
	a := &arena{start: time.Now()}
	for range nodes {
		s, err := stack.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		a.nodes = append(a.nodes, s)
	}
	r, err := a.nodes[0].Engine.Create(t.Context(), stack.Writer, repo.CreateRequest{Name: "arena"})
	if err != nil {
		t.Fatal(err)
	}
	a.id = r.ID
	author := stack.Author{Rand: rand.New(rand.NewPCG(1, 1))}
	line, pack := author.Grow(stack.Line{}, 1, 100)
	a.base = line.Tip
	err = a.nodes[0].Push(t.Context(), a.id, &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/main", New: a.base}}}, pack)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// client is one of many.
type client struct {
	*arena
	node   *stack.Stack
	rand   *rand.Rand
	author stack.Author
	known  refs // what the client last heard of each ref
}

// run does n actions. The error is a fault.
func (c *client) run(ctx context.Context, n int) error {
	for range n {
		i := c.rand.IntN(len(groups))
		a := action{group: fmt.Sprint(groups[i]), ref: groups[i][c.rand.IntN(len(groups[i]))]}
		var r answer
		var err error
		from := time.Since(c.start)
		switch n := c.rand.IntN(20); {
		case n < 5:
			a.what = read
			r, err = c.read(ctx, groups[i])
		case n < 9:
			r, err = c.push(ctx, &a, []string{a.ref})
		case n < 12:
			r, err = c.push(ctx, &a, groups[i])
		case n < 14:
			r, err = c.commit(ctx, &a, true)
		case n < 17:
			r, err = c.commit(ctx, &a, false)
		case n < 19:
			r, err = c.create(ctx, &a)
		default:
			r, err = c.remove(ctx, &a)
		}
		to := time.Since(c.start)
		var lost *repo.ConflictError
		if errors.As(err, &lost) {
			continue // it gave up; nothing was written
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
		c.mu.Lock()
		c.history = append(c.history, operation{int64(from), int64(to), a, r})
		c.mu.Unlock()
	}
	return nil
}

// read lists refs as a fetch does.
func (c *client) read(ctx context.Context, group []string) (answer, error) {
	v, err := c.node.View(ctx, c.id)
	if err != nil {
		return answer{}, err
	}
	r := answer{seen: refs{}}
	err = v.Refs(ctx, "refs/heads/", func(ref meta.Ref) error {
		for _, name := range group {
			if ref.Name == name {
				r.seen[name] = ref.ID
			}
		}
		return nil
	})
	for _, name := range group {
		c.known[name] = r.seen[name]
	}
	return r, err
}

// push moves refs, from what the client believes of them, to one new commit; now
// and then it deletes them.
func (c *client) push(ctx context.Context, a *action, names []string) (answer, error) {
	a.what, a.want, a.next = swap, refs{}, refs{}
	var tip object.ID
	var pack []byte
	if c.rand.IntN(6) > 0 {
		var line stack.Line
		line, pack = c.author.Grow(stack.Line{}, 1, []int{60, 3 << 10}[c.rand.IntN(2)])
		tip = line.Tip
	}
	p := &wire.Push{Atomic: true}
	for _, name := range names {
		a.want[name], a.next[name] = c.known[name], tip
		p.Commands = append(p.Commands, wire.Command{Ref: name, Old: c.known[name], New: tip})
	}
	err := c.node.Push(ctx, c.id, p, pack)
	var refused *stack.RefusedError
	if errors.As(err, &refused) && refused.Result.Unpack == "" {
		return answer{}, nil
	}
	if err == nil {
		for _, name := range names {
			c.known[name] = tip
		}
	}
	return answer{done: err == nil}, err
}

// commit writes by the commit API, upon what the client believes or upon what is
// there.
func (c *client) commit(ctx context.Context, a *action, expect bool) (answer, error) {
	var expected *object.ID
	a.what = advance
	if id := c.known[a.ref]; expect && !id.IsZero() {
		a.what = swap
		expected = &id
		a.want = refs{a.ref: id}
	}
	res, err := c.node.Commit(ctx, c.id, a.ref[len("refs/heads/"):], expected, "file", c.author.Text(60))
	var stale *repo.StaleError
	if errors.As(err, &stale) {
		c.known[a.ref] = stale.Current
		return answer{told: true, seen: refs{a.ref: stale.Current}}, nil
	}
	var absent *repo.NotFoundError
	if errors.As(err, &absent) {
		c.known[a.ref] = object.Zero
		return answer{told: true, seen: refs{a.ref: object.Zero}}, nil
	}
	if err != nil {
		return answer{}, err
	}
	a.next = refs{a.ref: res.Commit}
	c.known[a.ref] = res.Commit
	return answer{done: true, told: true, seen: refs{a.ref: res.Old}, made: res.Commit}, nil
}

func (c *client) create(ctx context.Context, a *action) (answer, error) {
	a.what, a.next = create, refs{a.ref: c.base}
	v, err := c.node.View(ctx, c.id)
	if err != nil {
		return answer{}, err
	}
	_, err = c.node.Engine.CreateBranch(ctx, stack.Writer, v, repo.BranchRequest{Target: a.ref[len("refs/heads/"):], Base: c.base.String()})
	var exists *repo.ExistsError
	if errors.As(err, &exists) {
		return answer{}, nil
	}
	if err == nil {
		c.known[a.ref] = c.base
	}
	return answer{done: err == nil}, err
}

func (c *client) remove(ctx context.Context, a *action) (answer, error) {
	a.what = remove
	v, err := c.node.View(ctx, c.id)
	if err != nil {
		return answer{}, err
	}
	was, err := c.node.Engine.DeleteBranch(ctx, stack.Writer, v, a.ref[len("refs/heads/"):], false)
	var absent *repo.NotFoundError
	if errors.As(err, &absent) {
		c.known[a.ref] = object.Zero
		return answer{}, nil
	}
	if err != nil {
		return answer{}, err
	}
	c.known[a.ref] = object.Zero
	return answer{done: true, told: true, seen: refs{a.ref: was}}, nil
}

// consumer follows the events of the org, some at a time.
type consumer struct {
	events []meta.Event
	after  int64
}

// poll takes what there is.
func (c *consumer) poll(ctx context.Context, s meta.Store) error {
	for {
		events, err := s.Events(ctx, stack.Org, c.after, 7)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if e.Position <= c.after {
				return fmt.Errorf("event %d came after %d", e.Position, c.after)
			}
			c.after = e.Position
			c.events = append(c.events, e)
		}
	}
}

// check compares what was consumed with the ref log.
func (c *consumer) check(ctx context.Context, s meta.Store, id meta.RepoID) error {
	log, complete, err := s.RefLog(ctx, id, 0, 1<<20)
	if err != nil || !complete {
		return fmt.Errorf("ref log: complete %v, %w", complete, err)
	}
	type move struct {
		version            int64
		ref, before, after string
	}
	left := make(map[move]bool)
	for _, e := range log {
		left[move{e.Version, e.Name, e.Old.String(), e.New.String()}] = true
	}
	version := int64(0)
	for _, e := range c.events {
		var body struct{ Ref, Before, After string }
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		if e.Version < version {
			return fmt.Errorf("an event of version %d came after one of version %d", e.Version, version)
		}
		version = e.Version
		m := move{e.Version, body.Ref, body.Before, body.After}
		if !left[m] {
			return fmt.Errorf("event %+v was seen twice, or the ref log does not know it", m)
		}
		delete(left, m)
	}
	if len(left) > 0 {
		return fmt.Errorf("%d of %d moves of refs have no event", len(left), len(log))
	}
	return nil
}

// fight lets clients loose and returns what consumers of the events saw.
func (a *arena) fight(t *testing.T, seed uint64, clients, actions int) []*consumer {
	t.Helper()
	ctx := t.Context()
	var all, following sync.WaitGroup
	errs := make(chan error, clients+8)
	over := make(chan struct{})
	consumers := []*consumer{{}, {}}
	for i, c := range consumers {
		s := a.nodes[i%len(a.nodes)].Meta
		following.Go(func() {
			for last := false; ; {
				if err := c.poll(ctx, s); err != nil {
					errs <- err
					return
				}
				if last {
					return
				}
				select {
				case <-over:
					last = true
				case <-time.After(time.Duration(i) * 5 * time.Millisecond):
				}
			}
		})
	}
	for i := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		c := &client{arena: a, node: a.nodes[i%len(a.nodes)], rand: rng, author: stack.Author{Rand: rng}, known: refs{}}
		all.Go(func() {
			if err := c.run(ctx, actions); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	close(over)
	following.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	return consumers
}

func test(t *testing.T, nodes int, o func(t *testing.T) stack.Options) {
	rounds, clients, actions := 3, 64, 12
	if testkit.Soaking() {
		rounds, actions = 20, 40
	}
	base := testkit.Seed(t)
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			a := newArena(t, nodes, o(t))
			a.check(t, a.fight(t, base+uint64(round), clients, actions))
		})
	}
}

// check judges what clients and consumers were told.
func (a *arena) check(t *testing.T, consumers []*consumer) {
	t.Helper()
	if err := linearizable(a.history); err != nil {
		t.Error(err)
	}
	for _, c := range consumers {
		if err := c.check(t.Context(), a.nodes[0].Meta, a.id); err != nil {
			t.Errorf("events: %v", err)
		}
	}
	if err := a.nodes[0].Check(t.Context(), a.id); err != nil {
		t.Error(err)
	}
	done := 0
	for _, op := range a.history {
		if op.answer.done && op.action.what != read {
			done++
		}
	}
	t.Logf("%d operations, %d of them moved refs, %d events", len(a.history), done, len(consumers[0].events))
	if done < 10 || done > len(a.history)/2 {
		t.Errorf("%d of %d operations moved refs: the clients do not contend", done, len(a.history))
	}
}

// TestHistoriesSQLite checks histories of clients of one server.
func TestHistoriesSQLite(t *testing.T) {
	test(t, 1, func(*testing.T) stack.Options { return stack.Options{} })
}

// TestHistoriesPostgres checks histories of clients of two servers that share a database
// and the bytes.
func TestHistoriesPostgres(t *testing.T) {
	test(t, 2, func(t *testing.T) stack.Options { return stack.Options{Postgres: testkit.Postgres(t)} })
}

// blind is a store that writes refs whatever their old value is.
type blind struct{ meta.Store }

func (b blind) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	for {
		v, err := b.Store.Apply(ctx, c)
		if err != nil || v.Applied || v.Conflict.Kind != meta.ConflictRef {
			return v, err
		}
		for i := range c.Refs {
			if c.Refs[i].Name == v.Conflict.Ref {
				c.Refs[i].Old = v.Conflict.Current
			}
		}
	}
}

// TestFaultsAreNoticed proves that the checks find writes that are lost and
// events that are missing, repeated or out of order.
func TestFaultsAreNoticed(t *testing.T) {
	noticed := false
	for round := uint64(0); round < 20 && !noticed; round++ {
		a := newArena(t, 1, stack.Options{Meta: func(s meta.Store) meta.Store { return blind{s} }})
		a.fight(t, round, 32, 12)
		noticed = linearizable(a.history) != nil
	}
	if !noticed {
		t.Error("a store that overwrites what it did not expect passes")
	}

	a := newArena(t, 1, stack.Options{})
	whole := a.fight(t, 1, 8, 12)[0]
	s := a.nodes[0].Meta
	if err := whole.check(t.Context(), s, a.id); err != nil {
		t.Fatal(err)
	}
	n := len(whole.events) / 2
	for name, events := range map[string][]meta.Event{
		"missing":      slices.Delete(slices.Clone(whole.events), n, n+1),
		"twice":        slices.Insert(slices.Clone(whole.events), n, whole.events[n]),
		"out of order": append(slices.Clone(whole.events[1:]), whole.events[0]),
	} {
		if err := (&consumer{events: events}).check(t.Context(), s, a.id); err == nil {
			t.Errorf("an event that is %s is not noticed", name)
		}
	}
}

// meanwhile is a store in which something happens before the next Change that
// moves refs.
type meanwhile struct {
	meta.Store
	do *func()
}

func (m meanwhile) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	if do := *m.do; do != nil && len(c.Refs) > 0 {
		*m.do = nil
		do()
	}
	return m.Store.Apply(ctx, c)
}

// TestPushIsOneMoment deletes two branches in one atomic push. One is gone
// already when the push is judged, and there again when the other one moves.
func TestPushIsOneMoment(t *testing.T) {
	var do func()
	a := newArena(t, 1, stack.Options{Meta: func(s meta.Store) meta.Store { return meanwhile{s, &do} }})
	ctx, s := t.Context(), a.nodes[0]
	create := wire.Command{Ref: "refs/heads/b", New: a.base}
	if err := s.Push(ctx, a.id, &wire.Push{Commands: []wire.Command{create}}, nil); err != nil {
		t.Fatal(err)
	}
	author := stack.Author{Rand: rand.New(rand.NewPCG(2, 2))}
	line, pack := author.Grow(stack.Line{}, 1, 60)
	do = func() {
		if err := s.Push(ctx, a.id, &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/a", New: line.Tip}}}, pack); err != nil {
			t.Error(err)
		}
	}
	err := s.Push(ctx, a.id, &wire.Push{Atomic: true, Commands: []wire.Command{
		{Ref: "refs/heads/a", Old: a.base}, {Ref: "refs/heads/b", Old: a.base},
	}}, nil)
	var refused *stack.RefusedError
	if !errors.As(err, &refused) {
		t.Errorf("the push ended with %v; one branch was not where it was expected", err)
	}
	got, err := s.Refs(ctx, a.id)
	if err != nil || got["refs/heads/a"] != line.Tip || got["refs/heads/b"] != a.base {
		t.Errorf("after the push: %v, %v", got, err)
	}
}

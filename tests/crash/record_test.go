package crash_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/tests/stack"
)

// state is what a repository may look like: absent, deleted or with these refs; or a
// thread: its checkpoints, the head at the end.
type state struct {
	absent, deleted bool
	refs            map[string]object.ID
	chain           []point
}

func (s state) equal(o state) bool {
	return s.absent == o.absent && s.deleted == o.deleted && maps.Equal(s.refs, o.refs) && slices.Equal(s.chain, o.chain)
}

// with returns the state after refs have moved; zero removes one.
func (s state) with(moves map[string]object.ID) state {
	next := state{refs: maps.Clone(s.refs)}
	if next.refs == nil {
		next.refs = make(map[string]object.ID)
	}
	for name, id := range moves {
		if id.IsZero() {
			delete(next.refs, name)
		} else {
			next.refs[name] = id
		}
	}
	return next
}

func (s state) String() string {
	switch {
	case s.absent:
		return "absent"
	case s.deleted:
		return "deleted"
	}
	var text string
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		text += fmt.Sprintf(" %s=%.8s", name, s.refs[name].String())
	}
	for _, c := range s.chain {
		text += fmt.Sprintf(" %s=%.8s", c.id, c.root)
	}
	return "live" + text
}

// track is the way of one repository, or thread, through its states.
type track struct {
	name   string
	thread bool
	mu     sync.Mutex
	// states grows by one with each operation, as it begins; the operation sets
	// what it leads to as it ends, and what the repository is if it fails.
	states []*future
	acked  int // the last state whose operation has ended
}

// future is a state that may not be known yet.
type future struct {
	known chan struct{}
	state state
}

func newTrack(name string, thread bool) *track {
	t := &track{name: name, thread: thread, states: []*future{{known: make(chan struct{}), state: state{absent: !thread}}}}
	close(t.states[0].known)
	return t
}

// now returns the last state that is known.
func (t *track) now() state {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.states[t.acked].state
}

// begin notes that an operation begins.
func (t *track) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states = append(t.states, &future{known: make(chan struct{})})
}

// end notes what an operation led to.
func (t *track) end(s state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked++
	f := t.states[t.acked]
	f.state = s
	close(f.known)
}

// leave notes that an operation ended and whether it led to s is unknown.
func (t *track) leave(s state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.states[t.acked+1]
	f.state = s
	close(f.known)
}

// settle takes what the repository is found to be for the outcome of an
// operation that was left. It reports false when it is neither state.
func (t *track) settle(got state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.states[t.acked].state
	if t.acked == len(t.states)-1 {
		return got.equal(before)
	}
	t.acked++
	next := t.states[t.acked].state
	t.states[t.acked].state = got
	return got.equal(before) || got.equal(next)
}

// mark is what must be true of a repository or thread after a loss of power: it is in one
// of these states, in the order of time.
type mark struct {
	name   string
	thread bool
	states []*future
}

// done returns how far the operations are that have ended.
func (t *track) done() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acked
}

// mark returns what may be true when what had been done then must be.
func (t *track) mark(done int) mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return mark{t.name, t.thread, slices.Clone(t.states[done:])}
}

// look reads the state of a repository.
func look(ctx context.Context, s *stack.Stack, name string) (state, meta.RepoID, error) {
	gate, err := s.Meta.Gate(ctx, meta.GateQuery{Org: "acme", Repo: name})
	if err != nil {
		return state{}, 0, err
	}
	switch r := gate.Repo; {
	case r.ID == 0:
		return state{absent: true}, 0, nil
	case !r.Deleted.IsZero():
		return state{deleted: true}, r.ID, nil
	default:
		refs, err := s.Refs(ctx, r.ID)
		return state{refs: refs}, r.ID, err
	}
}

// look reads the state of what the track is of.
func (t *track) look(ctx context.Context, s *stack.Stack) (state, meta.RepoID, error) {
	if t.thread {
		got, err := lookThread(ctx, s, t.name)
		return got, 0, err
	}
	return look(ctx, s, t.name)
}

// check compares a repository or a thread with its mark; live is 0 for all but a
// repository that exists.
func (m mark) check(ctx context.Context, s *stack.Stack) (live meta.RepoID, err error) {
	got, id, err := (&track{name: m.name, thread: m.thread}).look(ctx, s)
	if err != nil {
		return 0, err
	}
	want := ""
	for _, f := range m.states {
		<-f.known
		if got.equal(f.state) {
			if got.absent || got.deleted {
				id = 0
			}
			return id, readAll(ctx, s, got.chain)
		}
		want += "\n\tor " + f.state.String()
	}
	return 0, errors.New(m.name + " is lost or old: it is " + got.String() + want)
}

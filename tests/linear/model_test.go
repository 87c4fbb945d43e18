package linear_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// refs are the values of the refs of one group; what is absent is not in it.
type refs map[string]object.ID

// action is what a client asked for.
type action struct {
	group string // refs of different groups never move together
	what  what
	ref   string
	// want are the values that must be there for the action to be done, and next
	// those that it leads to; zero is absence.
	want, next refs
}

type what string

const (
	read    what = "read"    // tells all refs of the group
	swap    what = "swap"    // want → next, all or none
	advance what = "advance" // a commit upon whatever ref is at, if it exists
	create  what = "create"  // a branch that must not exist
	remove  what = "remove"  // a branch, whatever it is at
)

// answer is what the client was told.
type answer struct {
	done bool
	// seen are values that the answer tells: all refs for read; for others what
	// ref was at before, where told says so.
	seen refs
	told bool
	made object.ID // by advance
}

// step applies an action to a state, or reports that it cannot have been so.
func step(now refs, a action, r answer) (bool, refs) {
	at := now[a.ref]
	if r.told && r.seen[a.ref] != at {
		return false, nil
	}
	// A ref that is where it should go already is left alone.
	fits := true
	for ref, id := range a.want {
		next, known := a.next[ref] // a refused commit was never made
		fits = fits && (now[ref] == id || known && now[ref] == next)
	}
	switch a.what {
	case read:
		return maps.Equal(now, r.seen), now
	case swap:
		if !r.done {
			return !fits, now
		}
		return fits, now.with(a.next)
	case advance:
		if !r.done {
			return at.IsZero(), now
		}
		return true, now.with(refs{a.ref: r.made})
	case create:
		if !r.done {
			return !at.IsZero(), now
		}
		return at.IsZero(), now.with(a.next)
	case remove:
		if !r.done {
			return at.IsZero(), now
		}
		return !at.IsZero(), now.with(refs{a.ref: object.Zero})
	}
	return false, nil
}

func (r refs) with(next refs) refs {
	out := refs{}
	maps.Copy(out, r)
	for ref, id := range next {
		if out[ref] = id; id.IsZero() {
			delete(out, ref)
		}
	}
	return out
}

func (r refs) String() string {
	var parts []string
	for _, ref := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, ref+"="+r[ref].String())
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// TestChecker gives the checker histories that it must take and refuse.
func TestChecker(t *testing.T) {
	id := func(n byte) object.ID { return object.ID{n} }
	at := func(n byte) refs {
		if n == 0 {
			return refs{}
		}
		return refs{"a": id(n)}
	}
	op := func(from, to int64, a action, r answer) operation {
		a.group, a.ref = "a", "a"
		return operation{from, to, a, r}
	}
	cas := func(old, next byte) action {
		return action{what: swap, want: refs{"a": id(old)}, next: refs{"a": id(next)}}
	}
	pair := func(old, next byte) action {
		return action{what: swap, want: refs{"a": id(old), "b": id(old)}, next: refs{"a": id(next), "b": id(next)}}
	}
	see := func(n byte) answer { return answer{seen: at(n)} }
	done, refused := answer{done: true}, answer{}
	upon := func(old, made byte) answer {
		return answer{done: true, told: true, seen: refs{"a": id(old)}, made: id(made)}
	}
	for _, c := range []struct {
		name    string
		good    bool
		history []operation
	}{
		{"one after the other", true, []operation{
			op(0, 1, cas(0, 1), done), op(2, 3, cas(1, 2), done), op(4, 5, action{what: read}, see(2)),
		}},
		{"a refusal of a swap that lost", true, []operation{
			op(0, 9, cas(0, 1), done), op(1, 8, cas(0, 2), refused), op(10, 11, action{what: read}, see(1)),
		}},
		{"two swaps from one value", false, []operation{op(0, 9, cas(0, 1), done), op(1, 8, cas(0, 2), done)}},
		{"a refusal without a reason", false, []operation{op(0, 1, cas(0, 1), done), op(2, 3, cas(1, 2), refused)}},
		{"a swap to what is there", true, []operation{op(0, 1, cas(0, 1), done), op(2, 3, cas(0, 1), done)}},
		{"a deletion that found nothing to do, or something", true, []operation{
			op(0, 1, cas(0, 1), done), op(2, 3, cas(1, 0), done), op(4, 9, cas(1, 0), done),
			op(5, 6, cas(0, 1), done), op(7, 8, action{what: read}, see(1)), op(10, 11, action{what: read}, see(0)),
		}},
		{"a pair of which one is there already", true, []operation{
			op(0, 1, cas(0, 1), done), op(2, 3, pair(0, 1), done),
			op(4, 5, action{what: read}, answer{seen: refs{"a": id(1), "b": id(1)}}),
		}},
		{"an old value read", false, []operation{
			op(0, 1, cas(0, 1), done), op(2, 3, cas(1, 2), done), op(4, 5, action{what: read}, see(1)),
		}},
		{"an old value read meanwhile", true, []operation{
			op(0, 1, cas(0, 1), done), op(2, 6, cas(1, 2), done), op(4, 5, action{what: read}, see(1)),
		}},
		{"a value seen and gone again", false, []operation{
			op(0, 1, cas(0, 1), done), op(2, 9, cas(1, 2), done),
			op(3, 4, action{what: read}, see(2)), op(5, 6, action{what: read}, see(1)),
		}},
		{"a value that nobody wrote", false, []operation{op(0, 1, action{what: read}, see(7))}},
		{"a lost commit", false, []operation{
			op(0, 1, cas(0, 9), done), op(2, 5, action{what: advance}, upon(9, 1)), op(3, 6, action{what: advance}, upon(9, 2)),
		}},
		{"commits upon each other", true, []operation{
			op(0, 1, cas(0, 9), done), op(2, 5, action{what: advance}, upon(2, 1)), op(3, 6, action{what: advance}, upon(9, 2)),
		}},
		{"a commit refused where there is a branch", false, []operation{
			op(0, 1, cas(0, 9), done), op(2, 5, action{what: advance}, refused),
		}},
		{"created twice", false, []operation{
			op(0, 5, action{what: create, next: at(1)}, done), op(1, 6, action{what: create, next: at(2)}, done),
		}},
		{"created, removed, created", true, []operation{
			op(0, 5, action{what: create, next: at(1)}, done), op(1, 6, action{what: create, next: at(2)}, done),
			op(2, 4, action{what: remove}, answer{done: true, told: true, seen: at(1)}),
		}},
		{"removed what was not there", false, []operation{op(0, 1, action{what: remove}, done)}},
		{"half of a pair", false, []operation{
			op(0, 1, pair(0, 1), done), op(2, 9, pair(1, 2), done),
			op(3, 4, action{what: read}, answer{seen: refs{"a": id(2), "b": id(1)}}),
		}},
		{"a pair as a whole", true, []operation{
			op(0, 1, pair(0, 1), done), op(2, 9, pair(1, 2), done),
			op(3, 4, action{what: read}, answer{seen: refs{"a": id(2), "b": id(2)}}),
		}},
	} {
		if err := linearizable(c.history); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

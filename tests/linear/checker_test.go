package linear_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// operation is an action with its answer, and the times of both.
type operation struct {
	call, end int64
	action    action
	answer    answer
}

// event is an operation as the search sees it.
type event[S fmt.Stringer] struct {
	call, end int64
	// step applies it to a state, or reports that it cannot have been so.
	step func(S) (bool, S)
	// still says that it changes nothing, wherever it stands.
	still bool
	// maybe says that nobody knows whether it took place.
	maybe bool
	text  string
}

// linearizable looks for an order of a history's operations that explains every
// answer and in which what ended comes before what was called later. Groups of
// refs are independent of each other.
func linearizable(history []operation) error {
	groups := map[string][]operation{}
	for _, op := range history {
		groups[op.action.group] = append(groups[op.action.group], op)
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		var events []event[refs]
		for _, op := range groups[g] {
			events = append(events, event[refs]{
				call: op.call, end: op.end, still: !op.answer.done || op.action.what == read, text: fmt.Sprintf("%+v", op),
				step: func(now refs) (bool, refs) { return step(now, op.action, op.answer) },
			})
		}
		if err := explain(events, refs{}); err != nil {
			return fmt.Errorf("on %s: %w", g, err)
		}
	}
	return nil
}

// explain looks for an order of events that begins in a state.
func explain[S fmt.Stringer](events []event[S], start S) error {
	slices.SortFunc(events, func(a, b event[S]) int { return cmp.Compare(a.call, b.call) })
	s := search[S]{ops: events, placed: make([]bool, len(events)), failed: map[string]bool{}}
	for _, e := range events {
		if !e.maybe {
			s.certain++
		}
	}
	if !s.from(start, 0) {
		return fmt.Errorf("%d operations have no order that explains them: the best one ends after %d at %s before\n%s", len(events), s.best, s.at, s.stuck)
	}
	return nil
}

// search is that of Wing and Gong, with the positions remembered that lead
// nowhere.
type search[S fmt.Stringer] struct {
	ops     []event[S] // by call
	certain int        // how many of them took place
	placed  []bool
	failed  map[string]bool
	// best is how many operations could be placed at once, which led to at; none
	// of stuck can follow.
	best  int
	at    S
	stuck string
}

// from reports whether the operations that are not placed can follow a state.
// Reads and refusals, which change nothing wherever they stand, are placed as
// soon as they can be: if any order is right, one is in which they come then.
func (s *search[S]) from(now S, count int) bool {
	var here []int // placed by this call
	defer func() {
		for _, i := range here {
			s.placed[i] = false
		}
	}()
	for again := true; again; {
		again = false
		for _, i := range s.next() {
			if !s.ops[i].still || s.ops[i].maybe {
				continue
			}
			if ok, _ := s.ops[i].step(now); ok {
				s.placed[i], again = true, true
				here = append(here, i)
			}
		}
	}
	count += len(here)
	if count > s.best {
		s.best, s.at, s.stuck = count, now, ""
		for _, i := range s.next() {
			s.stuck += "\t" + s.ops[i].text + "\n"
		}
	}
	if count == s.certain {
		return true
	}
	key := s.key(now)
	if s.failed[key] {
		return false
	}
	for _, i := range s.next() {
		if ok, then := s.ops[i].step(now); ok {
			s.placed[i] = true
			more := count
			if !s.ops[i].maybe {
				more++
			}
			found := s.from(then, more)
			s.placed[i] = false
			if found {
				return true
			}
		}
	}
	s.failed[key] = true
	return false
}

// next returns the operations that can be the next one: those called before any
// other that is not placed has ended.
func (s *search[S]) next() []int {
	var list []int
	end := int64(1<<63 - 1)
	for i, op := range s.ops {
		if s.placed[i] {
			continue
		}
		if op.call > end {
			break
		}
		end = min(end, op.end)
		list = append(list, i)
	}
	return slices.DeleteFunc(list, func(i int) bool { return s.ops[i].call > end })
}

// key names a position.
func (s *search[S]) key(now S) string {
	key := []byte(now.String())
	var word uint64
	for i, placed := range s.placed {
		if placed {
			word |= 1 << (i % 64)
		}
		if i%64 == 63 || i == len(s.placed)-1 {
			key = binary.LittleEndian.AppendUint64(key, word)
			word = 0
		}
	}
	return string(key)
}

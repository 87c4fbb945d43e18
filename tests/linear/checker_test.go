package linear_test

import (
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

// linearizable looks for an order of a history's operations that explains every
// answer and in which what ended comes before what was called later. Groups of
// refs are independent of each other.
func linearizable(history []operation) error {
	groups := map[string][]operation{}
	for _, op := range history {
		groups[op.action.group] = append(groups[op.action.group], op)
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		ops := groups[g]
		slices.SortFunc(ops, func(a, b operation) int { return int(a.call - b.call) })
		s := search{ops: ops, placed: make([]bool, len(ops)), failed: map[string]bool{}}
		if !s.from(refs{}, 0) {
			return fmt.Errorf("%d operations on %s have no order that explains them: the best one ends after %d at %s before\n%s", len(ops), g, s.best, s.at, s.stuck)
		}
	}
	return nil
}

// search is that of Wing and Gong, with the positions remembered that lead
// nowhere.
type search struct {
	ops    []operation // by call
	placed []bool
	failed map[string]bool
	// best is how many operations could be placed at once, which led to at; none
	// of stuck can follow.
	best  int
	at    refs
	stuck string
}

// from reports whether the operations that are not placed can follow a state.
// Reads and refusals, which change nothing wherever they stand, are placed as
// soon as they can be: if any order is right, one is in which they come then.
func (s *search) from(now refs, count int) bool {
	var here []int // placed by this call
	defer func() {
		for _, i := range here {
			s.placed[i] = false
		}
	}()
	for again := true; again; {
		again = false
		for _, i := range s.next() {
			if op := s.ops[i]; op.answer.done && op.action.what != read {
				continue
			}
			if ok, _ := step(now, s.ops[i].action, s.ops[i].answer); ok {
				s.placed[i], again = true, true
				here = append(here, i)
			}
		}
	}
	count += len(here)
	if count > s.best {
		s.best, s.at, s.stuck = count, now, ""
		for _, i := range s.next() {
			s.stuck += fmt.Sprintf("\t%+v\n", s.ops[i])
		}
	}
	if count == len(s.ops) {
		return true
	}
	key := s.key(now)
	if s.failed[key] {
		return false
	}
	for _, i := range s.next() {
		if ok, then := step(now, s.ops[i].action, s.ops[i].answer); ok {
			s.placed[i] = true
			found := s.from(then, count+1)
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
func (s *search) next() []int {
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
func (s *search) key(now refs) string {
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

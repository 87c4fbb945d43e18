package task

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/testkit"
)

// TestWalkOfWideTrees compares wide trees that share most of what they have, from
// the beginning and from the end: what is visited is what differs, each with what
// each tree has.
func TestWalkOfWideTrees(t *testing.T) {
	random := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for round := range 300 {
		names := make([]string, 1+random.IntN(600))
		for i := range names {
			names[i] = fmt.Sprintf("f%0*d", 1+random.IntN(6), random.IntN(1000))
		}
		slices.Sort(names)
		names = slices.Compact(names)
		sides := make([]map[string]object.ID, 2+random.IntN(2))
		for i := range sides {
			sides[i] = make(map[string]object.ID)
			for _, name := range names {
				sides[i][name] = object.Hash(object.Blob, []byte(name))
			}
			for range random.IntN(4) {
				name := names[random.IntN(len(names))]
				if sides[i][name] = object.Hash(object.Blob, fmt.Append(nil, i, name)); random.IntN(2) == 0 {
					delete(sides[i], name)
				}
			}
			if random.IntN(20) == 0 {
				clear(sides[i])
			}
		}
		trees := make(map[object.ID][]byte)
		ids := make([]object.ID, len(sides))
		for i, side := range sides {
			var entries []object.Entry
			for _, name := range names {
				if id, ok := side[name]; ok {
					entries = append(entries, object.Entry{Mode: object.ModeRegular, Name: []byte(name), ID: id})
				}
			}
			data := object.EncodeTree(entries)
			ids[i] = object.Hash(object.Tree, data)
			trees[ids[i]] = data
		}
		var want, got []string
		for _, name := range names {
			line, differs := name, false
			for _, side := range sides {
				line += " " + side[name].String()
				differs = differs || side[name] != sides[0][name]
			}
			if differs {
				want = append(want, line)
			}
		}
		read := func(_ context.Context, id object.ID) ([]byte, error) { return trees[id], nil }
		err := Walk(t.Context(), read, ids, func(path []byte, at []object.Entry) (bool, error) {
			line := string(path)
			for _, e := range at {
				line += " " + e.ID.String()
			}
			got = append(got, line)
			return false, nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("round %d: visited %q, want %q, %v", round, got, want, err)
		}
	}
}

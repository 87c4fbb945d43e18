package odb

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// TestLookup looks for every id of tables spread evenly and not, and for ids
// between them.
func TestLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []int{object.Size, 2, 1} { // how many bytes differ
		for _, n := range []int{0, 1, 2, 17, 200, 3000} {
			ids := make(map[object.ID]Loc)
			for i := range n {
				var id object.ID
				for j := range spread {
					id[(j*7+3)%object.Size] = byte(rng.Uint32())
				}
				ids[id] = Loc{Pos: int32(i)}
			}
			var table []located
			for id, loc := range ids {
				table = append(table, located{id, loc})
			}
			slices.SortFunc(table, func(a, b located) int { return a.id.Compare(b.id) })
			for id, want := range ids {
				if loc, ok := lookup(table, id); !ok || loc != want {
					t.Fatalf("%s of %d is at %v, %v; want %v", id, n, loc, ok, want)
				}
				for _, at := range []int{0, object.Size - 1} {
					other := id
					other[at] ^= byte(rng.Uint32()) | 1
					want, there := ids[other]
					if loc, ok := lookup(table, other); ok != there || loc != want {
						t.Fatalf("%s of %d is at %v, %v; want %v, %v", other, n, loc, ok, want, there)
					}
				}
			}
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := make([]located, 4096)
	for i := range table {
		for j := range table[i].id {
			table[i].id[j] = byte(rng.Uint32())
		}
	}
	slices.SortFunc(table, func(a, b located) int { return a.id.Compare(b.id) })
	for i := 0; b.Loop(); i++ {
		lookup(table, table[i*7919%len(table)].id)
	}
}

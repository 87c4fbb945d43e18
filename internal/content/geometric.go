package content

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cairnstate/cairn/internal/tree"
)

// growth is by how much a thing must outweigh all smaller ones together to be left
// alone when those are put together: each byte is then copied a few times, however
// many there are.
const growth = 2

// smallTail returns the places of the things that are to be put together with
// something of size added: from the smallest up, as long as the next is not much
// larger than all before it.
func smallTail[T any](list []T, added int64, size func(*T) int64) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(&list[a]), size(&list[b])) })
	sum := added
	for n, i := range order {
		s := size(&list[i])
		// The smallest few always go, so that many of one size do not stay.
		if n >= 2 && s > growth*sum {
			return order[:n]
		}
		sum += s
	}
	return order
}

func sortedSet(set map[tree.Digest]struct{}) []tree.Digest {
	return slices.SortedFunc(maps.Keys(set), compareDigests)
}

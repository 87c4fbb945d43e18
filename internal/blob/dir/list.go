package dir

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/blob"
)

// listBatch bounds the keys that List holds at a time (about 20 MB of them).
const listBatch = 1 << 17

// List implements blob.Store. Shards are by hash, so one pass over all
// directories selects the next listBatch keys.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return s.list(ctx, prefix, listBatch)
}

func (s *Store) list(ctx context.Context, prefix string, batch int) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		after := blob.Key("")
		for {
			keys, err := s.keysAfter(ctx, prefix, after, batch)
			if err != nil {
				yield(blob.Info{}, fmt.Errorf("list objects: %w", err))
				return
			}
			for _, key := range keys {
				info, err := s.Stat(ctx, key)
				if errors.Is(err, blob.ErrNotFound) {
					continue // deleted meanwhile
				}
				if !yield(info, err) || err != nil {
					return
				}
			}
			if len(keys) < batch {
				return
			}
			after = keys[len(keys)-1]
		}
	}
}

// keysAfter returns, in order, the first n keys greater than after that have the
// prefix.
func (s *Store) keysAfter(ctx context.Context, prefix string, after blob.Key, n int) ([]blob.Key, error) {
	var least maxHeap // the n least keys seen
	for i := range shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, err := s.fsys.ReadDir(shardDir(i))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			key, err := keyOf(e.Name())
			if err != nil || e.Type() != 0 || !strings.HasPrefix(string(key), prefix) || key <= after {
				continue // a name that is no key is no object of ours
			}
			if len(least) < n {
				heap.Push(&least, key)
			} else if key < least[0] {
				least[0] = key
				heap.Fix(&least, 0)
			}
		}
	}
	slices.SortFunc(least, cmp.Compare)
	return least, nil
}

// maxHeap is a heap.Interface with the greatest key on top.
type maxHeap []blob.Key

func (h maxHeap) Len() int           { return len(h) }
func (h maxHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h maxHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *maxHeap) Push(x any)        { *h = append(*h, x.(blob.Key)) }
func (h *maxHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

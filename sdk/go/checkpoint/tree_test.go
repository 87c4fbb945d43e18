package checkpoint

import (
	"context"

	"github.com/cairnstate/cairn/internal/tree"
)

// checkTree reads everything beneath a root.
func checkTree(ctx context.Context, blobs Blobs, root Digest) error {
	src := &source{blobs: blobs}
	b, err := tree.FetchOne(ctx, src, root)
	if err != nil {
		return missingBlobs(err)
	}
	t, err := tree.DecodeRoot(b)
	if err != nil {
		return err
	}
	var nodes []tree.Node
	for i := range t.Roots {
		nodes = append(nodes, tree.NodeOf(t.Roots[i].Name, &t.Roots[i]))
	}
	var want []Digest
	err = tree.Walk(ctx, src, nodes, func(_ tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
		for i := range entries {
			if e := &entries[i]; e.Type == tree.Directory {
				descend(e)
			} else if e.Content.Size > 0 {
				want = append(want, e.Content.Digest)
			}
		}
		return nil
	})
	if err == nil {
		err = tree.Fetch(ctx, src, want, func(Digest, []byte) error { return nil })
	}
	return missingBlobs(err)
}

package checkpoint

import (
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Live calls yield with all that checkpoints and threads of an org refer to, at one
// moment: roots, documents, the blobs of manifests, and what threads know. What
// those refer to in turn is not named. It is a content.Roots.
func (e *Engine) Live(ctx context.Context, org meta.OrgID, yield func(kind tree.Kind, d tree.Digest) error) error {
	err := e.cfg.Meta.LiveCheckpoints(ctx, org, func(body, segment []byte) error {
		if len(segment) > 0 {
			d, err := segmentRef(segment)
			if err != nil {
				return err
			}
			return yieldContent(d.content(), yield)
		}
		c, err := checkpointOf(meta.Checkpoint{Body: body})
		if err != nil {
			return err
		}
		return e.liveOf(ctx, org, &c, yield)
	})
	if err != nil {
		return fmt.Errorf("read what is referred to: %w", err)
	}
	return nil
}

func yieldContent(c tree.Content, yield func(kind tree.Kind, d tree.Digest) error) error {
	if c.Chunked {
		return yield(tree.Recipe, c.Digest)
	}
	return yield(tree.Chunk, c.Digest)
}

func (e *Engine) liveOf(ctx context.Context, org meta.OrgID, c *Checkpoint, yield func(kind tree.Kind, d tree.Digest) error) error {
	if d, ok := c.RootDigest(); ok {
		if err := yield(tree.Root, d); err != nil {
			return err
		}
	}
	for _, d := range c.documents() {
		if err := yieldContent(d.content(), yield); err != nil {
			return err
		}
	}
	if c.Keys == nil || c.External {
		return nil
	}
	list, err := e.readKeys(ctx, org, c)
	if err != nil {
		return err
	}
	for _, k := range list {
		content, err := e.liveBlob(ctx, org, k.Sum)
		if err != nil {
			return err
		}
		for _, one := range content {
			if err := yieldContent(one, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveBlob returns all that the bytes with a sum may be made of, whatever state it
// is in.
func (e *Engine) liveBlob(ctx context.Context, org meta.OrgID, sum tree.Digest) ([]tree.Content, error) {
	if sum == emptySum {
		return nil, nil
	}
	own := tree.Content{Digest: sum, Sum: sum}
	large, err := e.cfg.Meta.LargeBlobs(ctx, org, [][32]byte{sum})
	if err != nil {
		return nil, fmt.Errorf("find large blobs: %w", err)
	}
	if len(large) == 0 {
		return []tree.Content{own}, nil
	}
	recipe := tree.Content{Digest: large[0].Recipe, Sum: sum, Chunked: true, Size: uint64(large[0].Size)}
	gone, _, err := e.cfg.Content.Missing(ctx, org, []tree.Digest{recipe.Digest, sum})
	switch {
	case err != nil:
		return nil, err
	case len(gone) == 1 && gone[0] == recipe.Digest:
		return []tree.Content{own}, nil
	case len(gone) == 1:
		return []tree.Content{recipe}, nil
	}
	return []tree.Content{recipe, own}, nil
}

// ForgetBlobs forgets which recipes make large blobs where those recipes are gone: after
// a sweep nothing refers to them. A blob that is put again meanwhile stays.
func (e *Engine) ForgetBlobs(ctx context.Context, org meta.OrgID) error {
	const page = 1000
	var after tree.Digest
	for {
		list, err := e.cfg.Meta.ListLargeBlobs(ctx, org, after, page)
		if err != nil {
			return fmt.Errorf("list large blobs: %w", err)
		}
		recipes := make([]tree.Digest, len(list))
		for i := range list {
			after, recipes[i] = list[i].Sum, list[i].Recipe
		}
		absent, err := e.cfg.Content.Gone(ctx, org, recipes)
		if err != nil {
			return err
		}
		gone := make(map[tree.Digest]bool, len(absent))
		for _, d := range absent {
			gone[d] = true
		}
		all := len(list)
		forget := slices.DeleteFunc(list, func(b meta.LargeBlob) bool { return !gone[b.Recipe] })
		if len(forget) > 0 {
			if _, err := e.apply(ctx, meta.Change{Org: org, ForgetBlobs: forget}); err != nil {
				return err
			}
		}
		if all < page {
			return nil
		}
	}
}

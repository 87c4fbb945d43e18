package checkpoint

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Live calls root for the root object of every native checkpoint of an org, and
// file for every content that is kept beside: documents, what threads know, and the
// blobs of manifests. What nothing of that reaches is garbage.
func (e *Engine) Live(ctx context.Context, org meta.OrgID, root func(tree.Digest) error, file func(tree.Content) error) error {
	err := e.cfg.Meta.SegmentRefs(ctx, org, func(ref []byte) error {
		d, err := segmentRef(ref)
		if err != nil {
			return err
		}
		return file(d.content())
	})
	if err != nil {
		return fmt.Errorf("read what threads know: %w", err)
	}
	for after, n := "", eachPage; n == eachPage; {
		rows, err := e.cfg.Meta.AllCheckpoints(ctx, org, after, eachPage)
		if err != nil {
			return fmt.Errorf("read checkpoints: %w", err)
		}
		for _, row := range rows {
			after = row.ID
			c, err := checkpointOf(row)
			if err != nil {
				return err
			}
			if err := e.liveOf(ctx, org, &c, root, file); err != nil {
				return err
			}
		}
		n = len(rows)
	}
	return nil
}

func (e *Engine) liveOf(ctx context.Context, org meta.OrgID, c *Checkpoint, root func(tree.Digest) error, file func(tree.Content) error) error {
	if d, ok := c.RootDigest(); ok {
		if err := root(d); err != nil {
			return err
		}
	}
	for _, d := range c.documents() {
		if err := file(d.content()); err != nil {
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
			if err := file(one); err != nil {
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

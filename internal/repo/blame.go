package repo

import (
	"context"

	"github.com/cairnstate/cairn/internal/blame"
)

// BlameQuery asks where the lines of a file come from.
type BlameQuery = blame.Query

// BlameLine is where a line comes from.
type BlameLine = blame.Line

// BlameError refuses a blame that cannot be answered, BlameLimitError one that takes
// too much.
type (
	BlameError      = blame.InvalidError
	BlameLimitError = blame.LimitError
)

// BlameMissingError says that a commit has no file at a path.
type BlameMissingError = blame.NotFoundError

// Blame returns where the lines of a file come from, as git blame does. The caller
// has resolved the commit. Refusals are *BlameError, *BlameLimitError and
// *BlameMissingError.
func (v *View) Blame(ctx context.Context, q BlameQuery) ([]BlameLine, error) {
	g, _, err := v.rootTree(ctx, q.Commit)
	if err != nil {
		return nil, err
	}
	return blame.Blame(ctx, v.engine.cfg.Tasks, g, v.engine.room, q)
}

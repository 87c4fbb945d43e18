package repo

import (
	"context"

	"github.com/cairnstate/cairn/internal/meta"
)

func (e *Engine) repack(ctx context.Context, id meta.RepoID) (bool, error) { return false, nil }

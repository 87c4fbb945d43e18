package service

import (
	"context"

	"github.com/cairnstate/cairn/internal/repo"
)

// Merge merges a commit into a branch.
func (s *Service) Merge(ctx context.Context, a *Access, req repo.MergeRequest) (repo.MergeResult, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.MergeResult{}, err
	}
	return s.Engine.Merge(ctx, a.Writer("POST merge"), v, req)
}

// PreviewMerge says what a merge would do.
func (s *Service) PreviewMerge(ctx context.Context, a *Access, req repo.PreviewRequest) (repo.Preview, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.Preview{}, err
	}
	return s.Engine.PreviewMerge(ctx, v, req)
}

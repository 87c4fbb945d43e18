package service

import (
	"context"

	"github.com/cairnstate/cairn/internal/repo"
)

// CommitDiff compares a commit with another one.
func (s *Service) CommitDiff(ctx context.Context, a *Access, q repo.DiffQuery) (repo.Diff, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.Diff{}, err
	}
	return v.CommitDiff(ctx, q)
}

// BranchDiff says what a branch has changed since it left its base.
func (s *Service) BranchDiff(ctx context.Context, a *Access, q repo.DiffQuery) (repo.Diff, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.Diff{}, err
	}
	return v.BranchDiff(ctx, q)
}

// Restore makes a commit with an earlier state of a branch.
func (s *Service) Restore(ctx context.Context, a *Access, req repo.RestoreRequest) (repo.CommitResult, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.CommitResult{}, err
	}
	return s.Engine.Restore(ctx, a.Writer("POST restore-commit"), v, req)
}

// CommitPatch makes a commit of a patch.
func (s *Service) CommitPatch(ctx context.Context, a *Access, req repo.CommitRequest, p *repo.Patch) (repo.CommitResult, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.CommitResult{}, err
	}
	return s.Engine.CommitPatch(ctx, a.Writer("POST diff-commit"), v, req, p)
}

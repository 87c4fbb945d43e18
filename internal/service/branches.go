package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// Branch is a branch of one of the namespaces under its short name.
type Branch struct {
	Name      string
	ID        object.ID
	CreatedAt time.Time
	// Version is the repository version that created it.
	Version int64
}

// BranchPosition is a place in the order in which branches were created.
type BranchPosition struct {
	Version int64
	Name    string // short
}

// StoredBranch returns the stored name of a branch.
func StoredBranch(short string, ephemeral bool) string {
	if ephemeral {
		return refname.Ephemeral(refname.Branch(short))
	}
	return refname.Branch(short)
}

func branchOf(r meta.Ref, prefix string) Branch {
	return Branch{Name: strings.TrimPrefix(r.Name, prefix), ID: r.ID, CreatedAt: r.CreatedAt, Version: r.CreatedVersion}
}

// Branches returns up to limit branches of a namespace in order of creation,
// strictly after a position; the zero position is the start.
func (s *Service) Branches(ctx context.Context, a *Access, ephemeral bool, after BranchPosition, limit int) ([]Branch, error) {
	q := meta.RefAgeQuery{Repo: a.Repo.ID, Prefix: StoredBranch("", ephemeral), AfterVersion: after.Version, Limit: limit}
	if after.Name != "" {
		q.AfterName = StoredBranch(after.Name, ephemeral)
	}
	refs, err := s.Meta.RefsByAge(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list branches: %w", err)
	}
	branches := make([]Branch, len(refs))
	for i, r := range refs {
		branches[i] = branchOf(r, q.Prefix)
	}
	return branches, nil
}

// Branch returns one branch by its short name.
func (s *Service) Branch(ctx context.Context, a *Access, ephemeral bool, name string) (Branch, error) {
	page, err := s.Meta.Refs(ctx, meta.RefQuery{Repo: a.Repo.ID, Names: []string{StoredBranch(name, ephemeral)}})
	if err != nil {
		return Branch{}, fmt.Errorf("read branch: %w", err)
	}
	if len(page.Refs) == 0 {
		return Branch{}, Refuse(NotFound, "branch not found: %.200q", name)
	}
	return branchOf(page.Refs[0], StoredBranch("", ephemeral)), nil
}

// CreateBranch makes a branch and returns its commit.
func (s *Service) CreateBranch(ctx context.Context, a *Access, req repo.BranchRequest) (object.ID, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return object.Zero, err
	}
	return s.Engine.CreateBranch(ctx, a.Writer("POST branches/create"), v, req)
}

// DeleteBranch removes a branch.
func (s *Service) DeleteBranch(ctx context.Context, a *Access, name string, ephemeral bool) error {
	v, err := s.View(ctx, a)
	if err != nil {
		return err
	}
	_, err = s.Engine.DeleteBranch(ctx, a.Writer("DELETE branches"), v, name, ephemeral)
	return err
}

// Commit writes a commit upon a branch.
func (s *Service) Commit(ctx context.Context, a *Access, req repo.CommitRequest) (repo.CommitResult, error) {
	v, err := s.View(ctx, a)
	if err != nil {
		return repo.CommitResult{}, err
	}
	return s.Engine.Commit(ctx, a.Writer("POST commit-pack"), v, req)
}

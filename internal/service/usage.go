package service

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// NewContents takes the files of a commit to the repository of an Access.
func (s *Service) NewContents(ctx context.Context, a *Access) *repo.Contents {
	return s.Engine.NewContents(ctx, a.Writer(""), a.Repo)
}

// Limits are what an org or a repository may have; 0 is no limit.
type Limits struct{ Bytes, Repos int64 }

// LimitsOf are those of a repository, or of its org when r has no ID.
func LimitsOf(org meta.Org, r meta.Repo) Limits {
	switch {
	case r.ID == 0:
		return Limits{Bytes: org.Quota.Bytes, Repos: org.Quota.Repos}
	case r.Quota == meta.NoLimit:
		return Limits{}
	case r.Quota > 0:
		return Limits{Bytes: r.Quota}
	}
	return Limits{Bytes: org.Quota.RepoBytes}
}

// Usage sums up what the org of an Access has stored, or the repository of one
// that is for a repository.
func (s *Service) Usage(ctx context.Context, a *Access) (meta.Usage, Limits, error) {
	u, err := s.Meta.Usage(ctx, a.Org.ID, a.Repo.ID)
	if err != nil {
		return u, Limits{}, fmt.Errorf("sum up usage: %w", err)
	}
	return u, LimitsOf(a.Org, a.Repo), nil
}

// UndeleteRepo brings the deleted repository of an Access back.
func (s *Service) UndeleteRepo(ctx context.Context, a *Access) error {
	return s.Engine.Undelete(ctx, a.Writer("POST undelete"), a.Repo)
}

// SetQuota replaces the limits of an org.
func (o *Operator) SetQuota(ctx context.Context, org string, q meta.OrgQuota) error {
	if q.Bytes < 0 || q.RepoBytes < 0 || q.Repos < 0 || q.ThreadBytes < 0 {
		return Refuse(Invalid, "a limit cannot be negative; 0 is none")
	}
	return o.change(ctx, org, func(c *meta.Change) { c.SetQuota = &q })
}

// SetEphemeralAge says from which age ephemeral branches are deleted in the
// repositories of an org that say nothing themselves; 0 is never.
func (o *Operator) SetEphemeralAge(ctx context.Context, org string, age time.Duration) error {
	if age < 0 {
		return Refuse(Invalid, "an age cannot be negative")
	}
	return o.change(ctx, org, func(c *meta.Change) { c.SetEphemeralAge = &age })
}

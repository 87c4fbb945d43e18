package service

import (
	"context"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// AuditFilter narrows the audit log. Zero fields narrow nothing.
type AuditFilter struct {
	Repo, Subject string
	Since         time.Time
}

// query returns the query of a filter, whose repository may be deleted.
func (f AuditFilter) query(ctx context.Context, store meta.Store, org meta.Org, before *meta.AuditEntry, limit int) (meta.AuditQuery, error) {
	q := meta.AuditQuery{Org: org.ID, Subject: f.Subject, Since: f.Since, Before: before, Limit: limit}
	if f.Repo == "" {
		return q, nil
	}
	gate, err := store.Gate(ctx, meta.GateQuery{Org: org.Name, Repo: f.Repo})
	if err == nil && gate.Repo.ID == 0 {
		err = repositoryMissing()
	}
	q.Repo = gate.Repo.ID
	return q, err
}

// Audit returns a page of the org's audit log, newest first, of what was before
// an entry (nil: of all).
func (s *Service) Audit(ctx context.Context, a *Access, f AuditFilter, before *meta.AuditEntry, limit int) ([]meta.AuditEntry, error) {
	q, err := f.query(ctx, s.Meta, a.Org, before, limit)
	if err != nil {
		return nil, err
	}
	return s.Meta.Audit(ctx, q)
}

// Audit returns a page of an org's audit log, newest first.
func (o *Operator) Audit(ctx context.Context, org string, f AuditFilter, before *meta.AuditEntry, limit int) ([]meta.AuditEntry, error) {
	row, err := o.Org(ctx, org)
	if err != nil {
		return nil, err
	}
	q, err := f.query(ctx, o.Meta, row, before, limit)
	if err != nil {
		return nil, err
	}
	return o.Meta.Audit(ctx, q)
}

package rest

import (
	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

// Sizes of pages of the audit log.
const (
	auditDefault = 100
	auditMax     = 500
)

func (c *call) listAudit(q api.ListAudit) (api.AuditPage, error) {
	before, err := resumed(c, q.Cursor, auditPosition)
	if err != nil {
		return api.AuditPage{}, err
	}
	f := service.AuditFilter{Repo: q.Repo, Subject: q.Sub}
	if f.Since, err = moment("query parameter \"since\"", q.Since); err != nil {
		return api.AuditPage{}, err
	}
	limit := pageSize(q.Limit, auditDefault, auditMax)
	rows, err := c.Service.Audit(c.ctx, c.access, f, before, limit+1)
	if err != nil {
		return api.AuditPage{}, err
	}
	page := api.AuditPage{Entries: []api.AuditEntry{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.HasMore, page.NextCursor = true, c.issue(afterAudit(rows[limit-1]))
	}
	for _, e := range rows {
		page.Entries = append(page.Entries, describeAudit(e))
	}
	return page, nil
}

func describeAudit(e meta.AuditEntry) api.AuditEntry {
	out := api.AuditEntry{
		At: stamp(e.At), Action: e.Action, Detail: e.Detail, RepoName: e.RepoName, Ref: e.Ref,
		Subject: e.Subject, Route: e.Route, Agent: e.Agent,
	}
	if e.Ref != "" {
		out.OldSHA, out.NewSHA = e.Old.String(), e.New.String()
	}
	return out
}

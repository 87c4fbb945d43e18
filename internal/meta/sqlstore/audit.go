package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
)

// stageAudit stages a row for each action of a Change.
func (b *batch) stageAudit(c *meta.Change) {
	if c.DeleteOrg {
		return // the log goes with the org
	}
	for _, a := range c.Actions() {
		b.write(exec(`INSERT INTO audit (org, at, id, repo, action, detail, subject, route, agent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			c.Org, b.now, meta.NewID(timeOf(b.now)), c.Repo, a.Name, a.Detail, c.Subject, c.Route, agentOf(c)))
	}
}

// agentOf is what is kept of the agent of a Change.
func agentOf(c *meta.Change) string {
	return strings.ToValidUTF8(c.Agent[:min(len(c.Agent), meta.MaxAgent)], "")
}

// The two parts of the audit log, with the same columns.
const (
	auditActions = `SELECT a.at AS at, a.repo AS repo, a.id AS seq, $2 AS ref, coalesce(r.name, $2) AS repo_name, a.action AS action,
		a.detail AS detail, $2 AS old_id, $2 AS new_id, a.subject AS subject, a.route AS route, a.agent AS agent
		FROM audit a LEFT JOIN repos r ON r.id = a.repo WHERE a.org = $1`
	auditRefs = `SELECT l.at, l.repo, l.version, l.name, r.name, $3, $2, l.old_id, l.new_id, l.subject, l.route, l.agent
		FROM repos r JOIN ref_log l ON l.repo = r.id WHERE r.org = $1`
)

// Audit implements meta.Store.
func (s *Store) Audit(ctx context.Context, q meta.AuditQuery) ([]meta.AuditEntry, error) {
	args := []any{q.Org, []byte{}, []byte("ref")}
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	actions, refs := auditActions, auditRefs
	both := func(condition, value string) {
		actions += fmt.Sprintf(" AND a."+condition, value)
		refs += fmt.Sprintf(" AND l."+condition, value)
	}
	if q.Repo != 0 {
		both("repo = %s", arg(q.Repo))
	}
	if q.Subject != "" {
		both("subject = %s", arg(q.Subject))
	}
	if !q.Since.IsZero() {
		both("at >= %s", arg(unixMicro(q.Since)))
	}
	text := `SELECT at, repo, seq, ref, repo_name, action, detail, old_id, new_id, subject, route, agent FROM (` + actions + ` UNION ALL ` + refs + `) AS entries`
	if p := q.Before; p != nil {
		text += fmt.Sprintf(` WHERE (at, repo, seq, ref) < (%s, %s, %s, %s)`, arg(unixMicro(p.At)), arg(p.Repo), arg(p.Seq), arg(p.Ref))
	}
	text += ` ORDER BY at DESC, repo DESC, seq DESC, ref DESC LIMIT ` + arg(q.Limit)
	var entries []meta.AuditEntry
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		e, err := scanAudit(scan)
		entries = append(entries, e)
		return err
	})
	return entries, err
}

func scanAudit(scan scanFunc) (e meta.AuditEntry, err error) {
	var at, repo int64
	var ref, name, action, detail, oldID, newID, subject, route, agent []byte
	if err = scan(&at, &repo, &e.Seq, &ref, &name, &action, &detail, &oldID, &newID, &subject, &route, &agent); err != nil {
		return e, err
	}
	e.At, e.Repo, e.RepoName, e.Ref = timeOf(at), meta.RepoID(repo), string(name), string(ref)
	e.Action, e.Detail, e.Subject, e.Route, e.Agent = string(action), string(detail), string(subject), string(route), string(agent)
	if e.Old, err = idOf(oldID); err == nil {
		e.New, err = idOf(newID)
	}
	return e, err
}

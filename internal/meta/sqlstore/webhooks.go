package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

const webhookColumns = `w.id, w.org, w.repo, w.mute_ephemeral, w.enabled, w.created_at, w.updated_at, w.position, w.failing_since,
	w.url, w.secret, w.events, w.reason`

// webhookRow receives webhookColumns.
type webhookRow struct {
	id, org, repo, mute, enabled, createdAt, updatedAt, position, failingSince int64
	url, secret, events, reason                                                []byte
}

func (r *webhookRow) dest() []any {
	return []any{
		&r.id, &r.org, &r.repo, &r.mute, &r.enabled, &r.createdAt, &r.updatedAt, &r.position, &r.failingSince,
		&r.url, &r.secret, &r.events, &r.reason,
	}
}

func (r *webhookRow) webhook() meta.Webhook {
	w := meta.Webhook{
		ID: meta.WebhookID(r.id), Org: meta.OrgID(r.org), Repo: meta.RepoID(r.repo), URL: string(r.url), Secret: r.secret,
		MuteEphemeral: r.mute != 0, Enabled: r.enabled != 0, Reason: string(r.reason),
		CreatedAt: timeOf(r.createdAt), UpdatedAt: timeOf(r.updatedAt), Position: r.position, FailingSince: timeOf(r.failingSince),
	}
	if len(r.events) > 0 {
		w.Events = strings.Split(string(r.events), "\n")
	}
	return w
}

// stageWebhooks stages what a Change writes to endpoints.
func (b *batch) stageWebhooks(c *meta.Change) {
	if w := c.CreateWebhook; w != nil {
		created := b.now
		if !w.CreatedAt.IsZero() {
			created = unixMicro(w.CreatedAt)
		}
		b.write(exec(`INSERT INTO webhooks (id, org, repo, url, secret, events, mute_ephemeral, enabled, reason, created_at, updated_at,
			position, failing_since, owner, lease_until, fence)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10,
			coalesce(nullif(CAST($12 AS bigint), 0), (SELECT coalesce(max(position), 0) FROM events)), 0, $11, 0, 0)`,
			w.ID, c.Org, w.Repo, w.URL, notNil(w.Secret), strings.Join(w.Events, "\n"), w.MuteEphemeral, w.Enabled, w.Reason, created, "", w.Position))
	}
	if w := c.UpdateWebhook; w != nil {
		b.write(exec(`UPDATE webhooks SET repo = $3, url = $4, events = $5, mute_ephemeral = $6, reason = $7, updated_at = $8,
			failing_since = CASE WHEN enabled = $9 THEN failing_since ELSE 0 END, enabled = $9,
			position = CASE WHEN repo = $3 THEN position ELSE (SELECT coalesce(
				(SELECT min(e.position) - 1 FROM events e WHERE e.org = $1 AND webhooks.repo IN (0, e.repo) AND e.position > webhooks.position),
				(SELECT max(e.position) FROM events e), webhooks.position)) END
			WHERE org = $1 AND id = $2`,
			c.Org, w.ID, w.Repo, w.URL, strings.Join(w.Events, "\n"), w.MuteEphemeral, w.Reason, b.now, w.Enabled))
		if w.Secret != nil {
			b.write(exec(`UPDATE webhooks SET secret = $3 WHERE org = $1 AND id = $2`, c.Org, w.ID, w.Secret))
		}
	}
	if c.DeleteWebhook != 0 {
		b.write(
			exec(`DELETE FROM webhook_deliveries WHERE webhook IN (SELECT id FROM webhooks WHERE org = $1 AND id = $2)`, c.Org, c.DeleteWebhook),
			exec(`DELETE FROM webhooks WHERE org = $1 AND id = $2`, c.Org, c.DeleteWebhook))
	}
}

// Webhooks implements meta.Store.
func (s *Store) Webhooks(ctx context.Context, q meta.WebhookQuery) ([]meta.Webhook, error) {
	text := `SELECT ` + webhookColumns + ` FROM webhooks w WHERE w.org = $1 AND w.id > $2`
	args := []any{q.Org, q.After, q.Limit}
	switch {
	case q.Repo != 0:
		text += ` AND w.repo = $4`
		args = append(args, q.Repo)
	case q.Whole:
		text += ` AND w.repo = 0`
	}
	var hooks []meta.Webhook
	err := s.query(ctx, text+` ORDER BY w.id LIMIT $3`, args, func(scan scanFunc) error {
		var row webhookRow
		err := scan(row.dest()...)
		hooks = append(hooks, row.webhook())
		return err
	})
	return hooks, err
}

// Webhook implements meta.Store.
func (s *Store) Webhook(ctx context.Context, org meta.OrgID, id meta.WebhookID) (meta.Webhook, error) {
	var row webhookRow
	err := s.one(ctx, `SELECT `+webhookColumns+` FROM webhooks w WHERE w.org = $1 AND w.id = $2`, []any{org, id}, func(scan scanFunc) error {
		return scan(row.dest()...)
	})
	return row.webhook(), err
}

// WebhookOrgs implements meta.Store.
func (s *Store) WebhookOrgs(ctx context.Context) ([]meta.OrgID, error) {
	var orgs []meta.OrgID
	err := s.query(ctx, `SELECT DISTINCT org FROM webhooks WHERE enabled = 1`, nil, func(scan scanFunc) error {
		var org int64
		err := scan(&org)
		orgs = append(orgs, meta.OrgID(org))
		return err
	})
	return orgs, err
}

// DueWebhooks implements meta.Store: those that wait for the oldest event first.
func (s *Store) DueWebhooks(ctx context.Context, limit int) ([]meta.WebhookID, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return nil, err
	}
	var ids []meta.WebhookID
	const text = `SELECT w.id FROM webhooks w WHERE w.enabled = 1 AND w.lease_until <= $1
		AND w.position < CASE WHEN w.repo = 0
			THEN (SELECT max(e.position) FROM events e WHERE e.org = w.org)
			ELSE (SELECT e.position FROM events e WHERE e.repo = w.repo ORDER BY e.place DESC LIMIT 1) END
		ORDER BY w.position, w.id LIMIT $2`
	err = s.query(ctx, text, []any{now, limit}, func(scan scanFunc) error {
		var id int64
		err := scan(&id)
		ids = append(ids, meta.WebhookID(id))
		return err
	})
	return ids, err
}

// LeaseWebhook implements meta.Store.
func (s *Store) LeaseWebhook(ctx context.Context, id meta.WebhookID, owner string, lease time.Duration) (meta.WebhookLease, error) {
	var got meta.WebhookLease
	found := false
	err := s.write(ctx, func(now int64) []stmt {
		found = false
		take := exec(`UPDATE webhooks AS w SET owner = $2, lease_until = $4,
			fence = CASE WHEN owner = $2 AND lease_until > $3 THEN fence ELSE fence + 1 END
			WHERE id = $1 AND enabled = 1 AND (owner = $2 OR lease_until <= $3)
			RETURNING id, org, repo, mute_ephemeral, enabled, created_at, updated_at, position, failing_since,
			url, secret, events, reason, fence`,
			id, owner, now, now+lease.Microseconds())
		take.row = func(scan scanFunc) error {
			var row webhookRow
			err := scan(append(row.dest(), &got.Fence)...)
			got.Webhook, found = row.webhook(), true
			return err
		}
		return []stmt{take}
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return got, err
}

// SaveDeliveries implements meta.Store. The row of the endpoint is written
// first: whoever takes the lease meanwhile waits.
func (s *Store) SaveDeliveries(ctx context.Context, p meta.DeliveryProgress) error {
	found := false
	err := s.write(ctx, func(now int64) []stmt {
		found = false
		set := `position = CASE WHEN position > $3 THEN position ELSE $3 END, failing_since = $4`
		args := []any{p.Webhook, p.Fence, p.Position, unixMicro(p.FailingSince)}
		if p.Release {
			set += `, lease_until = 0`
		}
		if p.Disable != "" {
			set += `, enabled = 0, reason = $5, updated_at = $6`
			args = append(args, p.Disable, now)
		}
		save := exec(`UPDATE webhooks SET `+set+` WHERE id = $1 AND fence = $2 RETURNING fence`, args...)
		save.row = func(scan scanFunc) error {
			found = true
			var fence int64
			return scan(&fence)
		}
		stmts := []stmt{save}
		for i := range p.Deliveries {
			d := &p.Deliveries[i]
			stmts = append(stmts, exec(`INSERT INTO webhook_deliveries (webhook, position, type, state, attempts, status, error, at, next_at)
				SELECT w.id, $3, $4, $5, $6, $7, $8, $9, $10 FROM webhooks w WHERE w.id = $1 AND w.fence = $2
				ON CONFLICT (webhook, position) DO UPDATE SET state = excluded.state, attempts = excluded.attempts,
				status = excluded.status, error = excluded.error, at = excluded.at, next_at = excluded.next_at`,
				p.Webhook, p.Fence, d.Position, d.Type, int64(d.State), d.Attempts, d.Status, d.Error, unixMicro(d.At), unixMicro(d.Next)))
		}
		if len(p.Deliveries) > 0 {
			stmts = append(stmts, exec(`DELETE FROM webhook_deliveries WHERE webhook = $1 AND position <= $3 AND position <
				(SELECT position FROM webhook_deliveries WHERE webhook = $1 ORDER BY position DESC LIMIT 1 OFFSET $2)`,
				p.Webhook, meta.KeptDeliveries-1, p.Position))
		}
		return stmts
	})
	if err == nil && !found {
		err = meta.ErrNotFound
	}
	return err
}

// SealWebhook implements meta.Store.
func (s *Store) SealWebhook(ctx context.Context, id meta.WebhookID, from, to []byte) error {
	return s.write(ctx, func(int64) []stmt {
		return []stmt{exec(`UPDATE webhooks SET secret = $3 WHERE id = $1 AND secret = $2`, id, from, to)}
	})
}

// Deliveries implements meta.Store.
func (s *Store) Deliveries(ctx context.Context, q meta.DeliveryQuery) ([]meta.Delivery, error) {
	text := `SELECT d.position, coalesce(e.place, 0), d.state, d.attempts, d.status, d.at, d.next_at, d.type, d.error
		FROM webhook_deliveries d LEFT JOIN events e ON e.position = d.position WHERE d.webhook = $1`
	args := []any{q.Webhook, q.Limit}
	where := func(text string, v int64) string {
		args = append(args, v)
		return fmt.Sprintf(text, len(args))
	}
	switch {
	case q.Repo != 0:
		text += where(` AND e.repo = $%d`, int64(q.Repo))
		if q.Before != 0 {
			text += where(` AND e.place < $%d`, q.Before)
		}
	case q.Before != 0:
		text += where(` AND d.position < $%d`, q.Before)
	}
	if q.After != 0 {
		text += where(` AND d.position > $%d`, q.After)
	}
	text += ` ORDER BY d.position DESC LIMIT $2`
	var list []meta.Delivery
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		var d meta.Delivery
		var state, attempts, status, at, next int64
		var kind, why []byte
		err := scan(&d.Position, &d.Place, &state, &attempts, &status, &at, &next, &kind, &why)
		d.State, d.Attempts, d.Status = meta.DeliveryState(state), int(attempts), int(status)
		d.At, d.Next, d.Type, d.Error = timeOf(at), timeOf(next), string(kind), string(why)
		list = append(list, d)
		return err
	})
	return list, err
}

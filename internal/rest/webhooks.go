package rest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/webhook"
)

func describeWebhook(w service.WebhookInfo) api.Webhook {
	events := w.Events
	if len(events) == 0 {
		events = []string{"*"}
	}
	return api.Webhook{
		ID: webhook.PublicID(w.ID), URL: w.URL, Events: events, Repo: w.RepoName, MuteEphemeral: w.MuteEphemeral,
		Enabled: w.Enabled, DisabledReason: w.Reason, FailingSince: stampOrNone(w.FailingSince),
		LastEventID: w.LastEvent, CreatedAt: stamp(w.CreatedAt), UpdatedAt: stamp(w.UpdatedAt),
	}
}

func stampOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t)
}

// Sizes of pages of endpoints.
const (
	webhooksDefault = 100
	webhooksMax     = 500
)

func (c *call) listWebhooks(q api.ListWebhooks) (api.WebhookList, error) {
	after, err := resumed(c, q.Cursor, webhookPosition)
	if err != nil {
		return api.WebhookList{}, err
	}
	limit := pageSize(q.Limit, webhooksDefault, webhooksMax)
	rows, err := c.Service.Webhooks(c.ctx, c.access, after, limit+1)
	list := api.WebhookList{Webhooks: []api.Webhook{}}
	if len(rows) > limit {
		rows = rows[:limit]
		list.HasMore, list.NextCursor = true, c.issue(afterWebhook(rows[limit-1].ID))
	}
	for _, w := range rows {
		list.Webhooks = append(list.Webhooks, describeWebhook(w))
	}
	return list, err
}

// afterWebhook is the cursor that continues after an endpoint.
func afterWebhook(id meta.WebhookID) string {
	return cursorEncoding.EncodeToString(append([]byte{webhookCursor}, webhook.PublicID(id)...))
}

// webhookPosition reads a cursor of endpoints; "" is the start.
func webhookPosition(cursor string) (meta.WebhookID, error) {
	if cursor == "" {
		return 0, nil
	}
	data, err := openCursor(cursor, webhookCursor)
	if err != nil {
		return 0, err
	}
	id, ok := webhook.ParseID(string(data))
	if !ok {
		return 0, badCursor()
	}
	return id, nil
}

func (c *call) createWebhook(q api.CreateWebhook) (api.Webhook, error) {
	if q.URL == "" {
		return api.Webhook{}, invalid("url is missing: it says where events are delivered")
	}
	w, secret, err := c.Service.CreateWebhook(c.ctx, c.access, q.Repo, webhook.Spec{
		URL: q.URL, Events: q.Events, MuteEphemeral: q.MuteEphemeral, Enabled: true, Secret: q.Secret,
	}, c.recordWebhook())
	return tellWebhook(w, secret), err
}

// tellWebhook describes an endpoint with a secret that is told once.
func tellWebhook(w service.WebhookInfo, secret string) api.Webhook {
	told := describeWebhook(w)
	told.Secret = secret
	return told
}

// recordWebhook makes the recorded answer to a request that makes or changes an
// endpoint.
func (c *call) recordWebhook() service.WebhookRecord {
	if c.once.name == "" {
		return nil
	}
	return func(w service.WebhookInfo, secret string) *meta.Idempotency { return c.row(tellWebhook(w, secret)) }
}

func (c *call) getWebhook(q api.GetWebhook) (api.Webhook, error) {
	w, err := c.Service.Webhook(c.ctx, c.access, q.ID)
	return describeWebhook(w), err
}

func (c *call) updateWebhook(q api.UpdateWebhook) (api.Webhook, error) {
	w, err := c.Service.UpdateWebhook(c.ctx, c.access, q.ID, service.WebhookChange{
		Repo: q.Repo, URL: q.URL, Events: q.Events, MuteEphemeral: q.MuteEphemeral, Enabled: q.Enabled,
	}, c.recordWebhook())
	return describeWebhook(w), err
}

func (c *call) rotateWebhook(q api.RotateWebhook) (api.Webhook, error) {
	if q.Secret == "" {
		q.Secret = webhook.NewSecret()
	}
	w, err := c.Service.UpdateWebhook(c.ctx, c.access, q.ID, service.WebhookChange{Secret: &q.Secret}, c.recordWebhook())
	return tellWebhook(w, q.Secret), err
}

func (c *call) deleteWebhook(q api.GetWebhook) (api.DeletedWebhook, error) {
	done := api.DeletedWebhook{ID: q.ID, Message: fmt.Sprintf("webhook %.40s deleted", q.ID)}
	c.keep(done)
	return done, c.Service.DeleteWebhook(c.ctx, c.access, q.ID)
}

func (c *call) listDeliveries(q api.ListDeliveries) (api.DeliveryList, error) {
	before, err := resumed(c, q.Cursor, deliveryPosition)
	if err != nil {
		return api.DeliveryList{}, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	rows, err := c.Service.WebhookDeliveries(c.ctx, c.access, q.ID, before, limit+1)
	if err != nil {
		return api.DeliveryList{}, err
	}
	list := api.DeliveryList{Deliveries: []api.Delivery{}}
	if len(rows.List) > limit {
		rows.List = rows.List[:limit]
		list.HasMore, list.NextCursor = true, c.issue(beforeDelivery(webhook.Place(rows.Webhook, rows.List[limit-1])))
	}
	for _, d := range rows.List {
		list.Deliveries = append(list.Deliveries, api.Delivery{
			EventID: rows.EventID(d), Type: d.Type, State: d.State.String(), Attempts: d.Attempts,
			Status: d.Status, Error: d.Error, At: stamp(d.At), NextAttemptAt: stampOrNone(d.Next),
		})
	}
	return list, nil
}

// beforeDelivery is the cursor that continues after a delivery at a place.
func beforeDelivery(place int64) string {
	return cursorEncoding.EncodeToString(binary.AppendUvarint([]byte{deliveryCursor}, uint64(place)))
}

// deliveryPosition reads a cursor of deliveries; "" is the start.
func deliveryPosition(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	data, err := openCursor(cursor, deliveryCursor)
	if err != nil {
		return 0, err
	}
	position, n := binary.Uvarint(data)
	if n <= 0 || n != len(data) || int64(position) <= 0 {
		return 0, badCursor()
	}
	return int64(position), nil
}

func (c *call) pingWebhook(q api.GetWebhook) (api.DeliveryResult, error) {
	out, err := c.Service.PingWebhook(c.ctx, c.access, q.ID, c.claim)
	return result(out), err
}

func (c *call) redeliver(q api.Redeliver) (api.DeliveryResult, error) {
	if q.EventID == "" {
		return api.DeliveryResult{}, invalid("event_id is missing: send the id of an event")
	}
	out, err := c.Service.Redeliver(c.ctx, c.access, q.ID, q.EventID, c.claim)
	return result(out), err
}

func result(o webhook.Outcome) api.DeliveryResult {
	return api.DeliveryResult{Delivered: o.Delivered, Status: o.Status, Error: o.Error, MS: o.Took.Milliseconds()}
}

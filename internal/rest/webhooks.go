package rest

import (
	"encoding/binary"
	"fmt"
	"strconv"
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
		LastEventID: strconv.FormatInt(w.Position, 10), CreatedAt: stamp(w.CreatedAt), UpdatedAt: stamp(w.UpdatedAt),
	}
}

func stampOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t)
}

func (c *call) listWebhooks(api.None) (api.WebhookList, error) {
	rows, err := c.Service.Webhooks(c.ctx, c.access)
	list := api.WebhookList{Webhooks: []api.Webhook{}}
	for _, w := range rows {
		list.Webhooks = append(list.Webhooks, describeWebhook(w))
	}
	return list, err
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
	before, err := deliveryPosition(q.Cursor)
	if err != nil {
		return api.DeliveryList{}, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	rows, err := c.Service.WebhookDeliveries(c.ctx, c.access, q.ID, before, limit+1)
	if err != nil {
		return api.DeliveryList{}, err
	}
	list := api.DeliveryList{Deliveries: []api.Delivery{}}
	if len(rows) > limit {
		rows = rows[:limit]
		list.HasMore, list.NextCursor = true, beforeDelivery(rows[limit-1])
	}
	for _, d := range rows {
		list.Deliveries = append(list.Deliveries, api.Delivery{
			EventID: strconv.FormatInt(d.Position, 10), Type: d.Type, State: d.State.String(), Attempts: d.Attempts,
			Status: d.Status, Error: d.Error, At: stamp(d.At), NextAttemptAt: stampOrNone(d.Next),
		})
	}
	return list, nil
}

// beforeDelivery is the cursor that continues after a delivery.
func beforeDelivery(d meta.Delivery) string {
	return cursorEncoding.EncodeToString(binary.AppendUvarint([]byte{deliveryCursor}, uint64(d.Position)))
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
	out, err := c.Service.PingWebhook(c.ctx, c.access, q.ID)
	return result(out), err
}

func (c *call) redeliver(q api.Redeliver) (api.DeliveryResult, error) {
	position, err := strconv.ParseInt(q.EventID, 10, 64)
	if err != nil || position < 1 {
		return api.DeliveryResult{}, invalid("event_id is %.40q: send the id of an event", q.EventID)
	}
	out, err := c.Service.Redeliver(c.ctx, c.access, q.ID, position)
	return result(out), err
}

func result(o webhook.Outcome) api.DeliveryResult {
	return api.DeliveryResult{Delivered: o.Delivered, Status: o.Status, Error: o.Error, MS: o.Took.Milliseconds()}
}

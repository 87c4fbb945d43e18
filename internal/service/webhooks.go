package service

import (
	"context"
	"errors"
	"math"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/webhook"
)

// WebhookInfo is an endpoint with the name of its repository, "" for none, and
// the id of the last event up to which all are settled.
type WebhookInfo struct {
	meta.Webhook
	RepoName  string
	LastEvent string
}

// Webhooks returns up to limit of the endpoints that an Access covers, in order
// of their ids, of which those up to after are left out.
func (s *Service) Webhooks(ctx context.Context, a *Access, after meta.WebhookID, limit int) ([]WebhookInfo, error) {
	rows, err := s.Meta.Webhooks(ctx, meta.WebhookQuery{Org: a.Org.ID, Repo: a.Repo.ID, After: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	list := make([]WebhookInfo, 0, len(rows))
	for _, w := range rows {
		info, err := s.named(ctx, w)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func (s *Service) named(ctx context.Context, w meta.Webhook) (info WebhookInfo, err error) {
	info.Webhook = w
	if info.LastEvent, err = s.Endpoints.LastEvent(ctx, w); err != nil || w.Repo == 0 {
		return info, err
	}
	r, err := s.Meta.Repo(ctx, w.Repo)
	info.RepoName = r.Name
	return info, err
}

// Webhook returns one endpoint by its public id.
func (s *Service) Webhook(ctx context.Context, a *Access, id string) (WebhookInfo, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return WebhookInfo{}, err
	}
	return s.named(ctx, w)
}

// endpoint finds an endpoint; one that the Access does not cover looks absent.
func (s *Service) endpoint(ctx context.Context, a *Access, id string) (meta.Webhook, error) {
	missing := &webhook.NotFoundError{What: "webhook"}
	number, ok := webhook.ParseID(id)
	if !ok {
		return meta.Webhook{}, missing
	}
	w, err := s.Endpoints.Get(ctx, a.Org.ID, number)
	if err == nil && a.Repo.ID != 0 && w.Repo != a.Repo.ID {
		err = missing
	}
	return w, err
}

// CreateWebhook makes an endpoint and returns its secret, which is not told
// again. repo narrows it; a token that was made for a repository makes endpoints
// of that repository only.
func (s *Service) CreateWebhook(ctx context.Context, a *Access, repo string, spec webhook.Spec, record WebhookRecord) (WebhookInfo, string, error) {
	var err error
	if spec.Repo, err = s.narrow(ctx, a, repo); err != nil {
		return WebhookInfo{}, "", err
	}
	info, err := s.named(ctx, meta.Webhook{Org: a.Org.ID, Repo: spec.Repo, Position: math.MaxInt64})
	if err != nil {
		return WebhookInfo{}, "", err
	}
	spec.Record = record.of(info)
	w, secret, err := s.Endpoints.Create(ctx, a.change("POST webhooks"), spec)
	return info.of(w), secret, webhookRefusal(err)
}

// WebhookRecord makes the row that is kept for the idempotency key of a request
// which makes or changes an endpoint; nil keeps none. secret is "" when it does
// not change.
type WebhookRecord func(w WebhookInfo, secret string) *meta.Idempotency

func (r WebhookRecord) of(info WebhookInfo) func(meta.Webhook, string) *meta.Idempotency {
	if r == nil {
		return nil
	}
	return func(w meta.Webhook, secret string) *meta.Idempotency { return r(info.of(w), secret) }
}

// of is what is known of an endpoint of the same repository.
func (i WebhookInfo) of(w meta.Webhook) WebhookInfo {
	if i.Webhook = w; w.Repo == 0 {
		i.LastEvent = events.At(0, w.Position)
	}
	return i
}

// webhookRefusal turns why an endpoint did not change into what clients are told.
func webhookRefusal(err error) error {
	if refused, ok := errors.AsType[*webhook.RefusedError](err); ok {
		return orgRefusal(refused.Conflict)
	}
	return keyMissing(err)
}

// WebhookChange says what is to change of an endpoint; nil leaves it.
type WebhookChange struct {
	Repo          *string // "" widens it to the org
	URL           *string
	Events        *[]string
	MuteEphemeral *bool
	Enabled       *bool
	Secret        *string
}

// UpdateWebhook changes an endpoint.
func (s *Service) UpdateWebhook(ctx context.Context, a *Access, id string, ch WebhookChange, record WebhookRecord) (WebhookInfo, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return WebhookInfo{}, err
	}
	spec := webhook.SpecOf(w)
	if ch.Repo != nil {
		if spec.Repo, err = s.narrow(ctx, a, *ch.Repo); err != nil {
			return WebhookInfo{}, err
		}
	}
	assign(&spec.URL, ch.URL)
	assign(&spec.Events, ch.Events)
	assign(&spec.MuteEphemeral, ch.MuteEphemeral)
	assign(&spec.Enabled, ch.Enabled)
	assign(&spec.Secret, ch.Secret)
	info, err := s.named(ctx, meta.Webhook{Org: w.Org, Repo: spec.Repo, Position: w.Position})
	if err != nil {
		return WebhookInfo{}, err
	}
	spec.Record = record.of(info)
	w, err = s.Endpoints.Update(ctx, a.change("PATCH webhooks"), w.ID, spec)
	return info.of(w), webhookRefusal(err)
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// DeleteWebhook removes an endpoint.
func (s *Service) DeleteWebhook(ctx context.Context, a *Access, id string) error {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return err
	}
	return webhookRefusal(s.Endpoints.Delete(ctx, a.change("DELETE webhooks"), w.ID))
}

// Deliveries is a page of what became of events at an endpoint.
type Deliveries struct {
	Webhook meta.Webhook
	List    []meta.Delivery
}

// EventID is the id of the event of a delivery.
func (l Deliveries) EventID(d meta.Delivery) string {
	return events.At(l.Webhook.Repo, webhook.Place(l.Webhook, d))
}

// WebhookDeliveries returns recent deliveries of an endpoint, the newest event
// first, of events before a place (0: of all).
func (s *Service) WebhookDeliveries(ctx context.Context, a *Access, id string, before int64, limit int) (Deliveries, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return Deliveries{}, err
	}
	rows, err := s.Meta.Deliveries(ctx, meta.DeliveryQuery{Webhook: w.ID, Repo: w.Repo, Before: before, Limit: limit})
	return Deliveries{w, rows}, err
}

// PingWebhook sends a test event to an endpoint. begin is called before, unless
// the request is refused, and ends it with its error.
func (s *Service) PingWebhook(ctx context.Context, a *Access, id string, begin func() error) (webhook.Outcome, error) {
	w, err := s.endpoint(ctx, a, id)
	if err == nil {
		err = begin()
	}
	if err != nil {
		return webhook.Outcome{}, err
	}
	return s.Endpoints.Ping(ctx, w)
}

// Redeliver sends an event to an endpoint once more. begin is called before,
// unless the request is refused, and ends it with its error.
func (s *Service) Redeliver(ctx context.Context, a *Access, id, event string, begin func() error) (webhook.Outcome, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return webhook.Outcome{}, err
	}
	e, err := s.Endpoints.Event(ctx, w, event)
	if err == nil {
		err = begin()
	}
	if err != nil {
		return webhook.Outcome{}, err
	}
	return s.Endpoints.Sender.Send(ctx, w, e), nil
}

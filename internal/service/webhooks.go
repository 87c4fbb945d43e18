package service

import (
	"context"
	"errors"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/webhook"
)

// WebhookInfo is an endpoint with the name of its repository, "" for none.
type WebhookInfo struct {
	meta.Webhook
	RepoName string
}

// Webhooks lists the endpoints that an Access covers.
func (s *Service) Webhooks(ctx context.Context, a *Access) ([]WebhookInfo, error) {
	rows, err := s.Meta.Webhooks(ctx, a.Org.ID)
	if err != nil {
		return nil, err
	}
	list := make([]WebhookInfo, 0, len(rows))
	for _, w := range rows {
		if a.Repo.ID != 0 && w.Repo != a.Repo.ID {
			continue
		}
		info, err := s.named(ctx, w)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func (s *Service) named(ctx context.Context, w meta.Webhook) (WebhookInfo, error) {
	info := WebhookInfo{Webhook: w}
	if w.Repo == 0 {
		return info, nil
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
	info, err := s.named(ctx, meta.Webhook{Repo: spec.Repo})
	if err != nil {
		return WebhookInfo{}, "", err
	}
	spec.Record = record.of(info.RepoName)
	var secret string
	info.Webhook, secret, err = s.Endpoints.Create(ctx, a.change("POST webhooks"), spec)
	return info, secret, webhookRefusal(err)
}

// WebhookRecord makes the row that is kept for the idempotency key of a request
// which makes or changes an endpoint; nil keeps none. secret is "" when it does
// not change.
type WebhookRecord func(w WebhookInfo, secret string) *meta.Idempotency

func (r WebhookRecord) of(repo string) func(meta.Webhook, string) *meta.Idempotency {
	if r == nil {
		return nil
	}
	return func(w meta.Webhook, secret string) *meta.Idempotency { return r(WebhookInfo{w, repo}, secret) }
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
	info, err := s.named(ctx, meta.Webhook{Repo: spec.Repo})
	if err != nil {
		return WebhookInfo{}, err
	}
	spec.Record = record.of(info.RepoName)
	info.Webhook, err = s.Endpoints.Update(ctx, a.change("PATCH webhooks"), w.ID, spec)
	return info, webhookRefusal(err)
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

// WebhookDeliveries returns recent deliveries of an endpoint, the newest event
// first, of events before a position (0: of all).
func (s *Service) WebhookDeliveries(ctx context.Context, a *Access, id string, before int64, limit int) ([]meta.Delivery, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return nil, err
	}
	return s.Meta.Deliveries(ctx, meta.DeliveryQuery{Webhook: w.ID, Before: before, Limit: limit})
}

// PingWebhook sends a test event to an endpoint.
func (s *Service) PingWebhook(ctx context.Context, a *Access, id string) (webhook.Outcome, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return webhook.Outcome{}, err
	}
	return s.Endpoints.Ping(ctx, w)
}

// Redeliver sends an event to an endpoint once more.
func (s *Service) Redeliver(ctx context.Context, a *Access, id string, position int64) (webhook.Outcome, error) {
	w, err := s.endpoint(ctx, a, id)
	if err != nil {
		return webhook.Outcome{}, err
	}
	return s.Endpoints.Redeliver(ctx, w, position)
}

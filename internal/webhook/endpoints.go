package webhook

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/secret"
)

// Bounds of endpoints.
const (
	// MaxPerOrg bounds the endpoints of an org that are for no one repository, and
	// MaxPerRepo those that are for one: nobody learns from a limit what another
	// repository has.
	MaxPerOrg  = 50
	MaxPerRepo = 10
	maxURL     = 2048 // bytes
	maxEvents  = 16
	minSecret  = 8 // bytes
	maxSecret  = 255
)

// TypePing is the type of the event that Ping sends; it is in no outbox.
const TypePing = "ping"

// InvalidError says what is wrong with an endpoint that somebody asks for.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// NotFoundError says that an endpoint or an event of it is not there.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What + " not found" }

// Endpoints manages the endpoints of orgs. It is safe for concurrent use.
type Endpoints struct {
	Meta    meta.Store
	Secrets *secret.Keyring // nil takes no secrets, and so no endpoints
	Guard   *netguard.Guard
	Sender  *Sender
	// Now is the clock for new rows; nil means time.Now.
	Now func() time.Time
	// Changed, when set, is called after an endpoint changed.
	Changed func()
}

// Spec is what an endpoint is made from, or changed to.
type Spec struct {
	Repo          meta.RepoID
	URL           string
	Events        []string
	MuteEphemeral bool
	Enabled       bool
	// Secret signs deliveries; "" makes a new one (of a new endpoint).
	Secret string
	// Record, when set, makes the row that is kept for the request's idempotency
	// key; secret is "" when it does not change.
	Record func(w meta.Webhook, secret string) *meta.Idempotency
}

// SpecOf is what an endpoint was made from, without its secret.
func SpecOf(w meta.Webhook) Spec {
	return Spec{Repo: w.Repo, URL: w.URL, Events: w.Events, MuteEphemeral: w.MuteEphemeral, Enabled: w.Enabled}
}

// PublicID is the identifier by which the outside knows an endpoint.
func PublicID(id meta.WebhookID) string { return fmt.Sprintf("wh_%016x", uint64(id)) }

// ParseID reads a PublicID; false says that it is none.
func ParseID(text string) (meta.WebhookID, bool) {
	digits, ok := strings.CutPrefix(text, "wh_")
	n, err := strconv.ParseUint(digits, 16, 63)
	if !ok || err != nil || len(digits) != 16 || PublicID(meta.WebhookID(n)) != text {
		return 0, false
	}
	return meta.WebhookID(n), true
}

// NewSecret returns a random secret.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return "whsec_" + hex.EncodeToString(b[:])
}

// checkURL refuses what certainly may not be delivered to. What a name resolves
// to is checked at each connection.
func (a *Endpoints) checkURL(text string) error {
	if len(text) > maxURL {
		return invalid("the URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
		return invalid("url %.200q is not one such as https://hooks.example.com/cairn", text)
	}
	if err := a.Guard.CheckURL(u); err != nil {
		return invalid("%v", err)
	}
	if host := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")); !a.Guard.Allows(host, netguard.Port(u)) &&
		(host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return invalid("host %q is refused: it is this machine", host)
	}
	return nil
}

// check refuses what no endpoint may have, beside its URL.
func (s *Spec) check() error {
	if len(s.Events) > maxEvents {
		return invalid("there are more than %d event types", maxEvents)
	}
	if slices.Contains(s.Events, "*") {
		s.Events = nil
	}
	for _, kind := range s.Events {
		if !slices.Contains(events.Types, kind) {
			return invalid("event type %.80q is not known: use * or some of %s", kind, strings.Join(events.Types, ", "))
		}
	}
	slices.Sort(s.Events)
	s.Events = slices.Compact(s.Events)
	if s.Secret == "" {
		return nil
	}
	if len(s.Secret) < minSecret || len(s.Secret) > maxSecret || strings.ContainsFunc(s.Secret, func(r rune) bool { return r < '!' || r > '~' }) {
		return invalid("the secret must have %d to %d printable ASCII characters without spaces", minSecret, maxSecret)
	}
	return nil
}

// Create makes an endpoint and returns it with its secret, which is not told
// again. Events from now on are delivered. by names the org and who asks.
// [secret.ErrNoKey] says that the secret cannot be kept.
func (a *Endpoints) Create(ctx context.Context, by meta.Change, s Spec) (meta.Webhook, string, error) {
	if err := errors.Join(a.checkURL(s.URL), s.check()); err != nil {
		return meta.Webhook{}, "", err
	}
	if err := a.room(ctx, by.Org, s.Repo); err != nil {
		return meta.Webhook{}, "", err
	}
	if s.Secret == "" {
		s.Secret = NewSecret()
	}
	now := a.now()
	w := s.fill(meta.Webhook{ID: meta.WebhookID(meta.NewID(now)), Org: by.Org, CreatedAt: now, UpdatedAt: now})
	var err error
	if w.Secret, err = sealSecret(a.Secrets, w.ID, s.Secret); err != nil {
		return meta.Webhook{}, "", err
	}
	// What happened before has a position then, and the endpoint starts after it.
	if w.Position, err = a.Meta.LastEvent(ctx); err != nil {
		return meta.Webhook{}, "", err
	}
	by.CreateWebhook = &w
	if s.Record != nil {
		by.Idempotency = s.Record(w, s.Secret)
	}
	return w, s.Secret, a.apply(ctx, by)
}

// room refuses one more endpoint for a repository, or (0) for the whole org.
func (a *Endpoints) room(ctx context.Context, org meta.OrgID, repo meta.RepoID) error {
	limit, of := MaxPerOrg, "the org as a whole"
	if repo != 0 {
		limit, of = MaxPerRepo, "the repository"
	}
	there, err := a.Meta.Webhooks(ctx, meta.WebhookQuery{Org: org, Repo: repo, Whole: repo == 0, Limit: limit})
	if err == nil && len(there) == limit {
		err = invalid("%s has %d endpoints already: delete one first", of, limit)
	}
	return err
}

// now is the time as the store keeps it.
func (a *Endpoints) now() time.Time {
	now := time.Now
	if a.Now != nil {
		now = a.Now
	}
	return now().UTC().Truncate(time.Microsecond)
}

func (s Spec) fill(w meta.Webhook) meta.Webhook {
	w.Repo, w.URL, w.Events, w.MuteEphemeral, w.Enabled = s.Repo, s.URL, s.Events, s.MuteEphemeral, s.Enabled
	return w
}

// RefusedError says that a change of an endpoint met a conflict.
type RefusedError struct{ Conflict *meta.Conflict }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("change of a webhook refused: %s", e.Conflict.Kind)
}

func (a *Endpoints) apply(ctx context.Context, c meta.Change) error {
	v, err := a.Meta.Apply(ctx, c)
	if err != nil {
		return err
	}
	if !v.Applied {
		return &RefusedError{Conflict: v.Conflict}
	}
	if a.Changed != nil {
		a.Changed()
	}
	return nil
}

// Update changes an endpoint; its progress stays. A secret that is not "" takes
// the place of the one before. Enabling it forgets its failures, and what waited
// is delivered. by names the org and who asks.
func (a *Endpoints) Update(ctx context.Context, by meta.Change, id meta.WebhookID, s Spec) (meta.Webhook, error) {
	w, err := a.Get(ctx, by.Org, id)
	if err != nil {
		return meta.Webhook{}, err
	}
	if s.URL != w.URL {
		err = a.checkURL(s.URL)
	}
	if s.Repo != w.Repo {
		err = errors.Join(err, a.room(ctx, by.Org, s.Repo))
	}
	if err := errors.Join(err, s.check()); err != nil {
		return meta.Webhook{}, err
	}
	if s.Enabled != w.Enabled {
		w.FailingSince = time.Time{}
	}
	w = s.fill(w)
	if w.Enabled {
		w.Reason = ""
	}
	w.UpdatedAt = a.now()
	w.Secret = nil
	if s.Secret != "" {
		if w.Secret, err = sealSecret(a.Secrets, id, s.Secret); err != nil {
			return meta.Webhook{}, err
		}
	}
	by.UpdateWebhook = &w
	if s.Record != nil {
		by.Idempotency = s.Record(w, s.Secret)
	}
	return w, a.apply(ctx, by)
}

// Delete removes an endpoint; what waited for it is not delivered. by names the
// org and who asks.
func (a *Endpoints) Delete(ctx context.Context, by meta.Change, id meta.WebhookID) error {
	if _, err := a.Get(ctx, by.Org, id); err != nil {
		return err
	}
	by.DeleteWebhook = id
	return a.apply(ctx, by)
}

// Get returns one endpoint.
func (a *Endpoints) Get(ctx context.Context, org meta.OrgID, id meta.WebhookID) (meta.Webhook, error) {
	w, err := a.Meta.Webhook(ctx, org, id)
	if errors.Is(err, meta.ErrNotFound) {
		err = &NotFoundError{What: "webhook"}
	}
	return w, err
}

// eachPage is how many endpoints Each reads at a time.
const eachPage = 500

// Each calls yield for each endpoint of an org in order of their ids.
func (a *Endpoints) Each(ctx context.Context, org meta.OrgID, yield func(meta.Webhook) error) error {
	for q := (meta.WebhookQuery{Org: org, Limit: eachPage}); ; {
		page, err := a.Meta.Webhooks(ctx, q)
		if err != nil {
			return err
		}
		for _, w := range page {
			if err := yield(w); err != nil {
				return err
			}
			q.After = w.ID
		}
		if len(page) < eachPage {
			return nil
		}
	}
}

// Place orders the deliveries to an endpoint: the position of the event, or its
// place where the endpoint is for one repository.
func Place(w meta.Webhook, d meta.Delivery) int64 {
	if w.Repo != 0 {
		return d.Place
	}
	return d.Position
}

// LastEvent is the id of the last event up to which all are settled, as
// deliveries to the endpoint name events.
func (a *Endpoints) LastEvent(ctx context.Context, w meta.Webhook) (string, error) {
	if w.Repo == 0 {
		return events.At(0, w.Position), nil
	}
	place, err := a.Meta.PlaceAt(ctx, w.Org, w.Repo, w.Position)
	return events.At(w.Repo, place), err
}

// Ping sends an event of type "ping" at once and tells what came of it.
func (a *Endpoints) Ping(ctx context.Context, w meta.Webhook) (Outcome, error) {
	body, err := json.Marshal(map[string]string{"type": TypePing, "webhook_id": PublicID(w.ID)})
	if err != nil {
		return Outcome{}, err
	}
	return a.Sender.Send(ctx, w, meta.Event{Type: TypePing, Body: body}), nil
}

// Event returns an event of the outbox that the endpoint is meant to get, by the
// name that deliveries to the endpoint give it.
func (a *Endpoints) Event(ctx context.Context, w meta.Webhook, id string) (meta.Event, error) {
	at, ok := events.ParseID(w.Repo, id)
	if !ok || at == 0 {
		return meta.Event{}, &NotFoundError{What: "event"}
	}
	page, err := a.Meta.EventPage(ctx, meta.EventQuery{Org: w.Org, Repo: w.Repo, After: at - 1, Limit: 1})
	if err != nil {
		return meta.Event{}, err
	}
	if len(page.Events) == 0 || events.ID(page.Events[0], w.Repo) != id || !wants(w, page.Events[0], events.Ref(page.Events[0])) {
		return meta.Event{}, &NotFoundError{What: "event"}
	}
	return page.Events[0], nil
}

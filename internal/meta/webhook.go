package meta

import (
	"context"
	"time"
)

// WebhookID identifies a webhook endpoint; it is made with [NewID].
type WebhookID int64

// Webhook is an endpoint that the events of an org are delivered to.
type Webhook struct {
	ID  WebhookID
	Org OrgID
	// Repo narrows the endpoint to the events of one repository; 0 means all.
	Repo RepoID
	URL  string
	// Secret is what deliveries are signed with, as its owner stores it.
	Secret []byte
	// Events are the types that are delivered; none means all.
	Events []string
	// MuteEphemeral leaves out the events of ephemeral refs.
	MuteEphemeral bool
	// Enabled is false when deliveries are stopped; Reason then says why, ""
	// when its owner stopped them.
	Enabled   bool
	Reason    string
	CreatedAt time.Time // zero in a Change takes the time of the Change
	UpdatedAt time.Time // that of the Change, whatever a Change says
	// Position is the last event up to which all are delivered or given up. A new
	// endpoint starts at the one that it is created with; 0 means the newest event
	// that has a position. It never goes back. Where Repo changes it goes on to just
	// before the first event that the endpoint was still to get.
	Position int64
	// FailingSince is when the first of the attempts was made that all failed; zero
	// when the last one succeeded.
	FailingSince time.Time
}

// WebhookLease is the right of one process to deliver to one endpoint.
type WebhookLease struct {
	Webhook Webhook
	// Fence grows with each new holder: what an earlier one saves is refused.
	Fence int64
}

// DeliveryState says what became of an event's delivery to an endpoint.
type DeliveryState uint8

// The states of deliveries.
const (
	DeliveryWaiting   DeliveryState = 0 // failed, and will be tried again
	DeliveryDelivered DeliveryState = 1
	DeliveryFailed    DeliveryState = 2 // given up after the last attempt
)

// String is the state as it is shown.
func (s DeliveryState) String() string {
	switch s {
	case DeliveryDelivered:
		return "delivered"
	case DeliveryFailed:
		return "failed"
	}
	return "waiting"
}

// WebhookQuery selects up to Limit endpoints of an org whose ids are larger than
// After.
type WebhookQuery struct {
	Org OrgID
	// Repo keeps those of one repository; Whole those of no repository.
	Repo  RepoID
	Whole bool
	After WebhookID
	Limit int
}

// Delivery is what became of one event at one endpoint, after the last attempt.
type Delivery struct {
	Position int64 // of the event
	Place    int64 // of the event, as Deliveries reads it; 0 when the event is gone
	Type     string
	State    DeliveryState
	Attempts int
	// Status is the HTTP status of the last answer, 0 when there was none.
	Status int
	// Error says in a few words why the last attempt failed.
	Error string
	At    time.Time // of the last attempt
	Next  time.Time // of the next attempt while waiting
}

// DeliveryQuery selects deliveries of an endpoint, the newest event first.
type DeliveryQuery struct {
	Webhook WebhookID
	// Repo keeps the events of one repository; Before is then a place.
	Repo RepoID
	// Before keeps events with smaller positions, After those with larger ones; 0
	// keeps all.
	Before int64
	After  int64
	Limit  int
}

// DeliveryProgress is how far deliveries to an endpoint came.
type DeliveryProgress struct {
	Webhook      WebhookID
	Fence        int64
	Position     int64
	FailingSince time.Time
	// Deliveries are new or changed.
	Deliveries []Delivery
	// Disable, when not "", stops the endpoint for this reason.
	Disable string
	// Release gives the lease back.
	Release bool
}

// KeptDeliveries is how many of the newest deliveries of an endpoint are kept,
// beside those after its position.
const KeptDeliveries = 200

// Webhooks reads endpoints and keeps the progress of deliveries.
type Webhooks interface {
	// Webhooks returns endpoints of an org in order of their ids.
	Webhooks(ctx context.Context, q WebhookQuery) ([]Webhook, error)
	// Webhook returns one endpoint of an org.
	Webhook(ctx context.Context, org OrgID, id WebhookID) (Webhook, error)
	// WebhookOrgs returns the orgs that have an enabled endpoint.
	WebhookOrgs(ctx context.Context) ([]OrgID, error)
	// DueWebhooks returns up to limit enabled endpoints that no process has a
	// lease on and for which there are events after their position: of the org, or
	// of the one repository that they are for.
	DueWebhooks(ctx context.Context, limit int) ([]WebhookID, error)
	// LeaseWebhook takes the lease on an enabled endpoint, or extends it when the
	// owner has it already. ErrNotFound says that another owner has it, or that
	// there is no such enabled endpoint.
	LeaseWebhook(ctx context.Context, id WebhookID, owner string, lease time.Duration) (WebhookLease, error)
	// SaveDeliveries records progress. ErrNotFound says that the fence is not the
	// endpoint's any more; nothing is then written.
	SaveDeliveries(ctx context.Context, p DeliveryProgress) error
	// SealWebhook puts one form of an endpoint's secret in the place of another, if
	// it still has that; its owner does not see a change.
	SealWebhook(ctx context.Context, id WebhookID, from, to []byte) error
	// Deliveries returns recent deliveries of an endpoint.
	Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error)
}

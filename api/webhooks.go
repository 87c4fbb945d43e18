package api

// CreateWebhook asks for an endpoint that events are delivered to from now on.
type CreateWebhook struct {
	// URL is https; plain http only to hosts that the operator allowed.
	URL string `json:"url"`
	// Events are types of events; none, or "*", means all.
	Events []string `json:"events,omitempty"`
	// Repo narrows the endpoint to one repository. With a token whose repo claim
	// names a repository it is that one.
	Repo string `json:"repo,omitempty"`
	// MuteEphemeral leaves out events of ephemeral refs.
	MuteEphemeral bool `json:"mute_ephemeral,omitempty"`
	// Secret signs deliveries: 8 to 255 printable characters. One is made when it
	// is absent.
	Secret string `json:"secret,omitempty"`
}

// Webhook is an endpoint.
type Webhook struct {
	ID            string   `json:"id"`
	URL           string   `json:"url"`
	Events        []string `json:"events"` // ["*"] for all
	Repo          string   `json:"repo,omitempty"`
	MuteEphemeral bool     `json:"mute_ephemeral"`
	Enabled       bool     `json:"enabled"`
	// DisabledReason says why the server disabled the endpoint.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// FailingSince is when deliveries began to fail; absent when the last one
	// succeeded.
	FailingSince string `json:"failing_since,omitempty"`
	// LastEventID is the event up to which all are delivered or given up. An endpoint
	// that is for one repository names events as that repository's stream does.
	LastEventID string `json:"last_event_id"`
	CreatedAt   string `json:"created_at"`
	UpdatedAt   string `json:"updated_at"`
	// Secret is told when it is made, and never again.
	Secret string `json:"secret,omitempty"`
}

// ListWebhooks asks for the endpoints that the token may see, the oldest first.
type ListWebhooks struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 500, 100 when absent
}

// WebhookList is a page of endpoints.
type WebhookList struct {
	Webhooks   []Webhook `json:"webhooks"`
	NextCursor string    `json:"next_cursor,omitempty"`
	HasMore    bool      `json:"has_more"`
}

// GetWebhook names an endpoint.
type GetWebhook struct {
	ID string `path:"webhook" json:"-"`
}

// UpdateWebhook changes an endpoint; what is absent stays. Deliveries follow
// within seconds.
type UpdateWebhook struct {
	ID            string    `path:"webhook" json:"-"`
	URL           *string   `json:"url,omitempty"`
	Events        *[]string `json:"events,omitempty"`
	Repo          *string   `json:"repo,omitempty"` // "" for the whole org
	MuteEphemeral *bool     `json:"mute_ephemeral,omitempty"`
	// Enabled stops deliveries or goes on with what waits.
	Enabled *bool `json:"enabled,omitempty"`
}

// RotateWebhook asks for a new secret; deliveries are signed with it within
// seconds.
type RotateWebhook struct {
	ID     string `path:"webhook" json:"-"`
	Secret string `json:"secret,omitempty"` // one is made when it is absent
}

// DeletedWebhook is the answer to the deletion of an endpoint.
type DeletedWebhook struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

// ListDeliveries asks for recent deliveries to an endpoint, the newest event
// first. The last 200 are kept.
type ListDeliveries struct {
	ID     string `path:"webhook" json:"-"`
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 100, 20 when absent
}

// DeliveryList is a page of deliveries.
type DeliveryList struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor string     `json:"next_cursor,omitempty"`
	HasMore    bool       `json:"has_more"`
}

// Delivery is what became of one event at an endpoint.
type Delivery struct {
	EventID  string `json:"event_id"`
	Type     string `json:"type"`
	State    string `json:"state"` // "delivered", "waiting" for the next attempt, or "failed" for good
	Attempts int    `json:"attempts"`
	// Status and Error are of the last attempt: the HTTP status, if there was an
	// answer, and why it failed.
	Status        int    `json:"status,omitempty"`
	Error         string `json:"error,omitempty"`
	At            string `json:"at"` // of the last attempt
	NextAttemptAt string `json:"next_attempt_at,omitempty"`
}

// Redeliver asks to send an event once more, at once.
type Redeliver struct {
	ID      string `path:"webhook" json:"-"`
	EventID string `json:"event_id"`
}

// DeliveryResult is what came of a delivery that was made at once.
type DeliveryResult struct {
	Delivered bool   `json:"delivered"`
	Status    int    `json:"status,omitempty"` // that the endpoint answered
	Error     string `json:"error,omitempty"`
	MS        int64  `json:"ms"` // that it took
}

package api

import "encoding/json"

// ListEvents asks for events of the org in the order in which they happened:
// as one page of JSON, or, with "Accept: text/event-stream", as server-sent
// events that go on as they happen.
type ListEvents struct {
	// After is the id of the last event that was seen. A page without it begins
	// with the oldest event, a stream with what happens next. The header
	// Last-Event-ID takes its place in a stream.
	After *int64 `query:"after"`
	Limit int    `query:"limit"` // of a page: 1 to 1000, 100 when absent
	// Repo keeps the events of one repository. A token whose repo claim names a
	// repository sees no others.
	Repo string `query:"repo"`
}

// EventList is a page of events.
type EventList struct {
	Events []Event `json:"events"`
	// NextAfter is the value of "after" for the next page, now or later.
	NextAfter string `json:"next_after"`
	// HasMore says that the next page should be asked for at once. A page may be
	// empty and have more after it.
	HasMore bool `json:"has_more"`
}

// Event is something that happened.
type Event struct {
	ID     string `json:"id"`   // a decimal number that grows
	Type   string `json:"type"` // "push", "repo.sync.started", "repo.sync.succeeded" or "repo.sync.failed"
	RepoID string `json:"repo_id,omitempty"`
	At     string `json:"at"`
	// Payload is what webhooks are sent.
	Payload json.RawMessage `json:"payload"`
}

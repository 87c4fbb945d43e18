package api

import "encoding/json"

// ListEvents asks for events of the org in the order in which they happened:
// as one page of JSON, or, with "Accept: text/event-stream", as server-sent
// events that go on as they happen.
type ListEvents struct {
	// After is the id of the last event that was seen. A page without it begins
	// with the oldest event, a stream with what happens next. The header
	// Last-Event-ID takes its place in a stream.
	// 0 is before the oldest event that is kept. A page after an event whose
	// successors are not all kept is refused with code "events_pruned" (410).
	After string `query:"after"`
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
	// HasMore says that the next page should be asked for at once.
	HasMore bool `json:"has_more"`
}

// Event is something that happened.
type Event struct {
	// ID names the event in the stream that was asked for: that of the org, or that
	// of one repository, whose ids tell nothing of other repositories. No two events
	// have the same.
	ID     string `json:"id"`
	Type   string `json:"type"` // "push", "repo.sync.started", "repo.sync.succeeded" or "repo.sync.failed"
	RepoID string `json:"repo_id,omitempty"`
	At     string `json:"at"`
	// Payload is what webhooks are sent.
	Payload json.RawMessage `json:"payload"`
}

// EventGap is the data of the event "gap" of a stream: some events after the
// reader's last one are not kept any more. The stream goes on with the oldest one
// that is; the id of the gap is NextAfter.
type EventGap struct {
	After     string `json:"after"`
	NextAfter string `json:"next_after"`
}

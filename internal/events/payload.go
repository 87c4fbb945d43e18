// Package events knows what the events of the outbox say, and tells their
// readers when there are new ones. Events are rows written in the Change that
// they describe; webhooks and the event stream read them.
package events

import (
	"encoding/json"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// The types of events.
const (
	TypePush          = "push"
	TypeSyncStarted   = "repo.sync.started"
	TypeSyncSucceeded = "repo.sync.succeeded"
	TypeSyncFailed    = "repo.sync.failed"
)

// Types lists the types of events.
var Types = []string{TypePush, TypeSyncStarted, TypeSyncSucceeded, TypeSyncFailed}

// Repository names the repository of an event.
type Repository struct {
	ID       string `json:"id"`
	URL      string `json:"url"` // legacy name of repo_name
	RepoName string `json:"repo_name"`
}

// Push says that one ref moved.
type Push struct {
	Repository Repository `json:"repository"`
	Ref        string     `json:"ref"`    // full stored name
	Before     string     `json:"before"` // 40 zeros when the ref was created
	After      string     `json:"after"`  // 40 zeros when it was deleted
	CustomerID string     `json:"customer_id"`
	PushedAt   string     `json:"pushed_at"`
	Org        string     `json:"org"`
}

// Event is the row of a push.
func (p Push) Event() meta.Event { return event(TypePush, p) }

// Sync says that a repository began, or ended, to take over its upstream.
type Sync struct {
	Type       string     `json:"type"` // one of the TypeSync constants
	Repository Repository `json:"repository"`
	// RunCount counts the runs of the repository, this one included.
	RunCount    int64  `json:"run_count"`
	IsFirstSync bool   `json:"is_first_sync"`
	StartedAt   string `json:"started_at"`
	CompletedAt string `json:"completed_at,omitempty"` // unless it has just begun
	Error       string `json:"error,omitempty"`        // of a run that failed
	// KeptRefs are some of the refs that are not as they are upstream, and
	// KeptCount is how many there are.
	KeptRefs  []KeptRef `json:"kept_refs,omitempty"`
	KeptCount int       `json:"kept_refs_count,omitempty"`
}

// KeptRef is a ref that a run left as it is.
type KeptRef struct {
	Ref    string `json:"ref"`
	Reason string `json:"reason"`
}

// Event is the row of a run.
func (s Sync) Event() meta.Event { return event(s.Type, s) }

// Stamp is a time as payloads spell it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func event(kind string, payload any) meta.Event {
	body, err := json.Marshal(payload)
	if err != nil {
		panic(err) // strings, numbers and flags always encode
	}
	return meta.Event{Type: kind, Body: body}
}

// Ref returns the full name of the ref that an event is about, "" when it is
// about none.
func Ref(e meta.Event) string {
	if e.Type != TypePush {
		return ""
	}
	var p struct {
		Ref string `json:"ref"`
	}
	if json.Unmarshal(e.Body, &p) != nil {
		return ""
	}
	return p.Ref
}

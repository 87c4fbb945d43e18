package repo

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// PublicID is the identifier by which the outside knows a repository. It stays
// the same for the repository's life.
func PublicID(id meta.RepoID) string { return fmt.Sprintf("repo_%016x", uint64(id)) }

// pushEvent is the body of an event of type "push", as webhooks deliver it.
type pushEvent struct {
	Repository eventRepository `json:"repository"`
	Ref        string          `json:"ref"` // full stored name
	Before     string          `json:"before"`
	After      string          `json:"after"`
	CustomerID string          `json:"customer_id"`
	PushedAt   string          `json:"pushed_at"`
	Org        string          `json:"org"`
}

type eventRepository struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	RepoName string `json:"repo_name"`
}

// pushEvents describes moved refs, one event each.
func pushEvents(w Writer, r meta.Repo, moved []RefUpdate, now time.Time) []meta.Event {
	events := make([]meta.Event, 0, len(moved))
	for _, m := range moved {
		body, err := json.Marshal(pushEvent{
			Repository: eventRepository{ID: PublicID(r.ID), URL: r.Name, RepoName: r.Name},
			Ref:        m.Name,
			Before:     m.Old.String(),
			After:      m.New.String(),
			CustomerID: w.OrgName,
			PushedAt:   now.UTC().Format(time.RFC3339),
			Org:        w.OrgName,
		})
		if err != nil {
			panic(err) // strings always encode
		}
		events = append(events, meta.Event{Type: "push", Body: body})
	}
	return events
}

package repo

import (
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
)

// PublicID is the identifier by which the outside knows a repository. It stays
// the same for the repository's life.
func PublicID(id meta.RepoID) string { return fmt.Sprintf("repo_%016x", uint64(id)) }

// EventRepository is a repository as events name it.
func EventRepository(r meta.Repo) events.Repository {
	return events.Repository{ID: PublicID(r.ID), URL: r.Name, RepoName: r.Name}
}

// pushEvents describes moved refs, one event each.
func pushEvents(w Writer, r meta.Repo, moved []RefUpdate, now time.Time) []meta.Event {
	rows := make([]meta.Event, 0, len(moved))
	for _, m := range moved {
		rows = append(rows, events.Push{
			Repository: EventRepository(r),
			Ref:        m.Name,
			Before:     m.Old.String(),
			After:      m.New.String(),
			CustomerID: w.OrgName,
			PushedAt:   events.Stamp(now),
			Org:        w.OrgName,
		}.Event())
	}
	return rows
}

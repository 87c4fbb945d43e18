package sqlstore

import (
	"context"

	"github.com/cairnstate/cairn/internal/meta"
)

// Events implements meta.Store.
func (s *Store) Events(ctx context.Context, org meta.OrgID, after int64, limit int) ([]meta.Event, error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return nil, err
	}
	text := `SELECT e.position, e.org, e.repo, e.version, e.at, e.type, e.body FROM events e WHERE e.position > $1`
	args := []any{after, limit}
	if org != 0 {
		text += ` AND e.org = $3`
		args = append(args, org)
	}
	text += ` ORDER BY e.position LIMIT $2`
	var events []meta.Event
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		var e meta.Event
		var org, repo, at int64
		var kind []byte
		err := scan(&e.Position, &org, &repo, &e.Version, &at, &kind, &e.Body)
		e.Org, e.Repo, e.At, e.Type = meta.OrgID(org), meta.RepoID(repo), timeOf(at), string(kind)
		events = append(events, e)
		return err
	})
	return events, err
}

// LastEvent implements meta.Store.
func (s *Store) LastEvent(ctx context.Context) (last int64, err error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return 0, err
	}
	err = s.one(ctx, `SELECT coalesce(max(position), 0) FROM events`, nil, func(scan scanFunc) error { return scan(&last) })
	return last, err
}

// EventOrgs implements meta.Store.
func (s *Store) EventOrgs(ctx context.Context, after int64) (orgs []meta.OrgID, last int64, err error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return nil, after, err
	}
	last = after
	const text = `SELECT org, max(position) FROM events WHERE position > $1 GROUP BY org`
	err = s.query(ctx, text, []any{after}, func(scan scanFunc) error {
		var org, position int64
		err := scan(&org, &position)
		orgs, last = append(orgs, meta.OrgID(org)), max(last, position)
		return err
	})
	return orgs, last, err
}

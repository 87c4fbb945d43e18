package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Events implements meta.Store.
func (s *Store) Events(ctx context.Context, org meta.OrgID, after int64, limit int) ([]meta.Event, error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return nil, err
	}
	text := `SELECT ` + eventColumns + ` FROM events e WHERE e.position > $1`
	args := []any{after, limit}
	if org != 0 {
		text += ` AND e.org = $3`
		args = append(args, org)
	}
	text += ` ORDER BY e.position LIMIT $2`
	var events []meta.Event
	err := s.query(ctx, text, args, func(scan scanFunc) error {
		e, err := scanEvent(scan)
		events = append(events, e)
		return err
	})
	return events, err
}

const eventColumns = `e.position, e.org, e.repo, e.version, e.place, e.at, e.type, e.body`

// scanEvent reads eventColumns, and what is selected before them.
func scanEvent(scan scanFunc, before ...any) (e meta.Event, err error) {
	var org, repo, at int64
	var kind []byte
	err = scan(append(before, &e.Position, &org, &repo, &e.Version, &e.Place, &at, &kind, &e.Body)...)
	e.Org, e.Repo, e.At, e.Type = meta.OrgID(org), meta.RepoID(repo), timeOf(at), string(kind)
	return e, err
}

// EventPage implements meta.Store. The floor is read in the statement that reads
// the events, so that neither is newer.
func (s *Store) EventPage(ctx context.Context, q meta.EventQuery) (page meta.EventPage, err error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return page, err
	}
	where, order := `e.org = $1 AND e.position > $3`, `position`
	if q.Repo != 0 {
		where, order = `e.repo = $2 AND e.org = $1 AND e.place > $3 AND e.position IS NOT NULL`, `place`
	}
	text := `SELECT f.last, coalesce(e.position, 0), coalesce(e.org, 0), coalesce(e.repo, 0), coalesce(e.version, 0), coalesce(e.place, 0),
		coalesce(e.at, 0), e.type, e.body
		FROM (SELECT coalesce((SELECT last FROM event_floors WHERE org = $1 AND repo = $2), 0) AS last) f
		LEFT JOIN (SELECT ` + eventColumns + ` FROM events e WHERE ` + where + ` ORDER BY e.` + order + ` LIMIT $4) e ON 1 = 1
		ORDER BY e.` + order
	err = s.query(ctx, text, []any{q.Org, q.Repo, q.After, q.Limit}, func(scan scanFunc) error {
		e, err := scanEvent(scan, &page.Floor)
		if e.Position != 0 {
			page.Events = append(page.Events, e)
		}
		return err
	})
	return page, err
}

// PlaceAt implements meta.Store.
func (s *Store) PlaceAt(ctx context.Context, org meta.OrgID, repo meta.RepoID, position int64) (place int64, err error) {
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return 0, err
	}
	const text = `SELECT coalesce(
		(SELECT place FROM events WHERE repo = $2 AND org = $1 AND position <= $3 ORDER BY place DESC LIMIT 1),
		(SELECT last FROM event_floors WHERE org = $1 AND repo = $2), 0)`
	err = s.one(ctx, text, []any{org, repo, position}, func(scan scanFunc) error { return scan(&place) })
	return place, err
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

// owed says that an enabled endpoint has still to deliver the event e.
const owed = `EXISTS (SELECT 1 FROM webhooks w WHERE w.org = e.org AND w.enabled = 1 AND w.position < e.position AND w.repo IN (0, e.repo))`

// PruneEvents implements meta.Store. Endpoints that come meanwhile start after
// every event there is, and so are owed none of these.
func (s *Store) PruneEvents(ctx context.Context, before time.Time, after int64, limit int) (meta.Pruned, error) {
	res := meta.Pruned{Next: after}
	if err := s.engine.placeEvents(ctx, s); err != nil {
		return res, err
	}
	type stream struct{ org, repo int64 }
	floors := make(map[stream]int64)
	var gone []stmt
	seen := 0
	text := `SELECT e.position, e.org, e.repo, e.place, e.at, CASE WHEN ` + owed + ` THEN 1 ELSE 0 END FROM events e
		WHERE e.position > $1 AND e.position < (SELECT max(position) FROM events) ORDER BY e.position LIMIT $2`
	err := s.query(ctx, text, []any{after, limit}, func(scan scanFunc) error {
		var position, org, repo, place, at, owed int64
		if err := scan(&position, &org, &repo, &place, &at, &owed); err != nil {
			return err
		}
		seen++
		if res.Done = res.Done || at >= unixMicro(before); res.Done {
			return nil
		}
		res.Next = position
		if owed != 0 {
			return nil
		}
		floors[stream{org, 0}] = position
		if repo != 0 {
			floors[stream{org, repo}] = place
		}
		gone = append(gone,
			exec(`DELETE FROM events WHERE position = $1`, position),
			exec(`DELETE FROM webhook_deliveries WHERE position = $1 AND webhook IN (SELECT id FROM webhooks WHERE org = $2)`, position, org))
		res.Events++
		return nil
	})
	res.Done = res.Done || seen < limit
	if err != nil || len(gone) == 0 {
		return res, err
	}
	keys := slices.SortedFunc(maps.Keys(floors), func(a, b stream) int {
		return cmp.Or(cmp.Compare(a.org, b.org), cmp.Compare(a.repo, b.repo))
	})
	for _, k := range keys {
		gone = append(gone, exec(`INSERT INTO event_floors AS f (org, repo, last)
			SELECT o.id, CAST($2 AS bigint), CAST($3 AS bigint) FROM orgs o
			WHERE o.id = $1 AND (CAST($2 AS bigint) = 0 OR EXISTS (SELECT 1 FROM repos r WHERE r.id = $2))
			ON CONFLICT (org, repo) DO UPDATE SET last = excluded.last WHERE f.last < excluded.last`, k.org, k.repo, floors[k]))
	}
	return res, s.write(ctx, func(int64) []stmt { return gone })
}

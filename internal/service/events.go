package service

import (
	"context"
	"errors"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
)

// OpenPart authorises a request to the org or, with a token that was made for a
// repository, to what belongs to that repository: Access.Repo is then set.
func (s *Service) OpenPart(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if err := a.require(scopes); err != nil {
		return nil, err
	}
	switch claim := a.Principal.Repo; {
	case claim == "", claim == wholeOrg, claim == a.Org.Name && a.Repo.ID == 0:
		a.Repo = meta.Repo{}
	case a.Repo.ID == 0, !a.Repo.Deleted.IsZero():
		return nil, repositoryMissing()
	}
	return a, nil
}

// OpenPartToChange authorises changing what OpenPart authorises reading.
func (s *Service) OpenPartToChange(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.OpenPart(ctx, token, scopes...)
	if err != nil {
		return nil, err
	}
	return a, a.unconfined()
}

// narrow returns the repository that a request is about: the one that it names,
// or the only one that the token covers, or 0 for the whole org. Foreign and
// absent ones are refused alike.
func (s *Service) narrow(ctx context.Context, a *Access, name string) (meta.RepoID, error) {
	if name == "" || name == a.Repo.Name {
		return a.Repo.ID, nil
	}
	if a.Repo.ID != 0 {
		return 0, repositoryMissing()
	}
	gate, err := s.Meta.Gate(ctx, meta.GateQuery{Org: a.Org.Name, Repo: name})
	if errors.Is(err, meta.ErrNotFound) || err == nil && (gate.Repo.ID == 0 || !gate.Repo.Deleted.IsZero()) {
		return 0, repositoryMissing()
	}
	return gate.Repo.ID, err
}

// EventSource is where the events of one request come from.
type EventSource struct {
	service *Service
	org     meta.OrgID
	repo    meta.RepoID // 0 for the whole org
}

// EventSource opens the events of the org, or of the repository that is named or
// that the token is for.
func (s *Service) EventSource(ctx context.Context, a *Access, repo string) (*EventSource, error) {
	id, err := s.narrow(ctx, a, repo)
	return &EventSource{service: s, org: a.Org.ID, repo: id}, err
}

// maxEventScan bounds the events of other repositories that a page is looked for
// among.
const maxEventScan = 10_000

// After returns up to limit events after a position, the position to go on
// from, and whether there may be more after that. The page may be empty although
// there are more.
func (e *EventSource) After(ctx context.Context, after int64, limit int) (page []meta.Event, next int64, more bool, err error) {
	next = after
	for scanned := 0; scanned < maxEventScan; {
		ask := limit - len(page) + 1
		if e.repo != 0 {
			ask = max(ask, 500)
		}
		rows, err := e.service.Meta.Events(ctx, e.org, next, ask)
		if err != nil {
			return nil, after, false, err
		}
		for _, row := range rows {
			if mine := e.repo == 0 || row.Repo == e.repo; mine && len(page) == limit {
				return page, next, true, nil
			} else if mine {
				page = append(page, row)
			}
			next = row.Position
		}
		if len(rows) < ask {
			return page, next, false, nil
		}
		scanned += len(rows)
	}
	return page, next, true, nil
}

// Last returns the position of the newest event.
func (e *EventSource) Last(ctx context.Context) (int64, error) { return e.service.Meta.LastEvent(ctx) }

// Watch sends to wake when there may be new events, until stop is called.
func (e *EventSource) Watch(wake chan<- struct{}) (stop func()) {
	return e.service.Feed.Watch(e.org, wake)
}

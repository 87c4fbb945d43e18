package service

import (
	"context"
	"errors"
	"math"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/events"
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

// EventSource is the stream of events that one request reads: that of an org, or
// of one repository.
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

// ParseID reads the id of an event of this stream as a place in it; false says
// that it is none.
func (e *EventSource) ParseID(text string) (int64, bool) { return events.ParseID(e.repo, text) }

// ID is the id of what is at a place of the stream.
func (e *EventSource) ID(at int64) string { return events.At(e.repo, at) }

// EventID is the id of an event of the stream.
func (e *EventSource) EventID(of meta.Event) string { return events.ID(of, e.repo) }

// PrunedError says that events after the one that a reader had come to are not
// kept any more.
type PrunedError struct {
	// Next is the id to go on after: the next event is the oldest that is kept.
	Next string
	at   int64
}

// At is Next as a place of the stream.
func (e *PrunedError) At() int64 { return e.at }

func (e *PrunedError) Error() string {
	return "some events after this one are not kept any more: go on after " + e.Next
}

// After returns up to limit events after a place of the stream, the place to go
// on from, and whether there are more. Place 0 is before the oldest event that is
// kept. A *PrunedError says that the reader missed some.
func (e *EventSource) After(ctx context.Context, after int64, limit int) (list []meta.Event, next int64, more bool, err error) {
	page, err := e.service.Meta.EventPage(ctx, meta.EventQuery{Org: e.org, Repo: e.repo, After: after, Limit: limit + 1})
	if err != nil {
		return nil, after, false, err
	}
	if after != 0 && after < page.Floor {
		return nil, after, false, &PrunedError{Next: e.ID(page.Floor), at: page.Floor}
	}
	list, next = page.Events, max(after, page.Floor)
	if more = len(list) > limit; more {
		list = list[:limit]
	}
	if n := len(list); n > 0 && e.repo == 0 {
		next = list[n-1].Position
	} else if n > 0 {
		next = list[n-1].Place
	}
	return list, next, more, nil
}

// Last returns the place of the newest event.
func (e *EventSource) Last(ctx context.Context) (int64, error) {
	if e.repo == 0 {
		return e.service.Meta.LastEvent(ctx)
	}
	return e.service.Meta.PlaceAt(ctx, e.org, e.repo, math.MaxInt64)
}

// Watch sends to wake when there may be new events, until stop is called.
func (e *EventSource) Watch(wake chan<- struct{}) (stop func()) {
	return e.service.Feed.Watch(e.org, wake)
}

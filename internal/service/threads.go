package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/tree"
)

// OpenThread authorises a request to a thread: the token must be valid, cover the
// thread and grant one of the scopes. Whether the thread exists plays no part.
func (s *Service) OpenThread(ctx context.Context, token, thread string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.OpenThreads(ctx, token, scopes...)
	if err != nil {
		return nil, err
	}
	return a, s.Enter(ctx, a, thread)
}

// OpenThreads authorises a request to whatever the token covers.
func (s *Service) OpenThreads(ctx context.Context, token string, scopes ...auth.Scope) (*Access, error) {
	a, err := s.authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	a.Repo = meta.Repo{}
	return a, a.require(scopes)
}

// Enter narrows an Access to one thread, which the token has to cover.
func (s *Service) Enter(ctx context.Context, a *Access, thread string) error {
	if !a.Principal.CoversThread(thread) {
		return Refuse(Code(checkpoint.ThreadMissing), "thread not found")
	}
	a.Thread = thread
	return s.checkFloor(ctx, a, thread)
}

// checkFloor holds a token for every thread to the floor of one.
func (s *Service) checkFloor(ctx context.Context, a *Access, thread string) error {
	if a.Principal.Thread == thread {
		return nil // authenticate did
	}
	gate, err := s.Meta.Gate(ctx, meta.GateQuery{Org: a.Org.Name, Thread: thread})
	if err != nil {
		return fmt.Errorf("read the floor of a thread: %w", err)
	}
	return auth.Floor(gate.Floor, a.Principal)
}

// AllThreads reports whether the token covers every thread.
func (a *Access) AllThreads() bool { return a.Principal.Thread == auth.AnyThread }

// Caller says who asks, for changes of threads.
func (a *Access) Caller(route string) checkpoint.Caller {
	w := a.Writer(route)
	return checkpoint.Caller{
		Org: a.Org.ID, Metered: a.Org.Metered, ThreadBytes: a.Org.Quota.ThreadBytes, AllThreads: a.AllThreads(), Token: w.Token, Subject: w.Subject, Route: route, Agent: a.Agent, Idempotency: a.Idempotency,
	}
}

// Checkpoint returns a checkpoint of a thread that the token covers. Foreign and
// absent ones are refused alike.
func (s *Service) Checkpoint(ctx context.Context, a *Access, id string) (checkpoint.Checkpoint, error) {
	if checkpoint.CheckID(id) != nil {
		return checkpoint.Checkpoint{}, Refuse(Code(checkpoint.MissingCheckpoint), "checkpoint not found")
	}
	c, err := s.Checkpoints.CheckpointIn(ctx, a.Org.ID, id, a.Principal.CoversThread)
	if err != nil {
		return c, ThreadError(err)
	}
	a.Thread = c.Thread
	return c, s.checkFloor(ctx, a, c.Thread)
}

// MayFork authorises the fork of a checkpoint into a thread and returns of which
// threads the checkpoint may be: those that the token covers or, if there is one,
// a further token of the same org.
func (s *Service) MayFork(ctx context.Context, a *Access, thread, source string) (func(thread string) (bool, error), error) {
	if err := s.Enter(ctx, a, thread); err != nil {
		return nil, err
	}
	from := a
	if source != "" {
		var err error
		if from, err = s.OpenThreads(ctx, source, auth.CheckpointRead); err != nil {
			return nil, err
		}
	}
	return func(thread string) (bool, error) {
		if from.Org.ID != a.Org.ID || !from.Principal.Allows(auth.CheckpointRead) || !from.Principal.CoversThread(thread) {
			return false, nil
		}
		return true, s.checkFloor(ctx, from, thread)
	}, nil
}

// Threads returns a page of the threads that the token covers, by name. Of the
// query Org is not needed.
func (s *Service) Threads(ctx context.Context, a *Access, q meta.ThreadQuery) ([]meta.Thread, error) {
	q.Org = a.Org.ID
	if a.AllThreads() {
		return s.Checkpoints.Threads(ctx, q)
	}
	name := a.Principal.Thread
	if !strings.HasPrefix(name, q.Prefix) || name <= q.After {
		return nil, nil
	}
	t, err := s.Checkpoints.Thread(ctx, a.Org.ID, name)
	if err != nil || t.Checkpoints == 0 {
		return nil, err
	}
	return []meta.Thread{t}, nil
}

// ThreadError turns an error of package checkpoint into what the outside may see.
func ThreadError(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*checkpoint.Error](err); ok {
		e := &Error{Code: Code(refused.Code), Message: refused.Error(), Err: refused}
		if refused.Code == checkpoint.MissingObjects {
			e.Code, e.status = Code(checkpoint.MissingObject), 409
		}
		return e
	}
	if conflict, ok := errors.AsType[*checkpoint.ConflictError](err); ok {
		switch conflict.Kind {
		case meta.ConflictReplay:
			return &repo.ReplayError{Recorded: *conflict.Replay}
		case meta.ConflictFloor:
			return auth.Superseded()
		case meta.ConflictQuota:
			return &repo.QuotaError{QuotaConflict: *conflict.Quota}
		}
		return err
	}
	if full, ok := errors.AsType[*content.QuotaError](err); ok {
		return &repo.QuotaError{QuotaConflict: full.QuotaConflict}
	}
	switch {
	case errors.Is(err, meta.ErrCorrupt), is[*tree.CorruptError](err):
		return &Error{Code: Internal, Err: err, Message: "what is stored of the checkpoint is damaged: the operator of the server finds out what with `cairn fsck`, and a capture of the same files heals it"}
	case errors.Is(err, content.ErrUpload):
		return &Error{Code: AlreadyExists, Message: "the upload is another one's: take another id at random", Err: err}
	case errors.Is(err, content.ErrAgain), is[*tree.MissingError](err):
		return &Error{Code: Unavailable, Message: "objects went while they were used: send what is missing and try again", Err: err}
	case errors.Is(err, frame.ErrInvalid):
		return &Error{Code: Invalid, Message: "the body is no stream of objects: " + frame.ErrInvalid.Error(), Err: err}
	case errors.Is(err, tree.ErrInvalid):
		return &Error{Code: Code(checkpoint.InvalidObject), Message: err.Error(), Err: err}
	}
	return err
}

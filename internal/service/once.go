package service

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
)

// IdempotencyKey is the name under which the answer to a request with an
// Idempotency-Key is kept: keys of other subjects and of other repositories are
// other keys.
func (a *Access) IdempotencyKey(key string) string {
	sum := sha256.New()
	for _, part := range []string{a.Principal.Repo, a.Principal.Thread, a.Principal.Subject, key} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// Recorded returns the answer that is kept under a name of IdempotencyKey, nil
// when there is none.
func (s *Service) Recorded(ctx context.Context, a *Access, name string) (*meta.Idempotency, error) {
	row, err := s.Meta.Idempotency(ctx, a.Org.ID, name)
	if errors.Is(err, meta.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer to an idempotency key: %w", err)
	}
	return &row, nil
}

// Record keeps the answer to a request that had nothing to change. When there is
// one already the error is a *repo.ReplayError.
func (s *Service) Record(ctx context.Context, a *Access, row *meta.Idempotency) error {
	w := a.Writer("")
	v, err := s.Meta.Apply(ctx, meta.Change{Org: a.Org.ID, Token: w.Token, Idempotency: row})
	switch {
	case err != nil:
		return fmt.Errorf("record the answer to an idempotency key: %w", err)
	case v.Applied:
		return nil
	case v.Conflict.Kind == meta.ConflictReplay:
		return &repo.ReplayError{Recorded: *v.Conflict.Replay}
	case v.Conflict.Kind == meta.ConflictFloor:
		return auth.Superseded()
	}
	return fmt.Errorf("record the answer to an idempotency key: refused: %s", v.Conflict.Kind)
}

// Times of a claim.
const (
	// ClaimFor is how long a claim keeps others from doing the same; whoever made
	// it has ended by then, or died.
	ClaimFor  = 15 * time.Second
	claimPoll = 20 * time.Millisecond
)

// Claim lets one of many requests with an idempotency key do what no Change
// takes back. It returns nil to the one that is to do it and then to record its
// answer; the others wait for that and get it as a *repo.ReplayError. When the
// answer does not come the next one does it again.
func (s *Service) Claim(ctx context.Context, a *Access, name string, request [32]byte) error {
	err := s.Record(ctx, a, &meta.Idempotency{Key: name + " claim", Request: request, Status: 102})
	claim, taken := errors.AsType[*repo.ReplayError](err)
	if !taken {
		return err
	}
	for {
		if claim.Recorded.Request != request {
			return claim // for another request
		}
		row, err := s.Recorded(ctx, a, name)
		if err != nil {
			return err
		}
		if row != nil {
			return &repo.ReplayError{Recorded: *row}
		}
		if time.Since(claim.Recorded.At) > ClaimFor {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(claimPoll):
		}
	}
}

// answerRow names the row that a recorded answer is bound to when it is sealed.
func answerRow(name string) string { return "idempotency/" + name }

// SealAnswer encrypts a recorded answer that holds a secret.
func (s *Service) SealAnswer(name string, answer []byte) ([]byte, error) {
	return s.Secrets.Seal(answerRow(name), answer)
}

// OpenAnswer decrypts what SealAnswer made.
func (s *Service) OpenAnswer(name string, sealed []byte) ([]byte, error) {
	answer, err := s.Secrets.Open(answerRow(name), sealed)
	if err != nil {
		return nil, &Error{Code: Precondition, Message: "the request was answered before and its answer, which holds a secret, cannot be read any more: take a new Idempotency-Key", Err: err}
	}
	return answer, nil
}

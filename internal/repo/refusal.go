package repo

import (
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

// StaleError refuses a change of a ref whose value is not the expected one.
// Current is the value it has, zero when it does not exist.
type StaleError struct {
	Ref     string
	Current object.ID
}

func (e *StaleError) Error() string {
	if e.Current.IsZero() {
		return fmt.Sprintf("ref %q does not exist any more: fetch first", e.Ref)
	}
	return fmt.Sprintf("ref %q is at %s and not where it was expected: fetch first", e.Ref, e.Current)
}

// RefPathError refuses a ref because Ref and Other cannot both exist: one is a
// directory prefix of the other.
type RefPathError struct{ Ref, Other string }

func (e *RefPathError) Error() string {
	return fmt.Sprintf("ref %q cannot exist beside %q: delete or rename one of them", e.Ref, e.Other)
}

// DefaultBranchError refuses to delete or replace the default branch.
type DefaultBranchError struct {
	Branch string // short name
	// Replaced is true when the branch would have been replaced, else deleted.
	Replaced bool
}

func (e *DefaultBranchError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("branch %q is the default branch and cannot be replaced", e.Branch)
	}
	return fmt.Sprintf("branch %q is the default branch and cannot be deleted: make another branch the default first", e.Branch)
}

// SupersededError refuses a token at or below a floor.
type SupersededError struct{}

func (e *SupersededError) Error() string { return "token is superseded: ask for a new one" }

// GoneError says that the repository was deleted or purged meanwhile.
type GoneError struct{ Repo meta.RepoID }

func (e *GoneError) Error() string { return "repository does not exist any more" }

// InvalidError refuses a request that can never succeed as it is.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) *InvalidError {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// NoChangesError refuses a commit whose tree would be its parent's.
type NoChangesError struct{}

func (e *NoChangesError) Error() string { return "no changes to commit" }

// ConflictError says that a ref moved at each of several attempts to build on
// it. The request may be sent again.
type ConflictError struct{ Ref string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("ref %q keeps moving: try again", e.Ref)
}

// ExistsError refuses to create what exists already.
type ExistsError struct {
	What string // for example "branch"
	Name string
	// Deleted is true when the name belongs to a deleted repository.
	Deleted bool
}

func (e *ExistsError) Error() string {
	if e.Deleted {
		return fmt.Sprintf("%s %q was deleted and its name is kept: purge it or take another name", e.What, e.Name)
	}
	return fmt.Sprintf("%s already exists: %s", e.What, e.Name)
}

// DeletedError refuses a change of a repository that is deleted already.
type DeletedError struct{ Name string }

func (e *DeletedError) Error() string { return fmt.Sprintf("repository %q is deleted already", e.Name) }

// ReplayError says that the idempotency key was used before; Recorded is the
// answer that was given then. Nothing was written.
type ReplayError struct{ Recorded meta.Idempotency }

func (e *ReplayError) Error() string {
	return fmt.Sprintf("idempotency key %q was used before", e.Recorded.Key)
}

// NoUpstreamError refuses a sync of a repository that follows no upstream.
type NoUpstreamError struct{}

func (e *NoUpstreamError) Error() string {
	return "the repository follows no upstream: create it with base_repo to have one"
}

// SyncBusyError refuses a sync because many wait for the repository.
type SyncBusyError struct{}

func (e *SyncBusyError) Error() string {
	return "too many syncs of this repository are waiting: try again when they have ended"
}

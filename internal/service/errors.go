package service

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/upstream"
	"github.com/cairnstate/cairn/internal/webhook"
)

// Code is a stable, machine-readable kind of refusal.
type Code string

// The codes of this package. Token refusals carry the codes of package auth.
const (
	Invalid           Code = "invalid"
	Unsupported       Code = "not_available"
	Unauthorized      Code = "unauthorized"
	ScopeMissing      Code = "scope_missing"
	Denied            Code = "denied_by_policy"
	NotFound          Code = "not_found"
	RepositoryMissing Code = "repository_not_found"
	MethodNotAllowed  Code = "method_not_allowed"
	Timeout           Code = "timeout"
	RepositoryDeleted Code = "repository_deleted"
	AlreadyExists     Code = "already_exists"
	Stale             Code = "stale"
	Conflict          Code = "conflict"
	MergeConflict     Code = "merge_conflict"
	DefaultBranch     Code = "default_branch"
	Syncing           Code = "sync_in_progress"
	KeyReused         Code = "idempotency_mismatch"
	EventsPruned      Code = "events_pruned"
	NoChanges         Code = "no_changes"
	Precondition      Code = "precondition_failed"
	TooLarge          Code = "payload_too_large"
	QuotaExceeded     Code = "quota_exceeded"
	Range             Code = "range_not_satisfiable"
	Limited           Code = "rate_limited"
	Unavailable       Code = "unavailable"
	Internal          Code = "internal"
)

// statuses maps each code to its HTTP status; every token code is 401.
var statuses = map[Code]int{
	Invalid:           400,
	Unsupported:       400,
	Unauthorized:      401,
	ScopeMissing:      403,
	Denied:            403,
	NotFound:          404,
	RepositoryMissing: 404,
	MethodNotAllowed:  405,
	Timeout:           408,
	RepositoryDeleted: 409,
	AlreadyExists:     409,
	Stale:             409,
	Conflict:          409,
	MergeConflict:     409,
	DefaultBranch:     409,
	Syncing:           409,
	KeyReused:         409,
	EventsPruned:      410,
	NoChanges:         412,
	Precondition:      412,
	TooLarge:          413,
	Range:             416,
	Limited:           429,
	Internal:          500,
	Unavailable:       503,
	QuotaExceeded:     507,

	Code(checkpoint.StaleHead):          409,
	Code(checkpoint.DuplicateID):        409,
	Code(checkpoint.InvalidID):          400,
	Code(checkpoint.InvalidEntry):       400,
	Code(checkpoint.ParentMismatch):     409,
	Code(checkpoint.NotHead):            409,
	Code(checkpoint.WriterConflict):     409,
	Code(checkpoint.WriterLost):         409,
	Code(checkpoint.MissingCheckpoint):  404,
	Code(checkpoint.ForkSourceNotFound): 404,
	Code(checkpoint.ForkSourceMismatch): 409,
	Code(checkpoint.ForkNotEmpty):       409,
	Code(checkpoint.MissingObject):      404,
	Code(checkpoint.InvalidObject):      400,
	Code(checkpoint.Pinned):             409,
	Code(checkpoint.ThreadMissing):      404,
}

// Error is a refusal or a fault as the outside may see it.
type Error struct {
	Code Code
	// Message is one sentence for people: what, which, and what to do. It never
	// holds a token, a path of the server or another tenant's names.
	Message string
	// Err is the private cause, for the log.
	Err error
	// After is when to try again, of Limited.
	After time.Duration

	status int // that of Code when 0
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Status is the HTTP status of the error.
func (e *Error) Status() int {
	if e.status != 0 {
		return e.status
	}
	if s, ok := statuses[e.Code]; ok {
		return s
	}
	return 401
}

// RetryAfter is for how many seconds a client had better wait.
func (e *Error) RetryAfter() int {
	if e.After > 0 {
		return int((e.After + time.Second - 1) / time.Second)
	}
	return 5
}

// Refuse makes an error of which nothing is private.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Public turns any error into what the outside may see of it. Unknown errors
// become Internal with a message that says nothing.
func Public(err error) *Error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if token, ok := errors.AsType[*auth.TokenError](err); ok {
		return &Error{Code: Code(token.Code), Message: token.Message, Err: err}
	}
	if code, refusal := refused(err); refusal != nil {
		return &Error{Code: code, Message: refusal.Error(), Err: err}
	}
	if key, ok := errors.AsType[*repo.SignerError](err); ok {
		return &Error{Code: Internal, Err: err, Message: fmt.Sprintf("the server cannot sign with its key %s for this org: its operator must replace it (`cairn org signing-key generate`) or let the server sign no more (`cairn org signing-key stop`)", key.Fingerprint)}
	}
	switch {
	case is[*repo.SupersededError](err):
		t := auth.Superseded()
		return &Error{Code: Code(t.Code), Message: t.Message, Err: err}
	case is[*repo.GoneError](err):
		return repositoryMissing()
	case errors.Is(err, object.ErrCollision):
		return &Error{Code: Invalid, Message: "the content is refused: it is part of an attack on SHA-1", Err: err}
	case errors.Is(err, repo.ErrLeaseLost):
		return &Error{Code: Unavailable, Message: "the server lost touch with its database; try again in a few seconds", Err: err}
	case errors.Is(err, syscall.ENOSPC):
		return &Error{Code: Unavailable, Message: "the server has no space left: tell its operator", Err: err}
	case errors.Is(err, meta.ErrUnavailable):
		return &Error{Code: Unavailable, Message: "the server cannot reach its database; try again in a few seconds", Err: err}
	}
	return &Error{Code: Internal, Message: "internal error; the server's log has the cause", Err: err}
}

// refused finds in err a refusal whose text is meant for the client.
func refused(err error) (Code, error) {
	if exists, ok := errors.AsType[*repo.ExistsError](err); ok {
		if exists.Deleted {
			return RepositoryDeleted, exists
		}
		return AlreadyExists, exists
	}
	if full, ok := errors.AsType[*repo.QuotaError](err); ok {
		if full.TooLarge() {
			return TooLarge, full
		}
		return QuotaExceeded, full
	}
	for _, kind := range refusals {
		if e := kind.find(err); e != nil {
			return kind.code, e
		}
	}
	return "", nil
}

// refusals maps the typed refusals of the packages below to codes.
var refusals = []struct {
	code Code
	find func(error) error
}{
	{Denied, find[*policy.DeniedError]},
	{Stale, find[*repo.StaleError]},
	{NotFound, find[*repo.NotFoundError]},
	{Conflict, find[*repo.RefPathError]},
	{Conflict, find[*repo.ConflictError]},
	{MergeConflict, find[*repo.MergeConflictError]},
	{Conflict, find[*repo.NotForwardError]},
	{Conflict, find[*repo.CrashError]},
	{Invalid, find[*repo.UnrelatedError]},
	{TooLarge, find[*repo.LimitError]},
	{TooLarge, find[*repo.BlameLimitError]},
	{Invalid, find[*repo.BlameError]},
	{NotFound, find[*repo.BlameMissingError]},
	{DefaultBranch, find[*repo.DefaultBranchError]},
	{RepositoryDeleted, find[*repo.DeletedError]},
	{RepositoryDeleted, find[*repo.WindowError]},
	{Conflict, find[*repo.NotDeletedError]},
	{NoChanges, find[*repo.NoChangesError]},
	{Precondition, find[*repo.NotRestorableError]},
	{Conflict, find[*repo.PatchConflictError]},
	{Invalid, find[*repo.PatchMalformedError]},
	{Invalid, find[*repo.PatchPathError]},
	{Invalid, find[*repo.InvalidError]},
	{Invalid, find[*object.PathError]},
	{Invalid, find[*webhook.InvalidError]},
	{NotFound, find[*webhook.NotFoundError]},
	{Invalid, find[*policy.PatternError]},
	{Invalid, find[*policy.OpError]},
	{Invalid, find[*repo.NoUpstreamError]},
	{Invalid, find[*upstream.InvalidError]},
	{Invalid, find[*netguard.RefusedError]},
	{Unavailable, find[*repo.SyncBusyError]},
	{EventsPruned, find[*PrunedError]},
}

func find[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

func is[E error](err error) bool { return find[E](err) != nil }

func repositoryMissing() *Error { return Refuse(RepositoryMissing, "repository not found") }

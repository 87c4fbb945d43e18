package checkpoint

import (
	"fmt"

	"github.com/cairnstate/cairn/internal/workspace"
)

// Code says what kind of error one is. A code is an error itself: errors.Is(err, ErrHeadConflict) asks for one, and
// errors.As with a *Code finds the one that err has.
type Code string

// Error returns the code.
func (c Code) Error() string { return string(c) }

// Codes of stores.
const (
	ErrHeadConflict       Code = "SANDBOX_SNAPSHOT_STALE_HEAD"           // the head is another than expected; see HeadConflictError
	ErrDuplicateID        Code = "SANDBOX_SNAPSHOT_DUPLICATE_ID"         // a checkpoint has the id
	ErrInvalidID          Code = "SANDBOX_SNAPSHOT_INVALID_ID"           // an id is empty or not well-formed
	ErrInvalidEntry       Code = "SANDBOX_SNAPSHOT_INVALID_ENTRY"        // a part of the checkpoint is not valid
	ErrParentMismatch     Code = "SANDBOX_SNAPSHOT_PARENT_MISMATCH"      // the parent is not the expected head
	ErrNotHead            Code = "SANDBOX_SNAPSHOT_NOT_HEAD"             // only the head can be deleted so
	ErrWriterConflict     Code = "SANDBOX_SNAPSHOT_WRITER_CONFLICT"      // another writer is at work: skip, or try later
	ErrWriterLost         Code = "SANDBOX_SNAPSHOT_WRITER_LOST"          // the lease expired or another has it
	ErrCheckpointNotFound Code = "SANDBOX_SNAPSHOT_CHECKPOINT_NOT_FOUND" // the head names a checkpoint that is not there
	ErrPinned             Code = "checkpoint_pinned"                     // it is not deleted
	ErrThreadNotFound     Code = "thread_not_found"

	ErrForkSourceNotFound     Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND"
	ErrForkThreadMismatch     Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH"
	ErrForkDestinationInUse   Code = "SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY"
	ErrForkNeedsAnAtomicStore Code = "SANDBOX_SNAPSHOT_ATOMIC_FORK_REQUIRED"
)

// Codes of captures and restores.
const (
	ErrMissingCheckpoint Code = "SANDBOX_SNAPSHOT_MISSING_CHECKPOINT" // there is no checkpoint of that id, or not in the thread
	ErrUnsupportedEntry  Code = "SANDBOX_SNAPSHOT_UNSUPPORTED_ENTRY"  // see UnsupportedEntryError
	ErrMissingBlob       Code = "SANDBOX_SNAPSHOT_MISSING_BLOB"       // see MissingBlobError
	ErrInvalidBlob       Code = "SANDBOX_SNAPSHOT_INVALID_BLOB"       // bytes are not those that their digest names
	ErrInvalidPath       Code = "SANDBOX_SNAPSHOT_INVALID_PATH"       // a path cannot be restored, or lies in the way of one that is spared
	ErrInvalidWorkspace  Code = "SANDBOX_SNAPSHOT_INVALID_WORKSPACE"  // a root is no directory, or changes while it is read

	// ErrNoSpace is returned where what would be restored does not fit; see SpaceError. Nothing was changed.
	ErrNoSpace Code = "SANDBOX_SNAPSHOT_NO_SPACE"
	// ErrIncomplete marks a root in which a restore was interrupted: restore again before a capture.
	ErrIncomplete Code = "SANDBOX_SNAPSHOT_INCOMPLETE_RESTORE"
	// ErrNothingToUndo is returned where no restore is remembered that could be undone.
	ErrNothingToUndo Code = "SANDBOX_SNAPSHOT_NOTHING_TO_UNDO"
)

// Codes of answers that are about the request and not about a checkpoint.
const (
	ErrInvalid     Code = "INVALID_REQUEST"
	ErrDenied      Code = "DENIED"      // the token is not valid, or does not allow it
	ErrNotFound    Code = "NOT_FOUND"   // what was asked for does not exist, or not for this token
	ErrTooLarge    Code = "TOO_LARGE"   // it does not fit into a limit, whatever else is stored
	ErrLimited     Code = "LIMITED"     // a quota or a rate is used up: later
	ErrUnavailable Code = "UNAVAILABLE" // no answer, or none that can be trusted: later
)

// Error is an error with a code.
type Error struct {
	Code    Code
	Message string
	Err     error // the cause, or nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

func errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// HeadConflictError reports that the head of a thread is not the one that the files came from: somebody else has saved
// since. Nothing was appended.
type HeadConflictError struct {
	Thread   string
	Expected string // "" for none
	Head     string // "" for none, or where the store does not say
}

// Error says what to do.
func (e *HeadConflictError) Error() string {
	from := "these files came from no checkpoint of it"
	if e.Expected != "" {
		from = fmt.Sprintf("these files came from %q", e.Expected)
	}
	head := "moved"
	if e.Head != "" {
		head = fmt.Sprintf("is %q", e.Head)
	}
	return fmt.Sprintf("the head of thread %q %s, and %s; restore the head first, or capture onto it on purpose", e.Thread, head, from)
}

// Unwrap returns ErrHeadConflict.
func (e *HeadConflictError) Unwrap() error { return ErrHeadConflict }

// PathReason is a path, which begins with the name of its root, and what became of it.
type PathReason = workspace.PathReason

// ReasonExcluded is the reason of paths that a policy leaves out.
const ReasonExcluded = workspace.ReasonExcluded

// UnsupportedEntryError lists every path that a capture cannot keep: links that leave their root, fifos, sockets, devices,
// and what cannot be read. Nothing was appended.
type UnsupportedEntryError struct {
	Entries  []PathReason
	Total    int      // how many there are: Entries holds the first 10,000
	Excludes []string // a pattern for each of Entries that leaves it out
	err      error
}

// Error names the paths and how to leave them out.
func (e *UnsupportedEntryError) Error() string { return e.err.Error() }

// Unwrap returns ErrUnsupportedEntry.
func (e *UnsupportedEntryError) Unwrap() error { return ErrUnsupportedEntry }

// SpaceError tells how much a restore needs and how much the file system has. The error that a restore returns has the code
// ErrNoSpace and wraps it.
type SpaceError = workspace.SpaceError

// MissingBlobError reports objects that are needed and not there.
type MissingBlobError struct{ Digests []Digest }

// Error names the first of them.
func (e *MissingBlobError) Error() string {
	if len(e.Digests) == 0 {
		return "objects of the checkpoint are missing"
	}
	return fmt.Sprintf("%d objects of the checkpoint are missing, %s is the first", len(e.Digests), e.Digests[0])
}

// Unwrap returns ErrMissingBlob.
func (e *MissingBlobError) Unwrap() error { return ErrMissingBlob }

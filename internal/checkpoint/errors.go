package checkpoint

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Code says why something was refused, in the words of TanStack AI.
type Code string

// The codes.
const (
	StaleHead          Code = "SANDBOX_SNAPSHOT_STALE_HEAD"
	DuplicateID        Code = "SANDBOX_SNAPSHOT_DUPLICATE_ID"
	InvalidID          Code = "SANDBOX_SNAPSHOT_INVALID_ID"
	InvalidEntry       Code = "SANDBOX_SNAPSHOT_INVALID_ENTRY"
	ParentMismatch     Code = "SANDBOX_SNAPSHOT_PARENT_MISMATCH"
	NotHead            Code = "SANDBOX_SNAPSHOT_NOT_HEAD"
	WriterConflict     Code = "SANDBOX_SNAPSHOT_WRITER_CONFLICT"
	WriterLost         Code = "SANDBOX_SNAPSHOT_WRITER_LOST"
	MissingCheckpoint  Code = "SANDBOX_SNAPSHOT_MISSING_CHECKPOINT"
	ForkSourceNotFound Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND"
	ForkSourceMismatch Code = "SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH"
	ForkNotEmpty       Code = "SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY"
	MissingObject      Code = "SANDBOX_SNAPSHOT_MISSING_BLOB" // of a read
	MissingObjects     Code = "missing objects"               // of an append; clients see MissingObject
	InvalidObject      Code = "SANDBOX_SNAPSHOT_INVALID_BLOB"
	Pinned             Code = "checkpoint_pinned"
	ThreadMissing      Code = "thread_not_found"
)

// texts say what each code means and what to do.
var texts = map[Code]string{
	StaleHead:          "the head of the thread is another checkpoint: restore it first, or append onto it knowingly",
	DuplicateID:        "there is a checkpoint with this id already",
	InvalidID:          "an id is empty, too long or not well-formed Unicode",
	InvalidEntry:       "the checkpoint has an entry that cannot be kept",
	ParentMismatch:     "the parent is not the expected head",
	NotHead:            "the checkpoint is not the head of the thread",
	WriterConflict:     "another writer holds the lease of the thread: try again later",
	WriterLost:         "the lease of the thread is not, or no longer, yours: acquire it anew",
	MissingCheckpoint:  "checkpoint not found",
	ForkSourceNotFound: "the checkpoint to fork from is not found",
	ForkSourceMismatch: "the checkpoint to fork from is of another thread",
	ForkNotEmpty:       "the thread to fork into is not empty, or the id of its first checkpoint is taken",
	MissingObject:      "object not found in this thread",
	MissingObjects:     "the checkpoint names objects that were not sent: send those that are missing and append again",
	InvalidObject:      "the bytes are not those that their digest names",
	Pinned:             "the checkpoint is pinned: unpin it first",
	ThreadMissing:      "thread not found",
}

// Error refuses what a caller asked for.
type Error struct {
	Code Code
	// What says more; "" takes what the code means.
	What string
	// Head is the head of the thread, with StaleHead.
	Head string
	// Missing are objects that were not sent, with MissingObjects.
	Missing []tree.Digest
}

func (e *Error) Error() string {
	if e.What != "" {
		return e.What
	}
	return texts[e.Code]
}

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, What: fmt.Sprintf(format, args...)}
}

// codes maps conflicts of a Change.
var codes = map[meta.ConflictKind]Code{
	meta.ConflictWriterHeld:   WriterConflict,
	meta.ConflictWriterLost:   WriterLost,
	meta.ConflictCheckpointID: DuplicateID,
	meta.ConflictHead:         StaleHead,
	meta.ConflictParent:       ParentMismatch,
	meta.ConflictNotHead:      NotHead,
	meta.ConflictNoCheckpoint: MissingCheckpoint,
	meta.ConflictNoThread:     ThreadMissing,
	meta.ConflictPinned:       Pinned,
	meta.ConflictForkSource:   ForkSourceNotFound,
	meta.ConflictForkThread:   ForkSourceMismatch,
	meta.ConflictForkTarget:   ForkNotEmpty,
}

// movedError says that what a Change was decided on has changed: decide again.
type movedError struct{ kind meta.ConflictKind }

func (e *movedError) Error() string { return fmt.Sprintf("the thread changed meanwhile: %s", e.kind) }

// refusal turns a conflict into an error.
func refusal(c *meta.Conflict) error {
	if code, ok := codes[c.Kind]; ok {
		e := &Error{Code: code}
		if code == StaleHead {
			e.Head = c.Other
		}
		return e
	}
	if c.Kind == meta.ConflictThreadMoved || c.Kind == meta.ConflictGeneration {
		return &movedError{c.Kind}
	}
	return &ConflictError{c}
}

// ConflictError is a refusal that does not come from the thread: a floor, a quota,
// a request that was answered before.
type ConflictError struct{ *meta.Conflict }

func (e *ConflictError) Error() string { return fmt.Sprintf("change of a thread refused: %s", e.Kind) }

// Bounds of names in bytes.
const (
	MaxThread = 255
	MaxID     = 255
)

// CheckThread reports whether a thread can have a name.
func CheckThread(name string) error {
	if name == "" || len(name) > MaxThread || !utf8.ValidString(name) || name == AllThreads {
		return refuse(InvalidID, "the name of a thread has 1 to %d bytes of UTF-8, and is not %q", MaxThread, AllThreads)
	}
	return nil
}

// AllThreads stands for every thread in tokens, and names none.
const AllThreads = "*"

// CheckID reports whether a checkpoint can have an id.
func CheckID(id string) error {
	if id == "" || len(id) > MaxID || !utf8.ValidString(id) {
		return refuse(InvalidID, "the id of a checkpoint has 1 to %d bytes of UTF-8", MaxID)
	}
	return nil
}

// is reports whether err is a refusal with a code.
func is(err error, code Code) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Code == code
}

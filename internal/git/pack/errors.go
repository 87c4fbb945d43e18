package pack

import (
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
)

// FormatError is a received pack or index that does not follow the format.
type FormatError struct {
	Offset int64  // where the fault was found, in bytes from the start
	Reason string // what is wrong
}

// Error describes the fault and its place.
func (e *FormatError) Error() string {
	return fmt.Sprintf("pack is malformed at byte %d: %s", e.Offset, e.Reason)
}

// LimitError is a pack or object that is larger than the caller allows.
type LimitError struct {
	What  string // what is limited, with its unit
	Value uint64 // what the pack has or claims
	Limit uint64 // the most that is allowed
}

// Error states what is limited and by how much it is over.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d is over the limit of %d", e.What, e.Value, e.Limit)
}

// MissingBaseError is a delta whose base is neither in the pack nor known to
// the receiver.
type MissingBaseError struct {
	ID object.ID // the base
}

// Error names the base.
func (e *MissingBaseError) Error() string {
	return fmt.Sprintf("delta base %s is missing: it is neither in the pack nor in this repository", e.ID)
}

// CorruptError is a stored pack whose bytes are not what was written.
type CorruptError struct {
	Pack   object.ID // the pack's checksum, as its index states it
	Offset int64     // where the fault was found, in bytes from the start
	Reason string    // what is wrong
}

// Error names the pack and describes the fault.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("stored pack %s is corrupt at byte %d: %s", e.Pack, e.Offset, e.Reason)
}

// IOError is a failure of what a pack is read from or written to, not of the
// pack itself.
type IOError struct {
	Op  string // what was being done
	Err error  // the cause
}

// Error says what was being done and why it failed.
func (e *IOError) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *IOError) Unwrap() error { return e.Err }

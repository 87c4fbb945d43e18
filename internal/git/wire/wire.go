// Package wire speaks Git's upload-pack and receive-pack protocols, versions
// 0, 1 and 2, as state machines over a reader and a writer. It knows nothing of
// HTTP or of storage: what it needs of a repository is stated by [Uploader] and
// [Receiver].
package wire

import (
	"context"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Ref is a ref as a client sees it.
type Ref struct {
	Name string
	ID   object.ID
	// Peeled is what an annotated tag finally points to, else zero.
	Peeled object.ID
	// Symref is the target of a symbolic ref (HEAD), else "". A symbolic ref
	// whose ID is zero is unborn.
	Symref string
}

// Fetch is one parsed request for objects.
type Fetch struct {
	Wants []object.ID
	// Haves are the commits both sides have, filtered by Common.
	Haves []object.ID
	// ClientShallow are the client's shallow boundary: it has these commits but
	// none of their parents. When it is not empty, a have implies nothing beyond
	// the boundary.
	ClientShallow []object.ID
	// Depth > 0 asks for that many commits from the wants. DeepenRelative counts
	// from the client's boundary. DeepenSince (Unix seconds, 0 = none) and
	// DeepenNot (full or short ref names) bound history otherwise.
	Depth          int
	DeepenRelative bool
	DeepenSince    int64
	DeepenNot      []string
	Filter         Filter
	ThinPack       bool
	OfsDelta       bool
	IncludeTag     bool
	NoProgress     bool
}

// Deepens reports whether the request changes the client's shallow boundary.
func (f *Fetch) Deepens() bool {
	return f.Depth > 0 || f.DeepenSince != 0 || len(f.DeepenNot) > 0
}

// Filter leaves objects out that the wants do not name themselves
// (git-rev-list: --filter). The zero Filter leaves nothing out.
type Filter struct {
	// BlobLimit leaves out blobs of at least this many bytes when HasBlobLimit
	// is set; blob:none is a limit of 0.
	HasBlobLimit bool
	BlobLimit    int64
	// TreeDepth leaves out trees and blobs at or below this depth from the root
	// when HasTreeDepth is set; tree:0 leaves out all.
	HasTreeDepth bool
	TreeDepth    int
	// Type keeps only objects of one type when it is not Invalid.
	Type object.Type
}

// ShallowUpdate is the new boundary that a deepening request leads to.
type ShallowUpdate struct {
	Shallow   []object.ID // now a boundary
	Unshallow []object.ID // no longer a boundary
}

// RefusalError is a request that cannot be granted. Reason is one sentence for
// the person at the other end, sent as it is; implementations of [Uploader] and
// [Receiver] return it where the client should know why.
type RefusalError struct {
	Reason string
	Err    error // the cause, for the log, or nil
}

// Error returns the reason, and the cause.
func (e *RefusalError) Error() string {
	if e.Err != nil {
		return e.Reason + ": " + e.Err.Error()
	}
	return e.Reason
}

// Unwrap returns the cause.
func (e *RefusalError) Unwrap() error { return e.Err }

// NotOurRefError says that a want is not reachable from any ref. The answer is
// the same for an object that does not exist.
type NotOurRefError struct{ ID object.ID }

// Error has the words that Git uses.
func (e *NotOurRefError) Error() string { return fmt.Sprintf("not our ref %s", e.ID) }

// Uploader is one repository as one request may read it: an immutable view of
// one remote (normal or ephemeral). It is safe for concurrent use.
type Uploader interface {
	// Refs yields HEAD first (when it exists or is unborn), then the visible refs
	// in byte order, whose names begin with any of the prefixes; no prefixes
	// select all. HEAD is selected by a prefix of "HEAD".
	Refs(ctx context.Context, prefixes []string, yield func(Ref) error) error
	// CheckWants returns *NotOurRefError for the first id that is not reachable
	// from any ref of the repository, whatever its type.
	CheckWants(ctx context.Context, ids []object.ID) error
	// Common returns those of the ids that the repository has and may speak of.
	Common(ctx context.Context, ids []object.ID) ([]object.ID, error)
	// Ready reports whether every want that is a commit reaches a common one, so
	// that more haves cannot help much.
	Ready(ctx context.Context, wants, common []object.ID) (bool, error)
	// Shallow computes the boundary for a request that deepens.
	Shallow(ctx context.Context, f *Fetch) (ShallowUpdate, error)
	// Send writes one pack with what the request lacks. It is called after
	// CheckWants; shallow is Shallow's answer (zero when the request does not
	// deepen). progress, if not nil, takes human text.
	Send(ctx context.Context, w io.Writer, f *Fetch, shallow ShallowUpdate, progress func(string)) error
}

// Command asks to move one ref from Old to New; zero stands for absence.
type Command struct {
	Ref      string
	Old, New object.ID
}

// Push is one parsed request to move refs.
type Push struct {
	Commands []Command
	Atomic   bool
	Options  []string
	// Shallow are the boundary commits of a shallow client's history.
	Shallow []object.ID
}

// RefStatus is the outcome for one command; an empty Error means that the ref
// moved (or already was where it should go).
type RefStatus struct {
	Ref   string
	Error string
}

// PushResult is the outcome of a push.
type PushResult struct {
	// Unpack is empty when the pack was stored, else one sentence.
	Unpack string
	Refs   []RefStatus
	// Messages are lines for the person who pushes ("remote: …").
	Messages []string
}

// Advertisement is what receive-pack tells a client before it pushes.
type Advertisement struct {
	// Refs are those the client may write.
	Refs []Ref
	// Haves are further commits the repository has, for smaller packs.
	Haves []object.ID
}

// Receiver is one repository as one request may write it.
type Receiver interface {
	Advertise(ctx context.Context) (Advertisement, error)
	// Receive stores the pack (nil when no command needs one) and moves the refs.
	// It reads the pack until io.EOF (from then on the client is sent keepalives),
	// or returns early when it is refused; nothing of a refused push stays visible.
	// Errors are faults, not refusals: refusals are in the result.
	Receive(ctx context.Context, p *Push, pack io.Reader) (PushResult, error)
}

package checkpoint

import (
	"context"
	"iter"
	"time"
)

// Store keeps the checkpoints of threads: for each thread a chain, whose newest element is the head, and at most one lease.
//
// A thread exists once it has a checkpoint; another has no head and lists nothing. The ids of checkpoints are unique across
// threads. Checkpoints do not change, and what a caller passes in or gets is not shared with what is stored. Ids and threads
// are valid UTF-8 and not empty, else ErrInvalidID. A write does all of what it says or nothing: its checks and the write
// are one step. A Store may be used at the same time. storetest.Run tests these rules.
type Store interface {
	// Identity names the store: what a root remembers of one store says nothing of another.
	Identity() string

	// Get returns a checkpoint with its conversation, artifacts and files, or ErrMissingCheckpoint.
	Get(ctx context.Context, id string) (*Checkpoint, error)

	// List yields the checkpoints of a thread by CreatedAt, equal ones by the bytes of their ids, without conversation,
	// artifacts and files unless o asks for them. It ends with the first error.
	List(ctx context.Context, thread string, o ListOptions) iter.Seq2[*Checkpoint, error]

	// Head returns the id of the newest checkpoint of a thread, "" if it has none.
	Head(ctx context.Context, thread string) (string, error)

	// Append makes a checkpoint the head. The first check that fails decides:
	//
	//  1. a key that was used for this Append returns what it returned then, without another check;
	//  2. ids are valid (ErrInvalidID); the writer, if there is one, is for the checkpoint's thread (ErrWriterLost);
	//     what the checkpoint holds is valid (ErrInvalidEntry);
	//  3. the lease of the writer is the thread's and has not expired (ErrWriterLost); without a writer nobody has a lease
	//     (ErrWriterConflict), and the append counts as one;
	//  4. no checkpoint has the id (ErrDuplicateID);
	//  5. the head is the expected one (*HeadConflictError);
	//  6. the parent of a checkpoint with Files is the expected head (ErrParentMismatch); of others the store sets it;
	//  7. the objects of the checkpoint are there, where the store can tell (*MissingBlobError).
	//
	// Without Always, a native checkpoint that says nothing new is not appended: the head is returned, Unchanged. It has the
	// root, the conversation and the artifacts of the head, and the label and the Git of the head or none.
	Append(ctx context.Context, a Append) (*Appended, error)

	// DeleteHead takes the head off a thread: its parent, if it is still there, becomes the head. Checks: ids, the writer's
	// thread and lease as for Append, then that id is the head (ErrNotHead).
	DeleteHead(ctx context.Context, thread, id string, w Writer) error

	// Acquire gives the lease of a thread, or ErrWriterConflict at once while another has it. Its fence is higher than that
	// of every lease before, also after release and expiry. A lease is over at the instant it expires.
	Acquire(ctx context.Context, thread string) (*Lease, error)

	// Renew prolongs a lease from now on. It fails with ErrWriterLost when the lease has expired, even if nobody took it.
	Renew(ctx context.Context, w Writer) (*Lease, error)

	// Release ends a lease. That of another, or none, is left as it is, without an error.
	Release(ctx context.Context, w Writer) error
}

// Forker is a Store that starts threads from checkpoints of others.
type Forker interface {
	// ForkFrom makes a thread whose first checkpoint has the files, conversation and artifacts of f.Checkpoint, and the
	// reason ForkRoot; label and run are dropped. The first check that fails decides: ids (ErrInvalidID); the threads differ
	// (ErrForkThreadMismatch); the source exists (ErrForkSourceNotFound) and is of f.Source, if given
	// (ErrForkThreadMismatch); the writer, if given, is of the new thread and current (ErrWriterLost), else nobody has its
	// lease (ErrWriterConflict); the new thread and id are unused (ErrForkDestinationInUse). The source stays as it is.
	ForkFrom(ctx context.Context, f ForkParams) (*Checkpoint, error)
}

// Counter is a Store that counts how many checkpoints use each blob.
type Counter interface {
	// References yields each key that a checkpoint's Files or Artifacts name, with the number of checkpoints that do, by the
	// bytes of the keys. A checkpoint that names a key twice counts once.
	References(ctx context.Context) iter.Seq2[Reference, error]
}

// Reference is a blob key and how many checkpoints use it.
type Reference struct {
	Key   string
	Count int
}

// ListOptions say which checkpoints of a thread are listed, and how.
type ListOptions struct {
	Newest bool   // the newest first
	Label  string // only those with this label
	Whole  bool   // with conversation, artifacts and files
	Limit  int    // at most that many; 0 for all
}

// Append is one checkpoint to be added.
type Append struct {
	Checkpoint   Checkpoint // an empty ID is chosen by the store, and so is a zero CreatedAt
	ExpectedHead string     // "" for a thread without checkpoints
	AnyHead      bool       // whatever the head is; ExpectedHead is not looked at
	Writer       *Writer    // nil: the append takes the lease and gives it back
	Upload       string     // the Scope.Upload under which objects were put
	Key          string     // names this append: repeated, it is done once; "" for none
	Always       bool       // append also what equals the head
}

// Appended is what Append did.
type Appended struct {
	Checkpoint *Checkpoint // without conversation, artifacts and files
	Unchanged  bool        // nothing was appended: Checkpoint is the head, which says the same
}

// Fork names what a checkpoint was forked from.
type Fork struct{ Thread, Checkpoint string }

// ForkParams say what is forked, and where to.
type ForkParams struct {
	Source     string // the thread that Checkpoint must be of; "" does not ask
	Checkpoint string
	Thread     string // the new one
	ID         string // of its first checkpoint; chosen by the store if empty
	CreatedAt  time.Time
	Writer     *Writer // of the new thread
}

// Blobs keeps the objects of checkpoints. It may be used at the same time, and need not be trusted with what it gives: every
// object is checked against its digest.
type Blobs interface {
	// Missing returns those of digests, in their order, that have to be put before a checkpoint may name them.
	Missing(ctx context.Context, at Scope, digests []Digest) ([]Digest, error)

	// Put keeps objects. When it returns nil they outlive a crash, and stay at least until the upload of at is over and
	// as long as a checkpoint needs them. Their bytes are valid during the call only. Putting what is there is no error.
	Put(ctx context.Context, at Scope, objects []Object) error

	// Fetch calls fn for each of digests, in any order but not at the same time; b is valid during the call only. Digests
	// that it does not have end in a *MissingBlobError, before or after others were given. An error of fn ends it and is
	// returned.
	Fetch(ctx context.Context, at Scope, digests []Digest, fn func(d Digest, b []byte) error) error
}

// Scope says on whose behalf objects are asked for. Blobs without tenants may ignore it.
type Scope struct {
	Thread string
	Upload string // names the running capture; "" outside of one
}

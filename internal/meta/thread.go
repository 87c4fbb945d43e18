package meta

import (
	"context"
	"time"
)

// ThreadID identifies a thread, as NewID makes it.
type ThreadID int64

// MaxLabel bounds the label of a checkpoint in bytes.
const MaxLabel = 4096

// Thread is a line of checkpoints. A lease of a thread without checkpoints makes
// its row too.
type Thread struct {
	ID   ThreadID
	Org  OrgID
	Name string
	// Head is the id of its newest checkpoint, "" for none.
	Head        string
	Checkpoints int64
	// Bytes are those of the objects that its segments name.
	Bytes int64
	// Fence is that of the last lease; it only grows, also after a deletion.
	Fence int64
	// LeaseUntil is when the last lease ends; zero when it was given back.
	LeaseUntil time.Time
	// Version grows with every Change of its checkpoints, pins or segments.
	Version int64
	// Dirty says that a checkpoint was deleted after the segments were made, or that
	// they do not name all that its checkpoints reach.
	Dirty bool
	// Known is the generation of the content at which the segments were made; less
	// than zero when they have to be made anew.
	Known     int64
	CreatedAt time.Time
	UpdatedAt time.Time // of the last Change of its checkpoints
}

// Checkpoint is one checkpoint of a thread. Nothing but Pinned changes.
type Checkpoint struct {
	Org    OrgID
	ID     string // unique in the org
	Thread string // name
	// Seq counts the checkpoints of the thread, deleted ones too.
	Seq    int64
	Parent string // "" for none
	// Created is the time that it says, in milliseconds since 1970; any finite
	// number.
	Created float64
	Label   string
	Pinned  bool
	// Added are the bytes of objects that the thread did not know before.
	Added int64
	// Manifest says that it is one that was given as a list of files.
	Manifest bool
	// Body is all else, in the caller's format.
	Body      []byte
	WrittenAt time.Time // set by the engine
}

// Segment is a set of keys of objects that a thread knows, in the caller's
// format: as bytes, or kept elsewhere under what Ref says.
type Segment struct {
	ID   int64
	Keys int64
	Data []byte
	Ref  []byte
}

// ThreadChange is the part of a Change that concerns a thread. It stands in a
// Change of the org. Preconditions are checked in the order in which they stand
// here.
type ThreadChange struct {
	Name string

	// ForkOf is the checkpoint that Append was copied from: ConflictForkSource when
	// it is gone, ConflictForkThread when it is of another thread than the one named,
	// if one is. Afterwards the thread must have no checkpoint, and the id of
	// Append be free, else ConflictForkTarget.
	ForkOf *ForkSource

	// Writer must hold the lease, else ConflictWriterLost.
	Writer *ThreadWriter
	// Unheld asks that nobody does, else ConflictWriterHeld. With Append the fence
	// grows, as if the lease were taken and given back.
	Unheld bool
	// Acquire takes the lease: ConflictWriterHeld when somebody else has it. Its owner
	// keeps the fence and gets the time anew.
	Acquire *AcquireLease
	// Renew lets the lease of Writer end this long from now.
	Renew time.Duration
	// Release gives the lease of Writer back. It does nothing, and is no conflict,
	// when Writer does not hold it.
	Release bool

	// Append adds a checkpoint: ConflictCheckpointID when the org has one with this
	// id, ConflictHead when the head is not Expected (unless AnyHead is set),
	// ConflictParent when Parent is not the head, ConflictQuota when the thread would
	// know more bytes than the org allows. With AnyHead the parent is the head,
	// whatever Parent says.
	Append   *Checkpoint
	Expected string // "" for none
	AnyHead  bool

	// DeleteHead removes the head: ConflictNotHead when that is another one.
	DeleteHead string
	// Delete removes one checkpoint: ConflictNoCheckpoint when the thread does not
	// have it. ConflictPinned refuses both for a pinned one.
	Delete string
	// Prune removes those that the thread has and that are neither its head nor
	// pinned.
	Prune []string
	// DeleteThread removes all checkpoints, pinned ones too: ConflictNoThread when
	// there is none.
	DeleteThread bool
	// SetPinned pins a checkpoint, or ends that: ConflictNoCheckpoint as above.
	SetPinned *PinChange

	// Segments changes what the thread knows: ConflictThreadMoved when its version is not
	// AtVersion any more.
	Segments *SegmentChange
}

// LargeBlob says which recipe makes the bytes with a SHA-256.
type LargeBlob struct {
	Sum, Recipe [32]byte
	Size        int64
	PutAt       time.Time // set by the engine
}

// ForkSource is a checkpoint and the thread that it is expected in; "" for any.
type ForkSource struct{ ID, Thread string }

// ThreadWriter is who writes to a thread.
type ThreadWriter struct {
	Owner []byte
	Fence int64
}

// AcquireLease asks for a lease.
type AcquireLease struct {
	Owner    []byte
	Duration time.Duration
}

// PinChange says whether a checkpoint is pinned.
type PinChange struct {
	ID     string
	Pinned bool
}

// SegmentChange replaces segments.
type SegmentChange struct {
	AtVersion int64
	Remove    []int64
	Add       []Segment
	// Known and Bytes are set when Anew is: the segments are then all that the
	// thread's checkpoints reach.
	Anew         bool
	Known, Bytes int64
}

// The reasons for which a ThreadChange is refused.
const (
	ConflictWriterHeld   ConflictKind = "writer held"
	ConflictWriterLost   ConflictKind = "writer lost"
	ConflictCheckpointID ConflictKind = "checkpoint id"
	ConflictHead         ConflictKind = "head" // Other is the head
	ConflictParent       ConflictKind = "parent"
	ConflictNotHead      ConflictKind = "not head"
	ConflictNoCheckpoint ConflictKind = "no checkpoint"
	ConflictNoThread     ConflictKind = "no thread"
	ConflictPinned       ConflictKind = "pinned"
	ConflictForkSource   ConflictKind = "fork source"
	ConflictForkThread   ConflictKind = "fork thread"
	ConflictForkTarget   ConflictKind = "fork target"
	ConflictThreadMoved  ConflictKind = "thread" // its version is another one
)

// ThreadVerdict says more of a ThreadChange that was applied.
type ThreadVerdict struct {
	// Thread is the thread after the Change.
	Thread Thread
	// Seq is that of an appended checkpoint, Parent its parent.
	Seq    int64
	Parent string
	// Deleted are the ids of removed checkpoints, the oldest first; of a
	// DeleteThread only their number counts and is in DeletedCount.
	Deleted      []string
	DeletedCount int64
}

// ThreadQuery selects threads with checkpoints in byte order of their names.
type ThreadQuery struct {
	Org    OrgID
	Prefix string
	After  string // names that sort after it
	Limit  int
}

// CheckpointQuery selects checkpoints of a thread by (Created, ID).
type CheckpointQuery struct {
	Org    OrgID
	Thread string
	// Descending begins with the largest.
	Descending bool
	// Started says that AfterCreated and AfterID are the position of the last one of
	// the page before.
	Started      bool
	AfterCreated float64
	AfterID      string
	// Label selects those with a label; nil selects all.
	Label *string
	Limit int
}

// PruneQuery selects what a rule of retention covers.
type PruneQuery struct {
	Org    OrgID
	Thread string
	// Keep are how many of the newest by Seq are not selected.
	Keep int64
	// Before selects those written before; zero selects all.
	Before time.Time
	Label  *string
	Limit  int
}

// Threads reads threads and checkpoints.
type Threads interface {
	// Thread returns a thread by name, or ErrNotFound.
	Thread(ctx context.Context, org OrgID, name string) (Thread, error)
	// ListThreads returns threads that have checkpoints.
	ListThreads(ctx context.Context, q ThreadQuery) ([]Thread, error)
	// Checkpoint returns a checkpoint by id, or ErrNotFound.
	Checkpoint(ctx context.Context, org OrgID, id string) (Checkpoint, error)
	// LargeBlobs returns those of an org whose sums are among the given ones, in no
	// order.
	LargeBlobs(ctx context.Context, org OrgID, sums [][32]byte) ([]LargeBlob, error)
	// ListLargeBlobs returns up to limit of them in order of their sums, those after the
	// given one.
	ListLargeBlobs(ctx context.Context, org OrgID, after [32]byte, limit int) ([]LargeBlob, error)
	// Checkpoints returns a page of checkpoints.
	Checkpoints(ctx context.Context, q CheckpointQuery) ([]Checkpoint, error)
	// AllCheckpoints returns up to limit checkpoints of an org in byte order of their
	// ids, those after the given one.
	AllCheckpoints(ctx context.Context, org OrgID, after string, limit int) ([]Checkpoint, error)
	// NewestCheckpoint returns the id of the last checkpoint that a thread got, of
	// those that it has, one left out; "" when there is none.
	NewestCheckpoint(ctx context.Context, org OrgID, thread, except string) (string, error)
	// Prunable returns what a rule covers, neither head nor pinned, the oldest first.
	Prunable(ctx context.Context, q PruneQuery) ([]Checkpoint, error)
	// Segments returns a thread with its segments, the largest first, in one
	// consistent read; ErrNotFound when there is no thread.
	Segments(ctx context.Context, org OrgID, thread string) (Thread, []Segment, error)
	// LiveCheckpoints calls yield with the Body of every checkpoint of an org, and with
	// the Ref of every segment that has one, all at one moment after the call began.
	LiveCheckpoints(ctx context.Context, org OrgID, yield func(body, segment []byte) error) error
}

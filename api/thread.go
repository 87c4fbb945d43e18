package api

// Thread is a line of checkpoints.
type Thread struct {
	Name string `json:"name"`
	// Head is the id of its newest checkpoint, absent for none.
	Head        string `json:"head,omitempty"`
	Checkpoints int64  `json:"checkpoints"`
	// Bytes are those of the objects that it knows, each once. After deletions they are
	// counted anew when the thread is next found full, or appended to after a sweep.
	Bytes int64 `json:"bytes"`
	// CreatedAt is absent for a thread that nothing was written to.
	CreatedAt string `json:"created_at,omitempty"`
	UpdatedAt string `json:"updated_at,omitempty"`
	// Busy says that a writer holds its lease.
	Busy bool `json:"busy"`
}

// GetThread asks for a thread. One without checkpoints has no head.
type GetThread struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
}

// ListThreads asks for the threads that the token covers, in byte order of
// their names.
type ListThreads struct {
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 1000, 100 when absent
	// Prefix narrows it to names that begin with it.
	Prefix string `query:"prefix"`
}

// ThreadPage is a page of threads.
type ThreadPage struct {
	Threads    []Thread `json:"threads"`
	NextCursor string   `json:"next_cursor,omitempty"`
	HasMore    bool     `json:"has_more"`
}

// DeleteThread deletes a thread with all its checkpoints, pinned ones too.
type DeleteThread struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Lease is the lease that the writer holds; without one no other may hold it.
	Lease *Writer `json:"lease,omitempty"`
}

// DeletedThread is the answer to the deletion of a thread.
type DeletedThread struct {
	Thread      string `json:"thread"`
	Checkpoints int64  `json:"checkpoints"` // that were deleted
}

// AcquireLease takes the lease of a thread, or is refused at once when another
// writer holds it.
type AcquireLease struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// DurationMS is 1000 to 3600000, 120000 when absent.
	DurationMS int64 `json:"duration_ms,omitempty"`
}

// RenewLease extends a lease from now on. One that has ended cannot be renewed.
type RenewLease struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread     string `path:"thread" json:"-"`
	OwnerToken string `json:"owner_token"`
	Fence      int64  `json:"fence"`
	// DurationMS is as in AcquireLease.
	DurationMS int64 `json:"duration_ms,omitempty"`
}

// ReleaseLease gives a lease back. One that has ended, or that another writer
// took over, is left alone.
type ReleaseLease struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread     string `path:"thread" json:"-"`
	OwnerToken string `json:"owner_token"`
	Fence      int64  `json:"fence"`
}

// Lease lets its holder write to a thread. Times are by the clock of the server:
// clients count from when the answer arrived.
type Lease struct {
	ThreadID   string `json:"thread_id"`
	OwnerToken string `json:"owner_token"`
	// Fence grows with every lease of the thread.
	Fence int64 `json:"fence"`
	// ExpiresAt is when the lease ends, in milliseconds since 1970.
	ExpiresAt int64 `json:"expires_at"`
	// RenewAfterMS is when its holder had better renew it.
	RenewAfterMS int64 `json:"renew_after_ms"`
}

// ReleasedLease is the answer to a release.
type ReleasedLease struct {
	ThreadID string `json:"thread_id"`
}

// PruneThread deletes checkpoints that no rule keeps: the head and pinned ones
// always stay. A checkpoint goes when it is not among the KeepLast newest, and
// is older than OlderThanSeconds, and has the label, as far as those are given;
// one of them has to be, and a Label that is "" is not enough.
type PruneThread struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// KeepLast counts the head and pinned ones too.
	KeepLast         *int64 `json:"keep_last,omitempty"`
	OlderThanSeconds *int64 `json:"older_than_seconds,omitempty"`
	// Label is the label of those to delete; "" those without one.
	Label *string `json:"label,omitempty"`
	// DryRun deletes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// PrunedThread says what was, or would be, deleted.
type PrunedThread struct {
	// Deleted are ids, the oldest first.
	Deleted []string `json:"deleted"`
	Kept    int64    `json:"kept"`
	DryRun  bool     `json:"dry_run"`
	// HasMore says that there was more to delete than one request does.
	HasMore bool `json:"has_more"`
}

// ListReferences asks for the keys that checkpoints of kind manifest name, in
// byte order, with the number of checkpoints that name each.
type ListReferences struct {
	// Thread narrows it to one thread; a token for every thread may leave it out.
	Thread string `query:"thread"`
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 10000, 1000 when absent
}

// ReferencePage is a page of keys.
type ReferencePage struct {
	References []BlobReference `json:"references"`
	NextCursor string          `json:"next_cursor,omitempty"`
	HasMore    bool            `json:"has_more"`
}

// BlobReference is a key with the number of checkpoints that name it.
type BlobReference struct {
	Key        string `json:"key"`
	References int64  `json:"references"`
}

// ObjectsType is the media type of a stream of objects. Each is a frame: the
// SHA-256 of its bytes (32 bytes), its kind (1 byte: 1 chunk, 2 recipe, 3 dir, 4
// index, 5 root), its encoding (1 byte: 0 raw, 1 zstd), the length of its bytes
// and the length of what follows (both uvarint), and its bytes so encoded.
const ObjectsType = "application/vnd.cairn.objects"

// MissingObjects asks which objects have to be sent before a checkpoint that
// names them can be appended: all that the thread does not know and the upload
// does not hold, whoever else has them.
type MissingObjects struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Digests are at most 100,000 of 64 lower-case hexadecimal digits.
	Digests []string `json:"digests"`
	Upload  string   `json:"upload,omitempty"`
}

// MissingList is those of the digests that have to be sent, in the order asked.
type MissingList struct {
	Missing []string `json:"missing"`
}

// PutObjects sends objects, as a stream of frames (see ObjectsType). They are
// kept while the upload lasts: until a checkpoint names them, or a time after
// the last request for the upload.
type PutObjects struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Upload is a name of 1 to 64 letters, digits, '-' and '_' that the client takes
	// at random. It belongs to the thread.
	Upload string `query:"upload"`
}

// StoredObjects is the answer when objects are durable.
type StoredObjects struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"` // of the objects, decoded
}

// GetObjects asks for objects that the thread knows; they come as a stream of
// frames in any order.
type GetObjects struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Digests are at most 100,000 of 64 lower-case hexadecimal digits.
	Digests []string `json:"digests"`
	Upload  string   `json:"upload,omitempty"`
	// Check has the server compare the bytes with their digests, and look for another copy where they differ. Without it
	// the client does, and asks again.
	Check bool `json:"check,omitempty"`
	// Compress has the server compress what it answers, in its own way whatever a client sent: worth it where the network is
	// slower than a processor. Without it the bytes come as they are.
	Compress bool `json:"compress,omitempty"`
}

// Blob asks for the bytes with a SHA-256, or puts them.
type Blob struct {
	// Digest is 64 lower-case hexadecimal digits.
	Digest string `path:"digest" json:"-"`
	// Thread is the thread that knows them, or is to know them; needed only with a
	// token for every thread.
	Thread string `query:"thread"`
	// Upload keeps what is put while it lasts, as in PutObjects; one of the thread
	// does when absent.
	Upload string `query:"upload"`
}

// StoredBlob is the answer when a blob is durable.
type StoredBlob struct {
	Key  string `json:"key"` // sandbox-files/sha256/… or sandbox-artifacts/sha256/…
	Size int64  `json:"size"`
}

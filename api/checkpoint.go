package api

import "encoding/json"

// Checkpoint is one state of a workspace, kept for ever or until it is deleted.
// It never changes, except that it may be pinned.
type Checkpoint struct {
	ID     string `json:"id"` // unique in the org
	Thread string `json:"thread"`
	// Parent is the checkpoint that was the head before, absent for the first of
	// its thread. It keeps its id when it is deleted.
	Parent string `json:"parent,omitempty"`
	// CreatedAt is by the clock of the server unless whoever appended it said
	// otherwise; absent where CreatedAtMS is no time of the years 1 to 9999.
	CreatedAt string `json:"created_at,omitempty"`
	// CreatedAtMS is the same in milliseconds since 1970, as it was given.
	CreatedAtMS float64 `json:"created_at_ms"`
	// Reason is automatic, named or fork-root; in a manifest what was given.
	Reason string `json:"reason"`
	Label  string `json:"label,omitempty"`
	Run    string `json:"run,omitempty"` // the run that made it
	// Kind is native, with a root, or manifest, for one that was given as a list of
	// files.
	Kind string `json:"kind"`
	// Root is the digest of the root object of a native checkpoint.
	Root   string          `json:"root,omitempty"`
	Stats  CheckpointStats `json:"stats"`
	Pinned bool            `json:"pinned"`
	// Git is where the workspace came from, when it was told.
	Git *GitOrigin `json:"git,omitempty"`
	// Source is the checkpoint that this one was forked from.
	Source *ForkSource `json:"source,omitempty"`
	// ExternalBlobs says that the bytes of its files are kept by the application.
	ExternalBlobs bool `json:"external_blobs,omitempty"`
	// Manifest is the checkpoint as it was given, with its files, conversation and
	// artifacts; of kind manifest only, and only when it was asked for.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	// Conversation and Artifacts are lists that were given with a native
	// checkpoint; only when they were asked for.
	Conversation json.RawMessage `json:"conversation,omitempty"`
	Artifacts    json.RawMessage `json:"artifacts,omitempty"`
}

// CheckpointStats count what a checkpoint holds.
type CheckpointStats struct {
	Entries int64 `json:"entries"`
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"` // of the contents of all files
	// Added are the bytes of objects that its thread did not know before.
	Added int64 `json:"added"`
}

// GitOrigin is where a workspace came from, or what a checkpoint was made of.
type GitOrigin struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// ForkSource is the checkpoint that another one was forked from.
type ForkSource struct {
	Checkpoint string `json:"checkpoint"`
	// Thread is absent where the token does not cover it.
	Thread string `json:"thread,omitempty"`
}

// SnapshotRefusal says more of why a checkpoint was refused.
type SnapshotRefusal struct {
	// Missing are digests that the checkpoint names and that have to be sent, as
	// far as the server has looked.
	Missing []string `json:"missing,omitempty"`
	// Head is the thread's newest checkpoint where it is not the expected one,
	// absent for none.
	Head string `json:"head,omitempty"`
}

// Writer proves that the sender holds the lease of the thread.
type Writer struct {
	OwnerToken string `json:"owner_token"`
	Fence      int64  `json:"fence"`
}

// AppendCheckpoint appends a checkpoint whose objects the thread knows or the
// upload holds. ExpectedHead is required, unless Onto says "head".
type AppendCheckpoint struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	ID     string `json:"id,omitempty"` // the server makes one when absent
	Root   string `json:"root"`         // digest of the root object
	Upload string `json:"upload,omitempty"`
	// ExpectedHead is the id of the checkpoint that the workspace came from, null
	// for none: the thread has to be without checkpoints.
	ExpectedHead json.RawMessage `json:"expected_head,omitempty"`
	// Onto is "head" to append to whatever the head is.
	Onto string `json:"onto,omitempty"`
	// Lease is the lease that the writer holds. Without one it is taken, checked and
	// given back in the same step.
	Lease *Writer `json:"lease,omitempty"`
	Label string  `json:"label,omitempty"`
	// Reason is automatic or named; named when absent and there is a label.
	Reason string `json:"reason,omitempty"`
	Run    string `json:"run,omitempty"`
	// Conversation and Artifacts are lists, kept as they are.
	Conversation json.RawMessage `json:"conversation,omitempty"`
	Artifacts    json.RawMessage `json:"artifacts,omitempty"`
	Git          *GitOrigin      `json:"git,omitempty"`
	// CreatedAt is RFC 3339; the time of the server when absent.
	CreatedAt string `json:"created_at,omitempty"`
	// Always appends also where root, conversation and artifacts are those of the
	// head, and label and git are too or absent; otherwise that appends nothing.
	Always bool `json:"always,omitempty"`
}

// AppendedCheckpoint is the answer to an append.
type AppendedCheckpoint struct {
	Checkpoint Checkpoint `json:"checkpoint"`
	Head       string     `json:"head"` // id of the thread's newest checkpoint
	// Unchanged says that nothing was appended: Checkpoint is the head, which has
	// the same files.
	Unchanged bool `json:"unchanged"`
}

// AppendManifest appends a checkpoint in the form of TanStack AI.
type AppendManifest struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Checkpoint has id, threadId, parentCheckpointId, createdAt, reason, files,
	// conversation, artifacts and what else the application keeps there.
	Checkpoint json.RawMessage `json:"checkpoint"`
	// ExpectedHeadID is an id, or null for a thread without checkpoints.
	ExpectedHeadID json.RawMessage `json:"expectedHeadId"`
	// Writer holds the lease. Without one it is taken, checked and given back in the
	// same step.
	Writer *ManifestWriter `json:"writer,omitempty"`
	// ExternalBlobs says that the application keeps the bytes of the files
	// elsewhere: nothing is checked of them, and nothing can be read here.
	ExternalBlobs bool `json:"external_blobs,omitempty"`
	// Upload names the upload under which blobs of it were put, if any.
	Upload string `json:"upload,omitempty"`
}

// ManifestWriter is the lease in the form of TanStack AI.
type ManifestWriter struct {
	ThreadID   string `json:"threadId"`
	OwnerToken string `json:"ownerToken"`
	Fence      int64  `json:"fence"`
}

// ListCheckpoints asks for checkpoints of a thread by time of creation, those of
// one time by the bytes of their ids.
type ListCheckpoints struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	Order  string `query:"order"` // asc, or desc, which is the default
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 1000, 100 when absent; with manifests at most 100
	// Label narrows it to those with this label.
	Label string `query:"label"`
	// Manifests adds manifest, conversation and artifacts to each.
	Manifests bool `query:"manifests"`
}

// CheckpointPage is a page of the checkpoints of a thread.
type CheckpointPage struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	// Head is the id of the thread's newest checkpoint, absent for none.
	Head       string `json:"head,omitempty"`
	NextCursor string `json:"next_cursor,omitempty"`
	HasMore    bool   `json:"has_more"`
}

// GetCheckpoint asks for one checkpoint.
type GetCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
	// Manifests adds manifest, conversation and artifacts.
	Manifests bool `query:"manifests"`
}

// ListEntries asks for a page of the files of a checkpoint in order of their
// paths, name by name.
type ListEntries struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID     string `path:"checkpoint" json:"-"`
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 10000, 1000 when absent
	// Path is a directory; only what lies beneath it is listed. A path begins with
	// the name of a root.
	Path string `query:"path"`
}

// EntryPage is a page of the files of a checkpoint.
type EntryPage struct {
	// Roots are the named roots of the checkpoint.
	Roots      []string `json:"roots"`
	Entries    []Entry  `json:"entries"`
	NextCursor string   `json:"next_cursor,omitempty"`
	HasMore    bool     `json:"has_more"`
}

// Entry is a file, directory or symbolic link of a checkpoint.
type Entry struct {
	// Path begins with the name of the root. Bytes that are not UTF-8 are replaced.
	Path string `json:"path"`
	// RawPath is the path where Path had to replace bytes.
	RawPath []byte `json:"raw_path,omitempty"`
	Type    string `json:"type"` // file, directory or symlink
	Mode    int    `json:"mode"` // 12 bits
	Mtime   string `json:"mtime,omitempty"`
	UID     int64  `json:"uid"`
	GID     int64  `json:"gid"`
	Size    int64  `json:"size"` // of a file, and of all files in a directory
	// Digest is that of the file's chunk or recipe, or of the directory object.
	Digest string `json:"digest,omitempty"`
	// Chunked says that Digest names a recipe, or the index of a large directory.
	Chunked bool `json:"chunked,omitempty"`
	// SHA256 is that of the whole content of a file, as it is kept.
	SHA256 string `json:"sha256,omitempty"`
	// Target is what a link says; RawTarget where that is not UTF-8.
	Target    string `json:"target,omitempty"`
	RawTarget []byte `json:"raw_target,omitempty"`
	// Redacted are the names of secrets whose bytes are zeros in the file.
	Redacted []string `json:"redacted,omitempty"`
	// Sparse says that the file has holes, Mixed that it changed while it was read.
	Sparse bool `json:"sparse,omitempty"`
	Mixed  bool `json:"mixed,omitempty"`
	// Xattrs are extended attributes by name.
	Xattrs map[string][]byte `json:"xattrs,omitempty"`
	// Deep says that the path of a directory has more than 4,096 bytes: what lies beneath
	// it is not listed.
	Deep bool `json:"deep,omitempty"`
}

// GetCheckpointFile asks for the content of a file of a checkpoint, or a range.
type GetCheckpointFile struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
	// Path is that of the file, with the name of its root.
	Path string `path:"path" json:"-"`
}

// DiffCheckpoint asks what differs from another checkpoint to this one.
type DiffCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
	// Base is the id of the other one; the parent when absent, and nothing for a
	// checkpoint without one. Where one of the two is a manifest, files, links and empty
	// directories are compared by what they hold.
	Base string `query:"base"`
	// Root is the root of a native checkpoint that a manifest is compared with;
	// "workspace", or the only one, when absent.
	Root   string `query:"root"`
	Cursor string `query:"cursor"`
	Limit  int    `query:"limit"` // 1 to 10000, 1000 when absent
}

// CheckpointDiff is a page of what differs between two checkpoints.
type CheckpointDiff struct {
	// Base is absent when the checkpoint is compared with nothing.
	Base       string             `json:"base,omitempty"`
	Changes    []CheckpointChange `json:"changes"`
	NextCursor string             `json:"next_cursor,omitempty"`
	HasMore    bool               `json:"has_more"`
}

// CheckpointChange is one path that differs. A directory that was added or
// removed is one change, with nothing for what lies beneath it.
type CheckpointChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, removed or modified
	// Old and New are the entry before and after.
	Old *Entry `json:"old,omitempty"`
	New *Entry `json:"new,omitempty"`
}

// ArchiveCheckpoint asks for the files of a checkpoint in one archive.
type ArchiveCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID     string `path:"checkpoint" json:"-"`
	Format string `query:"format"` // tar, tar.gz or tar.zst; tar.gz when absent
	// Path is a file or directory; only that is sent.
	Path string `query:"path"`
}

// ForkCheckpoint begins a thread with the files of a checkpoint.
type ForkCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID     string `path:"checkpoint" json:"-"`
	Thread string `json:"thread"`       // the new thread; it must be empty
	NewID  string `json:"id,omitempty"` // of its first checkpoint
	// SourceThread is the thread that the checkpoint is expected to belong to; "" for
	// whichever it is.
	SourceThread string `json:"source_thread,omitempty"`
	// CreatedAtMS is in milliseconds since 1970; the time of the server when
	// absent.
	CreatedAtMS json.RawMessage `json:"created_at_ms,omitempty"`
	// Writer holds the lease of the new thread. Without one it is taken and given
	// back in the same step.
	Writer *Writer `json:"writer,omitempty"`
	// SourceToken grants checkpoint:read on the source, where the token of the
	// request covers the new thread alone.
	SourceToken string `json:"source_token,omitempty"`
}

// PinCheckpoint keeps a checkpoint from retention and deletion, or ends that.
type PinCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
}

// DeleteCheckpoint deletes a checkpoint, in whichever place of its thread it is.
// When it was the head, the newest one that is left becomes the head.
type DeleteCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
	// Lease is the lease that the writer holds. Without one no other may hold it
	// when the checkpoint is the head.
	Lease *Writer `json:"lease,omitempty"`
}

// DeletedCheckpoint is the answer to a deletion.
type DeletedCheckpoint struct {
	ID string `json:"id"`
	// Head is the head of the thread afterwards, absent for none.
	Head string `json:"head,omitempty"`
}

// DeleteHead deletes the newest checkpoint of a thread by the rules of TanStack
// AI: the lease is required, and its parent becomes the head.
type DeleteHead struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread       string         `path:"thread" json:"-"`
	CheckpointID string         `json:"checkpointId"`
	Writer       ManifestWriter `json:"writer"`
}

// PromoteCheckpoint makes a commit of the files of a checkpoint.
type PromoteCheckpoint struct {
	// ID is the id of the checkpoint, as one escaped segment.
	ID string `path:"checkpoint" json:"-"`
	// Repo is the repository; the token has to be made for it and grant git:write.
	Repo      string `json:"repo"`
	Branch    string `json:"branch"`
	Ephemeral bool   `json:"ephemeral,omitempty"` // the branch is in the ephemeral namespace
	// Base is where a branch begins that does not exist; the default branch when
	// absent.
	Base string `json:"base,omitempty"`
	// Root is the name of the root to commit; it may be absent where there is one.
	Root    string    `json:"root,omitempty"`
	Message string    `json:"message,omitempty"`
	Author  *Identity `json:"author,omitempty"`
	// ExpectedHead is the commit that the branch is expected to be at. Forty zeros:
	// it must not exist.
	ExpectedHead string `json:"expected_head,omitempty"`
}

// PromotedCheckpoint is the answer when a checkpoint became a commit.
type PromotedCheckpoint struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	Tree   string `json:"tree"`
	// Skipped are paths that Git cannot hold: empty directories, for example, are
	// not among them.
	Skipped []string `json:"skipped"`
}

// ThreadFromCommit appends the files of a commit to a thread.
type ThreadFromCommit struct {
	// Thread is the name of the thread, as one escaped segment.
	Thread string `path:"thread" json:"-"`
	// Repo is the repository; the token has to be made for it and grant git:read.
	Repo      string `json:"repo"`
	Ref       string `json:"ref"` // a branch, tag, commit or revision
	Ephemeral bool   `json:"ephemeral,omitempty"`
	Root      string `json:"root,omitempty"` // the name of the root; workspace when absent
	// ID, ExpectedHead, Onto, Lease and Label are as in AppendCheckpoint.
	ID           string          `json:"id,omitempty"`
	ExpectedHead json.RawMessage `json:"expected_head,omitempty"`
	Onto         string          `json:"onto,omitempty"`
	Lease        *Writer         `json:"lease,omitempty"`
	Label        string          `json:"label,omitempty"`
}

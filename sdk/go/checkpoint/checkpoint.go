// Package checkpoint saves the files of a sandbox at any time and restores them in any other. Capture and Restore work over
// a Handle, which a provider of sandboxes gives, or directly over local directories. What is saved is one chain of
// checkpoints for each thread, in a Store, and their bytes, in Blobs: those of a Cairn server (see Remote), those in memory
// (see Memory), or the caller's own.
package checkpoint

import (
	"encoding/json"
	"time"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// Digest is the SHA-256 of an object's bytes.
type Digest = tree.Digest

// Object is a piece of a checkpoint, named by the SHA-256 of its bytes.
type Object = tree.Object

// Policy says which paths are kept: a base ("default" leaves out .git, node_modules and .env*, "full" nothing, "rules" what
// the text of a gitignore file says), and patterns to include and exclude. It is stored with the checkpoint.
type Policy = ignore.Policy

// Root is a directory with the name that a checkpoint knows it by.
type Root = workspace.Root

// Secret is a value that nothing stored may hold, and the name it is recorded under.
type Secret = workspace.Secret

// LinkRule says what a capture does with symbolic links that leave their root.
type LinkRule = workspace.LinkRule

// Rules for links that leave their root.
const (
	RefuseOutside = workspace.RefuseOutside // end in an *UnsupportedEntryError
	SkipOutside   = workspace.SkipOutside   // leave them out
	KeepOutside   = workspace.KeepOutside   // keep their text; a restore never follows them
)

// The root that is captured and restored where none is given.
const (
	DefaultRootName = "workspace"
	DefaultRootPath = "/workspace"
)

// Reason says why a checkpoint was made.
type Reason string

// Reasons.
const (
	Automatic Reason = "automatic"
	Named     Reason = "named" // it has a label
	ForkRoot  Reason = "fork-root"
)

// Stats counts what a checkpoint holds.
type Stats struct {
	Entries uint64 // of every type, at every depth
	Files   uint64
	Bytes   uint64 // of contents
}

// Checkpoint is one saved state of a thread. It never changes. Its files are what its Root names, or, where an application
// wrote it with a list of its own, Files.
type Checkpoint struct {
	ID        string
	Thread    string
	Parent    string // "" for the first of a thread
	CreatedAt time.Time
	Reason    Reason
	Label     string
	Run       string // what produced it
	Root      Digest // the root object; zero where the checkpoint has Files
	Stats     Stats
	Pinned    bool

	Files        []File
	External     bool // the application keeps the bytes of Files elsewhere
	Conversation []json.RawMessage
	Artifacts    []Artifact

	Git  *Git  // the state of a repository that it goes with, or nil
	From *Fork // what it was forked from, or nil
}

// Native reports whether the files are what Root names.
func (c *Checkpoint) Native() bool { return c.Root != Digest{} }

// File is an entry of a checkpoint that was written as a list.
type File struct {
	Path    string
	Kind    string // "file" or "dir"
	BlobKey string // of a file: sandbox-files/sha256/<hex>
	Size    int64  // of a file
}

// Artifact is something that a run produced and that is kept with the files.
type Artifact struct {
	ID        string
	Name      string
	MimeType  string
	Size      int64
	BlobKey   string // sandbox-artifacts/sha256/<hex>
	CreatedAt time.Time
}

// Git names a state of a repository.
type Git struct{ Repo, Branch, Commit string }

// Writer proves that its holder is the writer of a thread.
type Writer struct {
	Thread     string
	OwnerToken string
	Fence      int64 // higher than that of every writer before
}

// Lease makes its holder the only writer of a thread until it expires, by the clock of the store.
type Lease struct {
	Writer
	ExpiresAt  time.Time
	RenewAfter time.Duration // how long after it was given to renew it
}

package meta

import (
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Change is one atomic write: preconditions and what to write when all hold.
// Fields that are zero ask for nothing. A Change concerns one org, or one
// repository of it, never two repositories (a fork reads its source's row as a
// precondition and writes only itself).
type Change struct {
	Org OrgID
	// Repo is the repository that the Change concerns, 0 for a Change of the
	// org alone. With CreateRepo it is the id of the new one.
	Repo RepoID

	// Token is checked against floors inside the transaction: the Change is
	// refused with ConflictFloor when a floor on the org, the repository, the
	// subject, the thread or any ref that Refs names is at or above its iat.
	// nil means an operator's own Change, which no floor stops.
	Token *TokenStamp

	// CreateOrg, DeleteOrg, PutKey, RemoveKey, SetMaxTTL and RaiseFloors write
	// the org.
	CreateOrg   *Org
	DeleteOrg   bool // refused with ConflictNotEmpty while it has live repositories; purges deleted ones
	PutKey      *OrgKey
	RemoveKey   string         // fingerprint
	SetMaxTTL   *time.Duration // 0 removes the cap
	RaiseFloors []Floor
	// PutSigningKey replaces one with the same fingerprint; RemoveSigningKey
	// names a fingerprint and is refused with ConflictKey when it is absent. With
	// a key goes the ServerKey of the same fingerprint.
	PutSigningKey    *SigningKey
	RemoveSigningKey string
	// SetServerKey replaces the key that the server signs with; one without a
	// fingerprint leaves the org without. Its public half is put beside.
	SetServerKey *ServerKey

	// SetQuota replaces the limits of the org; SetEphemeralAge says from which age
	// ephemeral branches are deleted in repositories that say nothing themselves, 0
	// is never.
	SetQuota        *OrgQuota
	SetEphemeralAge *time.Duration
	// Reserve keeps bytes for a request whose bytes are arriving; ConflictQuota
	// when a limit has no room for them. It names the repository itself.
	Reserve *Reserve

	// CreateWebhook, UpdateWebhook and DeleteWebhook write an endpoint of the org.
	// An update takes everything but the progress and, where it is nil, the
	// secret; enabling forgets the failures before. What does not exist is not
	// changed.
	CreateWebhook *Webhook
	UpdateWebhook *Webhook
	DeleteWebhook WebhookID

	// CreateRepo makes a repository (Name, DefaultBranch, Source, PackSet and
	// Tidy are taken from it). Refs may create its first refs in the same
	// Change. With Source, the source must be alive and its PackSet equal to
	// SourcePackSet, else ConflictSource.
	CreateRepo    *Repo
	SourcePackSet int64

	DeleteRepo   bool // tombstone
	PurgeRepo    bool // remove a tombstone and every row but its events; frees the name
	UndeleteRepo bool // bring a deleted repository back; ConflictRepoGone once it was emptied
	// EmptyRepo removes what a repository holds that was deleted at or before this
	// time and is still: its name stays taken. ConflictNotDeleted otherwise.
	EmptyRepo        time.Time
	SetRepoQuota     *int64         // bytes; 0 is the org's RepoBytes, NoLimit none
	SetRepoAge       *time.Duration // of ephemeral branches; 0 is the org's age, NeverRetire none
	SetDefaultBranch string         // "" leaves it
	SetProtections   *[]Protection

	// Refs are moved together or not at all.
	// Writes that change nothing are not in the ref log. No name comes twice.
	Refs []RefWrite
	// Untidy clears the repository's Tidy flag: something listed in its packs
	// may no longer be, or never was, reachable.
	Untidy bool

	// AddPack adds one pack to the repository's current set (whatever it is by
	// then, so that writers of different refs do not conflict). The upload of a
	// pack's key ends with the Change that adds it; ConflictUpload when there is
	// none (any more).
	// Where the org or the repository has a limit, and no room in it, the Change is
	// refused with ConflictQuota.
	AddPack *PackWrite
	// Reservation is the reservation that AddPack uses up and that ends with the
	// Change; "" for none.
	Reservation string
	// ReplacePacks swaps packs of the current set for others, keeping the order
	// of the rest; ConflictPackSet when one of them is no longer in it.
	ReplacePacks *PackReplace

	// Follow changes the repository's upstream, credential and syncs.
	Follow *FollowChange

	// PutBlob keeps which recipe makes the bytes with a SHA-256, in place of what was
	// kept before.
	PutBlob *LargeBlob
	// ForgetBlobs are large blobs that are no longer kept, unless they were put again
	// after PutAt.
	ForgetBlobs []LargeBlob

	// Thread changes a thread and its checkpoints. It stands in a Change without a
	// repository.
	Thread *ThreadChange
	// Content changes the org's checkpoint objects.
	Content *ContentChange

	// Events are written with the Change; Type and Body are taken from them.
	Events []Event
	// Idempotency is recorded with the Change. When the key exists already the
	// verdict is ConflictReplay with the recorded row, and nothing is written.
	Idempotency *Idempotency

	// Route, Subject and Agent (what the client calls itself) go into the ref log,
	// and into the audit log with what Actions names.
	Route   string
	Subject string
	Agent   string
}

// TokenStamp is the part of a token that floors are compared with.
type TokenStamp struct {
	IssuedAt int64 // Unix seconds; 0 when the token has no iat
	Subject  string
	Thread   string
}

// RefWrite moves one ref from Old to New.
type RefWrite struct {
	Name string // full stored name
	// Old is the expected value; zero means that the ref must not exist.
	// With AnyOld the ref may have any value, or none.
	Old    object.ID
	AnyOld bool
	// New is the value to store; zero deletes the ref.
	New    object.ID
	Peeled object.ID
	// VerifyOnly asks that the ref has the value Old and writes nothing.
	VerifyOnly bool
}

// PackWrite is a pack with the bytes of a small one.
type PackWrite struct {
	Pack
	// Data is the pack file when Inline is set.
	Data []byte
}

// PackReplace swaps packs.
type PackReplace struct {
	Remove []PackID
	Add    []PackWrite
	// Keep are packs that the new ones count on: it is a ConflictPackSet when one
	// of them is not listed, as it is for those to remove.
	Keep []PackID
	// Tidy sets the repository's flag when the version is still AtVersion.
	Tidy      bool
	AtVersion int64
}

// ConflictKind says which precondition failed.
type ConflictKind string

// The reasons for which a Change is refused.
const (
	ConflictRef      ConflictKind = "ref"       // Ref has another value: Current
	ConflictRefPath  ConflictKind = "ref path"  // Ref and Other cannot both exist
	ConflictRepoGone ConflictKind = "repo gone" // deleted, purged or never there
	ConflictName     ConflictKind = "name"      // the name is taken
	ConflictDeleted  ConflictKind = "deleted"   // the name belongs to a deleted repository, or it is deleted already
	ConflictOrgGone  ConflictKind = "org gone"
	ConflictNotEmpty ConflictKind = "not empty"
	ConflictKey      ConflictKind = "key" // the kid is taken by another key, or the key to remove is absent
	ConflictFloor    ConflictKind = "floor"
	ConflictSource   ConflictKind = "source"
	ConflictPackSet  ConflictKind = "pack set"
	ConflictReplay   ConflictKind = "replay"
	ConflictID       ConflictKind = "id"
	// ConflictNotDeleted refuses to purge a repository that lives.
	ConflictNotDeleted ConflictKind = "not deleted"
	// ConflictUpload refuses a pack whose upload has been retired: its bytes may
	// be gone. Upload them again, under another key.
	ConflictUpload ConflictKind = "upload"
	// ConflictQuota refuses what a limit has no room for: Quota says which.
	ConflictQuota ConflictKind = "quota"
)

// Conflict describes the first precondition that failed.
type Conflict struct {
	Kind    ConflictKind
	Ref     string
	Current object.ID
	Other   string
	// Replay is the recorded row for ConflictReplay.
	Replay *Idempotency
	// Quota is the limit for ConflictQuota.
	Quota *QuotaConflict
}

// Verdict is the answer to a Change.
type Verdict struct {
	// Applied is true when the Change was written and is durable.
	Applied bool
	// Version is the repository's version after the Change.
	Version int64
	// At is when the Change was written, as its rows say.
	At time.Time
	// Granted is how many bytes a Reserve has got.
	Granted int64
	// Thread says more of a Change of a thread.
	Thread *ThreadVerdict
	// Conflict is set when Applied is false.
	Conflict *Conflict
}

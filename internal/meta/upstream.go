package meta

import (
	"context"
	"time"
)

// Identifiers of rows, made as those of repositories are.
type (
	CredentialID int64
	SyncID       int64
)

// Following says whether a repository follows one on another host.
type Following uint8

// The ways in which a repository may follow an upstream.
const (
	NotFollowing Following = 0
	// Follows says that there is an Upstream row.
	Follows Following = 1
	// Importing says that there is one and that the first import is pending or
	// under way.
	Importing Following = 2
)

// Credential is what a repository's upstream is asked with. A repository has at
// most one; it may have one without an upstream.
type Credential struct {
	ID       CredentialID
	Org      OrgID
	Repo     RepoID
	Username string // may be empty
	// Secret is encrypted by the caller.
	Secret    []byte
	CreatedAt time.Time // set by the engine
	UpdatedAt time.Time // set by the engine
}

// Upstream is the repository on another host that one follows.
type Upstream struct {
	Repo     RepoID
	Provider string // for example "github"
	Host     string // host, or host:port
	Owner    string
	Name     string
	// Public says that it is asked without the repository's credential.
	Public bool
	// DefaultBranch is the short name that was asked for at creation; "" follows
	// the upstream's.
	DefaultBranch string
	// Head is the upstream's default branch at the last sync, a short name.
	Head string
	// Seen is what the last sync saw of the upstream's refs, in the caller's
	// format. It is empty in rows that SyncsDue returns.
	Seen []byte
	// Runs counts the syncs that were begun.
	Runs int64
	// SyncedAt is when the last successful sync ended, zero for never.
	SyncedAt time.Time
	// LastError is why the last sync failed, "" when it did not.
	LastError string
}

// Sync is a sync that was asked for and has not ended. A repository's syncs run
// one at a time, in order of their ids.
type Sync struct {
	ID   SyncID
	Org  OrgID
	Repo RepoID
	// Writer says for whom it runs, in the caller's format.
	Writer []byte
	// IssuedAt is the iat of the newest token that asked for it, 0 for none.
	IssuedAt int64
	// Attempts counts how often it was begun.
	Attempts  int
	CreatedAt time.Time // set by the engine
	// Due is when it may begin, or begin again.
	Due time.Time
	// Owner is the process that runs it, "" for none, and holds it until Until.
	Owner string
	Until time.Time
}

// MaxSyncs bounds the syncs that wait for one repository.
const MaxSyncs = 8

// FollowChange is the part of a Change that concerns a repository's upstream
// and credential. It stands in a Change of one repository.
type FollowChange struct {
	// PutCredential makes the repository's credential (ConflictCredential when it
	// has one), or with Replace gives the one with this ID another name and secret
	// (ConflictNoCredential when the repository has no such one,
	// or when its UpdatedAt is set and the row has another).
	PutCredential *Credential
	Replace       bool
	// DeleteCredential removes the repository's credential with this id;
	// ConflictNoCredential when there is none.
	DeleteCredential CredentialID

	// PutUpstream makes the repository follow an upstream. It stands beside
	// CreateRepo.
	PutUpstream *Upstream
	// Detach ends following: the upstream and the syncs that wait go. A sync that
	// runs finds its row gone when it ends. It is no conflict when there is
	// nothing to end.
	Detach bool

	// AddSync asks for a sync of a repository that follows an upstream
	// (ConflictNoUpstream otherwise). When one with an equal Writer waits
	// that has not begun, that one serves this too: it takes the later IssuedAt.
	// ConflictBusy when MaxSyncs wait.
	AddSync *Sync
	// BeginSync takes a sync that is due for a process: ConflictSync when it is
	// gone, not due, or another one of the repository is held. It raises Attempts
	// and Runs.
	BeginSync *BeginSync
	// EndSync ends a sync that the process holds, or puts it off: ConflictSync
	// when it does not hold it any more.
	EndSync *EndSync
}

// BeginSync names a sync and who takes it for how long.
type BeginSync struct {
	ID    SyncID
	Owner string
	Lease time.Duration
	// AtRuns is the Runs that the upstream must still have.
	AtRuns int64
}

// EndSync says how a sync ended.
type EndSync struct {
	ID    SyncID
	Owner string
	// Again puts the sync off for this long; 0 ends it.
	Again time.Duration
	// Error is why it failed, "" when it did not.
	Error string
	// Head and Seen replace those of the upstream when Error is "".
	Head string
	Seen []byte
}

// The reasons for which a FollowChange is refused.
const (
	ConflictCredential   ConflictKind = "credential"    // the repository has one
	ConflictNoCredential ConflictKind = "no credential" // there is none with the id
	ConflictNoUpstream   ConflictKind = "no upstream"   // the repository follows none
	ConflictBusy         ConflictKind = "busy"          // too many syncs wait
	ConflictSync         ConflictKind = "sync"          // the sync is gone, not due or another's
)

// Upstreams reads upstreams, credentials and syncs.
type Upstreams interface {
	// Credential returns a credential of an org by id, or ErrNotFound. Those of
	// deleted repositories are not found.
	Credential(ctx context.Context, org OrgID, id CredentialID) (Credential, error)
	// RepoCredential returns the credential of a repository, or ErrNotFound.
	RepoCredential(ctx context.Context, repo RepoID) (Credential, error)
	// Credentials returns up to limit credentials of all orgs with an id above
	// after, in order of ids.
	Credentials(ctx context.Context, after CredentialID, limit int) ([]Credential, error)
	// Upstreams returns the upstreams of those of the repositories that follow
	// one, in order of the repositories' ids, without Seen.
	Upstreams(ctx context.Context, repos []RepoID) ([]Upstream, error)
	// Upstream returns the upstream of a repository, or ErrNotFound.
	Upstream(ctx context.Context, repo RepoID) (Upstream, error)
	// SyncsDue returns up to limit syncs that may begin now, oldest due first, at
	// most one of each live repository and none of one whose sync is held.
	SyncsDue(ctx context.Context, limit int) ([]Sync, error)
	// RenewSync keeps a sync held for a further lease. It is ErrNotFound when the
	// process holds it no more.
	RenewSync(ctx context.Context, id SyncID, owner string, lease time.Duration) error
}

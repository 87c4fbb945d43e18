package meta

import (
	"context"
	"time"
)

// OrgQuota are the limits of an org; 0 is none.
type OrgQuota struct {
	// Bytes bounds those of all its packs, those of checkpoint objects too. A pack
	// counts once, however many repositories list it, until nothing lists it any more.
	Bytes int64
	// RepoBytes bounds those of each repository that has no limit of its own.
	RepoBytes int64
	// Repos bounds the repositories that are not deleted.
	Repos int64
	// ThreadBytes bounds what each thread knows: the bytes of its objects, each once.
	ThreadBytes int64
}

// NoLimit is the limit of a repository that its org's RepoBytes does not bound.
const NoLimit = -1

// NeverRetire is the ephemeral age of a repository whose ephemeral branches stay
// whatever the age of its org is.
const NeverRetire time.Duration = -1

// Reserve asks that some bytes of a limit are kept for a request whose bytes are
// still arriving. It takes the place of the reservation with the same ID.
type Reserve struct {
	ID      string
	Process string // as in Heartbeat: the reservation counts while it lives
	Repo    RepoID // 0 for one that is to be made
	Content bool   // for objects of checkpoints: only the org's limit counts
	// Bytes are needed in all, Want are welcome: Verdict.Granted lies between.
	Bytes, Want int64
}

// Reservation is a row that a Reserve made.
type Reservation struct {
	ID      string
	Process string
	Org     OrgID
	Repo    RepoID
	Bytes   int64
	At      time.Time
}

// QuotaConflict is the limit that a Change would have crossed.
type QuotaConflict struct {
	// Repos says that repositories are counted, else bytes.
	Repos bool
	// OfRepo says that the limit is that of the repository, else of the org.
	OfRepo bool
	// OfThread says that it is that of a thread.
	OfThread bool
	Limit    int64
	Used     int64
	// Reserved are what other requests under way have reserved.
	Reserved int64
	Needed   int64
}

// Usage is what an org or a repository has stored.
type Usage struct {
	// Bytes, Objects and Packs are those of packs that count: for an org all,
	// for a repository those it made and lists.
	Bytes, Objects, Packs int64
	// SharedBytes are, for a repository, those of packs that it lists and
	// another one made.
	SharedBytes int64
	// CheckpointBytes are those of packs of checkpoint objects among Bytes; 0 for a
	// repository.
	CheckpointBytes int64
	// GarbageBytes are those of garbage packs among Bytes.
	GarbageBytes int64
	// Reserved is what requests under way have reserved.
	Reserved int64
	// Repos and DeletedRepos count repositories; those that are deleted and hold
	// nothing any more are in neither.
	Repos, DeletedRepos int64
	Refs                RefCounts
	// Threads and Checkpoints count those of an org; they are 0 for a repository.
	Threads, Checkpoints int64
	// Events and Idempotency count rows of an org; they are 0 for a repository.
	Events, Idempotency int64
}

// RefCounts counts refs by their namespace.
type RefCounts struct {
	Branches, Tags, Ephemeral, Other int64
}

// RetainedRepo is a repository with the age from which its ephemeral branches
// are deleted.
type RetainedRepo struct {
	Repo
	Age time.Duration
}

// StaleQuery selects refs that were not written since a time, in byte order of
// their names.
type StaleQuery struct {
	Repo   RepoID
	Prefix string // not empty
	Before time.Time
	// After selects names that sort after it.
	After string
	Limit int
}

// Accounts reads what is stored, and what is to be removed because of its age.
type Accounts interface {
	// Usage sums up what an org, or with repo one repository of it, has stored.
	Usage(ctx context.Context, org OrgID, repo RepoID) (Usage, error)
	// Reservations returns all reservations that no Change and no EndReservations
	// has ended, the oldest first.
	Reservations(ctx context.Context) ([]Reservation, error)
	// EndReservations forgets reservations.
	EndReservations(ctx context.Context, ids []string) error
	// DeletedRepos returns up to limit repositories that were deleted at or before
	// a time and still hold something, by id, those after the given one.
	DeletedRepos(ctx context.Context, before time.Time, after RepoID, limit int) ([]Repo, error)
	// RetainedRepos returns up to limit live repositories that have an age from
	// which ephemeral branches are deleted, by id, those after the given one.
	RetainedRepos(ctx context.Context, after RepoID, limit int) ([]RetainedRepo, error)
	// StaleRefs returns refs whose last write was before a time.
	StaleRefs(ctx context.Context, q StaleQuery) ([]Ref, error)
}

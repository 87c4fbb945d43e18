// Package meta is the contract for Cairn's small transactional truth: orgs,
// keys, floors, repositories, refs, pack sets, small packs, events and
// idempotency rows. Bytes live in package blob; what is here says which bytes
// are visible.
//
// Two engines implement it, SQLite and PostgreSQL, and one suite (metatest)
// holds both to the semantics written here.
//
// # Semantics that every engine must give
//
//   - Writes are data. A [Change] is applied as a whole or not at all, and is
//     durable when Apply returns a verdict with Applied set. Engines may run
//     many waiting Changes in one transaction, each with a savepoint of its own.
//   - Changes of one repository are totally ordered: each applied Change that
//     names an existing repository takes its version + 1, whatever it writes.
//   - Preconditions are evaluated in the same transaction as the writes, so two
//     Changes that expect the same old value never both apply.
//   - A refused Change writes nothing; the [Verdict] says what conflicted. An
//     error is returned only when the outcome is an engine's fault (I/O,
//     cancelled before it was queued, [ErrUnavailable]); after an error other
//     than [ErrNotApplied] the caller must read back before it retries.
//   - Reads are consistent within one call and see every Change whose Apply
//     returned before the read began, on any node.
//   - Times are Unix microseconds by the engine's clock (one clock for all
//     nodes: PostgreSQL's clock_timestamp, or the single process's), settable in
//     tests.
package meta

import (
	"context"
	"errors"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Errors that engines return; all others are faults of the engine.
var (
	// ErrNotFound says that the named row does not exist (or is deleted, where
	// the method says so).
	ErrNotFound = errors.New("not found")
	// ErrNotApplied says that a Change certainly had no effect, because it was
	// cancelled or refused before it reached a transaction.
	ErrNotApplied = errors.New("change not applied")
	// ErrUnavailable says that the engine cannot answer now; retry later. An
	// embedded engine whose disk is full says syscall.ENOSPC instead.
	ErrUnavailable = errors.New("metadata store unavailable")
	// ErrCorrupt says that rows which others name are missing or unreadable.
	ErrCorrupt = errors.New("metadata corrupt")
	// ErrTooNew says that the database was written by a newer program.
	ErrTooNew = errors.New("database is newer than this program")
)

// Identifiers of rows. They are made by the caller with [NewID]: increasing
// with time and unique with overwhelming probability; an engine that finds one
// taken answers with the conflict [ConflictID], and the caller takes another.
type (
	OrgID  int64
	RepoID int64
	PackID int64
)

// Store is one metadata engine.
type Store interface {
	// Apply decides and writes one Change. It blocks until the Change is
	// durable or refused.
	Apply(ctx context.Context, c Change) (Verdict, error)

	Orgs
	Repos
	Packs
	Events
	Webhooks
	Processes
	Upstreams
	Accounts
	Threads
	Contents

	// Ping runs a real query; nil means that reads are answered.
	Ping(ctx context.Context) error
	// Close waits for running calls and releases the engine.
	Close() error
}

// Orgs reads tenants and what their tokens are checked against.
type Orgs interface {
	// Gate answers what every authorised request needs first, in one round
	// trip: the org (with the version of its keys), the highest floor that
	// covers the query, and the repository row when one is named. An unknown
	// org is ErrNotFound. An unknown repository leaves Repo.ID zero; a deleted
	// one has Deleted set.
	Gate(ctx context.Context, q GateQuery) (Gate, error)
	// Keys returns the verification keys of an org and the version they belong
	// to, in one consistent read.
	Keys(ctx context.Context, org OrgID) (OrgKeys, error)
	// ListOrgs returns up to limit orgs whose name sorts after the given one.
	ListOrgs(ctx context.Context, after string, limit int) ([]Org, error)
	// Audit returns a page of an org's audit log: what Change.Actions named, and
	// the ref log. The cost grows with the ref logs that the query covers.
	Audit(ctx context.Context, q AuditQuery) ([]AuditEntry, error)
	// SigningKeys returns the keys that verify commits of an org, in a stable
	// order.
	SigningKeys(ctx context.Context, org OrgID) ([]SigningKey, error)
	// ServerKey returns the key with which the server signs what it makes in an
	// org; ErrNotFound when it has none.
	ServerKey(ctx context.Context, org OrgID) (ServerKey, error)
	// SealServerKey puts one form of a server key's secret in the place of another,
	// if that is the one which is stored; otherwise nothing happens.
	SealServerKey(ctx context.Context, org OrgID, from, to []byte) error
	// Floors returns all floors of an org in a stable order.
	Floors(ctx context.Context, org OrgID) ([]Floor, error)
}

// Repos reads repositories, refs and the ref log.
type Repos interface {
	// Repo returns a repository by id, deleted ones included.
	Repo(ctx context.Context, id RepoID) (Repo, error)
	// ListRepos returns repositories of an org, newest first by (CreatedAt, ID),
	// without deleted ones.
	ListRepos(ctx context.Context, q RepoQuery) ([]Repo, error)
	// Refs returns refs of a repository in byte order of their names, with the
	// repository version they belong to.
	Refs(ctx context.Context, q RefQuery) (RefPage, error)
	// RefsByAge returns refs under a prefix in order of creation
	// (CreatedVersion, Name), strictly after the given position.
	RefsByAge(ctx context.Context, q RefAgeQuery) ([]Ref, error)
	// RefLog returns the entries with Version > after in order, and whether the
	// log still reaches back that far (false: read Refs anew).
	RefLog(ctx context.Context, repo RepoID, after int64, limit int) (entries []RefLogEntry, complete bool, err error)
	// RecentTips returns the distinct old values that left a ref at or after
	// since, except those whose ref was deleted: they still count as reachable.
	RecentTips(ctx context.Context, repo RepoID, since time.Time) ([]object.ID, error)
	// LeftTips is RecentTips with those whose ref was deleted: what an operation
	// that began at since may still be using.
	LeftTips(ctx context.Context, repo RepoID, since time.Time) ([]object.ID, error)
	// Protections returns a repository's protection rules in order.
	Protections(ctx context.Context, repo RepoID) ([]Protection, error)
}

// Packs reads pack sets and the bytes of small packs.
type Packs interface {
	// PackSet returns the packs of an immutable set, in the order of the set, and
	// which of them others list as of now. A set ends when the last repository leaves it: ErrNotFound then means that
	// the caller's view of the repository is old and must be read again (a set
	// that a repository read afterwards still points to is corruption). Set 0 is
	// empty.
	PackSet(ctx context.Context, id int64) ([]ListedPack, error)
	// PackIDs returns the ids of a set's packs, as PackSet does: for callers that
	// keep the rows of packs, which never change.
	PackIDs(ctx context.Context, id int64) ([]PackID, error)
	// PacksByID returns packs by id, in the order asked. ErrNotFound when one is
	// in no set any more.
	PacksByID(ctx context.Context, ids []PackID) ([]Pack, error)
	// SmallPacks returns the inline bytes of packs whose Inline is set, in the
	// order asked. ErrNotFound when one is in no set any more.
	SmallPacks(ctx context.Context, ids []PackID) ([][]byte, error)
	// LivePackKeys calls yield for each blob key named by any pack or any
	// upload row, some perhaps twice; used by fsck and the sweep. Keys whose
	// upload began after the call did may be missing.
	LivePackKeys(ctx context.Context, yield func(key string) error) error
}

// Events reads the outbox.
type Events interface {
	// Events returns events of an org (0: of all) with Position > after in
	// order. Positions are given after commit, without gaps that are filled
	// later: a reader that saw position n never misses a smaller one.
	Events(ctx context.Context, org OrgID, after int64, limit int) ([]Event, error)
	// LastEvent returns the highest position that was given, 0 when there is none.
	LastEvent(ctx context.Context) (int64, error)
	// EventPage returns events of one org, or of one repository of it.
	EventPage(ctx context.Context, q EventQuery) (EventPage, error)
	// PlaceAt returns the place of a repository's last event whose position is at
	// most the given one; when none is kept, that of the last that was pruned, or
	// 0. The cost grows with the events after the position.
	PlaceAt(ctx context.Context, org OrgID, repo RepoID, position int64) (int64, error)
	// PruneEvents looks at up to limit events after a position and drops those
	// written before a time, with what became of their deliveries. What an enabled
	// endpoint has still to deliver is kept, and so is the newest event of all.
	PruneEvents(ctx context.Context, before time.Time, after int64, limit int) (Pruned, error)
	// EventOrgs returns the orgs that have events with Position > after, and the
	// highest position among them (after when there is none).
	EventOrgs(ctx context.Context, after int64) (orgs []OrgID, last int64, err error)
}

// Processes keeps the heartbeat by which retired bytes are known to be unused,
// and the uploads that are under way.
type Processes interface {
	// Heartbeat records that a process lives and when its oldest running
	// operation began (zero: it has none). A process that cannot renew within
	// its lease must end its operations.
	Heartbeat(ctx context.Context, p Process) error
	// Processes returns all processes whose lease has not expired.
	Processes(ctx context.Context) ([]Process, error)
	// BeginUpload names a blob key before its first byte is written.
	BeginUpload(ctx context.Context, u Upload) error
	// EndUpload forgets an upload that was aborted and whose bytes are gone.
	EndUpload(ctx context.Context, key string) error
	// RetireUpload takes an upload from whoever began it: its key is retired from
	// now on, and no Change can add its pack. It reports false, and does nothing,
	// when there is no such upload: it was ended, or its pack was added.
	RetireUpload(ctx context.Context, key string) (bool, error)
	// Uploads returns the uploads that no Change has published.
	Uploads(ctx context.Context) ([]Upload, error)
	// Retired returns up to limit blob keys that no pack names any more and that
	// were retired at or before the given time.
	Retired(ctx context.Context, before time.Time, limit int) ([]Retired, error)
	// ForgetRetired drops retired rows whose bytes are gone.
	ForgetRetired(ctx context.Context, keys []string) error
	// Idempotency returns the recorded answer for a key, or ErrNotFound.
	Idempotency(ctx context.Context, org OrgID, key string) (Idempotency, error)
	// PruneIdempotency drops up to limit recorded answers that were written
	// before the given time, and returns how many there were.
	PruneIdempotency(ctx context.Context, before time.Time, limit int) (int, error)
}

package meta

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// epoch is the zero of the identifiers made by NewID: 2024-01-01T00:00:00Z.
const epoch = 1704067200000

// sequence tells the identifiers of one millisecond apart. It starts at a
// random number, so that two processes seldom make the same one.
var sequence atomic.Uint32

func init() {
	var b [4]byte
	rand.Read(b[:])
	sequence.Store(binary.BigEndian.Uint32(b[:]))
}

// NewID returns an identifier for a new row: milliseconds since 2024 in the
// upper bits and a counter of 20 bits below, so that rows made one after the
// other lie side by side.
func NewID(now time.Time) int64 {
	return (now.UnixMilli()-epoch)<<20 | int64(sequence.Add(1)&(1<<20-1))
}

// MaxName bounds the names that engines store and index, in bytes: of orgs,
// repositories, refs, subjects, threads and idempotency keys.
const MaxName = 1024

// Org is a tenant: the issuer of tokens and the owner of repositories.
type Org struct {
	ID   OrgID
	Name string
	// KeyVersion grows whenever keys or MaxTTL change.
	KeyVersion int64
	// MaxTTL caps exp - iat of tokens; 0 means no cap.
	MaxTTL time.Duration
	Quota  OrgQuota
	// Metered says that the org or one of its repositories has a limit.
	Metered bool
	// EphemeralAge is that of its repositories that have none themselves; 0 is
	// never.
	EphemeralAge time.Duration
	// Signer is the fingerprint of the org's ServerKey, "" when it has none.
	Signer    string
	CreatedAt time.Time
}

// OrgKey is one public key that verifies tokens of an org.
type OrgKey struct {
	// KID is the key id named in token headers; "" for a key without one.
	KID string
	// Fingerprint is the lower-case hexadecimal SHA-256 of the public key's
	// PKIX DER; unique within the org.
	Fingerprint string
	// PEM is the public key as a PKIX PEM block.
	PEM       string
	CreatedAt time.Time
}

// OrgKeys are the keys of an org at one version.
type OrgKeys struct {
	Org  Org
	Keys []OrgKey
}

// SigningKey is one public key that verifies signatures of commits and tags in
// the repositories of an org.
type SigningKey struct {
	// Fingerprint is unique within the org; its form is that of Kind.
	Fingerprint string
	// Kind and Text are in the words of package signature.
	Kind, Text string
	// Title says for people whose key it is.
	Title string
	// NotBefore and NotAfter bound the dates of what the key may sign; zero is
	// no bound.
	NotBefore, NotAfter time.Time
	CreatedAt           time.Time // of the first registration; set by the engine
}

// ServerKey is what the server signs the commits with that it makes in an org.
type ServerKey struct {
	Fingerprint string // of one of the org's signing keys
	// Secret is the private half, as its owner stores it.
	Secret []byte
}

// FloorKind says what a floor covers.
type FloorKind string

// The kinds of floors. Target is empty for FloorOrg, else the repository name,
// the thread, the subject, or, for FloorRef, the full ref name.
const (
	FloorOrg     FloorKind = "org"
	FloorRepo    FloorKind = "repo"
	FloorRef     FloorKind = "ref"
	FloorThread  FloorKind = "thread"
	FloorSubject FloorKind = "sub"
)

// Floor refuses every token whose iat is at or before NotBefore (or absent)
// and that its kind covers. Floors only rise.
type Floor struct {
	Kind FloorKind
	// Repo is set for FloorRef: refs are of one repository.
	Repo   RepoID
	Target string
	// NotBefore is in Unix seconds, as iat is.
	NotBefore int64
}

// GateQuery names what a request is about. Empty fields are not looked at.
type GateQuery struct {
	Org     string
	Repo    string
	Thread  string
	Subject string
}

// Gate is what every authorised request needs first.
type Gate struct {
	Org Org
	// Floor is the highest NotBefore of the org, repository, thread and subject
	// floors that cover the query; 0 when there is none.
	Floor int64
	Repo  Repo
}

// Repo is a repository.
type Repo struct {
	ID            RepoID
	Org           OrgID
	Name          string
	DefaultBranch string // short name, for example "main"
	// Version grows by one with every Change of this repository.
	Version int64
	// PackSet is the id of the current pack set; 0 for a repository without
	// packs.
	PackSet int64
	// Tidy says that every object in every listed pack is reachable from the
	// refs: being listed then proves being reachable.
	Tidy bool
	// Source is the repository this one was forked from, or 0.
	Source RepoID
	// Following says whether it follows an upstream.
	Following Following
	// Used are the bytes of the packs that it made and lists.
	Used int64
	// Quota bounds Used; 0 is the org's RepoBytes, NoLimit none.
	Quota int64
	// EphemeralAge is from when on ephemeral branches that nobody updates are
	// deleted; 0 is the org's, NeverRetire never.
	EphemeralAge time.Duration
	CreatedAt    time.Time
	// Deleted is the time of deletion, zero for a live repository. The name
	// stays taken until a purge.
	Deleted time.Time
	// Emptied says that it was deleted and holds nothing any more but its name.
	Emptied bool
}

// RepoQuery selects a page of repositories, newest first.
type RepoQuery struct {
	Org OrgID
	// Contains keeps names that hold this text, ignoring ASCII case.
	Contains string
	// BeforeCreated and BeforeID are the position of the last row of the page
	// before; zero values start at the newest.
	BeforeCreated time.Time
	BeforeID      RepoID
	Limit         int
}

// Ref is one ref of a repository under its full stored name.
type Ref struct {
	Name string
	ID   object.ID
	// Peeled is the object an annotated tag finally points to, else zero.
	Peeled    object.ID
	CreatedAt time.Time
	// CreatedVersion is the repository version that created the ref.
	CreatedVersion int64
}

// RefQuery selects refs in byte order of their names.
type RefQuery struct {
	Repo RepoID
	// Names, when not empty, selects exactly these refs (absent ones are left
	// out); Prefix and After are then ignored.
	Names []string
	// Prefix selects names that begin with it; "" selects all.
	Prefix string
	// After selects names that sort after it.
	After string
	// Limit bounds the page; 0 means no bound.
	Limit int
}

// RefPage is a page of refs and the repository version it was read at.
type RefPage struct {
	Version int64
	Refs    []Ref
}

// RefAgeQuery selects refs in order of creation.
type RefAgeQuery struct {
	Repo   RepoID
	Prefix string
	// AfterVersion and AfterName are the position of the last ref of the page
	// before.
	AfterVersion int64
	AfterName    string
	Limit        int
}

// RefLogEntry is one change of one ref.
type RefLogEntry struct {
	Version  int64
	Name     string
	Old, New object.ID // zero: the ref did not exist / was deleted
	Peeled   object.ID // of New
	At       time.Time
	Subject  string // the token's sub
	Agent    string // what the client called itself; not read back by RefLog
	Route    string // what changed it, for example "git push" or "POST commit-pack"
}

// Protection is one protection rule of a repository. Ops are the words of
// package policy.
type Protection struct {
	Pattern string
	Ops     []string
}

// PackClass is a pack's provenance.
type PackClass uint8

// The provenance classes, in the order in which lookups search them.
const (
	PackInsert  PackClass = 1 // written by the API
	PackReceive PackClass = 2 // pushed
	PackFolded  PackClass = 3 // small packs put together
	PackCompact PackClass = 4 // full repack
	PackGarbage PackClass = 5 // unreachable objects kept for their grace
)

// Pack describes one immutable pack.
type Pack struct {
	ID PackID
	// Repo is the repository whose Change added the pack, and CreatedAt when that
	// was; the store sets both. A fork has packs of other repositories.
	Repo  RepoID
	Class PackClass
	// Inline says that the bytes are a row of meta (SmallPacks); otherwise they
	// are blobs under Key with the suffixes ".pack", ".idx" and ".graph".
	Inline  bool
	Key     string
	Bytes   int64 // size of the pack file
	Objects int64
	// Exact says that the contents are closure(Tips) minus closure(Boundary),
	// and that no object of it was in the set's packs when it was added.
	Exact     bool
	Tips      []object.ID
	Boundary  []object.ID
	CreatedAt time.Time
}

// ListedPack is a pack as a set lists it.
type ListedPack struct {
	Pack
	// Shared says that it was in other sets too when it was read, or that other
	// repositories had the same set.
	Shared bool
}

// Event is one row of the outbox.
type Event struct {
	Position int64
	// Place orders the events of one repository, as Position does those of all,
	// and says nothing of what happens elsewhere. The store sets both.
	Place int64
	Org   OrgID
	Repo  RepoID
	// Version is the repository version of the Change that wrote the event.
	Version int64
	Type    string // for example "push"
	Body    []byte // JSON
	At      time.Time
}

// PlaceOf is the place of the n-th event, from 0, of the Change that gave a
// repository a version.
func PlaceOf(version int64, n int) int64 { return version<<placeBits | int64(n) }

// SplitPlace returns what a place was made of.
func SplitPlace(place int64) (version int64, n int) {
	return place >> placeBits, int(place & (1<<placeBits - 1))
}

// placeBits are the bits of a place that number the events of one Change.
const placeBits = 24

// EventQuery selects the events of an org or, when Repo is not 0, of one of its
// repositories. After is a position, or then a place; 0 is the oldest that is kept.
type EventQuery struct {
	Org   OrgID
	Repo  RepoID
	After int64
	Limit int
}

// EventPage is a page of events in order.
type EventPage struct {
	Events []Event
	// Floor is the position, or place, up to which events were pruned; 0 when none
	// was. A reader that was before it may have missed some.
	Floor int64
}

// Pruned is what PruneEvents did.
type Pruned struct {
	Events int
	// Next is the position of the last event that was looked at.
	Next int64
	// Done says that no later event is old enough.
	Done bool
}

// Process is one running server.
type Process struct {
	ID string
	// Oldest is when its oldest running operation began; zero when it has none.
	Oldest time.Time
	// Lease is how long after Renewed the process counts as alive.
	Lease   time.Duration
	Renewed time.Time // set by the engine
}

// Upload is a set of blobs under one key that are being written and not yet
// visible.
type Upload struct {
	Key     string
	Process string
	At      time.Time // set by the engine
}

// Retired is a blob key that no pack names any more.
type Retired struct {
	Key string
	At  time.Time
}

// Idempotency is the recorded answer to a request with an Idempotency-Key.
type Idempotency struct {
	Key string
	// Request is the SHA-256 of route, subject and body.
	Request [32]byte
	Status  int
	Body    []byte
	At      time.Time
}

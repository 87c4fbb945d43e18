package meta

import (
	"context"
	"encoding/hex"
	"time"
)

// ContentID names a pack, an index file or a list of checkpoint objects: random
// bytes, never used again.
type ContentID [16]byte

// String returns the id in hex.
func (id ContentID) String() string { return hex.EncodeToString(id[:]) }

// ContentState says what a pack of checkpoint objects is good for.
type ContentState uint8

// The states of a pack. What is in no live pack counts as missing, so that it is
// sent again; it is still read from packs of the other states.
const (
	ContentLive      ContentState = 1
	ContentCondemned ContentState = 2 // goes unless something refers to what only it has
	ContentDamaged   ContentState = 3 // not all of it can be read
)

// ContentPack is one immutable pack of checkpoint objects.
type ContentPack struct {
	Org   OrgID
	ID    ContentID
	State ContentState
	// Index is the index file that has its objects; zero while none has.
	Index ContentID
	// Key is its blob; "" for a small pack, whose bytes are a row.
	Key      string
	Bytes    int64 // size of the pack
	RawBytes int64 // of its objects as they are
	TableAt  int64 // where its table of objects begins
	Objects  int64
	// CreatedAt, ChangedAt and CheckedAt are when it was added, when it got its
	// state, and when its bytes were last found whole. The store sets them.
	CreatedAt, ChangedAt, CheckedAt time.Time
}

// ContentIndex is one index file: where the objects of many packs are.
type ContentIndex struct {
	ID      ContentID
	Key     string
	Bytes   int64
	Objects int64
	Packs   int64
	// Dead are packs that it has and that were removed.
	Dead []ContentID
}

// ContentVersion says which state an org's content is in. Version changes with
// every Change of packs and index files. Generation changes when what was present may have become missing.
type ContentVersion struct {
	Version    int64
	Generation int64
}

// ContentView is what is needed to find an org's objects, at one version.
type ContentView struct {
	ContentVersion
	Indexes []ContentIndex
	// Packs are those that no index file has, and those that are not live.
	Packs []ContentPack
}

// ContentUpload is a client's upload of objects. What it has received is kept
// until it ends or expires.
type ContentUpload struct {
	ID      string
	Thread  string
	Begun   time.Time // set by the store
	Expires time.Time // set by the store
	Lists   []ContentList
}

// ContentList is a sorted list of digests that an upload has received.
type ContentList struct {
	ID      ContentID
	Key     string // its blob; "" when Data has its bytes
	Data    []byte
	Bytes   int64
	Objects int64
}

// ContentChange is the part of a Change that concerns an org's checkpoint
// objects.
type ContentChange struct {
	// Generation, if set, is the one that the org's content must have, else
	// ConflictGeneration.
	Generation *int64
	// EndUpload forgets an upload, if it is there.
	EndUpload string
	// Reservation ends with the Change; what AddPacks brings does not count beside it.
	// Where the org has a limit and no room in it, a Change that has PutUpload and
	// AddPacks is refused with ConflictQuota.
	Reservation string

	// PutUpload makes an upload or renews it; ConflictUploadThread when it is another
	// thread's.
	PutUpload *ContentUploadWrite
	// ExpireUploads forgets the uploads whose time is over.
	ExpireUploads bool

	// AddPacks adds live packs. As with Change.AddPack, uploads of their keys end,
	// and ConflictUpload says that there is none. Their bytes count for the org: with
	// PutUpload, ConflictQuota refuses those that its limit has no room for.
	AddPacks []ContentPackWrite
	// SetPacks gives packs another state, RemovePacks removes them and retires
	// their keys; ConflictContent when one is not in the state From. Setting a
	// state other than ContentLive raises the generation, as removing a live pack
	// does without Moved.
	SetPacks    []ContentPackState
	RemovePacks []ContentPackState
	// Moved says that all objects of the packs that are removed are in those added.
	Moved bool
	// Checked notes that packs were found whole now.
	Checked []ContentID
	// AddIndex adds an index file, which takes the place of others. It goes with no
	// change of packs. ConflictContent when one of them is gone.
	AddIndex *ContentIndexWrite
}

// ContentUploadWrite makes or renews an upload.
type ContentUploadWrite struct {
	ID     string
	Thread string
	Lease  time.Duration // from now on
	// AddList adds a list in place of others.
	AddList  *ContentList
	Replaces []ContentID
}

// ContentPackWrite is a pack with the bytes of a small one.
type ContentPackWrite struct {
	ContentPack
	Data []byte
}

// ContentPackState names a pack and the state that it must have.
type ContentPackState struct {
	ID       ContentID
	From, To ContentState
}

// ContentIndexWrite is a new index file.
type ContentIndexWrite struct {
	ContentIndex
	// Covers are packs that no index file has had. One that is gone is dead to the
	// new one; ConflictContent when another file has it by now.
	Covers []ContentID
	// Replaces are the index files that it takes the place of, with as many dead
	// packs as were left out; those that have died since are dead to the new one.
	Replaces []ContentIndexSeen
}

// ContentIndexSeen is an index file as it was when it was read.
type ContentIndexSeen struct {
	ID   ContentID
	Dead int
}

// The reasons for which a ContentChange is refused.
const (
	ConflictGeneration   ConflictKind = "generation"    // what was present may be missing: look again
	ConflictContent      ConflictKind = "content"       // a pack or an index file is not as it was
	ConflictUploadThread ConflictKind = "upload thread" // the upload is another thread's
)

// Contents reads the packs of checkpoint objects.
type Contents interface {
	// ContentVersion returns the version of an org's content; zero for an org that
	// has none.
	ContentVersion(ctx context.Context, org OrgID) (ContentVersion, error)
	// ContentView returns what is needed to find objects.
	ContentView(ctx context.Context, org OrgID) (ContentView, error)
	// ContentPack returns a pack by id, or ErrNotFound.
	ContentPack(ctx context.Context, org OrgID, id ContentID) (ContentPack, error)
	// ContentPacks returns up to limit packs of an org, by id, those after the
	// given one.
	ContentPacks(ctx context.Context, org OrgID, after ContentID, limit int) ([]ContentPack, error)
	// SmallContentPacks returns up to limit live packs of less than some bytes, the
	// smallest first.
	SmallContentPacks(ctx context.Context, org OrgID, below int64, limit int) ([]ContentPack, error)
	// UncheckedContentPacks returns up to limit packs of all orgs that were last
	// found whole before a time, the longest ago first; damaged ones left out.
	UncheckedContentPacks(ctx context.Context, before time.Time, limit int) ([]ContentPack, error)
	// ContentData returns the bytes of a small pack. ErrNotFound when it was
	// removed.
	ContentData(ctx context.Context, org OrgID, id ContentID) ([]byte, error)
	// ContentUpload returns an upload that has not expired, or ErrNotFound.
	ContentUpload(ctx context.Context, org OrgID, id string) (ContentUpload, error)
	// ContentUploads returns all uploads of an org that have not expired, at one
	// moment.
	ContentUploads(ctx context.Context, org OrgID) ([]ContentUpload, error)
	// ContentOrgs returns up to limit orgs that have content, by id, those after
	// the given one.
	ContentOrgs(ctx context.Context, after OrgID, limit int) ([]OrgID, error)
	// LiveContentKeys calls yield for each blob key that a pack, an index file or a
	// list names. Keys that came after the call began may be missing.
	LiveContentKeys(ctx context.Context, yield func(key string, bytes int64) error) error
}

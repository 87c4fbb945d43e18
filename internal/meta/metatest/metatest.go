// Package metatest holds the suite that every metadata engine must pass: one
// test or more for each sentence of the contract in package meta.
package metatest

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

// Open makes an empty store that is closed when the test ends. A nil clock asks
// for the engine's own.
type Open func(tb testing.TB, clock func() time.Time) meta.Store

// Test runs the suite on stores made by open.
func Test(t *testing.T, open Open) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, open Open)
	}{
		{"Orgs", testOrgs},
		{"Keys", testKeys},
		{"SigningKeys", testSigningKeys},
		{"ServerKey", testServerKey},
		{"Audit", testAudit},
		{"DeleteOrg", testDeleteOrg},
		{"Gate", testGate},
		{"FloorKinds", testFloorKinds},
		{"FloorRace", testFloorRace},
		{"CreateRepo", testCreateRepo},
		{"DeleteAndPurge", testDeleteAndPurge},
		{"RepoSettings", testRepoSettings},
		{"ListRepos", testListRepos},
		{"Versions", testVersions},
		{"RefCompareAndSwap", testRefCompareAndSwap},
		{"RefRefusals", testRefRefusals},
		{"RefPaths", testRefPaths},
		{"RefPathsMany", testRefPathsMany},
		{"RefQueries", testRefQueries},
		{"RefPagesUnderInserts", testRefPagesUnderInserts},
		{"RefsByAge", testRefsByAge},
		{"RefLog", testRefLog},
		{"RecentTips", testRecentTips},
		{"OddNames", testOddNames},
		{"OneWinner", testOneWinner},
		{"ManyBranches", testManyBranches},
		{"Counter", testCounter},
		{"CreateRace", testCreateRace},
		{"AddPacks", testAddPacks},
		{"ReplacePacks", testReplacePacks},
		{"Tidy", testTidy},
		{"ForkSharing", testForkSharing},
		{"ForkRace", testForkRace},
		{"PackErrors", testPackErrors},
		{"LivePackKeys", testLivePackKeys},
		{"Events", testEvents},
		{"EventsConcurrent", testEventsConcurrent},
		{"EventOrgs", testEventOrgs},
		{"EventPages", testEventPages},
		{"PruneEvents", testPruneEvents},
		{"WebhooksOfRepos", testWebhooksOfRepos},
		{"Webhooks", testWebhooks},
		{"WebhookLease", testWebhookLease},
		{"Deliveries", testDeliveries},
		{"Idempotency", testIdempotency},
		{"IdempotencyRace", testIdempotencyRace},
		{"Credentials", testCredentials},
		{"Following", testFollowing},
		{"Syncs", testSyncs},
		{"Uploads", testUploads},
		{"RetireUpload", testRetireUpload},
		{"RetireUploadRace", testRetireUploadRace},
		{"Processes", testProcesses},
		{"Quotas", testQuotas},
		{"Reservations", testReservations},
		{"ReservationRace", testReservationRace},
		{"Accounts", testAccounts},
		{"Undelete", testUndelete},
		{"Retention", testRetention},
		{"Threads", testThreads},
		{"ThreadLists", testThreadLists},
		{"Leases", testLeases},
		{"LeaseRace", testLeaseRace},
		{"DeleteCheckpoints", testDeleteCheckpoints},
		{"ForkThreads", testForkThreads},
		{"Segments", testSegments},
		{"MalformedThreads", testMalformedThreads},
		{"LargeBlobs", testLargeBlobs},
		{"ContentPacks", testContentPacks},
		{"ContentQueries", testContentQueries},
		{"ContentIndexes", testContentIndexes},
		{"ContentUploads", testContentUploads},
		{"ContentRace", testContentRace},
		{"ContentQuota", testContentQuota},
		{"Clock", testClock},
		{"Cancelled", testCancelled},
		{"Malformed", testMalformed},
		{"Closed", testClosed},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open) })
	}
}

// fixture is a store with one org.
type fixture struct {
	testing.TB
	meta.Store
	ctx context.Context
	org meta.OrgID
}

func setUp(tb testing.TB, open Open) *fixture {
	tb.Helper()
	return setUpAt(tb, open, nil)
}

func setUpAt(tb testing.TB, open Open, clock func() time.Time) *fixture {
	tb.Helper()
	f := &fixture{TB: tb, Store: open(tb, clock), ctx: tb.Context()}
	f.org = f.newOrg("acme")
	return f
}

func newID() int64 { return meta.NewID(time.Now()) }

func (f *fixture) newOrg(name string) meta.OrgID {
	f.Helper()
	id := meta.OrgID(newID())
	f.apply(meta.Change{Org: id, CreateOrg: &meta.Org{Name: name}})
	return id
}

func (f *fixture) newRepo(name string) meta.RepoID {
	f.Helper()
	id := meta.RepoID(newID())
	f.apply(meta.Change{Org: f.org, Repo: id, CreateRepo: &meta.Repo{Name: name, DefaultBranch: "main"}})
	return id
}

// apply applies a Change that must be applied. A zero Org means the fixture's.
func (f *fixture) apply(c meta.Change) meta.Verdict {
	f.Helper()
	v, err := f.try(c)
	if err != nil {
		f.Fatalf("apply: %v", err)
	}
	if !v.Applied || v.Conflict != nil {
		f.Fatalf("apply: not applied, conflict %+v", v.Conflict)
	}
	return v
}

// refuse applies a Change that must be refused.
func (f *fixture) refuse(c meta.Change, kind meta.ConflictKind) *meta.Conflict {
	f.Helper()
	v, err := f.try(c)
	if err != nil {
		f.Fatalf("apply: %v", err)
	}
	if v.Applied || v.Conflict == nil {
		f.Fatalf("applied, want the conflict %q", kind)
	}
	if v.Conflict.Kind != kind {
		f.Fatalf("conflict %+v, want %q", v.Conflict, kind)
	}
	return v.Conflict
}

func (f *fixture) try(c meta.Change) (meta.Verdict, error) {
	if c.Org == 0 {
		c.Org = f.org
	}
	return f.Apply(f.ctx, c)
}

// move is a Change of one ref.
func move(repo meta.RepoID, name string, old, to object.ID) meta.Change {
	return meta.Change{
		Repo: repo, Refs: []meta.RefWrite{{Name: name, Old: old, New: to}}, Subject: "agent", Route: "git push",
	}
}

// noID is the value of a ref that does not exist.
var noID object.ID

// oid makes the nth object id.
func oid(n int) object.ID { return sha1.Sum(fmt.Appendf(nil, "object %d", n)) }

// smallPack makes a pack whose bytes are a row.
func smallPack(data string) *meta.PackWrite {
	return &meta.PackWrite{
		Pack: meta.Pack{
			ID: meta.PackID(newID()), Class: meta.PackInsert, Inline: true, Bytes: int64(len(data)), Objects: 3,
			Exact: true, Tips: []object.ID{oid(1), oid(2)}, Boundary: []object.ID{oid(3)},
		},
		Data: []byte(data),
	}
}

// bigPack makes a pack whose bytes are blobs, and begins its upload. Any goroutine
// may call it.
func (f *fixture) bigPack(key string) *meta.PackWrite {
	if err := f.BeginUpload(f.ctx, meta.Upload{Key: key, Process: "p"}); err != nil {
		f.Error(err)
	}
	return &meta.PackWrite{Pack: meta.Pack{
		ID: meta.PackID(newID()), Class: meta.PackReceive, Key: key, Bytes: 1 << 40, Objects: 1 << 20,
	}}
}

// must returns v, or ends the test.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func (f *fixture) repoRow(id meta.RepoID) meta.Repo {
	f.Helper()
	return must(f.Repo(f.ctx, id))(f)
}

// tip returns the value of a ref, zero when it does not exist.
func (f *fixture) tip(repo meta.RepoID, name string) object.ID {
	f.Helper()
	page := must(f.Refs(f.ctx, meta.RefQuery{Repo: repo, Names: []string{name}}))(f)
	if len(page.Refs) == 0 {
		return object.Zero
	}
	return page.Refs[0].ID
}

// packIDs returns the packs that a repository lists now.
func (f *fixture) packIDs(repo meta.RepoID) []meta.PackID {
	f.Helper()
	return must(f.PackIDs(f.ctx, f.repoRow(repo).PackSet))(f)
}

func refNames(refs []meta.Ref) []string {
	names := make([]string, len(refs))
	for i := range refs {
		names[i] = refs[i].Name
	}
	return names
}

func (f *fixture) wantErr(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("error %v, want %v", err, want)
	}
}

// manualClock is a clock that tests move.
type manualClock struct{ micros atomic.Int64 }

func newManualClock() *manualClock {
	c := new(manualClock)
	c.micros.Store(time.Date(2030, 1, 2, 3, 4, 5, 678000, time.UTC).UnixMicro())
	return c
}

func (c *manualClock) now() time.Time          { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *manualClock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

package metatest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// sized makes a small pack that says it has n bytes.
func sized(n int64) *meta.PackWrite {
	p := smallPack("x")
	p.Bytes = n
	return p
}

func (f *fixture) quota(q meta.OrgQuota) {
	f.Helper()
	f.apply(meta.Change{SetQuota: &q})
}

func (f *fixture) used() meta.Usage {
	f.Helper()
	return must(f.Usage(f.ctx, f.org, 0))(f)
}

func (f *fixture) beat(process string, lease time.Duration) {
	f.Helper()
	if err := f.Heartbeat(f.ctx, meta.Process{ID: process, Lease: lease}); err != nil {
		f.Fatal(err)
	}
}

func testQuotas(t *testing.T, open Open) {
	f := setUp(t, open)
	id, other := f.newRepo("r"), f.newRepo("other")
	f.apply(meta.Change{Repo: id, AddPack: sized(600)})
	org := func() meta.Org { return must(f.Gate(f.ctx, meta.GateQuery{Org: "acme"}))(t).Org }
	if org().Metered {
		t.Error("an org without limits is metered")
	}
	q := meta.OrgQuota{Bytes: 1000, RepoBytes: 900, Repos: 3}
	f.quota(q)
	if o := org(); !o.Metered || o.Quota != q {
		t.Errorf("org %+v", o)
	}
	f.apply(meta.Change{Repo: other, AddPack: sized(100)})
	c := f.refuse(meta.Change{Repo: other, AddPack: sized(301)}, meta.ConflictQuota)
	if want := (meta.QuotaConflict{Limit: 1000, Used: 700, Needed: 301}); *c.Quota != want {
		t.Errorf("refused by %+v, want %+v", *c.Quota, want)
	}
	c = f.refuse(meta.Change{Repo: id, AddPack: sized(301)}, meta.ConflictQuota)
	if want := (meta.QuotaConflict{OfRepo: true, Limit: 900, Used: 600, Needed: 301}); *c.Quota != want {
		t.Errorf("refused by %+v, want %+v", *c.Quota, want)
	}
	f.apply(meta.Change{Repo: id, AddPack: sized(300)})
	limit := func(n int64) { t.Helper(); f.apply(meta.Change{Repo: other, SetRepoQuota: &n}) }
	limit(50)
	f.quota(meta.OrgQuota{Repos: 3})
	f.refuse(meta.Change{Repo: other, AddPack: sized(1)}, meta.ConflictQuota)
	limit(meta.NoLimit)
	f.quota(q)
	f.quota(meta.OrgQuota{RepoBytes: 10, Repos: 3})
	f.apply(meta.Change{Repo: other, AddPack: sized(5000)})
	f.refuse(meta.Change{Repo: id, AddPack: sized(1)}, meta.ConflictQuota)
	if row := f.repoRow(other); row.Used != 5100 || row.Quota != meta.NoLimit {
		t.Errorf("row %+v", row)
	}

	f.newRepo("third")
	fourth := meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "fourth", DefaultBranch: "main"}}
	c = f.refuse(fourth, meta.ConflictQuota)
	if want := (meta.QuotaConflict{Repos: true, Limit: 3, Used: 3, Needed: 1}); *c.Quota != want {
		t.Errorf("refused by %+v, want %+v", *c.Quota, want)
	}
	f.apply(meta.Change{Repo: id, DeleteRepo: true})
	f.apply(fourth)
	f.refuse(meta.Change{Repo: id, UndeleteRepo: true}, meta.ConflictQuota)

	// A limit of one repository meters the org, and without any it is not.
	f.quota(meta.OrgQuota{})
	limit(6000)
	f.refuse(meta.Change{Repo: other, AddPack: sized(901)}, meta.ConflictQuota)
	limit(0)
	if org().Metered {
		t.Error("an org whose limits were removed is metered")
	}
	f.apply(meta.Change{Repo: other, AddPack: sized(1 << 40)})
	for _, bad := range []meta.Change{
		{SetQuota: &meta.OrgQuota{Bytes: -1}},
		{Reserve: &meta.Reserve{ID: ""}},
		{Repo: other, Reserve: &meta.Reserve{ID: "x", Repo: other}},
		{UndeleteRepo: true},
	} {
		_, err := f.try(bad)
		f.wantErr(err, meta.ErrNotApplied)
	}
}

func testReservations(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id, other := f.newRepo("r"), f.newRepo("other")
	reserve := func(name string, repo meta.RepoID, bytes, want int64) meta.Change {
		return meta.Change{Reserve: &meta.Reserve{ID: name, Process: "p", Repo: repo, Bytes: bytes, Want: want}}
	}
	if v := f.apply(reserve("free", id, 5, 50)); v.Granted != 50 || len(must(f.Reservations(f.ctx))(t)) != 0 {
		t.Errorf("granted %d in an org without limits", v.Granted)
	}
	f.beat("p", time.Minute)
	f.quota(meta.OrgQuota{Bytes: 1000, RepoBytes: 600})
	before := f.repoRow(id)
	if v := f.apply(reserve("a", id, 100, 400)); v.Granted != 400 {
		t.Errorf("granted %d", v.Granted)
	}
	if v := f.apply(reserve("b", id, 100, 400)); v.Granted != 200 {
		t.Errorf("granted %d of what the repository has left", v.Granted)
	}
	c := f.refuse(reserve("c", id, 1, 1), meta.ConflictQuota)
	if want := (meta.QuotaConflict{OfRepo: true, Limit: 600, Reserved: 600, Needed: 1}); *c.Quota != want {
		t.Errorf("refused by %+v, want %+v", *c.Quota, want)
	}
	f.refuse(reserve("c", other, 401, 401), meta.ConflictQuota)
	f.apply(reserve("a", id, 400, 400)) // in its own place
	if row := f.repoRow(id); row != before {
		t.Errorf("a reservation made the row %+v of %+v", row, before)
	}
	if u := f.used(); u.Reserved != 600 || u.Bytes != 0 {
		t.Errorf("usage %+v", u)
	}
	if u := must(f.Usage(f.ctx, f.org, other))(t); u.Reserved != 0 {
		t.Errorf("usage of another repository %+v", u)
	}
	// The Change that the reservation is for turns it into use.
	f.refuse(meta.Change{Repo: id, AddPack: sized(350)}, meta.ConflictQuota)
	f.apply(meta.Change{Repo: id, AddPack: sized(350), Reservation: "a"})
	if u := f.used(); u.Reserved != 200 || u.Bytes != 350 || u.Packs != 1 || u.Objects != 3 {
		t.Errorf("usage %+v", u)
	}
	rows := must(f.Reservations(f.ctx))(t)
	if want := (meta.Reservation{ID: "b", Process: "p", Org: f.org, Repo: id, Bytes: 200, At: clock.now()}); len(rows) != 1 || rows[0] != want {
		t.Errorf("reservations %+v, want %+v", rows, want)
	}
	// One whose process is gone counts no more.
	clock.advance(2 * time.Minute)
	f.beat("q", time.Minute)
	if u := f.used(); u.Reserved != 0 {
		t.Errorf("usage %+v", u)
	}
	f.apply(meta.Change{Repo: id, AddPack: sized(250), Reservation: "c"})
	if err := f.EndReservations(f.ctx, []string{"b", "nothing"}); err != nil || len(must(f.Reservations(f.ctx))(t)) != 0 {
		t.Errorf("the reservation stays: %v", err)
	}
	f.apply(meta.Change{Repo: id, DeleteRepo: true})
	f.refuse(reserve("d", id, 0, 0), meta.ConflictRepoGone)
}

// testReservationRace: however many ask at once, no limit is crossed.
func testReservationRace(t *testing.T, open Open) {
	f := setUp(t, open)
	f.beat("p", time.Hour)
	repos := []meta.RepoID{f.newRepo("a"), f.newRepo("b"), f.newRepo("c")}
	f.quota(meta.OrgQuota{Bytes: 1000})
	var all sync.WaitGroup
	var mu sync.Mutex
	var sum int64
	for i := range 60 {
		all.Go(func() {
			c := meta.Change{Org: f.org, Repo: repos[i%3], AddPack: sized(50)}
			if i%2 == 0 {
				c = meta.Change{Org: f.org, Reserve: &meta.Reserve{ID: fmt.Sprint(i), Process: "p", Repo: repos[i%3], Bytes: 50, Want: 50}}
			}
			v, err := f.Apply(f.ctx, c)
			if err != nil || !v.Applied && v.Conflict.Kind != meta.ConflictQuota {
				t.Errorf("%+v, %v", v, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if v.Applied {
				sum += 50
			}
		})
	}
	all.Wait()
	if u := f.used(); sum != 1000 || u.Bytes+u.Reserved != 1000 {
		t.Errorf("granted %d of 1000, usage %+v", sum, u)
	}
}

// testAccounts: after random work the bytes that were counted are those that
// counting anew finds, and those that the test expects.
func testAccounts(t *testing.T, open Open) {
	f := setUp(t, open)
	const limit = 1 << 40
	f.quota(meta.OrgQuota{Bytes: limit})
	random := rand.New(rand.NewPCG(7, 11))
	var repos []meta.RepoID
	deleted := map[meta.RepoID]bool{}
	for step := range 200 {
		if len(repos) < 3 {
			repos = append(repos, f.newRepo(fmt.Sprint("repo", step)))
		}
		at := random.IntN(len(repos))
		id := repos[at]
		packs := f.packIDs(id)
		switch op := random.IntN(10); {
		case deleted[id] && op < 5:
			f.apply(meta.Change{Repo: id, PurgeRepo: true})
			repos = append(repos[:at], repos[at+1:]...)
		case deleted[id] && op < 7:
			f.apply(meta.Change{Repo: id, EmptyRepo: time.Now().Add(time.Hour)})
			repos = append(repos[:at], repos[at+1:]...)
		case deleted[id]:
			f.apply(meta.Change{Repo: id, UndeleteRepo: true})
			deleted[id] = false
		case op < 5:
			f.apply(meta.Change{Repo: id, AddPack: sized(1 + random.Int64N(1000))})
		case op < 7 && len(packs) > 1:
			f.apply(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{
				Remove: packs[:1+random.IntN(len(packs)-1)], Add: []meta.PackWrite{*sized(1 + random.Int64N(1000))},
			}})
		case op < 9:
			repos = append(repos, f.fork(fmt.Sprint("fork", step), id))
		default:
			f.apply(meta.Change{Repo: id, DeleteRepo: true})
			deleted[id] = true
		}
	}
	live := int64(0)
	seen := map[meta.PackID]bool{}
	var sum int64
	for _, id := range repos {
		if !deleted[id] {
			live++
		}
		var own int64
		for _, p := range must(f.PackSet(f.ctx, f.repoRow(id).PackSet))(t) {
			if p.Repo == id {
				own += p.Bytes
			}
			if !seen[p.ID] {
				sum += p.Bytes
			}
			seen[p.ID] = true
		}
		if row := f.repoRow(id); row.Used != own {
			t.Errorf("repository %s has %d bytes counted, and %d", row.Name, row.Used, own)
		}
		if u := must(f.Usage(f.ctx, f.org, id))(t); u.Bytes != own {
			t.Errorf("usage %+v, want %d bytes", u, own)
		}
	}
	u := f.used()
	if u.Bytes != sum || u.Repos != live || u.DeletedRepos != int64(len(repos))-live {
		t.Errorf("usage %+v, want %d bytes, %d of %d repositories live", u, sum, live, len(repos))
	}
	// What the org has counted shows in what it refuses.
	fresh := f.newRepo("fresh")
	c := f.refuse(meta.Change{Repo: fresh, AddPack: sized(limit + 1)}, meta.ConflictQuota)
	if c.Quota.Used != sum {
		t.Errorf("the org has %d bytes counted, and %d", c.Quota.Used, sum)
	}
	f.quota(meta.OrgQuota{Repos: live + 1})
	c = f.refuse(meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "more", DefaultBranch: "main"}}, meta.ConflictQuota)
	if c.Quota.Used != live+1 {
		t.Errorf("the org has %d repositories counted, and %d", c.Quota.Used, live+1)
	}
}

func testUndelete(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	f.apply(meta.Change{Repo: id, AddPack: f.bigPack("packs/1")})
	f.apply(move(id, "refs/heads/main", noID, oid(1)))
	f.refuse(meta.Change{Repo: id, UndeleteRepo: true}, meta.ConflictNotDeleted)
	f.refuse(meta.Change{Repo: id, EmptyRepo: clock.now()}, meta.ConflictNotDeleted)
	f.apply(meta.Change{Repo: id, DeleteRepo: true})
	at := clock.now()
	f.apply(meta.Change{Repo: id, UndeleteRepo: true})
	if row := f.repoRow(id); !row.Deleted.IsZero() || f.tip(id, "refs/heads/main") != oid(1) {
		t.Errorf("row %+v", row)
	}
	f.apply(move(id, "refs/heads/main", oid(1), oid(2)))
	clock.advance(time.Hour)
	f.apply(meta.Change{Repo: id, DeleteRepo: true})
	if rows := must(f.DeletedRepos(f.ctx, at, 0, 10))(t); len(rows) != 0 {
		t.Errorf("deleted by then: %+v", rows)
	}
	f.refuse(meta.Change{Repo: id, EmptyRepo: at}, meta.ConflictNotDeleted) // it was deleted later
	rows := must(f.DeletedRepos(f.ctx, clock.now(), 0, 10))(t)
	if len(rows) != 1 || rows[0].ID != id || len(must(f.DeletedRepos(f.ctx, clock.now(), id, 10))(t)) != 0 {
		t.Errorf("deleted: %+v", rows)
	}
	f.apply(meta.Change{Repo: id, EmptyRepo: clock.now()})
	row := f.repoRow(id)
	if !row.Emptied || row.PackSet != 0 || row.Used != 0 || !f.tip(id, "refs/heads/main").IsZero() {
		t.Errorf("row %+v", row)
	}
	if retired := must(f.Retired(f.ctx, clock.now(), 10))(t); len(retired) != 1 {
		t.Errorf("retired %+v", retired)
	}
	if rows := must(f.DeletedRepos(f.ctx, clock.now(), 0, 10))(t); len(rows) != 0 {
		t.Errorf("deleted and not emptied: %+v", rows)
	}
	f.refuse(meta.Change{Repo: id, UndeleteRepo: true}, meta.ConflictRepoGone)
	f.refuse(meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "r", DefaultBranch: "main"}}, meta.ConflictDeleted)
	f.apply(meta.Change{Repo: id, PurgeRepo: true})
	f.newRepo("r")
}

func testRetention(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	a, b := f.newRepo("a"), f.newRepo("b")
	f.newRepo("c")
	ages := func(want string) {
		t.Helper()
		got := ""
		for after := meta.RepoID(0); ; {
			rows := must(f.RetainedRepos(f.ctx, after, 1))(t)
			if len(rows) == 0 {
				break
			}
			after = rows[0].ID
			got += fmt.Sprintf("%s %v;", rows[0].Name, rows[0].Age)
		}
		if got != want {
			t.Errorf("retained %q, want %q", got, want)
		}
	}
	age := func(id meta.RepoID, d time.Duration) { t.Helper(); f.apply(meta.Change{Repo: id, SetRepoAge: &d}) }
	ages("")
	age(a, time.Hour)
	ages("a 1h0m0s;")
	day := 24 * time.Hour
	f.apply(meta.Change{SetEphemeralAge: &day})
	age(b, meta.NeverRetire)
	ages("a 1h0m0s;c 24h0m0s;")
	age(a, 0)
	f.apply(meta.Change{Repo: a, DeleteRepo: true})
	ages("c 24h0m0s;")

	const prefix = "refs/namespaces/ephemeral/refs/heads/"
	stale := func(want string) {
		t.Helper()
		got := ""
		for after := ""; ; {
			refs := must(f.StaleRefs(f.ctx, meta.StaleQuery{Repo: b, Prefix: prefix, Before: clock.now(), After: after, Limit: 1}))(t)
			if len(refs) == 0 {
				break
			}
			after = refs[0].Name
			got += after[len(prefix):] + ";"
		}
		if got != want {
			t.Errorf("stale %q, want %q", got, want)
		}
	}
	for _, name := range []string{prefix + "x", prefix + "y", "refs/heads/x"} {
		f.apply(move(b, name, noID, oid(1)))
	}
	stale("")
	clock.advance(time.Second)
	stale("x;y;")
	f.apply(move(b, prefix+"x", oid(1), oid(2)))
	stale("y;")
	clock.advance(time.Second)
	f.apply(move(b, prefix+"y", oid(1), noID))
	f.apply(move(b, prefix+"y", noID, oid(1)))
	stale("x;")
	u := must(f.Usage(f.ctx, f.org, b))(t)
	if want := (meta.RefCounts{Branches: 1, Ephemeral: 2}); u.Refs != want {
		t.Errorf("refs %+v, want %+v", u.Refs, want)
	}
}

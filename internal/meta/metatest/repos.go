package metatest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func testCreateRepo(t *testing.T, open Open) {
	f := setUp(t, open)
	id := meta.RepoID(newID())
	v := f.apply(meta.Change{
		Repo: id, CreateRepo: &meta.Repo{Name: "r", DefaultBranch: "trunk", Tidy: true}, AddPack: smallPack("x"),
		Refs: []meta.RefWrite{{Name: "refs/heads/trunk", New: oid(1)}, {Name: "refs/heads/a/b", New: oid(2)}},
	})
	row := f.repoRow(id)
	if v.Version != 1 || row.Version != 1 || row.ID != id || row.Org != f.org || row.Name != "r" || row.DefaultBranch != "trunk" ||
		!row.Tidy || row.Source != 0 || row.PackSet == 0 || row.CreatedAt.IsZero() || !row.Deleted.IsZero() {
		t.Errorf("verdict %+v, row %+v", v, row)
	}
	page := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t)
	if page.Version != 1 || len(page.Refs) != 2 || page.Refs[0].CreatedVersion != 1 {
		t.Errorf("refs %+v", page)
	}
	f.refuse(meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "r"}}, meta.ConflictName)
	f.refuse(meta.Change{Repo: id, CreateRepo: &meta.Repo{Name: "q"}}, meta.ConflictID)
	f.refuse(meta.Change{Org: meta.OrgID(newID()), Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "q"}}, meta.ConflictOrgGone)
	clash := f.refuse(meta.Change{
		Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "q"},
		Refs: []meta.RefWrite{{Name: "refs/heads/a", New: oid(1)}, {Name: "refs/heads/a/b", New: oid(2)}},
	}, meta.ConflictRefPath)
	if clash.Ref == clash.Other {
		t.Errorf("conflict %+v", clash)
	}
	if gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "q"}))(t); gate.Repo.ID != 0 {
		t.Error("a refused Change has made a repository")
	}
	// The same name in another org is free; the repository of one org is not there for another.
	beta := f.newOrg("beta")
	f.apply(meta.Change{Org: beta, Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "r"}})
	foreign := move(id, "refs/heads/x", noID, oid(1))
	foreign.Org = beta
	f.refuse(foreign, meta.ConflictRepoGone)
}

func testDeleteAndPurge(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	f.apply(meta.Change{
		Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/main", New: oid(1)}}, AddPack: f.bigPack("packs/one"),
		SetProtections: &[]meta.Protection{{Pattern: "refs/heads/main", Ops: []string{"no-push"}}},
		Events:         []meta.Event{{Type: "push", Body: []byte(`{}`)}},
	})
	f.apply(meta.Change{Repo: id, AddPack: smallPack("small")})
	small := f.packIDs(id)[1]
	f.apply(meta.Change{RaiseFloors: []meta.Floor{
		{Kind: meta.FloorRef, Repo: id, Target: "refs/heads/main", NotBefore: 3}, {Kind: meta.FloorRepo, Target: "r", NotBefore: 4},
	}})
	f.refuse(meta.Change{Repo: id, PurgeRepo: true}, meta.ConflictNotDeleted)
	f.apply(meta.Change{Repo: id, DeleteRepo: true})
	f.refuse(meta.Change{Repo: id, DeleteRepo: true}, meta.ConflictDeleted)
	f.refuse(move(id, "refs/heads/x", noID, oid(2)), meta.ConflictRepoGone)
	f.refuse(meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "r"}}, meta.ConflictDeleted)
	if row := f.repoRow(id); row.Deleted.IsZero() {
		t.Error("a deleted repository has no time of deletion")
	}
	if list := must(f.ListRepos(f.ctx, meta.RepoQuery{Org: f.org, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("a deleted repository is listed: %+v", list)
	}
	if retired := must(f.Retired(f.ctx, time.Now().Add(time.Hour), 10))(t); len(retired) != 0 {
		t.Errorf("deletion alone retired %+v", retired)
	}

	f.apply(meta.Change{Repo: id, PurgeRepo: true})
	_, err := f.Repo(f.ctx, id)
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.Refs(f.ctx, meta.RefQuery{Repo: id})
	f.wantErr(err, meta.ErrNotFound)
	if log, _, err := f.RefLog(f.ctx, id, 0, 10); err != nil || len(log) != 0 {
		t.Errorf("ref log of a purged repository: %v, %v", log, err)
	}
	if rules := must(f.Protections(f.ctx, id))(t); len(rules) != 0 {
		t.Errorf("rules of a purged repository: %v", rules)
	}
	_, err = f.SmallPacks(f.ctx, []meta.PackID{small})
	f.wantErr(err, meta.ErrNotFound)
	if retired := must(f.Retired(f.ctx, time.Now().Add(time.Hour), 10))(t); len(retired) != 1 || retired[0].Key != "packs/one" {
		t.Errorf("retired %+v", retired)
	}
	floors := must(f.Floors(f.ctx, f.org))(t)
	if len(floors) != 1 || floors[0].Kind != meta.FloorRepo {
		t.Errorf("floors %+v: want that on the name alone", floors)
	}
	f.refuse(meta.Change{Repo: id, PurgeRepo: true}, meta.ConflictRepoGone)
	if events := must(f.Events(f.ctx, f.org, 0, 10))(t); len(events) != 1 {
		t.Errorf("events %+v after the purge", events)
	}

	again := f.newRepo("r")
	if row := f.repoRow(again); row.Version != 1 || row.PackSet != 0 || f.tip(again, "refs/heads/main") != noID {
		t.Errorf("a new repository under the old name has %+v", row)
	}
}

func testRepoSettings(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	rules := []meta.Protection{
		{Pattern: "refs/heads/main", Ops: []string{"no-force-push", "no-delete"}}, {Pattern: "refs/tags/*"},
	}
	f.apply(meta.Change{Repo: id, SetDefaultBranch: "trunk", SetProtections: &rules})
	if row := f.repoRow(id); row.DefaultBranch != "trunk" || row.Version != 2 {
		t.Errorf("row %+v", row)
	}
	got := must(f.Protections(f.ctx, id))(t)
	if len(got) != 2 || got[0].Pattern != rules[0].Pattern || !slices.Equal(got[0].Ops, rules[0].Ops) ||
		got[1].Pattern != rules[1].Pattern || len(got[1].Ops) != 0 {
		t.Errorf("rules %+v", got)
	}
	f.apply(meta.Change{Repo: id, SetProtections: &[]meta.Protection{}})
	if got := must(f.Protections(f.ctx, id))(t); len(got) != 0 {
		t.Errorf("rules %+v after all were removed", got)
	}
	if row := f.repoRow(id); row.DefaultBranch != "trunk" {
		t.Errorf("default branch %q after an unrelated Change", row.DefaultBranch)
	}
}

func testListRepos(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	var ids []meta.RepoID
	for i := range 25 {
		ids = append(ids, f.newRepo(fmt.Sprintf("repo-%02d", i)))
		if i%5 == 4 { // groups of five share a time
			clock.advance(time.Second)
		}
	}
	slices.Reverse(ids)
	f.apply(meta.Change{Repo: ids[3], DeleteRepo: true})
	want := slices.Delete(slices.Clone(ids), 3, 4)

	q := meta.RepoQuery{Org: f.org, Limit: 4}
	var got []meta.RepoID
	for page := 0; ; page++ {
		repos := must(f.ListRepos(f.ctx, q))(t)
		for _, r := range repos {
			got = append(got, r.ID)
		}
		if len(repos) < q.Limit {
			break
		}
		last := repos[len(repos)-1]
		q.BeforeCreated, q.BeforeID = last.CreatedAt, last.ID
		f.newRepo(fmt.Sprintf("later-%d", page)) // newer ones do not move the pages
	}
	sortedWant := slices.Clone(want)
	slices.SortStableFunc(sortedWant, func(a, b meta.RepoID) int {
		ra, rb := f.repoRow(a), f.repoRow(b)
		if c := rb.CreatedAt.Compare(ra.CreatedAt); c != 0 {
			return c
		}
		return int(rb.ID - ra.ID)
	})
	if !slices.Equal(got, sortedWant) {
		t.Errorf("pages gave %v, want %v", got, sortedWant)
	}

	f.newRepo("Ünï-Mixed")
	for contains, want := range map[string]int{"REPO-1": 10, "repo-07": 1, "mixed": 1, "ÜNÏ": 0, "Ünï": 1, "zzz": 0, "%": 0, "_": 0} {
		if got := must(f.ListRepos(f.ctx, meta.RepoQuery{Org: f.org, Contains: contains, Limit: 100}))(t); len(got) != want {
			t.Errorf("%d names contain %q, want %d", len(got), contains, want)
		}
	}
	if got := must(f.ListRepos(f.ctx, meta.RepoQuery{Org: f.org, Contains: "repo-1", Limit: 3}))(t); len(got) != 3 {
		t.Errorf("a limit of 3 gave %d", len(got))
	}
	if got := must(f.ListRepos(f.ctx, meta.RepoQuery{Org: f.newOrg("beta"), Limit: 3}))(t); len(got) != 0 {
		t.Errorf("another org lists %v", got)
	}
}

// testVersions: every applied Change of a repository takes the next version,
// whatever it writes, and a refused one takes none.
func testVersions(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	want := int64(1)
	for _, c := range []meta.Change{
		{Repo: id},
		move(id, "refs/heads/main", noID, oid(1)),
		{Repo: id, AddPack: smallPack("x")},
		{Repo: id, Untidy: true},
		{Repo: id, SetDefaultBranch: "main"},
		{Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/main", Old: oid(1), VerifyOnly: true}}},
		{Repo: id, Events: []meta.Event{{Type: "x"}}},
		{Repo: id, DeleteRepo: true},
	} {
		want++
		if v := f.apply(c); v.Version != want {
			t.Errorf("version %d, want %d", v.Version, want)
		}
	}
	f.refuse(meta.Change{Repo: id}, meta.ConflictRepoGone)
	if row := f.repoRow(id); row.Version != want {
		t.Errorf("row has version %d, want %d", row.Version, want)
	}
}

// testCreateRace: of many Changes that make one name, exactly one wins.
func testCreateRace(t *testing.T, open Open) {
	f := setUp(t, open)
	for round := range 5 {
		name := fmt.Sprintf("r%d", round)
		var mu sync.Mutex
		var won []meta.RepoID
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				id := meta.RepoID(newID())
				v, err := f.try(meta.Change{Repo: id, CreateRepo: &meta.Repo{Name: name, DefaultBranch: "main"}})
				if err != nil {
					t.Errorf("apply: %v", err)
				} else if v.Applied {
					mu.Lock()
					won = append(won, id)
					mu.Unlock()
				} else if v.Conflict.Kind != meta.ConflictName {
					t.Errorf("conflict %+v", v.Conflict)
				}
			})
		}
		all.Wait()
		gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: name}))(t)
		if len(won) != 1 || gate.Repo.ID != won[0] {
			t.Fatalf("winners %v, the name belongs to %d", won, gate.Repo.ID)
		}
	}
}

package metatest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func testAddPacks(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	if set := f.repoRow(id).PackSet; set != 0 {
		t.Errorf("a new repository has the pack set %d", set)
	}
	if packs := must(f.PackSet(f.ctx, 0))(t); len(packs) != 0 {
		t.Errorf("set 0 lists %v", packs)
	}
	small, big := smallPack("bytes of a pack"), f.bigPack("packs/1")
	f.apply(meta.Change{Repo: id, AddPack: small})
	first := f.repoRow(id).PackSet
	f.apply(meta.Change{Repo: id, AddPack: big})
	set := f.repoRow(id).PackSet
	if set == first || first == 0 {
		t.Errorf("sets %d and %d: a set never changes", first, set)
	}
	_, err := f.PackSet(f.ctx, first)
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.PackIDs(f.ctx, first)
	f.wantErr(err, meta.ErrNotFound)

	want := []meta.Pack{small.Pack, big.Pack}
	for i := range want {
		want[i].Repo, want[i].CreatedAt = id, clock.now()
	}
	listed := []meta.ListedPack{{Pack: want[0]}, {Pack: want[1]}}
	if packs := must(f.PackSet(f.ctx, set))(t); !reflect.DeepEqual(packs, listed) {
		t.Errorf("packs\n%+v, want\n%+v", packs, listed)
	}
	slices.Reverse(want)
	if packs := must(f.PacksByID(f.ctx, []meta.PackID{big.ID, small.ID}))(t); !reflect.DeepEqual(packs, want) {
		t.Errorf("packs by id\n%+v, want\n%+v", packs, want)
	}
	if data := must(f.SmallPacks(f.ctx, []meta.PackID{small.ID}))(t); len(data) != 1 || string(data[0]) != "bytes of a pack" {
		t.Errorf("data %q", data)
	}
	f.refuse(meta.Change{Repo: id, AddPack: small}, meta.ConflictID)
	f.refuse(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{Add: []meta.PackWrite{*big}}}, meta.ConflictID)

	// Many at once, in the order of their versions.
	var mu sync.Mutex
	order := map[int64]meta.PackID{}
	var all sync.WaitGroup
	for i := range 50 {
		p := smallPack(fmt.Sprint("pack ", i))
		all.Go(func() {
			v, err := f.try(meta.Change{Repo: id, AddPack: p})
			if err != nil || !v.Applied {
				t.Errorf("add: %+v, %v", v, err)
			}
			mu.Lock()
			order[v.Version] = p.ID
			mu.Unlock()
		})
	}
	all.Wait()
	ids := f.packIDs(id)
	for i, pack := range ids[2:] {
		if order[int64(i+4)] != pack {
			t.Fatalf("pack %d of the set is not the one of version %d", i+2, i+4)
		}
	}
	data := must(f.SmallPacks(f.ctx, ids[2:]))(t)
	if len(data) != 50 {
		t.Errorf("%d small packs", len(data))
	}
}

func testReplacePacks(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	packs := []*meta.PackWrite{f.bigPack("p/0"), smallPack("1"), f.bigPack("p/2"), smallPack("3"), f.bigPack("p/4")}
	for _, p := range packs {
		f.apply(meta.Change{Repo: id, AddPack: p})
	}
	merged, extra := f.bigPack("p/merged"), smallPack("extra")
	f.apply(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{
		Remove: []meta.PackID{packs[3].ID, packs[1].ID, packs[2].ID}, Add: []meta.PackWrite{*merged, *extra},
	}})
	want := []meta.PackID{packs[0].ID, merged.ID, extra.ID, packs[4].ID}
	if got := f.packIDs(id); !slices.Equal(got, want) {
		t.Errorf("set %v, want %v", got, want)
	}
	before := f.repoRow(id)
	late := f.bigPack("p/late")
	f.refuse(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{
		Remove: []meta.PackID{packs[0].ID, packs[1].ID}, Add: []meta.PackWrite{*late},
	}}, meta.ConflictPackSet)
	f.refuse(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{
		Remove: []meta.PackID{packs[0].ID}, Add: []meta.PackWrite{*late}, Keep: []meta.PackID{packs[4].ID, packs[1].ID},
	}}, meta.ConflictPackSet)
	if after := f.repoRow(id); after != before {
		t.Errorf("row %+v after a refusal, was %+v", after, before)
	}
	_, err := f.PacksByID(f.ctx, []meta.PackID{packs[2].ID})
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.SmallPacks(f.ctx, []meta.PackID{packs[1].ID})
	f.wantErr(err, meta.ErrNotFound)
	if retired := must(f.Retired(f.ctx, time.Now().Add(time.Hour), 10))(t); len(retired) != 1 || retired[0].Key != "p/2" {
		t.Errorf("retired %+v, want p/2 alone", retired)
	}
	f.apply(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{Remove: want[2:3], Keep: []meta.PackID{packs[4].ID, packs[0].ID}}})
	want = slices.Delete(want, 2, 3)
	// All packs away: the repository has no set.
	f.apply(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{Remove: want}})
	if row := f.repoRow(id); row.PackSet != 0 {
		t.Errorf("an empty set is %d", row.PackSet)
	}
	f.apply(meta.Change{Repo: id, AddPack: late})
	if got := f.packIDs(id); !slices.Equal(got, []meta.PackID{late.ID}) {
		t.Errorf("set %v", got)
	}
}

func testTidy(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	tidy := func(want bool) {
		t.Helper()
		if got := f.repoRow(id).Tidy; got != want {
			t.Fatalf("tidy is %v, want %v", got, want)
		}
	}
	replace := func(at int64, tidy bool) meta.Change {
		return meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{
			Remove: f.packIDs(id), Add: []meta.PackWrite{*smallPack("x")}, Tidy: tidy, AtVersion: at,
		}}
	}
	tidy(false)
	v := f.apply(replace(1, true))
	tidy(true)
	f.apply(meta.Change{Repo: id, AddPack: smallPack("y")})
	tidy(true)
	f.apply(meta.Change{Repo: id, Untidy: true})
	tidy(false)
	f.apply(replace(v.Version, true)) // something happened since
	tidy(false)
	f.apply(replace(f.repoRow(id).Version, false))
	tidy(false)
	f.apply(replace(f.repoRow(id).Version, true))
	tidy(true)
}

func (f *fixture) fork(name string, source meta.RepoID) meta.RepoID {
	f.Helper()
	id := meta.RepoID(newID())
	set := f.repoRow(source).PackSet
	f.apply(meta.Change{
		Repo: id, SourcePackSet: set, CreateRepo: &meta.Repo{Name: name, DefaultBranch: "main", Source: source, PackSet: set},
		Refs: []meta.RefWrite{{Name: "refs/heads/main", New: oid(1)}},
	})
	return id
}

// testForkSharing: a fork shares its source's set until one of them changes;
// packs live as long as any set lists them.
func testForkSharing(t *testing.T, open Open) {
	f := setUp(t, open)
	parent := f.newRepo("parent")
	shared, small := f.bigPack("p/shared"), smallPack("small")
	f.apply(meta.Change{Repo: parent, AddPack: shared})
	f.apply(meta.Change{Repo: parent, AddPack: small})
	set := f.repoRow(parent).PackSet
	fork := f.fork("fork", parent)
	grandchild := f.fork("grandchild", fork)
	if row := f.repoRow(fork); row.PackSet != set || row.Source != parent || row.Version != 1 {
		t.Errorf("fork %+v, set of the parent %d", row, set)
	}
	shares := func(repo meta.RepoID, want ...bool) {
		t.Helper()
		var got []bool
		for _, p := range must(f.PackSet(f.ctx, f.repoRow(repo).PackSet))(t) {
			got = append(got, p.Shared)
		}
		if !slices.Equal(got, want) {
			t.Errorf("packs that others list too: %v, want %v", got, want)
		}
	}
	shares(parent, true, true)
	gone := func() []string {
		var keys []string
		for _, r := range must(f.Retired(f.ctx, time.Now().Add(time.Hour), 10))(t) {
			keys = append(keys, r.Key)
		}
		slices.Sort(keys)
		return keys
	}

	own := f.bigPack("p/own")
	f.apply(meta.Change{Repo: fork, AddPack: own})
	if got := f.packIDs(fork); !slices.Equal(got, []meta.PackID{shared.ID, small.ID, own.ID}) {
		t.Errorf("fork lists %v", got)
	}
	if f.repoRow(parent).PackSet != set || f.repoRow(grandchild).PackSet != set {
		t.Error("a pack of the fork has moved its relatives")
	}
	shares(fork, true, true, false)
	shares(parent, true, true)
	// The parent compacts: what it drops is still listed by the others.
	f.apply(meta.Change{Repo: parent, ReplacePacks: &meta.PackReplace{
		Remove: []meta.PackID{shared.ID, small.ID}, Add: []meta.PackWrite{*f.bigPack("p/compact")},
	}})
	shares(parent, false)
	shares(grandchild, true, true)
	f.apply(meta.Change{Repo: parent, DeleteRepo: true, PurgeRepo: true})
	if keys := gone(); !slices.Equal(keys, []string{"p/compact"}) {
		t.Errorf("retired %v after the parent's end", keys)
	}
	if packs := must(f.PackSet(f.ctx, f.repoRow(grandchild).PackSet))(t); len(packs) != 2 || packs[0].Key != "p/shared" {
		t.Errorf("grandchild lists %+v", packs)
	}
	if row := f.repoRow(fork); row.Source != parent {
		t.Errorf("source %d", row.Source)
	}
	f.apply(meta.Change{Repo: grandchild, DeleteRepo: true, PurgeRepo: true})
	shares(fork, false, false, false)
	if keys := gone(); !slices.Equal(keys, []string{"p/compact"}) {
		t.Errorf("retired %v while the fork lists the packs", keys)
	}
	if data := must(f.SmallPacks(f.ctx, []meta.PackID{small.ID}))(t); string(data[0]) != "small" {
		t.Errorf("data %q", data)
	}
	f.apply(meta.Change{Repo: fork, DeleteRepo: true})
	f.apply(meta.Change{Repo: fork, PurgeRepo: true})
	if keys := gone(); !slices.Equal(keys, []string{"p/compact", "p/own", "p/shared"}) {
		t.Errorf("retired %v after the last reader's end", keys)
	}
	_, err := f.SmallPacks(f.ctx, []meta.PackID{small.ID})
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.PackSet(f.ctx, set)
	f.wantErr(err, meta.ErrNotFound)

	// A fork of a source that moved, or that is not there, is refused.
	source := f.newRepo("source")
	empty := f.fork("fork of nothing", source)
	if row := f.repoRow(empty); row.PackSet != 0 || row.Source != source {
		t.Errorf("fork of a repository without packs %+v", row)
	}
	f.apply(meta.Change{Repo: source, AddPack: f.bigPack("p/x")})
	create := meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "late", Source: source}}
	f.refuse(create, meta.ConflictSource)
	create.CreateRepo.Source = meta.RepoID(newID())
	f.refuse(create, meta.ConflictSource)
	f.apply(meta.Change{Repo: source, DeleteRepo: true})
	create.CreateRepo.Source, create.SourcePackSet = source, f.repoRow(source).PackSet
	f.refuse(create, meta.ConflictSource)
	// Another org's repository is no source.
	create.CreateRepo.Source, create.SourcePackSet = empty, 0
	create.Org = f.newOrg("beta")
	f.refuse(create, meta.ConflictSource)
}

// testForkRace: while a source changes and its forks come, change and go, each
// repository can always read its packs, and in the end nothing is left over.
func testForkRace(t *testing.T, open Open) {
	f := setUp(t, open)
	source := f.newRepo("source")
	f.apply(meta.Change{Repo: source, AddPack: f.bigPack("p/first")})
	readable := func(id meta.RepoID) {
		for {
			row, err := f.Repo(f.ctx, id)
			if err != nil {
				t.Errorf("row: %v", err)
				return
			}
			_, err = f.PackSet(f.ctx, row.PackSet)
			if err == nil {
				return
			}
			again, e := f.Repo(f.ctx, id)
			if e != nil || !errors.Is(err, meta.ErrNotFound) || again.PackSet == row.PackSet {
				t.Errorf("pack set of repository %d: %v (%v)", id, err, e)
				return
			}
		}
	}
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for n := range 12 {
				id := meta.RepoID(newID())
				for {
					row, err := f.Repo(f.ctx, source)
					if err != nil {
						t.Errorf("source: %v", err)
						return
					}
					v, err := f.try(meta.Change{Repo: id, SourcePackSet: row.PackSet, CreateRepo: &meta.Repo{
						Name: fmt.Sprintf("fork-%d-%d", w, n), Source: source, PackSet: row.PackSet,
					}})
					if err != nil {
						t.Errorf("fork: %v", err)
						return
					}
					if v.Applied {
						break
					}
					if v.Conflict.Kind != meta.ConflictSource {
						t.Errorf("fork: %+v", v.Conflict)
						return
					}
				}
				readable(id)
				if v, err := f.try(meta.Change{Repo: id, AddPack: f.bigPack(fmt.Sprintf("p/%d/%d", w, n))}); err != nil || !v.Applied {
					t.Errorf("add: %+v, %v", v.Conflict, err)
				}
				readable(id)
				if v, err := f.try(meta.Change{Repo: id, DeleteRepo: true, PurgeRepo: true}); err != nil || !v.Applied {
					t.Errorf("purge: %+v, %v", v.Conflict, err)
				}
			}
		})
	}
	all.Go(func() {
		for n := range 20 {
			c := meta.Change{Repo: source}
			if n%4 == 3 {
				c.ReplacePacks = &meta.PackReplace{
					Remove: f.packIDs(source), Add: []meta.PackWrite{*f.bigPack(fmt.Sprintf("p/compact/%d", n))},
				}
			} else {
				c.AddPack = f.bigPack(fmt.Sprintf("p/source/%d", n))
			}
			if v, err := f.try(c); err != nil || !v.Applied {
				t.Errorf("source: %+v, %v", v.Conflict, err)
			}
			readable(source)
		}
	})
	all.Wait()
	var live []string
	if err := f.LivePackKeys(f.ctx, func(key string) error { live = append(live, key); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(live) != 1 || live[0] != "p/compact/19" {
		t.Errorf("live keys %v, want p/compact/19 alone", live)
	}
	if retired := must(f.Retired(f.ctx, time.Now().Add(time.Hour), 1000))(t); len(retired) != 1+6*12+15+4 {
		t.Errorf("%d retired keys, want %d", len(retired), 1+6*12+15+4)
	}
}

func testPackErrors(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	p := f.bigPack("p")
	f.apply(meta.Change{Repo: id, AddPack: p})
	_, err := f.PacksByID(f.ctx, []meta.PackID{p.ID, p.ID + 1})
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.SmallPacks(f.ctx, []meta.PackID{p.ID}) // not inline
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.PackSet(f.ctx, 12345)
	f.wantErr(err, meta.ErrNotFound)
	if packs := must(f.PacksByID(f.ctx, nil))(t); len(packs) != 0 {
		t.Errorf("no ids gave %v", packs)
	}
	if packs := must(f.PacksByID(f.ctx, []meta.PackID{p.ID, p.ID}))(t); len(packs) != 2 || packs[1].Key != "p" {
		t.Errorf("an id asked twice gave %v", packs)
	}
}

func testLivePackKeys(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	f.apply(meta.Change{Repo: id, AddPack: f.bigPack("p/1")})
	f.apply(meta.Change{Repo: id, AddPack: smallPack("row")})
	f.apply(meta.Change{Repo: id, AddPack: f.bigPack("p/2")})
	if err := f.BeginUpload(f.ctx, meta.Upload{Key: "u/1", Process: "a"}); err != nil {
		t.Fatal(err)
	}
	var keys []string
	if err := f.LivePackKeys(f.ctx, func(key string) error { keys = append(keys, key); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"p/1", "p/2", "u/1"}) {
		t.Errorf("keys %v", keys)
	}
	stop := errors.New("stop")
	calls := 0
	err := f.LivePackKeys(f.ctx, func(string) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, %v after the first said stop", calls, err)
	}
}

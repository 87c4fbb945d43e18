package metatest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

func testRefCompareAndSwap(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	const main = "refs/heads/main"
	write := func(w meta.RefWrite) meta.Change {
		w.Name = main
		return meta.Change{Repo: id, Refs: []meta.RefWrite{w}}
	}
	step := func(w meta.RefWrite, want object.ID) {
		t.Helper()
		f.apply(write(w))
		if tip := f.tip(id, main); tip != want {
			t.Fatalf("after %+v the ref is %v, want %v", w, tip, want)
		}
	}
	stale := func(w meta.RefWrite, current object.ID) {
		t.Helper()
		c := f.refuse(write(w), meta.ConflictRef)
		if c.Ref != main || c.Current != current {
			t.Fatalf("conflict %+v, want %s at %v", c, main, current)
		}
	}
	stale(meta.RefWrite{Old: oid(1), New: oid(2)}, noID)
	stale(meta.RefWrite{Old: oid(1)}, noID)
	stale(meta.RefWrite{Old: oid(1), VerifyOnly: true}, noID)
	step(meta.RefWrite{VerifyOnly: true}, noID)
	made := f.apply(write(meta.RefWrite{New: oid(1), Peeled: oid(9)}))
	stale(meta.RefWrite{New: oid(2)}, oid(1))
	stale(meta.RefWrite{Old: oid(3), New: oid(2)}, oid(1))
	stale(meta.RefWrite{VerifyOnly: true}, oid(1))
	step(meta.RefWrite{Old: oid(1), VerifyOnly: true, New: oid(8)}, oid(1))
	created := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t).Refs[0]
	if created.ID != oid(1) || created.Peeled != oid(9) {
		t.Errorf("created as %+v", created)
	}
	if !created.CreatedAt.Equal(made.At) {
		t.Errorf("the verdict says that it was made at %v, the row %v", made.At, created.CreatedAt)
	}
	step(meta.RefWrite{Old: oid(1), New: oid(2)}, oid(2))
	moved := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t).Refs[0]
	if moved.CreatedAt != created.CreatedAt || moved.CreatedVersion != created.CreatedVersion || !moved.Peeled.IsZero() {
		t.Errorf("created as %+v, moved to %+v", created, moved)
	}
	step(meta.RefWrite{AnyOld: true, New: oid(3)}, oid(3))
	step(meta.RefWrite{Old: oid(3)}, noID)
	step(meta.RefWrite{AnyOld: true}, noID)
	step(meta.RefWrite{AnyOld: true, New: oid(4)}, oid(4))
	if again := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t).Refs[0]; again.CreatedVersion <= created.CreatedVersion {
		t.Errorf("made anew at version %d, first made at %d", again.CreatedVersion, created.CreatedVersion)
	}
	step(meta.RefWrite{AnyOld: true}, noID)
}

// testRefRefusals: refs move together or not at all, with all that goes with them.
func testRefRefusals(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/a", New: oid(1)}, {Name: "refs/heads/b", New: oid(2)}}})
	before := f.repoRow(id)
	c := f.refuse(meta.Change{
		Repo: id, AddPack: smallPack("x"), Events: []meta.Event{{Type: "push"}},
		Idempotency: &meta.Idempotency{Key: "k"}, SetDefaultBranch: "a", SetProtections: &[]meta.Protection{{Pattern: "*"}},
		RaiseFloors: []meta.Floor{{Kind: meta.FloorOrg, NotBefore: 1}},
		Refs: []meta.RefWrite{
			{Name: "refs/heads/a", Old: oid(1), New: oid(3)}, {Name: "refs/heads/c", New: oid(3)},
			{Name: "refs/heads/b", Old: oid(1), New: oid(3)}, {Name: "refs/heads/d", Old: oid(1)},
		},
	}, meta.ConflictRef)
	if c.Ref != "refs/heads/b" || c.Current != oid(2) {
		t.Errorf("conflict %+v names not the first failure", c)
	}
	if after := f.repoRow(id); after != before {
		t.Errorf("row %+v after a refusal, was %+v", after, before)
	}
	if names := refNames(must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t).Refs); len(names) != 2 || f.tip(id, "refs/heads/a") != oid(1) {
		t.Errorf("refs %v after a refusal", names)
	}
	if events := must(f.Events(f.ctx, 0, 0, 10))(t); len(events) != 0 {
		t.Errorf("events %+v after a refusal", events)
	}
	if floors := must(f.Floors(f.ctx, f.org))(t); len(floors) != 0 {
		t.Errorf("floors %+v after a refusal", floors)
	}
	if rules := must(f.Protections(f.ctx, id))(t); len(rules) != 0 {
		t.Errorf("rules %+v after a refusal", rules)
	}
	_, err := f.Idempotency(f.ctx, f.org, "k")
	f.wantErr(err, meta.ErrNotFound)
	if log, _, _ := f.RefLog(f.ctx, id, 0, 10); len(log) != 2 {
		t.Errorf("ref log %+v after a refusal", log)
	}
}

func testRefPaths(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	h := func(name string) string { return "refs/heads/" + name }
	create := func(names ...string) meta.Change {
		c := meta.Change{Repo: id}
		for _, n := range names {
			c.Refs = append(c.Refs, meta.RefWrite{Name: h(n), New: oid(1)})
		}
		return c
	}
	clash := func(c meta.Change, ref, other string) {
		t.Helper()
		got := f.refuse(c, meta.ConflictRefPath)
		if got.Ref != h(ref) || got.Other != h(other) {
			t.Fatalf("conflict %+v, want %s with %s", got, ref, other)
		}
	}
	f.apply(create("a", "b/c/d", "b0", "b-", "b."))
	clash(create("a/x"), "a/x", "a")
	clash(create("a/x/y"), "a/x/y", "a")
	clash(create("b"), "b", "b/c/d")
	clash(create("b/c"), "b/c", "b/c/d")
	clash(create("b/c/d/e"), "b/c/d/e", "b/c/d")
	f.apply(create("b/c/e", "b/c-", "b/c0", "aa"))
	c := f.refuse(create("n", "n/m"), meta.ConflictRefPath)
	if c.Other != h("n") && c.Other != h("n/m") {
		t.Errorf("conflict %+v", c)
	}

	// An update of a ref that exists is never a clash; forcing a new one may be.
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: h("a"), AnyOld: true, New: oid(5)}}})
	clash(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: h("b"), AnyOld: true, New: oid(5)}}}, "b", "b/c-")

	// Deleting and creating in one Change, in either order of writing.
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: h("a/x"), New: oid(2)}, {Name: h("a"), Old: oid(5)}}})
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: h("a/x"), Old: oid(2)}, {Name: h("a"), New: oid(3)}}})
	clash(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: h("b/c/d"), Old: oid(1)}, {Name: h("b"), New: oid(3)}}}, "b", "b/c-")
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{
		{Name: h("b/c/d"), Old: oid(1)}, {Name: h("b/c/e"), Old: oid(1)}, {Name: h("b/c-"), Old: oid(1)},
		{Name: h("b/c0"), Old: oid(1)}, {Name: h("b"), New: oid(3)},
	}})
	if tip := f.tip(id, h("b")); tip != oid(3) {
		t.Errorf("ref is %v", tip)
	}
}

// testRefPathsMany: however Changes fall together, no ref is ever below another.
func testRefPathsMany(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	names := []string{"x", "x/a", "x/a/b", "x/a/c", "x/d", "y", "y/z"}
	var all sync.WaitGroup
	var applied atomic.Int64
	for w := range 8 {
		all.Go(func() {
			for n := range 25 {
				name := "refs/heads/" + names[(w*31+n*17)%len(names)]
				c := meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: name, AnyOld: true, New: oid(w*1000 + n)}}}
				if n%2 == 1 {
					c.Refs[0].New = noID
				}
				v, err := f.try(c)
				if err != nil {
					t.Errorf("apply: %v", err)
					return
				}
				if v.Applied {
					applied.Add(1)
				} else if v.Conflict.Kind != meta.ConflictRefPath {
					t.Errorf("conflict %+v", v.Conflict)
				}
				have := refNames(must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t).Refs)
				for i := 1; i < len(have); i++ {
					if strings.HasPrefix(have[i], have[i-1]+"/") {
						t.Errorf("refs %q and %q both exist", have[i-1], have[i])
					}
				}
			}
		})
	}
	all.Wait()
	if v := f.repoRow(id).Version; v != applied.Load()+1 {
		t.Errorf("version %d after %d applied Changes", v, applied.Load())
	}
}

func testRefQueries(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	if page := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t); page.Version != 1 || len(page.Refs) != 0 {
		t.Errorf("refs of an empty repository %+v", page)
	}
	var names []string
	c := meta.Change{Repo: id}
	for i := range 700 {
		names = append(names, fmt.Sprintf("refs/heads/b%03d", i))
	}
	names = append(names, "refs/heads/B", "refs/heads/ä", "refs/heads/b", "refs/heads/b00/x", "refs/tags/b001", "refs/notes/x")
	for _, n := range names {
		c.Refs = append(c.Refs, meta.RefWrite{Name: n, New: oid(1)})
	}
	f.apply(c)
	slices.Sort(names)
	filter := func(keep func(string) bool) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !keep(n) })
	}
	few := []string{"refs/heads/b001", "refs/heads/absent", "refs/tags/b001", "refs/heads/B"}
	many := append(filter(func(n string) bool { return n < "refs/heads/b600" }), "refs/heads/absent2", "refs/tags/b001")
	for _, q := range []struct {
		query meta.RefQuery
		want  []string
	}{
		{meta.RefQuery{}, names},
		{meta.RefQuery{Prefix: "refs/heads/b0"}, filter(func(n string) bool { return strings.HasPrefix(n, "refs/heads/b0") })},
		{meta.RefQuery{Prefix: "refs/tags/"}, []string{"refs/tags/b001"}},
		{meta.RefQuery{Prefix: "zzz"}, nil},
		{meta.RefQuery{Prefix: "refs/heads/", After: "refs/heads/b698"}, []string{"refs/heads/b699", "refs/heads/ä"}},
		{meta.RefQuery{Prefix: "refs/heads/b", After: "refs/heads/B", Limit: 2}, []string{"refs/heads/b", "refs/heads/b00/x"}},
		{meta.RefQuery{After: "refs/tags/b001"}, nil},
		{meta.RefQuery{Names: few}, filter(func(n string) bool { return slices.Contains(few, n) })},
		{meta.RefQuery{Names: many}, filter(func(n string) bool { return slices.Contains(many, n) })},
		{meta.RefQuery{Names: []string{"nothing"}}, nil},
	} {
		q.query.Repo = id
		page := must(f.Refs(f.ctx, q.query))(t)
		if got := refNames(page.Refs); !slices.Equal(got, q.want) || page.Version != 2 {
			t.Errorf("%+v: version %d, got %d names %.200q, want %d", q.query.Prefix+"|"+q.query.After, page.Version, len(got), got, len(q.want))
		}
	}
	_, err := f.Refs(f.ctx, meta.RefQuery{Repo: meta.RepoID(newID())})
	f.wantErr(err, meta.ErrNotFound)
}

// testRefPagesUnderInserts: a walk in pages returns every ref that was there all
// the time, once.
func testRefPagesUnderInserts(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	c := meta.Change{Repo: id}
	for i := range 100 {
		c.Refs = append(c.Refs, meta.RefWrite{Name: fmt.Sprintf("refs/heads/old-%03d", i), New: oid(i + 1)})
	}
	f.apply(c)
	byName, byAge := make(map[string]int), make(map[string]int)
	q := meta.RefQuery{Repo: id, Prefix: "refs/heads/", Limit: 7}
	a := meta.RefAgeQuery{Repo: id, Prefix: "refs/heads/", Limit: 7}
	for n := 0; ; n++ {
		page := must(f.Refs(f.ctx, q))(t)
		aged := must(f.RefsByAge(f.ctx, a))(t)
		for _, r := range page.Refs {
			byName[r.Name]++
			q.After = r.Name
		}
		for _, r := range aged {
			byAge[r.Name]++
			a.AfterVersion, a.AfterName = r.CreatedVersion, r.Name
		}
		if len(page.Refs) == 0 && len(aged) == 0 {
			break
		}
		if n < 20 {
			f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{
				{Name: fmt.Sprintf("refs/heads/%c-new-%d", 'a'+n, n), New: oid(1)}, {Name: "refs/heads/old-000", AnyOld: true, New: oid(n + 500)},
			}})
		}
	}
	for i := range 100 {
		if name := fmt.Sprintf("refs/heads/old-%03d", i); byName[name] != 1 || byAge[name] != 1 {
			t.Errorf("%s came %d times by name and %d times by age", name, byName[name], byAge[name])
		}
	}
	if len(byAge) != 120 {
		t.Errorf("%d refs by age, want 120: new ones come last", len(byAge))
	}
}

func testRefsByAge(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	for _, names := range [][]string{{"refs/heads/z", "refs/heads/m"}, {"refs/tags/a"}, {"refs/heads/a", "top"}} {
		c := meta.Change{Repo: id}
		for _, n := range names {
			c.Refs = append(c.Refs, meta.RefWrite{Name: n, New: oid(1)})
		}
		f.apply(c)
	}
	f.apply(move(id, "refs/heads/m", oid(1), oid(2))) // a move makes it no younger
	for _, q := range []struct {
		query meta.RefAgeQuery
		want  []string
	}{
		{meta.RefAgeQuery{Limit: 10}, []string{"refs/heads/m", "refs/heads/z", "refs/tags/a", "refs/heads/a", "top"}},
		{meta.RefAgeQuery{Prefix: "refs/heads/", Limit: 10}, []string{"refs/heads/m", "refs/heads/z", "refs/heads/a"}},
		{meta.RefAgeQuery{Prefix: "refs/heads/a", Limit: 10}, []string{"refs/heads/a"}},
		{meta.RefAgeQuery{Prefix: "refs/", Limit: 2}, []string{"refs/heads/m", "refs/heads/z"}},
		{meta.RefAgeQuery{Prefix: "refs/heads/", AfterVersion: 2, AfterName: "refs/heads/m", Limit: 10}, []string{"refs/heads/z", "refs/heads/a"}},
		{meta.RefAgeQuery{AfterVersion: 4, AfterName: "top", Limit: 10}, nil},
	} {
		q.query.Repo = id
		if got := refNames(must(f.RefsByAge(f.ctx, q.query))(t)); !slices.Equal(got, q.want) {
			t.Errorf("%+v: %q, want %q", q.query, got, q.want)
		}
	}
}

func testRefLog(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	f.apply(move(id, "refs/heads/a", noID, oid(1)))
	clock.advance(time.Minute)
	f.apply(meta.Change{Repo: id, Subject: "s", Route: "POST commit-pack", Refs: []meta.RefWrite{
		{Name: "refs/heads/a", Old: oid(1), New: oid(2), Peeled: oid(7)}, {Name: "refs/heads/b", New: oid(3)},
		{Name: "refs/heads/c", AnyOld: true}, // not there: nothing to log
	}})
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/a", Old: oid(2), New: oid(2)}}}) // no move
	f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/b", AnyOld: true}}})
	log, complete, err := f.RefLog(f.ctx, id, 0, 100)
	if err != nil || !complete {
		t.Fatalf("complete %v, %v", complete, err)
	}
	at := clock.now()
	want := []meta.RefLogEntry{
		{Version: 2, Name: "refs/heads/a", New: oid(1), At: at.Add(-time.Minute), Subject: "agent", Route: "git push"},
		{Version: 3, Name: "refs/heads/a", Old: oid(1), New: oid(2), Peeled: oid(7), At: at, Subject: "s", Route: "POST commit-pack"},
		{Version: 3, Name: "refs/heads/b", New: oid(3), At: at, Subject: "s", Route: "POST commit-pack"},
		{Version: 5, Name: "refs/heads/b", Old: oid(3), At: at},
	}
	if !slices.Equal(log, want) {
		t.Errorf("log\n%+v, want\n%+v", log, want)
	}
	if part, _, _ := f.RefLog(f.ctx, id, 2, 1); len(part) != 1 || part[0] != want[1] {
		t.Errorf("one entry after version 2: %+v", part)
	}
	if rest, complete, _ := f.RefLog(f.ctx, id, 5, 10); len(rest) != 0 || !complete {
		t.Errorf("entries after the last: %+v", rest)
	}
}

func testRecentTips(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	set := func(name string, to object.ID) {
		t.Helper()
		f.apply(meta.Change{Repo: id, Refs: []meta.RefWrite{{Name: name, AnyOld: true, New: to}}})
	}
	set("refs/heads/a", oid(1))
	set("refs/heads/a", oid(2)) // 1 left too long ago
	clock.advance(time.Hour)
	since := clock.now()
	set("refs/heads/a", oid(3)) // 2 left
	set("refs/heads/b", oid(4))
	set("refs/heads/b", oid(5)) // 4 left, but b is deleted below
	set("refs/heads/b", noID)
	clock.advance(time.Minute)
	set("refs/heads/c", oid(6))
	set("refs/heads/c", noID) // 6 was deleted
	set("refs/heads/c", oid(7))
	set("refs/heads/c", oid(8)) // 7 left after the deletion
	set("refs/heads/a", oid(2))
	set("refs/heads/a", oid(9)) // 3 left, 2 left again
	tips := must(f.RecentTips(f.ctx, id, since))(t)
	want := []object.ID{oid(2), oid(3), oid(7)}
	slices.SortFunc(tips, object.ID.Compare)
	slices.SortFunc(want, object.ID.Compare)
	if !slices.Equal(tips, want) {
		t.Errorf("tips %v, want %v", tips, want)
	}
	tips = must(f.LeftTips(f.ctx, id, since))(t)
	want = []object.ID{oid(2), oid(3), oid(4), oid(5), oid(6), oid(7)}
	slices.SortFunc(tips, object.ID.Compare)
	slices.SortFunc(want, object.ID.Compare)
	if !slices.Equal(tips, want) {
		t.Errorf("tips with those of deleted refs %v, want %v", tips, want)
	}
	if tips := must(f.RecentTips(f.ctx, id, clock.now().Add(time.Second)))(t); len(tips) != 0 {
		t.Errorf("tips of the future %v", tips)
	}
	// More entries than any page of a walk.
	c := meta.Change{Repo: id}
	for i := range 1200 {
		c.Refs = append(c.Refs, meta.RefWrite{Name: fmt.Sprintf("refs/heads/many/%d", i), New: oid(10000 + i)})
	}
	f.apply(c)
	for i := range c.Refs {
		c.Refs[i].Old, c.Refs[i].New = c.Refs[i].New, oid(20000+i)
	}
	f.apply(c)
	if tips := must(f.RecentTips(f.ctx, id, since))(t); len(tips) != 1203 {
		t.Errorf("%d tips, want 1203", len(tips))
	}
}

// testOddNames: names are bytes, whatever they hold.
func testOddNames(t *testing.T, open Open) {
	f := setUp(t, open)
	odd := []string{"nul\x00", "latin\xe9", "ff\xff", "quote'\"\\", "\\x41", "日本語", "%_", strings.Repeat("n", meta.MaxName-len("refs/heads/"))}
	for _, name := range odd {
		id := f.newRepo(name)
		ref := "refs/heads/" + name
		c := move(id, ref, noID, oid(1))
		c.Subject, c.Route = name, name
		c.Token = &meta.TokenStamp{IssuedAt: 7, Subject: name, Thread: name}
		c.Idempotency = &meta.Idempotency{Key: name, Body: []byte(name)}
		c.Events = []meta.Event{{Type: name, Body: []byte(name)}}
		f.apply(c)
		gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: name, Thread: name, Subject: name}))(t)
		if gate.Repo.ID != id || gate.Repo.Name != name {
			t.Errorf("%q: gate %+v", name, gate.Repo)
		}
		if tip := f.tip(id, ref); tip != oid(1) {
			t.Errorf("%q: tip %v", name, tip)
		}
		if refs := must(f.RefsByAge(f.ctx, meta.RefAgeQuery{Repo: id, Prefix: ref, Limit: 5}))(t); len(refs) != 1 || refs[0].Name != ref {
			t.Errorf("%q: by age %+v", name, refs)
		}
		log, _, err := f.RefLog(f.ctx, id, 0, 5)
		if err != nil || len(log) != 1 || log[0].Name != ref || log[0].Subject != name {
			t.Errorf("%q: log %+v, %v", name, log, err)
		}
		if row := must(f.Idempotency(f.ctx, f.org, name))(t); string(row.Body) != name {
			t.Errorf("%q: idempotency row %+v", name, row)
		}
		f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorSubject, Target: name, NotBefore: 7}}})
		f.refuse(meta.Change{Repo: id, Token: c.Token}, meta.ConflictFloor)
	}
}

func testOneWinner(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	const writers = 64
	old := noID
	for round := range 3 {
		var won atomic.Int64
		var winner atomic.Value
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				next := oid(round*writers + w + 1)
				v, err := f.try(move(id, "refs/heads/main", old, next))
				if err != nil {
					t.Errorf("apply: %v", err)
				} else if v.Applied {
					won.Add(1)
					winner.Store(next)
				} else if v.Conflict.Kind != meta.ConflictRef || v.Conflict.Current == old {
					t.Errorf("conflict %+v", v.Conflict)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d of %d writers won", won.Load(), writers)
		}
		old = winner.Load().(object.ID)
		if tip := f.tip(id, "refs/heads/main"); tip != old {
			t.Fatalf("the ref is %v, the winner wrote %v", tip, old)
		}
	}
	if v := f.repoRow(id).Version; v != 4 {
		t.Errorf("version %d after three applied Changes", v)
	}
}

// testManyBranches: writers of different branches of one repository never see a
// conflict, and nothing of what they wrote is lost.
func testManyBranches(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	const writers, rounds = 100, 5
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			name := fmt.Sprintf("refs/heads/w/%d", w)
			old := noID
			for n := range rounds {
				next := oid(w*rounds + n + 1)
				c := move(id, name, old, next)
				c.AddPack = smallPack(fmt.Sprint(w, n))
				c.Events = []meta.Event{{Type: "push"}}
				v, err := f.try(c)
				if err != nil || !v.Applied {
					t.Errorf("writer %d: %+v, %v", w, v.Conflict, err)
					return
				}
				old = next
			}
		})
	}
	all.Wait()
	row := f.repoRow(id)
	if row.Version != writers*rounds+1 {
		t.Errorf("version %d, want %d", row.Version, writers*rounds+1)
	}
	if packs := must(f.PackSet(f.ctx, row.PackSet))(t); len(packs) != writers*rounds {
		t.Errorf("%d packs, want %d", len(packs), writers*rounds)
	}
	page := must(f.Refs(f.ctx, meta.RefQuery{Repo: id}))(t)
	log, _, err := f.RefLog(f.ctx, id, 0, writers*rounds+1)
	if err != nil || len(page.Refs) != writers || len(log) != writers*rounds {
		t.Errorf("%d refs, %d log entries, %v", len(page.Refs), len(log), err)
	}
	for i, e := range log {
		if e.Version != int64(i+2) {
			t.Fatalf("log entry %d has version %d", i, e.Version)
		}
	}
}

// testCounter: compare-and-swap loops lose no increment, and reads see every
// Change whose Apply has returned.
func testCounter(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	const name = "refs/heads/counter"
	value := func(n uint64) (id object.ID) {
		binary.BigEndian.PutUint64(id[:], n)
		id[object.Size-1] = 1
		return id
	}
	f.apply(move(id, name, noID, value(0)))
	var acknowledged atomic.Uint64
	var all sync.WaitGroup
	const writers, each = 8, 20
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				floor := acknowledged.Load()
				tip := f.tip(id, name)
				n := binary.BigEndian.Uint64(tip[:])
				if n < floor {
					t.Errorf("read %d after %d was acknowledged", n, floor)
					return
				}
				v, err := f.try(move(id, name, tip, value(n+1)))
				if err != nil {
					t.Errorf("apply: %v", err)
					return
				}
				if !v.Applied {
					continue
				}
				done++
				for seen := acknowledged.Load(); seen < n+1 && !acknowledged.CompareAndSwap(seen, n+1); seen = acknowledged.Load() {
				}
			}
		})
	}
	all.Wait()
	if tip := f.tip(id, name); tip != value(writers*each) {
		t.Errorf("counter at %x, want %d", tip[:8], writers*each)
	}
}

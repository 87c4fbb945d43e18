package metatest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

func testOrgs(t *testing.T, open Open) {
	f := setUp(t, open)
	ttl := 5 * time.Minute
	other := meta.OrgID(newID())
	f.apply(meta.Change{Org: other, CreateOrg: &meta.Org{Name: "beta", MaxTTL: ttl}})
	f.refuse(meta.Change{Org: meta.OrgID(newID()), CreateOrg: &meta.Org{Name: "beta"}}, meta.ConflictName)
	f.refuse(meta.Change{Org: other, CreateOrg: &meta.Org{Name: "gamma"}}, meta.ConflictID)
	f.refuse(meta.Change{Org: meta.OrgID(newID()), SetMaxTTL: &ttl}, meta.ConflictOrgGone)

	all := must(f.ListOrgs(f.ctx, "", 10))(t)
	if len(all) != 2 || all[0].Name != "acme" || all[1].Name != "beta" || all[1].ID != other || all[1].MaxTTL != ttl {
		t.Fatalf("orgs %+v", all)
	}
	if all[0].CreatedAt.IsZero() {
		t.Error("an org has no time of creation")
	}
	if page := must(f.ListOrgs(f.ctx, "acme", 1))(t); len(page) != 1 || page[0].ID != other {
		t.Fatalf("second page %+v", page)
	}
	if page := must(f.ListOrgs(f.ctx, "", 1))(t); len(page) != 1 || page[0].ID != f.org {
		t.Fatalf("first page %+v", page)
	}
}

func testKeys(t *testing.T, open Open) {
	f := setUp(t, open)
	before := must(f.Keys(f.ctx, f.org))(t)
	if len(before.Keys) != 0 || before.Org.ID != f.org || before.Org.Name != "acme" {
		t.Fatalf("keys of a new org %+v", before)
	}
	put := func(kid, fingerprint string) meta.Change {
		return meta.Change{PutKey: &meta.OrgKey{KID: kid, Fingerprint: fingerprint, PEM: "PEM " + fingerprint}}
	}
	f.apply(put("k1", "aa"))
	f.apply(put("", "bb"))
	f.apply(put("", "cc")) // keys without a kid do not exclude each other
	f.refuse(put("k1", "dd"), meta.ConflictKey)
	f.apply(put("k1", "aa")) // the same key again
	f.refuse(meta.Change{RemoveKey: "ee"}, meta.ConflictKey)
	f.apply(meta.Change{RemoveKey: "bb"})

	keys := must(f.Keys(f.ctx, f.org))(t)
	if len(keys.Keys) != 2 || keys.Keys[0].Fingerprint != "aa" || keys.Keys[0].KID != "k1" ||
		keys.Keys[0].PEM != "PEM aa" || keys.Keys[1].Fingerprint != "cc" || keys.Keys[0].CreatedAt.IsZero() {
		t.Fatalf("keys %+v", keys.Keys)
	}
	if want := before.Org.KeyVersion + 5; keys.Org.KeyVersion != want {
		t.Errorf("key version %d after five writes, want %d", keys.Org.KeyVersion, want)
	}
	// A key and its successor change places in one Change.
	f.apply(meta.Change{RemoveKey: "aa", PutKey: &meta.OrgKey{KID: "k1", Fingerprint: "dd", PEM: "x"}})
	ttl := time.Hour
	f.apply(meta.Change{SetMaxTTL: &ttl})
	gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme"}))(t)
	if gate.Org.KeyVersion != keys.Org.KeyVersion+2 || gate.Org.MaxTTL != ttl {
		t.Errorf("org %+v after a rotation and a cap", gate.Org)
	}
	none := time.Duration(0)
	f.apply(meta.Change{SetMaxTTL: &none})
	if gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme"}))(t); gate.Org.MaxTTL != 0 {
		t.Errorf("cap %v after it was removed", gate.Org.MaxTTL)
	}
	_, err := f.Keys(f.ctx, meta.OrgID(newID()))
	f.wantErr(err, meta.ErrNotFound)
}

func testSigningKeys(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	first := clock.now()
	a := meta.SigningKey{Fingerprint: "SHA256:a", Kind: "ssh", Text: "ssh-ed25519 AAAA", Title: "A", NotBefore: first.Add(-time.Hour)}
	b := meta.SigningKey{Fingerprint: "BB", Kind: "openpgp", Text: "-----BEGIN", Title: "B", NotAfter: first.Add(time.Hour)}
	f.apply(meta.Change{PutSigningKey: &a})
	clock.advance(time.Second)
	f.apply(meta.Change{PutSigningKey: &b})
	a.Title, a.NotBefore = "A again", time.Time{}
	f.apply(meta.Change{PutSigningKey: &a})
	a.CreatedAt, b.CreatedAt = first, clock.now()
	want := []meta.SigningKey{a, b}
	equal := func(x, y meta.SigningKey) bool {
		same := x.NotBefore.Equal(y.NotBefore) && x.NotAfter.Equal(y.NotAfter) && x.CreatedAt.Equal(y.CreatedAt)
		x.NotBefore, x.NotAfter, x.CreatedAt = y.NotBefore, y.NotAfter, y.CreatedAt
		return same && x == y
	}
	if got := must(f.SigningKeys(f.ctx, f.org))(t); !slices.EqualFunc(got, want, equal) {
		t.Errorf("signing keys %+v, want %+v", got, want)
	}
	f.refuse(meta.Change{RemoveSigningKey: "SHA256:c"}, meta.ConflictKey)
	f.apply(meta.Change{RemoveSigningKey: a.Fingerprint})
	f.refuse(meta.Change{RemoveSigningKey: a.Fingerprint}, meta.ConflictKey)
	if got := must(f.SigningKeys(f.ctx, f.org))(t); !slices.EqualFunc(got, want[1:], equal) {
		t.Errorf("signing keys %+v after a removal", got)
	}
	other := f.newOrg("beta")
	f.refuse(meta.Change{Org: other, RemoveSigningKey: b.Fingerprint}, meta.ConflictKey)
	f.apply(meta.Change{Org: other, PutSigningKey: &b})
	f.apply(meta.Change{DeleteOrg: true})
	if got := must(f.SigningKeys(f.ctx, f.org))(t); len(got) != 0 {
		t.Errorf("signing keys %+v of a deleted org", got)
	}
	if got := must(f.SigningKeys(f.ctx, other))(t); len(got) != 1 {
		t.Errorf("signing keys %+v of another org", got)
	}
}

func testServerKey(t *testing.T, open Open) {
	f := setUp(t, open)
	signer := func(org string) string { return must(f.Gate(f.ctx, meta.GateQuery{Org: org}))(t).Org.Signer }
	holds := func(want meta.ServerKey) {
		t.Helper()
		key, err := f.ServerKey(f.ctx, f.org)
		if want.Fingerprint == "" {
			f.wantErr(err, meta.ErrNotFound)
		} else if err != nil || key.Fingerprint != want.Fingerprint || !bytes.Equal(key.Secret, want.Secret) {
			t.Errorf("server key %+v, %v, want %+v", key, err, want)
		}
		if got := signer("acme"); got != want.Fingerprint {
			t.Errorf("the gate says that %q signs, want %q", got, want.Fingerprint)
		}
	}
	put := func(k meta.ServerKey) {
		t.Helper()
		f.apply(meta.Change{SetServerKey: &k, PutSigningKey: &meta.SigningKey{Fingerprint: k.Fingerprint, Kind: "ssh", Text: "ssh-ed25519 AAAA"}})
		holds(k)
	}
	holds(meta.ServerKey{})
	version := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme"}))(t).Org.KeyVersion
	a, b := meta.ServerKey{Fingerprint: "SHA256:a", Secret: []byte{1, 0, 255}}, meta.ServerKey{Fingerprint: "SHA256:b", Secret: []byte("b")}
	put(a)
	if got := must(f.Keys(f.ctx, f.org))(t).Org; got.Signer != a.Fingerprint || got.KeyVersion != version {
		t.Errorf("org %+v", got)
	}
	other := f.newOrg("beta")
	if signer("beta") != "" {
		t.Error("another org signs")
	}
	f.apply(meta.Change{Org: other, PutSigningKey: &meta.SigningKey{Fingerprint: a.Fingerprint, Kind: "ssh"}})
	f.apply(meta.Change{Org: other, RemoveSigningKey: a.Fingerprint})
	holds(a)
	put(b)
	// What is accepted of the key before stays until it is removed, and its going
	// leaves the present one alone.
	f.apply(meta.Change{RemoveSigningKey: a.Fingerprint})
	holds(b)
	for _, seal := range [][2]string{{"x", "y"}, {"b", "c"}, {"b", "d"}} {
		if err := f.SealServerKey(f.ctx, f.org, []byte(seal[0]), []byte(seal[1])); err != nil {
			t.Fatal(err)
		}
	}
	b.Secret = []byte("c")
	holds(b)
	f.apply(meta.Change{RemoveSigningKey: b.Fingerprint})
	holds(meta.ServerKey{})
	put(a)
	f.apply(meta.Change{SetServerKey: &meta.ServerKey{}})
	holds(meta.ServerKey{})
	if keys := must(f.SigningKeys(f.ctx, f.org))(t); len(keys) != 1 {
		t.Errorf("keys %+v after the server has stopped to sign", keys)
	}
}

func testDeleteOrg(t *testing.T, open Open) {
	f := setUp(t, open)
	live, dead := f.newRepo("live"), f.newRepo("dead")
	f.apply(meta.Change{Repo: dead, AddPack: f.bigPack("packs/dead")})
	f.apply(meta.Change{Repo: dead, DeleteRepo: true})
	f.refuse(meta.Change{DeleteOrg: true}, meta.ConflictNotEmpty)
	f.apply(meta.Change{Repo: live, DeleteRepo: true, PurgeRepo: true})
	f.apply(meta.Change{PutKey: &meta.OrgKey{Fingerprint: "aa", PEM: "x"}})
	f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorOrg, NotBefore: 9}}})
	f.apply(meta.Change{DeleteOrg: true})

	_, err := f.Gate(f.ctx, meta.GateQuery{Org: "acme"})
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.Repo(f.ctx, dead)
	f.wantErr(err, meta.ErrNotFound)
	if retired := must(f.Retired(f.ctx, time.Now().Add(time.Hour), 10))(t); len(retired) != 1 || retired[0].Key != "packs/dead" {
		t.Errorf("retired %+v", retired)
	}
	f.refuse(meta.Change{DeleteOrg: true}, meta.ConflictOrgGone)
	// The name is free again, and what the old org had is gone.
	again := f.newOrg("acme")
	if keys := must(f.Keys(f.ctx, again))(t); len(keys.Keys) != 0 {
		t.Errorf("keys %+v of a new org", keys.Keys)
	}
	if floors := must(f.Floors(f.ctx, again))(t); len(floors) != 0 {
		t.Errorf("floors %+v of a new org", floors)
	}
}

func testGate(t *testing.T, open Open) {
	f := setUp(t, open)
	repo := f.newRepo("tools/r")
	_, err := f.Gate(f.ctx, meta.GateQuery{Org: "nobody", Repo: "tools/r"})
	f.wantErr(err, meta.ErrNotFound)

	gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "absent"}))(t)
	if gate.Org.ID != f.org || gate.Repo.ID != 0 || gate.Floor != 0 {
		t.Errorf("gate of an unknown repository %+v", gate)
	}
	gate = must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "tools/r"}))(t)
	if gate.Repo != f.repoRow(repo) || gate.Repo.Name != "tools/r" || gate.Repo.DefaultBranch != "main" {
		t.Errorf("gate %+v, row %+v", gate.Repo, f.repoRow(repo))
	}
	// Another org's repository of that name is another repository.
	f.newOrg("beta")
	if gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "beta", Repo: "tools/r"}))(t); gate.Repo.ID != 0 {
		t.Errorf("org beta sees repository %d", gate.Repo.ID)
	}

	f.apply(meta.Change{RaiseFloors: []meta.Floor{
		{Kind: meta.FloorOrg, NotBefore: 10},
		{Kind: meta.FloorRepo, Target: "tools/r", NotBefore: 20},
		{Kind: meta.FloorThread, Target: "t", NotBefore: 30},
		{Kind: meta.FloorSubject, Target: "s", NotBefore: 40},
		{Kind: meta.FloorRef, Repo: repo, Target: "refs/heads/main", NotBefore: 50},
	}})
	for _, c := range []struct {
		query meta.GateQuery
		want  int64
	}{
		{meta.GateQuery{}, 10},
		{meta.GateQuery{Repo: "tools/r"}, 20},
		{meta.GateQuery{Repo: "tools"}, 10},
		{meta.GateQuery{Repo: "tools/r", Thread: "t"}, 30},
		{meta.GateQuery{Repo: "tools/r", Thread: "t", Subject: "s"}, 40},
		{meta.GateQuery{Thread: "s", Subject: "t"}, 10},
	} {
		c.query.Org = "acme"
		if gate := must(f.Gate(f.ctx, c.query))(t); gate.Floor != c.want {
			t.Errorf("floor of %+v is %d, want %d", c.query, gate.Floor, c.want)
		}
	}

	f.apply(meta.Change{Repo: repo, DeleteRepo: true})
	if gate := must(f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "tools/r"}))(t); gate.Repo.ID != repo || gate.Repo.Deleted.IsZero() {
		t.Errorf("gate of a deleted repository %+v", gate.Repo)
	}
}

func testFloorKinds(t *testing.T, open Open) {
	f := setUp(t, open)
	repo, other := f.newRepo("r"), f.newRepo("other")
	f.apply(meta.Change{RaiseFloors: []meta.Floor{
		{Kind: meta.FloorRepo, Target: "r", NotBefore: 100},
		{Kind: meta.FloorRepo, Target: "new", NotBefore: 100},
		{Kind: meta.FloorThread, Target: "t", NotBefore: 200},
		{Kind: meta.FloorSubject, Target: "s", NotBefore: 300},
		{Kind: meta.FloorRef, Repo: other, Target: "refs/heads/x", NotBefore: 400},
	}})
	n := 0
	change := func(repo meta.RepoID, ref string, token meta.TokenStamp) meta.Change {
		n++
		c := meta.Change{Repo: repo, Token: &token}
		c.Refs = []meta.RefWrite{{Name: ref, AnyOld: true, New: oid(n)}}
		return c
	}
	for _, c := range []struct {
		name  string
		c     meta.Change
		allow bool
	}{
		{"repo, at the floor", change(repo, "refs/heads/x", meta.TokenStamp{IssuedAt: 100}), false},
		{"repo, above", change(repo, "refs/heads/x", meta.TokenStamp{IssuedAt: 101}), true},
		{"repo, no iat", change(repo, "refs/heads/x", meta.TokenStamp{}), false},
		{"other repo, no iat and no floor", change(other, "refs/heads/y", meta.TokenStamp{}), true},
		{"thread", change(other, "refs/heads/y", meta.TokenStamp{IssuedAt: 200, Thread: "t"}), false},
		{"thread, above", change(other, "refs/heads/y", meta.TokenStamp{IssuedAt: 201, Thread: "t"}), true},
		{"subject", change(other, "refs/heads/y", meta.TokenStamp{IssuedAt: 300, Subject: "s"}), false},
		{"subject is not a thread", change(other, "refs/heads/y", meta.TokenStamp{IssuedAt: 150, Subject: "t", Thread: "s"}), true},
		{"ref", change(other, "refs/heads/x", meta.TokenStamp{IssuedAt: 400}), false},
		{"ref of another repository", change(repo, "refs/heads/x", meta.TokenStamp{IssuedAt: 399}), true},
	} {
		v, err := f.try(c.c)
		if err != nil {
			t.Fatal(err)
		}
		if v.Applied != c.allow || !c.allow && v.Conflict.Kind != meta.ConflictFloor {
			t.Errorf("%s: verdict %+v, conflict %+v", c.name, v, v.Conflict)
		}
	}
	create := meta.Change{Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "new"}, Token: &meta.TokenStamp{IssuedAt: 100}}
	f.refuse(create, meta.ConflictFloor)
	create.Token = nil // an operator
	f.apply(create)

	// Floors only rise, and one on the org covers everything.
	f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorRepo, Target: "r", NotBefore: 50}}})
	f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorOrg, NotBefore: 1000}}})
	f.refuse(change(other, "refs/heads/y", meta.TokenStamp{IssuedAt: 1000}), meta.ConflictFloor)
	f.refuse(meta.Change{Token: &meta.TokenStamp{IssuedAt: 999}, PutKey: &meta.OrgKey{Fingerprint: "aa"}}, meta.ConflictFloor)
	floors := must(f.Floors(f.ctx, f.org))(t)
	want := meta.Floor{Kind: meta.FloorRepo, Target: "r", NotBefore: 100}
	if len(floors) != 6 || !slices.Contains(floors, want) {
		t.Errorf("floors %+v", floors)
	}
	if again := must(f.Floors(f.ctx, f.org))(t); !slices.Equal(floors, again) {
		t.Error("the order of floors is not stable")
	}
}

// testFloorRace: once a floor was answered, no Change of a token below it takes
// effect, whatever was under way.
func testFloorRace(t *testing.T, open Open) {
	f := setUp(t, open)
	const writers = 8
	repos := make([]meta.RepoID, writers)
	for i := range repos {
		repos[i] = f.newRepo(fmt.Sprintf("r%d", i))
	}
	for round := range 5 {
		thread := fmt.Sprintf("thread %d", round)
		var stop sync.WaitGroup
		begun := make(chan struct{}, writers)
		for i, repo := range repos {
			stop.Go(func() {
				old := f.tip(repo, "refs/heads/main")
				for n := 0; ; n++ {
					next := oid(round*1000000 + i*100000 + n + 1)
					c := move(repo, "refs/heads/main", old, next)
					c.Token = &meta.TokenStamp{IssuedAt: 5, Thread: thread}
					v, err := f.try(c)
					if err != nil {
						t.Errorf("apply: %v", err)
						return
					}
					if !v.Applied {
						if v.Conflict.Kind != meta.ConflictFloor {
							t.Errorf("conflict %+v", v.Conflict)
						}
						return
					}
					if n == 0 {
						begun <- struct{}{}
					}
					old = next
				}
			})
		}
		for range writers {
			<-begun
		}
		f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorThread, Target: thread, NotBefore: 5}}})
		after := make([]object.ID, writers)
		for i, repo := range repos {
			after[i] = f.tip(repo, "refs/heads/main")
		}
		stop.Wait()
		for i, repo := range repos {
			if tip := f.tip(repo, "refs/heads/main"); tip != after[i] {
				t.Fatalf("round %d: a token below the floor moved a ref after the floor was answered", round)
			}
		}
	}
}

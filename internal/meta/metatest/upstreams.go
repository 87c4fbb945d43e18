package metatest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

func (f *fixture) follower(name string) meta.RepoID {
	f.Helper()
	id := meta.RepoID(newID())
	f.apply(meta.Change{Org: f.org, Repo: id, CreateRepo: &meta.Repo{Name: name, DefaultBranch: "main"}, Follow: &meta.FollowChange{
		PutUpstream: &meta.Upstream{Provider: "gitea", Host: "git.example", Owner: "o", Name: "n", Public: true, DefaultBranch: "trunk"},
		AddSync:     &meta.Sync{ID: meta.SyncID(newID()), Writer: []byte("creator")},
	}})
	return id
}

func (f *fixture) follow(repo meta.RepoID, c meta.FollowChange) *meta.Conflict {
	f.Helper()
	v, err := f.try(meta.Change{Org: f.org, Repo: repo, Follow: &c})
	if err != nil {
		f.Fatal(err)
	}
	if v.Applied == (v.Conflict != nil) {
		f.Fatalf("verdict %+v", v)
	}
	return v.Conflict
}

func (f *fixture) mustFollow(repo meta.RepoID, c meta.FollowChange) {
	f.Helper()
	if conflict := f.follow(repo, c); conflict != nil {
		f.Fatalf("refused: %+v", conflict)
	}
}

func (f *fixture) refusedFollow(repo meta.RepoID, want meta.ConflictKind, c meta.FollowChange) {
	f.Helper()
	before, err := f.Repo(f.ctx, repo)
	if err != nil {
		f.Fatal(err)
	}
	if conflict := f.follow(repo, c); conflict == nil || conflict.Kind != want {
		f.Errorf("conflict %+v, want %q", conflict, want)
	}
	if after, err := f.Repo(f.ctx, repo); err != nil || after != before {
		f.Errorf("a refused change made %+v of %+v, %v", after, before, err)
	}
}

func testCredentials(t *testing.T, open Open) {
	now := time.Unix(1_800_000_000, 0)
	f := setUpAt(t, open, func() time.Time { return now })
	a, b := f.newRepo("a"), f.newRepo("b")
	id := meta.CredentialID(newID())
	put := &meta.Credential{ID: id, Username: "u", Secret: []byte{0, 1, 2}}
	f.mustFollow(a, meta.FollowChange{PutCredential: put})
	f.refusedFollow(a, meta.ConflictCredential, meta.FollowChange{PutCredential: &meta.Credential{ID: meta.CredentialID(newID()), Secret: []byte("x")}})
	f.refusedFollow(b, meta.ConflictID, meta.FollowChange{PutCredential: put})
	f.refusedFollow(b, meta.ConflictNoCredential, meta.FollowChange{PutCredential: put, Replace: true})
	f.refusedFollow(b, meta.ConflictNoCredential, meta.FollowChange{DeleteCredential: id})

	created := now
	now = now.Add(time.Minute)
	f.mustFollow(a, meta.FollowChange{PutCredential: &meta.Credential{ID: id, Secret: []byte("new")}, Replace: true})
	got, err := f.Credential(f.ctx, f.org, id)
	if err != nil || got.Username != "" || string(got.Secret) != "new" || got.Repo != a || got.Org != f.org ||
		!got.CreatedAt.Equal(created) || !got.UpdatedAt.Equal(now) {
		t.Errorf("%+v, %v", got, err)
	}
	stale := got
	stale.UpdatedAt = created
	f.refusedFollow(a, meta.ConflictNoCredential, meta.FollowChange{PutCredential: &stale, Replace: true})
	f.mustFollow(a, meta.FollowChange{PutCredential: &got, Replace: true})
	if same, err := f.RepoCredential(f.ctx, a); err != nil || same.ID != id {
		t.Errorf("%+v, %v", same, err)
	}
	if _, err := f.Credential(f.ctx, f.newOrg("other"), id); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("by another org: %v", err)
	}
	if _, err := f.RepoCredential(f.ctx, b); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("of another repository: %v", err)
	}
	other := meta.CredentialID(newID())
	f.mustFollow(b, meta.FollowChange{PutCredential: &meta.Credential{ID: other, Secret: []byte("x")}})
	for after, want := range map[meta.CredentialID]int{0: 2, id: 1, other: 0} {
		if list, err := f.Credentials(f.ctx, after, 10); err != nil || len(list) != want {
			t.Errorf("after %d: %d, %v", after, len(list), err)
		}
	}
	f.mustFollow(a, meta.FollowChange{DeleteCredential: id})
	f.refusedFollow(a, meta.ConflictNoCredential, meta.FollowChange{DeleteCredential: id})
	f.mustFollow(a, meta.FollowChange{PutCredential: put})

	f.apply(meta.Change{Org: f.org, Repo: a, DeleteRepo: true})
	if _, err := f.Credential(f.ctx, f.org, id); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("of a deleted repository: %v", err)
	}
	f.apply(meta.Change{Org: f.org, Repo: a, PurgeRepo: true})
	if list, err := f.Credentials(f.ctx, 0, 10); err != nil || len(list) != 1 {
		t.Errorf("after a purge: %v, %v", list, err)
	}
}

func testFollowing(t *testing.T, open Open) {
	f := setUp(t, open)
	plain, repo := f.newRepo("plain"), f.follower("r")
	following := func(id meta.RepoID, want meta.Following) {
		t.Helper()
		r, err := f.Repo(f.ctx, id)
		if err != nil || r.Following != want {
			t.Errorf("following %d, want %d; %v", r.Following, want, err)
		}
	}
	following(plain, meta.NotFollowing)
	following(repo, meta.Importing)
	if g, err := f.Gate(f.ctx, meta.GateQuery{Org: "acme", Repo: "r"}); err != nil || g.Repo.Following != meta.Importing {
		t.Errorf("gate: %+v, %v", g, err)
	}
	u, err := f.Upstream(f.ctx, repo)
	if err != nil || u.Provider != "gitea" || u.Host != "git.example" || u.Owner != "o" || u.Name != "n" || !u.Public ||
		u.DefaultBranch != "trunk" || u.Runs != 0 || !u.SyncedAt.IsZero() || len(u.Seen) != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := f.Upstream(f.ctx, plain); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	if list, err := f.Upstreams(f.ctx, []meta.RepoID{repo, plain}); err != nil || len(list) != 1 || list[0].Repo != repo {
		t.Errorf("%+v, %v", list, err)
	}
	add := func(writer string) *meta.Sync { return &meta.Sync{ID: meta.SyncID(newID()), Writer: []byte(writer)} }
	f.refusedFollow(plain, meta.ConflictNoUpstream, meta.FollowChange{AddSync: add("w")})
	f.mustFollow(repo, meta.FollowChange{AddSync: add("creator")}) // waits already
	for i := 1; i < meta.MaxSyncs; i++ {
		f.mustFollow(repo, meta.FollowChange{AddSync: add(string(rune('a' + i)))})
	}
	f.refusedFollow(repo, meta.ConflictBusy, meta.FollowChange{AddSync: add("z")})
	f.mustFollow(repo, meta.FollowChange{AddSync: add("b")})
	if due, err := f.SyncsDue(f.ctx, 10); err != nil || len(due) != 1 || string(due[0].Writer) != "creator" || due[0].Repo != repo || due[0].Org != f.org {
		t.Errorf("%+v, %v", due, err)
	}
	f.mustFollow(repo, meta.FollowChange{Detach: true})
	f.mustFollow(repo, meta.FollowChange{Detach: true})
	following(repo, meta.NotFollowing)
	if due, err := f.SyncsDue(f.ctx, 10); err != nil || len(due) != 0 {
		t.Errorf("%+v, %v", due, err)
	}
	f.refusedFollow(repo, meta.ConflictNoUpstream, meta.FollowChange{AddSync: add("w")})
	gone := f.follower("gone")
	f.apply(meta.Change{Org: f.org, Repo: gone, DeleteRepo: true})
	if due, err := f.SyncsDue(f.ctx, 10); err != nil || len(due) != 0 {
		t.Errorf("of a deleted repository: %+v, %v", due, err)
	}
	f.apply(meta.Change{Org: f.org, Repo: gone, PurgeRepo: true})
	if _, err := f.Upstream(f.ctx, gone); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("after a purge: %v", err)
	}
}

func testSyncs(t *testing.T, open Open) {
	now := time.Unix(1_800_000_000, 0)
	f := setUpAt(t, open, func() time.Time { return now })
	repo := f.follower("r")
	due := func(want ...meta.SyncID) []meta.Sync {
		t.Helper()
		list, err := f.SyncsDue(f.ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		var ids []meta.SyncID
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		if want != nil && !slices.Equal(ids, want) || want == nil && len(ids) != 0 {
			t.Fatalf("due %v, want %v", ids, want)
		}
		return list
	}
	list, err := f.SyncsDue(f.ctx, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	first := list[0].ID
	second := &meta.Sync{ID: meta.SyncID(newID()), Writer: []byte("w")}
	f.mustFollow(repo, meta.FollowChange{AddSync: second})
	begin := func(id meta.SyncID, owner string, runs int64) meta.FollowChange {
		return meta.FollowChange{BeginSync: &meta.BeginSync{ID: id, Owner: owner, Lease: time.Minute, AtRuns: runs}}
	}
	f.refusedFollow(repo, meta.ConflictSync, begin(first, "p", 1))
	f.refusedFollow(repo, meta.ConflictSync, begin(1, "p", 0))
	f.mustFollow(repo, begin(first, "p", 0))
	due()
	f.refusedFollow(repo, meta.ConflictSync, begin(first, "q", 1))
	f.refusedFollow(repo, meta.ConflictSync, begin(second.ID, "q", 1)) // one at a time
	if err := f.RenewSync(f.ctx, first, "q", time.Minute); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("renewed by another: %v", err)
	}
	now = now.Add(50 * time.Second)
	if err := f.RenewSync(f.ctx, first, "p", time.Minute); err != nil {
		t.Error(err)
	}
	now = now.Add(50 * time.Second)
	due()
	now = now.Add(11 * time.Second) // p died
	due(first)
	f.mustFollow(repo, begin(first, "q", 1))
	end := func(id meta.SyncID, owner string) meta.FollowChange {
		return meta.FollowChange{EndSync: &meta.EndSync{ID: id, Owner: owner, Head: "h", Seen: []byte("s")}}
	}
	f.refusedFollow(repo, meta.ConflictSync, end(first, "p")) // fenced off
	again := end(first, "q")
	again.EndSync.Again, again.EndSync.Error = time.Hour, "down"
	f.mustFollow(repo, again)
	u, err := f.Upstream(f.ctx, repo)
	if err != nil || u.LastError != "down" || u.Runs != 2 || u.Head != "" || !u.SyncedAt.IsZero() {
		t.Errorf("%+v, %v", u, err)
	}
	due(second.ID)
	f.mustFollow(repo, begin(second.ID, "q", 2))
	// Refs move in the Change that ends the sync, or not at all.
	tip := object.ID{1}
	change := func(owner string) meta.Change {
		c := end(second.ID, owner)
		return meta.Change{Org: f.org, Repo: repo, Refs: []meta.RefWrite{{Name: "refs/heads/main", New: tip}}, Follow: &c}
	}
	if v, err := f.try(change("p")); err != nil || v.Applied || v.Conflict.Kind != meta.ConflictSync {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := f.try(change("q")); err != nil || !v.Applied {
		t.Errorf("%+v, %v", v, err)
	}
	u, err = f.Upstream(f.ctx, repo)
	if err != nil || u.LastError != "" || u.Head != "h" || string(u.Seen) != "s" || !u.SyncedAt.Equal(now) {
		t.Errorf("%+v, %v", u, err)
	}
	if r, err := f.Repo(f.ctx, repo); err != nil || r.Following != meta.Follows {
		t.Errorf("%+v, %v", r, err)
	}
	now = now.Add(2 * time.Hour)
	due() // the success ended what was to be tried again
}

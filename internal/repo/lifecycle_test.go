package repo

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

func TestCreateDeletePurge(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	r := w.create("repo")
	if r.DefaultBranch != "main" || r.ID == 0 {
		t.Errorf("created %+v", r)
	}
	_, err := w.engine.Create(ctx, w.writer, CreateRequest{Name: "repo"})
	if e, ok := errors.AsType[*ExistsError](err); !ok || e.Deleted {
		t.Errorf("create twice: %v", err)
	}
	if _, err := w.engine.Create(ctx, w.writer, CreateRequest{Name: "other", DefaultBranch: "a..b"}); err == nil {
		t.Error("a malformed default branch was taken")
	}
	w.commit(r.ID, "one", map[string]string{"f": "1"})
	v := w.view(r.ID)
	if err := w.engine.Purge(ctx, w.writer, r); err == nil {
		t.Error("a live repository was purged")
	}
	if err := w.engine.Delete(ctx, w.writer, r); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*DeletedError](w.engine.Delete(ctx, w.writer, r)); !ok {
		t.Error("a second delete was not told apart")
	}
	_, err = w.engine.Create(ctx, w.writer, CreateRequest{Name: "repo"})
	if e, ok := errors.AsType[*ExistsError](err); !ok || !e.Deleted {
		t.Errorf("create under a deleted name: %v", err)
	}
	_, err = w.engine.CreateBranch(ctx, w.writer, v, BranchRequest{Target: "x", Base: "main"})
	if _, ok := errors.AsType[*GoneError](err); !ok {
		t.Errorf("write to a deleted repository: %v", err)
	}
	if _, err := w.engine.Fork(ctx, w.writer, v, ForkRequest{CreateRequest: CreateRequest{Name: "fork"}}); !isGone(err) {
		t.Errorf("fork of a deleted repository: %v", err)
	}
	if err := w.engine.Purge(ctx, w.writer, r); err != nil {
		t.Fatal(err)
	}
	w.create("repo")
}

func isGone(err error) bool {
	_, ok := errors.AsType[*GoneError](err)
	return ok
}

func TestFork(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	r := w.create("parent")
	main := w.commit(r.ID, "one", map[string]string{"f": "1"})
	side, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "side", BaseBranch: "main"}, map[string]string{"g": "side"})
	if err != nil {
		t.Fatal(err)
	}
	fork := func(name string, req ForkRequest) meta.Repo {
		t.Helper()
		req.Name = name
		f, err := w.engine.Fork(ctx, w.writer, w.view(r.ID), req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.meta.Repo(ctx, f.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if f := fork("all", ForkRequest{}); !f.Tidy || w.ref(f.ID, "refs/heads/side") != side.Commit || f.Source != r.ID {
		t.Errorf("a whole fork: %+v", f)
	}
	one := fork("one", ForkRequest{Revision: "main"})
	if one.Tidy || w.ref(one.ID, "refs/heads/main") != main || !w.ref(one.ID, "refs/heads/side").IsZero() {
		t.Errorf("a fork of one branch: %+v", one)
	}
	renamed := fork("renamed", ForkRequest{CreateRequest: CreateRequest{DefaultBranch: "trunk"}, Revision: side.Commit.String()})
	if renamed.DefaultBranch != "trunk" || w.ref(renamed.ID, "refs/heads/trunk") != side.Commit {
		t.Errorf("a fork of one commit: %+v", renamed)
	}

	// What the fork has no ref for is not there, though the packs hold it.
	wantStatus(t, w.push(one.ID, nil, wire.Command{Ref: "refs/heads/steal", New: side.Commit}), map[string]string{"refs/heads/steal": "missing necessary objects"})
	g := newGitDir(t)
	thief := g.commit("thief", side.Tree, main)
	if res := w.push(one.ID, g.packOf(thief), wire.Command{Ref: "refs/heads/steal", New: thief}); !strings.Contains(res.Unpack, "missing necessary objects") {
		t.Errorf("a commit with the parent's other tree: %+v", res)
	}
	if _, err := w.engine.CreateBranch(ctx, w.writer, w.view(one.ID), BranchRequest{Target: "x", Base: side.Commit.String()}); !isNotFound(err) {
		t.Errorf("a branch at the parent's other commit: %v", err)
	}

	// Ephemeral refs stay behind, and what only they reach with them.
	eph, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "e", TargetEphemeral: true, BaseBranch: "main"}, map[string]string{"e": "e"})
	if err != nil {
		t.Fatal(err)
	}
	second := fork("second", ForkRequest{})
	if second.Tidy || !w.ref(second.ID, "refs/namespaces/ephemeral/refs/heads/e").IsZero() {
		t.Errorf("a fork got ephemeral refs: %+v", second)
	}
	if missing, err := w.view(second.ID).Reachable(ctx, eph.Commit); err != nil || missing.IsZero() {
		t.Errorf("the ephemeral commit is reachable in the fork (%v)", err)
	}

	// The two go their own ways, and deleting the parent is harmless.
	w.commit(one.ID, "in the fork", map[string]string{"f": "2"})
	if w.ref(r.ID, "refs/heads/main") != main {
		t.Error("a commit to the fork moved the parent")
	}
	if err := w.engine.Delete(ctx, w.writer, r); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Purge(ctx, w.writer, r); err != nil {
		t.Fatal(err)
	}
	for _, id := range []meta.RepoID{one.ID, second.ID} {
		w.fsck(id)
		w.export(id)
	}

	empty := w.create("empty")
	f, err := w.engine.Fork(ctx, w.writer, w.view(empty.ID), ForkRequest{CreateRequest: CreateRequest{Name: "empty fork"}})
	if err != nil {
		t.Fatal(err)
	}
	w.commit(f.ID, "first", map[string]string{"f": "1"})
	denied := w.writer
	denied.Policies = mustPolicies(t, "*=no-push")
	_, err = w.engine.Fork(ctx, denied, w.view(one.ID), ForkRequest{CreateRequest: CreateRequest{Name: "denied"}})
	if _, ok := errors.AsType[*policy.DeniedError](err); !ok {
		t.Errorf("a fork whose refs the token may not write: %v", err)
	}
}

func isNotFound(err error) bool {
	_, ok := errors.AsType[*NotFoundError](err)
	return ok
}

func TestBranches(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	r := w.create("repo")
	first := w.commit(r.ID, "one", map[string]string{"f": "1"})
	second := w.commit(r.ID, "two", map[string]string{"f": "2"})
	create := func(req BranchRequest) (object.ID, error) {
		return w.engine.CreateBranch(ctx, w.writer, w.view(r.ID), req)
	}
	for _, test := range []struct {
		req  BranchRequest
		want object.ID
	}{
		{BranchRequest{Target: "b", Base: "main"}, second},
		{BranchRequest{Target: "b", TargetEphemeral: true, Base: "main~1"}, first},
		{BranchRequest{Target: "promoted", Base: "b", BaseEphemeral: true}, first},
		{BranchRequest{Target: "c", Base: first.String()}, first},
		{BranchRequest{Target: "d", Base: "refs/heads/main"}, second},
		{BranchRequest{Target: "c", Base: "main", Force: true}, second},
		{BranchRequest{Target: "c", Base: "main~1", Force: true}, first},
	} {
		if got, err := create(test.req); err != nil || got != test.want {
			t.Errorf("%+v: %s %v, want %s", test.req, got, err, test.want)
		}
	}
	if _, err := create(BranchRequest{Target: "b", Base: "main"}); !isExists(err) {
		t.Errorf("create twice: %v", err)
	}
	if _, err := create(BranchRequest{Target: "new", Base: "nowhere"}); !isNotFound(err) {
		t.Errorf("unknown base: %v", err)
	}
	_, err := create(BranchRequest{Target: "main", Base: "main~1", Force: true})
	if e, ok := errors.AsType[*DefaultBranchError](err); !ok || !e.Replaced {
		t.Errorf("replace the default branch: %v", err)
	}
	_, err = w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "main", false)
	if _, ok := errors.AsType[*DefaultBranchError](err); !ok {
		t.Errorf("delete the default branch: %v", err)
	}
	if got, err := w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "b", true); err != nil || got != first {
		t.Errorf("delete an ephemeral branch: %s %v", got, err)
	}
	if w.ref(r.ID, "refs/heads/b") != second {
		t.Error("the normal branch went with the ephemeral one")
	}
	if _, err := w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "b", true); !isNotFound(err) {
		t.Errorf("delete it again: %v", err)
	}
	if err := w.engine.SetDefaultBranch(ctx, w.writer, w.view(r.ID), "nowhere"); !isNotFound(err) {
		t.Errorf("a default branch that does not exist: %v", err)
	}
	if err := w.engine.SetDefaultBranch(ctx, w.writer, w.view(r.ID), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "main", false); err != nil {
		t.Errorf("main is not the default branch any more: %v", err)
	}
	// Rules hold for REST as for git.
	rule, err := policy.NewProtection("c", []policy.Op{policy.NoForcePush})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.SetProtections(ctx, w.writer, r, []policy.Protection{rule}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "c", false); !isDenied(err) {
		t.Errorf("delete a protected branch: %v", err)
	}
	if _, err := create(BranchRequest{Target: "c", Base: "d", Force: true}); err != nil {
		t.Errorf("a forced move that goes forward: %v", err)
	}
	if _, err := create(BranchRequest{Target: "c", Base: first.String(), Force: true}); !isDenied(err) {
		t.Errorf("a forced move back: %v", err)
	}
}

func isExists(err error) bool {
	_, ok := errors.AsType[*ExistsError](err)
	return ok
}

func isDenied(err error) bool {
	_, ok := errors.AsType[*policy.DeniedError](err)
	return ok
}

func TestSamePushByMany(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r := w.create("repo")
		g := newGitDir(t)
		c := g.history("main", 3)
		w.push(r.ID, g.packRevs(c[1].String()), wire.Command{Ref: "refs/heads/main", New: c[0]}, wire.Command{Ref: "refs/heads/next", New: c[1]})
		pack := g.packRevs(c[2].String(), "^"+c[1].String())
		v := w.view(r.ID)
		var wg sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		for range 64 {
			wg.Go(func() {
				res, err := w.engine.Receiver(w.writer, v, Normal).Receive(context.Background(),
					&wire.Push{Commands: []wire.Command{{Ref: "refs/heads/main", Old: c[0], New: c[2]}}}, strings.NewReader(string(pack)))
				if err != nil || res.Unpack != "" || res.Refs[0].Error != "" {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if failed > 0 {
			t.Errorf("%d of 64 pushes of the same commit failed", failed)
		}
		events, err := w.meta.Events(context.Background(), w.org, 0, 100)
		if err != nil || len(events) != 3 {
			t.Errorf("%d events (%v), want 3", len(events), err)
		}
		w.fsck(r.ID)
	})
}

// faulty fails the nth call that writes, counted over both stores.
type faulty struct {
	mu   sync.Mutex
	left int // calls until the fault; negative: never
	hit  bool
	// instead, if set, is done in place of the fault.
	instead func()
}

var errFault = errors.New("injected fault")

func (f *faulty) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left == 0 {
		f.hit = true
		if f.instead != nil {
			f.instead()
			return nil
		}
		return errFault
	}
	return nil
}

type faultyBlobs struct {
	blob.Store
	*faulty
}

func (s faultyBlobs) Put(ctx context.Context, key blob.Key, r io.Reader, size int64) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, r, size)
}

func (s faultyBlobs) Delete(ctx context.Context, key blob.Key) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key)
}

type faultyMeta struct {
	meta.Store
	*faulty
	// late makes the fault of Apply come after it took effect.
	late *bool
}

func (s faultyMeta) BeginUpload(ctx context.Context, u meta.Upload) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.BeginUpload(ctx, u)
}

func (s faultyMeta) EndUpload(ctx context.Context, key string) error {
	if err := s.call(); err != nil {
		return err
	}
	return s.Store.EndUpload(ctx, key)
}

func (s faultyMeta) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	err := s.call()
	if err != nil && !*s.late {
		return meta.Verdict{}, err
	}
	v, applied := s.Store.Apply(ctx, c)
	if err != nil {
		return meta.Verdict{}, err
	}
	return v, applied
}

// TestEveryFault fails each write to the stores in turn, before or after it took
// effect, and checks that the push is there as a whole or not at all, and that
// a sweep leaves no bytes behind.
func TestEveryFault(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			f := &faulty{left: -1}
			w := newWorld(t, options{
				inlineLimit: 64,
				blobs:       func(s blob.Store) blob.Store { return faultyBlobs{s, f} },
				meta:        func(s meta.Store) meta.Store { return faultyMeta{s, f, &late} },
			})
			r := w.create("repo")
			g := newGitDir(t)
			c := g.history("main", 3)
			w.push(r.ID, g.packRevs(c[0].String()), wire.Command{Ref: "refs/heads/main", New: c[0]})
			f.left = n
			rc := w.engine.Receiver(w.writer, w.view(r.ID), Normal)
			_, err := rc.Receive(context.Background(), &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/main", Old: c[0], New: c[2]}}},
				strings.NewReader(string(g.packRevs(c[2].String(), "^"+c[0].String()))))
			f.left = -1
			if f.hit && !errors.Is(err, errFault) {
				t.Errorf("fault %d: the push said %v", n, err)
			}
			if at := w.ref(r.ID, "refs/heads/main"); at != c[0] && at != c[2] || err == nil && at != c[2] {
				t.Errorf("fault %d: main is at %s after %v", n, at, err)
			}
			w.engine.cfg.Clock = func() time.Time { return time.Now().Add(time.Hour) }
			if _, err := w.engine.Sweep(context.Background()); err != nil {
				t.Errorf("fault %d: sweep: %v", n, err)
			}
			w.fsck(r.ID) // reports unreferenced blobs too
			if uploads, err := w.meta.Uploads(context.Background()); err != nil || len(uploads) > 0 {
				t.Errorf("fault %d: uploads are left: %v %v", n, uploads, err)
			}
			// The next push goes through.
			w.view(r.ID)
			if at := w.ref(r.ID, "refs/heads/main"); at == c[0] {
				wantStatus(t, w.push(r.ID, g.packRevs(c[2].String(), "^"+c[0].String()), wire.Command{Ref: "refs/heads/main", Old: c[0], New: c[2]}), map[string]string{"refs/heads/main": ""})
			}
			w.fsck(r.ID)
			if !f.hit {
				if n < 4 {
					t.Errorf("only %d calls wrote something", n-1)
				}
				break
			}
		}
	}
}

func TestSweepSparesWhatIsUsed(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 64})
	ctx := context.Background()
	r := w.create("repo")
	w.commit(r.ID, "one", map[string]string{"f": "1"})
	now := time.Now()
	w.engine.cfg.Clock = func() time.Time { return now }
	if err := w.engine.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	_, done, err := w.engine.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{w.engine.Delete(ctx, w.writer, r), w.engine.Purge(ctx, w.writer, r), w.engine.Heartbeat(ctx)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	sweep := func() SweepResult {
		t.Helper()
		res, err := w.engine.Sweep(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := sweep(); res.Retired != 0 {
		t.Errorf("swept %d packs under a running operation", res.Retired)
	}
	// An upload of this process that runs, and one of a process that is gone.
	for _, u := range []meta.Upload{{Key: "packs/mine", Process: "test"}, {Key: "packs/theirs", Process: "gone"}} {
		if err := w.meta.BeginUpload(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.blobs.Put(ctx, "packs/theirs.pack", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	now = time.Now().Add(time.Second)
	if res := sweep(); res.Uploads != 1 {
		t.Errorf("swept %d uploads, want that of the process that is gone", res.Uploads)
	}
	done()
	time.Sleep(2 * time.Millisecond) // the store's clock decides
	if err := w.engine.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	if res := sweep(); res.Retired != 1 || res.Uploads != 1 {
		t.Errorf("swept %+v once nothing ran, want one of each", res)
	}
	for info, err := range w.blobs.List(ctx, "") {
		t.Errorf("blob %s is left (%v)", info.Key, err)
	}
}

func TestLeaseEndsOperations(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	now := time.Now()
	w.engine.cfg.Clock = func() time.Time { return now }
	if err := w.engine.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	op, done, err := w.engine.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	now = now.Add(DefaultLease)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := w.engine.Heartbeat(ended); err == nil {
		t.Fatal("a heartbeat without a store succeeded")
	}
	if !errors.Is(context.Cause(op), ErrLeaseLost) {
		t.Errorf("the operation goes on: %v", context.Cause(op))
	}
	if _, _, err := w.engine.Begin(ctx); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("another one began: %v", err)
	}
	if err := w.engine.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	if _, done, err := w.engine.Begin(ctx); err != nil {
		t.Errorf("none may begin after the lease was renewed: %v", err)
	} else {
		done()
	}
}

func TestPushToDeletedRepository(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 1)
	for _, age := range []time.Duration{0, time.Hour} {
		rc := w.engine.Receiver(w.writer, w.view(r.ID), Normal)
		if age > 0 {
			w.engine.cfg.Clock = func() time.Time { return time.Now().Add(age) }
		} else if err := w.engine.Delete(ctx, w.writer, r); err != nil {
			t.Fatal(err)
		}
		res, err := rc.Receive(ctx, &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/main", New: c[0]}}}, strings.NewReader(string(g.packRevs(c[0].String()))))
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, res, map[string]string{"refs/heads/main": "does not exist any more"})
	}
}

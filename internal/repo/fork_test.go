package repo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
)

// stored returns the bytes of all packs that the given repositories list, each
// pack counted once, and of the blobs beside them.
func (w *world) stored(ids ...meta.RepoID) int64 {
	w.t.Helper()
	ctx := context.Background()
	seen := map[meta.PackID]bool{}
	var sum int64
	for _, id := range ids {
		for _, p := range w.db(id).Packs() {
			if !seen[p.Info().ID] && p.Info().Inline {
				sum += p.Info().Bytes
			}
			seen[p.Info().ID] = true
		}
	}
	for info, err := range w.blobs.List(ctx, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		sum += info.Size
	}
	return sum
}

// forget lets all that was retired until now be swept.
func (w *world) forget() {
	w.t.Helper()
	w.engine.cfg.Clock = func() time.Time { return time.Now().Add(time.Second) }
	if _, err := w.engine.Sweep(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fork(source meta.RepoID, name, revision string) meta.Repo {
	w.t.Helper()
	r, err := w.engine.Fork(context.Background(), w.writer, w.view(source), ForkRequest{CreateRequest: CreateRequest{Name: name}, Revision: revision})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) purge(r meta.Repo) {
	w.t.Helper()
	ctx := context.Background()
	if err := w.engine.Delete(ctx, w.writer, r); err != nil {
		w.t.Fatal(err)
	}
	if err := w.engine.Purge(ctx, w.writer, r); err != nil {
		w.t.Fatal(err)
	}
}

// noise returns text that does not compress well.
func noise(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(33 + r.IntN(94))
	}
	return string(b)
}

// TestSoakForks makes forks of a large repository, commits to each and to their
// parent, and collects them all: together they take little more than the parent and
// what is new, and they survive it. The long form is 1,000 forks of 500 MB.
func TestSoakForks(t *testing.T) {
	forks, size := 50, 1<<20
	if testkit.Soaking() {
		forks, size = 1000, 500<<20
	}
	w := newWorld(t, options{garbage: time.Hour})
	r := rand.New(rand.NewPCG(5, 5))
	parent := w.create("parent")
	g := newGitDir(t)
	files := map[string]object.ID{}
	const piece = 256 << 10
	for i := range size / piece {
		files[fmt.Sprint("big", i)] = g.put("blob", noise(r, piece))
	}
	first := g.commit("first", g.tree(files))
	wantStatus(t, w.push(parent.ID, g.packOf(g.newIn(first)...), wire.Command{Ref: "refs/heads/main", New: first}), map[string]string{"refs/heads/main": ""})
	w.collect(parent.ID, CollectOptions{Full: true})
	w.forget()
	alone := w.stored(parent.ID)
	shared := w.db(parent.ID).Packs()[0].Info().ID

	ids := []meta.RepoID{parent.ID}
	var fresh int64
	save := func(id meta.RepoID, name string) {
		before := len(w.db(id).Packs())
		for k := range 20 {
			w.commit(id, fmt.Sprint(name, k), map[string]string{fmt.Sprint("own", k%3): noise(r, 200)})
		}
		for _, p := range w.db(id).Packs()[before:] {
			fresh += p.Info().Bytes
		}
	}
	for i := range forks {
		source := parent.ID
		if i%10 == 9 {
			source = ids[len(ids)-1] // a fork of a fork
		}
		fork := w.fork(source, fmt.Sprint("fork", i), "")
		ids = append(ids, fork.ID)
		save(fork.ID, fork.Name)
	}
	save(parent.ID, parent.Name)
	for _, id := range ids {
		// What a fork of the fork lists too stays as it is.
		res, err := w.engine.Collect(context.Background(), id, CollectOptions{Full: true})
		if err != nil || res.PacksAfter > 1 || res.PacksAfter+res.SharedPacks > 22 || !res.Tidy {
			t.Fatalf("repository %d: %+v, %v", id, res, err)
		}
		if w.db(id).Packs()[0].Info().ID != shared {
			t.Fatal("a repository does not share the first pack any more")
		}
	}
	w.forget()
	if sum, most := w.stored(ids...), alone+alone/10+fresh; sum > most {
		t.Errorf("%d forks and their parent take %d bytes; the parent %d, what is new %d", forks, sum, alone, fresh)
	} else {
		t.Logf("%d forks and their parent take %d bytes; the parent %d, what is new %d", forks, sum, alone, fresh)
	}
	w.purge(parent)
	w.purge(meta.Repo{ID: ids[1], Org: w.org, Name: "fork0"})
	w.forget()
	had := map[object.ID]bool{}
	w.reach(w.db(ids[2]), []object.ID{first}, nil, had)
	for i, id := range ids[2:] {
		tip := w.ref(id, "refs/heads/main")
		w.reach(w.db(id), []object.ID{tip}, had, map[object.ID]bool{})
		if w.db(id).Packs()[0].Info().ID != shared {
			t.Errorf("fork %d has no part in the first pack any more", i)
		}
		if i < 3 || i == 8 || i%250 == 249 {
			w.clone(id, tip)
			w.fsck(id)
		}
	}
}

// TestForkOutlives collects forks that need little or most of their source, while
// it is there and when they are the last to list its packs.
func TestForkOutlives(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 1, garbage: time.Hour})
	r := rand.New(rand.NewPCG(6, 6))
	parent := w.create("parent")
	small := w.commit(parent.ID, "small", map[string]string{"f": "small"})
	large := w.commit(parent.ID, "large", map[string]string{"g": noise(r, 100<<10)})
	most := w.fork(parent.ID, "most", large.String())
	part := w.fork(parent.ID, "part", small.String())
	for _, f := range []meta.Repo{most, part} {
		w.commit(f.ID, "own", map[string]string{"h": "own"})
	}
	if res := w.collect(most.ID, CollectOptions{Full: true}); res.SharedPacks != 2 || res.PacksAfter != 1 || !res.Tidy {
		t.Errorf("a fork that needs all of its source: %+v", res)
	}
	if res := w.collect(part.ID, CollectOptions{Full: true}); res.SharedPacks != 2 || res.PacksAfter != 1 || res.Tidy {
		t.Errorf("a fork that needs little of its source: %+v", res)
	}
	w.wantRefused(part.ID, large)
	w.purge(parent)
	w.purge(most)
	w.forget()
	res := w.collect(part.ID, CollectOptions{})
	db := w.db(part.ID)
	if res.SharedPacks != 0 || !res.Tidy || len(db.Packs()) != 2 || db.Has(large) || !db.Exact(0) || res.GarbageBytes < 50<<10 {
		t.Errorf("a fork alone with packs of which it needs little: %+v, %d packs", res, len(db.Packs()))
	}
	w.clone(part.ID, w.ref(part.ID, "refs/heads/main"))
	w.engine.cfg.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if res := w.collect(part.ID, CollectOptions{}); res.Did != DidDrop {
		t.Errorf("after the grace: %+v", res)
	}
	if _, err := w.engine.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if sum := w.stored(part.ID); sum > 50<<10 {
		t.Errorf("%d bytes are left for a fork that needs little", sum)
	}
	w.fsck(part.ID)
	w.export(part.ID)
}

// TestForkWhileRepacked forks a repository between the look at what its packs hold
// and their replacement: no second copy is made.
func TestForkWhileRepacked(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 1, garbage: -1})
	parent := w.create("parent")
	w.commit(parent.ID, "large", map[string]string{"g": noise(rand.New(rand.NewPCG(7, 7)), 100<<10)})
	before := w.stored(parent.ID)
	var fork meta.Repo
	res := w.collect(parent.ID, CollectOptions{Full: true, Progress: func(step string) {
		if step == "repack" && fork.ID == 0 {
			fork = w.fork(parent.ID, "fork", "")
		}
	}})
	w.forget()
	if sum := w.stored(parent.ID, fork.ID); res.Did != DidNothing || res.SharedPacks != 1 || sum != before {
		t.Errorf("%+v; %d bytes are stored, %d before", res, sum, before)
	}
}

// TestForkAfterEach forks a repository after each of its commits: its packs, which
// all have others that list them, are put together only when there are many.
func TestForkAfterEach(t *testing.T) {
	w := newWorld(t, options{})
	parent := w.create("parent")
	ids := []meta.RepoID{parent.ID}
	var written int64
	most := 0
	for i := range 2*maxHeldOwn + foldAt {
		w.commit(parent.ID, fmt.Sprint(i), map[string]string{"f": fmt.Sprint(i)})
		packs := w.db(parent.ID).Packs()
		written += packs[len(packs)-1].Info().Bytes
		ids = append(ids, w.fork(parent.ID, fmt.Sprint("fork", i), "").ID)
		w.background()
		most = max(most, len(packs))
	}
	if n := len(w.db(parent.ID).Packs()); most < maxHeldOwn || most > maxHeldOwn+2*foldAt || n > most {
		t.Errorf("%d packs, at most %d", n, most)
	}
	if sum := w.stored(ids...); sum > 4*written {
		t.Errorf("%d bytes are stored, %d were written", sum, written)
	}
	w.clone(parent.ID, w.ref(parent.ID, "refs/heads/main"))
	for i := 0; i < len(ids); i += 60 {
		w.fsck(ids[i])
	}
	// A fork of it that is full of them leaves them alone; one that has many more
	// does not.
	var packs []meta.ListedPack
	for i := range int64(maxHeld) {
		packs = append(packs, meta.ListedPack{Pack: meta.Pack{ID: meta.PackID(i), Repo: parent.ID, Class: meta.PackInsert, Bytes: 100}, Shared: true})
	}
	packs[0].Bytes = 1 << 20
	fork := meta.Repo{ID: parent.ID + 1}
	if held := heldOf(fork, packs); len(held) != maxHeld {
		t.Errorf("%d of %d packs of a fork stay", len(held), maxHeld)
	}
	packs = append(packs, meta.ListedPack{Pack: meta.Pack{ID: maxHeld, Repo: fork.ID, Class: meta.PackInsert, Bytes: 100}, Shared: true})
	if held := heldOf(fork, packs); len(held) != 1 || !held[0] {
		t.Errorf("%d of %d packs of a fork stay", len(held), len(packs))
	}
}

package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/testkit"
)

// family is a repository, its forks and theirs, with the branches that each must
// have, and all that was ever stored.
type family struct {
	*world
	rng      *rand.Rand
	members  []meta.Repo
	branches map[meta.RepoID]map[string]object.ID
	made     int   // forks
	written  int64 // bytes of the packs that writes made
	packs    map[meta.PackID]bool
}

func newFamily(w *world, seed uint64) *family {
	f := &family{
		world: w, rng: rand.New(rand.NewPCG(seed, 3)), branches: map[meta.RepoID]map[string]object.ID{}, packs: map[meta.PackID]bool{},
	}
	parent := w.create("parent")
	f.members = append(f.members, parent)
	f.branches[parent.ID] = map[string]object.ID{}
	f.commitTo(parent.ID, "main")
	return f
}

func (f *family) member() meta.Repo { return f.members[f.rng.IntN(len(f.members))] }

// branch returns one of a repository's branches, "" when it has none.
func (f *family) branch(id meta.RepoID) string {
	names := slices.Sorted(maps.Keys(f.branches[id]))
	if len(names) == 0 {
		return ""
	}
	return names[f.rng.IntN(len(names))]
}

// note counts the packs that a write to a repository made.
func (f *family) note(id meta.RepoID) {
	for _, p := range f.db(id).Packs() {
		if info := p.Info(); !f.packs[info.ID] && (info.Class == meta.PackInsert || info.Class == meta.PackReceive) {
			f.written += info.Bytes
			f.packs[info.ID] = true
		}
	}
}

func (f *family) commitTo(id meta.RepoID, branch string) {
	f.t.Helper()
	req := CommitRequest{TargetBranch: branch, Message: fmt.Sprint(f.rng.Uint64())}
	if _, ok := f.branches[id][branch]; !ok {
		req.BaseBranch = f.branch(id)
	}
	// Some contents come again and again, in repositories that do not know.
	res, err := f.tryCommit(id, req, map[string]string{
		"big":                             noise(f.rng, 200+f.rng.IntN(2000)),
		fmt.Sprint("same", f.rng.IntN(4)): fmt.Sprint(f.rng.IntN(6)),
	})
	if err != nil {
		f.t.Fatalf("commit: %v", err)
	}
	f.branches[id][branch] = res.Commit
	f.note(id)
}

// rewind moves a branch to its commit's parent, or deletes it.
func (f *family) rewind(id meta.RepoID) {
	f.t.Helper()
	ctx := context.Background()
	name := f.branch(id)
	if name == "" || name == "main" {
		return
	}
	tip, v := f.branches[id][name], f.view(id)
	g, err := v.Graph(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	to := object.Zero
	if n, ok := g.Node(tip); ok && f.rng.IntN(3) > 0 && len(g.Parents(n)) > 0 {
		to = g.ID(g.Parents(n)[0])
	}
	if _, err := f.engine.Update(ctx, f.writer, v, Update{Refs: []RefUpdate{{Name: "refs/heads/" + name, Old: tip, New: to}}}); err != nil {
		f.t.Fatal(err)
	}
	if f.branches[id][name] = to; to.IsZero() {
		delete(f.branches[id], name)
	}
}

// bring pushes what another member has, or had, to a branch of this one.
func (f *family) bring(id meta.RepoID) {
	f.t.Helper()
	from := f.member()
	name := f.branch(from.ID)
	if name == "" {
		return
	}
	tip, to := f.branches[from.ID][name], "brought"
	old := f.branches[id][to]
	wantStatus(f.t, f.push(id, f.answer(from.ID, tip), wire.Command{Ref: "refs/heads/" + to, Old: old, New: tip}), map[string]string{"refs/heads/" + to: ""})
	f.branches[id][to] = tip
	f.note(id)
}

func (f *family) forkOff() {
	f.t.Helper()
	source, revision := f.member(), ""
	f.made++
	if f.rng.IntN(3) == 0 {
		revision = f.branches[source.ID]["main"].String()
	}
	fork := f.fork(source.ID, fmt.Sprint("fork", f.made), revision)
	f.members = append(f.members, fork)
	f.branches[fork.ID] = maps.Clone(f.branches[source.ID])
	if revision != "" {
		f.branches[fork.ID] = map[string]object.ID{"main": f.branches[source.ID]["main"]}
	}
}

// end deletes and purges a member.
func (f *family) end() {
	f.t.Helper()
	if len(f.members) == 1 {
		return
	}
	i := f.rng.IntN(len(f.members))
	f.purge(f.members[i])
	delete(f.branches, f.members[i].ID)
	f.members = slices.Delete(f.members, i, i+1)
}

func (f *family) step() {
	f.t.Helper()
	r := f.member()
	switch k := f.rng.IntN(20); {
	case k < 9:
		branch := "main"
		if f.rng.IntN(2) == 0 {
			branch = fmt.Sprint("b", f.rng.IntN(3))
		}
		f.commitTo(r.ID, branch)
	case k < 12:
		f.rewind(r.ID)
	case k < 13:
		f.bring(r.ID)
	case k < 15 && len(f.members) < 12:
		f.forkOff()
	case k < 16:
		f.end()
	case k < 18:
		f.collect(r.ID, CollectOptions{Full: f.rng.IntN(2) == 0})
	case k < 19:
		if _, err := f.engine.fold(context.Background(), r.ID); err != nil {
			f.t.Fatalf("fold: %v", err)
		}
	default:
		if _, err := f.engine.Sweep(context.Background()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// check clones a member and holds its branches and what its packs claim against
// what they must be.
func (f *family) check(r meta.Repo) {
	f.t.Helper()
	var tips []object.ID
	for name, tip := range f.branches[r.ID] {
		if at := f.ref(r.ID, "refs/heads/"+name); at != tip {
			f.t.Errorf("%s: branch %s is at %s, want %s", r.Name, name, at, tip)
		}
		tips = append(tips, tip)
	}
	if len(tips) == 0 {
		return
	}
	sent, err := contentsOf(f.answer(r.ID, tips...))
	if err != nil {
		f.t.Errorf("clone of %s: %v", r.Name, err)
	}
	f.fsck(r.ID)
	db := f.db(r.ID)
	v := f.view(r.ID)
	if v.repo.Tidy {
		for i, p := range db.Packs() {
			for pos := range p.Index().Count() {
				if id := p.Index().ID(pos); p.Info().Class != meta.PackGarbage && !sent[id] {
					f.t.Errorf("%s is tidy, but no ref reaches %s of pack %d", r.Name, id, i)
				}
			}
		}
	}
	f.exact(r)
}

// exact holds the contents of exact packs against those that their rows claim.
func (w *world) exact(r meta.Repo) {
	w.t.Helper()
	db := w.db(r.ID)
	for i, p := range db.Packs() {
		if !db.Exact(int32(i)) {
			continue
		}
		idx, info := p.Index(), p.Info()
		cut, whole := map[object.ID]bool{}, map[object.ID]bool{}
		w.reach(db, info.Boundary, nil, cut)
		w.reach(db, info.Tips, cut, whole)
		if len(whole) != idx.Count() {
			w.t.Errorf("%s: pack %d of class %d has %d objects, its tips without its boundary reach %d", r.Name, info.ID, info.Class, idx.Count(), len(whole))
		}
		for pos := range idx.Count() {
			if !whole[idx.ID(pos)] {
				w.t.Errorf("%s: pack %d has %s beyond its claim", r.Name, info.ID, idx.ID(pos))
			}
		}
	}
}

// reach adds what ids reach and cut has not to set.
func (w *world) reach(db *odb.DB, ids []object.ID, cut, set map[object.ID]bool) {
	w.t.Helper()
	for todo := slices.Clone(ids); len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if set[id] || cut[id] {
			continue
		}
		set[id] = true
		kind, data, err := db.Get(context.Background(), id)
		if err == nil {
			err = eachLink(kind, data, func(k link) error { todo = append(todo, k.id); return nil })
		}
		if err != nil {
			w.t.Fatalf("walk: %v", err)
		}
	}
}

// contentsOf returns the objects of an answer, which must hold all that they name.
func contentsOf(answer []byte) (map[object.ID]bool, error) {
	idx, err := pack.Receive(context.Background(), bytes.NewReader(answer), new(pack.Buffer), pack.Options{})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := idx.WriteIndex(&b); err != nil {
		return nil, err
	}
	parsed, err := pack.ParseIndex(b.Bytes())
	if err != nil {
		return nil, err
	}
	out := map[object.ID]bool{}
	for pos := range parsed.Count() {
		out[parsed.ID(pos)] = true
	}
	return out, complete(answer)
}

// TestRandomFamily does random things to a family of forks: whatever is collected
// and goes, each member clones clean, its packs are what their rows say, and in the
// end what is stored is in proportion to what was written.
func TestRandomFamily(t *testing.T) {
	rounds, steps := 6, 120
	if testkit.Soaking() {
		rounds, steps = 200, 600
	}
	seed := testkit.Seed(t)
	for round := range rounds {
		w := newWorld(t, options{inlineLimit: 700, garbage: -1})
		f := newFamily(w, seed+uint64(round))
		for range steps {
			f.step()
		}
		for _, r := range f.members {
			f.check(r)
		}
		f.purge(f.members[0])
		delete(f.branches, f.members[0].ID)
		f.members = f.members[1:]
		var ids []meta.RepoID
		for _, r := range f.members {
			f.collect(r.ID, CollectOptions{Full: true})
			ids = append(ids, r.ID)
		}
		w.forget()
		w.engine.cfg.ODB = freshODB(w)
		for _, r := range f.members {
			f.check(r)
		}
		if sum := w.stored(ids...); sum > 2*f.written {
			t.Errorf("%d members take %d bytes, %d were written", len(ids), sum, f.written)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// wantRefused fails the test unless a want of an object is refused.
func (w *world) wantRefused(id meta.RepoID, want object.ID) {
	w.t.Helper()
	var refused *wire.NotOurRefError
	if err := w.view(id).Uploader(Normal).CheckWants(context.Background(), []object.ID{want}); !errors.As(err, &refused) {
		w.t.Errorf("a want of an object that no ref reaches: %v", err)
	}
}

package model_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/stack"
)

// pair is a repository and the one of git that it must be like.
type pair struct {
	name string
	id   meta.RepoID
	dir  string // the bare repository of git
	keep string // a clone that fetches again and again
}

// world is all repositories of a test.
type world struct {
	t      *testing.T
	ctx    context.Context
	rand   *rand.Rand
	disk   *fsx.Mem
	clock  *stack.Clock
	remote *remote
	pairs  []*pair
	made   int
	counts map[string]int // of what was done
	trail  []string       // what was done, in order
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, ctx: t.Context(), rand: rand.New(rand.NewPCG(seed, 0x30de1)), disk: fsx.NewMem(), clock: &stack.Clock{},
		remote: newRemote(), counts: make(map[string]int),
	}
	w.open()
	t.Cleanup(func() {
		w.remote.server.Close()
		if err := w.stack().Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) stack() *stack.Stack { return w.remote.stack.Load() }

func (w *world) open() {
	w.t.Helper()
	s, err := stack.Open(w.ctx, stack.Options{FS: w.disk, Inline: 8 << 10, Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	w.remote.stack.Store(s)
}

// must ends the test at an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// git runs git in the model of a repository.
func (w *world) git(p *pair, input string, args ...string) string {
	w.t.Helper()
	return w.gitIn(p.dir, input, args...)
}

func (w *world) gitIn(dir, input string, args ...string) string {
	w.t.Helper()
	out, err := stack.Git(dir, []byte(input), append([]string{"-c", "gc.auto=0"}, args...)...)
	w.must(err)
	return out
}

func (w *world) id(text string) object.ID {
	w.t.Helper()
	id, err := object.ParseID(text)
	w.must(err)
	return id
}

// refs reads the refs of the model.
func (w *world) refs(p *pair) map[string]object.ID {
	w.t.Helper()
	refs := make(map[string]object.ID)
	for line := range strings.Lines(w.git(p, "", "for-each-ref", "--format=%(objectname) %(refname)")) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[name] = w.id(id)
	}
	return refs
}

// branch picks a branch; "" when there is none.
func (w *world) branch(p *pair) string {
	var names []string
	for name := range w.refs(p) {
		if short, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			names = append(names, short)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return names[w.rand.IntN(len(names))]
}

// change is a random edit of a tree: a path and what is put there.
func (w *world) change() (path, text string) {
	w.made++
	path = fmt.Sprintf("f%d", w.rand.IntN(8))
	if w.rand.IntN(2) == 0 {
		path = fmt.Sprintf("d%d/e%d/", w.rand.IntN(3), w.rand.IntN(2)) + path
	}
	lines := 1 + w.rand.IntN(30)
	if w.rand.IntN(12) == 0 {
		lines = 3000
	}
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d of %d: %x\n", i, w.made, w.rand.Uint64()&0xffff<<(i%3))
	}
	return path, b.String()
}

// commit makes a commit in the model: the tree of the first parent with a file
// changed.
func (w *world) commit(p *pair, message, path, text string, parents ...string) object.ID {
	w.t.Helper()
	index := filepath.Join(p.dir, "model-index")
	w.must(os.RemoveAll(index))
	blob := w.git(p, text, "hash-object", "-w", "--stdin")
	with := func(input string, args ...string) string {
		w.t.Helper()
		out, err := stack.GitWith(p.dir, []string{"GIT_INDEX_FILE=" + index}, []byte(input), args...)
		w.must(err)
		return out
	}
	if len(parents) > 0 {
		with("", "read-tree", parents[0])
	}
	with("", "update-index", "--add", "--cacheinfo", "100644,"+blob+","+path)
	args := []string{"commit-tree", with("", "write-tree")}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	return w.id(with(message, args...))
}

// push moves refs of both, by the receiver or by the git client.
func (w *world) push(p *pair, client bool, moves map[string]object.ID) {
	w.t.Helper()
	was := w.refs(p)
	names := slices.Sorted(maps.Keys(moves))
	if client {
		args := []string{"push", "-q", "--force", w.remote.url(p.name)}
		for _, name := range names {
			from := moves[name].String()
			if moves[name].IsZero() {
				from = ""
			}
			args = append(args, from+":"+name)
		}
		w.git(p, "", args...)
	} else {
		push := &wire.Push{Atomic: w.rand.IntN(2) == 0}
		var want, have strings.Builder
		for _, name := range names {
			push.Commands = append(push.Commands, wire.Command{Ref: name, Old: was[name], New: moves[name]})
			if !moves[name].IsZero() {
				fmt.Fprintf(&want, "%s\n", moves[name])
			}
		}
		for _, id := range was {
			fmt.Fprintf(&have, "^%s\n", id)
		}
		var pack []byte
		if want.Len() > 0 {
			args := []string{"pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset"}
			if w.rand.IntN(2) == 0 {
				args = append(args, "--thin")
			}
			out, err := stack.GitRaw(p.dir, []byte(want.String()+have.String()), args...)
			w.must(err)
			pack = out
		}
		w.must(w.stack().Push(w.ctx, p.id, push, pack))
	}
	w.move(p, moves)
}

// move moves refs of the model.
func (w *world) move(p *pair, moves map[string]object.ID) {
	w.t.Helper()
	var b strings.Builder
	for name, id := range moves {
		if id.IsZero() {
			fmt.Fprintf(&b, "delete %s\n", name)
		} else {
			fmt.Fprintf(&b, "update %s %s\n", name, id)
		}
	}
	w.git(p, b.String(), "update-ref", "--stdin")
}

// add makes a repository.
func (w *world) add(id meta.RepoID, name string) *pair {
	w.t.Helper()
	p := &pair{name: name, id: id, dir: w.t.TempDir()}
	w.git(p, "", "init", "-q", "--bare", "-b", "main")
	w.pairs = append(w.pairs, p)
	return p
}

func (w *world) name() string {
	w.made++
	return fmt.Sprintf("r%d", w.made)
}

func (w *world) create() *pair {
	w.t.Helper()
	name := w.name()
	r, err := w.stack().Engine.Create(w.ctx, stack.Writer, repo.CreateRequest{Name: name})
	w.must(err)
	p := w.add(r.ID, name)
	path, text := w.change()
	w.push(p, w.rand.IntN(2) == 0, map[string]object.ID{"refs/heads/main": w.commit(p, "Begin", path, text)})
	return p
}

// step is one random thing; its name is returned.
func (w *world) step(p *pair) string {
	w.t.Helper()
	branch := w.branch(p)
	ref := "refs/heads/" + branch
	client := w.rand.IntN(3) == 0
	path, text := w.change()
	switch n := w.rand.IntN(40); {
	case n < 8:
		var tip object.ID
		parent := ref
		for range 1 + w.rand.IntN(3) {
			tip = w.commit(p, fmt.Sprintf("Work %d\n", w.made), path, text, parent)
			parent = tip.String()
			path, text = w.change()
		}
		w.push(p, client, map[string]object.ID{ref: tip})
		return "push"
	case n < 11:
		other := "refs/heads/" + w.branch(p)
		if other == ref {
			return w.newBranch(p, ref, client)
		}
		w.push(p, client, map[string]object.ID{ref: w.commit(p, "Merge", path, text, ref, other)})
		return "push a merge"
	case n < 14:
		return w.newBranch(p, ref, client)
	case n < 17:
		// Another history, or an older commit.
		to := w.commit(p, "Anew", path, text)
		if log := strings.Fields(w.git(p, "", "rev-list", "-n", "20", ref)); w.rand.IntN(2) == 0 {
			to = w.id(log[w.rand.IntN(len(log))])
		}
		w.push(p, client, map[string]object.ID{ref: to})
		return "force push"
	case n < 19:
		tag := fmt.Sprintf("refs/tags/t%d", w.rand.IntN(5))
		text := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger %s <%s> %d +0000\n\nTag %d\n",
			w.git(p, "", "rev-parse", ref), filepath.Base(tag), stack.Someone.Name, stack.Someone.Email, stack.Someone.When, w.made)
		w.push(p, client, map[string]object.ID{tag: w.id(w.git(p, text, "mktag"))})
		return "tag"
	case n < 22:
		return w.delete(p, client)
	case n < 30:
		made, err := w.stack().Commit(w.ctx, p.id, branch, nil, path, text)
		w.must(err)
		want := w.commit(p, "Save "+path, path, text, ref)
		if made.Commit != want {
			w.t.Fatalf("the commit API made %s, git makes %s", made.Commit, want)
		}
		w.move(p, map[string]object.ID{ref: want})
		return "commit"
	case n < 32 && len(w.pairs) < 5:
		w.fork(p, branch)
		return "fork to " + w.pairs[len(w.pairs)-1].name
	case n < 33 && len(w.pairs) > 2:
		w.remove(p)
		return "remove"
	case n < 36:
		_, err := w.stack().Engine.Collect(w.ctx, p.id, repo.CollectOptions{Full: w.rand.IntN(2) == 0})
		w.must(err)
		return "collect"
	case n < 38:
		w.sweep()
		return "sweep"
	case n < 39:
		w.must(w.stack().Close())
		w.open()
		return "reopen"
	default:
		w.stale(p, ref)
		return "refused push"
	}
}

func (w *world) newBranch(p *pair, from string, client bool) string {
	w.t.Helper()
	short := fmt.Sprintf("b%d", w.rand.IntN(6))
	if w.rand.IntN(3) == 0 {
		short = "deep/" + short
	}
	ref := "refs/heads/" + short
	id := w.id(w.git(p, "", "rev-parse", from))
	if _, taken := w.refs(p)[ref]; taken || client {
		w.push(p, client, map[string]object.ID{ref: id})
		return "move a branch"
	}
	v, err := w.stack().View(w.ctx, p.id)
	w.must(err)
	_, err = w.stack().Engine.CreateBranch(w.ctx, stack.Writer, v, repo.BranchRequest{Target: short, Base: id.String()})
	w.must(err)
	w.move(p, map[string]object.ID{ref: id})
	return "create a branch"
}

// delete removes some refs, not the default branch.
func (w *world) delete(p *pair, client bool) string {
	w.t.Helper()
	moves := make(map[string]object.ID)
	refs := w.refs(p)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		if name != "refs/heads/main" && w.rand.IntN(3) == 0 {
			moves[name] = object.Zero
		}
	}
	if len(moves) == 0 {
		return "delete nothing"
	}
	w.push(p, client, moves)
	return "delete"
}

func (w *world) fork(p *pair, branch string) {
	w.t.Helper()
	v, err := w.stack().View(w.ctx, p.id)
	w.must(err)
	req := repo.ForkRequest{CreateRequest: repo.CreateRequest{Name: w.name()}}
	whole := w.rand.IntN(2) == 0
	if !whole {
		req.Revision = branch
	}
	r, err := w.stack().Engine.Fork(w.ctx, stack.Writer, v, req)
	w.must(err)
	q := w.add(r.ID, req.Name)
	spec := "refs/*:refs/*"
	if !whole {
		spec = "refs/heads/" + branch + ":refs/heads/main"
	}
	w.git(q, "", "fetch", "-q", "--no-tags", "--update-head-ok", p.dir, spec)
}

func (w *world) remove(p *pair) {
	w.t.Helper()
	for _, end := range []func(context.Context, repo.Writer, meta.Repo) error{w.stack().Engine.Delete, w.stack().Engine.Purge} {
		r, err := w.stack().Meta.Repo(w.ctx, p.id)
		w.must(err)
		w.must(end(w.ctx, stack.Writer, r))
	}
	w.pairs = slices.DeleteFunc(w.pairs, func(q *pair) bool { return q == p })
}

func (w *world) sweep() {
	w.t.Helper()
	w.clock.Pass(40 * time.Minute)
	w.must(w.stack().Engine.Heartbeat(w.ctx))
	_, err := w.stack().Engine.Sweep(w.ctx)
	w.must(err)
}

// stale pushes upon a value that a ref does not have.
func (w *world) stale(p *pair, ref string) {
	w.t.Helper()
	err := w.stack().Push(w.ctx, p.id, &wire.Push{Commands: []wire.Command{{Ref: ref, Old: object.ID{1}, New: w.refs(p)["refs/heads/main"]}}}, nil)
	var refused *stack.RefusedError
	if now := w.refs(p); !errors.As(err, &refused) && now[ref] != now["refs/heads/main"] {
		w.t.Fatalf("a push upon a value that never was: %v", err)
	}
}

// compareRefs compares the refs of all repositories.
func (w *world) compareRefs() {
	w.t.Helper()
	for _, p := range w.pairs {
		got, err := w.stack().Refs(w.ctx, p.id)
		w.must(err)
		if want := w.refs(p); !maps.Equal(got, want) {
			w.t.Fatalf("%s has %v, git has %v", p.name, got, want)
		}
	}
}

// compare compares what clients get of a repository, and checks it.
func (w *world) compare(p *pair) {
	w.t.Helper()
	w.must(w.stack().Check(w.ctx, p.id))
	objects := func(dir string) string {
		list := strings.Split(w.gitIn(dir, "", "rev-list", "--objects", "--all", "--no-object-names"), "\n")
		slices.Sort(list)
		return strings.Join(list, "\n")
	}
	want := objects(p.dir)
	check := func(what, dir string) {
		w.t.Helper()
		w.gitIn(dir, "", "fsck", "--full", "--strict")
		if objects(dir) != want {
			w.t.Fatalf("%s of %s has other objects than git's", what, p.name)
		}
	}
	root := w.t.TempDir()
	w.gitIn(root, "", "clone", "-q", "--mirror", w.remote.url(p.name), "full.git")
	check("a clone", filepath.Join(root, "full.git"))

	depth := strconv.Itoa(1 + w.rand.IntN(4))
	shallow := filepath.Join(root, "shallow.git")
	w.gitIn(root, "", "clone", "-q", "--mirror", "--no-single-branch", "--depth="+depth, w.remote.url(p.name), "shallow.git")
	w.gitIn(shallow, "", "fsck", "--full", "--strict")
	local := filepath.Join(root, "local.git")
	w.gitIn(root, "", "clone", "-q", "--mirror", "--no-single-branch", "--depth="+depth, "file://"+p.dir, "local.git")
	if objects(shallow) != objects(local) {
		w.t.Fatalf("a clone of %s at depth %s has other objects than git's", p.name, depth)
	}
	if _, err := os.Stat(filepath.Join(shallow, "shallow")); err == nil { // else the history is no deeper
		w.gitIn(shallow, "", "fetch", "-q", "--unshallow")
	}
	check("a deepened clone", shallow)

	if p.keep == "" {
		p.keep = w.t.TempDir()
		w.gitIn(p.keep, "", "clone", "-q", "--mirror", w.remote.url(p.name), ".")
	}
	w.gitIn(p.keep, "", "fetch", "-q", "--prune")
	check("a fetch", p.keep)
}

// TestRandom does random things, from a seed that it prints, to repositories and
// to their models.
func TestRandom(t *testing.T) {
	seed, steps := testkit.Seed(t), 60
	if testkit.Soaking() {
		steps = 1500
	}
	w := newWorld(t, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("after %s", strings.Join(w.trail, ", "))
		}
	})
	w.create()
	for n := range steps {
		if len(w.pairs) == 0 || w.rand.IntN(30) == 0 && len(w.pairs) < 5 {
			w.create()
		}
		p := w.pairs[w.rand.IntN(len(w.pairs))]
		what := w.step(p)
		w.counts[strings.Fields(what)[0]]++
		w.trail = append(w.trail, p.name+": "+what)
		w.compareRefs()
		if n%15 == 14 {
			w.compare(w.pairs[w.rand.IntN(len(w.pairs))])
		}
	}
	for _, p := range w.pairs {
		w.compare(p)
	}
	t.Logf("%d steps: %v", steps, w.counts)
}

package repo_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

var firstSeed = flag.Uint64("seed", 100, "the seed of the first random history")

// layout is a way to spread a history over packs.
type layout struct {
	name         string
	inline       int64
	recent, step int
	mixed        bool
}

var layouts = []layout{
	{"one exact pack", 1, 0, 1, false},
	{"small exact packs", 64 << 10, 30, 1, false},
	{"exact and inexact packs", 1, 25, 4, true},
	{"small mixed packs", 64 << 10, 40, 3, true},
}

// serve imports a git repository and returns its view.
func serve(tb testing.TB, g *repotest.Git, l layout) (*repotest.Store, *repo.Engine, *repo.View) {
	tb.Helper()
	s := repotest.NewStore(tb, l.inline)
	id := s.Create()
	s.Import(g, id, l.recent, l.step, l.mixed)
	e := repo.New(repo.Config{Meta: s.Meta, ODB: s.ODB, Process: "test"})
	v, err := e.View(context.Background(), s.Row(id))
	if err != nil {
		tb.Fatal(err)
	}
	return s, e, v
}

// client is a clone that is filled by Cairn, beside one that is filled by git.
type client struct {
	t      *testing.T
	origin *repotest.Git
	v      *repo.View
	cairn  *repotest.Git
	stock  *repotest.Git
	n      int
}

func newClient(t *testing.T, origin *repotest.Git, v *repo.View) *client {
	c := &client{t: t, origin: origin, v: v, cairn: repotest.NewGit(t), stock: repotest.NewGit(t)}
	origin.Run("config", "uploadpack.allowAnySHA1InWant", "true")
	return c
}

func (c *client) shallow(g *repotest.Git) []object.ID {
	data, err := os.ReadFile(filepath.Join(g.Dir, "shallow"))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	ids := repotest.ParseIDs(c.t, string(data))
	slices.SortFunc(ids, object.ID.Compare)
	return ids
}

// fetch fetches one object by both ways and compares the clones. f holds the
// options, args the same for git. It returns false when git broke its own clone.
func (c *client) fetch(want object.ID, f wire.Fetch, args ...string) bool {
	c.t.Helper()
	c.n++
	ref := fmt.Sprintf("refs/got/%d", c.n)
	args = append(append([]string{"fetch", "-q", "--no-tags"}, args...), "file://"+c.origin.Dir, want.String()+":"+ref)
	_, gitErr := c.stock.Try(nil, args...)
	if gitErr != nil && strings.Contains(gitErr.Error(), "error in object: unshallow") {
		// git wrote a boundary into its clone that it never received, and cannot
		// go on from there.
		return false
	}
	err := c.take(want, &f, ref)
	if (gitErr == nil) != (err == nil) {
		c.t.Fatalf("fetch %s %v: git says %v, Cairn %v", want, args, gitErr, err)
	}
	if err != nil {
		return true
	}
	if a, b := c.shallow(c.cairn), c.shallow(c.stock); !slices.Equal(a, b) {
		c.t.Fatalf("fetch %s %v: boundary is %v, git's %v", want, args, a, b)
	}
	if a, b := c.listing(c.cairn), c.listing(c.stock); a != b {
		c.t.Fatalf("fetch %s %v: reachable objects differ from git's: %d and %d bytes", want, args, len(a), len(b))
	}
	c.cairn.Run("fsck", "--full", "--strict", "--no-dangling")
	return true
}

func (c *client) listing(g *repotest.Git) string {
	ids := g.IDs("rev-list", "--objects", "--all")
	slices.SortFunc(ids, object.ID.Compare)
	return fmt.Sprint(slices.Compact(ids))
}

// take fetches from Cairn.
func (c *client) take(want object.ID, f *wire.Fetch, ref string) error {
	ctx := context.Background()
	u := c.v.Uploader(repo.Normal)
	f.Wants = []object.ID{want}
	if err := u.CheckWants(ctx, f.Wants); err != nil {
		return err
	}
	var tips []object.ID
	for line := range strings.Lines(c.cairn.Run("for-each-ref", "--format=%(objectname)")) {
		tips = append(tips, repotest.ParseIDs(c.t, line)...)
	}
	var err error
	if f.Haves, err = u.Common(ctx, tips); err != nil {
		return err
	}
	f.ClientShallow = c.shallow(c.cairn)
	var update wire.ShallowUpdate
	if f.Deepens() {
		if update, err = u.Shallow(ctx, f); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	if err := u.Send(ctx, &out, f, update, nil); err != nil {
		return err
	}
	if bytes.Equal(out.Bytes()[8:12], make([]byte, 4)) {
		// index-pack takes no empty pack, fetch does.
	} else {
		c.cairn.Feed(out.Bytes(), "index-pack", "--stdin", "--fix-thin")
	}
	boundary := append(f.ClientShallow, update.Shallow...)
	boundary = slices.DeleteFunc(boundary, func(id object.ID) bool { return slices.Contains(update.Unshallow, id) })
	var text strings.Builder
	for _, id := range boundary {
		fmt.Fprintln(&text, id)
	}
	name := filepath.Join(c.cairn.Dir, "shallow")
	if text.Len() == 0 {
		os.Remove(name)
	} else if err := os.WriteFile(name, []byte(text.String()), 0o666); err != nil {
		c.t.Fatal(err)
	}
	c.cairn.Run("update-ref", ref, want.String())
	return nil
}

// TestFetchEqualsGit fetches the same things in the same order from git and from
// Cairn: the clones must hold the same.
func TestFetchEqualsGit(t *testing.T) {
	for i, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			seed := *firstSeed + uint64(i)
			origin := repotest.History(t, seed, 90)
			_, _, v := serve(t, origin, l)
			wants := origin.IDs("for-each-ref", "--format=%(objectname)")
			commits := origin.IDs("rev-list", "--all")
			r := rand.New(rand.NewPCG(seed, 2))
			for range 5 {
				c := newClient(t, origin, v)
				for range 6 {
					want := wants[r.IntN(len(wants))]
					if r.IntN(2) == 0 {
						want = commits[r.IntN(len(commits))]
					}
					f, args := someOptions(r)
					if !c.fetch(want, f, args...) {
						break
					}
				}
			}
		})
	}
}

// someOptions returns options of a fetch, for Cairn and for git.
func someOptions(r *rand.Rand) (wire.Fetch, []string) {
	f := wire.Fetch{ThinPack: true, OfsDelta: r.IntN(5) != 0}
	switch r.IntN(8) {
	case 0, 1:
		f.Depth = 1 + r.IntN(4)
		return f, []string{fmt.Sprintf("--depth=%d", f.Depth)}
	case 2:
		f.Depth, f.DeepenRelative = 1+r.IntN(3), true
		return f, []string{fmt.Sprintf("--deepen=%d", f.Depth)}
	case 3:
		f.DeepenSince = 1700000000 + 60*int64(r.IntN(90))
		return f, []string{fmt.Sprintf("--shallow-since=%d", f.DeepenSince)}
	case 4:
		f.DeepenNot = []string{fmt.Sprintf("topic/%d", r.IntN(6))}
		return f, []string{"--shallow-exclude=" + f.DeepenNot[0]}
	case 5:
		f.Depth = math.MaxInt32
		return f, []string{fmt.Sprintf("--depth=%d", f.Depth)}
	}
	return f, nil
}

// sent returns the ids in the pack that a fetch is answered with.
func sent(t *testing.T, v *repo.View, ns repo.Namespace, f *wire.Fetch) []object.ID {
	t.Helper()
	var out bytes.Buffer
	if err := v.Uploader(ns).Send(context.Background(), &out, f, wire.ShallowUpdate{}, nil); err != nil {
		t.Fatal(err)
	}
	g := repotest.NewGit(t)
	g.Feed(out.Bytes(), "index-pack", "--stdin")
	return g.IDs("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
}

func TestFilterEqualsGit(t *testing.T) {
	filters := map[string]wire.Filter{
		"blob:none":                {HasBlobLimit: true},
		"blob:limit=600":           {HasBlobLimit: true, BlobLimit: 600},
		"tree:0":                   {HasTreeDepth: true},
		"tree:1":                   {HasTreeDepth: true, TreeDepth: 1},
		"tree:3":                   {HasTreeDepth: true, TreeDepth: 3},
		"object:type=commit":       {Type: object.Commit},
		"object:type=tree":         {Type: object.Tree},
		"object:type=blob":         {Type: object.Blob},
		"object:type=tag":          {Type: object.Tag},
		"combine:blob:none+tree:2": {HasBlobLimit: true, HasTreeDepth: true, TreeDepth: 2},
	}
	origin := repotest.History(t, 7, 80)
	for _, l := range layouts[1:3] {
		_, _, v := serve(t, origin, l)
		for _, want := range []string{"refs/heads/main", "refs/heads/topic/1", "refs/tags/of-tag", "refs/tags/of-tree", "refs/heads/main^{tree}", "refs/tags/of-blob^{blob}"} {
			id := origin.ID(want)
			for name, filter := range filters {
				got := sent(t, v, repo.Normal, &wire.Fetch{Wants: []object.ID{id}, Filter: filter, OfsDelta: true})
				expect := origin.IDs("rev-list", "--objects", "--filter="+name, id.String())
				for _, ids := range [][]object.ID{got, expect} {
					slices.SortFunc(ids, object.ID.Compare)
				}
				if expect = slices.Compact(expect); !slices.Equal(got, expect) {
					t.Errorf("%s, %s, %s: sent %d objects, git %d", l.name, want, name, len(got), len(expect))
				}
			}
		}
	}
}

func TestTagsComeAlong(t *testing.T) {
	origin := repotest.History(t, 9, 40)
	_, _, v := serve(t, origin, layouts[1])
	f := &wire.Fetch{Wants: []object.ID{origin.ID("main")}, OfsDelta: true, IncludeTag: true}
	got := sent(t, v, repo.Normal, f)
	for name, want := range map[string]bool{"annotated": true, "of-tag": true, "inner": true, "of-blob": false} {
		if slices.Contains(got, origin.ID("refs/tags/"+name)) != want {
			t.Errorf("tag %s sent: %v, want %v", name, !want, want)
		}
	}
	f.IncludeTag = false
	if got := sent(t, v, repo.Normal, f); slices.Contains(got, origin.ID("refs/tags/annotated")) {
		t.Error("a tag was sent that nobody asked for")
	}
}

// TestLazyBatch fetches thousands of blobs by id, as partial clones do.
func TestLazyBatch(t *testing.T) {
	origin := repotest.History(t, 11, 60)
	for _, l := range layouts {
		_, _, v := serve(t, origin, l)
		var blobs []object.ID
		for line := range strings.Lines(origin.Run("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
			if strings.HasSuffix(line, " blob\n") {
				blobs = append(blobs, repotest.ParseIDs(t, line)...)
			}
		}
		f := &wire.Fetch{Wants: blobs, OfsDelta: true}
		if err := v.Uploader(repo.Normal).CheckWants(context.Background(), blobs); err != nil {
			t.Fatal(err)
		}
		got := sent(t, v, repo.Normal, f)
		slices.SortFunc(blobs, object.ID.Compare)
		if !slices.Equal(got, blobs) {
			t.Errorf("%s: sent %d objects for %d blobs", l.name, len(got), len(blobs))
		}
	}
}

// TestUnreachableIsNotOurs forces a branch away and waits out the grace.
func TestUnreachableIsNotOurs(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 13, 30)
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	s.Import(origin, id, 10, 2, false)
	tree := origin.Feed([]byte("100644 blob "+origin.Feed([]byte("password"), "hash-object", "-w", "--stdin")+"\tsecret\n"), "mktree")
	secret := repotest.ParseIDs(t, origin.Run("-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "oops", "-p", "main", tree))[0]
	main := origin.ID("main")
	s.Load(origin, id, repotest.Pack{Tips: []object.ID{secret}, Not: []object.ID{main}}, meta.RefWrite{Name: "refs/heads/main", Old: main, New: secret})

	now := s.Row(id).CreatedAt
	e := repo.New(repo.Config{Meta: s.Meta, ODB: s.ODB})
	check := func(e *repo.Engine, want bool) {
		t.Helper()
		v, err := e.View(ctx, s.Row(id))
		if err != nil {
			t.Fatal(err)
		}
		for _, rev := range []string{secret.String(), tree, secret.String() + ":secret"} {
			err := v.Uploader(repo.EphemeralNS).CheckWants(ctx, []object.ID{origin.ID(rev)})
			if (err == nil) != want {
				t.Errorf("%s: want check says %v, wanted valid: %v", rev, err, want)
			}
		}
		common, err := v.Uploader(repo.Normal).Common(ctx, []object.ID{secret, main})
		if err != nil || slices.Contains(common, secret) != want || !slices.Contains(common, main) {
			t.Errorf("common commits are %v, %v", common, err)
		}
		if _, err := v.Resolve(ctx, secret.String(), false); (err == nil) != want {
			t.Errorf("resolving gives %v", err)
		}
	}
	check(e, true)
	s.Apply(meta.Change{Org: s.Org, Repo: id, Untidy: true, Refs: []meta.RefWrite{{Name: "refs/heads/main", Old: secret, New: main}}})
	check(e, true)
	later := repo.New(repo.Config{Meta: s.Meta, ODB: s.ODB, Clock: func() time.Time { return now.Add(time.Hour) }})
	check(later, false)
}

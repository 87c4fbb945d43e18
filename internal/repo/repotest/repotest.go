// Package repotest makes repositories with git and loads them into an engine,
// so that what Cairn answers can be compared with what git does.
package repotest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
)

// Git is a bare repository on disk.
type Git struct {
	Dir string
	tb  testing.TB
}

// NewGit makes an empty bare repository with the default branch main.
func NewGit(tb testing.TB) *Git {
	tb.Helper()
	g := &Git{Dir: filepath.Join(tb.TempDir(), "repo.git"), tb: tb}
	if err := os.Mkdir(g.Dir, 0o777); err != nil {
		tb.Fatal(err)
	}
	g.Run("init", "-q", "--bare", "-b", "main", ".")
	return g
}

// Try runs git with input and returns its standard output.
func (g *Git) Try(input []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = g.Dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.Dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",
	}
	cmd.Stdin = bytes.NewReader(input)
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, text.Bytes())
	}
	return out, err
}

// Run runs git, which must succeed, and returns its output without surrounding
// space.
func (g *Git) Run(args ...string) string { return g.Feed(nil, args...) }

// Feed is Run with input.
func (g *Git) Feed(input []byte, args ...string) string {
	g.tb.Helper()
	out, err := g.Try(input, args...)
	if err != nil {
		g.tb.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// ID resolves a revision.
func (g *Git) ID(rev string) object.ID {
	g.tb.Helper()
	id, err := object.ParseID(g.Run("rev-parse", "--verify", rev))
	if err != nil {
		g.tb.Fatal(err)
	}
	return id
}

// IDs reads the ids that begin the lines of git's output.
func (g *Git) IDs(args ...string) []object.ID {
	g.tb.Helper()
	return ParseIDs(g.tb, g.Run(args...))
}

// ParseIDs reads the ids that begin lines.
func ParseIDs(tb testing.TB, lines string) []object.ID {
	tb.Helper()
	var ids []object.ID
	for line := range strings.Lines(lines) {
		id, err := object.ParseID(line[:min(40, len(line))])
		if err != nil {
			tb.Fatalf("%q: %v", line, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// Store is an engine's ground: metadata in SQLite, bytes in memory.
type Store struct {
	Meta  meta.Store
	Blobs blob.Store
	ODB   *odb.Store
	Org   meta.OrgID
	tb    testing.TB
	mu    sync.Mutex
	next  int64
}

// NewStore makes an empty store whose packs of up to inline bytes are rows.
func NewStore(tb testing.TB, inline int64) *Store {
	tb.Helper()
	ctx := context.Background()
	m, err := sqlstore.OpenSQLite(ctx, filepath.Join(tb.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	s := &Store{Meta: m, Blobs: mem.New(), Org: 1, tb: tb, next: 1}
	s.ODB = odb.New(odb.Config{Meta: m, Blobs: s.Blobs, Scratch: tb.TempDir(), Process: "test", InlineLimit: inline})
	s.Apply(meta.Change{Org: 1, CreateOrg: &meta.Org{ID: 1, Name: "test"}})
	return s
}

// Apply applies a Change, which must succeed.
func (s *Store) Apply(c meta.Change) meta.Verdict {
	s.tb.Helper()
	v, err := s.Meta.Apply(context.Background(), c)
	if err != nil || !v.Applied {
		s.tb.Fatalf("apply: %v %+v", err, v.Conflict)
	}
	return v
}

// Create makes an empty repository.
func (s *Store) Create() meta.RepoID {
	s.tb.Helper()
	s.mu.Lock()
	s.next++
	id := meta.RepoID(s.next)
	s.mu.Unlock()
	s.Apply(meta.Change{Org: s.Org, Repo: id, CreateRepo: &meta.Repo{Name: fmt.Sprintf("repo-%d", id), DefaultBranch: "main", Tidy: true}})
	return id
}

// Row reads a repository's row.
func (s *Store) Row(id meta.RepoID) meta.Repo {
	s.tb.Helper()
	r, err := s.Meta.Repo(context.Background(), id)
	if err != nil {
		s.tb.Fatal(err)
	}
	return r
}

// Pack says what a pack to be loaded holds.
type Pack struct {
	// Tips and Not select closure(Tips) minus closure(Not).
	Tips, Not []object.ID
	// Inexact loads the pack without saying that it is exact.
	Inexact bool
	// Plain takes git's word for what the pack lacks: right where nothing that
	// was there before comes back.
	Plain bool
	// Args are further arguments of git pack-objects.
	Args []string
}

// Load makes a pack with git and adds it to a repository together with moves
// of refs.
func (s *Store) Load(g *Git, id meta.RepoID, p Pack, refs ...meta.RefWrite) {
	s.tb.Helper()
	var revs bytes.Buffer
	for _, t := range p.Tips {
		fmt.Fprintln(&revs, t)
	}
	for _, n := range p.Not {
		fmt.Fprintf(&revs, "^%s\n", n)
	}
	// git leaves out objects by what it happens to meet; an exact pack leaves
	// out all that the others reach.
	list := g.Feed(revs.Bytes(), "rev-list", "--objects", "--stdin")
	known := map[string]bool{}
	if len(p.Not) > 0 && !p.Plain {
		var not bytes.Buffer
		for _, n := range p.Not {
			fmt.Fprintln(&not, n)
		}
		for line := range strings.Lines(g.Feed(not.Bytes(), "rev-list", "--objects", "--stdin")) {
			known[line[:40]] = true
		}
	}
	var objects bytes.Buffer
	for line := range strings.Lines(list) {
		if !known[line[:40]] {
			objects.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	data, err := g.Try(objects.Bytes(), append([]string{"pack-objects", "--stdout", "-q"}, p.Args...)...)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.LoadPack(id, data, odb.Contents{Exact: !p.Inexact, Tips: p.Tips, Boundary: p.Not}, refs...)
}

// LoadPack adds a pack to a repository together with moves of refs.
func (s *Store) LoadPack(id meta.RepoID, data []byte, c odb.Contents, refs ...meta.RefWrite) {
	s.tb.Helper()
	ctx := context.Background()
	row := s.Row(id)
	db, err := s.ODB.Open(ctx, row.PackSet)
	if err != nil {
		s.tb.Fatal(err)
	}
	before, err := graph.Open(ctx, db, nil)
	if err != nil {
		s.tb.Fatal(err)
	}
	file := s.ODB.NewPack(meta.PackReceive)
	defer file.Abort(ctx)
	var mu sync.Mutex
	var commits []graph.Commit
	res, err := pack.Receive(ctx, bytes.NewReader(data), file, pack.Options{RefuseTrailing: true, Visit: func(o pack.Object) error {
		if o.Type != object.Commit {
			return nil
		}
		c := graph.Commit{ID: o.ID}
		var err error
		c.Tree, c.Parents, c.Time, err = object.CommitLinks(slices.Clone(o.Data), nil)
		mu.Lock()
		commits = append(commits, c)
		mu.Unlock()
		return err
	}})
	if err != nil {
		s.tb.Fatal(err)
	}
	var index bytes.Buffer
	if err := res.WriteIndex(&index); err != nil {
		s.tb.Fatal(err)
	}
	idx, err := pack.ParseIndex(index.Bytes())
	if err != nil {
		s.tb.Fatal(err)
	}
	table, err := graph.Encode(idx, commits, func(id object.ID) (uint32, bool) {
		c, ok := before.Commit(id)
		return c.Generation, ok
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	w, err := file.Finish(ctx, idx, table, c)
	if err != nil {
		s.tb.Fatal(err)
	}
	v := s.Apply(meta.Change{Org: s.Org, Repo: id, AddPack: w, Refs: refs, Untidy: !c.Exact})
	file.Published(idx, id, v.At)
}

// SetRef returns the move of a ref to a value, with the peeled value that git
// gives.
func SetRef(g *Git, name string, id object.ID) meta.RefWrite {
	w := meta.RefWrite{Name: name, AnyOld: true, New: id}
	if g.Run("cat-file", "-t", id.String()) == "tag" {
		w.Peeled = g.ID(id.String() + "^{}")
	}
	return w
}

// Import loads all refs of a git repository. Commits are spread over packs:
// all but the last recent ones by date in one pack, then one pack for every step
// commits. Odd packs are inexact if mixed is set.
func (s *Store) Import(g *Git, id meta.RepoID, recent, step int, mixed bool) {
	s.tb.Helper()
	order := g.IDs("rev-list", "--all", "--topo-order", "--reverse")
	var known []object.ID
	take := func(n int, inexact bool) {
		tips := order[:n]
		order = order[n:]
		s.Load(g, id, Pack{Tips: tips, Not: known, Inexact: inexact, Args: []string{"--delta-base-offset"}})
		known = append(known, tips...)
	}
	if n := len(order) - recent; n > 0 {
		take(n, false)
	}
	for i := 0; len(order) > 0; i++ {
		take(min(step, len(order)), mixed && i%2 == 1)
	}
	var tips []object.ID
	var refs []meta.RefWrite
	for line := range strings.Lines(g.Run("for-each-ref", "--format=%(objectname) %(refname)")) {
		hex, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		ref, err := object.ParseID(hex)
		if err != nil {
			s.tb.Fatal(err)
		}
		refs = append(refs, SetRef(g, name, ref))
		if !slices.Contains(known, ref) && !slices.Contains(tips, ref) {
			tips = append(tips, ref)
		}
	}
	if len(tips) > 0 {
		s.Load(g, id, Pack{Tips: tips, Not: known}, refs...)
		return
	}
	s.Apply(meta.Change{Org: s.Org, Repo: id, Refs: refs})
}

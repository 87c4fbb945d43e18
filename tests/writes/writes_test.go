package writes_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/stack"
)

var update = flag.Bool("update", false, "write the listings as they are")

// TestWrites runs each file of testdata on stores of its own, with either database. A
// file is a list of commands, one a line, each followed by what it did, indented. A
// line with "#" is a comment.
func TestWrites(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{
		"SQLite":   func(testing.TB) string { return "" },
		"Postgres": testkit.Postgres,
	} {
		t.Run(name, func(t *testing.T) { testWrites(t, database) })
	}
}

func testWrites(t *testing.T, database func(testing.TB) string) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 3 {
		t.Fatalf("testdata has %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, string(want), database(t))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs; run go test ./tests/writes -update, and bring docs/format.md in line\n%s", file, differing(string(want), got))
			}
		})
	}
}

// TestTablesAreDocumented looks for each table in docs/format.md.
func TestTablesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "\n## Rows\n")
	rows, after, _ := strings.Cut(after, "\n## ")
	_, writes, found := strings.Cut(after, "\n## What a write creates\n")
	if !found {
		t.Fatal("docs/format.md has no section on what a write creates")
	}
	for _, name := range tableOrder {
		if quoted := "`" + name + "`"; !strings.Contains(rows, quoted) || !strings.Contains(writes, quoted) {
			t.Errorf("docs/format.md does not say what table %q holds, or which write creates its rows", name)
		}
	}
}

// differing shows the first lines that differ.
func differing(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// run runs a script and returns it with what its commands did.
func run(t *testing.T, script, database string) string {
	w := newWorld(t, database)
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "    ") {
			continue // a listing
		}
		out.WriteString(line)
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w.out.Reset()
		verdict, err := w.do(strings.Fields(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if verdict != "" {
			fmt.Fprintf(&w.out, "(%s)\n", verdict)
		}
		w.list()
		for listed := range strings.Lines(w.out.String()) {
			out.WriteString("    " + listed)
		}
	}
	return out.String()
}

// world is one set of stores and what a script knows of them.
type world struct {
	t      *testing.T
	ctx    context.Context
	stack  *stack.Stack
	db     *sql.DB // of the stack
	clock  *stack.Clock
	author *stack.Author
	labels labels
	last   *state
	out    strings.Builder
	// fate is what happens to Changes with packs: "crashed", "raced" or "lost".
	fate   string
	repos  map[string]meta.RepoID
	lines  map[string]stack.Line // by repository and branch
	leases map[string]*checkpoint.Lease
}

// errCrash is what a writer sees of a Change whose outcome it never learns.
var errCrash = errors.New("the process ended")

// observed shows the world what is stored before each Change that has packs.
type observed struct {
	meta.Store
	world *world
}

// Apply implements meta.Store.
func (o observed) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	if c.AddPack != nil || c.ReplacePacks != nil || c.Content != nil && len(c.Content.AddPacks) > 0 || c.Thread != nil && c.Thread.Append != nil {
		o.world.before()
		switch {
		case o.world.fate == "crashed":
			return meta.Verdict{}, errCrash
		case o.world.fate == "lost":
			o.world.fate = ""
			if _, err := o.Store.Apply(ctx, c); err != nil {
				return meta.Verdict{}, err
			}
			return meta.Verdict{}, errCrash
		case o.world.fate == "raced" && len(c.Refs) > 0:
			c.Refs[0].Old = object.Hash(object.Blob, []byte("another's"))
		}
	}
	return o.Store.Apply(ctx, c)
}

func newWorld(t *testing.T, database string) *world {
	w := &world{
		t: t, ctx: t.Context(), clock: &stack.Clock{}, author: &stack.Author{Rand: rand.New(rand.NewPCG(1, 2))},
		labels: newLabels(), repos: make(map[string]meta.RepoID), lines: make(map[string]stack.Line),
		leases: make(map[string]*checkpoint.Lease),
	}
	var err error
	w.stack, err = stack.Open(w.ctx, stack.Options{
		FS: fsx.NewMem(), Clock: w.clock, Postgres: database, Meta: func(s meta.Store) meta.Store { return observed{s, w} },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.db, err = w.stack.Database()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.db.Close(), w.stack.Close()); err != nil {
			t.Error(err)
		}
	})
	w.last = w.read()
	return w
}

func (w *world) read() *state {
	w.t.Helper()
	// Events get their positions when somebody asks for them.
	_, err := w.stack.Meta.Events(w.ctx, stack.Org, 0, 1)
	var st *state
	if err == nil {
		st, err = read(w.db, w.stack, w.labels)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// list lists what changed since it was called last.
func (w *world) list() {
	now := w.read()
	w.out.WriteString(now.since(w.last))
	w.last = now
}

// before lists what is durable before a Change.
func (w *world) before() {
	now := w.read()
	if listed := now.since(w.last); listed != "nothing\n" {
		w.out.WriteString("before the Change:\n" + listed + "the Change, and after:\n")
	}
	w.last = now
}

// do runs one command and returns a verdict when it has one. In a command
// REPO and BRANCH are short names; SIZE is that of the commit's file in bytes.
func (w *world) do(c []string) (string, error) {
	args := strings.Join(c[1:], " ")
	switch c[0] {
	case "org":
		return "", w.apply(meta.Change{Org: 7, CreateOrg: &meta.Org{ID: 7, Name: args}})
	case "key": // KID
		return "", w.apply(meta.Change{Org: stack.Org, PutKey: &meta.OrgKey{KID: args, Fingerprint: args, PEM: "pem"}})
	case "revoke": // SUBJECT
		return "", w.apply(meta.Change{Org: stack.Org, RaiseFloors: []meta.Floor{{Kind: meta.FloorSubject, Target: args, NotBefore: 7}}})
	case "heartbeat":
		return "", w.stack.Engine.Heartbeat(w.ctx)
	case "sweep":
		_, err := w.stack.Engine.Sweep(w.ctx)
		return "", err
	case "pass": // DURATION
		d, err := time.ParseDuration(args)
		w.clock.Pass(d)
		return "", err
	case "create":
		r, err := w.stack.Engine.Create(w.ctx, stack.Writer, repo.CreateRequest{Name: args})
		w.repos[args] = r.ID
		return "", err
	}
	if do := checkpointCommands[c[0]]; do != nil {
		return do(w, c[1:])
	}
	id, ok := w.repos[c[1]]
	if !ok {
		return "", fmt.Errorf("no repository %q", c[1])
	}
	switch c[0] {
	case "protect", "delete", "purge", "collect", "fork":
		return w.whole(id, c[0], c[1], c[2:])
	case "commit": // REPO BRANCH SIZE [KEY]
		return "", w.commit(id, c[1], c[2:])
	}
	return w.push(id, c[0], c[1], c[2:])
}

func (w *world) apply(c meta.Change) error {
	v, err := w.stack.Meta.Apply(w.ctx, c)
	if err == nil && !v.Applied {
		err = fmt.Errorf("refused: %+v", v.Conflict)
	}
	return err
}

// whole does something to a repository as a whole.
func (w *world) whole(id meta.RepoID, what, name string, args []string) (string, error) {
	r, err := w.stack.Meta.Repo(w.ctx, id)
	if err != nil {
		return "", err
	}
	e := w.stack.Engine
	switch what {
	case "protect":
		return "", e.SetProtections(w.ctx, stack.Writer, r, []policy.Protection{{Pattern: args[0]}})
	case "delete":
		return "", e.Delete(w.ctx, stack.Writer, r)
	case "purge":
		return "", e.Purge(w.ctx, stack.Writer, r)
	case "collect": // REPO [full]
		res, err := e.Collect(w.ctx, id, repo.CollectOptions{Full: len(args) > 0})
		return res.Did, err
	}
	v, err := w.stack.View(w.ctx, id) // fork REPO NAME
	if err != nil {
		return "", err
	}
	fork, err := e.Fork(w.ctx, stack.Writer, v, repo.ForkRequest{CreateRequest: repo.CreateRequest{Name: args[0]}})
	w.repos[args[0]] = fork.ID
	w.lines[args[0]+" main"] = w.lines[name+" main"]
	return "", err
}

// commit makes a commit through the API.
func (w *world) commit(id meta.RepoID, name string, args []string) error {
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	at := name + " " + args[0]
	body := w.author.Text(size)
	if len(args) > 2 {
		return w.recorded(id, args[0], body, args[2])
	}
	if _, err = w.stack.Commit(w.ctx, id, args[0], nil, "saved", body); err == nil {
		w.lines[at] = w.lines[at].Saved("saved", body)
	}
	return err
}

// recorded makes a branch, at the default one, with a commit under an
// idempotency key.
func (w *world) recorded(id meta.RepoID, branch, body, key string) error {
	v, err := w.stack.View(w.ctx, id)
	if err != nil {
		return err
	}
	contents := w.stack.Engine.NewContents(context.Background(), repo.Writer{}, meta.Repo{})
	defer contents.Close()
	content := contents.New()
	if _, err := content.Write([]byte(body)); err != nil {
		return err
	}
	if err := content.Close(); err != nil {
		return err
	}
	_, err = w.stack.Engine.Commit(w.ctx, stack.Writer, v, repo.CommitRequest{
		TargetBranch: branch, BaseBranch: "main", Message: "Save", Author: stack.Someone, Committer: stack.Someone,
		Files: []repo.FileEdit{{Path: "saved", Content: content}}, Contents: contents,
		Record: func(repo.CommitResult) *meta.Idempotency { return &meta.Idempotency{Key: key, Status: 201} },
	})
	return err
}

// push does what a client of git does:
//
//	push REPO BRANCH SIZE [COUNT]   one commit, COUNT times
//	force REPO BRANCH SIZE          a commit without parents in place of the branch
//	point REPO NAME BRANCH          another branch at a commit that is there
//	tag REPO NAME BRANCH            an annotated tag
//	drop REPO BRANCH                no branch any more
//	stale REPO BRANCH SIZE          a push that expects another value
//	broken REPO BRANCH SIZE         a push that lacks an object
//	raced REPO BRANCH SIZE          another push comes between its bytes and its Change
//	crashed REPO BRANCH SIZE        the process ends before the Change
func (w *world) push(id meta.RepoID, what, name string, args []string) (string, error) {
	at := name + " " + args[0]
	was := w.lines[at]
	c := wire.Command{Ref: "refs/heads/" + args[0], Old: was.Tip}
	switch what {
	case "point":
		w.lines[at] = w.lines[name+" "+args[1]]
		c.New = w.lines[at].Tip
		return "", w.send(id, c, nil)
	case "drop":
		delete(w.lines, at)
		return "", w.send(id, c, nil)
	case "tag":
		tag, data, err := tagOf(args[0], w.lines[name+" "+args[1]].Tip)
		if err != nil {
			return "", err
		}
		return "", w.send(id, wire.Command{Ref: "refs/tags/" + args[0], New: tag}, data)
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	var refused *stack.RefusedError
	switch what {
	case "push":
		return "", w.grow(id, at, c, size, args[2:])
	case "force":
		next, data := w.author.Grow(stack.Line{}, 1, size)
		w.lines[at], c.New = next, next.Tip
		return "", w.send(id, c, data)
	case "stale":
		next, data := w.author.Grow(was, 1, size)
		c.Old, c.New = object.Hash(object.Blob, nil), next.Tip
		err = w.send(id, c, data)
	case "broken":
		middle, _ := w.author.Grow(was, 1, size)
		next, data := w.author.Grow(middle, 1, size)
		c.New = next.Tip
		err = w.send(id, c, data)
	case "crashed", "raced":
		w.fate = what
		defer func() { w.fate = "" }()
		next, data := w.author.Grow(was, 1, size)
		c.New = next.Tip
		if err = w.send(id, c, data); errors.Is(err, errCrash) {
			return errCrash.Error(), nil
		}
	default:
		return "", fmt.Errorf("unknown command %q", what)
	}
	if errors.As(err, &refused) {
		return "refused", nil
	}
	return "", fmt.Errorf("it should have been refused: %w", err)
}

// grow pushes commits one by one.
func (w *world) grow(id meta.RepoID, at string, c wire.Command, size int, args []string) error {
	count := 1
	if len(args) > 0 {
		var err error
		if count, err = strconv.Atoi(args[0]); err != nil {
			return err
		}
	}
	for range count {
		next, data := w.author.Grow(w.lines[at], 1, size)
		c.Old, c.New = w.lines[at].Tip, next.Tip
		w.lines[at] = next
		quiet := w.last
		if err := w.send(id, c, data); err != nil {
			return err
		}
		if count > 1 { // listed together
			w.last = quiet
			w.out.Reset()
		}
	}
	return nil
}

func (w *world) send(id meta.RepoID, c wire.Command, data []byte) error {
	return w.stack.Push(w.ctx, id, &wire.Push{Commands: []wire.Command{c}}, data)
}

// tagOf makes an annotated tag and its pack.
func tagOf(name string, commit object.ID) (object.ID, []byte, error) {
	data, err := object.EncodeTag(&object.TagData{Object: commit, Type: object.Commit, Name: name, Tagger: &stack.Someone, Message: "tag\n"})
	if err != nil {
		return object.Zero, nil, err
	}
	var b strings.Builder
	p := pack.NewWriter(&b, 1)
	if _, err := p.Add(object.Tag, data); err != nil {
		return object.Zero, nil, err
	}
	if _, err := p.Close(); err != nil {
		return object.Zero, nil, err
	}
	return object.Hash(object.Tag, data), []byte(b.String()), nil
}

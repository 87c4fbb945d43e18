package repo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/testkit"
)

// world is an engine on stores of its own, with one org.
type world struct {
	t      testing.TB
	meta   meta.Store
	blobs  blob.Store
	engine *Engine
	org    meta.OrgID
	writer Writer
}

// options vary a world.
type options struct {
	meta        func(meta.Store) meta.Store
	blobs       func(blob.Store) blob.Store
	postgres    bool
	inlineLimit int64
	grace       time.Duration
	garbage     time.Duration // GarbageGrace
}

func newWorld(t testing.TB, o options) *world {
	t.Helper()
	ctx := context.Background()
	var store meta.Store
	var err error
	if o.postgres {
		store, err = sqlstore.OpenPostgres(ctx, testkit.Postgres(t), sqlstore.PostgresOptions{})
	} else {
		store, err = sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := &world{t: t, meta: store, blobs: mem.New()}
	if o.meta != nil {
		w.meta = o.meta(w.meta)
	}
	if o.blobs != nil {
		w.blobs = o.blobs(w.blobs)
	}
	if o.grace == 0 {
		o.grace = time.Nanosecond
	}
	w.engine = New(Config{
		Meta: w.meta, Blobs: w.blobs, Process: "test", Scratch: t.TempDir(), Grace: o.grace, GarbageGrace: o.garbage,
		ODB: odb.New(odb.Config{Meta: w.meta, Blobs: w.blobs, Scratch: t.TempDir(), Process: "test", InlineLimit: o.inlineLimit}),
	})
	w.engine.skew = 0
	w.org = meta.OrgID(meta.NewID(time.Now()))
	v, err := store.Apply(ctx, meta.Change{Org: w.org, CreateOrg: &meta.Org{ID: w.org, Name: "acme"}})
	if err != nil || !v.Applied {
		t.Fatalf("create org: %v %+v", err, v)
	}
	w.writer = Writer{Org: w.org, OrgName: "acme", Subject: "tester", Route: "test"}
	return w
}

// onEngines runs a test on SQLite and on PostgreSQL.
func onEngines(t *testing.T, f func(t *testing.T, o options)) {
	t.Run("sqlite", func(t *testing.T) { f(t, options{}) })
	t.Run("postgres", func(t *testing.T) { f(t, options{postgres: true}) })
}

func (w *world) create(name string) meta.Repo {
	w.t.Helper()
	r, err := w.engine.Create(context.Background(), w.writer, CreateRequest{Name: name})
	if err != nil {
		w.t.Fatalf("create %q: %v", name, err)
	}
	return r
}

// view returns a view of the repository as it is now, as a request gets it.
func (w *world) view(id meta.RepoID) *View {
	w.t.Helper()
	r, err := w.meta.Repo(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := w.engine.View(context.Background(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) ref(id meta.RepoID, name string) object.ID {
	w.t.Helper()
	page, err := w.meta.Refs(context.Background(), meta.RefQuery{Repo: id, Names: []string{name}})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(page.Refs) == 0 {
		return object.Zero
	}
	return page.Refs[0].ID
}

// file returns an edit that puts text at a path.
func (w *world) file(c *Contents, path, text string) FileEdit {
	w.t.Helper()
	content := c.New()
	if _, err := io.WriteString(content, text); err != nil {
		w.t.Fatal(err)
	}
	if err := content.Close(); err != nil {
		w.t.Fatal(err)
	}
	return FileEdit{Path: path, Content: content}
}

var someone = object.Signature{Name: "A U Thor", Email: "author@example.com", When: 1700000000, Zone: "+0000"}

// commit writes files upon main.
func (w *world) commit(id meta.RepoID, message string, files map[string]string) object.ID {
	w.t.Helper()
	res, err := w.tryCommit(id, CommitRequest{TargetBranch: "main", Message: message}, files)
	if err != nil {
		w.t.Fatalf("commit: %v", err)
	}
	return res.Commit
}

func (w *world) tryCommit(id meta.RepoID, req CommitRequest, files map[string]string) (CommitResult, error) {
	w.t.Helper()
	c := w.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
	defer c.Close()
	for path, text := range files {
		req.Files = append(req.Files, w.file(c, path, text))
	}
	req.Author, req.Committer = someone, someone
	if req.Message == "" {
		req.Message = "change"
	}
	return w.engine.Commit(context.Background(), w.writer, w.view(id), req)
}

// push sends commands and a pack as the default writer.
func (w *world) push(id meta.RepoID, pack []byte, cmds ...wire.Command) wire.PushResult {
	w.t.Helper()
	return w.pushAs(w.writer, id, false, pack, cmds...)
}

func (w *world) pushAs(as Writer, id meta.RepoID, atomic bool, pack []byte, cmds ...wire.Command) wire.PushResult {
	w.t.Helper()
	var src io.Reader
	if pack != nil {
		src = bytes.NewReader(pack)
	}
	rc := w.engine.Receiver(as, w.view(id), Normal)
	res, err := rc.Receive(context.Background(), &wire.Push{Commands: cmds, Atomic: atomic}, src)
	if err != nil {
		w.t.Fatalf("push: %v", err)
	}
	return res
}

// wantStatus checks the outcome of a push: for each ref a part of its error, ""
// for success.
func wantStatus(t testing.TB, res wire.PushResult, want map[string]string) {
	t.Helper()
	if res.Unpack != "" {
		t.Fatalf("unpack: %s", res.Unpack)
	}
	for _, s := range res.Refs {
		part, ok := want[s.Ref]
		if !ok || (part == "") != (s.Error == "") || !strings.Contains(s.Error, part) {
			t.Errorf("ref %s: got %q, want %q", s.Ref, s.Error, part)
		}
	}
	if len(res.Refs) != len(want) {
		t.Errorf("got %d statuses, want %d", len(res.Refs), len(want))
	}
}

// state describes every row and byte that a refused push must leave alone.
func (w *world) state(id meta.RepoID) string {
	w.t.Helper()
	ctx := context.Background()
	r, err := w.meta.Repo(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", r)
	page, err := w.meta.Refs(ctx, meta.RefQuery{Repo: id})
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v\n", page)
	uploads, err := w.meta.Uploads(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v\n", uploads)
	events, err := w.meta.Events(ctx, w.org, 0, 10000)
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(&b, "events %d\n", len(events))
	for info, err := range w.blobs.List(ctx, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d\n", info.Key, info.Size)
	}
	if err := w.engine.Close(); err != nil {
		w.t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(w.engine.cfg.Scratch, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(&b, "scratch %v\n", left)
	return b.String()
}

// fsck fails the test when the repository is damaged.
func (w *world) fsck(id meta.RepoID) {
	w.t.Helper()
	r, err := w.meta.Repo(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	report := func(f Finding) { w.t.Errorf("fsck: %s: %s", f.Kind, f.Detail) }
	if err := w.engine.Fsck(context.Background(), r, report); err != nil {
		w.t.Fatal(err)
	}
	if err := w.engine.FsckBlobs(context.Background(), report); err != nil {
		w.t.Fatal(err)
	}
}

// export writes the repository as a bare one for git, and has git check it.
func (w *world) export(id meta.RepoID) *gitDir {
	w.t.Helper()
	g := newGitDir(w.t)
	v := w.view(id)
	db, err := v.DB(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range db.Packs() {
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			w.t.Fatal(err)
		}
		g.in(b.Bytes(), "index-pack", "--stdin") // packs may need others that come later
	}
	err = v.Refs(context.Background(), "", func(ref meta.Ref) error {
		g.run("update-ref", ref.Name, ref.ID.String())
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	g.run("fsck", "--full", "--strict")
	return g
}

// gitDir is a repository that git itself works on.
type gitDir struct {
	t   testing.TB
	dir string
}

func newGitDir(t testing.TB) *gitDir {
	t.Helper()
	g := &gitDir{t, t.TempDir()}
	g.run("init", "-q", "--bare", "-b", "main")
	return g
}

func (g *gitDir) run(args ...string) string { g.t.Helper(); return g.in(nil, args...) }

func (g *gitDir) in(stdin []byte, args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A U Thor", "GIT_AUTHOR_EMAIL=author@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=A U Thor", "GIT_COMMITTER_EMAIL=author@example.com", "GIT_COMMITTER_DATE=1700000000 +0000")
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		g.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

func (g *gitDir) id(rev string) object.ID {
	g.t.Helper()
	id, err := object.ParseID(g.run("rev-parse", rev))
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// put stores an object and returns its ID.
func (g *gitDir) put(typ string, data string) object.ID {
	g.t.Helper()
	id, err := object.ParseID(g.in([]byte(data), "hash-object", "-w", "--literally", "-t", typ, "--stdin"))
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// tree makes a tree of regular files.
func (g *gitDir) tree(files map[string]object.ID) object.ID {
	g.t.Helper()
	var b strings.Builder
	for name, id := range files {
		fmt.Fprintf(&b, "100644 blob %s\t%s\n", id, name)
	}
	id, err := object.ParseID(g.in([]byte(b.String()), "mktree", "--missing"))
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// commit makes a commit; parents need not exist.
func (g *gitDir) commit(message string, tree object.ID, parents ...object.ID) object.ID {
	g.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author A U Thor <author@example.com> 1700000000 +0000\ncommitter A U Thor <author@example.com> 1700000000 +0000\n\n%s\n", message)
	return g.put("commit", b.String())
}

// packOf packs exactly the given objects.
func (g *gitDir) packOf(ids ...object.ID) []byte {
	g.t.Helper()
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintln(&b, id)
	}
	return []byte(g.raw(b.String(), "pack-objects", "--stdout"))
}

// packRevs packs what the revisions select, thin where they exclude something.
func (g *gitDir) packRevs(revs ...string) []byte {
	g.t.Helper()
	return []byte(g.raw(strings.Join(revs, "\n")+"\n", "pack-objects", "--stdout", "--revs", "--thin", "--delta-base-offset"))
}

func (g *gitDir) raw(stdin string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// history makes n commits on a branch, each changing one of a few files, and
// returns them.
func (g *gitDir) history(branch string, n int) []object.ID {
	g.t.Helper()
	files := make(map[string]object.ID)
	var commits []object.ID
	for i := range n {
		name := fmt.Sprintf("file%d", i%7)
		files[name] = g.put("blob", strings.Repeat(fmt.Sprintf("%s line of %s\n", branch, name), 40)+fmt.Sprintf("version %d\n", i))
		var parents []object.ID
		if i > 0 {
			parents = commits[i-1:]
		}
		commits = append(commits, g.commit(fmt.Sprintf("commit %d", i), g.tree(files), parents...))
	}
	g.run("update-ref", "refs/heads/"+branch, commits[n-1].String())
	return commits
}

// newIn returns the objects that rev reaches and the excluded revisions do not.
func (g *gitDir) newIn(rev object.ID, not ...object.ID) []object.ID {
	g.t.Helper()
	args := []string{"rev-list", "--objects", "--no-object-names", rev.String()}
	for _, n := range not {
		args = append(args, "^"+n.String())
	}
	var ids []object.ID
	for line := range strings.FieldsSeq(g.run(args...)) {
		id, err := object.ParseID(line)
		if err != nil {
			g.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// deltaPack returns a thin pack: the objects of rest, and blob as a delta
// against base, which is left out.
func (g *gitDir) deltaPack(t testing.TB, blob, base object.ID, rest []byte) []byte {
	t.Helper()
	old, content := g.raw("", "cat-file", "blob", base.String()), g.raw("", "cat-file", "blob", blob.String())
	size := func(n int) (b []byte) {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
	// Copy all of the base, then insert the remainder.
	tail := strings.TrimPrefix(content, old)
	d := append(size(len(old)), size(len(content))...)
	d = append(d, 0x80|0x01|0x02|0x10|0x20, 0, 0, byte(len(old)), byte(len(old)>>8), byte(len(tail)))
	d = append(d, tail...)
	var z bytes.Buffer
	zw := zlib.NewWriter(&z)
	zw.Write(d)
	zw.Close()
	count := binary.BigEndian.Uint32(rest[8:])
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count+1)
	out = append(out, rest[12:len(rest)-object.Size]...)
	out = pack.AppendEntryHeader(out, pack.REFDelta, uint64(len(d)))
	out = append(out, base[:]...)
	out = append(out, z.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

func rawID(id object.ID) string { return string(id[:]) }

// mustPolicies makes a list from rules written as on the command line.
func mustPolicies(t testing.TB, rules ...string) policy.List {
	t.Helper()
	var list policy.List
	for _, s := range rules {
		rule, err := policy.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rule)
	}
	return list
}

// freshODB returns an object database that has read nothing yet.
func freshODB(w *world) *odb.Store {
	return odb.New(odb.Config{Meta: w.meta, Blobs: w.blobs, Scratch: w.t.TempDir(), Process: "test"})
}

func blobKey(name string) blob.Key { return blob.Key(name) }

// rewrite changes a stored blob behind the store's back.
func rewrite(t testing.TB, s blob.Store, name string, change func([]byte) []byte) {
	t.Helper()
	ctx := context.Background()
	o, err := s.Open(ctx, blob.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	o.Close()
	if err != nil {
		t.Fatal(err)
	}
	data = change(bytes.Clone(data))
	if err := s.Delete(ctx, blob.Key(name)); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, blob.Key(name), bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

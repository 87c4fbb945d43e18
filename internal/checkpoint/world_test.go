package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/tree/treetest"
)

// world is an engine with one org, whose clock tests move.
type world struct {
	testing.TB
	*Engine
	ctx context.Context
	org meta.OrgID
	now time.Time
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{TB: tb, ctx: tb.Context(), now: time.UnixMilli(1_800_000_000_000)}
	clock := func() time.Time { return w.now }
	store, err := sqlstore.OpenSQLite(w.ctx, filepath.Join(tb.TempDir(), "meta.db"), sqlstore.SQLiteOptions{Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	w.org = meta.OrgID(meta.NewID(w.now))
	if v, err := store.Apply(w.ctx, meta.Change{Org: w.org, CreateOrg: &meta.Org{Name: "acme"}}); err != nil || !v.Applied {
		tb.Fatal(v, err)
	}
	w.Engine = New(Config{
		Meta: store, Clock: clock,
		Content: content.New(content.Config{Meta: store, Blobs: mem.New(), Process: "test", Clock: clock, UploadLease: time.Hour}),
	})
	return w
}

func (w *world) caller() Caller { return Caller{Org: w.org, Subject: "tester", Route: "test"} }

// files are what a workspace has, by path.
type files map[string]string

// objects makes a tree of files under the root "w".
func (f files) objects() (tree.Digest, []tree.Object) { return treetest.Workspace(f) }

// send sends what a thread misses of objects, as a client does, and returns the
// upload and how much that was.
func (w *world) send(thread string, objects []tree.Object) (upload string, sent int) {
	w.Helper()
	upload = NewID()
	digests := make([]tree.Digest, len(objects))
	for i := range objects {
		digests[i] = objects[i].Digest
	}
	missing, err := w.Missing(w.ctx, w.org, thread, upload, digests)
	if err != nil {
		w.Fatal(err)
	}
	var stream []byte
	for i := range objects {
		if slices.Contains(missing, objects[i].Digest) {
			stream = frame.Append(stream, objects[i])
			sent++
		}
	}
	if _, err := w.Receive(w.ctx, w.caller(), thread, upload, bytes.NewReader(stream)); err != nil {
		w.Fatal(err)
	}
	return upload, sent
}

// capture appends files onto the head of a thread.
func (w *world) capture(thread string, f files) (Appended, int) {
	w.Helper()
	root, objects := f.objects()
	for {
		upload, sent := w.send(thread, objects)
		done, err := w.Append(w.ctx, w.caller(), NewCheckpoint{Thread: thread, Root: root, Upload: upload, Expected: Head{Any: true}, Always: true})
		if is(err, MissingObjects) {
			continue // something went meanwhile
		}
		if err != nil {
			w.Fatal(err)
		}
		return done, sent
	}
}

// read returns the files of a checkpoint.
func (w *world) readAll(id string) files {
	w.Helper()
	c, err := w.Checkpoint(w.ctx, w.org, id)
	if err != nil {
		w.Fatal(err)
	}
	got := files{}
	err = w.Walk(w.ctx, w.org, &c, "", "", func(path string, e *tree.Entry) error {
		if e.Type != tree.File {
			return nil
		}
		var b bytes.Buffer
		err := tree.Copy(w.ctx, w.Source(w.org), e.Content, &b)
		got[strings.TrimPrefix(path, "w/")] = b.String()
		return err
	})
	if err != nil {
		w.Fatalf("checkpoint %q of thread %q: %v", id, c.Thread, err)
	}
	return got
}

func (w *world) want(id string, f files) {
	w.Helper()
	if got := w.readAll(id); fmt.Sprint(got) != fmt.Sprint(f) {
		w.Fatalf("checkpoint %q has %d files, want %d", id, len(got), len(f))
	}
}

func (w *world) sweep() content.Swept {
	w.Helper()
	s, err := w.cfg.Content.Sweep(w.ctx, w.org, w.Live)
	if err != nil {
		w.Fatal(err)
	}
	if s.Missing > 0 {
		w.Fatalf("a sweep misses %d objects", s.Missing)
	}
	if err := w.ForgetBlobs(w.ctx, w.org); err != nil {
		w.Fatal(err)
	}
	return s
}

func TestAppendSendsWhatIsNew(t *testing.T) {
	w := newWorld(t)
	f := files{"large": strings.Repeat("0123456789abcdef", 1<<18)}
	for i := range 3000 {
		f[fmt.Sprintf("d%d/%d", i%3, i)] = fmt.Sprint(i)
	}
	first, all := w.capture("t", f)
	w.want(first.Checkpoint.ID, f)
	f["d1/new"] = "n"
	second, sent := w.capture("t", f)
	if sent > 4 { // a chunk, two directories, a root
		t.Errorf("%d of %d objects were sent for one new file", sent, all)
	}
	if second.Checkpoint.Added > 200_000 || second.Checkpoint.Parent != first.Checkpoint.ID {
		t.Errorf("%+v", second.Checkpoint)
	}
	w.want(second.Checkpoint.ID, f)
	w.want(first.Checkpoint.ID, w.readAll(first.Checkpoint.ID))
}

func TestSegmentsStayFew(t *testing.T) {
	w := newWorld(t)
	f := files{}
	for i := range 300 {
		f[fmt.Sprint("f", i)] = fmt.Sprint("text ", i)
		w.capture("t", f)
	}
	thread, rows, err := w.cfg.Meta.Segments(w.ctx, w.org, "t")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(rows); i++ {
		if rows[i-1].Keys <= 2*rows[i].Keys {
			t.Errorf("segments of %d and %d keys", rows[i-1].Keys, rows[i].Keys)
		}
	}
	if len(rows) > 12 || thread.Checkpoints != 300 {
		t.Errorf("%d segments for %d checkpoints", len(rows), thread.Checkpoints)
	}
}

// TestForgottenIsMissing deletes a checkpoint and sweeps: what only it had is sent
// again, and may not be named before.
func TestForgottenIsMissing(t *testing.T) {
	w := newWorld(t)
	old := files{"a": "only the first has this", "b": "both have this"}
	first, _ := w.capture("t", old)
	w.capture("t", files{"b": "both have this"})
	root, objects := old.objects()
	w.now = w.now.Add(2 * time.Hour) // the uploads end
	if _, err := w.Delete(w.ctx, w.caller(), "t", first.Checkpoint.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	// Nothing has gone yet: the thread may still name it.
	if _, sent := w.send("t", objects); sent != 0 {
		t.Errorf("%d objects were sent before a sweep", sent)
	}
	w.now = w.now.Add(2 * time.Hour)
	for range 3 {
		w.sweep()
	}
	_, err := w.Append(w.ctx, w.caller(), NewCheckpoint{Thread: "t", Root: root, Expected: Head{Any: true}})
	if !is(err, MissingObjects) {
		t.Fatalf("what was swept was appended: %v", err)
	}
	again, sent := w.capture("t", old)
	if sent == 0 {
		t.Error("nothing was sent again")
	}
	w.want(again.Checkpoint.ID, old)
}

// TestHistoriesUnderSweeps captures, forks, deletes and prunes at random, with
// sweeps in between that spare nothing: every checkpoint that is left has all its
// files, and at the end little is stored that none has.
func TestHistoriesUnderSweeps(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { history(t, seed, 120) })
	}
}

func history(t *testing.T, seed uint64, steps int) {
	w := newWorld(t)
	r := rand.New(rand.NewPCG(seed, 1))
	threads := map[string]files{"t0": {}}
	points := map[string]files{}
	names := func() []string {
		var out []string
		for name := range threads {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	ids := func() []string {
		var out []string
		for id := range points {
			out = append(out, id)
		}
		slices.Sort(out)
		return out
	}
	for step := range steps {
		w.now = w.now.Add(time.Duration(r.IntN(90)) * time.Minute)
		switch k := r.IntN(10); {
		case k < 5:
			name := names()[r.IntN(len(threads))]
			f := threads[name]
			for range 1 + r.IntN(4) {
				path := fmt.Sprintf("d%d/f%d", r.IntN(3), r.IntN(12))
				if f[path] = fmt.Sprint("text ", r.IntN(30), strings.Repeat("x", r.IntN(3000))); r.IntN(4) == 0 {
					delete(f, path)
				}
			}
			done, _ := w.capture(name, f)
			points[done.Checkpoint.ID] = clone(f)
		case k == 5 && len(points) > 0:
			id, name := ids()[r.IntN(len(points))], fmt.Sprint("t", step+1)
			root, err := w.Fork(w.ctx, w.caller(), Fork{Source: id, MaySee: func(string) (bool, error) { return true, nil }, Thread: name})
			if err != nil {
				t.Fatal(err)
			}
			threads[name], points[root.ID] = clone(points[id]), clone(points[id])
		case k == 6 && len(points) > 0:
			id := ids()[r.IntN(len(points))]
			c, err := w.Checkpoint(w.ctx, w.org, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Delete(w.ctx, w.caller(), c.Thread, id, nil, nil); err != nil {
				t.Fatal(err)
			}
			delete(points, id)
		case k == 7:
			p, err := w.Prune(w.ctx, w.caller(), names()[r.IntN(len(threads))], Rule{Keep: 1 + int64(r.IntN(3))}, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range p.IDs {
				delete(points, id)
			}
		default:
			w.sweep()
		}
		if step%20 == 19 {
			for id, f := range points {
				w.want(id, f)
			}
		}
	}
	w.now = w.now.Add(24 * time.Hour)
	var last content.Swept
	for range 4 {
		last = w.sweep()
	}
	for id, f := range points {
		w.want(id, f)
	}
	if last.Live*4 < last.Objects*3 {
		t.Errorf("of %d objects that are stored %d are referred to", last.Objects, last.Live)
	}
}

func clone(f files) files {
	out := files{}
	for k, v := range f {
		out[k] = v
	}
	return out
}

func TestLargeBlobs(t *testing.T) {
	w := newWorld(t)
	c := w.caller()
	data := make([]byte, 9<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	sum := tree.Sum(data)
	if _, err := w.PutBlob(w.ctx, c, "t", "", tree.Sum(nil), bytes.NewReader(data)); !is(err, InvalidObject) {
		t.Errorf("another sum: %v", err)
	}
	if _, err := w.FindBlob(w.ctx, c, "t", "", sum); !is(err, MissingObject) {
		t.Errorf("a refused blob is there: %v", err)
	}
	if size, err := w.PutBlob(w.ctx, c, "t", "", sum, bytes.NewReader(data)); err != nil || size != int64(len(data)) {
		t.Fatal(size, err)
	}
	read := func(thread string) ([]byte, error) {
		b, err := w.FindBlob(w.ctx, c, thread, "", sum)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = tree.Copy(w.ctx, w.Source(w.org), b.Content, &out)
		return out.Bytes(), err
	}
	if got, err := read("t"); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := read("other"); !is(err, MissingObject) {
		t.Errorf("by another thread: %v", err)
	}
	text := fmt.Sprintf(`{"id":"m","threadId":"t","createdAt":1,"reason":"automatic","conversation":[],"artifacts":[],
		"files":[{"path":"a","kind":"file","blobKey":%q,"size":%d}]}`, Key{Files, sum}, len(data))
	if _, err := w.AppendManifest(w.ctx, c, NewManifest{Thread: "t", WriterThread: "t", Checkpoint: []byte(text), Expected: []byte("null")}); err != nil {
		t.Fatal(err)
	}
	// The checkpoint keeps it when the upload has ended.
	w.now = w.now.Add(48 * time.Hour)
	for range 3 {
		w.sweep()
	}
	if got, err := read("t"); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("after sweeps: %d bytes, %v", len(got), err)
	}
	large := func() int {
		list, err := w.cfg.Meta.ListLargeBlobs(w.ctx, w.org, [32]byte{}, 9)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := large(); n != 1 {
		t.Errorf("%d rows of a blob that is referred to", n)
	}
	cp, err := w.Checkpoint(w.ctx, w.org, "m")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := w.Archive(w.ctx, w.org, &cp, "", Tar, &archive); err != nil || archive.Len() < len(data) {
		t.Errorf("an archive of %d bytes, %v", archive.Len(), err)
	}
	if _, err := w.Delete(w.ctx, c, "t", "m", nil, nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.sweep()
	}
	if _, err := read("t"); !is(err, MissingObject) {
		t.Errorf("after its checkpoint was deleted: %v", err)
	}
	if n := large(); n != 0 {
		t.Errorf("%d rows of a blob that is gone", n)
	}
	if _, err := w.PutBlob(w.ctx, c, "t", "", sum, bytes.NewReader(data)); err != nil || large() != 1 {
		t.Errorf("put again: %d rows, %v", large(), err)
	}
}

// TestFullThreadsGoOn prunes a thread that is full, and appends again without a sweep.
func TestFullThreadsGoOn(t *testing.T) {
	w := newWorld(t)
	w.setQuota(meta.OrgQuota{ThreadBytes: 2 << 20})
	c := w.caller()
	c.Metered, c.ThreadBytes = true, 2<<20
	text := func(n uint64) string {
		b := make([]byte, 400<<10)
		r := rand.NewChaCha8([32]byte{byte(n)})
		_, _ = r.Read(b)
		return string(b)
	}
	add := func(n uint64) error {
		root, objects := files{"f": text(n)}.objects()
		var stream []byte
		for i := range objects {
			stream = frame.Append(stream, objects[i])
		}
		upload := NewID()
		if _, err := w.Receive(w.ctx, c, "t", upload, bytes.NewReader(stream)); err != nil {
			return err
		}
		_, err := w.Append(w.ctx, c, NewCheckpoint{Thread: "t", Root: root, Upload: upload, Expected: Head{Any: true}})
		return err
	}
	isFull := func(err error) bool {
		conflict, ok := errors.AsType[*ConflictError](err)
		return ok && conflict.Kind == meta.ConflictQuota && conflict.Quota.OfThread
	}
	n := uint64(0)
	for ; n < 5; n++ {
		if err := add(n); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := add(n); !isFull(err) {
		t.Fatalf("a full thread: %v", err)
	}
	for range 3 {
		if _, err := w.Prune(w.ctx, c, "t", Rule{Keep: 2}, false, nil); err != nil {
			t.Fatal(err)
		}
		for room := 3; room > 0; room-- {
			n++
			if err := add(n); err != nil {
				t.Fatalf("%d more have room after pruning: %v", room, err)
			}
		}
		n++
		if err := add(n); !isFull(err) {
			t.Fatalf("full again: %v", err)
		}
	}
}

func (w *world) setQuota(q meta.OrgQuota) {
	w.Helper()
	if v, err := w.cfg.Meta.Apply(w.ctx, meta.Change{Org: w.org, SetQuota: &q}); err != nil || !v.Applied {
		w.Fatal(v, err)
	}
}

// TestRootsThatNobodyMakes appends roots whose objects say what is not so.
func TestRootsThatNobodyMakes(t *testing.T) {
	w := newWorld(t)
	_, objects := files{"d/a": "alpha", "b": "beta"}.objects()
	var dir tree.Object
	for _, o := range objects {
		if o.Kind == tree.Dir {
			dir = o
		}
	}
	good := tree.Summary{Entries: 3, Files: 2, Bytes: 9}
	for name, e := range map[string]tree.Entry{
		"counts":       {Dir: dir.Digest, Summary: tree.Summary{Entries: 4, Files: 2, Bytes: 9}},
		"no index":     {Dir: dir.Digest, Paged: true, Summary: good},
		"no directory": {Dir: objects[0].Digest, Summary: good},
	} {
		e.Name, e.Type, e.Mode = "w", tree.Directory, 0o755
		b, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{e}})
		if err != nil {
			t.Fatal(err)
		}
		upload, _ := w.send("t", append(objects, tree.Object{Kind: tree.Root, Digest: tree.Sum(b), Bytes: b}))
		_, err = w.Append(w.ctx, w.caller(), NewCheckpoint{Thread: "t", Root: tree.Sum(b), Upload: upload, Expected: Head{Any: true}})
		if !errors.Is(err, tree.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	upload, _ := w.send("t", objects)
	if _, err := w.Append(w.ctx, w.caller(), NewCheckpoint{Thread: "t", Root: dir.Digest, Upload: upload, Expected: Head{Any: true}}); !errors.Is(err, tree.ErrInvalid) {
		t.Errorf("a directory as a root: %v", err)
	}
	if thread, err := w.Thread(w.ctx, w.org, "t"); err != nil || thread.Checkpoints != 0 {
		t.Errorf("%+v %v", thread, err)
	}
}

// TestDirectoriesWithinThemselves appends a tree in which each directory has one
// directory a thousand times over: each is read once.
func TestDirectoriesWithinThemselves(t *testing.T) {
	w := newWorld(t)
	var objects []tree.Object
	emit := func(o tree.Object) error {
		o.Bytes = bytes.Clone(o.Bytes)
		objects = append(objects, o)
		return nil
	}
	at := tree.Entry{Type: tree.Directory, Mode: 0o755}
	for level := range 12 {
		b := tree.Builder{Emit: emit}
		for i := range 1000 {
			if level > 0 {
				at.Name = fmt.Sprintf("%04d", i)
				if err := b.Add(&at); err != nil {
					t.Fatal(err)
				}
			}
		}
		d, paged, sum, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		at.Dir, at.Paged, at.Summary = d, paged, sum
	}
	at.Name = "w"
	root, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{at}})
	if err != nil {
		t.Fatal(err)
	}
	_ = emit(tree.Object{Kind: tree.Root, Digest: tree.Sum(root), Bytes: root})
	upload, _ := w.send("t", objects)
	_, err = w.Append(w.ctx, w.caller(), NewCheckpoint{Thread: "t", Root: tree.Sum(root), Upload: upload, Expected: Head{Any: true}})
	if !is(err, InvalidEntry) {
		t.Errorf("a tree of 10^33 entries: %v", err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	w := newWorld(t)
	o := tree.Object{Kind: tree.Chunk, Digest: tree.Sum([]byte("hello")), Bytes: []byte("hello")}
	good := frame.Append(nil, o)
	other := bytes.Clone(good)
	other[len(other)-1] ^= 1
	bomb := append(bytes.Clone(o.Digest[:]), 1, 0)
	bomb = append(bomb, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f)
	for name, stream := range map[string][]byte{
		"another byte": append(bytes.Clone(good), other...),
		"cut":          append(bytes.Clone(good), good[:len(good)-1]...),
		"a bomb":       append(bytes.Clone(good), bomb...),
		"a kind":       append(bytes.Clone(good), append(bytes.Clone(o.Digest[:]), 9, 0, 0, 0)...),
		"an encoding":  append(bytes.Clone(good), append(bytes.Clone(o.Digest[:]), 1, 7, 5, 5, 'h', 'e', 'l', 'l', 'o')...),
		"not zstd":     append(bytes.Clone(good), append(bytes.Clone(o.Digest[:]), 1, 1, 5, 5, 'h', 'e', 'l', 'l', 'o')...),
	} {
		_, err := w.Receive(w.ctx, w.caller(), "t", "u", bytes.NewReader(stream))
		if !is(err, InvalidObject) && !errors.Is(err, frame.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		// Nothing of a stream that was refused is kept.
		if missing, err := w.Missing(w.ctx, w.org, "t", "u", []tree.Digest{o.Digest}); err != nil || len(missing) != 1 {
			t.Errorf("%s: %d missing, %v", name, len(missing), err)
		}
	}
	for _, id := range []string{"", "a b", strings.Repeat("x", 65), "é"} {
		if _, err := w.Receive(w.ctx, w.caller(), "t", id, bytes.NewReader(good)); !is(err, InvalidID) {
			t.Errorf("upload %q: %v", id, err)
		}
	}
}

// TestManyObjectsAreCountedOnce sends more objects at once than one flush stores, to an
// org that has room for them, and for fewer: then nothing of them stays.
func TestManyObjectsAreCountedOnce(t *testing.T) {
	w := newWorld(t)
	c := w.caller()
	c.Metered = true
	var stream []byte
	for i := range 300_000 {
		b := fmt.Appendf(nil, "object %d", i)
		stream = frame.Append(stream, tree.Object{Kind: tree.Chunk, Digest: tree.Sum(b), Bytes: b})
	}
	used := func() int64 {
		u, err := w.cfg.Meta.Usage(w.ctx, w.org, 0)
		if err != nil {
			t.Fatal(err)
		}
		return u.Bytes
	}
	stored, err := w.Receive(w.ctx, w.caller(), "t", "free", bytes.NewReader(stream))
	if err != nil || stored.Objects != 300_000 {
		t.Fatal(stored, err)
	}
	whole := used()
	empty := func() {
		w.now = w.now.Add(48 * time.Hour)
		for range 3 {
			w.sweep()
		}
		if n := used(); n != 0 {
			t.Errorf("%d bytes stay", n)
		}
	}
	empty()
	w.setQuota(meta.OrgQuota{Bytes: whole - whole/20})
	_, err = w.Receive(w.ctx, c, "t", "much", bytes.NewReader(stream))
	if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.Kind != meta.ConflictQuota {
		t.Errorf("more than there is room for: %v", err)
	}
	for range 3 {
		w.sweep()
	}
	if n := used(); n != 0 {
		t.Errorf("%d bytes of a refused request stay", n)
	}
	w.setQuota(meta.OrgQuota{Bytes: whole + 1<<20})
	if _, err := w.Receive(w.ctx, c, "t", "fits", bytes.NewReader(stream)); err != nil {
		t.Errorf("%d bytes where there is room for %d: %v", whole, whole+1<<20, err)
	}
}

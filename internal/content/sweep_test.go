package content

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
)

// checkpoint is a tree and the objects that it is made of.
type checkpoint struct {
	root    tree.Digest
	objects []tree.Object
}

// capture makes a tree of some folders with some files each. Equal numbers give
// equal files.
func capture(tb testing.TB, files [][]int) *checkpoint {
	tb.Helper()
	c := &checkpoint{}
	emit := func(o tree.Object) error {
		o.Bytes = append([]byte(nil), o.Bytes...)
		c.objects = append(c.objects, o)
		return nil
	}
	var top tree.Builder
	top.Emit = emit
	for i, folder := range files {
		b := tree.Builder{Emit: emit}
		for k, n := range folder {
			e := tree.Entry{Name: fmt.Sprintf("file%03d", k), Type: tree.File, Mode: 0o644}
			if n%17 == 0 { // a large one
				parts := []tree.Part{}
				for _, m := range []int{n, n + 1} {
					o := chunkOf(text(m, 900+m%500))
					c.objects = append(c.objects, o)
					parts = append(parts, tree.Part{Length: uint64(len(o.Bytes)), Digest: o.Digest})
				}
				recipe, err := tree.EncodeRecipe(parts)
				if err != nil {
					tb.Fatal(err)
				}
				c.objects = append(c.objects, tree.Object{Kind: tree.Recipe, Digest: tree.Sum(recipe), Bytes: recipe})
				e.Content = tree.Content{Size: parts[0].Length + parts[1].Length, Digest: tree.Sum(recipe), Chunked: true, Sum: tree.Sum(fmt.Append(nil, n))}
			} else {
				o := chunkOf(text(n, 100+n%3000))
				c.objects = append(c.objects, o)
				e.Content = tree.Content{Size: uint64(len(o.Bytes)), Digest: o.Digest, Sum: o.Digest}
			}
			if err := b.Add(&e); err != nil {
				tb.Fatal(err)
			}
		}
		d, paged, sum, err := b.Finish()
		if err == nil {
			err = top.Add(&tree.Entry{Name: fmt.Sprintf("dir%03d", i), Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum})
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	d, paged, sum, err := top.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	root, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{{Name: "w", Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}}})
	if err != nil {
		tb.Fatal(err)
	}
	c.root = tree.Sum(root)
	c.objects = append(c.objects, tree.Object{Kind: tree.Root, Digest: c.root, Bytes: root})
	return c
}

// heads are what refers to roots, as rows of threads do: an append names a root
// in one step with the check of the generation.
type heads struct {
	mu    sync.Mutex
	roots map[string]*checkpoint
}

func (h *heads) list(_ context.Context, _ meta.OrgID, yield func(tree.Kind, tree.Digest) error) error {
	h.mu.Lock()
	var roots []tree.Digest
	for _, c := range h.roots {
		roots = append(roots, c.root)
	}
	h.mu.Unlock()
	for _, d := range roots {
		if err := yield(tree.Root, d); err != nil {
			return err
		}
	}
	return nil
}

// append sends a checkpoint and names it, as a client and a server do together: what
// is missing is sent again.
func (w *world) append(h *heads, name string, c *checkpoint) error {
	send := c.objects
	upload := fmt.Sprintf("%s-%d", name, mrand.Uint64())
	for range 100 {
		u, err := w.Begin(w.ctx, w.org, "thread", upload)
		if err != nil {
			return err
		}
		for _, o := range send {
			if err = u.Write(w.ctx, o); err != nil {
				break
			}
		}
		if err == nil {
			_, err = u.Flush(w.ctx)
		}
		u.Close()
		var missing *tree.MissingError
		if errors.As(err, &missing) || errors.Is(err, ErrAgain) {
			send = c.objects
			continue
		}
		if err != nil {
			return err
		}
		var all []tree.Digest
		for _, o := range c.objects {
			all = append(all, o.Digest)
		}
		gone, generation, err := w.Missing(w.ctx, w.org, all)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			send = pick(c.objects, gone)
			continue
		}
		h.mu.Lock()
		v, err := w.meta.Apply(w.ctx, meta.Change{Org: w.org, Content: &meta.ContentChange{Generation: &generation, EndUpload: upload}})
		if v.Applied {
			h.roots[name] = c
		}
		h.mu.Unlock()
		if err != nil {
			return err
		}
		if v.Applied {
			return nil
		}
		send = nil
	}
	return errors.New("an append was refused a hundred times")
}

func pick(objects []tree.Object, digests []tree.Digest) []tree.Object {
	want := make(map[tree.Digest]bool)
	for _, d := range digests {
		want[d] = true
	}
	var list []tree.Object
	for _, o := range objects {
		if want[o.Digest] {
			list = append(list, o)
		}
	}
	return list
}

func (w *world) sweep(h *heads) Swept {
	w.Helper()
	res, err := w.Sweep(w.ctx, w.org, h.list)
	if err != nil {
		w.Fatal(err)
	}
	return res
}

// sound runs fsck.
func (w *world) sound(h *heads) {
	w.Helper()
	report := func(f Finding) { w.Errorf("fsck: %s: %s", f.Kind, f.Detail) }
	if err := w.Fsck(w.ctx, w.org, h.list, report); err != nil {
		w.Fatal(err)
	}
	if err := w.FsckBlobs(w.ctx, report); err != nil {
		w.Fatal(err)
	}
}

// storedBytes sums up the packs.
func (w *world) storedBytes() (total int64) {
	w.Helper()
	for after := (meta.ContentID{}); ; {
		packs, err := w.meta.ContentPacks(w.ctx, w.org, after, 100)
		if err != nil {
			w.Fatal(err)
		}
		for _, p := range packs {
			total += p.Bytes
			after = p.ID
		}
		if len(packs) < 100 {
			return total
		}
	}
}

func TestSweep(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{InlineLimit: 1000})
	h := &heads{roots: map[string]*checkpoint{}}
	a, b := capture(t, [][]int{{1, 2, 3}, {17, 4}}), capture(t, [][]int{{1, 2, 3}, {34, 5, 6, 7, 8, 9, 10, 11, 12}})
	for name, c := range map[string]*checkpoint{"a": a, "b": b} {
		if err := w.append(h, name, c); err != nil {
			t.Fatal(err)
		}
	}
	w.sound(h)
	if res := w.sweep(h); res.Condemned != 0 || res.Removed != 0 || res.Missing != 0 || res.Live == 0 {
		t.Fatalf("a sweep with everything in use: %+v", res)
	}
	pending := capture(t, [][]int{{100, 101}})
	w.put("running", pending.objects...)
	delete(h.roots, "b")
	if res := w.sweep(h); res.Condemned == 0 || res.Removed != 0 {
		t.Fatalf("the first sweep: %+v", res)
	}
	w.sound(h)
	// What is condemned is missing for who wants to write, and can still be read.
	w.check(b.objects...)
	var digests []tree.Digest
	for _, o := range b.objects {
		digests = append(digests, o.Digest)
	}
	if gone, _, err := w.Missing(w.ctx, w.org, digests); err != nil || len(gone) == 0 {
		t.Fatalf("missing %d, %v", len(gone), err)
	}
	if res := w.sweep(h); res.Removed == 0 {
		t.Fatalf("the second sweep: %+v", res)
	}
	w.sound(h)
	w.check(a.objects...)
	w.check(pending.objects...)
	err := w.Source(w.org).Get(w.ctx, digests, func(tree.Digest, []byte) error { return nil })
	var missing *tree.MissingError
	if !errors.As(err, &missing) {
		t.Errorf("what was removed: %v", err)
	}
}

// TestCondemnedIsRescued has an append that is committed between the marking and
// the condemning, as far as a sweep can tell.
func TestCondemnedIsRescued(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{})
	h := &heads{roots: map[string]*checkpoint{}}
	c := capture(t, [][]int{{1, 2, 3}, {17, 4}})
	w.put("u", c.objects...)
	if v, err := w.meta.Apply(w.ctx, meta.Change{Org: w.org, Content: &meta.ContentChange{EndUpload: "u"}}); err != nil || !v.Applied {
		t.Fatal(v, err)
	}
	if res := w.sweep(h); res.Condemned != 1 {
		t.Fatalf("%+v", res)
	}
	h.roots["late"] = c
	if res := w.sweep(h); res.Rescued != 1 || res.Removed != 1 {
		t.Fatalf("%+v", res)
	}
	w.check(c.objects...)
	w.sound(h)
}

// TestIndexOfNothing puts an index file together whose packs have all gone.
func TestIndexOfNothing(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{InlineLimit: 1})
	w.put("u", chunkOf(text(1, 500)))
	rows, err := w.rows(w.ctx, w.org)
	if err = errors.Join(err, w.indexAll(rows)); err != nil {
		t.Fatal(err)
	}
	pack := meta.ContentPackState{ID: w.packs()[0].ID, From: meta.ContentLive}
	if err := w.apply(w.ctx, w.org, &meta.ContentChange{RemovePacks: []meta.ContentPackState{pack}}); err != nil {
		t.Fatal(err)
	}
	if tidied, err := w.Tidy(w.ctx, w.org); err != nil || tidied.Indexes != 1 {
		t.Fatalf("%+v, %v", tidied, err)
	}
	w.put("v", chunkOf(text(2, 500)))
	w.check(chunkOf(text(2, 500)))
	w.sound(&heads{})
}

// soak lets writers, readers and sweeps run beside each other for a while.
func soak(t *testing.T, w *world, h *heads, blobs *deletions, d time.Duration) {
	seed := testkit.Seed(t)
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	var running sync.WaitGroup
	var counts [5]atomic.Int64
	worker := func(i int, step func(rng *mrand.Rand) error) {
		running.Go(func() {
			rng := mrand.New(mrand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				if err := step(rng); err != nil {
					t.Errorf("worker %d: %v", i, err)
					cancel()
					return
				}
				counts[i%5].Add(1)
			}
		})
	}
	some := func(rng *mrand.Rand) (string, *checkpoint) {
		h.mu.Lock()
		defer h.mu.Unlock()
		n := rng.IntN(max(1, len(h.roots)))
		for name, c := range h.roots {
			if n--; n < 0 {
				return name, c
			}
		}
		return "", nil
	}
	for i := range 2 { // appends
		worker(5*i, func(rng *mrand.Rand) error {
			var files [][]int
			for range 1 + rng.IntN(4) {
				var folder []int
				for range 1 + rng.IntN(12) {
					folder = append(folder, 1+rng.IntN(400))
				}
				files = append(files, folder)
			}
			return w.append(h, fmt.Sprintf("t%d-%d", i, rng.IntN(12)), capture(t, files))
		})
	}
	worker(1, func(rng *mrand.Rand) error { // forks and deletes
		time.Sleep(time.Millisecond)
		name, c := some(rng)
		if c == nil {
			return nil
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.roots[name] == c && rng.IntN(3) == 0 {
			h.roots[fmt.Sprintf("fork%d", rng.IntN(6))] = c
		} else if len(h.roots) > 8 {
			delete(h.roots, name)
		}
		return nil
	})
	worker(2, func(*mrand.Rand) error { // sweeps
		res, err := w.Sweep(w.ctx, w.org, h.list)
		if err == nil && (res.Missing > 0 || res.Hidden) {
			err = fmt.Errorf("a sweep misses something: %+v", res)
		}
		return errors.Join(err, blobs.free(w))
	})
	worker(3, func(*mrand.Rand) error { // folds
		if err := w.fold(w.ctx, w.org, new(Tidied)); err != nil {
			return err
		}
		rows, err := w.rows(w.ctx, w.org)
		if err != nil {
			return err
		}
		_, err = w.Tidy(w.ctx, w.org)
		return errors.Join(err, w.indexAll(rows))
	})
	worker(4, func(rng *mrand.Rand) error { // reads
		time.Sleep(100 * time.Microsecond)
		name, c := some(rng)
		if c == nil {
			return nil
		}
		var digests []tree.Digest
		for _, o := range c.objects {
			digests = append(digests, o.Digest)
		}
		err := w.Source(w.org).Get(w.ctx, unique(digests), func(tree.Digest, []byte) error { return nil })
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil && h.roots[name] == c {
			return fmt.Errorf("a checkpoint that is there: %w", err)
		}
		return nil
	})
	running.Wait()
	for i := range 3 {
		w.sweep(h)
		if err := blobs.free(w); err != nil {
			t.Fatal(i, err)
		}
	}
	w.sound(h)
	t.Logf("%d appends, %d forks and deletions, %d sweeps, %d folds, %d reads", counts[0].Load(), counts[1].Load(), counts[2].Load(), counts[3].Load(), counts[4].Load())
	for i := range counts {
		if counts[i].Load() == 0 {
			t.Error("a worker did nothing")
		}
	}
	w.compact(h)
}

// compact compares what is stored with what the checkpoints need.
func (w *world) compact(h *heads) {
	w.Helper()
	fresh := newWorldOn(w.TB, mem.New(), Config{})
	seen := make(map[tree.Digest]bool)
	var all []tree.Object
	raw, kept := 0.0, 0.0
	for _, c := range h.roots {
		for _, o := range c.objects {
			if !seen[o.Digest] {
				seen[o.Digest] = true
				all = append(all, o)
				raw += float64(len(o.Bytes))
			}
		}
	}
	if len(all) == 0 {
		w.Fatal("no checkpoint is left")
	}
	fresh.put("u", all...)
	got, want := w.storedBytes(), fresh.storedBytes()
	w.Logf("%d bytes are stored where %d are needed", got, want)
	for _, p := range w.packs() {
		kept += float64(p.RawBytes)
	}
	// What came at a time is compressed together, and less than all at once would be.
	if kept > 1.2*raw || got > 2*want {
		w.Errorf("%d bytes are stored where %d are needed", got, want)
	}
}

func unique(digests []tree.Digest) []tree.Digest {
	set := make(map[tree.Digest]struct{})
	for _, d := range digests {
		set[d] = struct{}{}
	}
	return sortedSet(set)
}

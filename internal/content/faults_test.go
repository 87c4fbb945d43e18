package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
)

var errInjected = errors.New("injected fault")

// fault makes calls of stores fail: the nth one, before it did anything or after it
// did everything; or that and all later ones, as for a process that dies.
type fault struct {
	mu    sync.Mutex
	at    int // 0: none
	after bool
	dies  bool
	n     int
}

// call counts a call. do is called unless the call fails before.
func (f *fault) call(do func() error) error {
	f.mu.Lock()
	f.n++
	hit := f.at > 0 && (f.n == f.at || f.dies && f.n > f.at)
	dead := f.dies && f.at > 0 && f.n > f.at
	f.mu.Unlock()
	if dead || hit && !f.after {
		return errInjected
	}
	err := do()
	if hit && err == nil {
		return errInjected
	}
	return err
}

type faultyMeta struct {
	meta.Store
	*fault
}

func (m *faultyMeta) Apply(ctx context.Context, c meta.Change) (v meta.Verdict, err error) {
	err = m.call(func() error { v, err = m.Store.Apply(ctx, c); return err })
	return v, err
}

func (m *faultyMeta) BeginUpload(ctx context.Context, u meta.Upload) error {
	return m.call(func() error { return m.Store.BeginUpload(ctx, u) })
}

func (m *faultyMeta) EndUpload(ctx context.Context, key string) error {
	return m.call(func() error { return m.Store.EndUpload(ctx, key) })
}

func (m *faultyMeta) ContentVersion(ctx context.Context, org meta.OrgID) (v meta.ContentVersion, err error) {
	err = m.call(func() error { v, err = m.Store.ContentVersion(ctx, org); return err })
	return v, err
}

func (m *faultyMeta) ContentView(ctx context.Context, org meta.OrgID) (v meta.ContentView, err error) {
	err = m.call(func() error { v, err = m.Store.ContentView(ctx, org); return err })
	return v, err
}

func (m *faultyMeta) ContentPack(ctx context.Context, org meta.OrgID, id meta.ContentID) (p meta.ContentPack, err error) {
	err = m.call(func() error { p, err = m.Store.ContentPack(ctx, org, id); return err })
	return p, err
}

func (m *faultyMeta) ContentData(ctx context.Context, org meta.OrgID, id meta.ContentID) (b []byte, err error) {
	err = m.call(func() error { b, err = m.Store.ContentData(ctx, org, id); return err })
	return b, err
}

func (m *faultyMeta) SmallContentPacks(ctx context.Context, org meta.OrgID, below int64, limit int) (p []meta.ContentPack, err error) {
	err = m.call(func() error { p, err = m.Store.SmallContentPacks(ctx, org, below, limit); return err })
	return p, err
}

func (m *faultyMeta) ContentUpload(ctx context.Context, org meta.OrgID, id string) (u meta.ContentUpload, err error) {
	err = m.call(func() error { u, err = m.Store.ContentUpload(ctx, org, id); return err })
	return u, err
}

func (m *faultyMeta) ContentUploads(ctx context.Context, org meta.OrgID) (u []meta.ContentUpload, err error) {
	err = m.call(func() error { u, err = m.Store.ContentUploads(ctx, org); return err })
	return u, err
}

type faultyBlobs struct {
	blob.Store
	*fault
}

func (b *faultyBlobs) Put(ctx context.Context, key blob.Key, r io.Reader, size int64) error {
	return b.call(func() error { return b.Store.Put(ctx, key, r, size) })
}

func (b *faultyBlobs) Create(ctx context.Context, key blob.Key) (w blob.Writer, err error) {
	err = b.call(func() error { w, err = b.Store.Create(ctx, key); return err })
	if err != nil {
		return nil, err
	}
	return &faultyWriter{w, b.fault}, nil
}

func (b *faultyBlobs) Open(ctx context.Context, key blob.Key) (o blob.Object, err error) {
	err = b.call(func() error { o, err = b.Store.Open(ctx, key); return err })
	if err != nil {
		return nil, err
	}
	return &faultyObject{o, b.fault}, nil
}

func (b *faultyBlobs) Delete(ctx context.Context, key blob.Key) error {
	return b.call(func() error { return b.Store.Delete(ctx, key) })
}

func (b *faultyBlobs) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return b.Store.List(ctx, prefix)
}

type faultyWriter struct {
	blob.Writer
	*fault
}

func (w *faultyWriter) Write(p []byte) (n int, err error) {
	err = w.call(func() error { n, err = w.Writer.Write(p); return err })
	return n, err
}

func (w *faultyWriter) Finish(ctx context.Context) error {
	return w.call(func() error { return w.Writer.Finish(ctx) })
}

type faultyObject struct {
	blob.Object
	*fault
}

func (o *faultyObject) ReadAt(p []byte, off int64) (n int, err error) {
	err = o.call(func() error { n, err = o.Object.ReadAt(p, off); return err })
	return n, err
}

// TestFaults lets each call of a store fail in turn, before or after it had its
// effect, and each be the last one of a process. What was answered is there
// afterwards, a failure that is not an answer harms nothing, and nothing is left
// that a sweep does not find.
func TestFaults(t *testing.T) {
	seed := testkit.Seed(t)
	for _, mode := range []struct {
		name        string
		after, dies bool
	}{{"before", false, false}, {"after", true, false}, {"dies before", false, true}, {"dies after", true, true}} {
		t.Run(mode.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			step := func() int {
				if testkit.Soaking() {
					return 1
				}
				return 1 + rng.IntN(60) // some of the calls
			}
			for n := step(); ; n += step() {
				f := &fault{at: n, after: mode.after, dies: mode.dies}
				if !faultRun(t, f) {
					t.Logf("%d calls", f.n)
					break
				}
				if t.Failed() {
					t.Fatalf("call %d", n)
				}
			}
		})
	}
}

// faultRun does a bit of everything and reports whether the fault was met.
func faultRun(t *testing.T, f *fault) bool {
	m, err := sqlstore.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	store := mem.New()
	sound := newWorldWith(t, m, store, Config{InlineLimit: 700})
	cfg := sound.Store.cfg
	cfg.Meta, cfg.Blobs, cfg.Packs, cfg.Process = &faultyMeta{m, f}, &faultyBlobs{store, f}, nil, "faulty"
	w := *sound
	w.Store, w.meta = New(cfg), cfg.Meta
	h := &heads{roots: map[string]*checkpoint{}}
	failures := 0
	try := func(what string, err error) {
		if err == nil {
			return
		}
		if failures++; !errors.Is(err, errInjected) {
			var missing *tree.MissingError
			if !errors.As(err, &missing) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for i := range 5 {
		c := capture(t, [][]int{{i + 1, i + 2, 17}, {40 + 20*i, 41 + 20*i}})
		try("append", w.append(h, fmt.Sprint(i%4), c))
		if i == 2 {
			try("fold", w.fold(w.ctx, w.org, new(Tidied)))
			rows, err := w.rows(w.ctx, w.org)
			if err == nil {
				err = w.indexAll(rows)
			}
			try("index", err)
			delete(h.roots, "1")
		}
	}
	for range 2 {
		_, err := w.Sweep(w.ctx, w.org, h.list)
		try("sweep", err)
	}
	for _, p := range sound.packs() {
		res, err := w.scrub(w.ctx, w.org, p.ID, &pace{})
		try("scrub", err)
		if res.Err != nil {
			t.Errorf("a scrub takes a fault of the way for damage: %v", res.Err)
		}
	}
	for _, c := range h.roots {
		try("read", w.Source(w.org).Get(w.ctx, digestsOf(c.objects), func(tree.Digest, []byte) error { return nil }))
	}
	met := f.n >= f.at
	if met && failures == 0 && f.dies && f.n > f.at {
		t.Errorf("a process that died at call %d of %d noticed nothing", f.at, f.n)
	}
	// Another process finds everything that was answered.
	for _, c := range h.roots {
		sound.check(c.objects...)
	}
	uploads, err := m.ContentUploads(w.ctx, w.org)
	for _, u := range uploads {
		_, err = m.Apply(w.ctx, meta.Change{Org: w.org, Content: &meta.ContentChange{EndUpload: u.ID}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if res := sound.sweep(h); res.Missing > 0 {
			t.Errorf("a sweep misses something: %+v", res)
		}
	}
	sound.reclaim()
	sound.sound(h)
	if len(h.roots) > 0 {
		sound.compact(h)
	}
	return met
}

// reclaim does what a server does with uploads and retired keys of processes that
// are gone.
func (w *world) reclaim() {
	w.Helper()
	uploads, err := w.meta.Uploads(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	for _, u := range uploads {
		if _, err := w.meta.RetireUpload(w.ctx, u.Key); err != nil {
			w.Fatal(err)
		}
	}
	retired, err := w.meta.Retired(w.ctx, time.Now().Add(time.Hour), 1000)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range retired {
		if err := errors.Join(w.blobs.Delete(w.ctx, blob.Key(r.Key)), w.meta.ForgetRetired(w.ctx, []string{r.Key})); err != nil {
			w.Fatal(err)
		}
	}
}

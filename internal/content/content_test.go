package content

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// world is a Store on an embedded database, with two orgs.
type world struct {
	testing.TB
	*Store
	ctx        context.Context
	meta       meta.Store
	blobs      blob.Store
	org, other meta.OrgID
}

func newWorldOn(tb testing.TB, blobs blob.Store, cfg Config) *world {
	tb.Helper()
	return newWorldWith(tb, sqliteMeta(tb), blobs, cfg)
}

func newWorldWith(tb testing.TB, m meta.Store, blobs blob.Store, cfg Config) *world {
	tb.Helper()
	cfg.Meta, cfg.Blobs, cfg.Process = m, blobs, "test"
	if d, ok := blobs.(*deletions); ok {
		cfg.Begin = d.begin
	}
	w := &world{TB: tb, Store: New(cfg), ctx: tb.Context(), meta: m, blobs: blobs}
	for i, name := range []string{"acme", "other"} {
		id := meta.OrgID(meta.NewID(time.Now()))
		if v, err := m.Apply(w.ctx, meta.Change{Org: id, CreateOrg: &meta.Org{Name: name}}); err != nil || !v.Applied {
			tb.Fatal(v, err)
		}
		if i == 0 {
			w.org = id
		} else {
			w.other = id
		}
	}
	return w
}

// dirStore is a directory store on the real file system.
func dirStore(tb testing.TB) blob.Store {
	tb.Helper()
	fsys, err := fsx.NewOS(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	s, err := dir.Open(fsys)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func chunkOf(b []byte) tree.Object {
	return tree.Object{Kind: tree.Chunk, Digest: tree.Sum(b), Bytes: b}
}

// text returns compressible bytes that differ by n.
func text(n, size int) []byte {
	b := fmt.Appendf(nil, "object %d\n", n)
	for len(b) < size {
		b = fmt.Appendf(b, "line %d of the object with the number %d\n", len(b), n)
	}
	return b[:max(size, 1)]
}

func noise(size int) []byte {
	b := make([]byte, size)
	rand.Read(b)
	return b
}

// put uploads objects and returns what was stored.
func (w *world) put(upload string, objects ...tree.Object) Stored {
	w.Helper()
	u, err := w.Begin(w.ctx, w.org, "thread", upload)
	if err != nil {
		w.Fatal(err)
	}
	defer u.Close()
	for _, o := range objects {
		if err := u.Write(w.ctx, o); err != nil {
			w.Fatal(err)
		}
	}
	stored, err := u.Flush(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	return stored
}

// check reads objects and compares them.
func (w *world) check(objects ...tree.Object) {
	w.Helper()
	want := make(map[tree.Digest][]byte)
	var digests []tree.Digest
	for _, o := range objects {
		if want[o.Digest] == nil {
			digests = append(digests, o.Digest)
		}
		want[o.Digest] = o.Bytes
	}
	err := w.Source(w.org).Get(w.ctx, digests, func(d tree.Digest, b []byte) error {
		if string(want[d]) != string(b) {
			w.Errorf("object %s has other bytes", d)
		}
		delete(want, d)
		return nil
	})
	if err != nil || len(want) > 0 {
		w.Fatalf("%d objects were not given: %v", len(want), err)
	}
}

func TestUploadAndRead(t *testing.T) {
	for name, blobs := range map[string]blob.Store{"mem": mem.New(), "dir": dirStore(t), "s3": bucketStore(t)} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, blobs, Config{})
			var objects []tree.Object
			for i := range 1500 {
				objects = append(objects, chunkOf(text(i, 100+mrand.IntN(8000))))
			}
			objects = append(objects, chunkOf(noise(3<<20)), chunkOf(noise(100)), chunkOf([]byte{}))
			stored := w.put("u1", objects...)
			if stored.Objects != int64(len(objects)) || stored.New != int64(len(objects)) {
				t.Fatalf("stored %+v", stored)
			}
			w.check(objects...)
			if again := w.put("u2", objects...); again.New != 0 || again.Packed != 0 {
				t.Errorf("sent again: %+v", again)
			}
			if missing, _, err := w.Missing(w.ctx, w.other, []tree.Digest{objects[0].Digest}); err != nil || len(missing) != 1 {
				t.Errorf("another org: %v, %v", missing, err)
			}
			for _, upload := range []string{"u1", "u2"} {
				r, err := w.Received(w.ctx, w.org, "thread", upload)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range objects {
					if ok, err := r.Has(w.ctx, o.Digest); !ok || err != nil {
						t.Fatalf("%s: received %v, %v", upload, ok, err)
					}
				}
				if ok, _ := r.Has(w.ctx, tree.Sum([]byte("absent"))); ok {
					t.Error("received what was not sent")
				}
			}
			if _, err := w.Begin(w.ctx, w.org, "another", "u1"); !errors.Is(err, ErrUpload) {
				t.Errorf("an upload of another thread: %v", err)
			}
		})
	}
}

func BenchmarkFirstCapture(b *testing.B) {
	var objects []tree.Object
	total := 0
	for i := range 65000 {
		size := int(7700 * mrand.ExpFloat64())
		objects = append(objects, chunkOf(text(i, size)))
		total += size
	}
	b.SetBytes(int64(total))
	for b.Loop() {
		w := newWorldOn(b, dirStore(b), Config{})
		start := time.Now()
		s := w.put("u", objects...)
		b.ReportMetric(float64(total)/time.Since(start).Seconds()/1e6, "MB/s-write")
		b.ReportMetric(float64(s.Packed), "packed")
	}
}

// TestPackIsReadWithoutItsRow reads a pack as it would be recovered: its table by
// the trailer, its objects one after the other.
func TestPackIsReadWithoutItsRow(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{})
	var objects []tree.Object
	for i := range 100 {
		objects = append(objects, chunkOf(text(i, 50)), chunkOf(noise(50)))
	}
	w.put("u", objects...)
	rows, err := w.meta.ContentPacks(w.ctx, w.org, meta.ContentID{}, 10)
	if err != nil || len(rows) != 1 || rows[0].Key != "" {
		t.Fatal(rows, err)
	}
	data, err := w.meta.ContentData(w.ctx, w.org, rows[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := parseTrailer(data[len(data)-packTrailer:], int64(len(data)))
	if err != nil || at != rows[0].TableAt {
		t.Fatal(at, err)
	}
	place := int64(packHeader)
	var held []byte
	left := objects
	for place < at {
		g, n, err := groupAt(bytes.NewReader(data), place, at, &held)
		if err != nil {
			t.Fatal(err)
		}
		place += n
		plain, err := frame.Decompress(nil, g.Encoding, g.Bytes, g.Length)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range g.Members {
			if len(left) == 0 || tree.Sum(plain[:m.Length]) != left[0].Digest || m.Kind != left[0].Kind {
				t.Fatalf("another object follows %d", len(objects)-len(left))
			}
			plain, left = plain[m.Length:], left[1:]
		}
	}
	if len(left) > 0 {
		t.Errorf("%d objects are not there", len(left))
	}
	if place != at {
		t.Errorf("%d bytes follow", at-place)
	}
}

// BenchmarkCheckpoints stores many checkpoints of one change each, and reports what
// the first and the last of them took.
func BenchmarkCheckpoints(b *testing.B) {
	const count, window = 10000, 500
	for b.Loop() {
		w := newWorldOn(b, dirStore(b), Config{})
		var first, last time.Duration
		tidied := Tidied{}
		for i := range count {
			objects := []tree.Object{chunkOf(text(i, 6000)), chunkOf(text(i+count, 900)), chunkOf(text(i+2*count, 3000)), chunkOf(text(i+3*count, 400))}
			known := []tree.Digest{tree.Sum(text(i/2, 6000)), objects[0].Digest}
			start := time.Now()
			if _, _, err := w.Missing(w.ctx, w.org, known); err != nil {
				b.Fatal(err)
			}
			w.put(fmt.Sprint(i), objects...)
			_, generation, err := w.Missing(w.ctx, w.org, digestsOf(objects))
			if err != nil {
				b.Fatal(err)
			}
			v, err := w.meta.Apply(w.ctx, meta.Change{Org: w.org, Content: &meta.ContentChange{Generation: &generation, EndUpload: fmt.Sprint(i)}})
			if err != nil || !v.Applied {
				b.Fatal(v, err)
			}
			t, err := w.Tidy(w.ctx, w.org)
			if err != nil {
				b.Fatal(err)
			}
			tidied.Folded, tidied.Indexed = tidied.Folded+t.Folded, tidied.Indexed+t.Indexed
			switch took := time.Since(start); {
			case i < window:
				first += took
			case i >= count-window:
				last += took
			}
		}
		b.ReportMetric(float64(first.Microseconds())/window, "us/first")
		b.ReportMetric(float64(last.Microseconds())/window, "us/last")
		b.ReportMetric(float64(tidied.Folded), "folded")
		b.ReportMetric(float64(len(w.packs())), "packs")
	}
}

// BenchmarkMissing asks an org with many packs for objects that it has, and for
// as many that it does not have.
func BenchmarkMissing(b *testing.B) {
	w := newWorldOn(b, dirStore(b), Config{})
	var digests []tree.Digest
	for i := range 60 {
		var objects []tree.Object
		for k := range 1000 {
			o := chunkOf(noise(100))
			objects = append(objects, o)
			if k < 500 {
				digests = append(digests, o.Digest, tree.Sum(o.Digest[:]))
			}
		}
		w.put(fmt.Sprint(i), objects...)
		if _, err := w.Tidy(w.ctx, w.org); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		missing, _, err := w.Missing(w.ctx, w.org, digests)
		if err != nil || len(missing) != len(digests)/2 {
			b.Fatal(len(missing), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(digests)), "ns/digest")
}

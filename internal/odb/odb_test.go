package odb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// build writes a pack of blobs into a PackFile and returns its index.
func build(tb testing.TB, f *odb.PackFile, blobs ...string) *pack.Index {
	tb.Helper()
	w := pack.NewWriter(f, uint32(len(blobs)))
	var entries []pack.IndexEntry
	for _, b := range blobs {
		at, err := w.Add(object.Blob, []byte(b))
		if err != nil {
			tb.Fatal(err)
		}
		entries = append(entries, pack.IndexEntry{ID: object.Hash(object.Blob, []byte(b)), Offset: at.Offset, CRC: at.CRC})
	}
	sum, err := w.Close()
	if err != nil {
		tb.Fatal(err)
	}
	idx, err := pack.ParseIndex(pack.BuildIndex(entries, sum))
	if err != nil {
		tb.Fatal(err)
	}
	return idx
}

func idOf(content string) object.ID { return object.Hash(object.Blob, []byte(content)) }

// TestManyPacks adds packs that share objects, and looks every object up in
// every version of the set.
func TestManyPacks(t *testing.T) {
	ctx := context.Background()
	s := repotest.NewStore(t, 64<<10)
	r := rand.New(rand.NewPCG(1, 1))
	db, err := s.ODB.Open(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]int32{}
	for n := range int32(60) {
		var blobs []string
		for range 1 + r.IntN(20) {
			b := fmt.Sprintf("blob %d", r.IntN(400))
			blobs = append(blobs, b)
			if _, ok := first[b]; !ok {
				first[b] = n
			}
		}
		seen := map[string]bool{}
		unique := blobs[:0]
		for _, b := range blobs {
			if !seen[b] {
				seen[b] = true
				unique = append(unique, b)
			}
		}
		f := s.ODB.NewPack(meta.PackInsert)
		p, err := f.Pending(build(t, f, unique...))
		if err != nil {
			t.Fatal(err)
		}
		before := db
		db = db.With(p)
		for i := range 400 {
			b := fmt.Sprintf("blob %d", i)
			place, want := first[b]
			loc, ok := db.Find(idOf(b))
			if ok != want || ok && (loc.Pack != place || db.ID(loc) != idOf(b)) {
				t.Fatalf("after pack %d, %q is at %v, %v; want pack %d, %v", n, b, loc, ok, place, want)
			}
			if _, ok := before.Find(idOf(b)); ok != (want && place < n) {
				t.Fatalf("the set before pack %d changed: it has %q: %v", n, b, ok)
			}
			if !want {
				continue
			}
			if typ, data, err := db.Get(ctx, idOf(b)); err != nil || typ != object.Blob || string(data) != b {
				t.Fatalf("%q reads as %s %q: %v", b, typ, data, err)
			}
		}
	}
}

func TestAbsentObjectIsCorruption(t *testing.T) {
	ctx := context.Background()
	s := repotest.NewStore(t, 64<<10)
	db, err := s.ODB.Open(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := s.ODB.CorruptCount()
	_, _, err = db.Get(ctx, idOf("absent"))
	var bad *odb.CorruptError
	if !errors.As(err, &bad) || bad.Object != idOf("absent") {
		t.Errorf("error is %v", err)
	}
	if s.ODB.CorruptCount() != before+1 {
		t.Error("corruption is not counted")
	}
	if _, err := s.ODB.Open(ctx, 12345); err == nil {
		t.Error("a set that does not exist opens")
	}
}

// TestDamagedBlobs takes away or damages each blob of a large pack.
func TestDamagedBlobs(t *testing.T) {
	ctx := context.Background()
	for _, suffix := range []string{odb.PackSuffix, odb.IndexSuffix} {
		for _, cut := range []bool{false, true} {
			s := repotest.NewStore(t, 1)
			id := s.Create()
			f := s.ODB.NewPack(meta.PackReceive)
			idx := build(t, f, "one", "two")
			w, err := f.Finish(ctx, idx, nil, odb.Contents{})
			if err != nil {
				t.Fatal(err)
			}
			v := s.Apply(meta.Change{Org: s.Org, Repo: id, AddPack: w, Untidy: true})
			f.Published(idx, id, v.At)
			key := blob.Key(w.Key + suffix)
			o, err := s.Blobs.Open(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()-5))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Blobs.Delete(ctx, key); err != nil {
				t.Fatal(err)
			}
			if cut {
				if err := s.Blobs.Put(ctx, key, bytes.NewReader(data), int64(len(data))); err != nil {
					t.Fatal(err)
				}
			}
			fresh := odb.New(odb.Config{Meta: s.Meta, Blobs: s.Blobs})
			_, err = fresh.Open(ctx, s.Row(id).PackSet)
			var bad *odb.CorruptError
			if !errors.As(err, &bad) || bad.Pack != w.ID {
				t.Errorf("%s damaged (cut: %v): %v", suffix, cut, err)
			}
		}
	}
}

// TestPackFile writes packs on both sides of the inline limit, and ends them in
// each way.
func TestPackFile(t *testing.T) {
	ctx := context.Background()
	scratch := t.TempDir()
	base := repotest.NewStore(t, 1)
	store := odb.New(odb.Config{Meta: base.Meta, Blobs: base.Blobs, Scratch: scratch, InlineLimit: 300})
	random := make([]byte, 2000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	keys := func() (n int) {
		for _, err := range base.Blobs.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	for _, content := range []string{"small", string(random)} {
		large := len(content) > 300
		for _, end := range []string{"abort", "abort after finish", "publish", "leave"} {
			id := base.Create()
			before := keys()
			f := store.NewPack(meta.PackReceive)
			idx := build(t, f, content)
			if _, err := f.WriteAt([]byte("PACK"), 0); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{0}, f.Size()); err == nil {
				t.Error("a write beyond the end succeeds")
			}
			got := make([]byte, f.Size())
			if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF || string(got[:4]) != "PACK" {
				t.Fatalf("read back: %q, %v", got[:4], err)
			}
			var w *meta.PackWrite
			var err error
			if end != "abort" {
				if w, err = f.Finish(ctx, idx, nil, odb.Contents{}); err != nil {
					t.Fatal(err)
				}
				if w.Inline == large || w.Inline && !bytes.Equal(w.Data, got) {
					t.Errorf("pack of %d bytes: inline is %v", f.Size(), w.Inline)
				}
			}
			stored := 0
			switch end {
			case "publish":
				v := base.Apply(meta.Change{Org: base.Org, Repo: id, AddPack: w, Untidy: true})
				f.Published(idx, id, v.At)
				stored = 3
				db, err := store.Open(ctx, base.Row(id).PackSet)
				if err != nil {
					t.Fatal(err)
				}
				if _, data, err := db.Get(ctx, idOf(content)); err != nil || string(data) != content {
					t.Errorf("published object reads as %.20q: %v", data, err)
				}
			case "leave":
				f.Leave()
				stored = 3
			}
			if err := f.Abort(ctx); err != nil {
				t.Fatal(err)
			}
			if !large {
				stored = 0
			}
			if n := keys() - before; n != stored {
				t.Errorf("%s of a pack of %d bytes leaves %d blobs, want %d", end, len(content), n, stored)
			}
			if files, err := os.ReadDir(scratch); err != nil || len(files) > 0 {
				t.Errorf("%s leaves %v in the scratch directory: %v", end, files, err)
			}
			uploads, err := base.Meta.Uploads(ctx)
			if want := end == "leave" && large; err != nil || (len(uploads) > 0) != want {
				t.Errorf("%s leaves uploads %v: %v", end, uploads, err)
			}
			for _, u := range uploads {
				if err := base.Meta.EndUpload(ctx, u.Key); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestSmallAndLargeAlike loads one history in rows and in blobs, and opens it
// anew: every object must read the same as from git.
func TestSmallAndLargeAlike(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 61, 40)
	for _, inline := range []int64{1, 64 << 10} {
		s := repotest.NewStore(t, inline)
		id := s.Create()
		s.Import(origin, id, 20, 2, true)
		fresh := odb.New(odb.Config{Meta: s.Meta, Blobs: s.Blobs})
		db, err := fresh.Open(ctx, s.Row(id).PackSet)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range origin.IDs("cat-file", "--batch-all-objects", "--batch-check=%(objectname)") {
			typ, data, err := db.Get(ctx, id)
			if err != nil || object.Hash(typ, data) != id {
				t.Fatalf("object %s reads as another: %v", id, err)
			}
			size, err := db.Size(ctx, id)
			if err != nil || size != int64(len(data)) {
				t.Errorf("object %s has %d bytes, says %d: %v", id, len(data), size, err)
			}
			streamType, n, r, err := db.Stream(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			streamed, err := io.ReadAll(r)
			if err != nil || streamType != typ || n != size || !bytes.Equal(streamed, data) {
				t.Errorf("object %s streams differently: %v", id, err)
			}
			r.Close()
		}
	}
}

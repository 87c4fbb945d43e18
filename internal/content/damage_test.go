package content

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// tamper changes the bytes of a stored blob; nil removes it.
func (w *world) tamper(key string, change func(b []byte) []byte) {
	w.Helper()
	o, err := w.blobs.Open(w.ctx, blob.Key(key))
	if err != nil {
		w.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err = errors.Join(err, o.Close(), w.blobs.Delete(w.ctx, blob.Key(key))); err != nil {
		w.Fatal(err)
	}
	if b = change(b); b != nil {
		if err := w.blobs.Put(w.ctx, blob.Key(key), bytes.NewReader(b), int64(len(b))); err != nil {
			w.Fatal(err)
		}
	}
	// Another process knows nothing of what this one has read.
	w.Store = New(w.Store.cfg)
}

// findings runs fsck and returns the kinds of what it found.
func (w *world) findings(h *heads) (kinds []FindingKind) {
	w.Helper()
	report := func(f Finding) {
		w.Logf("%s: %s", f.Kind, f.Detail)
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	if err := errors.Join(w.Fsck(w.ctx, w.org, h.list, report), w.FsckBlobs(w.ctx, report)); err != nil {
		w.Fatal(err)
	}
	slices.Sort(kinds)
	return kinds
}

func (w *world) packs() []meta.ContentPack {
	w.Helper()
	packs, err := w.meta.ContentPacks(w.ctx, w.org, meta.ContentID{}, 1000)
	if err != nil {
		w.Fatal(err)
	}
	return packs
}

func digestsOf(objects []tree.Object) (list []tree.Digest) {
	for _, o := range objects {
		list = append(list, o.Digest)
	}
	return unique(list)
}

// TestDamageIsHealed damages a pack in each way. A scrub saves what is whole, what
// is not is sent again, and everything is as before.
func TestDamageIsHealed(t *testing.T) {
	flip := func(at func(b []byte) int) func(b []byte) []byte {
		return func(b []byte) []byte {
			b[at(b)] ^= 0x10
			return b
		}
	}
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		whole  bool // something of the pack can be saved
		index  bool
	}{
		{"an object", flip(func(b []byte) int { return len(b) / 2 }), true, false},
		{"two objects", func(b []byte) []byte { b[40] ^= 1; b[len(b)/2] ^= 1; return b }, true, false},
		{"the header", flip(func([]byte) int { return 1 }), true, false},
		{"the trailer", flip(func(b []byte) int { return len(b) - 3 }), true, false},
		{"the table", flip(func(b []byte) int { return len(b) - 100 }), true, false},
		{"the end", func(b []byte) []byte { return b[:len(b)/2] }, true, false},
		{"everything", func([]byte) []byte { return nil }, false, false},
		{"an indexed object", flip(func(b []byte) int { return len(b) / 2 }), true, true},
		{"an indexed table", flip(func(b []byte) int { return len(b) - 100 }), true, true},
		{"an indexed pack", func([]byte) []byte { return nil }, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOn(t, mem.New(), Config{InlineLimit: 1})
			h := &heads{roots: map[string]*checkpoint{}}
			var folder []int
			for i := range 300 {
				folder = append(folder, i*17+1+i%3)
			}
			cp := capture(t, [][]int{folder, {1, 2, 3}})
			if err := w.append(h, "a", cp); err != nil {
				t.Fatal(err)
			}
			if c.index {
				rows, err := w.rows(w.ctx, w.org)
				if err == nil {
					err = w.indexAll(rows)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			pack := w.packs()[0]
			w.tamper(pack.Key, c.change)
			if kinds := w.findings(h); len(kinds) == 0 {
				t.Fatal("fsck finds nothing")
			}
			res, err := w.scrub(w.ctx, w.org, pack.ID, &pace{})
			if err != nil || res.Err == nil {
				t.Fatalf("%+v, %v", res, err)
			}
			gone, _, err := w.Missing(w.ctx, w.org, digestsOf(cp.objects))
			if err != nil || (len(gone) < len(digestsOf(cp.objects))) != c.whole || len(gone) != res.Broken {
				t.Fatalf("%d of %d are missing, %d broken: %v", len(gone), len(cp.objects), res.Broken, err)
			}
			// Damage is not made worse by sweeps.
			for range 3 {
				w.sweep(h)
			}
			if err := w.append(h, "a", cp); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if res := w.sweep(h); res.Missing > 0 {
					t.Fatalf("after healing: %+v", res)
				}
			}
			w.check(cp.objects...)
			w.sound(h)
			for _, p := range w.packs() {
				if p.State != meta.ContentLive {
					t.Errorf("pack %+v stays", p)
				}
			}
		})
	}
}

// TestReadsUseEveryCopy reads an object whose first copy is damaged.
func TestReadsUseEveryCopy(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{InlineLimit: 1})
	o, others := chunkOf(text(1, 300<<10)), []tree.Object{chunkOf(text(2, 500)), chunkOf(text(3, 500))}
	u1, err1 := w.Begin(w.ctx, w.org, "t", "1")
	u2, err2 := w.Begin(w.ctx, w.org, "t", "2")
	if err := errors.Join(err1, err2, u1.Write(w.ctx, o), u1.Write(w.ctx, others[0]), u2.Write(w.ctx, o), u2.Write(w.ctx, others[1])); err != nil {
		t.Fatal(err)
	}
	// Both look what there is before either has stored anything.
	if err := errors.Join(u1.send(w.ctx), u2.send(w.ctx)); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*Upload{u1, u2} {
		if _, err := u.Flush(w.ctx); err != nil {
			t.Fatal(err)
		}
		u.Close()
	}
	packs := w.packs()
	if len(packs) != 2 {
		t.Fatalf("%d packs", len(packs))
	}
	for i, p := range packs {
		w.tamper(p.Key, func(b []byte) []byte { b[packHeader+20] ^= 1; return b })
		err := w.Source(w.org).Get(w.ctx, []tree.Digest{o.Digest}, func(_ tree.Digest, b []byte) error {
			if !bytes.Equal(b, o.Bytes) {
				t.Error("other bytes")
			}
			return nil
		})
		var corrupted *tree.CorruptError
		if i == 0 && err != nil || i == 1 && !errors.As(err, &corrupted) {
			t.Errorf("with %d damaged copies: %v", i+1, err)
		}
	}
	if w.CorruptCount() == 0 || len(w.suspects) == 0 {
		t.Errorf("%d corruptions were counted, %d packs are suspected", w.CorruptCount(), len(w.suspects))
	}
	w.check(others[1])
}

// TestIndexFilesAreRepaired damages an index file: it is made anew from its packs.
func TestIndexFilesAreRepaired(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"head":   func(b []byte) []byte { b[20] ^= 1; return b },
		"absent": func([]byte) []byte { return nil },
		"short":  func(b []byte) []byte { return b[:len(b)-1] },
		"block":  func(b []byte) []byte { b[len(b)-10] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, mem.New(), Config{InlineLimit: 1})
			h := &heads{roots: map[string]*checkpoint{}}
			for i, name := range []string{"a", "b", "c"} {
				if err := w.append(h, name, capture(t, [][]int{{i*10 + 1, i*10 + 2, 17 * i}})); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := w.rows(w.ctx, w.org)
			if err = errors.Join(err, w.indexAll(rows)); err != nil {
				t.Fatal(err)
			}
			if rows, err = w.rows(w.ctx, w.org); err != nil || len(rows.Indexes) != 1 || len(rows.Packs) != 0 {
				t.Fatalf("%+v, %v", rows, err)
			}
			w.tamper(rows.Indexes[0].Key, change)
			if kinds := w.findings(h); !slices.Contains(kinds, FindIndex) {
				t.Fatalf("fsck found %v", kinds)
			}
			if tidied, err := w.Tidy(w.ctx, w.org); err != nil || tidied.Indexes != 1 {
				t.Fatalf("%+v, %v", tidied, err)
			}
			w.sound(h)
			for _, c := range h.roots {
				w.check(c.objects...)
			}
		})
	}
}

// TestHiddenObjectsStopSweeps loses a directory: nobody knows what it refers to, so
// nothing goes until it is there again.
func TestHiddenObjectsStopSweeps(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{InlineLimit: 1})
	h := &heads{roots: map[string]*checkpoint{}}
	c := capture(t, [][]int{{1, 2, 3}, {4, 5, 6}})
	var dirs, rest []tree.Object
	for _, o := range c.objects {
		if o.Kind == tree.Dir {
			dirs = append(dirs, o)
		} else {
			rest = append(rest, o)
		}
	}
	w.put("dirs", dirs...)
	key := w.packs()[0].Key
	w.put("rest", rest...)
	if err := w.append(h, "a", c); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dirs", "rest"} {
		if _, err := w.meta.Apply(w.ctx, meta.Change{Org: w.org, Content: &meta.ContentChange{EndUpload: id}}); err != nil {
			t.Fatal(err)
		}
	}
	w.tamper(key, func([]byte) []byte { return nil })
	if res := w.sweep(h); !res.Hidden || res.Condemned > 0 {
		t.Fatalf("%+v", res)
	}
	if kinds := w.findings(h); !slices.Contains(kinds, FindMissing) || !slices.Contains(kinds, FindBlob) {
		t.Errorf("fsck found %v", kinds)
	}
	w.check(rest...)
	if _, err := w.scrub(w.ctx, w.org, w.packOf(key).ID, &pace{}); err != nil {
		t.Fatal(err)
	}
	if err := w.append(h, "a", c); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.sweep(h)
	}
	w.check(c.objects...)
	w.sound(h)
}

func (w *world) packOf(key string) meta.ContentPack {
	for _, p := range w.packs() {
		if p.Key == key {
			return p
		}
	}
	w.Fatalf("no pack has the key %q", key)
	return meta.ContentPack{}
}

func TestRefusedObjects(t *testing.T) {
	w := newWorldOn(t, mem.New(), Config{})
	good := chunkOf(text(1, 500))
	compressed, _ := frame.Compress(nil, good.Bytes)
	group := func(d tree.Digest, length int, b []byte) func(u *Upload) error {
		g := &frame.Group{Members: []frame.Member{{Digest: d, Kind: tree.Chunk, Length: length}}, Encoding: frame.Zstd, Length: length, Bytes: b}
		return func(u *Upload) error { return u.WriteGroup(w.ctx, g) }
	}
	for name, send := range map[string]func(u *Upload) error{
		"other bytes": func(u *Upload) error {
			return u.Write(w.ctx, tree.Object{Kind: tree.Chunk, Digest: good.Digest, Bytes: []byte("x")})
		},
		"no kind":       func(u *Upload) error { return u.Write(w.ctx, tree.Object{Digest: good.Digest, Bytes: good.Bytes}) },
		"too large":     func(u *Upload) error { return u.Write(w.ctx, chunkOf(make([]byte, tree.MaxChunk+1))) },
		"not zstd":      group(good.Digest, len(good.Bytes)+1, good.Bytes),
		"longer":        group(good.Digest, len(good.Bytes)-1, compressed),
		"shorter":       group(good.Digest, len(good.Bytes)+1, compressed),
		"another's sum": group(tree.Digest{1}, len(good.Bytes), compressed),
		"two frames":    group(good.Digest, len(good.Bytes), append(bytes.Clone(compressed), 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0)),
		"lengths that do not add up": func(u *Upload) error {
			return u.WriteGroup(w.ctx, &frame.Group{Members: []frame.Member{{Digest: good.Digest, Kind: tree.Chunk, Length: 7}}, Length: 8, Bytes: good.Bytes[:8]})
		},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := w.Begin(w.ctx, w.org, "t", "u")
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			err = u.Write(w.ctx, chunkOf(text(2, 100)))
			if err == nil {
				err = send(u)
			}
			if err == nil {
				_, err = u.Flush(w.ctx)
			}
			var corrupted *tree.CorruptError
			if !errors.As(err, &corrupted) && !errors.Is(err, tree.ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			if again := u.Write(w.ctx, good); again == nil {
				t.Error("the upload goes on")
			}
			if len(w.packs()) > 0 {
				t.Error("something was stored")
			}
		})
	}
	// Nor does something of them go into what others send.
	fresh := chunkOf(text(3, 50))
	w.put("after", fresh)
	if packs := w.packs(); len(packs) != 1 || packs[0].Objects != 1 || packs[0].RawBytes != 50 {
		t.Errorf("stored after errors: %+v", packs)
	}
	// What is compressed already is taken as it is.
	u, err := w.Begin(w.ctx, w.org, "t", "u")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := group(good.Digest, len(good.Bytes), compressed)(u); err != nil {
		t.Fatal(err)
	}
	if s, err := u.Flush(w.ctx); err != nil || s.Bytes != int64(len(good.Bytes)) {
		t.Fatal(s, err)
	}
	w.check(good)
	for info, err := range w.blobs.List(w.ctx, "") {
		if err != nil || strings.HasPrefix(string(info.Key), KeyPrefix) {
			t.Errorf("blob %q is left: %v", info.Key, err)
		}
	}
}

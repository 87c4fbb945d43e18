package pack

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// noMemory hides that a reader's bytes are in memory.
type noMemory struct{ io.ReaderAt }

func mustParse(t testing.TB, idx []byte) *Index {
	t.Helper()
	x, err := ParseIndex(idx)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestPackReadsWhatGitWrote(t *testing.T) {
	r := history(t, 60, 5, 8_000)
	all := r.objects()
	for name, flags := range map[string][]string{
		"whole":     {"--all", "--no-reuse-delta", "--depth=0"},
		"offset":    {"--all", "--delta-base-offset", "--no-reuse-delta", "--depth=80", "--window=20"},
		"reference": {"--all", "--no-reuse-delta", "--depth=80", "--window=20"},
	} {
		data := r.pack("", flags...)
		idx := mustParse(t, r.indexPack(data))
		fromFile, err := Open(noMemory{bytes.NewReader(data)}, int64(len(data)), idx)
		if err != nil {
			t.Fatal(err)
		}
		inMemory, err := OpenBytes(data, idx)
		if err != nil {
			t.Fatal(err)
		}
		for kind, p := range map[string]*Pack{
			"file": fromFile, "memory": inMemory, "small cache": inMemory.WithCache(NewCache(100_000)), "cache": fromFile.WithCache(NewCache(1 << 20)),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) { checkAll(t, p, all) })
		}
	}
}

// checkAll compares every object of a pack, read in every way, with all.
func checkAll(t *testing.T, p *Pack, all map[object.ID]gitObject) {
	t.Helper()
	if p.Index().Count() != len(all) {
		t.Fatalf("%d objects, want %d", p.Index().Count(), len(all))
	}
	end := int64(headerLen)
	for _, i := range p.Index().OffsetOrder() {
		pos := int(i)
		want, ok := all[p.Index().ID(pos)]
		if !ok {
			t.Fatalf("%s is not an object", p.Index().ID(pos))
		}
		typ, data, err := p.Get(pos, Limits{})
		if err != nil || typ.String() != want.typ || !bytes.Equal(data, want.data) {
			t.Fatalf("Get(%s) = %v, %d bytes, %v", p.Index().ID(pos), typ, len(data), err)
		}
		if typ, err := p.Type(pos, Limits{}); err != nil || typ.String() != want.typ {
			t.Fatalf("Type = %v, %v", typ, err)
		}
		if size, err := p.ObjectSize(pos); err != nil || size != int64(len(want.data)) {
			t.Fatalf("ObjectSize = %d, %v, want %d", size, err, len(want.data))
		}
		typ, size, rc, err := p.Stream(pos, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		data, err = io.ReadAll(rc)
		if err != nil || typ.String() != want.typ || size != int64(len(data)) || !bytes.Equal(data, want.data) {
			t.Fatalf("Stream = %v, %d bytes, %v", typ, len(data), err)
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		e, err := p.Entry(pos)
		if err != nil || e.Offset != end {
			t.Fatalf("Entry begins at %d, want %d, err %v", e.Offset, end, err)
		}
		end = e.End
		if got, ok := p.Index().PosByOffset(e.Offset); !ok || got != pos {
			t.Fatalf("PosByOffset(%d) = %d, %v, want %d", e.Offset, got, ok, pos)
		}
	}
	if end != p.Size()-trailerLen {
		t.Errorf("last entry ends at %d of %d", end, p.Size())
	}
}

func TestWriterSatisfiesGit(t *testing.T) {
	r := history(t, 60, 5, 5_000)
	src := r.pack("", "--all", "--delta-base-offset")
	idx := mustParse(t, r.indexPack(src))
	from, err := Open(noMemory{bytes.NewReader(src)}, int64(len(src)), idx)
	if err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	w := NewWriter(&out, uint32(idx.Count()))
	var entries []IndexEntry
	moved := map[int64]int64{} // old offset to new
	for i, pos := range idx.OffsetOrder() {
		e, err := from.Entry(int(pos))
		if err != nil {
			t.Fatal(err)
		}
		var at Written
		switch raw := from.Raw(e); {
		case e.Type == OFSDelta && i%2 == 0:
			at, err = w.AddOfsDelta(moved[e.BaseOffset], e.Size, raw)
		case e.Type == OFSDelta:
			base, _ := idx.PosByOffset(e.BaseOffset)
			at, err = w.AddRefDelta(idx.ID(base), e.Size, raw)
		case i%2 == 0:
			at, err = w.AddCompressed(e.Type, e.Size, raw)
		default:
			typ, data, err2 := from.Get(int(pos), Limits{})
			if err2 != nil {
				t.Fatal(err2)
			}
			at, err = w.Add(typ, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		moved[e.Offset] = at.Offset
		entries = append(entries, IndexEntry{idx.ID(int(pos)), at.Offset, at.CRC})
	}
	sum, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := BuildIndex(entries, sum), r.indexPack(out.Bytes()); !bytes.Equal(got, want) {
		t.Error("index differs from git's")
	}
	clean := newRepo(t)
	clean.git(out.Bytes(), "index-pack", "--strict", "--stdin")
	clean.git(nil, "fsck", "--full", "--strict")
}

func TestWriterCopiesRuns(t *testing.T) {
	r := history(t, 20, 5, 5_000)
	src := r.pack("", "--all", "--delta-base-offset")
	idx := mustParse(t, r.indexPack(src))
	p, err := OpenBytes(src, idx)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := NewWriter(&out, uint32(idx.Count()))
	if err := w.CopyRun(p.Run(headerLen, p.Size()-trailerLen), p.Size()-trailerLen-headerLen, uint32(idx.Count())); err != nil {
		t.Fatal(err)
	}
	sum, err := w.Close()
	if err != nil || sum != idx.PackChecksum() || !bytes.Equal(out.Bytes(), src) {
		t.Errorf("copy differs: checksum %s, want %s, err %v", sum, idx.PackChecksum(), err)
	}
}

func TestWriterRefuses(t *testing.T) {
	w := NewWriter(io.Discard, 1)
	if _, err := w.Close(); err == nil {
		t.Error("a pack with too few objects closed")
	}
	w = NewWriter(io.Discard, 1)
	if _, err := w.Add(object.Blob, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(object.Blob, nil); err == nil {
		t.Error("an object too many was added")
	}
	w = NewWriter(io.Discard, 2)
	if _, err := w.AddOfsDelta(headerLen, 4, bytes.NewReader(nil)); err == nil {
		t.Error("a delta against a later entry was added")
	}
	w = NewWriter(io.Discard, 2)
	err := w.CopyRun(bytes.NewReader(make([]byte, 10)), 11, 2)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short run: err %v", err)
	}
}

// TestStoredPackDamaged changes every bit of a stored pack. Reading may go
// unharmed, but must not fail with anything but a *CorruptError, or a
// *LimitError where the bit made a size large.
func TestStoredPackDamaged(t *testing.T) {
	res, dst, _, err := receive(t, bytes.NewReader(samplePack(t)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		t.Fatal(err)
	}
	x := mustParse(t, idx.Bytes())
	for i := range dst.Bytes() {
		noticed := false
		for bit := range 8 {
			bad := bytes.Clone(dst.Bytes())
			bad[i] ^= 1 << bit
			p, err := Open(noMemory{bytes.NewReader(bad)}, int64(len(bad)), x)
			for pos := 0; err == nil && pos < x.Count(); pos++ {
				_, _, err = p.Get(pos, Limits{})
			}
			if err != nil && !isCorrupt(err) && !asType(err, new(*LimitError)) {
				t.Errorf("bit %d of byte %d: err %v, want *CorruptError", bit, i, err)
			}
			noticed = noticed || err != nil
		}
		if !noticed {
			t.Errorf("no change of byte %d was noticed", i)
		}
	}
}

func isCorrupt(err error) bool {
	var corrupt *CorruptError
	return errors.As(err, &corrupt)
}

func TestPackLimits(t *testing.T) {
	p := newPacker(t, 3)
	data := bytes.Repeat([]byte("0123456789"), 100)
	base := p.add(object.Blob, data)
	next := p.ofs(base, edit(1000, 900, "x"))
	p.ofs(next, edit(901, 800, "y"))
	res, dst, _, err := receive(t, bytes.NewReader(p.bytes()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		t.Fatal(err)
	}
	x := mustParse(t, idx.Bytes())
	pack, err := OpenBytes(dst.Bytes(), x)
	if err != nil {
		t.Fatal(err)
	}
	last := int(x.OffsetOrder()[2])
	if _, _, err := pack.Get(last, Limits{MaxObject: 999}); !asType(err, new(*LimitError)) {
		t.Errorf("base over the limit: err %v, want *LimitError", err)
	}
	if _, _, err := pack.Get(last, Limits{MaxDepth: 1}); !isCorrupt(err) {
		t.Errorf("chain over the limit: err %v, want *CorruptError", err)
	}
	if _, err := pack.Type(last, Limits{MaxDepth: 1}); !isCorrupt(err) {
		t.Errorf("chain over the limit: err %v, want *CorruptError", err)
	}
	e, err := pack.Entry(last)
	if err != nil {
		t.Fatal(err)
	}
	if own, err := pack.Inflate(nil, e, 100); err != nil || !bytes.Equal(own, edit(901, 800, "y")) {
		t.Errorf("Inflate = %q, %v", own, err)
	}
}

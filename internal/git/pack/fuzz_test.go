package pack

import (
	"bytes"
	"io"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// FuzzReceive receives anything. What is accepted must read back as what was
// reported, through the index that was made.
func FuzzReceive(f *testing.F) {
	whole := samplePack(f)
	f.Add(whole[:len(whole)-trailerLen])
	f.Add(appendHeader(nil, 0))
	f.Add(appendHeader(nil, 1<<32-1))
	p := newPacker(f, 3)
	p.ref(object.Hash(object.Blob, []byte("outside")), edit(7, 7, " and in"))
	p.add(object.Commit, []byte("tree"))
	p.raw(object.Tag, 1<<20, []byte("no stream"))
	f.Add(p.buf.Bytes())
	f.Fuzz(func(t *testing.T, body []byte) {
		outside := []byte("outside")
		opts := Options{
			RefuseTrailing: true, MaxObjectSize: 1 << 22, MaxWork: 1 << 26, Scratch: scratch(t),
			Base: memoryBase(func(id object.ID) (object.Type, []byte, error) {
				if id != object.Hash(object.Blob, outside) {
					return 0, nil, &MissingBaseError{id}
				}
				return object.Blob, outside, nil
			}),
		}
		res, dst, objs, err := receive(t, bytes.NewReader(seal(body)), opts)
		if err != nil {
			return
		}
		if res.Count() != len(objs)+res.Bases {
			t.Fatalf("%d objects, %d reported, %d bases", res.Count(), len(objs), res.Bases)
		}
		var idx bytes.Buffer
		if err := res.WriteIndex(&idx); err != nil {
			t.Fatal(err)
		}
		pack, err := OpenBytes(dst.Bytes(), mustParse(t, idx.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		for pos := range pack.Index().Count() {
			id := pack.Index().ID(pos)
			typ, data, err := pack.Get(pos, Limits{})
			if err != nil || object.Hash(typ, data) != id {
				t.Fatalf("%s reads back as %s, err %v", id, object.Hash(typ, data), err)
			}
			if o, ok := objs[id]; ok && (o.Type != typ || o.Size != int64(len(data)) || o.Data != nil && !bytes.Equal(o.Data, data)) {
				t.Fatalf("%s was reported as %s of %d bytes", id, o.Type, o.Size)
			}
		}
	})
}

// FuzzParseIndex uses whatever index is accepted.
func FuzzParseIndex(f *testing.F) {
	res, _, _, err := receive(f, bytes.NewReader(samplePack(f)), Options{})
	if err != nil {
		f.Fatal(err)
	}
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		f.Fatal(err)
	}
	f.Add(idx.Bytes())
	f.Add(BuildIndex(nil, object.Zero))
	f.Add(BuildIndex([]IndexEntry{{object.ID{1}, 12, 0}, {object.ID{2}, 1 << 33, 1}}, object.Zero))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseIndex(data)
		if err != nil {
			return
		}
		sound := x.Verify() == nil
		var entries []IndexEntry
		for pos := range x.Count() {
			id := x.ID(pos)
			got, ok := x.Lookup(id)
			lo, hi := x.Prefix(id, 40)
			place, found := x.PosByOffset(x.Offset(pos))
			if sound && (!ok || got != pos || lo != pos || hi != pos+1 || !found || x.Offset(place) != x.Offset(pos)) {
				t.Fatalf("position %d: looked up at %d, prefix at %d to %d, by offset at %d", pos, got, lo, hi, place)
			}
			entries = append(entries, IndexEntry{id, x.Offset(pos), x.CRC(pos)})
		}
		if len(x.OffsetOrder()) != x.Count() {
			t.Fatal("offset order is not of all positions")
		}
		if sound {
			mustParse(t, BuildIndex(entries, x.PackChecksum()))
		}
	})
}

// FuzzPack reads from a stored pack that was damaged after it was indexed.
func FuzzPack(f *testing.F) {
	res, dst, _, err := receive(f, bytes.NewReader(samplePack(f)), Options{})
	if err != nil {
		f.Fatal(err)
	}
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		f.Fatal(err)
	}
	whole := dst.Bytes()
	body := whole[headerLen : len(whole)-trailerLen]
	f.Add(body)
	f.Add(body[:40])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := bytes.Join([][]byte{whole[:headerLen], body, whole[len(whole)-trailerLen:]}, nil)
		x := mustParse(t, idx.Bytes())
		p, err := OpenBytes(data, x)
		if err != nil {
			t.Fatal(err)
		}
		onDisk, err := Open(noMemory{bytes.NewReader(data)}, int64(len(data)), x)
		if err != nil {
			t.Fatal(err)
		}
		limits := Limits{MaxObject: 1 << 20, MaxDepth: 10}
		for pos := range x.Count() {
			typ, data, err := p.Get(pos, limits)
			typ2, data2, err2 := onDisk.Get(pos, limits)
			if (err == nil) != (err2 == nil) || typ != typ2 || !bytes.Equal(data, data2) {
				t.Fatalf("position %d: memory and disk differ: %v, %v", pos, err, err2)
			}
			if err != nil {
				continue
			}
			if typ3, err := p.Type(pos, limits); err != nil || typ3 != typ {
				t.Fatalf("position %d: type %v, want %v, err %v", pos, typ3, typ, err)
			}
			if size, err := p.ObjectSize(pos); err != nil || size != int64(len(data)) {
				t.Fatalf("position %d: size %d, want %d, err %v", pos, size, len(data), err)
			}
			_, _, z, err := onDisk.Stream(pos, limits)
			if err != nil {
				t.Fatal(err)
			}
			streamed, err := io.ReadAll(z)
			if err != nil || !bytes.Equal(streamed, data) {
				t.Fatalf("position %d: stream differs, err %v", pos, err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

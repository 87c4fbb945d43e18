package content

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

var update = flag.Bool("update", false, "write the fixtures anew")

// openBytes opens a table that is in memory.
func openBytes(b []byte, magic string) (*table, error) {
	return openTable(context.Background(), meta.ContentID{1}, magic, int64(len(b)), lru.New[blockKey, []byte](1<<20),
		func(_ context.Context, p []byte, off int64) error {
			if n := copy(p, b[min(off, int64(len(b))):]); n < len(p) {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
}

// fixedPack is a pack with the same bytes each time but for compressed ones: a group
// of one object, one of two of which the first has nothing, and one that is compressed
// and has something in vain.
func fixedPack(t testing.TB) ([]byte, []tree.Object) {
	t.Helper()
	var list []tree.Object
	b := header()
	var records []record
	for i, texts := range [][]string{{"raw bytes"}, {"", "two"}, {strings.Repeat("compressed ", 40), "in vain", strings.Repeat("with others ", 30)}} {
		var g frame.Group
		var plain []byte
		for k, text := range texts {
			o := chunkOf([]byte(text))
			m := frame.Member{Digest: o.Digest, Kind: o.Kind, Length: len(text)}
			if i == 2 && k == 1 {
				m.Digest = tree.Digest{}
			} else {
				list = append(list, o)
			}
			plain = append(plain, text...)
			g.Members = append(g.Members, m)
		}
		g.Length = len(plain)
		g.Bytes, g.Encoding = frame.Compress(nil, plain)
		b = appendGroup(b, &g)
		p := place{offset: uint32(len(b) - len(g.Bytes)), length: uint32(len(g.Bytes)), total: uint32(g.Length), enc: g.Encoding}
		for _, m := range g.Members {
			p.raw, p.kind = uint32(m.Length), m.Kind
			if m.Digest != (tree.Digest{}) {
				records = append(records, record{m.Digest, p})
			}
			p.at += p.raw
		}
	}
	at := int64(len(b))
	return append(append(b, tableOf(t, []meta.ContentID{{1, 2, 3}}, records)...), trailer(at)...), list
}

// objectIn returns the bytes that lie at a place of a pack.
func objectIn(pack []byte, p *place) ([]byte, error) {
	if uint64(p.offset)+uint64(p.length) > uint64(len(pack)) {
		return nil, errors.New("it lies outside")
	}
	plain, err := frame.Decompress(nil, p.enc, pack[p.offset:p.offset+p.length], int(p.total))
	if err != nil {
		return nil, err
	}
	return plain[p.at : p.at+p.raw], nil
}

// tableOf writes a table; without packs it is a list.
func tableOf(t testing.TB, packs []meta.ContentID, records []record) []byte {
	t.Helper()
	for i := range records {
		for k := i; k > 0 && records[k].compare(&records[k-1]) < 0; k-- {
			records[k], records[k-1] = records[k-1], records[k]
		}
	}
	var b bytes.Buffer
	_, err := writeTable(&b, packs, func(fn func(*record) error) error {
		for i := range records {
			if err := fn(&records[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestFixtures reads what earlier programs wrote, and writes the same.
func TestFixtures(t *testing.T) {
	pack, objects := fixedPack(t)
	var records, digests []record
	for i := range 600 {
		r := record{tree.Sum([]byte{byte(i), byte(i >> 8)}), place{
			pack: uint32(i % 3), offset: uint32(8 + i), length: uint32(i + (1-i%2)*i + 1), total: uint32(2*i + 1), at: uint32(i), raw: uint32(i), kind: tree.Kind(1 + i%5), enc: byte(i % 2),
		}}
		records = append(records, r)
		digests = append(digests, record{digest: r.digest})
		if i%50 == 0 { // in another pack too
			r.pack = (r.pack + 1) % 3
			records = append(records, r)
		}
	}
	index, list := tableOf(t, []meta.ContentID{{1}, {2}, {3}}, records), tableOf(t, nil, digests)
	for name, b := range map[string][]byte{"pack": pack, "index": index, "list": list} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "pack":
			at, err := parseTrailer(stored[len(stored)-packTrailer:], int64(len(stored)))
			if err != nil {
				t.Fatal(err)
			}
			own, err := openBytes(stored[at:len(stored)-packTrailer], indexMagic)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				var p place
				if err := own.find(t.Context(), o.Digest, func(_ int, at place) bool { p = at; return true }); err != nil {
					t.Fatal(err)
				}
				if b, err := objectIn(stored, &p); err != nil || !bytes.Equal(b, o.Bytes) {
					t.Errorf("object %s: %q, %v", o.Digest, b, err)
				}
			}
		default:
			if !bytes.Equal(stored, b) {
				t.Errorf("%s: other bytes are written", name)
			}
		}
	}
	own, err := openBytes(index, indexMagic)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		found := 0
		err := own.find(t.Context(), records[i].digest, func(pos int, p place) bool {
			if records[pos].place != p {
				t.Errorf("record %d: %+v, want %+v", pos, p, records[pos].place)
			}
			found++
			return true
		})
		if err != nil || found == 0 || found > 2 {
			t.Fatalf("%d copies of %s: %v", found, records[i].digest, err)
		}
	}
}

// FuzzTable opens and reads tables of any bytes.
func FuzzTable(f *testing.F) {
	for _, name := range []string{"index", "list"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(tableOf(f, nil, nil))
	f.Add(tableOf(f, []meta.ContentID{{}}, []record{{place: place{kind: tree.Chunk}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, magic := range []string{indexMagic, listMagic} {
			own, err := openBytes(b, magic)
			if err != nil {
				var bad *TableError
				if !errors.As(err, &bad) {
					t.Fatalf("%v", err)
				}
				continue
			}
			n := 0
			err = own.each(t.Context(), func(pos int, r *record) error {
				n++
				ok, err := own.has(t.Context(), r.digest)
				if err == nil && !ok {
					t.Errorf("record %d is not found", pos)
				}
				return err
			})
			if err != nil {
				continue
			}
			// What is accepted as a whole is what would be written.
			var records []record
			if err := own.each(t.Context(), func(_ int, r *record) error { records = append(records, *r); return nil }); err != nil || n != own.records {
				t.Fatal(n, err)
			}
			var packs []meta.ContentID
			if magic == indexMagic {
				packs = append(make([]meta.ContentID, 0), own.ids...)
			}
			if again := tableOf(t, packs, records); !bytes.Equal(again, b) {
				t.Errorf("a table of %d bytes is written with %d", len(b), len(again))
			}
		}
	})
}

// FuzzPack reads a pack of any bytes from the front, and by its table.
func FuzzPack(f *testing.F) {
	good, _ := fixedPack(f)
	f.Add(good)
	f.Add(good[:len(good)-20])
	f.Add(good[8:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var held []byte
		for at := int64(packHeader); at < int64(len(b)); {
			g, n, err := groupAt(bytes.NewReader(b), at, int64(len(b)), &held)
			if err != nil {
				if !corrupt(err) {
					t.Fatal(err)
				}
				break
			}
			if n <= 0 || at+n > int64(len(b)) {
				t.Fatalf("a group of %d bytes at %d of %d", n, at, len(b))
			}
			at += n
			if plain, err := frame.Decompress(nil, g.Encoding, g.Bytes, g.Length); err == nil && len(plain) != g.Length {
				t.Errorf("%d bytes where the header says %d", len(plain), g.Length)
			}
		}
		at, err := parseTrailer(b[max(0, len(b)-packTrailer):], int64(len(b)))
		if err != nil {
			return
		}
		own, err := openBytes(b[at:len(b)-packTrailer], indexMagic)
		if err != nil {
			return
		}
		_ = own.each(t.Context(), func(_ int, r *record) error { // damage is found as it comes
			if b, err := objectIn(b, &r.place); err == nil && len(b) != int(r.raw) {
				t.Errorf("%d bytes where the table says %d", len(b), r.raw)
			}
			return nil
		})
	})
}

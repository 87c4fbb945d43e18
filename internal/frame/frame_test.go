package frame

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/internal/tree"
)

func object(kind tree.Kind, b []byte) tree.Object {
	return tree.Object{Kind: kind, Digest: tree.Sum(b), Bytes: b}
}

func TestStream(t *testing.T) {
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	objects := []tree.Object{
		object(tree.Chunk, nil), object(tree.Chunk, []byte("short")), object(tree.Chunk, []byte(strings.Repeat("a", 130))),
		object(tree.Chunk, []byte(strings.Repeat("b", 300))), object(tree.Dir, []byte(strings.Repeat("a directory ", 1000))),
		object(tree.Chunk, noise), object(tree.Root, []byte("root")),
	}
	var stream []byte
	for _, o := range objects {
		stream = Append(stream, o)
	}
	if len(stream) > len(noise)+2000 {
		t.Errorf("the stream has %d bytes", len(stream))
	}
	r := NewReader(bytes.NewReader(stream))
	for _, want := range objects {
		got, err := r.Next()
		if err != nil || got.Kind != want.Kind || got.Digest != want.Digest || !bytes.Equal(got.Bytes, want.Bytes) {
			t.Fatalf("read %v of %d bytes, %v", got.Kind, len(got.Bytes), err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for _, n := range []int{1, 2, 3, 20, 35, 36, 37, 40, len(stream) - 1} {
		r := NewReader(bytes.NewReader(stream[:n]))
		_, err := r.Next()
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

// raw builds a group by hand.
func raw(encoding byte, members []Member, stored uint64, data []byte) []byte {
	b := []byte{Version, encoding}
	b = binary.AppendUvarint(b, uint64(len(members)))
	for _, m := range members {
		b = append(append(b, m.Digest[:]...), byte(m.Kind))
		b = binary.AppendUvarint(b, uint64(m.Length))
	}
	return append(binary.AppendUvarint(b, stored), data...)
}

func TestRefuses(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := e.EncodeAll(make([]byte, 64<<20), nil)
	small := e.EncodeAll(make([]byte, 1000), nil)
	four := tree.Sum([]byte("four"))
	one := func(kind tree.Kind, length int) []Member { return []Member{{four, kind, length}} }
	z := uint64(len(small))
	for name, stream := range map[string][]byte{
		"a version":        append([]byte{Version + 1}, raw(Raw, one(tree.Chunk, 4), 4, []byte("four"))[1:]...),
		"no objects":       raw(Raw, nil, 0, nil),
		"many objects":     raw(Raw, make([]Member, MaxObjects+1), 0, nil),
		"a kind":           raw(Raw, one(9, 4), 4, []byte("four")),
		"an encoding":      raw(7, one(tree.Chunk, 4), 4, []byte("four")),
		"a length":         raw(Raw, one(tree.Chunk, 5), 4, []byte("four")),
		"a huge length":    raw(Raw, one(tree.Chunk, 1<<40), 1<<40, []byte("four")),
		"a large chunk":    raw(Raw, one(tree.Chunk, tree.MaxChunk+1), tree.MaxChunk+1, make([]byte, tree.MaxChunk+1)),
		"a large group":    raw(Raw, append(one(tree.Chunk, MaxGroup), one(tree.Chunk, 1)...), MaxGroup+1, make([]byte, MaxGroup+1)),
		"a bomb":           raw(Zstd, one(tree.Chunk, 1000), uint64(len(bomb)), bomb),
		"a small bomb":     raw(Zstd, one(tree.Chunk, 999), z, small),
		"too little":       raw(Zstd, one(tree.Chunk, 1001), z, small),
		"lengths":          raw(Zstd, append(one(tree.Chunk, 500), one(tree.Chunk, 501)...), z, small),
		"what is no zstd":  raw(Zstd, one(tree.Chunk, 5), 4, []byte("four")),
		"no gain":          raw(Zstd, one(tree.Chunk, 4), 4, []byte("four")),
		"trailing bytes":   raw(Zstd, one(tree.Chunk, 1000), z+1, append(bytes.Clone(small), 0)),
		"a second frame":   raw(Zstd, one(tree.Chunk, 1000), 2*z, append(bytes.Clone(small), small...)),
		"a skipped frame":  raw(Zstd, one(tree.Chunk, 1000), z+8, append(bytes.Clone(small), 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0)),
		"no frame at last": raw(Zstd, one(tree.Chunk, 1000), z-1, small[:z-1]),
	} {
		if _, err := NewReader(bytes.NewReader(stream)).Next(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An object with other bytes does not spoil those that are in its group.
	five := tree.Sum([]byte("five"))
	r := NewReader(bytes.NewReader(raw(Raw, []Member{{four, tree.Chunk, 4}, {five, tree.Chunk, 4}}, 8, []byte("fourfive"[4:]+"five"))))
	if _, ok := errors.AsType[*tree.CorruptError](second(r.Next())); !ok {
		t.Error("other bytes were given")
	}
	if o, err := r.Next(); err != nil || string(o.Bytes) != "five" {
		t.Errorf("behind other bytes: %q, %v", o.Bytes, err)
	}
}

func second(_ tree.Object, err error) error { return err }

// TestEncodingIsOfTheContent writes a stream again and again, between others: its bytes
// follow from the objects and their order.
func TestEncodingIsOfTheContent(t *testing.T) {
	var objects []tree.Object
	for i := range 300 {
		objects = append(objects, object(tree.Chunk, []byte(strings.Repeat("line of text ", i%170)+strings.Repeat(string(rune('a'+i%20)), i))))
	}
	want := Append(nil, objects...)
	for i := range 20 {
		Append(nil, objects[i:i+40]...)
		w := NewWriter(nil, false)
		for k, o := range objects {
			if w.Add(o); k == 10*i {
				w.Finish()
				w.Reset()
				w = NewWriter(w.Bytes(), false)
				for _, o := range objects[:k+1] {
					w.Add(o)
				}
			}
		}
		if !bytes.Equal(w.Finish(), want) {
			t.Fatal("the same objects have another encoding")
		}
	}
}

// TestGroups writes objects in an order: contents and directories lie apart, each in
// their order, and none is lost.
func TestGroups(t *testing.T) {
	var stream []byte
	want := map[bool][]tree.Digest{}
	w := NewWriter(nil, false)
	for i := range 9000 {
		o := object(tree.Chunk, fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", i%300)))
		if i%7 == 0 {
			o.Kind = tree.Dir
		}
		w.Add(o)
		want[o.Kind == tree.Chunk] = append(want[o.Kind == tree.Chunk], o.Digest)
		if i%1000 == 0 {
			stream = append(stream, w.Bytes()...)
			w.Reset()
		}
	}
	stream = append(stream, w.Finish()...)
	groups := 0
	for r := NewReader(bytes.NewReader(stream)); ; groups++ {
		g, err := r.Group()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range g.Members {
			chunk := g.Members[0].Kind == tree.Chunk
			if (m.Kind == tree.Chunk) != chunk || len(want[chunk]) == 0 || want[chunk][0] != m.Digest {
				t.Fatal("another object, or another kind")
			}
			want[chunk] = want[chunk][1:]
		}
	}
	if len(want[true])+len(want[false]) > 0 || groups > 10 {
		t.Errorf("%d and %d objects are left of %d groups", len(want[true]), len(want[false]), groups)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append(nil, object(tree.Chunk, []byte("short"))))
	f.Add(Append(nil, object(tree.Dir, []byte(strings.Repeat("a directory ", 100)))))
	f.Add(raw(Zstd, []Member{{tree.Sum(nil), tree.Root, 0}}, 0, nil))
	f.Add(Append(nil, object(tree.Chunk, []byte(strings.Repeat("one ", 50))), object(tree.Chunk, []byte(strings.Repeat("two ", 50)))))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			o, err := r.Next()
			if err != nil {
				return
			}
			if tree.Sum(o.Bytes) != o.Digest || len(o.Bytes) > tree.MaxBytes(o.Kind) {
				t.Fatal("an object that no Writer wrote")
			}
		}
	})
}

package frame

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
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
	for _, n := range []int{1, 31, 32, 33, 34, 35} {
		if _, err := NewReader(bytes.NewReader(stream[:n])).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

// raw builds a frame by hand.
func raw(o tree.Object, encoding byte, length, size uint64, data []byte) []byte {
	b := append(append([]byte{}, o.Digest[:]...), byte(o.Kind), encoding)
	b = binary.AppendUvarint(binary.AppendUvarint(b, length), size)
	return append(b, data...)
}

func TestRefuses(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := e.EncodeAll(make([]byte, 64<<20), nil)
	o := object(tree.Chunk, []byte("four"))
	for name, frame := range map[string][]byte{
		"a kind":          raw(tree.Object{Digest: o.Digest, Kind: 9}, Raw, 4, 4, o.Bytes),
		"an encoding":     raw(o, 7, 4, 4, o.Bytes),
		"a length":        raw(o, Raw, 5, 4, o.Bytes),
		"a huge length":   raw(o, Raw, 1<<40, 1<<40, o.Bytes),
		"a bomb":          raw(o, Zstd, 4, uint64(len(bomb)), bomb),
		"a bomb that is":  raw(o, Zstd, 64<<20, uint64(len(bomb)), bomb),
		"what is no zstd": raw(o, Zstd, 4, 4, o.Bytes),
	} {
		if _, err := NewReader(bytes.NewReader(frame)).Next(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = NewReader(bytes.NewReader(raw(o, Raw, 4, 4, []byte("five")))).Next()
	if _, ok := errors.AsType[*tree.CorruptError](err); !ok {
		t.Errorf("other bytes: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append(nil, object(tree.Chunk, []byte("short"))))
	f.Add(Append(nil, object(tree.Dir, []byte(strings.Repeat("a directory ", 100)))))
	f.Add(raw(object(tree.Root, nil), Zstd, 0, 0, nil))
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

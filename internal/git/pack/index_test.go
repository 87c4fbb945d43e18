package pack

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// sampleIndex has large offsets, and IDs that share digits.
func sampleIndex() ([]byte, []IndexEntry) {
	entries := []IndexEntry{
		{object.ID{0xab, 0x10}, 12, 1},
		{object.ID{0xab, 0x1f}, 1 << 31, 2},
		{object.ID{0xab, 0x20}, 1<<31 - 1, 3},
		{object.ID{0xff, 0xff}, 1 << 40, 4},
		{object.ID{0x00, 0x01}, 500, 5},
	}
	return BuildIndex(entries, object.ID{9}), entries
}

func TestIndex(t *testing.T) {
	data, entries := sampleIndex()
	x, err := ReadIndex(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	if x.Count() != len(entries) || x.PackChecksum() != (object.ID{9}) || !bytes.Equal(x.Bytes(), data) {
		t.Errorf("%d objects of pack %s", x.Count(), x.PackChecksum())
	}
	for i, e := range entries {
		if pos, ok := x.Lookup(e.ID); !ok || pos != i {
			t.Errorf("Lookup(%s) = %d, %v, want %d", e.ID, pos, ok, i)
		}
		if x.Offset(i) != e.Offset || x.CRC(i) != e.CRC {
			t.Errorf("position %d: offset %d, CRC %d, want %d, %d", i, x.Offset(i), x.CRC(i), e.Offset, e.CRC)
		}
		if pos, ok := x.PosByOffset(e.Offset); !ok || pos != i {
			t.Errorf("PosByOffset(%d) = %d, %v, want %d", e.Offset, pos, ok, i)
		}
	}
	for _, id := range []object.ID{{}, {0xab}, {0xac}, {0xff, 0xff, 1}} {
		if pos, ok := x.Lookup(id); ok {
			t.Errorf("Lookup(%s) = %d, but it is not there", id, pos)
		}
	}
	if _, ok := x.PosByOffset(13); ok {
		t.Error("an offset inside an entry was found")
	}
	for _, tt := range []struct{ digits, lo, hi int }{{0, 0, 5}, {1, 1, 4}, {2, 1, 4}, {3, 1, 3}, {4, 2, 3}, {40, 2, 3}, {99, 2, 3}} {
		if lo, hi := x.Prefix(object.ID{0xab, 0x1f}, tt.digits); lo != tt.lo || hi != tt.hi {
			t.Errorf("Prefix of %d digits = %d, %d, want %d, %d", tt.digits, lo, hi, tt.lo, tt.hi)
		}
	}
}

func TestIndexRefuses(t *testing.T) {
	good, _ := sampleIndex()
	parse := map[string]func(b []byte) []byte{
		"empty":            func([]byte) []byte { return nil },
		"cut short":        func(b []byte) []byte { return b[:len(b)-1] },
		"too long":         func(b []byte) []byte { return append(b, make([]byte, 8*6)...) },
		"version 1":        func(b []byte) []byte { return b[8:] },
		"version 3":        func(b []byte) []byte { b[7] = 3; return b },
		"fanout descends":  func(b []byte) []byte { b[idxHeader+4*7+3] = 9; return b },
		"claims 4 G":       func(b []byte) []byte { copy(b[idxHeader+4*255:], "\xff\xff\xff\xff"); return b },
		"claims an object": func(b []byte) []byte { b[idxHeader+4*255+3]++; return b },
	}
	for name, damage := range parse {
		if _, err := ParseIndex(damage(bytes.Clone(good))); !asType(err, new(*FormatError)) {
			t.Errorf("%s: err %v, want *FormatError", name, err)
		}
	}
	verify := map[string]func(b []byte){
		"IDs out of order":     func(b []byte) { b[idxNames+2*object.Size+1] = 0 },
		"ID outside fanout":    func(b []byte) { b[idxNames] = 1 },
		"large offset outside": func(b []byte) { binary.BigEndian.PutUint32(b[idxNames+5*24+4:], largeFlag|7) },
		"large offset huge":    func(b []byte) { b[idxNames+5*28] = 0xff },
		"offset in the header": func(b []byte) { binary.BigEndian.PutUint32(b[idxNames+5*24+4:], 3) },
	}
	for name, damage := range verify {
		b := bytes.Clone(good[:len(good)-trailerLen])
		damage(b)
		x, err := ParseIndex(seal(b))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := x.Verify(); !asType(err, new(*FormatError)) {
			t.Errorf("%s: err %v, want *FormatError", name, err)
		}
	}
	good[idxNames+3] ^= 1
	x, err := ParseIndex(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); !asType(err, new(*FormatError)) {
		t.Errorf("changed byte: err %v, want *FormatError", err)
	}
}

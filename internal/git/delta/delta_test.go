package delta

import (
	"bufio"
	"bytes"
	"errors"
	"testing"
)

// num encodes a delta header length.
func num(v uint64) []byte {
	var b []byte
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// stream is Apply by way of Stream.
func stream(base, d []byte) ([]byte, error) {
	s, err := NewStream(bytes.NewReader(base), int64(len(base)), bufio.NewReader(bytes.NewReader(d)))
	if err != nil {
		return nil, err
	}
	var w bytes.Buffer
	err = s.WriteResult(&w)
	return w.Bytes(), err
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestApply(t *testing.T) {
	base := bytes.Repeat([]byte("0123456789abcdef"), 0x1100)
	tests := []struct {
		name  string
		delta []byte
		want  []byte
	}{
		{"insert", cat(num(uint64(len(base))), num(3), []byte{3, 'x', 'y', 'z'}), []byte("xyz")},
		{"copy", cat(num(uint64(len(base))), num(4), []byte{0x91, 2, 4}), []byte("2345")},
		{"copy without offset", cat(num(uint64(len(base))), num(4), []byte{0x90, 4}), []byte("0123")},
		{"copy of length zero is 64 KiB", cat(num(uint64(len(base))), num(0x10000), []byte{0x80}), base[:0x10000]},
		{"copy far", cat(num(uint64(len(base))), num(0x10001), []byte{0x80 | 0x02 | 0x50, 0x01, 1, 1}), base[0x100:0x10101]},
		{"both", cat(num(uint64(len(base))), num(3), []byte{0x90, 1, 1, '-', 0x91, 15, 1}), []byte("0-f")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Apply(make([]byte, 7), base, tt.delta, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, tt.want) {
				t.Errorf("got %d bytes, want %d", len(got), len(tt.want))
			}
			if got, err := stream(base, tt.delta); err != nil || !bytes.Equal(got, tt.want) {
				t.Errorf("streamed: got %d bytes, want %d, err %v", len(got), len(tt.want), err)
			}
			b, r, err := Sizes(tt.delta[:min(len(tt.delta), 20)])
			if err != nil || b != uint64(len(base)) || r != uint64(len(tt.want)) {
				t.Errorf("Sizes = %d, %d, %v", b, r, err)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	base := []byte("0123456789")
	tests := []struct {
		name  string
		delta []byte
	}{
		{"empty", nil},
		{"too short", []byte{10, 0, 0}},
		{"endless header", bytes.Repeat([]byte{0x80}, 30)},
		{"header over 64 bits", cat(bytes.Repeat([]byte{0xff}, 9), []byte{2, 1, 1, 1})},
		{"result header missing", []byte{0x8a, 0x80, 0x80, 0x80}},
		{"other base", []byte{9, 1, 1, 'x'}},
		{"reserved", []byte{10, 1, 0, 'x'}},
		{"insert cut short", []byte{10, 3, 3, 'x'}},
		{"copy offset cut short", []byte{10, 1, 0x83, 1}},
		{"copy length cut short", []byte{10, 1, 0xb0, 1}},
		{"copy out of range", []byte{10, 2, 0x91, 9, 2}},
		{"copy far out of range", []byte{10, 2, 0x9f, 0xff, 0xff, 0xff, 0xff, 2}},
		{"copy over result", []byte{10, 2, 0x90, 3}},
		{"insert over result", []byte{10, 1, 2, 'x', 'y'}},
		{"result too short", []byte{10, 3, 1, 'x'}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Apply(nil, base, tt.delta, 1<<20)
			var bad *Error
			if !errors.As(err, &bad) {
				t.Errorf("err = %v, want *Error", err)
			}
			if _, err := stream(base, tt.delta); !errors.As(err, &bad) {
				t.Errorf("streamed: err = %v, want *Error", err)
			}
		})
	}
}

func TestApplyLimit(t *testing.T) {
	huge := cat(num(1), num(1<<62), []byte{0x90, 1})
	for _, limit := range []int64{-1, 0, 1 << 20} {
		_, err := Apply(nil, []byte("x"), huge, limit)
		var size *SizeError
		if !errors.As(err, &size) || size.Size != 1<<62 || size.Limit != limit {
			t.Errorf("limit %d: err = %v, want *SizeError", limit, err)
		}
	}
}

// FuzzApply checks that no delta makes Apply misbehave, and that an accepted
// one gives a result of the stated size whatever buffer it starts from.
func FuzzApply(f *testing.F) {
	f.Add([]byte("0123456789"), []byte{10, 3, 0x91, 9, 1, 2, 'x', 'y'})
	f.Add([]byte("0123456789"), []byte{10, 2, 0x9f, 0xff, 0xff, 0xff, 0xff, 2})
	f.Add([]byte{}, []byte{0, 2, 2, 'x', 'y'})
	f.Fuzz(func(t *testing.T, base, d []byte) {
		const limit = 1 << 16
		got, err := Apply(nil, base, d, limit)
		again, err2 := Apply(make([]byte, 100), base, d, limit)
		if (err == nil) != (err2 == nil) || !bytes.Equal(got, again) {
			t.Fatalf("buffer changes the outcome: %v, %v", err, err2)
		}
		if _, result, err := Sizes(d); err != nil || result <= limit {
			streamed, err3 := stream(base, d)
			if (err2 == nil) != (err3 == nil) {
				t.Fatalf("streaming changes the outcome: %v, %v", err2, err3)
			}
			if err2 == nil && !bytes.Equal(got, streamed) {
				t.Fatal("streaming changes the result")
			}
		}
		if err != nil {
			return
		}
		b, r, err := Sizes(d)
		if err != nil || b != uint64(len(base)) || r != uint64(len(got)) || len(got) > limit {
			t.Fatalf("Sizes = %d, %d, %v for base %d, result %d", b, r, err, len(base), len(got))
		}
	})
}

package pack

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// deflate compresses b with the standard library at the given level.
func deflate(t testing.TB, b []byte, level int) []byte {
	t.Helper()
	var w bytes.Buffer
	z, err := zlib.NewWriterLevel(&w, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

// samples are contents that make each kind of block and code.
func samples() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	skewed := make([]byte, 200_000)
	for i := range skewed {
		skewed[i] = byte(rng.ExpFloat64() * 20)
	}
	return map[string][]byte{
		"empty":  nil,
		"byte":   {'x'},
		"text":   []byte(strings.Repeat("tree parent author committer\n", 50)),
		"zeros":  make([]byte, 300_000),
		"noise":  noise,
		"skewed": skewed,
		"mixed":  bytes.Join([][]byte{noise[:1000], make([]byte, 1000), skewed[:50_000], noise[:1000]}, nil),
	}
}

func TestInflate(t *testing.T) {
	for name, want := range samples() {
		for level := zlib.HuffmanOnly; level <= 9; level++ {
			z := deflate(t, want, level)
			got := make([]byte, len(want))
			n, err := inflate(got, append(bytes.Clone(z), "what follows"...))
			if err != nil || n != len(z) || !bytes.Equal(got, want) {
				t.Errorf("%s, level %d: %d of %d bytes used, err %v", name, level, n, len(z), err)
			}
			for _, cut := range []int{0, 1, 2, 3, len(z) / 2, len(z) - 5, len(z) - 4, len(z) - 1} {
				if _, err := inflate(got, z[:max(0, min(cut, len(z)-1))]); !errors.Is(err, errShort) {
					t.Errorf("%s, level %d, cut at %d: err %v, want %v", name, level, cut, err, errShort)
				}
			}
			if _, err := inflate(make([]byte, len(want)+1), z); !errors.Is(err, errSize) {
				t.Errorf("%s, level %d: one byte too few: err %v, want %v", name, level, err, errSize)
			}
			if len(want) > 0 {
				if _, err := inflate(got[:len(want)-1], z); !errors.Is(err, errSize) {
					t.Errorf("%s, level %d: one byte too many: err %v, want %v", name, level, err, errSize)
				}
			}
			z[len(z)-1] ^= 1
			if _, err := inflate(got, z); !errors.Is(err, errAdler) {
				t.Errorf("%s, level %d: err %v, want %v", name, level, err, errAdler)
			}
		}
	}
}

// FuzzInflate compares the decoder with the standard library's, which must
// agree about what is a stream, what it holds and where it ends.
func FuzzInflate(f *testing.F) {
	for _, b := range samples() {
		if len(b) > 5000 {
			b = b[:5000]
		}
		for _, level := range []int{zlib.HuffmanOnly, 0, 1, 6} {
			f.Add(deflate(f, b, level))
		}
	}
	f.Fuzz(func(t *testing.T, z []byte) {
		src := bytes.NewReader(z)
		var want []byte
		zr, wantErr := zlib.NewReader(src)
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(zr, 1<<20))
			if len(want) == 1<<20 {
				return
			}
		}
		got := make([]byte, len(want))
		n, err := inflate(got, z)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("err %v, want %v", err, wantErr)
		}
		if err == nil && (n != len(z)-src.Len() || !bytes.Equal(got, want)) {
			t.Fatalf("used %d bytes, want %d", n, len(z)-src.Len())
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	text := samples()["skewed"]
	for _, n := range []int{200, 4000, 100_000} {
		z := deflate(b, text[:n], 6)
		dst := make([]byte, n)
		b.Run("", func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := inflate(dst, z); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

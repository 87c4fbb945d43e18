package chunk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

var update = flag.Bool("update", false, "write the golden cut points anew")

// stream is n bytes that a seed decides, the same on every machine.
func stream(seed byte, n int) []byte {
	r := rand.NewChaCha8([32]byte{seed})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func split(t *testing.T, r io.Reader) (chunks [][]byte) {
	t.Helper()
	if err := Split(r, func(b []byte) error {
		chunks = append(chunks, bytes.Clone(b))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return chunks
}

// TestGoldenCutPoints holds the cut points, which are part of the stored format:
// others would store every large file again.
func TestGoldenCutPoints(t *testing.T) {
	text := []byte(strings.Repeat("the same line again and again\n", 200_000))
	var got strings.Builder
	for _, in := range []struct {
		name string
		data []byte
	}{{"random 24 MiB", stream(1, 24<<20)}, {"one byte less than normal", stream(2, NormalSize-1)}, {"normal", stream(3, NormalSize)}, {"zeros 10 MiB", make([]byte, 10<<20)}, {"text", text}} {
		fmt.Fprintf(&got, "%s:", in.name)
		for _, c := range split(t, bytes.NewReader(in.data)) {
			fmt.Fprintf(&got, " %d", len(c))
		}
		got.WriteByte('\n')
	}
	const file = "testdata/cuts.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("cut points moved:\n%swant\n%s", got.String(), want)
	}
}

func TestChunksJoinToTheFileWithinTheirSizes(t *testing.T) {
	for _, n := range []int{0, 1, MinSize, NormalSize - 1, NormalSize, NormalSize + 1, MaxSize, 3*MaxSize + 17} {
		data := stream(4, n)
		chunks := split(t, iotest.HalfReader(bytes.NewReader(data)))
		if !bytes.Equal(bytes.Join(chunks, nil), data) {
			t.Errorf("%d bytes: the chunks do not join to the file", n)
		}
		for i, c := range chunks {
			if len(c) > MaxSize || len(c) < MinSize && i < len(chunks)-1 {
				t.Errorf("%d bytes: chunk %d of %d has %d", n, i, len(chunks), len(c))
			}
		}
		if n > 0 && n < NormalSize && len(chunks) != 1 {
			t.Errorf("%d bytes: %d chunks, want one", n, len(chunks))
		}
	}
}

func TestAnInsertionChangesTheChunksAroundIt(t *testing.T) {
	data := stream(5, 64<<20)
	had := map[[32]byte]bool{}
	for _, c := range split(t, bytes.NewReader(data)) {
		had[sha256.Sum256(c)] = true
	}
	edited := bytes.Clone(data)
	for i := range 4 {
		at := (i*16 + 5) << 20
		edited = append(edited[:at:at], append([]byte("inserted"), edited[at:]...)...)
	}
	fresh := 0
	for _, c := range split(t, bytes.NewReader(edited)) {
		if !had[sha256.Sum256(c)] {
			fresh++
		}
	}
	if fresh < 1 || fresh > 8 {
		t.Errorf("4 insertions made %d new chunks", fresh)
	}
}

func TestErrorsEndIt(t *testing.T) {
	boom := errors.New("boom")
	for _, size := range []int{0, 1000, NormalSize, 9 << 20} { // a stream that breaks off is no shorter file
		cut := io.MultiReader(bytes.NewReader(stream(5, size)), iotest.ErrReader(io.ErrUnexpectedEOF))
		total := 0
		err := Split(cut, func(b []byte) error {
			total += len(b)
			return nil
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) || total == size && size > 0 {
			t.Errorf("a stream that breaks off after %d bytes: %d bytes and %v", size, total, err)
		}
	}
	if err := Split(iotest.ErrReader(boom), func([]byte) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("error of a small file: %v", err)
	}
	late := io.MultiReader(bytes.NewReader(stream(6, 9<<20)), iotest.ErrReader(boom))
	if err := Split(late, func([]byte) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("error of a large file: %v", err)
	}
	if err := Split(bytes.NewReader(stream(6, 9<<20)), func([]byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error of fn: %v", err)
	}
}

func BenchmarkSplit(b *testing.B) {
	data := stream(7, 64<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := Split(bytes.NewReader(data), func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

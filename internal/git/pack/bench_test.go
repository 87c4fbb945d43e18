package pack

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// discardVisit reads what it is given no further than its length.
func discardVisit(Object) error { return nil }

// BenchmarkReceive measures Receive beside git index-pack on the same packs,
// with files on both sides.
func BenchmarkReceive(b *testing.B) {
	dir := b.TempDir()
	packs := []struct {
		name string
		make func(name string)
	}{
		{"history", func(name string) {
			r := history(b, 12_000, 300, 30_000)
			write(b, name, r.pack("", "--all", "--delta-base-offset"))
		}},
		{"small objects", func(name string) { writeSmall(b, name, 300_000) }},
		{"large blob", func(name string) { writeBlob(b, name, 100<<20) }},
	}
	for _, p := range packs {
		b.Run(p.name, func(b *testing.B) {
			name := filepath.Join(dir, p.name+".pack")
			p.make(name)
			info, err := os.Stat(name)
			if err != nil {
				b.Fatal(err)
			}
			r := &repo{b, dir}
			start := time.Now()
			r.git(nil, "index-pack", "-o", filepath.Join(dir, "git.idx"), name)
			theirs := time.Since(start)
			b.SetBytes(info.Size())
			for b.Loop() {
				receiveFile(b, name, filepath.Join(dir, "ours"))
			}
			ours := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(theirs.Seconds(), "git-s/op")
			b.ReportMetric(ours.Seconds(), "s/op")
			b.ReportMetric(ours.Seconds()/theirs.Seconds(), "times-git")
		})
	}
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// receiveFile receives a pack file and writes its index.
func receiveFile(t testing.TB, name, to string) *Result {
	t.Helper()
	src, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to + ".pack")
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	res, err := Receive(context.Background(), src, dst, Options{Visit: discardVisit, Scratch: scratch(t)})
	if err != nil {
		t.Fatal(err)
	}
	idx, err := os.Create(to + ".idx")
	if err != nil {
		t.Fatal(err)
	}
	defer idx.Close()
	if err := res.WriteIndex(idx); err != nil {
		t.Fatal(err)
	}
	return res
}

// writePack writes a pack of count objects, which add adds.
func writePack(t testing.TB, name string, count uint32, add func(w *Writer) error) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := NewWriter(f, count)
	if err := add(w); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeSmall writes a pack of count distinct blobs of about 100 bytes.
func writeSmall(t testing.TB, name string, count uint32) {
	rng := rand.New(rand.NewPCG(5, 6))
	writePack(t, name, count, func(w *Writer) error {
		text := []byte("the quick brown fox jumps over the lazy dog, then again and again until nobody looks at it any more")
		for n := range count {
			for k := range 8 {
				text[20+k] = byte('a' + rng.IntN(26))
				text[60+k] = byte('a' + n&15)
				n >>= 4
			}
			if _, err := w.Add(object.Blob, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeBlob writes a pack of one blob of size bytes, half noise, half text.
func writeBlob(t testing.TB, name string, size int) {
	rng := rand.New(rand.NewPCG(8, 9))
	blob := make([]byte, size)
	for i := range blob {
		if i&(1<<20) == 0 {
			blob[i] = byte(rng.Uint32())
		} else {
			blob[i] = "etaoin shrdlu\n\t"[rng.Uint32()%15]
		}
	}
	writePack(t, name, 1, func(w *Writer) error {
		_, err := w.Add(object.Blob, blob)
		return err
	})
}

package blobtest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
)

// Benchmark measures a store: small and large writes, random and whole reads.
func Benchmark(b *testing.B, newStore New) {
	for _, size := range []int{4 << 10, 128 << 10, 16 << 20} {
		b.Run(fmt.Sprintf("Put/%dKiB", size>>10), func(b *testing.B) {
			s, data, i := newStore(b), Data("bench", size), 0
			b.SetBytes(int64(size))
			for b.Loop() {
				put(b, s, blob.Key(fmt.Sprintf("bench/%d", i)), data)
				i++
			}
		})
	}
	const size = 32 << 20
	open := func(b *testing.B) blob.Object {
		s := newStore(b)
		put(b, s, "bench/read", Data("bench", size))
		o, err := s.Open(b.Context(), "bench/read")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { o.Close() })
		return o
	}
	b.Run("ReadAt/4KiB", func(b *testing.B) {
		o, p := open(b), make([]byte, 4<<10)
		rng := rand.New(rand.NewPCG(1, 1))
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			if _, err := o.ReadAt(p, rng.Int64N(size-int64(len(p)))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("WriteTo/32MiB", func(b *testing.B) {
		o := open(b)
		b.SetBytes(size)
		for b.Loop() {
			if _, err := blob.WriteTo(io.Discard, o); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Open", func(b *testing.B) {
		s := newStore(b)
		if err := s.Put(b.Context(), "bench/open", bytes.NewReader(nil), 0); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			o, err := s.Open(b.Context(), "bench/open")
			if err != nil {
				b.Fatal(err)
			}
			o.Close()
		}
	})
}

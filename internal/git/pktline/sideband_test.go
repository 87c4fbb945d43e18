package pktline

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// demux splits a multiplexed response by band and returns the number of
// packets. It fails unless every packet is well formed and the response ends
// in a flush packet.
func demux(t *testing.T, in []byte, largest int) (bands [4][]byte, packets int) {
	t.Helper()
	r := NewReader(bytes.NewReader(in))
	for {
		p, err := r.Next()
		if err != nil {
			t.Fatalf("after %d packets: %v", packets, err)
		}
		if p.Kind == Flush {
			return bands, packets
		}
		if p.Kind != Data || len(p.Data) == 0 || p.Data[0] < 1 || p.Data[0] > 3 || len(p.Data)-1 > largest {
			t.Fatalf("packet %d: kind %s, %d bytes, starts %.8q", packets, p.Kind, len(p.Data), p.Data)
		}
		bands[p.Data[0]] = append(bands[p.Data[0]], p.Data[1:]...)
		packets++
	}
}

func TestSidebandWrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{Sideband64k, SidebandSmall} {
		data := make([]byte, 3*size+7)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		for _, step := range []int{1, 999, size - 1, size, size + 1, len(data)} {
			var out bytes.Buffer
			s := NewSideband(&out, size, nil)
			for rest := data; len(rest) > 0; {
				n, err := s.Write(rest[:min(step, len(rest))])
				write(t, err)
				rest = rest[n:]
			}
			write(t, s.Close())
			bands, packets := demux(t, out.Bytes(), size)
			if !bytes.Equal(bands[1], data) || packets != 4 {
				t.Errorf("size %d, step %d: %d bytes in %d packets, want %d in 4", size, step, len(bands[1]), packets, len(data))
			}
		}
	}
}

func TestSidebandReadFrom(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 20_000)
	for name, in := range map[string]io.Reader{
		"whole":     bytes.NewReader(data),
		"halves":    iotest.HalfReader(bytes.NewReader(data)),
		"one byte":  iotest.OneByteReader(bytes.NewReader(data)),
		"early EOF": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		var out bytes.Buffer
		s := NewSideband(&out, Sideband64k, nil)
		n, err := s.ReadFrom(in)
		write(t, err, s.Close())
		bands, packets := demux(t, out.Bytes(), Sideband64k)
		if n != int64(len(data)) || !bytes.Equal(bands[1], data) || packets != 4 {
			t.Errorf("%s: read %d, sent %d bytes in %d packets", name, n, len(bands[1]), packets)
		}
	}
}

func TestSidebandReadFromErrors(t *testing.T) {
	broken := errors.New("broken")
	s := NewSideband(io.Discard, Sideband64k, nil)
	n, err := s.ReadFrom(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)))
	if n != 3 || !errors.Is(err, broken) {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := s.ReadFrom(emptyReads{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that never progresses: %v", err)
	}
}

// emptyReads returns nothing and no error for ever.
type emptyReads struct{}

func (emptyReads) Read([]byte) (int, error) { return 0, nil }

func TestSidebandBands(t *testing.T) {
	var out bytes.Buffer
	pushes := 0
	s := NewSideband(&out, SidebandSmall, func() error { pushes++; return nil })
	_, err := s.Write([]byte("pack"))
	write(t, err, s.Progress("hi\n"), s.Keepalive(), s.Flush(), s.Flush(), s.Fatal(strings.Repeat("e", SidebandSmall+1)), s.Close())
	want := "0008\x02hi\n" + "0005\x01" + "0009\x01pack" + "03e8\x03" + strings.Repeat("e", SidebandSmall) + "0000"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
	if pushes != 6 {
		t.Errorf("%d pushes, want 6", pushes)
	}
	out.Reset()
	long := strings.Repeat("p", 2*SidebandSmall+1)
	write(t, s.Progress(long), s.Progress(""), s.Close())
	bands, packets := demux(t, out.Bytes(), SidebandSmall)
	if string(bands[2]) != long || packets != 3 {
		t.Errorf("long progress: %d bytes in %d packets", len(bands[2]), packets)
	}
}

func TestSidebandOutputErrorStays(t *testing.T) {
	broken := errors.New("broken")
	s := NewSideband(io.Discard, Sideband64k, func() error { return broken })
	for _, err := range []error{s.Keepalive(), s.Progress("x"), s.Flush(), s.Close()} {
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the first error", err)
		}
	}
	if n, err := s.Write(make([]byte, 2*Sideband64k)); !errors.Is(err, broken) || n > Sideband64k {
		t.Errorf("Write = %d, %v", n, err)
	}
}

// TestSidebandKeepaliveWhileReading checks that a keepalive goes out while
// ReadFrom waits for input, and that concurrent bands never tear a packet.
func TestSidebandKeepaliveWhileReading(t *testing.T) {
	var out bytes.Buffer
	s := NewSideband(&out, Sideband64k, nil)
	in, feed := io.Pipe()
	var readers sync.WaitGroup
	readers.Go(func() {
		if _, err := s.ReadFrom(in); err != nil {
			t.Error(err)
		}
	})
	const chunk, rounds = 10_000, 50
	for range rounds {
		// The pipe's writes return when ReadFrom has taken them, so these
		// calls run while it waits for more.
		if _, err := feed.Write(make([]byte, chunk)); err != nil {
			t.Fatal(err)
		}
		write(t, s.Keepalive(), s.Progress("p"))
	}
	feed.Close()
	readers.Wait()
	write(t, s.Close())
	bands, _ := demux(t, out.Bytes(), Sideband64k)
	if len(bands[1]) != chunk*rounds || len(bands[2]) != rounds {
		t.Errorf("%d bytes of data and %d of progress", len(bands[1]), len(bands[2]))
	}
}

func BenchmarkSidebandReadFrom(b *testing.B) {
	data := make([]byte, 16<<20)
	s := NewSideband(io.Discard, Sideband64k, nil)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.ReadFrom(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSidebandWrite(b *testing.B) {
	data := make([]byte, 16<<20)
	s := NewSideband(io.Discard, Sideband64k, nil)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.Write(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	w := NewWriter(io.Discard)
	line := []byte("0123456789012345678901234567890123456789 refs/heads/main\n")
	b.ReportAllocs()
	for b.Loop() {
		if err := w.WriteData(line); err != nil {
			b.Fatal(err)
		}
	}
}

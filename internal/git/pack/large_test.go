package pack

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
)

// countedScratch counts the files that are open.
type countedScratch struct {
	Scratch
	open *int
}

func (c countedScratch) Close() error {
	*c.open--
	return c.Scratch.Close()
}

// TestStreamLargeDeltas reads objects through bases, deltas and results that are
// too large for memory, and leaves no scratch file behind.
func TestStreamLargeDeltas(t *testing.T) {
	noise := make([]byte, 3*maxRead)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(noise)
	literal := make([]byte, 0, 2*maxRead) // a delta without copies
	for part := noise[:3*maxRead/2]; len(part) > 0; {
		n := min(len(part), 127)
		literal = append(append(literal, byte(n)), part[:n]...)
		part = part[n:]
	}
	p := newPacker(t, 5)
	whole := p.add(object.Blob, noise)
	longer := p.ofs(whole, edit(len(noise), len(noise), " and more"))
	small := p.ofs(longer, edit(len(noise)+9, 100, ""))
	p.ofs(small, edit(100, 50, "!"))
	large := append(append(varint(100), varint(3*maxRead/2)...), literal...)
	if _, err := p.w.AddOfsDelta(small, int64(len(large)), bytes.NewReader(deflate(t, large, 1))); err != nil {
		t.Fatal(err)
	}
	data := p.bytes()
	res, dst, objs, err := receive(t, bytes.NewReader(data), Options{Scratch: scratch(t)})
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := res.WriteIndex(&table); err != nil {
		t.Fatal(err)
	}
	idx, err := ParseIndex(table.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	stored, err := OpenBytes(dst.Bytes(), idx)
	if err != nil {
		t.Fatal(err)
	}
	open, made := 0, 0
	limits := Limits{Scratch: func() (Scratch, error) {
		open, made = open+1, made+1
		f, err := scratch(t)()
		return countedScratch{f, &open}, err
	}}
	for pos := range idx.Count() {
		typ, size, r, err := stored.Stream(pos, limits)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || r.Close() != nil {
			t.Fatal(err)
		}
		if id := object.Hash(typ, got); id != idx.ID(pos) || int64(len(got)) != size {
			t.Errorf("object %s: got %s of %d bytes, said to be %d", idx.ID(pos), id, len(got), size)
		}
	}
	if len(objs) != 5 || open != 0 || made == 0 {
		t.Errorf("%d objects; %d scratch files made, %d still open", len(objs), made, open)
	}
	if _, _, err := stored.Get(0, Limits{MaxObject: 10}); !asType(err, new(*LimitError)) {
		t.Errorf("Get over the limit: %v, want *LimitError", err)
	}
}

// TestReceiveLargeBase completes a pack with a base that is too large for memory.
func TestReceiveLargeBase(t *testing.T) {
	noise := make([]byte, maxHeld+10)
	rng := rand.NewChaCha8([32]byte{2})
	rng.Read(noise)
	id := object.Hash(object.Blob, noise)
	p := newPacker(t, 1)
	p.ref(id, edit(len(noise), 20, "and more"))
	open := 0
	res, _, objs, err := receive(t, bytes.NewReader(p.bytes()), Options{
		Base: memoryBase(func(object.ID) (object.Type, []byte, error) { return object.Blob, noise, nil }),
		Scratch: func() (Scratch, error) {
			open++
			f, err := scratch(t)()
			return countedScratch{f, &open}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(noise[:20]), "and more"...)
	if got := objs[object.Hash(object.Blob, want)]; res.Bases != 1 || !bytes.Equal(got.Data, want) || open != 0 {
		t.Errorf("%d bases, object of %d bytes, %d scratch files open", res.Bases, len(got.Data), open)
	}
}

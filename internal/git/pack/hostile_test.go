package pack

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
)

// packer writes packs that may be wrong.
type packer struct {
	t   testing.TB
	buf bytes.Buffer
	w   *Writer
}

func newPacker(t testing.TB, count uint32) *packer {
	p := &packer{t: t}
	p.w = NewWriter(&p.buf, count)
	return p
}

// add adds an object and returns its offset.
func (p *packer) add(typ object.Type, data []byte) int64 {
	at, err := p.w.Add(typ, data)
	if err != nil {
		p.t.Fatal(err)
	}
	return at.Offset
}

// store returns a zlib stream of d, which is short, without compressing it.
func store(d []byte) io.Reader {
	n := uint16(len(d))
	z := []byte{0x78, 0x01, 1, byte(n), byte(n >> 8), ^byte(n), ^byte(n >> 8)}
	return bytes.NewReader(binary.BigEndian.AppendUint32(append(z, d...), adler32.Checksum(d)))
}

func (p *packer) ofs(base int64, d []byte) int64 {
	at, err := p.w.AddOfsDelta(base, int64(len(d)), store(d))
	if err != nil {
		p.t.Fatal(err)
	}
	return at.Offset
}

func (p *packer) ref(base object.ID, d []byte) int64 {
	at, err := p.w.AddRefDelta(base, int64(len(d)), store(d))
	if err != nil {
		p.t.Fatal(err)
	}
	return at.Offset
}

// raw adds an entry whose size may be a lie and whose data may be no stream.
func (p *packer) raw(typ object.Type, size int64, z []byte) int64 {
	at, err := p.w.AddCompressed(typ, size, bytes.NewReader(z))
	if err != nil {
		p.t.Fatal(err)
	}
	return at.Offset
}

// bytes ends the pack with a right checksum, whatever was added.
func (p *packer) bytes() []byte {
	if p.w.err == nil {
		if err := p.w.flush(); err != nil {
			p.t.Fatal(err)
		}
	}
	return seal(p.buf.Bytes())
}

// seal appends the checksum of b.
func seal(b []byte) []byte {
	sum := sha1.Sum(b)
	return append(bytes.Clone(b), sum[:]...)
}

func varint(v int) []byte {
	var b []byte
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// edit is a delta that copies the first keep bytes of a base of size bytes and
// appends up to 127 more.
func edit(size, keep int, more string) []byte {
	d := append(varint(size), varint(keep+len(more))...)
	if keep > 0 {
		d = append(d, 0x80|0x70, byte(keep), byte(keep>>8), byte(keep>>16))
	}
	if more != "" {
		d = append(append(d, byte(len(more))), more...)
	}
	return d
}

// samplePack has each kind of entry.
func samplePack(t testing.TB) []byte {
	p := newPacker(t, 5)
	text := strings.Repeat("some text\n", 20)
	base := p.add(object.Blob, []byte(text))
	p.add(object.Tree, nil)
	next := p.ofs(base, edit(len(text), 100, "more"))
	p.ofs(next, edit(104, 50, ""))
	p.ref(object.Hash(object.Blob, []byte(text)), edit(len(text), 20, "and more"))
	return p.bytes()
}

func TestReceiveTruncated(t *testing.T) {
	whole := samplePack(t)
	if _, _, _, err := receive(t, bytes.NewReader(whole), Options{}); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		_, _, _, err := receive(t, bytes.NewReader(whole[:n]), Options{})
		var format *FormatError
		if !errors.As(err, &format) {
			t.Errorf("cut at %d: err %v, want *FormatError", n, err)
		}
	}
}

func TestReceiveDamaged(t *testing.T) {
	whole := samplePack(t)
	for i := range whole {
		for _, bit := range []byte{1, 0x10, 0x80} {
			bad := bytes.Clone(whole)
			bad[i] ^= bit
			if _, _, _, err := receive(t, bytes.NewReader(bad), Options{}); err == nil {
				t.Errorf("bit %#x of byte %d changed, and nothing noticed", bit, i)
			}
		}
	}
}

func TestReceiveHostile(t *testing.T) {
	text := []byte(strings.Repeat("some text\n", 20))
	textID := object.Hash(object.Blob, text)
	claim := func(count uint32, rest ...byte) []byte {
		b := appendHeader(nil, count)
		return seal(append(b, rest...))
	}
	one := func(add func(p *packer)) []byte {
		p := newPacker(t, 1)
		add(p)
		return p.bytes()
	}
	withBase := func(add func(p *packer, base int64)) []byte {
		p := newPacker(t, 2)
		add(p, p.add(object.Blob, text))
		return p.bytes()
	}
	version := func(v uint32) []byte {
		b := appendHeader(nil, 0)
		binary.BigEndian.PutUint32(b[4:], v)
		return seal(b)
	}
	tests := []struct {
		name string
		pack []byte
		opts Options
		want any // pointer to the type of error, nil for none
	}{
		{"empty input", nil, Options{}, new(*FormatError)},
		{"other magic", seal([]byte("PUCK\x00\x00\x00\x02\x00\x00\x00\x00")), Options{}, new(*FormatError)},
		{"version 1", version(1), Options{}, new(*FormatError)},
		{"version 3", version(3), Options{}, nil},
		{"version 4", version(4), Options{}, new(*FormatError)},
		{"no objects", claim(0), Options{}, nil},
		{"claims 4 G objects", claim(1<<32 - 1), Options{}, new(*FormatError)},
		{"claims more than allowed", claim(1<<32 - 1), Options{MaxObjects: 1000}, new(*LimitError)},
		{"more entries than claimed", seal(append(appendHeader(nil, 0), samplePack(t)[headerLen:]...)), Options{}, new(*FormatError)},
		{"type 0", claim(1, 0x05), Options{}, new(*FormatError)},
		{"type 5", claim(1, 0x55), Options{}, new(*FormatError)},
		{"size over 64 bits", claim(1, bytes.Repeat([]byte{0xbf}, 12)...), Options{}, new(*FormatError)},
		{"size of 8 EiB", claim(1, 0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f), Options{}, new(*LimitError)},
		{"wrong checksum", append(samplePack(t)[:len(samplePack(t))-1], 0), Options{}, new(*FormatError)},
		{"trailing data refused", append(samplePack(t), 'x'), Options{RefuseTrailing: true}, new(*FormatError)},
		{"trailing data allowed", append(samplePack(t), 'x'), Options{}, nil},
		{"too large", samplePack(t), Options{MaxPackSize: 50}, new(*LimitError)},
		{"object too large", one(func(p *packer) { p.add(object.Blob, text) }), Options{MaxObjectSize: 199}, new(*LimitError)},
		{"delta result too large", withBase(func(p *packer, base int64) { p.ofs(base, edit(200, 200, "x")) }), Options{MaxObjectSize: 200}, new(*LimitError)},
		{"states too few bytes", one(func(p *packer) { p.raw(object.Blob, 199, deflate(t, text, 6)) }), Options{}, new(*FormatError)},
		{"states too many bytes", one(func(p *packer) { p.raw(object.Blob, 201, deflate(t, text, 6)) }), Options{}, new(*FormatError)},
		{"states far too many bytes", one(func(p *packer) { p.raw(object.Blob, 1<<40, deflate(t, text, 6)) }), Options{}, new(*FormatError)},
		{"states too few bytes of many", one(func(p *packer) { p.raw(object.Blob, 1<<19, deflate(t, make([]byte, 1<<20), 6)) }), Options{}, new(*FormatError)},
		{"no zlib stream", one(func(p *packer) { p.raw(object.Blob, 5, []byte("hello world")) }), Options{}, new(*FormatError)},
		{"no large zlib stream", one(func(p *packer) { p.raw(object.Blob, 1<<30, []byte("hello world")) }), Options{}, new(*FormatError)},
		{"bomb in a tree", one(func(p *packer) { p.add(object.Tree, make([]byte, MaxStructured+1)) }), Options{}, new(*LimitError)},
		{"large tree", one(func(p *packer) { p.add(object.Tree, make([]byte, MaxVisitBlob+1)) }), Options{}, nil},
		{"bomb in a blob", one(func(p *packer) { p.add(object.Blob, make([]byte, 64<<20)) }), Options{MaxWork: 32 << 20}, new(*LimitError)},
		{"offset delta without base", one(func(p *packer) { p.raw(OFSDelta, 4, append([]byte{0}, deflate(t, []byte{0, 1, 1, 'x'}, 6)...)) }), Options{}, new(*FormatError)},
		{"offset delta against the header", one(func(p *packer) { p.raw(OFSDelta, 4, append([]byte{headerLen}, deflate(t, []byte{0, 1, 1, 'x'}, 6)...)) }), Options{}, new(*FormatError)},
		{"offset delta from before the pack", one(func(p *packer) { p.raw(OFSDelta, 4, append([]byte{0x7f}, deflate(t, []byte{0, 1, 1, 'x'}, 6)...)) }), Options{}, new(*FormatError)},
		{"offset delta from far before the pack", one(func(p *packer) { p.raw(OFSDelta, 4, append(bytes.Repeat([]byte{0xff}, 20), 0)) }), Options{}, new(*FormatError)},
		{"offset delta against no entry", withBase(func(p *packer, base int64) { p.ofs(base+1, edit(200, 10, "")) }), Options{}, new(*FormatError)},
		{"delta of another base", withBase(func(p *packer, base int64) { p.ofs(base, edit(199, 10, "")) }), Options{}, new(*FormatError)},
		{"delta out of range", withBase(func(p *packer, base int64) { p.ofs(base, edit(200, 201, "")) }), Options{}, new(*FormatError)},
		{"delta with reserved instruction", withBase(func(p *packer, base int64) { p.ofs(base, append(edit(200, 10, ""), 0)) }), Options{}, new(*FormatError)},
		{"delta without header", withBase(func(p *packer, base int64) { p.ofs(base, []byte{0x80}) }), Options{}, new(*FormatError)},
		{"delta claims 8 EiB", withBase(func(p *packer, base int64) { p.ofs(base, append(varint(200), varint(1<<62)...)) }), Options{MaxObjectSize: 1 << 40}, new(*LimitError)},
		{"delta claims a large result", withBase(func(p *packer, base int64) { p.ofs(base, append(varint(200), varint(1<<40)...)) }), Options{}, new(*LimitError)},
		{"delta against itself", one(func(p *packer) { p.ref(textID, edit(200, 200, "")) }), Options{}, new(*MissingBaseError)},
		{"delta makes its own base", withBase(func(p *packer, _ int64) { p.ref(textID, edit(200, 200, "")) }), Options{}, new(*FormatError)},
		{"same object twice", withBase(func(p *packer, _ int64) { p.add(object.Blob, text) }), Options{}, new(*FormatError)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.opts.Visit == nil {
				tt.opts.Visit = discardVisit
			}
			_, _, _, err := receive(t, bytes.NewReader(tt.pack), tt.opts)
			if tt.want == nil {
				if err != nil {
					t.Errorf("err %v", err)
				}
				return
			}
			if !asType(err, tt.want) {
				t.Errorf("err %v, want %T", err, tt.want)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error has more than one line: %q", err)
			}
		})
	}
}

// asType is errors.As for one of this package's types.
func asType(err error, target any) bool {
	switch e := target.(type) {
	case **FormatError:
		return errors.As(err, e)
	case **LimitError:
		return errors.As(err, e)
	case **MissingBaseError:
		return errors.As(err, e)
	case **IOError:
		return errors.As(err, e)
	}
	return false
}

// TestReceiveCycle receives two deltas against each other, which are harmless
// only when the repository has neither.
func TestReceiveCycle(t *testing.T) {
	a, b := []byte("content of a, which is long enough"), []byte("content of a, which is long enough, and b")
	p := newPacker(t, 2)
	p.ref(object.Hash(object.Blob, b), edit(len(b), len(a), ""))
	p.ref(object.Hash(object.Blob, a), edit(len(a), len(a), ", and b"))
	data := p.bytes()
	_, _, _, err := receive(t, bytes.NewReader(data), Options{Visit: discardVisit})
	if !asType(err, new(*MissingBaseError)) {
		t.Errorf("err %v, want *MissingBaseError", err)
	}
	_, _, _, err = receive(t, bytes.NewReader(data), Options{Visit: discardVisit, Base: memoryBase(func(id object.ID) (object.Type, []byte, error) {
		if id == object.Hash(object.Blob, b) {
			return object.Blob, b, nil
		}
		return 0, nil, &MissingBaseError{id}
	})})
	if !asType(err, new(*FormatError)) {
		t.Errorf("with a base: err %v, want *FormatError", err)
	}
}

// TestReceiveMultiplied receives objects that are in the pack twice and have
// deltas that are in it twice, and so on: naively 2^30 deltas.
func TestReceiveMultiplied(t *testing.T) {
	const levels = 30
	p := newPacker(t, 2+2*levels)
	data := []byte("level")
	p.add(object.Blob, data)
	p.add(object.Blob, data)
	for range levels {
		id := object.Hash(object.Blob, data)
		for range 2 {
			p.ref(id, edit(len(data), len(data), "x"))
		}
		data = append(data, 'x')
	}
	visits := 0
	_, _, _, err := receive(t, bytes.NewReader(p.bytes()), Options{Visit: func(Object) error { visits++; return nil }})
	if !asType(err, new(*FormatError)) || visits > 2+2*levels {
		t.Errorf("%d visits, err %v, want *FormatError", visits, err)
	}
}

// TestReceiveThinOutOfOrder receives a delta before the one that makes its base
// from an object of the repository.
func TestReceiveThinOutOfOrder(t *testing.T) {
	x, y, z := []byte("in the repository"), []byte("in the repository, y"), []byte("in the repository, y, z")
	p := newPacker(t, 2)
	p.ref(object.Hash(object.Blob, y), edit(len(y), len(y), ", z"))
	p.ref(object.Hash(object.Blob, x), edit(len(x), len(x), ", y"))
	res, _, objs, err := receive(t, bytes.NewReader(p.bytes()), Options{Base: memoryBase(func(id object.ID) (object.Type, []byte, error) {
		if id == object.Hash(object.Blob, x) {
			return object.Blob, x, nil
		}
		return 0, nil, &MissingBaseError{id}
	})})
	if err != nil {
		t.Fatal(err)
	}
	if got := objs[object.Hash(object.Blob, z)]; res.Bases != 1 || !bytes.Equal(got.Data, z) {
		t.Errorf("%d bases, got %q", res.Bases, got.Data)
	}
}

func TestReceiveDeepChain(t *testing.T) {
	const depth = 100_000
	for _, kind := range []object.Type{OFSDelta, REFDelta} {
		p := newPacker(t, depth+1)
		data := []byte("deep")
		at := p.add(object.Blob, data)
		for i := range depth {
			more := []byte{byte(i), byte(i >> 8), byte(i >> 16)}
			d := edit(len(data), 4, string(more))
			if kind == OFSDelta {
				at = p.ofs(at, d)
			} else {
				p.ref(object.Hash(object.Blob, data), d)
			}
			data = append([]byte("deep"), more...)
		}
		pack := p.bytes()
		if _, _, _, err := receive(t, bytes.NewReader(pack), Options{Visit: discardVisit}); !asType(err, new(*LimitError)) {
			t.Errorf("type %d: err %v, want *LimitError", kind, err)
		}
		res, _, objs, err := receive(t, bytes.NewReader(pack), Options{MaxDepth: depth})
		if err != nil || res.Count() != depth+1 {
			t.Fatalf("type %d: %v", kind, err)
		}
		if got := objs[object.Hash(object.Blob, data)]; !bytes.Equal(got.Data, data) {
			t.Errorf("type %d: the last object is %q, want %q", kind, got.Data, data)
		}
	}
}

// TestReceiveBranchingTree resolves a tree whose bases do not fit the memory
// allowed, so that they are dropped and made again.
func TestReceiveBranchingTree(t *testing.T) {
	const levels = 30
	rng := rand.New(rand.NewPCG(1, 1))
	base := make([]byte, 2<<20)
	for i := range base {
		base[i] = byte(rng.Uint32())
	}
	p := newPacker(t, 1+4*levels)
	data := base
	at := p.add(object.Blob, data)
	want := map[object.ID]bool{object.Hash(object.Blob, data): true}
	for i := range levels {
		// Each level has two deltas that others build on: a short branch of
		// two more, and the rest of the tree.
		var forks [2][]byte
		var ats [2]int64
		for k := range 2 {
			more := string([]byte{'l', byte('a' + i), byte('a' + k)})
			forks[k] = append(bytes.Clone(data[:len(data)-k]), more...)
			ats[k] = p.ofs(at, edit(len(data), len(data)-k, more))
			want[object.Hash(object.Blob, forks[k])] = true
		}
		short := forks[i%2]
		for range 2 {
			next := append(bytes.Clone(short), 'z')
			ats[i%2] = p.ofs(ats[i%2], edit(len(short), len(short), "z"))
			short = next
			want[object.Hash(object.Blob, next)] = true
		}
		data, at = forks[1-i%2], ats[1-i%2]
	}
	pack := p.bytes()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 4} { // alone, and giving parts away
		runtime.GOMAXPROCS(procs)
		ids := map[object.ID]bool{}
		var mu sync.Mutex
		_, _, _, err := receive(t, bytes.NewReader(pack), Options{Visit: func(o Object) error {
			mu.Lock()
			defer mu.Unlock()
			ids[o.ID] = true
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(ids, want) {
			t.Errorf("%d processors: %d objects, want %d", procs, len(ids), len(want))
		}
	}
}

func TestReceiveDeltaBomb(t *testing.T) {
	const deltas = 2000
	p := newPacker(t, 1+deltas)
	data := make([]byte, 8<<20)
	base := p.add(object.Blob, data)
	for i := range deltas {
		p.ofs(base, edit(len(data), len(data)-1, string([]byte{byte(i), byte(i >> 8)})))
	}
	_, _, _, err := receive(t, bytes.NewReader(p.bytes()), Options{MaxWork: 100 << 20, Visit: discardVisit})
	if !asType(err, new(*LimitError)) {
		t.Errorf("err %v, want *LimitError", err)
	}
}

// failing fails after n bytes.
type failing struct {
	Buffer
	n   int
	err error
}

// Write fails when it would exceed n bytes.
func (f *failing) Write(p []byte) (int, error) {
	if len(f.data)+len(p) > f.n {
		return 0, f.err
	}
	return f.Buffer.Write(p)
}

func TestReceiveFailures(t *testing.T) {
	data := samplePack(t)
	broken := errors.New("broken")
	ctx := context.Background()

	for n := range len(data) {
		src := io.MultiReader(bytes.NewReader(data[:n]), &failingReader{broken})
		_, err := Receive(ctx, src, new(Buffer), Options{})
		if !errors.Is(err, broken) || !asType(err, new(*IOError)) {
			t.Errorf("source fails after %d bytes: err %v", n, err)
		}
		_, err = Receive(ctx, bytes.NewReader(data), &failing{n: n, err: broken}, Options{})
		if !errors.Is(err, broken) || !asType(err, new(*IOError)) {
			t.Errorf("storage fails after %d bytes: err %v", n, err)
		}
	}
	for n := range 5 {
		visits := 0
		_, err := Receive(ctx, bytes.NewReader(data), new(Buffer), Options{Visit: func(Object) error {
			if visits++; visits > n {
				return broken
			}
			return nil
		}})
		if err != broken {
			t.Errorf("visit %d fails: err %v", n, err)
		}
	}
	stopped, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	if _, err := Receive(stopped, bytes.NewReader(data), new(Buffer), Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the deadline: err %v", err)
	}
}

type failingReader struct{ err error }

// Read fails.
func (f *failingReader) Read([]byte) (int, error) { return 0, f.err }

// memoryBase makes a BaseFunc of one that returns whole objects.
func memoryBase(get func(object.ID) (object.Type, []byte, error)) BaseFunc {
	return func(id object.ID) (object.Type, int64, io.ReadCloser, error) {
		t, data, err := get(id)
		return t, int64(len(data)), io.NopCloser(bytes.NewReader(data)), err
	}
}

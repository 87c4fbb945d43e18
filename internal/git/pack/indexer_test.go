package pack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cairnstate/cairn/internal/git/object"
)

// seen collects what Receive reports.
type seen struct {
	mu   sync.Mutex
	objs map[object.ID]Object
}

func (s *seen) visit(o Object) error {
	o.Data = bytes.Clone(o.Data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objs[o.ID]; ok {
		return errors.New("object visited twice")
	}
	s.objs[o.ID] = o
	return nil
}

// scratch makes temporary files for a test.
func scratch(t testing.TB) func() (Scratch, error) {
	return func() (Scratch, error) {
		f, err := os.CreateTemp(t.TempDir(), "scratch")
		return f, err
	}
}

// receive runs Receive on a pack and returns what was stored.
func receive(t testing.TB, src io.Reader, opts Options) (*Result, *Buffer, map[object.ID]Object, error) {
	t.Helper()
	var dst Buffer
	s := seen{objs: map[object.ID]Object{}}
	if opts.Visit == nil {
		opts.Visit = s.visit
	}
	res, err := Receive(context.Background(), src, &dst, opts)
	return res, &dst, s.objs, err
}

// checkReceived compares a received pack and its index with what git makes of
// it, and the objects reported with all.
func checkReceived(t *testing.T, r *repo, res *Result, stored []byte, objs map[object.ID]Object, all map[object.ID]gitObject) {
	t.Helper()
	var idx bytes.Buffer
	if err := res.WriteIndex(&idx); err != nil {
		t.Fatal(err)
	}
	if res.Size != int64(len(stored)) {
		t.Errorf("size %d, want %d", res.Size, len(stored))
	}
	if want := r.indexPack(stored); !bytes.Equal(idx.Bytes(), want) {
		t.Errorf("index differs from git's")
	}
	for id, o := range objs {
		want, ok := all[id]
		if !ok {
			t.Fatalf("%s was reported, but is not an object", id)
		}
		if o.Type.String() != want.typ || o.Size != int64(len(want.data)) {
			t.Fatalf("%s: %s of %d bytes, want %s of %d", id, o.Type, o.Size, want.typ, len(want.data))
		}
		if o.Size <= MaxVisitBlob && !bytes.Equal(o.Data, want.data) {
			t.Fatalf("%s: wrong data", id)
		}
		if o.Size > MaxVisitBlob && o.Data != nil {
			t.Fatalf("%s: data of %d bytes was reported", id, o.Size)
		}
	}
}

func TestReceiveAgreesWithGit(t *testing.T) {
	r := history(t, 150, 6, 20_000)
	all := r.objects()
	for name, flags := range map[string][]string{
		"as fetched": {},
		"whole":      {"--no-reuse-delta", "--depth=0"},
		"offset":     {"--delta-base-offset", "--no-reuse-delta", "--depth=200", "--window=30"},
		"reference":  {"--no-reuse-delta", "--depth=200", "--window=30"},
	} {
		data := r.pack("", append(flags, "--all")...)
		for how, src := range map[string]io.Reader{
			"at once":  bytes.NewReader(data),
			"in bits":  iotest.HalfReader(bytes.NewReader(data)),
			"dribbled": iotest.OneByteReader(bytes.NewReader(data)),
			"with end": iotest.DataErrReader(bytes.NewReader(data)),
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				res, dst, objs, err := receive(t, src, Options{RefuseTrailing: true})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(dst.Bytes(), data) {
					t.Error("stored pack differs")
				}
				if len(objs) != len(all) {
					t.Errorf("%d objects reported, want %d", len(objs), len(all))
				}
				checkReceived(t, r, res, dst.Bytes(), objs, all)
			})
		}
	}
}

func TestReceiveThin(t *testing.T) {
	r := history(t, 100, 8, 20_000)
	all := r.objects()
	byID := func(id object.ID) (object.Type, []byte, error) {
		o, ok := all[id]
		if !ok {
			return 0, nil, &MissingBaseError{id}
		}
		for _, typ := range []object.Type{object.Commit, object.Tree, object.Blob, object.Tag} {
			if typ.String() == o.typ {
				return typ, o.data, nil
			}
		}
		return 0, nil, errors.New("type unknown")
	}
	for _, flags := range [][]string{{}, {"--delta-base-offset"}} {
		data := r.pack("main\n^main~40\n", append(flags, "--thin", "--no-reuse-delta", "--window=50")...)
		res, dst, objs, err := receive(t, bytes.NewReader(data), Options{Base: memoryBase(byID)})
		if err != nil {
			t.Fatal(err)
		}
		if res.Bases == 0 || res.Count() != len(objs)+res.Bases {
			t.Errorf("%d bases appended to %d objects, %d in all", res.Bases, len(objs), res.Count())
		}
		checkReceived(t, r, res, dst.Bytes(), objs, all)

		_, _, _, err = receive(t, bytes.NewReader(data), Options{})
		var missing *MissingBaseError
		if !errors.As(err, &missing) || all[missing.ID].data == nil {
			t.Errorf("without bases: err %v, want *MissingBaseError", err)
		}
		failure := errors.New("disk on fire")
		_, _, _, err = receive(t, bytes.NewReader(data), Options{Base: memoryBase(func(object.ID) (object.Type, []byte, error) { return 0, nil, failure })})
		if !errors.Is(err, failure) {
			t.Errorf("failing bases: err %v, want %v", err, failure)
		}
	}
}

func TestReceiveLargeObjects(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			v := rng.Uint64()
			for k := range 8 {
				b[i+k] = byte(v >> (8 * k))
			}
		}
		return b
	}
	r := newRepo(t)
	const size = maxHeld + 1<<20
	first := noise(size)
	second := bytes.Clone(first)
	copy(second[5000:], "changed")
	third := append(bytes.Clone(second), "and more"...)
	fourth := third[:size/8]                // small again, from a large base
	fifth := append(noise(5<<20), first...) // a large delta
	var list bytes.Buffer
	for _, b := range [][]byte{first, second, third, fourth, fifth, make([]byte, 20<<20), noise(MaxVisitBlob), noise(MaxVisitBlob + 1)} {
		list.Write(r.git(b, "hash-object", "-w", "--stdin"))
	}
	data := r.git(list.Bytes(), "pack-objects", "--stdout", "-q", "--window=20", "--delta-base-offset")
	all := r.objects()
	f, err := os.Create(filepath.Join(t.TempDir(), "pack"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := seen{objs: map[object.ID]Object{}}
	res, err := Receive(context.Background(), bytes.NewReader(data), f, Options{Visit: s.visit, Scratch: scratch(t)})
	if err != nil {
		t.Fatal(err)
	}
	checkReceived(t, r, res, data, s.objs, all)

	_, _, _, err = receive(t, bytes.NewReader(data), Options{})
	var limit *LimitError
	if !errors.As(err, &limit) {
		t.Errorf("without scratch files: err %v, want *LimitError", err)
	}
}

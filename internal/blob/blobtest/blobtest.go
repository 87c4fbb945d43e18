// Package blobtest proves that a blob.Store keeps the contract that package
// blob states. Every store and every decorator runs it, over each store below it.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cairnstate/cairn/internal/blob"
)

// New returns an empty store that lives until the test ends.
type New func(tb testing.TB) blob.Store

// Test runs the conformance suite.
func Test(t *testing.T, newStore New) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s blob.Store)
	}{
		{"Sizes", testSizes},
		{"Ranges", testRanges},
		{"NotFound", testNotFound},
		{"InvalidKeys", testInvalidKeys},
		{"Immutable", testImmutable},
		{"OneWinner", testOneWinner},
		{"ConcurrentKeys", testConcurrentKeys},
		{"Delete", testDelete},
		{"List", testList},
		{"FailedWritesLeaveNothing", testFailedWrites},
		{"WriterEnds", testWriterEnds},
		{"Cancelled", testCancelled},
		{"Model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newStore(t)) })
	}
}

// Data returns n bytes that depend on seed.
func Data(seed string, n int) []byte {
	p := make([]byte, n)
	io.ReadFull(Stream(seed), p)
	return p
}

// Stream returns an endless reader of the bytes that Data gives for seed.
func Stream(seed string) io.Reader {
	var key [32]byte
	copy(key[:], seed)
	return rand.NewChaCha8(key)
}

// ReadAll returns the bytes of an object, read in one ReadAt.
func ReadAll(s blob.Store, key blob.Key) ([]byte, error) {
	o, err := s.Open(context.Background(), key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	p := make([]byte, o.Size())
	if n, err := o.ReadAt(p, 0); n < len(p) {
		return nil, fmt.Errorf("read %q: got %d of %d bytes: %w", string(key), n, len(p), err)
	}
	return p, nil
}

func put(t testing.TB, s blob.Store, key blob.Key, data []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

// wantObject fails the test unless Open, Stat and List agree on the object.
func wantObject(t testing.TB, s blob.Store, key blob.Key, data []byte) {
	t.Helper()
	got, err := ReadAll(s, key)
	if err != nil {
		t.Errorf("read %q: %v", key, err)
	} else if !bytes.Equal(got, data) {
		t.Errorf("object %q holds other bytes (%d) than were written (%d)", key, len(got), len(data))
	}
	info, err := s.Stat(t.Context(), key)
	if err != nil || info.Key != key || info.Size != int64(len(data)) || info.ModTime.IsZero() {
		t.Errorf("stat %q: %+v, %v; want %d bytes", key, info, err, len(data))
	}
	if keys := list(t, s, string(key)); !slices.Contains(keys, key) {
		t.Errorf("list %q: %q", key, keys)
	}
}

func wantAbsent(t testing.TB, s blob.Store, key blob.Key) {
	t.Helper()
	if o, err := s.Open(t.Context(), key); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("open absent %q: %v, %v", key, o, err)
	}
	if info, err := s.Stat(t.Context(), key); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("stat absent %q: %v, %v", key, info, err)
	}
	if keys := list(t, s, string(key)); slices.Contains(keys, key) {
		t.Errorf("list shows the absent %q", key)
	}
}

func list(t testing.TB, s blob.Store, prefix string) []blob.Key {
	t.Helper()
	var keys []blob.Key
	for info, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// testSizes covers 0 bytes, the edges of blocks and parts, known and unknown
// sizes, whole and piecemeal writes.
func testSizes(t *testing.T, s blob.Store) {
	for _, n := range []int{0, 1, 511, 1 << 20, 1<<20 + 1, 8<<20 - 1, 8 << 20, 8<<20 + 1, 17<<20 + 7} {
		data := Data(fmt.Sprint("size", n), n)
		known := blob.Key(fmt.Sprintf("sizes/known-%d", n))
		put(t, s, known, data)
		wantObject(t, s, known, data)

		unknown := blob.Key(fmt.Sprintf("sizes/unknown-%d", n))
		if err := s.Put(t.Context(), unknown, iotest.HalfReader(bytes.NewReader(data)), -1); err != nil {
			t.Fatalf("put %d bytes of unknown size: %v", n, err)
		}
		wantObject(t, s, unknown, data)

		w, err := s.Create(t.Context(), blob.Key(fmt.Sprintf("sizes/stream-%d", n)))
		if err != nil {
			t.Fatal(err)
		}
		for rest := slices.Clone(data); len(rest) > 0; {
			piece := rest[:min(len(rest), 300_001)]
			if m, err := w.Write(piece); m != len(piece) || err != nil {
				t.Fatalf("write: %d, %v", m, err)
			}
			clear(piece) // the store may not keep the caller's buffer
			rest = rest[len(piece):]
		}
		if err := w.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantObject(t, s, blob.Key(fmt.Sprintf("sizes/stream-%d", n)), data)
	}
}

func testRanges(t *testing.T, s blob.Store) {
	const size = 5<<20 + 333
	data := Data("ranges", size)
	put(t, s, "ranges/object", data)
	o, err := s.Open(t.Context(), "ranges/object")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Size() != size {
		t.Fatalf("size %d, want %d", o.Size(), size)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 40 {
				off, n := rng.IntN(size), rng.IntN(1<<uint(rng.IntN(22)))
				checkRange(t, o, data, int64(off), n)
			}
		})
	}
	wg.Wait()
	for _, r := range []struct {
		off int64
		n   int
	}{{0, 0}, {0, 1}, {size - 1, 1}, {size - 1, 2}, {size, 0}, {size, 1}, {size + 5, 3}, {0, size}, {1, size}} {
		checkRange(t, o, data, r.off, r.n)
	}
	if n, err := o.ReadAt(make([]byte, 1), -1); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read at a negative offset: %d, %v", n, err)
	}
	for range 2 {
		var all bytes.Buffer
		if n, err := blob.WriteTo(&all, o); n != size || err != nil || !bytes.Equal(all.Bytes(), data) {
			t.Errorf("WriteTo: %d, %v", n, err)
		}
	}
}

func checkRange(t *testing.T, o blob.Object, data []byte, off int64, n int) {
	t.Helper()
	p := make([]byte, n)
	got, err := o.ReadAt(p, off)
	want := data[min(off, int64(len(data))):]
	want = want[:min(n, len(want))]
	if got != len(want) || !bytes.Equal(p[:got], want) {
		t.Errorf("read %d at %d: %d wrong bytes", n, off, got)
	}
	if got < n && err != io.EOF || got == n && err != nil && err != io.EOF {
		t.Errorf("read %d at %d: %d, error %v", n, off, got, err)
	}
}

func testNotFound(t *testing.T, s blob.Store) {
	wantAbsent(t, s, "absent/object")
	_, err := blob.MustOpen(t.Context(), s, "absent/object", -1)
	var corrupt *blob.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Key != "absent/object" || !errors.Is(err, blob.ErrCorrupt) || errors.Is(err, blob.ErrNotFound) {
		t.Errorf("MustOpen of an absent object: %v", err)
	}
	put(t, s, "present/object", []byte("four"))
	if _, err := blob.MustOpen(t.Context(), s, "present/object", 5); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("MustOpen with another size: %v", err)
	}
	for _, size := range []int64{4, -1} {
		o, err := blob.MustOpen(t.Context(), s, "present/object", size)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func testInvalidKeys(t *testing.T, s blob.Store) {
	for _, key := range []blob.Key{"", "/a", "a/", "a//b", "../a", "a/..", ".a", "A", "a b", "a\x00", "a~b", "é", blob.Key(strings.Repeat("a", blob.MaxKeyLen+1))} {
		_, createErr := s.Create(t.Context(), key)
		_, openErr := s.Open(t.Context(), key)
		_, statErr := s.Stat(t.Context(), key)
		for op, err := range map[string]error{
			"put": s.Put(t.Context(), key, strings.NewReader("x"), 1), "delete": s.Delete(t.Context(), key),
			"create": createErr, "open": openErr, "stat": statErr,
		} {
			if !errors.Is(err, blob.ErrInvalidKey) {
				t.Errorf("%s %q: %v, want %v", op, key, err, blob.ErrInvalidKey)
			}
		}
	}
	longest := blob.Key("longest/" + strings.Repeat("x", blob.MaxKeyLen-8))
	put(t, s, longest, []byte("x"))
	wantObject(t, s, longest, []byte("x"))
}

func testImmutable(t *testing.T, s blob.Store) {
	for _, n := range []int{10, 9 << 20} {
		key := blob.Key(fmt.Sprintf("immutable/%d", n))
		data := Data("first", n)
		put(t, s, key, data)
		for _, other := range [][]byte{Data("second", n), data, nil, Data("third", 9<<20)} {
			if err := s.Put(t.Context(), key, bytes.NewReader(other), int64(len(other))); !errors.Is(err, blob.ErrExists) {
				t.Errorf("second put of %d bytes: %v, want %v", len(other), err, blob.ErrExists)
			}
		}
		wantObject(t, s, key, data)
	}
}

func testOneWinner(t *testing.T, s blob.Store) {
	for round := range 4 {
		key := blob.Key(fmt.Sprintf("race/%d", round))
		const writers = 64
		results := make([]error, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				data := Data(fmt.Sprint("writer", i), 1000+i)
				results[i] = s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)))
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range results {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("writers %d and %d both won", winner, i)
			case !errors.Is(err, blob.ErrExists):
				t.Errorf("writer %d: %v, want %v", i, err, blob.ErrExists)
			}
		}
		if winner < 0 {
			t.Fatal("no writer won")
		}
		wantObject(t, s, key, Data(fmt.Sprint("writer", winner), 1000+winner))
	}
}

func testConcurrentKeys(t *testing.T, s blob.Store) {
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 5 {
				key := blob.Key(fmt.Sprintf("many/%d/%d", i, j))
				data := Data(string(key), 100*i+j)
				if err := s.Put(t.Context(), key, bytes.NewReader(data), -1); err != nil {
					t.Errorf("put %q: %v", key, err)
					continue
				}
				if got, err := ReadAll(s, key); err != nil || !bytes.Equal(got, data) {
					t.Errorf("read after write of %q: %d bytes, %v", key, len(got), err)
				}
				if j%2 == 1 {
					if err := s.Delete(t.Context(), key); err != nil {
						t.Errorf("delete %q: %v", key, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := len(list(t, s, "many/")); got != 32*3 {
		t.Errorf("list has %d objects, want %d", got, 32*3)
	}
}

func testDelete(t *testing.T, s blob.Store) {
	put(t, s, "delete/a", []byte("a"))
	put(t, s, "delete/b", []byte("b"))
	for range 2 {
		if err := s.Delete(t.Context(), "delete/a"); err != nil {
			t.Errorf("delete: %v", err)
		}
		wantAbsent(t, s, "delete/a")
	}
	if err := s.Delete(t.Context(), "never/there"); err != nil {
		t.Errorf("delete of what never was: %v", err)
	}
	wantObject(t, s, "delete/b", []byte("b"))
}

func testList(t *testing.T, s blob.Store) {
	if keys := list(t, s, ""); len(keys) > 0 {
		t.Fatalf("a new store holds %q", keys)
	}
	var want []blob.Key
	for _, dir := range []string{"a", "a-b", "a.b", "ab", "a0/x", "b/c/d"} {
		for i := range 6 {
			want = append(want, blob.Key(fmt.Sprintf("%s/%x", dir, i*3)))
		}
	}
	want = append(want, "top", "zz.pack")
	shuffled := slices.Clone(want)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(want), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, key := range shuffled {
		put(t, s, key, []byte(key))
	}
	slices.Sort(want)
	for _, prefix := range []string{"", "a", "a/", "a-", "a.b/", "b/c/d/", "b/c/d/3", "nothing", "z"} {
		var matching []blob.Key
		for _, key := range want {
			if strings.HasPrefix(string(key), prefix) {
				matching = append(matching, key)
			}
		}
		if got := list(t, s, prefix); !slices.Equal(got, matching) {
			t.Errorf("list %q:\n got %q\nwant %q", prefix, got, matching)
		}
	}
	var first []blob.Info
	for info, err := range s.List(t.Context(), "a") {
		if err != nil {
			t.Fatal(err)
		}
		if first = append(first, info); len(first) == 2 {
			break
		}
	}
	if len(first) != 2 || first[0].Size != int64(len(first[0].Key)) || first[0].ModTime.IsZero() {
		t.Errorf("first two listed: %+v", first)
	}
}

func testFailedWrites(t *testing.T, s blob.Store) {
	broken := errors.New("broken reader")
	for _, n := range []int{0, 100, 20 << 20} {
		data := Data("failed", n)
		key := func(what string) blob.Key { return blob.Key(fmt.Sprintf("failed/%s-%d", what, n)) }
		r := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken))
		if err := s.Put(t.Context(), key("broken"), r, -1); !errors.Is(err, broken) {
			t.Errorf("put of a broken reader: %v", err)
		}
		if err := s.Put(t.Context(), key("short"), bytes.NewReader(data), int64(n)+1); !errors.Is(err, blob.ErrSize) {
			t.Errorf("put of a short reader: %v", err)
		}
		if err := s.Put(t.Context(), key("long"), io.MultiReader(bytes.NewReader(data), Stream("endless")), int64(n)); !errors.Is(err, blob.ErrSize) {
			t.Errorf("put of an endless reader: %v", err)
		}
		w, err := s.Create(t.Context(), key("aborted"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		w.Abort()
		if _, err := w.Write([]byte("x")); !errors.Is(err, blob.ErrEnded) {
			t.Errorf("write after Abort: %v", err)
		}
		if err := w.Finish(t.Context()); !errors.Is(err, blob.ErrEnded) {
			t.Errorf("Finish after Abort: %v", err)
		}
		for _, what := range []string{"broken", "short", "long", "aborted"} {
			wantAbsent(t, s, key(what))
		}
	}
	if keys := list(t, s, ""); len(keys) > 0 {
		t.Errorf("failed writes left %q", keys)
	}
}

func testWriterEnds(t *testing.T, s blob.Store) {
	w, err := s.Create(t.Context(), "ends/once")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := io.WriteString(w, "kept"); err != nil {
		t.Fatal(err)
	}
	wantAbsent(t, s, "ends/once")
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if _, err := io.WriteString(w, "more"); !errors.Is(err, blob.ErrEnded) {
		t.Errorf("write after Finish: %v", err)
	}
	if err := w.Finish(t.Context()); !errors.Is(err, blob.ErrEnded) {
		t.Errorf("second Finish: %v", err)
	}
	wantObject(t, s, "ends/once", []byte("kept"))
}

func testCancelled(t *testing.T, s blob.Store) {
	put(t, s, "cancel/there", []byte("there"))
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, "cancel/writer")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	cancel()
	if _, err := w.Write([]byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	if err := w.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("finish: %v", err)
	}
	_, openErr := s.Open(ctx, "cancel/there")
	_, statErr := s.Stat(ctx, "cancel/there")
	var listErr error
	for _, listErr = range s.List(ctx, "") {
	}
	for op, err := range map[string]error{
		"put": s.Put(ctx, "cancel/put", strings.NewReader("x"), 1), "delete": s.Delete(ctx, "cancel/there"),
		"open": openErr, "stat": statErr, "list": listErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", op, err, context.Canceled)
		}
	}
	wantAbsent(t, s, "cancel/writer")
	wantAbsent(t, s, "cancel/put")
	wantObject(t, s, "cancel/there", []byte("there"))
}

// testModel runs random operations on few keys against a map. Keys are deleted
// but, as the contract asks, never used again after that.
func testModel(t *testing.T, s blob.Store) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	model := map[blob.Key][]byte{}
	deleted := map[blob.Key]bool{}
	for step := range 150 {
		key := blob.Key(fmt.Sprintf("model/%d/%d", rng.IntN(3), rng.IntN(12)))
		_, exists := model[key]
		switch op := rng.IntN(4); {
		case op < 2 && !deleted[key]:
			data := Data(fmt.Sprint(seed, step), rng.IntN(3000))
			err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)))
			if exists != errors.Is(err, blob.ErrExists) || !exists && err != nil {
				t.Fatalf("step %d: put %q: %v (exists: %v)", step, key, err, exists)
			}
			if !exists {
				model[key] = data
			}
		case op == 2 && rng.IntN(3) == 0:
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatalf("step %d: delete %q: %v", step, key, err)
			}
			delete(model, key)
			deleted[key] = true
		case exists:
			wantObject(t, s, key, model[key])
		default:
			wantAbsent(t, s, key)
		}
	}
	if got := list(t, s, "model/"); len(got) != len(model) {
		t.Errorf("store holds %d objects, model %d", len(got), len(model))
	}
}

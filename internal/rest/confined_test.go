package rest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/tree"
)

// randomText is text of n bytes that is always the same for a seed.
func randomText(seed uint64, n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// recipe makes the recipe object of a large text.
func recipe(t *testing.T, text string) (tree.Object, []tree.Part) {
	t.Helper()
	var parts []tree.Part
	err := chunk.Split(strings.NewReader(text), func(b []byte) error {
		parts = append(parts, tree.Part{Length: uint64(len(b)), Digest: tree.Sum(b)})
		return nil
	})
	b, encodeErr := tree.EncodeRecipe(parts)
	if err != nil || encodeErr != nil || len(parts) < 2 {
		t.Fatal(err, encodeErr, len(parts))
	}
	return tree.Object{Kind: tree.Recipe, Digest: tree.Sum(b), Bytes: b}, parts
}

// alike asks for what is another thread's and for what is nobody's, and wants the
// same refusal.
func (s *stack) alike(method, token, path, foreign, absent string, body func(value string) any) {
	s.t.Helper()
	var told [2]string
	for i, value := range []string{foreign, absent} {
		var in any
		if body != nil {
			in = body(value)
		}
		a := s.do(method, strings.ReplaceAll(path, "VALUE", value), token, in)
		if a.status < 400 || a.status >= 500 {
			s.t.Errorf("%s %s of %s: %d %.200s", method, path, value, a.status, a.body)
		}
		h := a.header.Clone()
		for _, name := range []string{"Date", "X-Request-Id", "Content-Length"} {
			h.Del(name)
		}
		told[i] = strings.ReplaceAll(fmt.Sprint(a.status, h, string(a.body)), value, "VALUE")
		if id := a.header.Get("X-Request-Id"); id != "" {
			told[i] = strings.ReplaceAll(told[i], id, "ID")
		}
	}
	if told[0] != told[1] {
		s.t.Errorf("%s %s: of another's\n%s\nof nobody's\n%s", method, path, told[0], told[1])
	}
}

// TestThreadConfined asks with the token of one thread for all that another one has,
// in every way that there is.
func TestThreadConfined(t *testing.T) {
	s := newStack(t)
	large, text := randomText(1, 6<<20), "what b alone knows"
	w := newWorkspace(t, map[string]string{"secret": text, "dir/other": "also b's"})
	point := s.capture("thread-b", w).Checkpoint.ID
	b := s.threadToken("thread-b")
	sum := tree.Sum([]byte(large)).String()
	s.want(http.StatusOK, "PUT", "/api/blobs/sandbox-files/sha256/"+sum, b, large, nil)
	s.want(http.StatusOK, "POST", threadPath("thread-b", "blobs?upload=pending"), b, w.stream(), nil)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "x"})

	a := s.both("a", "r", auth.CheckpointRead, auth.CheckpointWrite, auth.GitRead, auth.GitWrite)
	mine := newWorkspace(t, map[string]string{"mine": "a's own"})
	own := s.capture("a", mine).Checkpoint.ID
	nobody := tree.Sum([]byte("nobody has this")).String()
	const absent = "8c9d2a44-0000-4000-8000-1234567890ab"
	ids := func(method, path string, body func(string) any) {
		t.Helper()
		s.alike(method, a, path, point, absent, body)
	}
	fixed := func(v any) func(string) any { return func(string) any { return v } }
	ids("GET", "/api/checkpoints/VALUE", nil)
	ids("HEAD", "/api/checkpoints/VALUE/files/w/secret", nil)
	for _, rest := range []string{"?manifests=true", "/manifest", "/manifest?path=w", "/files/w/secret", "/diff", "/archive", "/archive?format=tar&path=w/secret"} {
		ids("GET", "/api/checkpoints/VALUE"+rest, nil)
	}
	ids("GET", "/api/checkpoints/"+own+"/diff?base=VALUE", nil)
	ids("DELETE", "/api/checkpoints/VALUE", nil)
	ids("POST", "/api/checkpoints/VALUE/pin", nil)
	ids("DELETE", "/api/checkpoints/VALUE/pin", nil)
	ids("POST", "/api/checkpoints/VALUE/fork", fixed(map[string]any{"thread": "a"}))
	ids("POST", "/api/checkpoints/VALUE/fork", fixed(map[string]any{"thread": "a", "source_thread": "thread-b"}))
	ids("POST", "/api/checkpoints/VALUE/fork", fixed(map[string]any{"thread": "new"}))
	ids("POST", "/api/checkpoints/VALUE/promote", fixed(map[string]any{"repo": "r", "branch": "stolen"}))
	ids("POST", threadPath("a", "checkpoints"), func(id string) any {
		return map[string]any{"root": mine.root.String(), "expected_head": id, "always": true}
	})
	// Threads: what the token does not cover is not there.
	for _, rest := range []string{"", "checkpoints"} {
		s.alike("GET", a, "/api/threads/VALUE/"+rest, "thread-b", "nothing", nil)
	}
	s.alike("DELETE", a, "/api/threads/VALUE", "thread-b", "nothing", nil)
	s.alike("POST", a, "/api/threads/VALUE/lease", "thread-b", "nothing", nil)
	s.alike("POST", a, "/api/threads/VALUE/prune", "thread-b", "nothing", fixed(map[string]any{"keep_last": 0}))
	s.alike("POST", a, "/api/threads/VALUE/from-commit", "thread-b", "nothing", fixed(map[string]any{"repo": "r", "ref": "main"}))
	// Objects and blobs, also by the id of the other's upload.
	for _, upload := range []string{"", "u", "pending"} {
		for _, o := range w.objects {
			s.alike("POST", a, threadPath("a", "blobs/get"), o.Digest.String(), nobody, func(d string) any {
				return map[string]any{"digests": []string{d}, "upload": upload}
			})
			var missing api.MissingList
			s.want(http.StatusOK, "POST", threadPath("a", "blobs/missing"), a, map[string]any{"digests": []string{o.Digest.String()}, "upload": upload}, &missing)
			if len(missing.Missing) != 1 {
				t.Errorf("%s of kind %d is known with upload %q", o.Digest, o.Kind, upload)
			}
		}
		for _, space := range []string{"sandbox-files", "sandbox-artifacts"} {
			for _, d := range []string{sum, tree.Sum([]byte(text)).String()} {
				s.alike("GET", a, "/api/blobs/"+space+"/sha256/VALUE?upload="+upload, d, nobody, nil)
				s.alike("HEAD", a, "/api/blobs/"+space+"/sha256/VALUE?upload="+upload, d, nobody, nil)
			}
		}
		s.alike("POST", a, threadPath("a", "checkpoints"), w.root.String(), nobody, func(root string) any {
			return map[string]any{"root": root, "upload": upload, "onto": "head"}
		})
	}
	s.alike("GET", a, "/api/blobs/sandbox-files/sha256/VALUE?thread=thread-b", sum, nobody, nil)
	s.alike("GET", a, "/api/blobs/references?thread=VALUE", "thread-b", "nothing", nil)
	var refs api.ReferencePage
	s.want(http.StatusOK, "GET", "/api/blobs/references", a, nil, &refs)
	var threads api.ThreadPage
	s.want(http.StatusOK, "GET", "/api/threads", a, nil, &threads)
	if len(refs.References) != 0 || len(threads.Threads) != 1 {
		t.Errorf("%+v %+v", refs, threads)
	}
	s.manifestsConfined(a, sum, tree.Sum([]byte(text)).String(), nobody)
	s.treesConfined(a, w)
}

// manifestsConfined appends manifests that name blobs of another thread.
func (s *stack) manifestsConfined(a, large, small, nobody string) {
	s.t.Helper()
	for i, sum := range []string{large, small} {
		for _, upload := range []string{"", "u", "pending"} {
			var head api.Thread
			s.want(http.StatusOK, "GET", threadPath("a", ""), a, nil, &head)
			s.alike("POST", a, threadPath("a", "manifests"), sum, nobody, func(d string) any {
				return map[string]any{"upload": upload, "expectedHeadId": head.Head, "checkpoint": map[string]any{
					"id": fmt.Sprint("m", i), "threadId": "a", "parentCheckpointId": head.Head, "createdAt": 1, "reason": "automatic", "artifacts": []any{},
					"files": []any{map[string]any{"path": "f", "kind": "file", "size": 1, "blobKey": "sandbox-files/sha256/" + d}},
				}}
			})
		}
	}
}

// treesConfined sends the directories of another thread's tree, which one knows who
// has seen it, without the contents; and with them under other kinds.
func (s *stack) treesConfined(a string, w *workspace) {
	s.t.Helper()
	for i, kind := range []tree.Kind{0, tree.Chunk, tree.Recipe} {
		var stream []byte
		for _, o := range w.objects {
			if o.Kind != tree.Chunk {
				if kind != 0 {
					o.Kind = kind
				}
				stream = frame.Append(stream, o)
			}
		}
		upload := fmt.Sprint("dirs", i)
		s.want(http.StatusOK, "POST", threadPath("a", "blobs?upload="+upload), a, string(stream), nil)
		e := s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("a", "checkpoints"), a,
			map[string]any{"root": w.root.String(), "upload": upload, "onto": "head"})
		if e.SnapshotRefusal == nil || len(e.Missing) != 2 {
			s.t.Errorf("%+v", e)
		}
	}
}

// TestRecipeIsNotTheBlob sends the recipe of another thread's large blob, which can
// be made of the digests of its chunks: it opens nothing without the chunks.
func TestRecipeIsNotTheBlob(t *testing.T) {
	s := newStack(t)
	large := randomText(2, 6<<20)
	sum := tree.Sum([]byte(large)).String()
	path := "/api/blobs/sandbox-files/sha256/" + sum
	s.want(http.StatusOK, "PUT", path, s.threadToken("b"), large, nil)
	a := s.threadToken("a")
	o, parts := recipe(t, large)
	send := func(kind tree.Kind, upload string, chunks int) {
		stream := frame.Append(nil, tree.Object{Kind: kind, Digest: o.Digest, Bytes: o.Bytes})
		at := 0
		for _, p := range parts[:chunks] {
			stream = frame.Append(stream, tree.Object{Kind: tree.Chunk, Digest: p.Digest, Bytes: []byte(large[at : at+int(p.Length)])})
			at += int(p.Length)
		}
		s.want(http.StatusOK, "POST", threadPath("a", "blobs?upload="+upload), a, string(stream), nil)
	}
	manifest := func(upload string) any {
		return map[string]any{"upload": upload, "expectedHeadId": nil, "checkpoint": map[string]any{
			"id": "m", "threadId": "a", "parentCheckpointId": nil, "createdAt": 1, "reason": "automatic", "artifacts": []any{},
			"files": []any{map[string]any{"path": "f", "kind": "file", "size": len(large), "blobKey": "sandbox-files/sha256/" + sum}},
		}}
	}
	for i, kind := range []tree.Kind{tree.Recipe, tree.Chunk} {
		for chunks := range len(parts) {
			upload := fmt.Sprintf("u-%d-%d", i, chunks)
			send(kind, upload, chunks)
			s.refused(http.StatusNotFound, api.MissingObject, "GET", path+"?upload="+upload, a, nil)
			s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("a", "manifests"), a, manifest(upload))
		}
	}
	send(tree.Recipe, "all", len(parts))
	if got := s.do("GET", path+"?upload=all", a, nil); got.status != http.StatusOK || string(got.body) != large {
		t.Errorf("with all chunks: %d and %d bytes", got.status, len(got.body))
	}
	s.want(http.StatusCreated, "POST", threadPath("a", "manifests"), a, manifest("all"), nil)
}

// TestUploadsAreTheThreads uses the same ids of uploads in two threads.
func TestUploadsAreTheThreads(t *testing.T) {
	s := newStack(t)
	w, x := newWorkspace(t, map[string]string{"f": "of b"}), newWorkspace(t, map[string]string{"f": "of a"})
	a, b := s.threadToken("a"), s.threadToken("b")
	s.want(http.StatusOK, "POST", threadPath("b", "blobs?upload=one"), b, w.stream(), nil)
	s.want(http.StatusOK, "POST", threadPath("a", "blobs?upload=one"), a, x.stream(), nil)
	s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("a", "checkpoints"), a, map[string]any{"root": w.root.String(), "upload": "one", "onto": "head"})
	// An append ends its own upload, not the other's.
	s.want(http.StatusCreated, "POST", threadPath("a", "checkpoints"), a, map[string]any{"root": x.root.String(), "upload": "one", "onto": "head"}, nil)
	s.want(http.StatusCreated, "POST", threadPath("b", "checkpoints"), b, map[string]any{"root": w.root.String(), "upload": "one", "onto": "head"}, nil)
}

// TestKindsTellNothing sends an object that another thread sent as another kind, and
// one that nobody has: what comes back is the same.
func TestKindsTellNothing(t *testing.T) {
	s := newStack(t)
	s.capture("b", newWorkspace(t, map[string]string{"f": "of both"}))
	a := s.threadToken("a")
	var kinds []tree.Kind
	for _, text := range []string{"of both", "of a"} {
		o := tree.Object{Kind: tree.Recipe, Digest: tree.Sum([]byte(text)), Bytes: []byte(text)}
		s.want(http.StatusOK, "POST", threadPath("a", "blobs?upload=u"), a, string(frame.Append(nil, o)), nil)
		got := s.do("POST", threadPath("a", "blobs/get"), a, map[string]any{"digests": []string{o.Digest.String()}, "upload": "u"})
		back, err := frame.NewReader(bytes.NewReader(got.body)).Next()
		if err != nil || string(back.Bytes) != text {
			t.Fatalf("%d %q: %v", got.status, got.body, err)
		}
		kinds = append(kinds, back.Kind)
	}
	if kinds[0] != kinds[1] {
		t.Errorf("kinds %v", kinds)
	}
}

// groupedBy writes a stream as a client with its own encoder does: each object alone,
// at another level of compression, or as it is.
func groupedBy(t *testing.T, how int, objects []tree.Object) []byte {
	t.Helper()
	if how == 0 {
		return frame.Append(nil, objects...)
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithSingleSegment(true))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var b []byte
	for _, o := range objects {
		g := frame.Group{Members: []frame.Member{{Digest: o.Digest, Kind: o.Kind, Length: len(o.Bytes)}}, Length: len(o.Bytes), Bytes: o.Bytes}
		if small := e.EncodeAll(o.Bytes, nil); how == 1 && len(small) < len(o.Bytes) {
			g.Encoding, g.Bytes = frame.Zstd, small
		}
		b = frame.AppendGroup(b, &g)
	}
	return b
}

// TestAnswersTellNoSender has a thread send what nobody has, and what another thread has
// sent before in other encodings, orders and uploads: what it gets back is the same.
func TestAnswersTellNoSender(t *testing.T) {
	for round, size := range []int{300, 3_000, 200_000} {
		var objects []tree.Object
		var names []string
		for i := range 24 {
			text := []byte(randomText(uint64(1000*round+i), size/2+i*size/20))
			objects = append(objects, tree.Object{Kind: tree.Chunk, Digest: tree.Sum(text), Bytes: text})
			names = append(names, objects[i].Digest.String())
		}
		var want [2][]byte
		for how := range 4 {
			own := newStack(t)
			first, second := own.threadToken("first"), own.threadToken("second")
			others := slices.Clone(objects)
			if how > 0 {
				slices.Reverse(others)
				for i, some := range [][]tree.Object{others[:5], others[5:9], others[9:]} {
					own.want(http.StatusOK, "POST", threadPath("first", fmt.Sprint("blobs?upload=", i)), first, string(groupedBy(t, how%3, some)), nil)
				}
			}
			own.want(http.StatusOK, "POST", threadPath("second", "blobs?upload=u"), second, string(groupedBy(t, (how+1)%3, objects)), nil)
			for i, compress := range []bool{false, true} {
				got := own.do("POST", threadPath("second", "blobs/get"), second, map[string]any{"digests": names, "upload": "u", "compress": compress})
				if got.status != http.StatusOK {
					t.Fatalf("%d %s", got.status, got.body)
				}
				if how == 0 {
					want[i] = got.body
				} else if !bytes.Equal(got.body, want[i]) {
					t.Errorf("objects of %d bytes, encoding %d, compressed %v: the answer tells of another sender", size, how, compress)
				}
			}
		}
		if len(want[1]) >= len(want[0]) {
			t.Errorf("%d bytes compressed, %d not", len(want[1]), len(want[0]))
		}
	}
}

// TestThreadFloor revokes the tokens of one thread: a token for every thread that was
// minted before gets nothing of it either.
func TestThreadFloor(t *testing.T) {
	s := newStack(t)
	id := s.capture("t", newWorkspace(t, map[string]string{"f": "x"})).Checkpoint.ID
	key := "/api/blobs/sandbox-files/sha256/" + tree.Sum([]byte("x")).String() + "?thread=t"
	other := s.capture("u", newWorkspace(t, map[string]string{"g": "y"})).Checkpoint.ID
	old, all := s.threadToken("t"), s.threadToken("*")
	s.want(http.StatusOK, "GET", key, all, nil, nil)
	o := service.Operator{Meta: s.meta}
	if err := o.Revoke(t.Context(), "acme", service.Revocation{Thread: "t", Before: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{old, all} {
		for path, body := range map[string]any{
			"GET " + threadPath("t", ""): nil, "GET /api/checkpoints/" + id: nil, "GET " + key: nil, "GET /api/blobs/references?thread=t": nil,
			"GET /api/checkpoints/" + other + "/diff?base=" + id: nil,
			"POST /api/checkpoints/" + id + "/fork":              map[string]any{"thread": "new"},
		} {
			method, path, _ := strings.Cut(path, " ")
			if token == old && strings.Contains(path, other) {
				continue // which it does not cover
			}
			if a := s.do(method, path, token, body); a.status != http.StatusUnauthorized {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	s.want(http.StatusOK, "GET", "/api/checkpoints/"+other, all, nil, nil)
	s.refused(http.StatusUnauthorized, api.TokenSuperseded, "POST", "/api/checkpoints/"+id+"/fork", s.mint(s.key, auth.Claims{
		Org: "acme", Thread: "v", Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite},
	}), map[string]any{"thread": "v", "source_token": all})
}

// TestReadTokenWritesNothing sends every request that changes something with a token
// that may only read.
func TestReadTokenWritesNothing(t *testing.T) {
	s := newStack(t)
	w := newWorkspace(t, map[string]string{"f": "x"})
	id := s.capture("t", w).Checkpoint.ID
	for _, thread := range []string{"t", "*"} {
		token := s.threadToken(thread, auth.CheckpointRead)
		for _, r := range routes() {
			path := strings.NewReplacer("{thread}", "t", "{checkpoint}", id, "{digest}", strings.Repeat("0", 64)).Replace(r.path)
			if r.method == http.MethodGet || r.method == http.MethodHead || !strings.Contains(r.path, "thread") && !strings.Contains(r.path, "checkpoint") && !strings.Contains(r.path, "blobs") ||
				r.name == "objects.get" {
				continue
			}
			a := s.do(r.method, "/api/"+path, token, map[string]any{})
			if a.status/100 != 4 {
				t.Errorf("%s: %d %s", r.name, a.status, a.body)
			}
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "POST", threadPath("t", "blobs?upload=u"), token, w.stream())
	}
	var page api.CheckpointPage
	s.want(http.StatusOK, "GET", threadPath("t", "checkpoints"), s.threadToken("t"), nil, &page)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].Pinned {
		t.Errorf("%+v", page)
	}
}

// object is one that a hostile client made.
func (w *workspace) object(kind tree.Kind, b []byte) tree.Digest {
	o := tree.Object{Kind: kind, Digest: tree.Sum(b), Bytes: b}
	w.objects = append(w.objects, o)
	return o.Digest
}

// directory makes a directory of entries, however wrong they are together.
func (w *workspace) directory(t *testing.T, entries ...tree.Entry) tree.Entry {
	t.Helper()
	e := tree.Entry{Name: "d", Type: tree.Directory, Mode: 0o755}
	b := tree.Builder{Emit: func(o tree.Object) error {
		w.object(o.Kind, bytes.Clone(o.Bytes))
		return nil
	}}
	for i := range entries {
		if err := b.Add(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if e.Dir, e.Paged, e.Summary, err = b.Finish(); err != nil {
		t.Fatal(err)
	}
	return e
}

// top makes the root object.
func (w *workspace) top(t *testing.T, tr *tree.Tree) {
	t.Helper()
	b, err := tree.EncodeRoot(tr)
	if err != nil {
		t.Fatal(err)
	}
	w.root = w.object(tree.Root, b)
}

// within puts a directory into depth others.
func (w *workspace) within(t *testing.T, e tree.Entry, depth int) tree.Entry {
	t.Helper()
	for range depth {
		e.Name = "d"
		e = w.directory(t, e)
	}
	return e
}

func fileOf(text string) tree.Entry {
	c := tree.Content{Size: uint64(len(text)), Digest: tree.Sum([]byte(text))}
	c.Sum = c.Digest
	return tree.Entry{Name: "f", Type: tree.File, Mode: 0o644, Content: c}
}

// TestHostileTrees appends trees whose objects are what their digests name and that
// nobody could restore.
func TestHostileTrees(t *testing.T) {
	s := newStack(t)
	text := "some text"
	lying := func(change func(*tree.Entry)) func(*testing.T, *workspace) {
		return func(t *testing.T, w *workspace) {
			w.object(tree.Chunk, []byte(text))
			f := fileOf(text)
			change(&f)
			e := w.directory(t, f)
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		}
	}
	raw := func(b string) func(*testing.T, *workspace) {
		return func(t *testing.T, w *workspace) {
			e := w.directory(t)
			e.Dir, e.Summary = w.object(tree.Dir, []byte(b)), tree.Summary{Entries: 1}
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		}
	}
	named := func(name string) func(*testing.T, *workspace) {
		one := tree.AppendEntry(nil, &tree.Entry{Name: "x", Type: tree.Symlink, Mode: 0o777, Target: "/"})
		return raw("CDR1\x00\x01" + string(rune(len(name))) + name + string(one[2:]))
	}
	cases := map[string]func(*testing.T, *workspace){
		"a longer chunk":  lying(func(e *tree.Entry) { e.Content.Size-- }),
		"a shorter chunk": lying(func(e *tree.Entry) { e.Content.Size += 1 << 20 }),
		"a chunk that is said to be a recipe": lying(func(e *tree.Entry) {
			e.Content.Chunked, e.Content.Size = true, 5<<20
		}),
		"a recipe of other lengths": func(t *testing.T, w *workspace) {
			d := w.object(tree.Chunk, []byte(text))
			b, err := tree.EncodeRecipe([]tree.Part{{Length: 1 << 20, Digest: d}, {Length: 4 << 20, Digest: d}})
			if err != nil {
				t.Fatal(err)
			}
			f := fileOf(text)
			f.Content = tree.Content{Size: 5 << 20, Chunked: true, Digest: w.object(tree.Recipe, b), Sum: tree.Sum([]byte("any"))}
			e := w.directory(t, f)
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"a file as a directory": func(t *testing.T, w *workspace) {
			e := w.directory(t)
			e.Dir = w.object(tree.Chunk, []byte(text))
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"a directory as an index": func(t *testing.T, w *workspace) {
			e := w.directory(t)
			e.Paged = true
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"a directory as a root": func(t *testing.T, w *workspace) { w.root = w.directory(t).Dir },
		"other counts": func(t *testing.T, w *workspace) {
			e := w.directory(t)
			e.Summary.Files = 7
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"counts beyond all": func(t *testing.T, w *workspace) {
			e := w.directory(t)
			e.Summary = tree.Summary{Entries: 1<<64 - 1, Files: 1<<64 - 1, Bytes: 1<<64 - 1}
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"a tree that doubles 60 times": func(t *testing.T, w *workspace) {
			e := w.directory(t)
			for range 60 {
				x, y := e, e
				x.Name, y.Name = "x", "y"
				e = w.directory(t, x, y)
			}
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"3,000 directories": func(t *testing.T, w *workspace) {
			e := w.within(t, w.directory(t), 3000)
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
		"a name that goes up":         named(".."),
		"an absolute name":            named("/etc"),
		"a name with a slash":         named("a/b"),
		"a name with NUL":             named("a\x00"),
		"no name":                     named(""),
		"more entries than there are": raw("CDR1\x00\xff\xff\xff\xff\x0f"),
		"an encrypted directory":      raw("CDR1\x80\x00"),
		"a table of links that is none": func(t *testing.T, w *workspace) {
			w.object(tree.Chunk, []byte(text))
			e := w.directory(t)
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}, Links: fileOf(text).Content})
		},
		"a link, and a file beneath its name": func(t *testing.T, w *workspace) {
			link := tree.AppendEntry(nil, &tree.Entry{Name: "x", Type: tree.Symlink, Mode: 0o777, Target: "/"})
			sub := w.directory(t, tree.Entry{Name: "f", Type: tree.File, Mode: 0o644})
			sub.Name = "x"
			e := w.directory(t)
			b := append([]byte("CDR1\x00\x02"), link...)
			e.Dir, e.Summary = w.object(tree.Dir, tree.AppendEntry(b, &sub)), tree.Summary{Entries: 3, Files: 1}
			w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		},
	}
	token := s.threadToken("t")
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		w := new(workspace)
		cases[name](t, w)
		upload := fmt.Sprint("u", i)
		if a := s.do("POST", threadPath("t", "blobs?upload="+upload), token, w.stream()); a.status != http.StatusOK {
			t.Errorf("%s: sent: %d %s", name, a.status, a.body)
			continue
		}
		a := s.do("POST", threadPath("t", "checkpoints"), token, map[string]any{"root": w.root.String(), "upload": upload, "onto": "head"})
		if a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	var page api.CheckpointPage
	s.want(http.StatusOK, "GET", threadPath("t", "checkpoints"), token, nil, &page)
	if len(page.Checkpoints) != 0 {
		t.Errorf("%+v", page)
	}
}

// TestDepthAddsUp puts a tree that the thread knows into others, until it would be
// deeper than any may be.
func TestDepthAddsUp(t *testing.T) {
	s := newStack(t)
	w := new(workspace)
	e := w.within(t, w.directory(t), 1500)
	w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
	s.capture("t", w)
	x := new(workspace)
	e = x.within(t, e, 1500)
	x.top(t, &tree.Tree{Roots: []tree.Entry{e}})
	token := s.threadToken("t")
	s.want(http.StatusOK, "POST", threadPath("t", "blobs?upload=v"), token, x.stream(), nil)
	s.refused(http.StatusBadRequest, api.InvalidObject, "POST", threadPath("t", "checkpoints"), token,
		map[string]any{"root": x.root.String(), "upload": "v", "onto": "head"})
	// A known chunk is as long as it was, too.
	text := "known"
	y := newWorkspace(t, map[string]string{"f": text})
	s.capture("t", y)
	z := new(workspace)
	f := fileOf(text)
	f.Content.Size++
	e = z.directory(t, f)
	z.top(t, &tree.Tree{Roots: []tree.Entry{e}})
	s.want(http.StatusOK, "POST", threadPath("t", "blobs?upload=w"), token, z.stream(), nil)
	s.refused(http.StatusBadRequest, api.InvalidObject, "POST", threadPath("t", "checkpoints"), token,
		map[string]any{"root": z.root.String(), "upload": "w", "onto": "head"})
}

// TestManifestSizes names blobs with sizes that they do not have, which stores of
// manifests do not compare: what is given is what is stored.
func TestManifestSizes(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	text := "hello"
	for _, text := range []string{text, ""} {
		s.want(http.StatusOK, "PUT", "/api/blobs/sandbox-files/sha256/"+tree.Sum([]byte(text)).String(), token, text, nil)
	}
	file := func(path, text string, size int) any {
		return map[string]any{"path": path, "kind": "file", "size": size, "blobKey": "sandbox-files/sha256/" + tree.Sum([]byte(text)).String()}
	}
	files := []any{file("long", text, 2), file("none", text, 0), file("empty", "", 7)}
	for i := range 3000 { // more bytes than 64 bits count
		files = append(files, file(fmt.Sprintf("f%d", i), text, 1<<53-1))
	}
	s.want(http.StatusCreated, "POST", threadPath("t", "manifests"), token, map[string]any{"expectedHeadId": nil, "checkpoint": map[string]any{
		"id": "m", "threadId": "t", "parentCheckpointId": nil, "createdAt": 1, "reason": "automatic", "artifacts": []any{}, "files": files,
	}}, nil)
	var got api.Checkpoint
	s.want(http.StatusOK, "GET", "/api/checkpoints/m", token, nil, &got)
	if got.Stats.Bytes != math.MaxInt64 {
		t.Errorf("%+v", got.Stats)
	}
	for path, want := range map[string]string{"f0": text, "long": text, "none": text, "empty": ""} {
		if a := s.do("GET", "/api/checkpoints/m/files/"+path, token, nil); a.status != http.StatusOK || string(a.body) != want {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	a := s.do("GET", "/api/checkpoints/m/archive?format=tar", token, nil)
	n := 0
	for r := tar.NewReader(bytes.NewReader(a.body)); ; n++ {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if want := map[bool]string{true: "", false: text}[h.Name == "empty"]; err != nil || string(b) != want {
			t.Errorf("%s: %q %v", h.Name, b, err)
		}
	}
	if n != len(files) {
		t.Errorf("%d entries, want %d", n, len(files))
	}
}

// TestExtremeArchive packs what an archive may have at most, and not what has longer
// paths.
func TestExtremeArchive(t *testing.T) {
	s := newStack(t)
	w := new(workspace)
	w.object(tree.Chunk, []byte("x"))
	f := fileOf("x")
	f.Xattrs = []tree.Xattr{{Name: "user.a=b", Value: "left out"}, {Name: "user.z", Value: "\x00\n=\xff"}}
	var entries []tree.Entry
	for i, sec := range []int64{math.MinInt64, -1 << 40, -1, 0, 1 << 40, math.MaxInt64} {
		f.Name, f.Mtime = fmt.Sprint(i, strings.Repeat("\xff\n", 120)), tree.Time{Sec: sec, Nsec: 999_999_999}
		entries = append(entries, f)
	}
	entries = append(entries, tree.Entry{Name: "link", Type: tree.Symlink, Mode: 0o777, Target: "/" + strings.Repeat("../", 1000) + "etc", Mtime: f.Mtime})
	bottom := w.directory(t, entries...)
	token := s.threadToken("t")
	nested := func(levels int) string {
		e := bottom
		for range levels {
			e.Name = strings.Repeat("d", 250)
			e = w.directory(t, e)
		}
		e.Name = "w"
		w.top(t, &tree.Tree{Roots: []tree.Entry{e}})
		return s.capture("t", w).Checkpoint.ID
	}
	deepest := nested(2000)
	s.refused(http.StatusRequestEntityTooLarge, api.TooLarge, "GET", "/api/checkpoints/"+deepest+"/archive?format=tar.zst", token, nil)
	var page api.EntryPage
	s.want(http.StatusOK, "GET", "/api/checkpoints/"+deepest+"/manifest", token, nil, &page)
	if n := len(page.Entries); page.HasMore || n != 18 || !page.Entries[n-1].Deep || page.Entries[n-2].Deep {
		t.Errorf("%d entries, the last of which is deep", n)
	}
	id := nested(16)
	var diff api.CheckpointDiff
	s.want(http.StatusOK, "GET", "/api/checkpoints/"+id+"/diff?base="+deepest, token, nil, &diff)
	if n := len(diff.Changes); n == 0 || n > 19+len(entries) {
		t.Errorf("%d changes", n)
	}
	if a := s.do("GET", "/api/checkpoints/"+id+"/manifest?limit=3", token, nil); a.status != http.StatusOK {
		t.Errorf("%d %.200s", a.status, a.body)
	}
	a := s.do("GET", "/api/checkpoints/"+id+"/archive?format=tar.zst", token, nil)
	d, err := zstd.NewReader(bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n := 0
	for r := tar.NewReader(d); ; n++ {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("after %d entries: %v", n, err)
		}
	}
	if want := 16 + 1 + len(entries); a.status != http.StatusOK || n != want {
		t.Errorf("%d, %d entries, want %d", a.status, n, want)
	}
}

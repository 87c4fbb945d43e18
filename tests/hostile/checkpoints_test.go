package hostile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/frame"
	ctree "github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/tests/harness"
)

// thread is a thread of a server, for somebody who sends what no client makes.
type thread struct {
	t     *testing.T
	s     *harness.Server
	name  string
	token string
	buf   []byte // frames that are not sent yet
}

func newThread(t *testing.T, s *harness.Server, name string) *thread {
	return &thread{t: t, s: s, name: name, token: s.Token(harness.Grant{Thread: name})}
}

func (h *thread) ask(method, path string, body io.Reader) harness.Answer {
	h.t.Helper()
	return request(h.t, h.s, method, path, h.token, nil, body)
}

func (h *thread) path(rest string) string {
	return "/api/threads/" + url.PathEscape(h.name) + "/" + rest
}

// put sends an object, with others.
func (h *thread) put(kind ctree.Kind, b []byte) ctree.Digest {
	h.t.Helper()
	d := ctree.Sum(b)
	if h.buf = frame.Append(h.buf, ctree.Object{Kind: kind, Digest: d, Bytes: b}); len(h.buf) > 4<<20 {
		h.send()
	}
	return d
}

func (h *thread) send() {
	h.t.Helper()
	if a := h.ask("POST", h.path("blobs?upload=u"), bytes.NewReader(h.buf)); a.Status != http.StatusOK {
		h.t.Fatalf("objects: %d %s", a.Status, a.Body)
	}
	h.buf = h.buf[:0]
}

// dir sends a directory and returns its entry.
func (h *thread) dir(name string, entries ...ctree.Entry) ctree.Entry {
	h.t.Helper()
	b := ctree.Builder{Emit: func(o ctree.Object) error {
		h.put(o.Kind, o.Bytes)
		return nil
	}}
	for i := range entries {
		if err := b.Add(&entries[i]); err != nil {
			h.t.Fatal(err)
		}
	}
	d, paged, sum, err := b.Finish()
	if err != nil {
		h.t.Fatal(err)
	}
	return ctree.Entry{Name: name, Type: ctree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}
}

// append appends a tree whose only root is top.
func (h *thread) append(id string, top ctree.Entry) harness.Answer {
	h.t.Helper()
	top.Name = "w"
	root, err := ctree.EncodeRoot(&ctree.Tree{Roots: []ctree.Entry{top}})
	if err != nil {
		h.t.Fatal(err)
	}
	d := h.put(ctree.Root, root)
	h.send()
	return h.ask("POST", h.path("checkpoints"), strings.NewReader(fmt.Sprintf(`{"id":%q,"root":%q,"upload":"u","onto":"head"}`, id, d)))
}

// bulk is files whose entries take mib MiB, and next to nothing when compressed.
func bulk(mib int) (list []ctree.Entry) {
	for i := range 4 * mib {
		e := ctree.Entry{Name: fmt.Sprintf("z%d", i), Type: ctree.File, Mode: 0o644}
		for k := range 4 {
			e.Xattrs = append(e.Xattrs, ctree.Xattr{Name: fmt.Sprintf("user.%d", k), Value: strings.Repeat("\x00", 60<<10)})
		}
		list = append(list, e)
	}
	return list
}

// TestHostileCheckpoints saves trees that take little to send and much to hold, and
// reads them in every way. Memory stays bounded.
func TestHostileCheckpoints(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	last := peak(t, s)
	within := func(what string) {
		t.Helper()
		now := peak(t, s)
		t.Logf("%s: %d KiB, %d before", what, now, last)
		if last = now; now > memoryLimit {
			t.Fatalf("%s: the server took %d KiB, more than %d", what, now, memoryLimit)
		}
	}
	h := newThread(t, s, "hostile")
	deep := func(last string, depth int) ctree.Entry {
		e := h.dir("a", ctree.Entry{Name: last, Type: ctree.Symlink, Mode: 0o777, Target: "x"})
		for range depth {
			e = h.dir("a", append([]ctree.Entry{{Name: "0", Type: ctree.Symlink, Mode: 0o777, Target: "target"}, e}, bulk(1)...)...)
		}
		return e
	}
	const depth = 300
	for i, last := range []string{"one", "two"} {
		if a := h.append(fmt.Sprintf("deep-%d", i), deep(last, depth-i)); a.Status != http.StatusCreated {
			t.Fatalf("append: %d %s", a.Status, a.Body)
		}
	}
	within("deep directories that take much")
	for _, path := range []string{"manifest?limit=10000", "manifest?limit=10000&path=w/a/a/a", "diff?base=deep-0&limit=10000", "archive?format=tar.zst", "files/w/a/a/a/z1"} {
		a := h.ask("GET", "/api/checkpoints/deep-1/"+path, nil)
		if a.Status != http.StatusOK {
			t.Errorf("%s: %d %.300s", path, a.Status, a.Body)
		}
		if strings.Contains(path, "limit") && len(a.Body) > 16<<20 {
			t.Errorf("%s: a page of %d bytes", path, len(a.Body))
		}
		within(path)
	}
	if a := h.append("some", deep("some", 40)); a.Status != http.StatusCreated {
		t.Fatalf("append: %d %s", a.Status, a.Body)
	}
	h.all("some", 2+6*40)

	long := strings.Repeat("n", 255)
	wide := []ctree.Entry{}
	for i := range 4000 {
		wide = append(wide, h.dir(fmt.Sprintf("%s%04d", long[:251], i)))
	}
	chain := h.dir(long, wide...)
	for range 2000 {
		chain = h.dir(long, chain)
	}
	if a := h.append("long", chain); a.Status != http.StatusCreated {
		t.Fatalf("append: %d %s", a.Status, a.Body)
	}
	for _, path := range []string{"manifest?limit=10000", "diff?base=deep-0&limit=10000"} {
		if a := h.ask("GET", "/api/checkpoints/long/"+path, nil); a.Status != http.StatusOK || len(a.Body) > 16<<20 {
			t.Errorf("%s: %d, %d bytes", path, a.Status, len(a.Body))
		}
	}
	within("long paths")

	for _, member := range []string{`"run":"%s"`, `"git":{"repo":"%s"}`, `"git":{"repo":"r","branch":"%s"}`, `"git":{"repo":"r","commit":"%s"}`, `"label":"%s"`, `"id":"%s"`, `"reason":"%s"`} {
		body := fmt.Sprintf(`{"root":%q,"onto":"head","always":true,%s}`, ctree.Sum(nil), fmt.Sprintf(member, strings.Repeat("x", 8<<20)))
		if a := h.ask("POST", h.path("checkpoints"), strings.NewReader(body)); a.Status/100 != 4 || len(a.Body) > 64<<10 {
			t.Errorf("%s: %d %.300s", member, a.Status, a.Body)
		}
	}
	for what, files := range map[string]string{
		"nothing": strings.Repeat("{},", 10<<20) + "{}", "lists": strings.Repeat("[],", 10<<20) + "[]", "depth": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		body := `{"expectedHeadId":null,"checkpoint":{"id":"m","threadId":"hostile","createdAt":1,"conversation":[],"artifacts":[],"files":[` + files + `]}}`
		if a := h.ask("POST", h.path("manifests"), strings.NewReader(body)); a.Status/100 != 4 {
			t.Errorf("%s: %d %.300s", what, a.Status, a.Body)
		}
		within("a manifest of " + what)
	}

	many := []ctree.Entry{}
	for i := range 20_000 {
		many = append(many, h.dir(fmt.Sprintf("%05d", i), ctree.Entry{Name: fmt.Sprint(i), Type: ctree.File, Mode: 0o644}))
	}
	once := h.dir("a", many...)
	dag := h.dir("b")
	for range 60 {
		dag = h.dir("b", once, dag)
	}
	if a := h.append("many", dag); a.Status != http.StatusBadRequest {
		t.Errorf("a directory at many depths: %d %s", a.Status, a.Body)
	}
	twice := h.dir("a")
	for range 60 {
		again := twice
		again.Name = "b"
		twice = h.dir("a", twice, again) // the same directory by two names
	}
	if a := h.append("doubling", twice); a.Status != http.StatusBadRequest {
		t.Errorf("directories that double: %d %s", a.Status, a.Body)
	}
	// A checkpoint may have half a million directories that are new: their keys are held.
	if now := peak(t, s); now > 3*memoryLimit {
		t.Errorf("directories at many depths: the server took %d KiB, more than %d", now, 3*memoryLimit)
	} else {
		t.Logf("directories at many depths: %d KiB", now)
	}
}

// all pages through the entries of a checkpoint.
func (h *thread) all(id string, want int) {
	h.t.Helper()
	n, cursor := 0, ""
	for {
		var page struct {
			Entries    []json.RawMessage `json:"entries"`
			NextCursor string            `json:"next_cursor"`
		}
		a := h.ask("GET", "/api/checkpoints/"+id+"/manifest?limit=10000&cursor="+url.QueryEscape(cursor), nil)
		if err := json.Unmarshal(a.Body, &page); err != nil {
			h.t.Fatalf("%d %.300s: %v", a.Status, a.Body, err)
		}
		n += len(page.Entries)
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if n != want {
		h.t.Errorf("%d entries in all pages, want %d", n, want)
	}
}

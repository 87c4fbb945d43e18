package rest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/tree"
)

// hideThread makes a thread that nobody else may see, and returns what names
// something of it.
func (s *stack) hideThread(token, thread, word string, elsewhere bool) []secretValue {
	s.t.Helper()
	w := makeWorkspace(map[string]string{word + ".txt": word + " text of " + thread})
	id := word + "-point"
	s.want(http.StatusOK, "POST", threadPath(thread, "blobs?upload="+word), token, w.stream(), nil)
	s.want(http.StatusCreated, "POST", threadPath(thread, "checkpoints"), token,
		map[string]any{"id": id, "root": w.root.String(), "upload": word, "onto": "head", "label": word, "conversation": []any{word}}, nil)
	s.want(http.StatusOK, "POST", threadPath(thread, "blobs?upload="+word), token, w.stream(), nil)
	blob := word + " blob of " + thread
	sum := tree.Sum([]byte(blob))
	s.want(http.StatusOK, "PUT", "/api/blobs/sandbox-files/sha256/"+sum.String(), token, blob, nil)
	never := func(what string) string { d := tree.Sum([]byte(thread + " never had " + what)); return d.String() }
	x := strings.Repeat("x", len(word))
	values := []secretValue{
		{foreign: thread, absent: strings.Replace(thread, word, x, 1)},
		{foreign: id, absent: x + "-point"},
		{foreign: word, absent: x},
		{foreign: sum.String(), absent: never("blob")},
		{foreign: w.root.String(), absent: never("root")},
	}
	for _, o := range w.objects {
		values = append(values, secretValue{foreign: o.Digest.String(), absent: never(o.Digest.String())})
	}
	for i := range values {
		values[i].elsewhere = elsewhere
	}
	return values
}

// TestThreadIsolation puts the names of what is another thread's, or another org's,
// and names of nothing in every place of every request about threads. What is
// foreign is answered as what is not there. The id of a new checkpoint is apart:
// ids are unique in an org.
func TestThreadIsolation(t *testing.T) {
	for _, r := range routes() {
		if !r.ofThread() {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var s *stack
			var values []secretValue
			begin := func() {
				s = newStack(t)
				populate(s)
				other := newKey(t)
				s.org("globex", other)
				outsider := s.mint(other, auth.Claims{Org: "globex", Thread: outside + "/1", Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite}})
				values = append(s.hideThread(s.threadToken(hidden+"/1"), hidden+"/1", hidden, false), s.hideThread(outsider, outside+"/1", outside, true)...)
			}
			begin()
			token := func() string { return s.threadFull(someThread, populated) }
			template := "/api/" + r.path
			reads := r.method == http.MethodGet || r.method == http.MethodHead
			q := samples[r.name][0]
			for i := range s.slots(r, template, q) {
				slot := s.slots(r, template, q)[i]
				if slot.name == "body id" {
					continue
				}
				d := tree.Sum([]byte("nothing"))
				path, body := slot.put(d.String())
				if any := s.do(r.method, path, token(), body); any.status < 300 && !reads {
					begin()
					continue
				}
				for _, v := range values {
					s.compare(r, template, slot, v, token(), false)
				}
			}
		})
	}
}

// TestThreadKnowsItsOwn names digests of another thread in every way in which
// objects are asked for, sent for and appended.
func TestThreadKnowsItsOwn(t *testing.T) {
	s := newStack(t)
	secret := makeWorkspace(map[string]string{"secret": "the other's text", "dir/more": "more of it"})
	s.capture("theirs", secret)
	token := s.threadToken("mine")
	var all []string
	for _, o := range secret.objects {
		all = append(all, o.Digest.String())
	}
	var missing api.MissingList
	s.want(http.StatusOK, "POST", threadPath("mine", "blobs/missing"), token, map[string]any{"digests": all}, &missing)
	if len(missing.Missing) != len(all) {
		t.Errorf("%d of %d are missing", len(missing.Missing), len(all))
	}
	for _, d := range all {
		s.refused(http.StatusNotFound, api.MissingObject, "POST", threadPath("mine", "blobs/get"), token, map[string]any{"digests": []string{d}})
		s.refused(http.StatusNotFound, api.MissingObject, "GET", "/api/blobs/sandbox-files/sha256/"+d, token, nil)
	}
	s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("mine", "checkpoints"), token, map[string]any{"root": secret.root.String(), "onto": "head"})

	// The bytes of a directory of theirs, known here as those of a file, do not make
	// what it names known.
	var dir tree.Object
	for _, o := range secret.objects {
		if o.Kind == tree.Dir {
			dir = o // the last is the top
		}
	}
	s.capture("mine", makeWorkspace(map[string]string{"copy": string(dir.Bytes)}))
	entries, err := tree.DecodeDir(dir.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	top := tree.Entry{Name: "w", Type: tree.Directory, Mode: 0o755, Dir: dir.Digest}
	for i := range entries {
		c := entries[i].Counts()
		top.Summary = tree.Summary{Entries: top.Summary.Entries + c.Entries, Files: top.Summary.Files + c.Files, Bytes: top.Summary.Bytes + c.Bytes}
	}
	b, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}})
	if err != nil {
		t.Fatal(err)
	}
	forged := &workspace{root: tree.Sum(b), objects: []tree.Object{{Kind: tree.Root, Digest: tree.Sum(b), Bytes: b}}}
	s.want(http.StatusOK, "POST", threadPath("mine", "blobs?upload=f"), token, forged.stream(), nil)
	e := s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("mine", "checkpoints"), token,
		map[string]any{"root": forged.root.String(), "upload": "f", "onto": "head"})
	if e.SnapshotRefusal == nil || len(e.Missing) == 0 {
		t.Errorf("%+v", e)
	}
	// Who has sent the bytes has what they name.
	s.capture("mine", secret)
	if a := s.do("POST", threadPath("mine", "blobs/get"), token, map[string]any{"digests": all}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestThreadCursors gives every list the cursors of the others, and damaged ones.
func TestThreadCursors(t *testing.T) {
	s := newStack(t)
	populate(s)
	s.capture("work/2", firstTree)
	s.want(http.StatusCreated, "POST", threadPath(someThread, "manifests"), s.threadFull(someThread, populated), samples["checkpoints.append_manifest"][0].body, nil)
	var lists []string
	cursors := map[string]string{}
	for _, r := range routes() {
		if _, paged := r.op.request.FieldByName("Cursor"); !paged || !r.ofThread() {
			continue
		}
		path := r.paths(populated)[0]
		if r.name == "checkpoints.diff" {
			path = strings.Replace(path, firstPoint, headPoint, 1)
		}
		lists = append(lists, path)
		var page struct {
			NextCursor string `json:"next_cursor"`
		}
		s.want(http.StatusOK, "GET", path+"?limit=1", s.threadFull("*", populated), nil, &page)
		if page.NextCursor == "" && r.name != "references.list" { // there is one key
			t.Fatalf("%s has one page", r.name)
		}
		cursors[path] = page.NextCursor
	}
	for _, path := range lists {
		for from, cursor := range cursors {
			if from == path || cursor == "" {
				continue
			}
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?cursor="+url.QueryEscape(cursor), s.threadFull("*", populated), nil)
		}
		for _, bad := range []string{"x", "cA", strings.Repeat("A", 100_000), "%00", "é"} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?cursor="+url.QueryEscape(bad), s.threadFull("*", populated), nil)
		}
	}
}

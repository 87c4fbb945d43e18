package rest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/tree/treetest"
)

// threadToken mints a token for a thread.
func (s *stack) threadToken(thread string, scopes ...auth.Scope) string {
	if scopes == nil {
		scopes = []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite}
	}
	return s.mint(s.key, auth.Claims{Org: "acme", Thread: thread, Scopes: scopes})
}

func threadPath(name, rest string) string {
	return strings.TrimSuffix("/api/threads/"+url.PathEscape(name)+"/"+rest, "/")
}

// workspace is a tree of objects with one root called "w".
type workspace struct {
	root    tree.Digest
	objects []tree.Object
}

// newWorkspace makes a tree of files by path; a path without names beneath is a
// file.
func newWorkspace(tb testing.TB, files map[string]string) *workspace {
	tb.Helper()
	return makeWorkspace(files)
}

// makeWorkspace is newWorkspace without a test.
func makeWorkspace(files map[string]string) *workspace {
	root, objects := treetest.Workspace(files)
	return &workspace{root: root, objects: objects}
}

// stream is the frames of all objects.
func (w *workspace) stream() string {
	var b []byte
	for _, o := range w.objects {
		b = frame.Append(b, o)
	}
	return string(b)
}

// capture sends a workspace and appends it onto whatever the head is.
func (s *stack) capture(thread string, w *workspace) api.AppendedCheckpoint {
	s.t.Helper()
	token := s.threadToken(thread)
	s.want(http.StatusOK, "POST", threadPath(thread, "blobs?upload=u"), token, w.stream(), nil)
	var done api.AppendedCheckpoint
	s.want(http.StatusCreated, "POST", threadPath(thread, "checkpoints"), token,
		map[string]any{"root": w.root.String(), "upload": "u", "onto": "head"}, &done)
	return done
}

func TestAppendNative(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	w := newWorkspace(t, map[string]string{"a": "alpha", "dir/b": "beta", "empty": ""})
	digests := make([]string, len(w.objects))
	for i, o := range w.objects {
		digests[i] = o.Digest.String()
	}
	var missing api.MissingList
	s.want(http.StatusOK, "POST", threadPath("t", "blobs/missing"), token, map[string]any{"digests": digests}, &missing)
	if !slices.Equal(missing.Missing, digests) {
		t.Errorf("missing %v of %v", missing.Missing, digests)
	}
	body := func(more map[string]any) map[string]any {
		b := map[string]any{"root": w.root.String(), "expected_head": nil}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	e := s.refused(http.StatusConflict, api.MissingObject, "POST", threadPath("t", "checkpoints"), token, body(nil))
	if e.SnapshotRefusal == nil || !slices.Equal(e.Missing, []string{w.root.String()}) {
		t.Errorf("%+v", e)
	}
	s.want(http.StatusOK, "POST", threadPath("t", "blobs?upload=u1"), token, w.stream(), nil)
	s.want(http.StatusOK, "POST", threadPath("t", "blobs/missing"), token, map[string]any{"digests": digests, "upload": "u1"}, &missing)
	if len(missing.Missing) != 0 {
		t.Errorf("missing %v after they were sent", missing.Missing)
	}
	s.refused(http.StatusBadRequest, api.Invalid, "POST", threadPath("t", "checkpoints"), token, map[string]any{"root": w.root.String(), "upload": "u1"})
	var first api.AppendedCheckpoint
	s.want(http.StatusCreated, "POST", threadPath("t", "checkpoints"), token,
		body(map[string]any{"upload": "u1", "id": "one", "label": "l", "conversation": []any{"hello"}, "git": map[string]any{"repo": "r"}}), &first)
	if first.Head != "one" || first.Checkpoint.Root != w.root.String() || first.Checkpoint.Stats.Files != 3 || first.Checkpoint.Stats.Bytes != 9 ||
		first.Checkpoint.Reason != "named" || first.Checkpoint.Kind != "native" || first.Unchanged {
		t.Errorf("%+v", first)
	}
	// The same tree again is not appended, unless it has to be.
	var again api.AppendedCheckpoint
	onto := body(map[string]any{"expected_head": "one", "conversation": []any{"hello"}})
	s.want(http.StatusOK, "POST", threadPath("t", "checkpoints"), token, onto, &again)
	if !again.Unchanged || again.Checkpoint.ID != "one" {
		t.Errorf("%+v", again)
	}
	onto["always"] = true
	s.want(http.StatusCreated, "POST", threadPath("t", "checkpoints"), token, onto, &again)
	if again.Unchanged || again.Checkpoint.Parent != "one" {
		t.Errorf("%+v", again)
	}
	e = s.refused(http.StatusConflict, api.StaleHead, "POST", threadPath("t", "checkpoints"), token, body(map[string]any{"expected_head": "one", "always": true}))
	if e.SnapshotRefusal == nil || e.Head != again.Head {
		t.Errorf("%+v", e)
	}
	s.refused(http.StatusConflict, api.DuplicateID, "POST", threadPath("t", "checkpoints"), token, body(map[string]any{"expected_head": "x", "id": "one"}))

	s.objectsComeLast(token, again.Head)
	var pruned api.PrunedThread
	s.want(http.StatusOK, "POST", threadPath("t", "prune"), token, map[string]any{"label": "l", "dry_run": true}, &pruned)
	if !slices.Equal(pruned.Deleted, []string{"one"}) || pruned.Kept != 1 || !pruned.DryRun {
		t.Errorf("pruned by label: %+v", pruned)
	}
	for _, rule := range []map[string]any{{}, {"label": ""}, {"keep_last": -1}, {"older_than_seconds": -1}} {
		s.refused(http.StatusBadRequest, api.Invalid, "POST", threadPath("t", "prune"), token, rule)
	}

	var got api.Checkpoint
	s.want(http.StatusOK, "GET", "/api/checkpoints/one?manifests=true", token, nil, &got)
	if string(got.Conversation) != `["hello"]` || got.Git == nil || got.Git.Repo != "r" {
		t.Errorf("%+v", got)
	}
	var page api.CheckpointPage
	s.want(http.StatusOK, "GET", threadPath("t", "checkpoints?order=asc&limit=1"), token, nil, &page)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].ID != "one" || !page.HasMore || page.Head != again.Head {
		t.Errorf("%+v", page)
	}
	s.want(http.StatusOK, "GET", threadPath("t", "checkpoints?order=asc&cursor="+page.NextCursor), token, nil, &page)
	if len(page.Checkpoints) != 1 || page.Checkpoints[0].ID != again.Head || page.HasMore {
		t.Errorf("%+v", page)
	}
	var row api.Thread
	s.want(http.StatusOK, "GET", threadPath("t", ""), token, nil, &row)
	if row.Head != again.Head || row.Checkpoints != 2 || row.Busy || row.Bytes == 0 {
		t.Errorf("%+v", row)
	}
	// What was sent comes back.
	a := s.do("POST", threadPath("t", "blobs/get"), token, map[string]any{"digests": digests})
	r := frame.NewReader(bytes.NewReader(a.body))
	for range digests {
		if o, err := r.Next(); err != nil || !slices.Contains(digests, o.Digest.String()) {
			t.Fatalf("%v %v", o, err)
		}
	}
}

// objectsComeLast appends what names objects that nobody sent: every other reason for
// a refusal is told before that.
func (s *stack) objectsComeLast(token, head string) {
	s.t.Helper()
	try := func(status int, code api.Code, more map[string]any) {
		s.t.Helper()
		native := map[string]any{"root": strings.Repeat("ab", 32), "expected_head": head}
		maps.Copy(native, more)
		s.refused(status, code, "POST", threadPath("t", "checkpoints"), token, native)
		cp := map[string]any{
			"id": "new", "threadId": "t", "parentCheckpointId": head, "createdAt": 1, "reason": "automatic", "conversation": []any{}, "artifacts": []any{},
			"files": []any{map[string]any{"path": "a", "kind": "file", "blobKey": "sandbox-files/sha256/" + strings.Repeat("ab", 32), "size": 1}},
		}
		manifest := map[string]any{"checkpoint": cp, "expectedHeadId": native["expected_head"]}
		if id, ok := more["id"]; ok {
			cp["id"] = id
		}
		if lease, ok := more["lease"].(map[string]any); ok {
			manifest["writer"] = map[string]any{"threadId": "t", "ownerToken": lease["owner_token"], "fence": lease["fence"]}
		}
		s.refused(status, code, "POST", threadPath("t", "manifests"), token, manifest)
	}
	lost := map[string]any{"owner_token": "nobody's", "fence": 1}
	try(http.StatusConflict, api.MissingObject, nil)
	try(http.StatusConflict, api.WriterLost, map[string]any{"lease": lost})
	try(http.StatusConflict, api.WriterLost, map[string]any{"lease": lost, "id": "one"})
	try(http.StatusConflict, api.DuplicateID, map[string]any{"id": "one"})
	try(http.StatusConflict, api.StaleHead, map[string]any{"expected_head": "one"})
	var l api.Lease
	s.want(http.StatusCreated, "POST", threadPath("t", "lease"), token, nil, &l)
	try(http.StatusConflict, api.WriterConflict, nil)
	s.want(http.StatusOK, "DELETE", threadPath("t", "lease"), token, map[string]any{"owner_token": l.OwnerToken, "fence": l.Fence}, nil)
}

func TestLeaseRoutes(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("a/b c")
	path := threadPath("a/b c", "lease")
	var l, again api.Lease
	s.want(http.StatusCreated, "POST", path, token, nil, &l)
	if l.Fence != 1 || l.RenewAfterMS != 45000 || l.ThreadID != "a/b c" || len(l.OwnerToken) < 32 {
		t.Errorf("%+v", l)
	}
	s.refused(http.StatusConflict, api.WriterConflict, "POST", path, token, nil)
	proof := map[string]any{"owner_token": l.OwnerToken, "fence": l.Fence}
	s.want(http.StatusOK, "POST", path+"/renew", token, proof, &again)
	if again.OwnerToken != l.OwnerToken || again.ExpiresAt < l.ExpiresAt {
		t.Errorf("%+v of %+v", again, l)
	}
	s.refused(http.StatusConflict, api.WriterLost, "POST", path+"/renew", token, map[string]any{"owner_token": "x", "fence": 1})
	s.refused(http.StatusBadRequest, api.Invalid, "POST", path, token, map[string]any{"duration_ms": 1})
	s.want(http.StatusOK, "DELETE", path, token, proof, nil)
	s.want(http.StatusOK, "DELETE", path, token, proof, nil)
	a := s.do("POST", path, token, nil, "Idempotency-Key", "k")
	b := s.do("POST", path, token, nil, "Idempotency-Key", "k")
	a.json(t, &l)
	b.json(t, &again)
	if a.status != 201 || b.status != 201 || l.OwnerToken != again.OwnerToken || l.Fence != 2 || again.Fence != 2 {
		t.Errorf("sent twice: %d %+v, %d %+v", a.status, l, b.status, again)
	}
}

func TestManifests(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	var l api.Lease
	s.want(http.StatusCreated, "POST", threadPath("t", "lease"), token, nil, &l)
	text := "hello"
	sum := tree.Sum([]byte(text)).String()
	key := "sandbox-files/sha256/" + sum
	checkpoint := func(id string, more map[string]any) map[string]any {
		c := map[string]any{
			"id": id, "threadId": "t", "parentCheckpointId": nil, "createdAt": 12.5, "reason": "automatic",
			"files":        []any{map[string]any{"path": "a/b", "kind": "file", "blobKey": key, "size": 5}, map[string]any{"path": "d", "kind": "dir"}},
			"conversation": []any{map[string]any{"role": "user", "content": "<b>"}}, "artifacts": []any{}, "extra": map[string]any{"n": 1},
		}
		for k, v := range more {
			c[k] = v
		}
		return c
	}
	send := func(c map[string]any, expected any) map[string]any {
		return map[string]any{"checkpoint": c, "expectedHeadId": expected, "writer": map[string]any{"threadId": "t", "ownerToken": l.OwnerToken, "fence": l.Fence}}
	}
	path := threadPath("t", "manifests")
	e := s.refused(http.StatusConflict, api.MissingObject, "POST", path, token, send(checkpoint("one", nil), nil))
	if e.SnapshotRefusal == nil || !slices.Equal(e.Missing, []string{sum}) {
		t.Errorf("%+v", e)
	}
	s.refused(http.StatusBadRequest, api.InvalidObject, "PUT", "/api/blobs/"+key, token, "hullo")
	if a := s.do("HEAD", "/api/blobs/"+key, token, nil); a.status != 404 {
		t.Errorf("before it is put: %d", a.status)
	}
	var stored api.StoredBlob
	s.want(http.StatusOK, "PUT", "/api/blobs/"+key, token, text, &stored)
	if stored.Key != key || stored.Size != 5 {
		t.Errorf("%+v", stored)
	}
	if a := s.do("GET", "/api/blobs/"+key, token, nil, "Range", "bytes=1-2"); a.status != 206 || string(a.body) != "el" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := s.do("GET", "/api/blobs/"+key, s.threadToken("other"), nil); a.status != 404 {
		t.Errorf("by another thread: %d", a.status)
	}
	var done api.AppendedCheckpoint
	s.want(http.StatusCreated, "POST", path, token, send(checkpoint("one", nil), nil), &done)
	if done.Head != "one" || done.Checkpoint.Kind != "manifest" || done.Checkpoint.CreatedAtMS != 12.5 || done.Checkpoint.Stats.Entries != 2 {
		t.Errorf("%+v", done)
	}
	var got api.Checkpoint
	s.want(http.StatusOK, "GET", "/api/checkpoints/one?manifests=true", token, nil, &got)
	var is, want any
	wanted, err := json.Marshal(checkpoint("one", nil))
	if err != nil || json.Unmarshal(wanted, &want) != nil || json.Unmarshal(got.Manifest, &is) != nil || fmt.Sprint(is) != fmt.Sprint(want) {
		t.Errorf("%s, want %s", got.Manifest, wanted)
	}
	s.want(http.StatusCreated, "POST", path, token, send(checkpoint("two", map[string]any{"parentCheckpointId": "one"}), "one"), &done)
	var refs api.ReferencePage
	s.want(http.StatusOK, "GET", "/api/blobs/references", token, nil, &refs)
	if len(refs.References) != 1 || refs.References[0] != (api.BlobReference{Key: key, References: 2}) {
		t.Errorf("%+v", refs)
	}
	// A fork has the files and says of itself what it is.
	var fork api.Checkpoint
	all := s.threadToken("*")
	s.want(http.StatusCreated, "POST", "/api/checkpoints/one/fork", all, map[string]any{"thread": "f", "id": "f1", "created_at_ms": 99}, &fork)
	if fork.Source == nil || fork.Source.Checkpoint != "one" || fork.Source.Thread != "t" || fork.Reason != "fork-root" {
		t.Errorf("%+v", fork)
	}
	s.want(http.StatusOK, "GET", "/api/checkpoints/f1?manifests=true", s.threadToken("f"), nil, &got)
	if !strings.Contains(string(got.Manifest), `"fork-root"`) || got.Source.Thread != "" {
		t.Errorf("%s %+v", got.Manifest, got.Source)
	}
	if a := s.do("GET", "/api/blobs/"+key, s.threadToken("f"), nil); a.status != 200 || string(a.body) != text {
		t.Errorf("by the fork: %d %q", a.status, a.body)
	}
	s.refused(http.StatusConflict, api.WriterLost, "DELETE", threadPath("t", "head"), token,
		map[string]any{"checkpointId": "two", "writer": map[string]any{"threadId": "t", "ownerToken": "x", "fence": l.Fence}})
	var deleted api.DeletedCheckpoint
	s.want(http.StatusOK, "DELETE", threadPath("t", "head"), token,
		map[string]any{"checkpointId": "two", "writer": map[string]any{"threadId": "t", "ownerToken": l.OwnerToken, "fence": l.Fence}}, &deleted)
	if deleted.Head != "one" {
		t.Errorf("%+v", deleted)
	}
}

func TestCheckpointFiles(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	files := map[string]string{"a": "alpha", "b/c/d": "delta", "b/e": strings.Repeat("e", 3<<20), "b.x": "x", "empty": ""}
	for i := range 1500 {
		files[fmt.Sprintf("many/%04d", i)] = fmt.Sprint(i)
	}
	one := s.capture("t", newWorkspace(t, files)).Checkpoint.ID
	delete(files, "a")
	files["b/c/d"], files["new/file"] = "other", "n"
	two := s.capture("t", newWorkspace(t, files)).Checkpoint.ID

	var paths []string
	cursor := ""
	for {
		var page api.EntryPage
		s.want(http.StatusOK, "GET", "/api/checkpoints/"+two+"/manifest?limit=400&cursor="+cursor, token, nil, &page)
		for _, e := range page.Entries {
			paths = append(paths, e.Path)
		}
		if cursor = page.NextCursor; !page.HasMore {
			if !slices.Equal(page.Roots, []string{"w"}) {
				t.Errorf("roots %v", page.Roots)
			}
			break
		}
	}
	if len(paths) != 1500+10 || paths[0] != "w" || !slices.IsSortedFunc(paths, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	}) {
		t.Errorf("%d paths: %v", len(paths), paths[:10])
	}
	var page api.EntryPage
	s.want(http.StatusOK, "GET", "/api/checkpoints/"+two+"/manifest?path=w/b", token, nil, &page)
	if len(page.Entries) != 3 || page.Entries[2].Path != "w/b/e" || page.Entries[2].Size != 3<<20 || page.Entries[2].SHA256 != tree.Sum([]byte(files["b/e"])).String() {
		t.Errorf("%+v", page)
	}
	if a := s.do("GET", "/api/checkpoints/"+one+"/files/w/a", token, nil); a.status != 200 || string(a.body) != "alpha" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := s.do("GET", "/api/checkpoints/"+two+"/files/w/b/e", token, nil, "Range", "bytes=-3"); a.status != 206 || string(a.body) != "eee" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := s.do("GET", "/api/checkpoints/"+two+"/files/w/empty", token, nil); a.status != 200 || len(a.body) != 0 {
		t.Errorf("%d %q", a.status, a.body)
	}
	for _, path := range []string{"w/a", "w/b", "x", "w/a/b", ".."} {
		s.refused(http.StatusNotFound, api.NotFound, "GET", "/api/checkpoints/"+two+"/files/"+path, token, nil)
	}
	changes := map[string]string{}
	for cursor := ""; ; {
		var diff api.CheckpointDiff
		s.want(http.StatusOK, "GET", "/api/checkpoints/"+two+"/diff?limit=2&cursor="+cursor, token, nil, &diff)
		for _, c := range diff.Changes {
			changes[c.Path] = c.Change
		}
		if cursor = diff.NextCursor; !diff.HasMore {
			if diff.Base != one {
				t.Errorf("base %q", diff.Base)
			}
			break
		}
	}
	if fmt.Sprint(changes) != "map[w:modified w/a:removed w/b:modified w/b/c:modified w/b/c/d:modified w/new:added]" {
		t.Errorf("%v", changes)
	}
	for format, open := range map[string]func(io.Reader) io.Reader{
		"tar":     func(r io.Reader) io.Reader { return r },
		"tar.gz":  func(r io.Reader) io.Reader { return must(gzip.NewReader(r))(t) },
		"tar.zst": func(r io.Reader) io.Reader { return must(zstd.NewReader(r))(t) },
	} {
		a := s.do("GET", "/api/checkpoints/"+two+"/archive?format="+format, token, nil)
		if again := s.do("GET", "/api/checkpoints/"+two+"/archive?format="+format, token, nil); !bytes.Equal(again.body, a.body) {
			t.Errorf("%s: two archives of one checkpoint differ", format)
		}
		if a.status != 200 {
			t.Fatalf("%s: %d %.200s", format, a.status, a.body)
		}
		got := map[string]string{}
		for r := tar.NewReader(open(bytes.NewReader(a.body))); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(format, err)
			}
			data := must(io.ReadAll(r))(t)
			if h.Typeflag == tar.TypeReg {
				got[strings.TrimPrefix(h.Name, "w/")] = string(data)
			}
		}
		if !maps.Equal(got, files) {
			t.Errorf("%s: %d files, want %d", format, len(got), len(files))
		}
	}
	a := s.do("GET", "/api/checkpoints/"+two+"/archive?format=tar&path=w/b/c/d", token, nil)
	if h, err := tar.NewReader(bytes.NewReader(a.body)).Next(); err != nil || h.Name != "w/b/c/d" {
		t.Errorf("%+v %v", h, err)
	}
	s.refused(http.StatusNotFound, api.NotFound, "GET", "/api/checkpoints/"+two+"/archive?path=w/none", token, nil)
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/checkpoints/"+two+"/archive?format=zip", token, nil)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
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
	w := new(workspace)
	emit := func(o tree.Object) error {
		o.Bytes = bytes.Clone(o.Bytes)
		w.objects = append(w.objects, o)
		return nil
	}
	var dir func(prefix string) tree.Entry
	dir = func(prefix string) tree.Entry {
		names := map[string]bool{}
		for path := range files {
			if rest, ok := strings.CutPrefix(path, prefix); ok {
				name, _, _ := strings.Cut(rest, "/")
				names[name] = true
			}
		}
		b := tree.Builder{Emit: emit}
		sorted := make([]string, 0, len(names))
		for name := range names {
			sorted = append(sorted, name)
		}
		slices.Sort(sorted)
		for _, name := range sorted {
			e := tree.Entry{Name: name, Type: tree.File, Mode: 0o644}
			if text, ok := files[prefix+name]; ok {
				e.Content = tree.Content{Size: uint64(len(text))}
				if text != "" {
					e.Content.Digest = tree.Sum([]byte(text))
					e.Content.Sum = e.Content.Digest
					_ = emit(tree.Object{Kind: tree.Chunk, Digest: e.Content.Digest, Bytes: []byte(text)})
				}
			} else {
				e = dir(prefix + name + "/")
				e.Name = name
			}
			if err := b.Add(&e); err != nil {
				tb.Fatal(err)
			}
		}
		d, paged, sum, err := b.Finish()
		if err != nil {
			tb.Fatal(err)
		}
		return tree.Entry{Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}
	}
	top := dir("")
	top.Name = "w"
	data, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}})
	if err != nil {
		tb.Fatal(err)
	}
	w.root = tree.Sum(data)
	_ = emit(tree.Object{Kind: tree.Root, Digest: w.root, Bytes: data})
	return w
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

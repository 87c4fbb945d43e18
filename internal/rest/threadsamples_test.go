package rest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// The thread that populate makes: two checkpoints of workspaces, the second one
// pinned, and a blob.
const (
	someThread = "work/1"
	firstPoint = "point-1"
	headPoint  = "point-2"
	someBlob   = "a blob"
)

var (
	firstTree = makeWorkspace(map[string]string{"a": "alpha", "d/b": "beta"})
	headTree  = makeWorkspace(map[string]string{"a": "changed", "d/b": "beta"})
	nextTree  = makeWorkspace(map[string]string{"a": "next"})
	blobSum   = tree.Sum([]byte(someBlob)).String()
)

func init() {
	digest := firstTree.objects[0].Digest.String()
	for name, list := range map[string][]sample{
		"threads.list":   {{}, {query: "limit=1&prefix=work"}},
		"threads.get":    {{}},
		"threads.delete": {{}},
		"threads.prune":  {{body: `{"keep_last":1}`}, {body: `{"older_than_seconds":0,"label":"none","dry_run":true}`}},
		"leases.acquire": {{}, {body: `{"duration_ms":5000}`}},
		"leases.renew":   {{body: `{"owner_token":"{owner}","fence":{fence}}`}},
		"leases.release": {{body: `{"owner_token":"{owner}","fence":{fence}}`}},
		"checkpoints.append": {
			{body: map[string]any{"root": nextTree.root.String(), "upload": "next", "onto": "head", "label": "l"}},
			{body: map[string]any{"root": firstTree.root.String(), "expected_head": headPoint, "conversation": []any{"hello"}}},
		},
		"checkpoints.append_manifest": {{body: `{"expectedHeadId":"` + headPoint + `","checkpoint":{"id":"m","threadId":"` + someThread + `","parentCheckpointId":"` + headPoint +
			`","createdAt":1,"reason":"named","label":"l","files":[{"path":"b","kind":"file","blobKey":"sandbox-files/sha256/` + blobSum + `","size":6}],"conversation":[],"artifacts":[]}}`}},
		"checkpoints.list":        {{}, {query: "order=asc&limit=1&manifests=true&label=l"}},
		"checkpoints.delete_head": {{body: `{"checkpointId":"` + headPoint + `","writer":{"threadId":"` + someThread + `","ownerToken":"{owner}","fence":{fence}}}`}},
		"checkpoints.get":         {{}, {query: "manifests=true"}},
		"checkpoints.delete":      {{}},
		"checkpoints.fork":        {{body: `{"thread":"` + someThread + `-fork","id":"fork-1"}`}},
		"checkpoints.pin":         {{}},
		"checkpoints.unpin":       {{}},
		"checkpoints.entries":     {{}, {query: "path=w/d&limit=1"}},
		"checkpoints.file":        {{}},
		"checkpoints.file_head":   {{}},
		"checkpoints.diff":        {{}, {query: "base=" + headPoint + "&limit=1"}},
		"checkpoints.archive":     {{}, {query: "format=tar&path=w/d"}},
		"checkpoints.promote":     {{body: `{"repo":"` + populated + `","branch":"promoted","message":"m"}`}},
		"checkpoints.from_commit": {{body: `{"repo":"` + populated + `","ref":"main","onto":"head"}`}},
		"objects.missing":         {{body: map[string]any{"digests": []string{digest}, "upload": "next"}}},
		"objects.put":             {{query: "upload=other", body: nextTree.stream()}},
		"objects.get":             {{body: map[string]any{"digests": []string{digest}}}},
		"blobs.get":               {{}},
		"blobs.head":              {{}},
		"blobs.put":               {{body: someBlob}},
		"artifacts.get":           {{}},
		"artifacts.head":          {{}},
		"artifacts.put":           {{body: someBlob}},
		"references.list":         {{}, {query: "limit=1"}},
	} {
		samples[name] = list
	}
	for _, name := range []string{
		"leases.acquire", "leases.renew", "leases.release", "objects.missing", "objects.put", "objects.get", "blobs.put", "artifacts.put",
	} {
		unkept[name] = "asked for again it does the same"
	}
}

// ofThread reports whether a route is about threads.
func (r *route) ofThread() bool {
	return !slices.ContainsFunc(r.access.scopes, func(s auth.Scope) bool { return !strings.HasPrefix(string(s), "checkpoint:") })
}

// threadFull mints a token that may do everything with a thread and a repository.
func (s *stack) threadFull(thread, repo string) string {
	return s.both(thread, repo, auth.CheckpointRead, auth.CheckpointWrite, auth.GitRead, auth.GitWrite)
}

// tokenFor mints a token for a route of a thread.
func (r *route) tokenFor(s *stack) string {
	if r.name == "checkpoints.fork" {
		return s.threadFull("*", populated)
	}
	return s.threadFull(someThread, populated)
}

// populateThread makes the thread of the samples.
func populateThread(s *stack) {
	s.t.Helper()
	token := s.threadFull(someThread, populated)
	for i, w := range []*workspace{firstTree, headTree} {
		s.want(http.StatusOK, "POST", threadPath(someThread, "blobs?upload=u"), token, w.stream(), nil)
		s.want(http.StatusCreated, "POST", threadPath(someThread, "checkpoints"), token,
			map[string]any{"id": []string{firstPoint, headPoint}[i], "root": w.root.String(), "upload": "u", "onto": "head", "label": "l"}, nil)
	}
	s.want(http.StatusOK, "POST", threadPath(someThread, "blobs?upload=next"), token, nextTree.stream(), nil)
	s.want(http.StatusOK, "PUT", "/api/blobs/sandbox-files/sha256/"+blobSum, token, someBlob, nil)
	s.owner, s.fence = "nobody", "0"
}

// lease has the stack hold the lease of its thread, for the routes that need it.
func (s *stack) lease(r *route) {
	s.t.Helper()
	if r.name != "leases.renew" && r.name != "checkpoints.delete_head" {
		return
	}
	var l api.Lease
	s.want(http.StatusCreated, "POST", threadPath(someThread, "lease"), s.threadFull(someThread, populated), nil, &l)
	s.owner, s.fence = l.OwnerToken, "3"
	if l.Fence != 3 {
		s.t.Fatalf("the fence is %d", l.Fence)
	}
}

// threadState is all of threads that writes could change.
func (s *stack) threadState(org meta.OrgID) (out []any) {
	s.t.Helper()
	threads, err := s.meta.ListThreads(s.t.Context(), meta.ThreadQuery{Org: org, Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, t := range threads {
		list, err := s.meta.Checkpoints(s.t.Context(), meta.CheckpointQuery{Org: org, Thread: t.Name, Limit: 1000})
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, t, list)
	}
	return out
}

package clients_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// step is one call as a client of one generation makes it. Paths are escaped as the
// client escapes them, query and body have its vocabulary.
type step struct {
	name   string // the Go client's method
	method string
	path   string // below the generation's prefix, with its query
	scopes []auth.Scope
	claim  string // the token's repository when it is not the one replayed
	body   string // "" for none
	lines  []string

	status  int
	commits bool // its refusals have to carry the result of a commit
	// keys must be there and not null, as a path of keys and list positions; both
	// vocabularies at once.
	keys  string
	check func(t *testing.T, a harness.Answer)
}

// generation is how clients of one time address the API.
type generation struct {
	name, prefix string
	repo         string // prefix of a repository's resources
	legacy       bool
}

var generations = []generation{
	{name: "G1", prefix: "/api/v1/", repo: "repos", legacy: true},
	{name: "G2", prefix: "/api/", repo: "repos/owner%2Fname"},
}

// replayed is the repository of the replay; it has a slash.
const replayed = "owner/name"

// TestReplayGo makes every call of the Go client, of both generations, in the order
// of a workflow. The client itself is not published: the calls are those of its
// route-contract tests.
func TestReplayGo(t *testing.T) {
	host := upstream(t)
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			r := newReplay(t, g, harness.Serve(t, harness.Options{Args: []string{"--allow-host", host, "--upstream-plain", host}}), host)
			r.repositories()
			r.writing()
			r.reading()
			r.refs()
			r.merging()
			r.end()
			r.complete()
		})
	}
}

// replay replays the calls of one generation.
type replay struct {
	t      *testing.T
	g      generation
	s      *harness.Server
	client *http.Client
	host   string // of an upstream

	first, tip string          // commits of main
	routes     map[string]bool // of the contract, as method and path
	made       map[string]bool // of routes, those that were called
}

func newReplay(t *testing.T, g generation, s *harness.Server, host string) *replay {
	client := s.HTTP()
	t.Cleanup(client.CloseIdleConnections)
	return &replay{t: t, g: g, s: s, client: client, host: host, routes: g.contractRoutes(t), made: map[string]bool{}}
}

var (
	read   = []auth.Scope{auth.GitRead}
	write  = []auth.Scope{auth.GitWrite}
	own    = []auth.Scope{auth.RepoWrite}
	ofOrg  = []auth.Scope{auth.OrgRead}
	both   = []auth.Scope{auth.GitRead, auth.GitWrite}
	idName = map[bool]string{true: "expected_head_sha", false: "expected_target_sha"}
)

// pick returns what the generation says.
func (r *replay) pick(legacy, standard string) string {
	if r.g.legacy {
		return legacy
	}
	return standard
}

func (r *replay) send(s step, token string) harness.Answer {
	r.t.Helper()
	body := []byte(s.body)
	header := http.Header{"Code-Storage-Agent": {"code-storage-go-sdk/1.17.1"}}
	if s.lines != nil {
		body = []byte(strings.Join(s.lines, "\n") + "\n")
		header.Set("Content-Type", "application/x-ndjson")
	} else if s.body != "" {
		header.Set("Content-Type", "application/json")
	}
	a, err := r.s.DoWith(r.client, s.method, s.path, token, body, header)
	if err != nil {
		r.t.Fatalf("%s: %v", s.name, err)
	}
	return a
}

// do makes a call, and before it the same call with tokens that must be refused.
func (r *replay) do(s step) (a harness.Answer) {
	r.t.Helper()
	r.t.Run(s.name, func(t *testing.T) { a = r.call(t, s) })
	return a
}

func (r *replay) call(t *testing.T, s step) harness.Answer {
	path, _, _ := strings.Cut(s.path, "?")
	call := s.method + " " + described(r.g.prefix+path)
	if !r.routes[call] {
		t.Fatalf("the server describes no route %s", call)
	}
	r.made[call] = true
	s.path = r.g.prefix + s.path
	if s.claim == "" {
		s.claim = replayed
	}
	for _, refused := range []struct {
		what, token string
		status      int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"a token without the scope", r.s.Token(harness.Grant{Repo: s.claim, Scopes: []auth.Scope{"other:read"}}), http.StatusForbidden},
		{"a token of another repository", r.s.Token(harness.Grant{Repo: "owner/other", Scopes: s.scopes}), http.StatusNotFound},
	} {
		if refused.status == http.StatusNotFound && (strings.HasPrefix(s.name, "CreateRepo") || slices.Equal(s.scopes, ofOrg)) {
			continue // no repository is asked
		}
		s.refused(t, refused.what, r.send(s, refused.token), refused.status)
	}
	a := r.send(s, r.s.Token(harness.Grant{Repo: s.claim, Scopes: s.scopes}))
	if a.Status != s.status {
		t.Fatalf("%s %s: %d, want %d: %s", s.method, s.path, a.Status, s.status, a.Body)
	}
	if strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		decodes(t, a.Body)
	}
	for key := range strings.FieldsSeq(s.keys) {
		if at(a, key) == nil {
			t.Errorf("%s is not in %s", key, a.Body)
		}
	}
	if s.check != nil {
		s.check(t, a)
	}
	return a
}

// times are the members that are times; clients read whole seconds in UTC.
var times = []string{"created_at", "date", "author_time", "committer_time"}

// decodes checks what every client's decoder asks of any answer: integers, whole
// seconds, and no null.
func decodes(t *testing.T, body []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var answer any
	if err := dec.Decode(&answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, v := range x {
				walk(k, v)
			}
		case []any:
			for _, v := range x {
				walk(name, v)
			}
		case json.Number:
			if _, err := x.Int64(); err != nil {
				t.Errorf("%s is %s, not an integer", name, x)
			}
		case string:
			if at, err := time.Parse("2006-01-02T15:04:05Z", x); slices.Contains(times, name) && (err != nil || at.IsZero()) {
				t.Errorf("%s is %q", name, x)
			}
		case nil:
			t.Errorf("%s is null in %s", name, body)
		}
	}
	walk("the answer", answer)
}

// refused checks the shape of a refusal: APIError, or RefUpdateError for what makes
// commits.
func (s step) refused(t *testing.T, what string, a harness.Answer, status int) {
	t.Helper()
	if a.Status != status {
		t.Errorf("with %s: %d, want %d: %s", what, a.Status, status, a.Body)
		return
	}
	if s.method == http.MethodHead {
		if len(a.Body) != 0 {
			t.Errorf("with %s: a body", what)
		}
		return
	}
	if a.Header.Get("Content-Type") != "application/json" || a.Text("error") == "" || a.JSON("status") != float64(status) || a.Text("code") == "" {
		t.Errorf("with %s: %v %s", what, a.Header, a.Body)
	}
	labels := map[int]string{401: "unauthorized", 403: "forbidden", 404: "not_found"}
	if s.commits && (a.JSON("result", "success") != false || a.Text("result", "status") != labels[status] || a.Text("result", "message") == "") {
		t.Errorf("with %s: the result of %s", what, a.Body)
	}
}

// at returns what a path such as commits.0.sha names in an answer, nil for none.
func at(a harness.Answer, path string) any {
	var v any
	if json.Unmarshal(a.Body, &v) != nil {
		return nil
	}
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			i := 0
			if _, err := fmt.Sscan(key, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// is checks members of an answer: pairs of a path and its value.
func is(pairs ...any) func(*testing.T, harness.Answer) {
	return func(t *testing.T, a harness.Answer) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			want := pairs[i+1]
			if n, ok := want.(int); ok {
				want = float64(n)
			}
			if got := at(a, pairs[i].(string)); got != want {
				t.Errorf("%s is %v, want %v, in %s", pairs[i], got, want, a.Body)
			}
		}
	}
}

func (r *replay) repositories() {
	r.do(step{name: "CreateRepo", method: "POST", path: "repos", scopes: own, status: 201, keys: "repo_id repo_name http_url message",
		check: is("repo_name", replayed)})
	r.do(step{name: "CreateRepo (default branch)", method: "POST", path: "repos", scopes: own, claim: "owner/second", body: `{"default_branch":"trunk"}`, status: 201, keys: "repo_id"})
	source := r.s.Token(harness.Grant{Repo: replayed, Scopes: read})
	r.do(step{name: "CreateRepo (fork)", method: "POST", path: "repos", scopes: own, claim: "owner/fork", status: 201, keys: "repo_id",
		body: `{"base_repo":{"provider":"code","owner":"acme","name":"owner/name","operation":"fork","auth":{"token":"` + source + `"}}}`})
	r.do(step{name: "CreateRepo (sync)", method: "POST", path: "repos", scopes: own, claim: "owner/mirror", status: 201, keys: "repo_id",
		body: `{"base_repo":{"provider":"gitea","owner":"team","name":"app","operation":"sync","upstream_host":"` + r.host + `"},"default_branch":"trunk"}`})
	r.do(step{name: "CreateRepo (snapshot of nothing)", method: "POST", path: "repos", scopes: own, claim: "owner/snapshot", status: 404,
		body: snapshot(source)})
	r.do(step{name: "ListRepos", method: "GET", path: "repos?limit=1&q=name", scopes: ofOrg, claim: "org", status: 200,
		keys: "repos.0.repo_id repos.0.url repos.0.repo_name repos.0.default_branch repos.0.created_at has_more"})
	found := r.do(step{name: "FindOne", method: "GET", path: r.pick("repo", "repos/owner%2Fname"), scopes: read, status: 200,
		keys: "repo_id url repo_name created_at", check: is("default_branch", "main", "url", replayed)})
	if !r.g.legacy {
		r.do(step{name: "repo-urls", method: "GET", path: "repo-urls/" + found.Text("repo_id"), scopes: ofOrg, claim: "org", status: 200})
	}
	created := r.do(step{name: "CreateGitCredential", method: "POST", path: r.pick("repos/git-credentials", "repos/owner%2Fname/git-credentials"), scopes: own, status: 201, keys: "id",
		body: r.pick(`{"repo_id":"owner/name","username":"u","password":"p"}`, `{"username":"u","password":"p"}`)})
	id := created.Text("id")
	item := "repos/owner%2Fname/git-credentials/" + id
	claim := r.pick("org", replayed)
	r.do(step{name: "UpdateGitCredential", method: "PUT", path: r.pick("repos/git-credentials", item), scopes: own, claim: claim, status: 200, keys: "created_at",
		body: r.pick(`{"id":"`+id+`","password":"q"}`, `{"username":"v","password":"q"}`), check: is("id", id)})
	r.do(step{name: "DeleteGitCredential", method: "DELETE", path: r.pick("repos/git-credentials", item), scopes: own, claim: claim, status: 200,
		body: r.pick(`{"id":"`+id+`"}`, "")})
}

// pack returns the lines of a commit-pack call: the metadata, and one file.
func (r *replay) pack(metadata, path, content string) []string {
	return []string{
		`{"metadata":{` + metadata + `,"author":{"name":"a","email":"a@example.com"},"files":[{"path":"` + path + `","content_id":"c","operation":"upsert","mode":"100644"}]}}`,
		`{"blob_chunk":{"content_id":"c","data":"` + base64.StdEncoding.EncodeToString([]byte(content)) + `","eof":true}}`,
	}
}

// snapshot asks for a repository with one commit, which holds the tree of a commit of
// the replayed one.
func snapshot(token string) string {
	return `{"base_repo":{"provider":"code.storage","owner":"acme","name":"owner/name","operation":"snapshot","ref":"main~1","auth":{"token":"` + token + `"}},"initial_commit":{"message":"begin","author":{"name":"a","email":"e@x"}}}`
}

// acked are the members that the answer to a commit has.
const acked = "commit.commit_sha commit.tree_sha commit.pack_bytes commit.blob_count result.new_sha"

func (r *replay) writing() {
	pack := func(name, metadata, path, content string, check func(*testing.T, harness.Answer)) string {
		return r.do(step{name: name, method: "POST", path: r.g.repo + "/commit-pack", scopes: write, lines: r.pack(metadata, path, content), status: 201, commits: true, keys: acked, check: check}).Text("commit", "commit_sha")
	}
	r.first = pack("CreateCommit", `"target_branch":"main","commit_message":"one"`, "a.txt", "one\n",
		is("result.branch", "main", "result.target_branch", "main", "result.old_sha", strings.Repeat("0", 40), "result.success", true, "result.status", "ok", "commit.target_branch", "main", "commit.blob_count", 1))
	r.tip = pack("CreateCommit (expected)", `"target_branch":"main","commit_message":"two","`+idName[r.g.legacy]+`":"`+r.first+`"`, "a.txt", "two\n", is("result.old_sha", r.first))
	pack("CreateCommit (ephemeral)", `"target_branch":"s","base_branch":"main","commit_message":"s","`+r.pick("ephemeral", "target_is_ephemeral")+`":true`, "s.txt", "s\n", nil)
	pack("CreateCommit (ephemeral base)", `"target_branch":"s2","base_branch":"s","commit_message":"s","`+r.pick("ephemeral_base", "base_is_ephemeral")+`":true`, "s2.txt", "s\n", nil)

	stale := step{name: "CreateCommit (stale)", method: "POST", path: r.g.prefix + r.g.repo + "/commit-pack", scopes: write,
		lines: r.pack(`"target_branch":"main","commit_message":"x","`+idName[r.g.legacy]+`":"`+r.first+`"`, "a.txt", "x\n")}
	a := r.send(stale, r.s.Token(harness.Grant{Repo: replayed, Scopes: write}))
	if a.Status != http.StatusConflict || a.Text("result", "status") != "precondition_failed" || a.Text("result", "old_sha") != r.tip || a.Text("error") == "" {
		r.t.Errorf("a stale commit: %d %s", a.Status, a.Body)
	}
	r.do(step{name: "RestoreCommit", method: "POST", path: r.g.repo + "/restore-commit", scopes: write, status: 201, commits: true, keys: "commit.commit_sha commit.tree_sha commit.pack_bytes result.new_sha",
		body:  `{"metadata":{"target_branch":"main","author":{"name":"a","email":"e@x"},"` + r.pick("target_commit_sha", "base_ref") + `":"` + r.first + `","` + idName[r.g.legacy] + `":"` + r.tip + `"}}`,
		check: is("result.success", true, "result.old_sha", r.tip, "result.branch", "main", "result.target_branch", "main", "commit.target_branch", "main")})
	r.do(step{name: "reset-commits", method: "POST", path: r.g.repo + "/reset-commits", scopes: write, status: 201, commits: true, keys: "commit.commit_sha",
		body: `{"metadata":{"target_branch":"main","author":{"name":"a","email":"e@x"},"` + r.pick("target_commit_sha", "base_ref") + `":"` + r.pick(r.tip, "HEAD~1") + `"}}`})
	pack("CreateCommit (again)", `"target_branch":"main","commit_message":"last"`, "d.txt", "d\n", nil)
	r.tip = r.do(step{name: "ListCommits", method: "GET", path: r.g.repo + "/commits?" + r.pick("branch", "ref") + "=main&limit=1", scopes: read, status: 200,
		keys:  "commits.0.sha commits.0.parent_shas commits.0.author_name commits.0.author_email commits.0.committer_name commits.0.committer_email commits.0.date has_more next_cursor",
		check: is("commits.0.message", "last", "has_more", true)}).JSON("commits").([]any)[0].(map[string]any)["sha"].(string)
}

func (r *replay) reading() {
	headers := func(t *testing.T, a harness.Answer) {
		t.Helper()
		if sha := a.Header.Get("X-Blob-Sha"); a.Header.Get("Etag") != `"`+sha+`"` || a.Header.Get("X-Last-Commit-Sha") == "" || a.Header.Get("Content-Length") != "4" || a.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("headers %v", a.Header)
		}
	}
	r.do(step{name: "FileStream", method: "GET", path: r.g.repo + "/file?path=a.txt&ref=main", scopes: read, status: 200, check: headers})
	r.do(step{name: "HeadFile", method: "HEAD", path: r.g.repo + "/file?path=a.txt", scopes: read, status: 200, check: headers})
	archive := func(t *testing.T, a harness.Answer) {
		t.Helper()
		if !bytes.HasPrefix(a.Body, []byte{0x1f, 0x8b}) || a.Header.Get("Content-Type") != "application/gzip" {
			t.Errorf("archive %v", a.Header)
		}
	}
	r.do(step{name: "ArchiveStream", method: "POST", path: r.g.repo + "/archive", scopes: read, status: 200, check: archive})
	r.do(step{name: "ArchiveStream (filters)", method: "POST", path: r.g.repo + "/archive", scopes: read, status: 200, check: archive,
		body: `{"ref":"main","include_globs":["*.txt"],"exclude_globs":["d*"],"max_blob_size":100,"archive":{"prefix":"p/"}}`})
	r.do(step{name: "archive (GET)", method: "GET", path: r.g.repo + "/archive?ref=main", scopes: read, status: 200, check: archive})
	r.do(step{name: "ListFiles", method: "GET", path: r.g.repo + "/files?ref=main&limit=1", scopes: read, status: 200, keys: "has_more next_cursor",
		check: is("paths.0", "a.txt", "ref", "main", "entries.0.path", "a.txt", "entries.0.type", "blob", "entries.0.mode", "100644")})
	r.do(step{name: "ListFilesWithMetadata", method: "GET", path: r.g.repo + "/files/metadata?ref=s&ephemeral=true", scopes: read, status: 200,
		keys: "files.0.last_commit_sha commits ref has_more", check: is("files.0.path", "a.txt", "files.0.size", 4, "files.0.mode", "100644")})
	r.do(step{name: "GetCommit", method: "GET", path: r.g.repo + "/commit?" + r.pick("sha", "ref") + "=" + r.tip, scopes: read, status: 200, keys: "commit.parent_shas.0 commit.date", check: is("commit.sha", r.tip)})
	diff := "stats.files stats.additions stats.deletions stats.changes files filtered_files files.0.path files.0.state files.0.raw files.0.bytes files.0.is_eof"
	r.do(step{name: "CommitDiff", method: "GET", path: r.g.repo + "/diff?" + r.pick("sha="+r.tip+"&baseSha="+r.first+"&gitApplyCompatible=true", "ref="+r.tip+"&base_ref="+r.first+"&git_apply_compatible=true") + "&path=d.txt", scopes: read, status: 200,
		keys: "sha base_sha " + diff, check: is("files.0.path", "d.txt", "files.0.state", "A")})
	r.do(step{name: "BranchDiff", method: "GET", path: r.g.repo + "/branches/diff?branch=s&ephemeral=true&base=main", scopes: read, status: 200,
		keys: "branch base merge_base_sha " + diff, check: is("files.0.path", "s.txt")})
	r.do(step{name: "Grep", method: "POST", path: r.g.repo + "/grep", scopes: read, status: 200, keys: "repo.ref repo.commit has_more",
		body:  `{"query":{"pattern":"tw.","case_sensitive":true},"` + r.pick("rev", "ref") + `":"main","file_filters":{},"context":{},"limits":{},"pagination":{}}`,
		check: is("query.pattern", "tw.", "matches.0.path", "a.txt", "matches.0.lines.0.line_number", 1, "matches.0.lines.0.type", "match")})
	r.do(step{name: "Blame", method: "GET", path: r.g.repo + "/blame?path=a.txt&ref=main&range=1,1&detect_moves=true", scopes: read, status: 200,
		keys: "ref path commit_sha lines.0.commit_sha lines.0.author_name lines.0.author_email lines.0.author_time lines.0.committer_name lines.0.committer_email lines.0.committer_time lines.0.summary", check: is("lines.0.line_number", 1, "lines.0.original_line_number", 1, "lines.0.original_path", "a.txt")})
}

func (r *replay) refs() {
	r.do(step{name: "ListBranches", method: "GET", path: r.g.repo + "/branches?cursor=&limit=1&ephemeral=true", scopes: read, status: 200,
		keys: "branches.0.cursor branches.0.head_sha branches.0.created_at", check: is("branches.0.name", "s", "has_more", false)})
	r.do(step{name: "GetBranch", method: "GET", path: r.g.repo + "/branch?name=s&ephemeral=true", scopes: read, status: 200, keys: "branch.head_sha branch.created_at", check: is("branch.name", "s")})
	r.do(step{name: "CreateBranch", method: "POST", path: r.g.repo + "/branches/create", scopes: write, status: 200, keys: "message commit_sha",
		body: `{"target_branch":"release/1","` + r.pick("base_branch", "base_ref") + `":"main"}`, check: is("target_branch", "release/1", "target_is_ephemeral", false)})
	r.do(step{name: "DeleteBranch", method: "DELETE", path: r.g.repo + "/branches", scopes: write, status: 200, keys: "message",
		body: `{"` + r.pick("name", "target_branch") + `":"release/1"}`, check: is("name", "release/1", "target_branch", "release/1", "ephemeral", false)})
	r.do(step{name: "CreateTag", method: "POST", path: r.g.repo + "/tags", scopes: write, status: 200, keys: "message",
		body: r.pick(`{"name":"release/v1","target":"`+r.tip+`"}`, `{"name":"release/v1","ref":"main"}`), check: is("name", "release/v1", "sha", r.tip)})
	r.do(step{name: "ListTags", method: "GET", path: r.g.repo + "/tags", scopes: read, status: 200, keys: "tags.0.cursor", check: is("tags.0.name", "release/v1", "tags.0.sha", r.tip, "has_more", false)})
	r.do(step{name: "GetTag", method: "GET", path: r.g.repo + "/tag?name=release%2Fv1", scopes: read, status: 200, check: is("tag.name", "release/v1", "tag.sha", r.tip)})
	r.do(step{name: "DeleteTag", method: "DELETE", path: r.pick(r.g.repo+"/tags", r.g.repo+"/tags/release%2Fv1"), scopes: both, status: 200, keys: "message",
		body: r.pick(`{"name":"release/v1"}`, ""), check: is("name", "release/v1")})
	object, ref := r.pick(`"sha":"`+r.tip+`"`, `"object_ref":"main"`), `"`+r.pick("ref", "notes_ref")+`":"reviews"`
	note := func(name, body string) string {
		return r.do(step{name: name, method: "POST", path: r.g.repo + "/notes", scopes: write, status: 200, keys: "new_ref_sha", body: body,
			check: is("sha", r.tip, "target_ref", "refs/notes/reviews", "notes_ref", "refs/notes/reviews", "result.success", true, "result.status", "ok")}).Text("new_ref_sha")
	}
	note("CreateNote", `{`+object+`,"action":"add","note":"text",`+ref+`,"author":{"name":"a","email":"e@x"}}`)
	tip := note("AppendNote", `{`+object+`,"action":"append","note":"more",`+ref+`}`)
	r.do(step{name: "GetNote", method: "GET", path: r.g.repo + "/notes?" + r.pick("sha="+r.tip+"&ref=reviews", "object_ref=main&notes_ref=reviews"), scopes: read, status: 200,
		check: is("sha", r.tip, "note", "text\n\nmore", "ref_sha", tip)})
	r.do(step{name: "ListNotesRefs", method: "GET", path: r.g.repo + "/notes/refs?prefix=rev", scopes: read, status: 200, keys: "refs.0.cursor",
		check: is("refs.0.ref", "refs/notes/reviews", "refs.0.sha", tip, "prefix", "refs/notes/rev", "has_more", false)})
	guard := `"` + r.pick("expected_ref_sha", "expected_notes_ref_sha") + `"`
	a := r.send(step{name: "DeleteNote (stale)", method: "DELETE", path: r.g.prefix + r.g.repo + "/notes", body: `{` + object + `,` + ref + `,` + guard + `:"` + r.tip + `"}`}, r.s.Token(harness.Grant{Repo: replayed, Scopes: write}))
	if a.Status != http.StatusConflict || a.JSON("error") != nil || a.Text("sha") != r.tip || a.Text("result", "status") != "precondition_failed" {
		r.t.Errorf("a stale note: %d %s", a.Status, a.Body)
	}
	r.do(step{name: "DeleteNote", method: "DELETE", path: r.g.repo + "/notes", scopes: write, status: 200, keys: "new_ref_sha", body: `{` + object + `,` + ref + `,` + guard + `:"` + tip + `"}`,
		check: is("base_commit", tip, "result.success", true)})
}

func (r *replay) merging() {
	r.do(step{name: "PreviewMerge", method: "GET", path: r.g.repo + "/merge/preview?source_branch=s&source_is_ephemeral=true&target_branch=main&include_content=true", scopes: read, status: 200,
		keys: "source_tip_sha merge_base_sha conflict_paths conflicts filtered_conflicts", check: is("status", "clean", "result", "merge_commit", "source_branch", "s", "target_branch", "main", "target_tip_sha", r.tip)})
	r.do(step{name: "Merge", method: "POST", path: r.g.repo + "/merge", scopes: write, status: 200, keys: "commit_sha tree_sha source.sha target.new_sha merge_base_sha",
		body:  `{"` + r.pick("source_branch", "source_ref") + `":"s","source_is_ephemeral":true,"target_branch":"main","target_is_ephemeral":false,"strategy":"merge","expected_target_sha":"` + r.tip + `"}`,
		check: is("result", "merge_commit", "source.branch", "s", "source.ref", "s", "source.ephemeral", true, "target.branch", "main", "target.ephemeral", false, "target.old_sha", r.tip, "promoted_commits", 2)})
	patch := "diff --git a/e.txt b/e.txt\nnew file mode 100644\n--- /dev/null\n+++ b/e.txt\n@@ -0,0 +1 @@\n+e\n"
	r.do(step{name: "CreateCommitFromDiff", method: "POST", path: r.g.repo + "/diff-commit", scopes: write, status: 201, commits: true, keys: acked, check: is("commit.blob_count", 1),
		lines: []string{`{"metadata":{"target_branch":"main","commit_message":"patch","author":{"name":"a","email":"e@x"}}}`,
			`{"diff_chunk":{"data":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `","eof":true}}`}})
}

func (r *replay) end() {
	r.do(step{name: "CreateRepo (snapshot)", method: "POST", path: "repos", scopes: own, claim: "owner/snapshot", status: 201, keys: "repo_id",
		body: snapshot(r.s.Token(harness.Grant{Repo: replayed, Scopes: read}))})
	mirror := func(path string) string { return strings.Replace(path, "owner%2Fname", "owner%2Fmirror", 1) }
	r.do(step{name: "PullUpstream", method: "POST", path: mirror(r.g.repo + "/pull-upstream"), scopes: write, claim: "owner/mirror", status: 202, keys: "message"})
	r.do(step{name: "PullUpstream (ref)", method: "POST", path: mirror(r.g.repo + "/pull-upstream"), scopes: write, claim: "owner/mirror", body: `{"ref":"trunk"}`, status: 202, keys: "message"})
	r.do(step{name: "detach", method: "DELETE", path: mirror(r.g.repo + "/base"), scopes: write, claim: "owner/mirror", status: 200, keys: "message"})
	r.do(step{name: "UpdateRepo", method: "PATCH", path: r.pick("repo", "repos/owner%2Fname"), scopes: own, body: `{"default_branch":"main"}`, status: 200, keys: "repo_id repo_name", check: is("default_branch", "main")})
	r.do(step{name: "DeleteRepo", method: "DELETE", path: r.pick("repos/delete", "repos/owner%2Fname"), scopes: own, status: 200, keys: "repo_id message", check: is("repo_name", replayed)})
	for name, status := range map[string]int{replayed: http.StatusConflict, "owner/absent": http.StatusNotFound} {
		path := strings.Replace(r.pick("repos/delete", "repos/owner%2Fname"), "owner%2Fname", strings.ReplaceAll(name, "/", "%2F"), 1)
		a := r.send(step{name: "DeleteRepo", method: "DELETE", path: r.g.prefix + path}, r.s.Token(harness.Grant{Repo: name, Scopes: own}))
		if a.Status != status {
			r.t.Errorf("delete %s: %d %s", name, a.Status, a.Body)
		}
	}
}

// beyond are the routes that no Code Storage client has: Cairn's own.
var beyond = []string{"/api/audit", "/api/events", "/api/org/", "/api/webhooks", "/api/v1/webhooks", "/api/usage", "/api/repos/{repo}/protections", "/api/repos/{repo}/usage", "/api/repos/{repo}/undelete",
	"/api/threads", "/api/checkpoints", "/api/blobs", "/api/sessions"}

// described is a path as the document of routes has it.
func described(path string) string {
	path = strings.NewReplacer("owner%2Fname", "{repo}", "owner%2Fmirror", "{repo}", "release%2Fv1", "{tag}").Replace(path)
	for base, item := range map[string]string{"/git-credentials/": "{credential}", "/repo-urls/": "{id}"} {
		if before, _, ok := strings.Cut(path, base); ok {
			path = before + base + item
		}
	}
	return path
}

// contractRoutes lists what the server has of the contract, as method and path.
func (g generation) contractRoutes(t *testing.T) map[string]bool {
	t.Helper()
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(api.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	routes := map[string]bool{}
	for path, methods := range document.Paths {
		if strings.HasPrefix(path, "/api/v1/") != g.legacy || slices.ContainsFunc(beyond, func(own string) bool { return strings.HasPrefix(path, own) }) {
			continue
		}
		for method := range methods {
			routes[strings.ToUpper(method)+" "+path] = true
		}
	}
	return routes
}

// complete compares the calls made with the routes that the server has.
func (r *replay) complete() {
	for call := range r.routes {
		if !r.made[call] {
			r.t.Errorf("%s is a route that was not called", call)
		}
	}
	r.t.Logf("%d routes", len(r.routes))
}

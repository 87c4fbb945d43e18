package clients_test

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

// service is a server as the live tests of the published clients see one.
type service struct {
	*harness.Server
	t      *testing.T
	client *http.Client
}

func (s service) in(t *testing.T) service { s.t = t; return s }

var every = []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}

// ask sends a request with a token of one repository for everything.
func (s service) ask(status int, method, path, repo, body string) harness.Answer {
	s.t.Helper()
	return s.askWith(status, method, path, s.Token(harness.Grant{Repo: repo, Scopes: every}), body, nil)
}

func (s service) askWith(status int, method, path, token, body string, header http.Header) harness.Answer {
	s.t.Helper()
	if header == nil {
		header = http.Header{}
	}
	a, err := s.DoWith(s.client, method, path, token, []byte(body), header)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.Status != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.Status, status, a.Body)
	}
	return a
}

func (s service) create(repo string) {
	s.t.Helper()
	s.ask(201, "POST", "/api/repos", repo, "")
}

// commit makes a commit and returns its id.
func (s service) commit(c harness.Commit) string {
	s.t.Helper()
	a, err := s.Commit(s.client, c)
	if err != nil || a.Status != http.StatusCreated {
		s.t.Fatalf("commit: %v, %d %s", err, a.Status, a.Body)
	}
	return a.Text("commit", "commit_sha")
}

// lines asks for a commit with lines of JSON.
func (s service) lines(status int, repo, route string, lines ...string) harness.Answer {
	s.t.Helper()
	a := s.ask(status, "POST", harness.RepoPath(repo)+"/"+route, repo, strings.Join(lines, "\n"))
	if status/100 != 2 && (a.JSON("result", "success") != false || a.Text("result", "message") == "" || a.Text("error") == "") {
		s.t.Errorf("%s refuses with %s", route, a.Body)
	}
	return a
}

const by = `"author":{"name":"a","email":"a@example.com"}`

func chunk(id, data string, eof bool) string {
	return fmt.Sprintf(`{"blob_chunk":{"content_id":%q,"data":%q,"eof":%v}}`, id, base64.StdEncoding.EncodeToString([]byte(data)), eof)
}

// TestBehaviours holds what the live tests of the published clients, and others
// who use the contract, have seen of it. Routes: TestReplayGo; webhooks:
// TestPublishedValidators.
func TestBehaviours(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := service{Server: server, t: t, client: server.HTTP()}
	t.Cleanup(s.client.CloseIdleConnections)
	for name, run := range map[string]func(service){
		"ref policies live": refPolicies, "full workflow": fullWorkflow, "named ref lookup": namedRefs, "standard vocabulary": vocabulary,
		"transport": transport, "commit-pack": commitPack, "third-party probe": probe, "integration notes": integration,
	} {
		t.Run(name, func(t *testing.T) { run(s.in(t)) })
	}
}

// refPolicies pushes with tokens of every kind of key, which the org has without a
// kid; one token names a kid that nobody knows.
func refPolicies(s service) {
	rsaKey, edKey := keys(s.t)
	for name, row := range map[string]struct {
		kid string
		key crypto.Signer
	}{"RS256 with an unknown kid": {"dev-key-001", rsaKey}, "EdDSA": {"", edKey}} {
		s.t.Run(name, func(t *testing.T) {
			s := s.in(t)
			register(t, s.Server, row.key)
			repo := "sdk-ref-policies-" + strings.ToLower(name[:2])
			token := func(p policy.List) string {
				now := time.Now().Unix()
				minted, err := auth.Mint(row.key, row.kid, auth.Claims{Org: harness.Org, Subject: "@pierre/storage", Repo: repo, Scopes: every, Policies: p, IssuedAt: now, Expires: now + 600})
				if err != nil {
					t.Fatal(err)
				}
				return minted
			}
			closed := token(policy.List{{Pattern: "refs/heads/main", Ops: []policy.Op{policy.NoPush}}})
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(closed, ".")[1])
			if err != nil || !bytes.Contains(payload, []byte(`"refs":[["refs/heads/main",["no-push"]]]`)) {
				t.Errorf("claims %s, %v", payload, err)
			}
			open := token(nil)
			// A new key counts once the org's keys are read again.
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				a, err := s.Do(s.client, "POST", "/api/v1/repos", open, "", nil)
				if err == nil && a.Status == http.StatusCreated {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("create: %v, %d %s", err, a.Status, a.Body)
				}
			}
			remote := func(token string) string {
				return strings.Replace(s.URL, "://", "://t:"+token+"@", 1) + "/" + repo + ".git"
			}
			g := harness.NewGit(t)
			g.Run("init", "-q", "work")
			work := g.In("work")
			work.Run("commit", "-q", "--allow-empty", "-m", "one")
			work.Run("push", "-q", remote(open), "HEAD:refs/heads/main")
			work.Run("commit", "-q", "--allow-empty", "-m", "two")
			work.Run("push", "-q", remote(closed), "HEAD:refs/heads/feature/x")
			if out, err := work.Try("push", remote(closed), "HEAD:refs/heads/main"); err == nil || !strings.Contains(out+err.Error(), "denied by policy") {
				t.Errorf("push of main: %q, %v", out, err)
			}
			s.askWith(200, "DELETE", "/api/v1/repos/delete", open, "", nil)
		})
	}
}

// fullWorkflow is a day of a repository, in a name with a slash, over the routes of
// the newer clients.
func fullWorkflow(s service) {
	const repo = "sdk-full-workflow-1790000000/nested"
	base := harness.RepoPath(repo)
	s.create(repo)
	id := s.ask(201, "POST", base+"/git-credentials", repo, `{"username":"u","password":"p"}`).Text("id")
	s.ask(200, "PUT", base+"/git-credentials/"+id, repo, `{"password":"q"}`)
	s.ask(200, "DELETE", base+"/git-credentials/"+id, repo, "")
	first := s.commit(harness.Commit{Repo: repo, Branch: "main", Message: "Initial commit", Files: map[string]string{"README.md": "# Workflow\nHello World\n", "docs/a.md": "Hello docs\n"}})
	is("branches.0.name", "main", "branches.0.head_sha", first)(s.t, s.ask(200, "GET", base+"/branches", repo, ""))
	is("commits.0.sha", first, "commits.0.message", "Initial commit")(s.t, s.ask(200, "GET", base+"/commits?ref=main&limit=1", repo, ""))
	if a := s.ask(200, "POST", base+"/grep", repo, `{"ref":"main","query":{"pattern":"HELLO","case_sensitive":true}}`); !bytes.Contains(a.Body, []byte(`"matches":[]`)) {
		s.t.Errorf("case-sensitive: %s", a.Body)
	}
	is("matches.0.path", "README.md", "matches.0.lines.0.type", "match", "matches.0.lines.0.text", "Hello World", "matches.1", nil)(s.t,
		s.ask(200, "POST", base+"/grep", repo, `{"ref":"main","query":{"pattern":"HELLO","case_sensitive":false},"file_filters":{"include_globs":["README.md"]},"limits":{"max_matches_per_file":3}}`))
	second := s.commit(harness.Commit{Repo: repo, Branch: "main", Expected: first, Message: "Update", Files: map[string]string{"README.md": "# Workflow\nHello again\n", "later.txt": "later\n"}})
	is("paths.0", "README.md", "paths.2", "later.txt")(s.t, s.ask(200, "GET", base+"/files?ref=main", repo, ""))
	is("files.0.path", "README.md", "files.1.path", "later.txt")(s.t, s.ask(200, "GET", base+"/diff?ref="+second, repo, ""))
	if a := s.ask(200, "GET", base+"/file?path=README.md", repo, ""); string(a.Body) != "# Workflow\nHello again\n" {
		s.t.Errorf("file %q", a.Body)
	}
	restored := s.ask(201, "POST", base+"/restore-commit", repo, `{"metadata":{"target_branch":"main","base_ref":"HEAD~1","commit_message":"Restore the first",`+by+`}}`).Text("commit", "commit_sha")
	is("commits.0.sha", restored, "commits.0.message", "Restore the first", "commits.0.parent_shas.0", second)(s.t, s.ask(200, "GET", base+"/commits?ref=main&limit=1", repo, ""))
	s.ask(404, "GET", base+"/file?path=later.txt", repo, "")
	feature := s.commit(harness.Commit{Repo: repo, Branch: "feature/x", Base: "main", Expected: restored, Files: map[string]string{"feature.txt": "f\n"}})
	is("branch.head_sha", feature)(s.t, s.ask(200, "GET", base+"/branch?name=feature/x", repo, ""))
	a := s.ask(200, "DELETE", base, repo, "")
	if a.Text("repo_id") == "" || a.Text("message") == "" {
		s.t.Errorf("delete: %s", a.Body)
	}
}

func namedRefs(s service) {
	const repo = "named/refs"
	base := harness.RepoPath(repo)
	s.create(repo)
	tip := s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a": "1"}})
	eph := s.commit(harness.Commit{Repo: repo, Branch: "session", Base: "main", Ephemeral: true, Files: map[string]string{"a": "2"}})
	s.ask(200, "POST", base+"/tags", repo, `{"name":"v1","ref":"main"}`)
	for _, prefix := range []string{base, "/api/v1/repos"} {
		a := s.ask(200, "GET", prefix+"/branch?name=session&ephemeral=true", repo, "")
		is("branch.name", "session", "branch.head_sha", eph, "branch.cursor", nil)(s.t, a)
		is("branch.head_sha", tip)(s.t, s.ask(200, "GET", prefix+"/branch?name=main&ephemeral=false", repo, ""))
		is("tag.name", "v1", "tag.sha", tip, "tag.cursor", nil)(s.t, s.ask(200, "GET", prefix+"/tag?name=v1", repo, ""))
		for _, path := range []string{"/branch?name=session", "/branch?name=main&ephemeral=true", "/branch?name=absent"} {
			if a := s.ask(404, "GET", prefix+path, repo, ""); !strings.Contains(a.Text("error"), "not found") {
				s.t.Errorf("%s: %s", path, a.Body)
			}
		}
		s.ask(404, "GET", prefix+"/tag?name=absent", repo, "")
		s.ask(400, "GET", prefix+"/branch", repo, "")
		s.ask(400, "GET", prefix+"/branch?name=main&ephemeral=yes", repo, "")
	}
}

// vocabulary: both vocabularies at both paths, and the standard one wins.
func vocabulary(s service) {
	const repo = "both/words"
	s.create(repo)
	first := s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a": "1\n"}})
	tip := s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a": "2\n"}})
	for i, prefix := range []string{harness.RepoPath(repo), "/api/v1/repos"} {
		name := func(n string) string { return fmt.Sprintf("%s%d", n, i) }
		is("commits.0.sha", first)(s.t, s.ask(200, "GET", prefix+"/commits?branch=absent&ref=main~1", repo, ""))
		is("commit.sha", first)(s.t, s.ask(200, "GET", prefix+"/commit?sha="+tip+"&ref="+first, repo, ""))
		is("sha", first)(s.t, s.ask(200, "GET", prefix+"/diff?sha="+tip+"&ref="+first, repo, ""))
		is("base_sha", tip)(s.t, s.ask(200, "GET", prefix+"/diff?ref="+tip+"&base_ref="+tip+"&baseSha="+first, repo, ""))
		is("commit_sha", first)(s.t, s.ask(200, "POST", prefix+"/branches/create", repo, `{"target_branch":"`+name("b")+`","base_branch":"absent","base_ref":"main~1"}`))
		is("name", name("b"), "target_branch", name("b"))(s.t, s.ask(200, "DELETE", prefix+"/branches", repo, `{"name":"absent","target_branch":"`+name("b")+`"}`))
		is("sha", tip)(s.t, s.ask(200, "POST", prefix+"/tags", repo, `{"name":"`+name("t")+`","target":"`+first+`","ref":"main"}`))
		note := s.ask(200, "POST", prefix+"/notes", repo, `{"sha":"`+first+`","object_ref":"main","action":"add","note":"n","ref":"absent","notes_ref":"`+name("n")+`","expected_ref_sha":"`+first+`","expected_notes_ref_sha":"`+strings.Repeat("0", 40)+`"}`)
		is("sha", tip, "target_ref", "refs/notes/"+name("n"), "notes_ref", "refs/notes/"+name("n"))(s.t, note)
		is("note", "n", "sha", tip)(s.t, s.ask(200, "GET", prefix+"/notes?sha="+first+"&object_ref=main&ref=absent&notes_ref="+name("n"), repo, ""))
		is("repo.commit", first)(s.t, s.ask(200, "POST", prefix+"/grep", repo, `{"query":{"pattern":"1"},"rev":"absent","ref":"`+first+`"}`))

		// An explicit false of the standard name beats true of the legacy one.
		pack := s.ask(201, "POST", prefix+"/commit-pack", repo, `{"metadata":{"target_branch":"`+name("f")+`","base_branch":"main","commit_message":"m",`+by+`,"ephemeral":true,"target_is_ephemeral":false,"ephemeral_base":true,"base_is_ephemeral":false,"expected_head_sha":"`+first+`","expected_target_sha":"`+tip+`","files":[{"path":"f","content_id":"f"}]}}`+"\n"+chunk("f", "f", true))
		is("result.branch", name("f"), "result.target_branch", name("f"), "commit.target_branch", name("f"))(s.t, pack)
		s.ask(200, "GET", prefix+"/branch?name="+name("f"), repo, "")
		s.ask(404, "GET", prefix+"/branch?name="+name("f")+"&ephemeral=true", repo, "")
		merged := s.ask(200, "POST", prefix+"/merge", repo, `{"source_branch":"absent","source_ref":"`+name("f")+`~1","target_branch":"main","strategy":"ff_only"}`)
		is("result", "no_op", "source.branch", name("f")+"~1", "source.ref", name("f")+"~1")(s.t, merged)
		s.ask(201, "POST", prefix+"/restore-commit", repo, `{"metadata":{"target_branch":"`+name("f")+`","target_commit_sha":"`+first+`","base_ref":"HEAD~1","expected_head_sha":"`+first+`","expected_target_sha":"`+pack.Text("commit", "commit_sha")+`",`+by+`}}`)
		is("size", nil, "paths.0", "a")(s.t, s.ask(200, "GET", prefix+"/files?ref="+name("f"), repo, ""))
	}
}

// transport: no redirect, empty bodies, refusals after the whole body.
func transport(s service) {
	const repo = "team/transport"
	s.create(repo)
	s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a": "1"}})
	for _, path := range []string{"//api/v1/repos/branches", "/api//v1/repos/branches", "/api/repos/team%2ftransport/branches", "/api/repos/team%2Ftransport/branches/"} {
		s.ask(200, "GET", path, repo, "")
	}
	s.ask(404, "GET", "/api/repos/team/transport/branches", repo, "")
	s.askWith(200, "GET", "/api/v1/repos/branches?cursor=", s.Token(harness.Grant{Repo: repo}), "", http.Header{"Content-Type": {"application/json"}})
	a := s.ask(405, "PUT", "/api/v1/repos/branches", repo, "")
	if a.Header.Get("Allow") != "DELETE, GET" || a.Text("error") == "" {
		s.t.Errorf("405: %v %s", a.Header, a.Body)
	}
	if a := s.ask(404, "GET", "/api/v1/nothing", repo, ""); a.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("404: %v", a.Header)
	}
	// A client that streams reads no answer before it has sent everything.
	large := strings.Repeat(chunk("c", strings.Repeat("x", 1<<20), false)+"\n", 8)
	for name, token := range map[string]string{"unauthorized": "x", "forbidden": s.Token(harness.Grant{Repo: repo, Scopes: []auth.Scope{auth.OrgRead}}), "not_found": s.Token(harness.Grant{Repo: "absent"})} {
		body := strings.NewReader(`{"metadata":{}}` + "\n" + large)
		req, err := http.NewRequest("POST", s.URL+"/api/v1/repos/commit-pack", io.NopCloser(body)) // of unknown length
		if err != nil {
			s.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := s.client.Do(req)
		if err != nil {
			s.t.Errorf("%s: %v", name, err)
			continue
		}
		var answer struct {
			Result struct{ Status string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Result.Status != name || body.Len() != 0 {
			s.t.Errorf("%s: %v, %+v, %d bytes not read", name, err, answer, body.Len())
		}
		resp.Body.Close()
	}
}

// commitPack: framing that the published clients' own tests send.
func commitPack(s service) {
	const repo = "team/packs"
	s.create(repo)
	meta := func(files string) string {
		return `{"metadata":{"target_branch":"main","commit_message":"m",` + by + `,"files":[` + files + `]}}`
	}
	file := func(path, id string) string { return `{"path":"` + path + `","content_id":"` + id + `"}` }
	// Pieces of several contents in turn, an empty one, blank lines, no newline at the end.
	s.lines(201, repo, "commit-pack", meta(file("a", "1")+","+file("b", "2")+","+file("c", "3")), "", chunk("1", "one ", false), chunk("2", "two ", false), chunk("1", "more", true), "", chunk("3", "", true), chunk("2", "more", true))
	for path, want := range map[string]string{"a": "one more", "b": "two more", "c": ""} {
		if a := s.ask(200, "GET", harness.RepoPath(repo)+"/file?path="+path, repo, ""); string(a.Body) != want {
			s.t.Errorf("%s is %q", path, a.Body)
		}
	}
	tip := s.ask(200, "GET", harness.RepoPath(repo)+"/branch?name=main", repo, "").Text("branch", "head_sha")
	for name, row := range map[string]struct {
		status int
		label  string
		lines  []string
	}{
		"no metadata":            {400, "invalid", []string{chunk("1", "x", true)}},
		"no eof":                 {400, "invalid", []string{meta(file("a", "1")), chunk("1", "x", false)}},
		"a chunk after eof":      {400, "invalid", []string{meta(file("a", "1")), chunk("1", "x", true), chunk("1", "y", true)}},
		"a chunk of nothing":     {400, "invalid", []string{meta(file("a", "1")), chunk("1", "x", true), chunk("2", "y", true)}},
		"a chunk for a delete":   {400, "invalid", []string{meta(`{"path":"a","content_id":"1","operation":"delete"}`), chunk("1", "", true)}},
		"a piece above 4 MiB":    {413, "payload_too_large", []string{meta(file("a", "1")), chunk("1", strings.Repeat("x", 4<<20+1), true)}},
		"a blank message":        {400, "invalid", []string{strings.Replace(meta(file("a", "1")), `"m"`, `" "`, 1), chunk("1", "x", true)}},
		"a base that is not":     {404, "not_found", []string{strings.Replace(meta(file("a", "1")), `"main"`, `"n","base_branch":"absent"`, 1), chunk("1", "x", true)}},
		"an ephemeral base":      {400, "invalid", []string{strings.Replace(meta(file("a", "1")), `"main"`, `"n","base_is_ephemeral":true`, 1), chunk("1", "x", true)}},
		"must not exist":         {409, "precondition_failed", []string{strings.Replace(meta(file("a", "1")), `"main"`, `"main","expected_target_sha":"`+strings.Repeat("0", 40)+`"`, 1), chunk("1", "x", true)}},
		"nothing changes":        {412, "precondition_failed", []string{meta(file("c", "1")), chunk("1", "", true)}},
		"a delete of nothing":    {412, "precondition_failed", []string{meta(`{"path":"absent","content_id":"1","operation":"delete"}`)}},
		"a submodule of no id":   {400, "invalid", []string{meta(`{"path":"s","content_id":"1","mode":"160000"}`), chunk("1", "x", true)}},
		"data that is no base64": {400, "invalid", []string{meta(file("a", "1")), `{"blob_chunk":{"content_id":"1","data":"-_","eof":true}}`}},
	} {
		if a := s.lines(row.status, repo, "commit-pack", row.lines...); a.Text("result", "status") != row.label {
			s.t.Errorf("%s: %s", name, a.Body)
		}
		is("branch.head_sha", tip)(s.t, s.ask(200, "GET", harness.RepoPath(repo)+"/branch?name=main", repo, ""))
	}
	// A blank guard is none.
	s.lines(201, repo, "commit-pack", strings.Replace(meta(file("a", "1")), `"main"`, `"main","expected_target_sha":""`, 1), chunk("1", "blank", true))
	// A delete beside a change, and the last of two entries of a path.
	s.lines(201, repo, "commit-pack", meta(file("d", "1")+`,{"path":"absent","content_id":"2","operation":"delete"},`+file("d", "3")), chunk("1", "x", true), chunk("3", "last", true))
	if a := s.ask(200, "GET", harness.RepoPath(repo)+"/file?path=d", repo, ""); string(a.Body) != "last" {
		s.t.Errorf("d is %q", a.Body)
	}
}

// probe is what another implementation of the contract asks of a server.
func probe(s service) {
	const repo = "probe/app"
	base := harness.RepoPath(repo)
	s.create(repo)
	s.ask(409, "POST", "/api/repos", repo, "")
	is("repo_name", "probe/two")(s.t, s.ask(201, "POST", "/api/repos", "probe/two", `{"repo_name":"probe/two","id":"ignored","unknown":1}`))
	s.ask(400, "POST", "/api/repos", "probe/three", `{"repo_name":"probe/four"}`)
	s.askWith(401, "GET", base, "", "", nil)
	first := s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a.txt": "1\n", "b.txt": "1\n"}})
	tip := s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a.txt": "2\n", "b.txt": "1\n"}})
	head := s.ask(200, "HEAD", base+"/file?path=b.txt", repo, "")
	if sha := head.Header.Get("X-Blob-Sha"); len(sha) != 40 || head.Header.Get("Etag") != `"`+sha+`"` || head.Header.Get("X-Last-Commit-Sha") != first || head.Header.Get("Content-Length") != "2" || len(head.Body) != 0 {
		s.t.Errorf("head: %v", head.Header)
	}
	one := s.ask(200, "GET", base+"/files/metadata?limit=1", repo, "")
	is("files.0.path", "a.txt", "files.0.last_commit_sha", tip, "has_more", true)(s.t, one)
	two := s.ask(200, "GET", base+"/files/metadata?limit=1&cursor="+url.QueryEscape(one.Text("next_cursor")), repo, "")
	is("files.0.path", "b.txt", "files.0.last_commit_sha", first, "has_more", false)(s.t, two)
	is("commits.0.sha", tip, "commits.1.sha", first)(s.t, s.ask(200, "GET", base+"/commits", repo, ""))

	s.ask(200, "POST", base+"/branches/create", repo, `{"base_branch":"main","target_branch":"work"}`)
	s.ask(409, "POST", base+"/branches/create", repo, `{"base_branch":"main","target_branch":"work"}`)
	s.ask(404, "POST", base+"/branches/create", repo, `{"base_branch":"absent","target_branch":"x"}`)
	ahead := s.commit(harness.Commit{Repo: repo, Branch: "work", Files: map[string]string{"c.txt": "1\n"}})
	stale := s.ask(409, "POST", base+"/merge", repo, `{"source_ref":"work","target_branch":"main","strategy":"ff_prefer","expected_target_sha":"`+first+`"}`)
	is("conflict_type", "target_moved")(s.t, stale)
	is("result", "fast_forward", "target.old_sha", tip, "target.new_sha", ahead)(s.t, s.ask(200, "POST", base+"/merge", repo, `{"source_ref":"work","target_branch":"main","strategy":"ff_prefer","expected_target_sha":"`+tip+`"}`))

	side := s.commit(harness.Commit{Repo: repo, Branch: "side", Base: "work", Files: map[string]string{"s.txt": "s\n"}})
	restore := func(status int, ref string) harness.Answer {
		// As one line of JSON lines, which is accepted as well.
		return s.lines(status, repo, "restore-commit", `{"metadata":{"target_branch":"main","base_ref":"`+ref+`",`+by+`}}`)
	}
	is("result.status", "precondition_failed")(s.t, restore(412, side))
	is("result.status", "precondition_failed")(s.t, restore(412, ahead))
	is("result.old_sha", ahead)(s.t, restore(201, first))
	if a := s.ask(200, "GET", base+"/file?path=a.txt", repo, ""); string(a.Body) != "1\n" {
		s.t.Errorf("restored: %q", a.Body)
	}

	s.commit(harness.Commit{Repo: repo, Branch: "eph", Base: "main", Ephemeral: true, Files: map[string]string{"e.txt": "e\n"}})
	s.ask(404, "GET", base+"/branch?name=eph", repo, "")
	s.ask(404, "GET", base+"/file?path=e.txt&ref=eph", repo, "")
	s.ask(200, "GET", base+"/file?path=e.txt&ref=eph&ephemeral=true", repo, "")
	if a := s.ask(200, "GET", base+"/branches", repo, ""); bytes.Contains(a.Body, []byte(`"eph"`)) {
		s.t.Errorf("listed: %s", a.Body)
	}
	for _, foreign := range []string{"", "/branches", "/file?path=a.txt"} {
		s.askWith(404, "GET", base+foreign, s.Token(harness.Grant{Repo: "probe/two", Scopes: every}), "", nil)
	}
}

// integration is what an application that uses the contract noted.
func integration(s service) {
	const repo = "kept/notes"
	if a := s.ask(201, "POST", "/api/repos", repo, `{"default_branch":"main"}`); a.Text("repo_id") == "" || a.Text("http_url") == "" {
		s.t.Errorf("create: %s", a.Body)
	}
	s.ask(403, "POST", "/api/repos", "org", "")
	if a, err := s.Do(s.client, "POST", "/repos", s.Token(harness.Grant{Repo: repo}), "", nil); err != nil || a.Status != 404 {
		s.t.Errorf("POST /repos: %v, %d", err, a.Status)
	}
	s.commit(harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"a": "1"}})
	refs := "/" + repo + ".git/info/refs?service="
	basic := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+s.Token(harness.Grant{Repo: repo})))}}
	for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
		for _, version := range []string{"", "version=2"} {
			header := basic.Clone()
			if version != "" {
				header.Set("Git-Protocol", version)
			}
			if a := s.askWith(200, "GET", refs+service, "", "", header); a.Header.Get("Content-Type") != "application/x-"+service+"-advertisement" {
				s.t.Errorf("%s %s: %v", service, version, a.Header)
			}
		}
		a := s.askWith(401, "GET", refs+service, "", "", nil)
		if a.Header.Get("Www-Authenticate") != `Basic realm="Git Repository"` {
			s.t.Errorf("challenge: %v", a.Header)
		}
	}
	s.ask(200, "DELETE", harness.RepoPath(repo), repo, "")
	s.askWith(404, "GET", refs+"git-upload-pack", "", "", basic)
	s.ask(404, "GET", harness.RepoPath(repo), repo, "")
	deleted := s.ask(409, "POST", "/api/repos", repo, "")
	is("code", "repository_deleted")(s.t, deleted)
	is("code", "repository_deleted")(s.t, s.ask(409, "DELETE", harness.RepoPath(repo), repo, ""))
	s.ask(404, "DELETE", harness.RepoPath("never/there"), "never/there", "")
}

// TestLimitedClients: what is refused for coming too often says so in the shape
// that each route's clients read.
func TestLimitedClients(t *testing.T) {
	server := harness.Serve(t, harness.Options{Args: []string{"--rate-limit", "1"}})
	s := service{Server: server, t: t, client: server.HTTP()}
	t.Cleanup(s.client.CloseIdleConnections)
	token := s.Token(harness.Grant{Repo: "r", Scopes: every})
	limited := func(method, path string) harness.Answer {
		for range 20 {
			a, err := s.Do(s.client, method, path, token, "application/json", []byte(`{"metadata":{}}`))
			if err != nil {
				t.Fatal(err)
			}
			if a.Status == http.StatusTooManyRequests {
				return a
			}
		}
		t.Fatalf("%s %s is never limited", method, path)
		return harness.Answer{}
	}
	for _, row := range [][2]string{{"GET", "branches"}, {"POST", "notes"}, {"POST", "merge"}, {"POST", "commit-pack"}, {"POST", "restore-commit"}} {
		a := limited(row[0], "/api/v1/repos/"+row[1])
		if a.Text("error") == "" || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v %s", row[1], a.Header, a.Body)
		}
		if commits := slices.Contains([]string{"commit-pack", "restore-commit"}, row[1]); commits != (a.Text("result", "status") == "unavailable") {
			t.Errorf("%s: %s", row[1], a.Body)
		}
	}
}

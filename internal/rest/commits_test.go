package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/api"
)

const zeros = "0000000000000000000000000000000000000000"

func (s *stack) pack(repo, body string) answer {
	s.t.Helper()
	return s.do("POST", repoPath(repo, "commit-pack"), s.full(repo), body, "Content-Type", "application/x-ndjson")
}

func (s *stack) file(repo, query string) string {
	s.t.Helper()
	return string(s.want(http.StatusOK, "GET", repoPath(repo, "file?"+query), s.full(repo), nil, nil).body)
}

// TestHostileBodies sends broken commits: each is refused with the shape that
// clients parse, and nothing changes.
func TestHostileBodies(t *testing.T) {
	s := newStack(t)
	populate(s)
	head := func(files string) string {
		return `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a","email":"e"},"files":[` + files + `]}}` + "\n"
	}
	one := head(`{"path":"x","content_id":"c"}`)
	rows := []struct {
		name, body string
		status     int
		label      string
	}{
		{"empty", "", 400, "invalid"},
		{"not JSON", "hello", 400, "invalid"},
		{"an array", "[]", 400, "invalid"},
		{"chunk first", chunkLine("c", "x", true), 400, "invalid"},
		{"metadata is null", `{"metadata":null}`, 400, "invalid"},
		{"metadata is a string", `{"metadata":"x"}`, 400, "invalid"},
		{"metadata twice", one + one, 400, "invalid"},
		{"no target", `{"metadata":{"commit_message":"m","author":{"name":"a","email":"e"}}}`, 400, "invalid"},
		{"blank message", `{"metadata":{"target_branch":"main","commit_message":" \n","author":{"name":"a","email":"e"}}}`, 400, "invalid"},
		{"no author", `{"metadata":{"target_branch":"main","commit_message":"m"}}`, 400, "invalid"},
		{"author without email", `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a"}}}`, 400, "invalid"},
		{"author with a line break", `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a\nb","email":"e"}}}`, 400, "invalid"},
		{"author with brackets", `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a","email":"<e>"}}}`, 400, "invalid"},
		{"missing eof", one + chunkLine("c", "x", false), 400, "invalid"},
		{"no chunk", one, 400, "invalid"},
		{"truncated base64", one + `{"blob_chunk":{"content_id":"c","data":"aGVsbG8","eof":true}}`, 400, "invalid"},
		{"cut off", one + `{"blob_chunk":{"content_id":"c","data":"aGVs`, 400, "invalid"},
		{"unknown content_id", one + chunkLine("d", "x", true), 400, "invalid"},
		{"after eof", one + chunkLine("c", "x", true) + chunkLine("c", "y", true), 400, "invalid"},
		{"chunk for a delete", head(`{"path":"README.md","operation":"delete","content_id":"c"}`) + chunkLine("c", "x", true), 400, "invalid"},
		{"upsert without id", head(`{"path":"x"}`), 400, "invalid"},
		{"unknown operation", head(`{"path":"x","operation":"move"}`), 400, "invalid"},
		{"unknown mode", head(`{"path":"x","content_id":"c","mode":"100600"}`) + chunkLine("c", "x", true), 400, "invalid"},
		{"submodule of no commit", head(`{"path":"x","content_id":"c","mode":"160000"}`) + chunkLine("c", "x", true), 400, "invalid"},
		{"empty symbolic link", head(`{"path":"x","content_id":"c","mode":"120000"}`) + chunkLine("c", "", true), 400, "invalid"},
		{"bad target", strings.Replace(one, "main", "a..b", 1) + chunkLine("c", "x", true), 400, "invalid"},
		{"target outside of branches", strings.Replace(one, "main", "refs/tags/x", 1) + chunkLine("c", "x", true), 400, "invalid"},
		{"short expected sha", strings.Replace(one, `"files"`, `"expected_head_sha":"abc","files"`, 1) + chunkLine("c", "x", true), 400, "invalid"},
		{"ephemeral base without base", strings.Replace(one, `"files"`, `"base_is_ephemeral":true,"files"`, 1) + chunkLine("c", "x", true), 400, "invalid"},
		{"chunk too large", one + chunkLine("c", strings.Repeat("x", maxChunk+1), true), 413, "payload_too_large"},
		{"line too large", one + `{"x":"` + strings.Repeat("x", maxLine) + `"}`, 413, "payload_too_large"},
		{"metadata too large", `{"metadata":{"x":"` + strings.Repeat("x", maxLine) + `"}}`, 413, "payload_too_large"},
	}
	for _, path := range []string{"", "/", "..", "a/../b", "./a", "a//b", ".git/config", "a/.GIT/x", "git~1", "a\x00b", `a\b`, ".git ", strings.Repeat("x/", 2100) + "x"} {
		p, _ := json.Marshal(path)
		rows = append(rows, struct {
			name, body string
			status     int
			label      string
		}{fmt.Sprintf("path %.20q", path), head(`{"path":`+string(p)+`,"content_id":"c"}`) + chunkLine("c", "x", true), 400, "invalid"})
	}
	before := s.state()
	for _, row := range rows {
		a := s.pack(populated, row.body)
		e := a.error(t)
		if a.status != row.status || e.Result == nil || e.Result.Success || e.Result.Status != row.label || e.Result.Message != e.Message {
			t.Errorf("%s: %d %s", row.name, a.status, a.body)
		}
		if after := s.state(); after != before {
			t.Fatalf("%s changed\n%s\nto\n%s", row.name, before, after)
		}
	}
	long := s.pack(populated, commitBody(map[string]any{"target_branch": strings.Repeat("x", 1<<20)}, map[string]string{"f": "1"}))
	if e := long.error(t); long.status != 400 || len(long.body) > 16<<10 || e.Result.Status != "invalid" {
		t.Errorf("a long name: %d, %d bytes", long.status, len(long.body))
	}
	if e := s.pack(populated, chunkLine("c", "x", true)).error(t); e.Message != "first payload must be metadata" {
		t.Errorf("message is %q", e.Message)
	}
}

func TestCommitTargets(t *testing.T) {
	s := newStack(t)
	s.create("r")
	file := func(v string) map[string]string { return map[string]string{"f": v} }
	fails := func(status int, label string, meta map[string]any, files map[string]string) api.Error {
		t.Helper()
		a := s.pack("r", commitBody(meta, files))
		e := a.error(t)
		if a.status != status || e.Result == nil || e.Result.Status != label {
			t.Fatalf("%v: %d %s", meta, a.status, a.body)
		}
		return e
	}
	sha := strings.Repeat("ab", 20)
	fails(409, "precondition_failed", map[string]any{"expected_head_sha": sha}, file("1"))
	fails(404, "not_found", map[string]any{"base_branch": "none"}, file("1"))
	root := s.commit("r", map[string]any{"expected_target_sha": zeros}, file("1"))
	if root.Result.OldSHA != zeros || root.Result.Branch != "main" || root.Result.TargetBranch != "main" || !root.Result.Success ||
		root.Result.Status != "ok" || root.Commit.BlobCount != 1 || root.Commit.PackBytes < 100 {
		t.Errorf("root commit: %+v", root)
	}
	fails(409, "precondition_failed", map[string]any{"expected_target_sha": zeros}, file("2"))
	fails(404, "not_found", map[string]any{"target_branch": "new"}, file("2"))
	fails(404, "not_found", map[string]any{"target_branch": "new", "base_branch": "none"}, file("2"))
	fails(404, "not_found", map[string]any{"ephemeral": true}, file("2"))
	none := fails(412, "precondition_failed", nil, file("1"))
	if none.Message != "no changes to commit" || *none.Result != (api.UpdateResult{Status: "precondition_failed", Message: none.Message}) {
		t.Errorf("no changes: %+v %+v", none, none.Result)
	}
	fails(412, "precondition_failed", map[string]any{"files": []map[string]string{{"path": "gone", "operation": "delete"}}}, nil)
	// Both vocabularies; the standard one wins, also with an explicit false.
	session := s.commit("r", map[string]any{"target_branch": "refs/heads/s", "ephemeral": true, "base_branch": "main", "expected_head_sha": root.Result.NewSHA}, file("2"))
	if session.Result.OldSHA != zeros || session.Result.Branch != "s" {
		t.Errorf("new branch: %+v", session.Result)
	}
	stale := fails(409, "precondition_failed", map[string]any{"target_branch": "s", "target_is_ephemeral": true, "expected_head_sha": root.Result.NewSHA}, file("3"))
	if stale.Result.OldSHA != session.Result.NewSHA || stale.Result.NewSHA != session.Result.NewSHA || stale.Result.Branch != "s" || stale.Code != api.Stale {
		t.Errorf("stale: %+v", stale.Result)
	}
	next := s.commit("r", map[string]any{
		"target_branch": "s", "target_is_ephemeral": true, "ephemeral": false,
		"expected_target_sha": session.Result.NewSHA, "expected_head_sha": sha,
	}, file("3"))
	if next.Result.OldSHA != session.Result.NewSHA {
		t.Errorf("next: %+v", next.Result)
	}
	fails(404, "not_found", map[string]any{"target_branch": "s", "target_is_ephemeral": false, "ephemeral": true}, file("4"))
	s.commit("r", map[string]any{"target_branch": "t", "base_branch": "s", "ephemeral_base": true, "expected_head_sha": ""}, file("4"))
	if got := s.file("r", "path=f&ref=t"); got != "4" {
		t.Errorf("file is %q", got)
	}
}

func TestCommitContents(t *testing.T) {
	s := newStack(t)
	s.create("r")
	big := strings.Repeat("0123456789abcdef", 1<<19) // 8 MiB
	sub := strings.Repeat("cd", 20)
	body := commitBody(map[string]any{"files": []map[string]string{
		{"path": "/lead", "content_id": "a"}, {"path": "empty", "content_id": "b"}, {"path": "x.sh", "content_id": "a", "mode": "100755"},
		{"path": "l", "content_id": "c", "mode": "120000"}, {"path": "m", "content_id": "d", "mode": "160000"}, {"path": "d/big", "content_id": "e"},
		{"path": "twice", "content_id": "b"}, {"path": "twice", "content_id": "a"},
	}}, nil)
	body += "\n\n" + chunkLine("a", "hel", false) + chunkLine("e", big[:maxChunk], false) + chunkLine("b", "", true) + chunkLine("a", "lo", false) +
		chunkLine("c", "x.sh", true) + chunkLine("e", big[maxChunk:], true) + chunkLine("d", sub, true) + strings.TrimSuffix(chunkLine("a", "", true), "\n")
	if a := s.pack("r", body); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var list api.FileList
	s.want(http.StatusOK, "GET", repoPath("r", "files"), s.full("r"), nil, &list)
	want := []api.FileEntry{
		{Path: "d", Type: "tree", Mode: "040000"}, {Path: "d/big", Type: "blob", Mode: "100644"}, {Path: "empty", Type: "blob", Mode: "100644"},
		{Path: "l", Type: "symlink", Mode: "120000"}, {Path: "lead", Type: "blob", Mode: "100644"}, {Path: "m", Type: "submodule", Mode: "160000"},
		{Path: "twice", Type: "blob", Mode: "100644"}, {Path: "x.sh", Type: "blob", Mode: "100755"},
	}
	if fmt.Sprint(list.Entries) != fmt.Sprint(want) {
		t.Errorf("entries are %v", list.Entries)
	}
	if fmt.Sprint(list.Paths) != "[d/big empty l lead twice x.sh]" || list.Ref != "main" || list.HasMore {
		t.Errorf("list is %v %q", list.Paths, list.Ref)
	}
	for path, content := range map[string]string{"lead": "hello", "x.sh": "hello", "empty": "", "l": "x.sh", "d/big": big, "twice": "hello"} {
		if got := s.file("r", "path="+path); got != content {
			t.Errorf("%s has %d bytes, want %d", path, len(got), len(content))
		}
	}
	s.refused(http.StatusNotFound, api.NotFound, "GET", repoPath("r", "file?path=m"), s.full("r"), nil)
	// The mode stays where none is given; a folder goes as a whole; an absent
	// path beside a change does no harm; a file makes way for a folder.
	body = commitBody(map[string]any{"files": []map[string]string{
		{"path": "x.sh", "content_id": "a"}, {"path": "d", "operation": "delete"}, {"path": "absent", "operation": "delete"},
		{"path": "lead/sub", "content_id": "a"},
	}}, nil) + chunkLine("a", "new", true)
	if a := s.pack("r", body); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.want(http.StatusOK, "GET", repoPath("r", "files"), s.full("r"), nil, &list)
	if fmt.Sprint(list.Entries) != "[{empty blob 100644} {l symlink 120000} {lead tree 040000} {lead/sub blob 100644} {m submodule 160000} {twice blob 100644} {x.sh blob 100755}]" {
		t.Errorf("entries are %v", list.Entries)
	}
}

// TestOneWinner lets writers that expect the same tip race.
func TestOneWinner(t *testing.T) {
	s := newStack(t)
	s.create("r")
	tip := s.commit("r", nil, map[string]string{"f": "0"}).Result.NewSHA
	token := s.full("r")
	statuses := make([]int, 16)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			body := commitBody(map[string]any{"expected_head_sha": tip}, map[string]string{"f": fmt.Sprint(i, "!")})
			a := s.do("POST", "/api/v1/repos/commit-pack", token, body)
			statuses[i] = a.status
			var e api.Error
			if a.status == http.StatusConflict && (json.Unmarshal(a.body, &e) != nil || e.Result.Status != "precondition_failed") {
				t.Errorf("loser got %s", a.body)
			}
		})
	}
	wg.Wait()
	counts := map[int]int{}
	for _, st := range statuses {
		counts[st]++
	}
	if counts[201] != 1 || counts[409] != len(statuses)-1 {
		t.Errorf("statuses are %v", counts)
	}
}

func TestIdentities(t *testing.T) {
	s := newStack(t)
	s.create("r")
	date := "2024-02-29T12:34:56+02:00"
	s.commit("r", map[string]any{"author": map[string]string{"name": " A ", "email": "a@x", "date": date}}, map[string]string{"f": "1"})
	a := s.want(http.StatusOK, "GET", repoPath("r", "file?path=f"), s.full("r"), nil, nil)
	if got := a.header.Get("Last-Modified"); got != "Thu, 29 Feb 2024 10:34:56 GMT" {
		t.Errorf("Last-Modified is %q", got)
	}
}

// TestLineEnds writes a file of CRLF with LF: byte for byte, and as it was.
func TestLineEnds(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "a\r\nb\r\n"})
	write := func(eol string) answer {
		body := strings.Replace(commitBody(nil, map[string]string{"f": "a\nB\n"}), `"path":"f"`, `"eol":"`+eol+`","path":"f"`, 1)
		return s.do("POST", repoPath("r", "commit-pack"), s.full("r"), body)
	}
	holds := func(want string) {
		t.Helper()
		if a := s.do("GET", repoPath("r", "file?path=f"), s.full("r"), nil); string(a.body) != want {
			t.Errorf("the file is %q, want %q", a.body, want)
		}
	}
	if a := write("crlf"); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "keep-existing") {
		t.Errorf("an eol that is not known: %d %s", a.status, a.body)
	}
	if a := write("keep-existing"); a.status != http.StatusCreated {
		t.Errorf("keep-existing: %d %s", a.status, a.body)
	}
	holds("a\r\nB\r\n")
	s.commit("r", nil, map[string]string{"f": "a\nB\n"})
	holds("a\nB\n")
	// A diff leaves out a file of which only the ends of lines changed, unless it is
	// to be applied.
	for query, want := range map[string]api.DiffStats{"": {}, "&git_apply_compatible=true": {Files: 1, Additions: 2, Deletions: 2, Changes: 4}} {
		var d api.CommitDiff
		s.want(http.StatusOK, "GET", repoPath("r", "diff?ref=main"+query), s.full("r"), nil, &d)
		if d.Stats != want || len(d.Files) != want.Files {
			t.Errorf("diff%s: %+v", query, d)
		}
	}
}

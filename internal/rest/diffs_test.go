package rest

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
)

// paths are the two paths of a route of a repository.
func bothPaths(name, rest string) []string {
	return []string{repoPath(name, rest), "/api/v1/repos/" + rest}
}

func (s *stack) commitDiff(name, query string) api.CommitDiff {
	s.t.Helper()
	var d, legacy api.CommitDiff
	both := bothPaths(name, "diff?"+query)
	s.want(http.StatusOK, "GET", both[0], s.full(name), nil, &d)
	s.want(http.StatusOK, "GET", both[1], s.full(name), nil, &legacy)
	if fmt.Sprint(d.SHA, d.BaseSHA, d.Stats, len(d.Files)) != fmt.Sprint(legacy.SHA, legacy.BaseSHA, legacy.Stats, len(legacy.Files)) {
		s.t.Errorf("the paths answer %+v and %+v", d, legacy)
	}
	return d
}

// shown spells the files of a diff.
func shown(d api.CommitDiff) string {
	var parts []string
	for _, f := range d.Files {
		parts = append(parts, f.State+" "+f.Path)
		if int64(len(f.Raw)) != f.Bytes || !f.IsEOF {
			parts = append(parts, "BROKEN")
		}
	}
	for _, f := range d.FilteredFiles {
		parts = append(parts, "("+f.State+" "+f.Path+")")
	}
	return strings.Join(parts, ", ")
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// TestCommitDiff compares commits in all ways that can be asked for.
func TestCommitDiff(t *testing.T) {
	s := newStack(t)
	s.create("team/d")
	root := s.commit("team/d", nil, map[string]string{"a": numbered(20), "space": "x\ny\n", "bin": "\x00one", "dir/x": "1\n", "gone": numbered(40)})
	var second api.CommitAck
	body := commitBody(map[string]any{"files": []map[string]string{
		{"path": "a", "content_id": "a"}, {"path": "space", "content_id": "s"}, {"path": "bin", "content_id": "b"}, {"path": "gone", "operation": "delete"},
		{"path": "moved", "content_id": "m"}, {"path": "big", "content_id": "g"}, {"path": "latin", "content_id": "l"},
	}}, nil)
	for id, text := range map[string]string{"a": numbered(21), "s": "x \ny  \n", "b": "\x00two", "m": numbered(41), "g": strings.Repeat("0123456789\n", 60000)} {
		body += chunkLine(id, text, true)
	}
	body += chunkLine("l", "gr\xfcn\n", true)
	s.want(http.StatusCreated, "POST", repoPath("team/d", "commit-pack"), s.full("team/d"), body, &second)
	d := s.commitDiff("team/d", "ref=main")
	if got, want := shown(d), "M a, A latin, R097 moved, (A big), (M bin)"; got != want {
		t.Errorf("shown: %s, want %s", got, want)
	}
	if d.SHA != second.Commit.CommitSHA || d.BaseSHA != root.Commit.CommitSHA || d.Stats != (api.DiffStats{Files: 5, Additions: 60003, Changes: 60003}) {
		t.Errorf("%+v", d)
	}
	for _, f := range d.FilteredFiles {
		if f.Path == "bin" && f.Bytes != 4 || f.Path == "big" && f.Bytes < 60000*12 || !f.IsEOF {
			t.Errorf("filtered: %+v", f)
		}
	}
	// Naming a file lifts the filter, naming its directory does not.
	d = s.commitDiff("team/d", "sha="+second.Commit.CommitSHA+"&path=bin&path=/dir/&path=big")
	if shown(d) != "A big, M bin" || !strings.Contains(d.Files[1].Raw, "GIT binary patch") || d.Files[1].Additions != nil {
		t.Errorf("named: %s", shown(d))
	}
	// All of it, as a patch.
	for _, query := range []string{"ref=HEAD&git_apply_compatible=true", "sha=main&gitApplyCompatible=true", "ref=main&base_ref=main~1&git_apply_compatible=true&gitApplyCompatible=false"} {
		d = s.commitDiff("team/d", query)
		if got, want := shown(d), "A big, M bin, A latin, R097 moved, M space"; got != "M a, "+want {
			t.Errorf("%s: %s", query, got)
		}
	}
	if d = s.commitDiff("team/d", "ref=main~1"); d.BaseSHA != "" || shown(d) != "A a, A dir/x, A gone, A space, (A bin)" {
		t.Errorf("root: %q %s", d.BaseSHA, shown(d))
	}
	if d = s.commitDiff("team/d", "ref=main&base_ref=HEAD"); d.Files == nil || d.FilteredFiles == nil || d.Stats != (api.DiffStats{}) {
		t.Errorf("nothing: %+v", d)
	}
	if d = s.commitDiff("team/d", "ref=main~1&baseSha="+second.Commit.CommitSHA+"&path=gone"); shown(d) != "A gone" {
		t.Errorf("backwards: %s", shown(d))
	}
	for query, status := range map[string]int{
		"": 400, "ref=": 400, "ref=none": 404, "ref=main&base_ref=none": 404, "ref=main&path=../x": 400, "ref=main&git_apply_compatible=1": 400,
		"ref=main&base_ref=main~7": 404, "ref=main&ref_is_ephemeral=yes": 400, "ref=" + strings.Repeat("a", 40): 404,
		"ref=main" + strings.Repeat("&path=x", maxPaths+1): 400,
	} {
		for _, path := range bothPaths("team/d", "diff?"+query) {
			if a := s.do("GET", path, s.full("team/d"), nil); a.status != status {
				t.Errorf("%.80s: %d %s", path, a.status, a.body)
			} else {
				a.error(t)
			}
		}
	}
}

// TestBranchDiff compares branches with what they left.
func TestBranchDiff(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	get := func(query string) (d api.BranchDiff) {
		t.Helper()
		s.want(http.StatusOK, "GET", repoPath("r", "branches/diff?"+query), s.full("r"), nil, &d)
		return d
	}
	d := get("branch=topic")
	if d.Branch != "topic" || d.Base != "main" || d.MergeBaseSHA != s.tip("r", "old", false) || len(d.Files) != 1 || d.Files[0].Path != "t" || d.Stats.Additions != 1 {
		t.Errorf("%+v", d)
	}
	if d := get("branch=session&ephemeral=true&base=refs/heads/topic"); len(d.Files) != 1 || d.Base != "topic" {
		t.Errorf("ephemeral: %+v", d)
	}
	if d := get("branch=main&base=session&ephemeral_base=true&path=g"); len(d.Files) != 1 || d.Files[0].Path != "g" {
		t.Errorf("ephemeral base: %+v", d)
	}
	if d := get("branch=old"); d.Files == nil || len(d.Files) != 0 {
		t.Errorf("behind: %+v", d)
	}
	for query, status := range map[string]int{"": 400, "branch=none": 404, "branch=topic&base=none": 404, "branch=session": 404, "branch=main&ephemeral=true": 404, "branch=main&path=a//b": 400} {
		for _, path := range bothPaths("r", "branches/diff?"+query) {
			if a := s.do("GET", path, s.full("r"), nil); a.status != status {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
}

// patchBody makes the lines of a diff-commit.
func patchBody(meta map[string]any, diff string) string {
	head, _, _ := strings.Cut(commitBody(meta, nil), "\n")
	var b strings.Builder
	b.WriteString(head + "\n")
	for {
		n := min(len(diff), 1<<20)
		data, err := json.Marshal(base64.StdEncoding.EncodeToString([]byte(diff[:n])))
		if err != nil {
			panic(err)
		}
		diff = diff[n:]
		fmt.Fprintf(&b, "{\"diff_chunk\":{\"data\":%s,\"eof\":%t}}\n", data, diff == "")
		if diff == "" {
			return b.String()
		}
	}
}

func (s *stack) patch(name, body string) answer {
	s.t.Helper()
	return s.do("POST", repoPath(name, "diff-commit"), s.full(name), body, "Content-Type", "application/x-ndjson")
}

// TestCommitPatch takes a diff from one branch to another one.
func TestCommitPatch(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	var text strings.Builder
	for _, f := range s.commitDiff("r", "ref=clash&git_apply_compatible=true").Files {
		text.WriteString(f.Raw)
	}
	for i, path := range bothPaths("r", "diff-commit") {
		target := fmt.Sprintf("copy%d", i)
		var ack api.CommitAck
		body := patchBody(map[string]any{"target_branch": "refs/heads/" + target, "base_branch": "old", "expected_target_sha": s.tip("r", "old", false), "ephemeral": i == 1}, text.String())
		s.want(http.StatusCreated, "POST", path, s.full("r"), body, &ack)
		if ack.Commit.TargetBranch != target || ack.Commit.BlobCount != 2 || ack.Commit.PackBytes < 100 || !ack.Result.Success || ack.Result.OldSHA != zeros || ack.Result.NewSHA != s.tip("r", target, i == 1) {
			t.Errorf("%+v", ack)
		}
		var c api.CommitDetails
		s.want(http.StatusOK, "GET", repoPath("r", "commit?ref="+ack.Commit.CommitSHA), s.full("r"), nil, &c)
		if len(c.Commit.ParentSHAs) != 1 || c.Commit.ParentSHAs[0] != s.tip("r", "old", false) {
			t.Errorf("%+v", c)
		}
		if d := s.commitDiff("r", "ref="+ack.Commit.CommitSHA+"&base_ref=clash"); len(d.Files) != 0 {
			t.Errorf("the tree differs: %s", shown(d))
		}
	}
	// Onto nothing, and unified without git's words.
	s.create("e")
	var ack api.CommitAck
	s.want(http.StatusCreated, "POST", repoPath("e", "diff-commit"), s.full("e"), patchBody(nil, "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n"), &ack)
	if s.file("e", "path=n") != "new\n" || ack.Result.Branch != "main" {
		t.Errorf("%+v", ack)
	}
}

// TestHostilePatches sends what must be refused: nothing changes.
func TestHostilePatches(t *testing.T) {
	s := newStack(t)
	populate(s)
	link := "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n"
	add := func(path string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+x\n"
	}
	many := strings.Repeat("diff --git a/README.md b/README.md\nold mode 100644\nnew mode 100755\n", 60_000)
	rows := []struct {
		name, diff string
		status     int
		label      string
	}{
		{"empty", "", 412, "precondition_failed"},
		{"blank", "\n\n", 400, "invalid"},
		{"words", "hello\n", 400, "invalid"},
		{"no change", "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n hello again\n", 400, "invalid"},
		{"other context", "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-hello\n+bye\n", 409, "conflict"},
		{"missing file", "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-hello\n+bye\n", 409, "conflict"},
		{"exists", add("README.md"), 409, "conflict"},
		{"file in the way", add("README.md/x"), 409, "conflict"},
		{"directory in the way", add("src"), 409, "conflict"},
		{"escape", add("../x"), 400, "invalid"},
		{"absolute", "--- /dev/null\n+++ b//etc/x/../../y\n@@ -0,0 +1 @@\n+x\n", 400, "invalid"},
		{"dot git", add(".git/config"), 400, "invalid"},
		{"disguised", add("a/.GIT/x"), 400, "invalid"},
		{"quoted", strings.ReplaceAll(add("q"), "+++ b/q", `+++ "b/\056git/x"`), 400, "invalid"},
		{"renamed into .git", "diff --git a/README.md b/x\nsimilarity index 100%\nrename from README.md\nrename to .git/x\n", 400, "invalid"},
		{"beyond a link", link + add("l/x"), 409, "conflict"},
		{"link as .gitmodules", strings.NewReplacer("a/l", "a/.gitmodules", "b/l", "b/.gitmodules").Replace(link), 409, "conflict"},
		{"huge hunk", "--- a/README.md\n+++ b/README.md\n@@ -1,999999999 +1,999999999 @@\n hello again\n", 400, "invalid"},
		{"absurd hunk", "--- a/README.md\n+++ b/README.md\n@@ -1,99999999999999999999 +1 @@\n-x\n", 400, "invalid"},
		{"binary claim", "diff --git a/b b/b\nnew file mode 100644\nindex " + zeros + ".." + strings.Repeat("1", 40) + "\nGIT binary patch\nliteral 99999999999\nHcmV?d00001\n\n", 413, "payload_too_large"},
		{"delta bomb", "diff --git a/README.md b/README.md\nindex 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644\nGIT binary patch\ndelta 7\n" + deltaBomb + "\n\n", 413, "payload_too_large"},
		{"many files", many, 413, "payload_too_large"},
	}
	before := s.state()
	for _, row := range rows {
		a := s.patch(populated, patchBody(nil, row.diff))
		e := a.error(t)
		if a.status != row.status || e.Result == nil || e.Result.Success || e.Result.Status != row.label {
			t.Errorf("%s: %d %s", row.name, a.status, a.body)
		}
		if after := s.state(); after != before {
			t.Fatalf("%s changed\n%s\nto\n%s", row.name, before, after)
		}
	}
	good := patchBody(nil, add("new"))
	head, chunk, _ := strings.Cut(good, "\n")
	for name, body := range map[string]string{
		"no chunk": head, "no eof": strings.Replace(good, `"eof":true`, `"eof":false`, 1), "after eof": good + chunk,
		"chunk of a file": head + "\n" + chunkLine("c", "x", true), "no metadata": chunk, "bad base64": head + "\n" + `{"diff_chunk":{"data":"###","eof":true}}`,
		"cut off": good[:len(good)-9],
	} {
		a := s.patch(populated, body)
		if e := a.error(t); a.status != 400 || e.Result == nil || e.Result.Status != "invalid" || s.state() != before {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	big := head + "\n" + fmt.Sprintf(`{"diff_chunk":{"data":%q,"eof":true}}`, base64.StdEncoding.EncodeToString(make([]byte, maxChunk+1)))
	if a := s.patch(populated, big); a.status != 413 || a.error(t).Result.Status != "payload_too_large" {
		t.Errorf("a large chunk: %d %s", a.status, a.body)
	}
}

// deltaBomb is a delta in base 85 that claims to make a terabyte of 12 bytes.
var deltaBomb = gitBinary([]byte{12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20})

// TestPatchTargets refuses as commit-pack does.
func TestPatchTargets(t *testing.T) {
	s := newStack(t)
	populate(s)
	add := func(name string) string { return "--- /dev/null\n+++ b/" + name + "\n@@ -0,0 +1 @@\n+x\n" }
	fails := func(status int, label string, meta map[string]any) {
		t.Helper()
		a := s.patch(populated, patchBody(meta, add("n")))
		if e := a.error(t); a.status != status || e.Result == nil || e.Result.Status != label {
			t.Errorf("%v: %d %s", meta, a.status, a.body)
		}
	}
	fails(409, "precondition_failed", map[string]any{"expected_target_sha": zeros})
	fails(409, "precondition_failed", map[string]any{"expected_head_sha": s.tip(populated, "old", false)})
	fails(404, "not_found", map[string]any{"target_branch": "none"})
	fails(404, "not_found", map[string]any{"target_branch": "none", "base_branch": "nothing"})
	fails(400, "invalid", map[string]any{"author": nil})
	fails(400, "invalid", map[string]any{"commit_message": ""})
	fails(400, "invalid", map[string]any{"base_is_ephemeral": true})
	// Policies, of tokens and of the repository.
	for _, path := range []string{"diff-commit", "restore-commit", "reset-commits"} {
		body := patchBody(nil, add("n"))
		if path != "diff-commit" {
			body = `{"metadata":{"target_branch":"main","base_ref":"HEAD~1","author":{"name":"a","email":"e"}}}`
		}
		for _, rules := range [][]policy.Rule{{rule(t, "main", "no-push")}, {rule(t, "session", "no-force-push"), rule(t, "*", "no-push")}} {
			token := s.mint(s.key, auth.Claims{Org: "acme", Repo: populated, Scopes: []auth.Scope{auth.GitWrite}, Policies: rules})
			a := s.do("POST", repoPath(populated, path), token, body)
			if e := a.error(t); a.status != 403 || e.Result == nil || e.Result.Status != "forbidden" || !strings.Contains(e.Message, "denied by policy") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		a := s.do("POST", repoPath(populated, path), s.token(populated, auth.GitRead), body)
		if e := a.error(t); a.status != 403 || e.Result == nil {
			t.Errorf("%s, read only: %d %s", path, a.status, a.body)
		}
		// What adds commits is allowed where only force is not.
		token := s.mint(s.key, auth.Claims{Org: "acme", Repo: populated, Scopes: []auth.Scope{auth.GitWrite}, Policies: []policy.Rule{rule(t, "main", "no-force-push")}})
		if a := s.do("POST", repoPath(populated, path), token, body); a.status != 201 {
			t.Errorf("%s without force: %d %s", path, a.status, a.body)
		}
	}
	s.want(http.StatusOK, "PUT", repoPath(populated, "protections"), s.full(populated), `{"protections":[{"pattern":"main","ops":["no-push"]}]}`, nil)
	fails(403, "forbidden", nil)
}

// TestRestore brings back earlier states.
func TestRestore(t *testing.T) {
	s := newStack(t)
	s.create("r")
	var ids []string
	for _, text := range []string{"1", "2", "3"} {
		ids = append(ids, s.commit("r", map[string]any{"commit_message": "state " + text + "\n\nbody"}, map[string]string{"f": text}).Commit.CommitSHA)
	}
	s.commit("r", map[string]any{"target_branch": "side", "base_branch": "main"}, map[string]string{"f": "side"})
	body := func(fields string) string {
		return `{"metadata":{"target_branch":"main","author":{"name":"a","email":"e"},` + fields + `}}`
	}
	paths := append(bothPaths("r", "restore-commit"), bothPaths("r", "reset-commits")...)
	for i, fields := range []string{`"base_ref":"HEAD~1"`, `"target_commit_sha":"` + ids[0] + `"`, `"base_ref":"main~2","commit_message":" Mine "`, `"base_ref":"` + ids[1] + `","target_commit_sha":"x","expected_target_sha":"TIP"`} {
		tip := s.tip("r", "main", false)
		var ack api.CommitAck
		a := s.do("POST", paths[i], s.full("r"), body(strings.Replace(fields, "TIP", tip, 1))+"\n", "Content-Type", []string{"application/json", "application/x-ndjson"}[i%2])
		if a.status != 201 {
			t.Fatalf("%s: %d %s", fields, a.status, a.body)
		}
		a.json(t, &ack)
		if ack.Result.OldSHA != tip || ack.Result.NewSHA != s.tip("r", "main", false) || !ack.Result.Success || ack.Commit.PackBytes == 0 || ack.Commit.TargetBranch != "main" {
			t.Errorf("%+v", ack)
		}
		var c api.CommitDetails
		s.want(http.StatusOK, "GET", repoPath("r", "commit?ref=main"), s.full("r"), nil, &c)
		want := []string{`Reset main to "state 2"`, `Reset main to "state 1"`, "Mine", `Reset main to "state 2"`}[i]
		if c.Commit.Message != want || len(c.Commit.ParentSHAs) != 1 || c.Commit.ParentSHAs[0] != tip {
			t.Errorf("commit: %+v, want %s", c.Commit, want)
		}
		if got, want := s.file("r", "path=f"), []string{"2", "1", "3", "2"}[i]; got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
	before := s.state()
	for fields, want := range map[string]string{
		`"base_ref":"HEAD"`:                                        "412 precondition_failed",
		`"base_ref":"@~0"`:                                         "412 precondition_failed",
		`"base_ref":"side"`:                                        "412 precondition_failed",
		`"base_ref":"` + ids[1] + `"`:                              "412 precondition_failed", // the same tree
		`"base_ref":"none"`:                                        "412 precondition_failed",
		`"base_ref":"` + strings.Repeat("1", 40) + `"`:             "412 precondition_failed",
		`"base_ref":"HEAD~1","expected_head_sha":"` + ids[0] + `"`: "409 precondition_failed",
		`"base_ref":"HEAD~1","expected_target_sha":"abc"`:          "400 invalid",
		`"base_ref":"HEAD~1","target_branch":"none"`:               "404 not_found",
		`"base_ref":"HEAD~1","target_branch":"a..b"`:               "400 invalid",
		`"base_ref":"HEAD~1","ephemeral":true`:                     "404 not_found",
		`"base_ref":"HEAD~1","author":null`:                        "400 invalid",
		`"commit_message":"m"`:                                     "400 invalid",
	} {
		a := s.do("POST", paths[0], s.full("r"), body(fields))
		e := a.error(t)
		if e.Result == nil || e.Result.Success || fmt.Sprint(a.status, " ", e.Result.Status) != want {
			t.Errorf("%s: %d %s", fields, a.status, a.body)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"metadata":null}`, "x"} {
		if a := s.do("POST", paths[0], s.full("r"), bad); a.status != 400 || a.error(t).Result == nil {
			t.Errorf("%q: %d %s", bad, a.status, a.body)
		}
	}
	if s.state() != before {
		t.Error("refusals changed something")
	}
}

// TestWritersTogether has many add to a branch at once: with an expected commit one
// wins, without all do.
func TestWritersTogether(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "1\n"})
	s.commit("r", nil, map[string]string{"f": "2\n"})
	run := func(n int, send func(i int) answer) (statuses []int) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range n {
			wg.Go(func() {
				a := send(i)
				mu.Lock()
				defer mu.Unlock()
				statuses = append(statuses, a.status)
				if e := new(api.Error); a.status == 409 && (json.Unmarshal(a.body, e) != nil || e.Result.Status != "precondition_failed") {
					t.Errorf("%s", a.body)
				}
			})
		}
		wg.Wait()
		slices.Sort(statuses)
		return statuses
	}
	add := func(i int) string { return fmt.Sprintf("--- /dev/null\n+++ b/n%d\n@@ -0,0 +1 @@\n+x\n", i) }
	if got := run(6, func(i int) answer { return s.patch("r", patchBody(nil, add(i))) }); !slices.Equal(got, []int{201, 201, 201, 201, 201, 201}) {
		t.Errorf("without an expected commit: %v", got)
	}
	var list api.CommitList
	s.want(http.StatusOK, "GET", repoPath("r", "commits?limit=100"), s.full("r"), nil, &list)
	if len(list.Commits) != 8 {
		t.Errorf("%d commits", len(list.Commits))
	}
	tip := s.tip("r", "main", false)
	if got := run(5, func(i int) answer {
		return s.patch("r", patchBody(map[string]any{"expected_target_sha": tip}, add(10+i)))
	}); !slices.Equal(got, []int{201, 409, 409, 409, 409}) {
		t.Errorf("diff-commit with an expected commit: %v", got)
	}
	tip = s.tip("r", "main", false)
	if got := run(5, func(i int) answer {
		return s.do("POST", repoPath("r", "restore-commit"), s.full("r"), `{"metadata":{"target_branch":"main","commit_message":"`+fmt.Sprint(i)+`","base_ref":"HEAD~1","expected_target_sha":"`+tip+`","author":{"name":"a","email":"e"}}}`)
	}); !slices.Equal(got, []int{201, 409, 409, 409, 409}) {
		t.Errorf("restore with an expected commit: %v", got)
	}
	if got := run(4, func(i int) answer {
		return s.do("POST", repoPath("r", "restore-commit"), s.full("r"), `{"metadata":{"target_branch":"main","commit_message":"`+fmt.Sprint(i)+`","base_ref":"HEAD~1","author":{"name":"a","email":"e"}}}`)
	}); !slices.Equal(got, []int{201, 201, 201, 201}) {
		t.Errorf("restore: %v", got)
	}
}

// gitBinary makes the lines of a binary patch.
func gitBinary(content []byte) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write(content); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	data := packed.Bytes()
	line := []byte{byte('A' + len(data) - 1)}
	for len(data) > 0 {
		var group [4]byte
		data = data[copy(group[:], data):]
		v := binary.BigEndian.Uint32(group[:])
		var text [5]byte
		for i := 4; i >= 0; i-- {
			text[i] = digits[v%85]
			v /= 85
		}
		line = append(line, text[:]...)
	}
	return string(line)
}

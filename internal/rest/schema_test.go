package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// shape is what the published clients demand of a JSON value: "string", "bool",
// "int" or "date"; word; items; or members. A name that ends in "?" may be
// absent. Nothing may be null.
type (
	members map[string]any
	items   struct{ of any }
	word    []string
)

// check reports where v does not have a shape.
func check(at string, v, shape any) error {
	bad := fmt.Errorf("%s is %v, want %v", at, v, shape)
	switch want := shape.(type) {
	case string:
		switch got := v.(type) {
		case string:
			if _, err := time.Parse("2006-01-02T15:04:05Z", got); want == "string" || want == "date" && err == nil {
				return nil
			}
		case bool:
			if want == "bool" {
				return nil
			}
		case float64:
			if want == "int" && got == float64(int64(got)) {
				return nil
			}
		}
		return bad
	case word:
		if got, ok := v.(string); !ok || !slices.Contains(want, got) {
			return bad
		}
	case items:
		elements, ok := v.([]any)
		if !ok {
			return bad
		}
		for i, item := range elements {
			if err := check(fmt.Sprintf("%s[%d]", at, i), item, want.of); err != nil {
				return err
			}
		}
	case members:
		got, ok := v.(map[string]any)
		if !ok {
			return bad
		}
		for name, s := range want {
			name, optional := strings.CutSuffix(name, "?")
			member, present := got[name]
			if !present && optional {
				continue
			}
			if err := check(at+"."+name, member, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestCheckFindsFaults(t *testing.T) {
	shape := members{"a": "string", "b?": items{"int"}, "c": word{"x"}}
	for text, ok := range map[string]bool{
		`{"a":"","c":"x"}`: true, `{"a":"","b":[1],"c":"x","d":null}`: true, `{"a":null,"c":"x"}`: false, `{"c":"x"}`: false,
		`{"a":"","b":null,"c":"x"}`: false, `{"a":"","b":[1.5],"c":"x"}`: false, `{"a":"","c":"y"}`: false, `[]`: false,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := check("v", v, shape); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestShapes holds the answers to what the published clients check, both
// vocabularies at once.
func TestShapes(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	branch := members{"name": "string", "head_sha": "string", "created_at": "date"}
	item := members{"cursor": "string", "name": "string", "head_sha": "string", "created_at": "date"}
	repo := members{"repo_id": "string", "url": "string", "repo_name": "string", "default_branch": "string", "created_at": "date"}
	result := members{"branch": "string", "target_branch": "string", "old_sha": "string", "new_sha": "string", "success": "bool", "status": "string", "message?": "string"}
	failure := members{"error": "string", "status": "int", "title": "string", "detail": "string", "type": "string", "code": "string",
		"result": members{"success": "bool", "status": word{"precondition_failed", "conflict", "not_found", "invalid", "timeout", "unauthorized", "forbidden", "unavailable", "internal", "payload_too_large"},
			"message": "string", "branch?": "string", "target_branch?": "string", "old_sha?": "string", "new_sha?": "string"}}
	files := members{"paths": items{"string"}, "ref": "string", "has_more": "bool", "next_cursor?": "string",
		"entries": items{members{"path": "string", "type": word{"blob", "tree", "symlink", "submodule"}, "mode": "string"}}}
	branches := members{"branches": items{item}, "has_more": "bool", "next_cursor?": "string"}
	repos := members{"repos": items{repo}, "has_more": "bool", "next_cursor?": "string"}
	commit := members{"sha": "string", "parent_shas": items{"string"}, "message": "string", "author_name": "string", "author_email": "string",
		"committer_name": "string", "committer_email": "string", "date": "date", "signature?": "string", "payload?": "string"}
	note := members{"sha": "string", "target_ref": "string", "notes_ref": "string", "new_ref_sha": "string", "base_commit?": "string",
		"result": members{"success": "bool", "status": "string", "message?": "string"}}
	rows := []struct {
		method, path, body string
		status             int
		shape              any
	}{
		{"GET", "repo", "", 200, repo},
		{"GET", "repos", "", 200, repos},
		{"GET", "repos?limit=1", "", 200, repos},
		{"GET", "repos?q=none-such", "", 200, repos},
		{"GET", "repos/files", "", 200, files},
		{"GET", "repos/files?limit=1", "", 200, files},
		{"GET", "repos/files?ref=session&ephemeral=true", "", 200, files},
		{"GET", "repos/branches", "", 200, branches},
		{"GET", "repos/branches?limit=1", "", 200, branches},
		{"GET", "repos/branches?ephemeral=true", "", 200, branches},
		{"GET", "repos/branch?name=main", "", 200, members{"branch": branch}},
		{"POST", "repos/branches/create", `{"target_branch":"x","base_branch":"main"}`, 200,
			members{"message": "string", "target_branch": "string", "target_is_ephemeral": "bool", "commit_sha": "string"}},
		{"DELETE", "repos/branches", `{"name":"x"}`, 200, members{"name": "string", "target_branch": "string", "message": "string", "ephemeral": "bool"}},
		{"POST", "repos/commit-pack", commitBody(nil, map[string]string{"n": "1"}), 201,
			members{"commit": members{"commit_sha": "string", "tree_sha": "string", "target_branch": "string", "pack_bytes": "int", "blob_count": "int"}, "result": result}},
		{"POST", "repos/commit-pack", commitBody(nil, map[string]string{"n": "1"}), 412, failure},
		{"POST", "repos/commit-pack", commitBody(map[string]any{"expected_head_sha": strings.Repeat("ab", 20)}, map[string]string{"n": "1"}), 409, failure},
		{"POST", "repos/commit-pack", "x", 400, failure},
		{"POST", "repos/branches/create", `{"target_branch":"old","base_branch":"main"}`, 409, members{"error": "string"}},
		{"GET", "repos/tags", "", 200, members{"tags": items{members{"cursor": "string", "name": "string", "sha": "string"}}, "has_more": "bool", "next_cursor?": "string"}},
		{"GET", "repos/tag?name=v1", "", 200, members{"tag": members{"name": "string", "sha": "string"}}},
		{"POST", "repos/tags", `{"name":"v9","target":"main"}`, 400, members{"error": "string"}},
		{"POST", "repos/tags", `{"name":"v9","ref":"main"}`, 200, members{"name": "string", "sha": "string", "message": "string"}},
		{"DELETE", "repos/tags", `{"name":"v9"}`, 200, members{"name": "string", "message": "string"}},
		{"GET", "repos/commits", "", 200, members{"commits": items{commit}, "has_more": "bool", "next_cursor?": "string"}},
		{"GET", "repos/commits?limit=1", "", 200, members{"commits": items{commit}, "has_more": "bool", "next_cursor": "string"}},
		{"GET", "repos/commit?sha=old", "", 200, members{"commit": commit}},
		{"GET", "repos/files/metadata?limit=1", "", 200, members{"ref": "string", "has_more": "bool", "next_cursor": "string", "commits": members{},
			"files": items{members{"path": "string", "mode": "string", "size": "int", "last_commit_sha": "string", "type": word{"blob", "symlink", "submodule"}}}}},
		{"GET", "repos/notes?sha=old&ref=reviews", "", 200, members{"sha": "string", "note": "string", "ref_sha": "string"}},
		{"POST", "repos/notes", `{"sha":"main","action":"append","note":"x"}`, 200, note},
		{"POST", "repos/notes", `{"sha":"main","action":"add","note":"x"}`, 409, note},
		{"DELETE", "repos/notes", `{"sha":"main"}`, 200, note},
		{"GET", "repos/notes/refs", "", 200, members{"refs": items{members{"cursor": "string", "ref": "string", "sha": "string"}}, "has_more": "bool", "prefix": "string", "next_cursor?": "string"}},
		{"DELETE", "repos/delete", "", 200, members{"repo_id": "string", "repo_name": "string", "message": "string"}},
	}
	for _, row := range rows {
		a := s.do(row.method, "/api/v1/"+row.path, token, row.body)
		if a.status != row.status {
			t.Errorf("%s %s: %d %s", row.method, row.path, a.status, a.body)
			continue
		}
		var v any
		a.json(t, &v)
		if err := check("answer", v, row.shape); err != nil {
			t.Errorf("%s %s: %v", row.method, row.path, err)
		}
		if strings.Contains(string(a.body), "null") {
			t.Errorf("%s %s: a null in %s", row.method, row.path, a.body)
		}
	}
	ref := s.commit("team/other", nil, map[string]string{"f": "1"})
	a := s.want(http.StatusOK, "GET", repoPath("team/other", "files?ref="+ref.Result.NewSHA), s.full("team/other"), nil, nil)
	if !strings.Contains(string(a.body), `"ref":"`+ref.Result.NewSHA+`"`) {
		t.Errorf("ref is not echoed: %s", a.body)
	}
	eph := s.commit("team/other", map[string]any{"target_branch": "e", "base_branch": "main", "ephemeral": true}, map[string]string{"f": "2"})
	a = s.want(http.StatusOK, "GET", repoPath("team/other", "files?ref=e&ephemeral=true"), s.full("team/other"), nil, nil)
	if !strings.Contains(string(a.body), `"ref":"refs/namespaces/ephemeral/refs/heads/e"`) || eph.Result.Branch != "e" {
		t.Errorf("ephemeral ref is not echoed: %s", a.body)
	}
}

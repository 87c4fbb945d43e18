package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
)

// refusedNote sends a request that is refused in the shape of a note's answer.
func (s *stack) refusedNote(status int, label, method, path, token string, body any) api.NoteUpdate {
	s.t.Helper()
	var n api.NoteUpdate
	a := s.want(status, method, path, token, body, &n)
	if strings.Contains(string(a.body), `"error"`) || n.SHA == "" || n.TargetRef == "" || n.TargetRef != n.NotesRef ||
		n.Result.Success || n.Result.Status != label || n.Result.Message == "" {
		s.t.Errorf("%s %s %v: %s", method, path, body, a.body)
	}
	return n
}

func TestNotes(t *testing.T) {
	for i := range 2 {
		s := newStack(t)
		s.create("r")
		path := pathsOf("r", "notes")[i]
		token := s.full("r")
		head := s.commit("r", nil, map[string]string{"f": "1"}).Commit.CommitSHA
		sha, ref, guard := []string{"sha", "object_ref"}[i], []string{"ref", "notes_ref"}[i], []string{"expected_ref_sha", "expected_notes_ref_sha"}[i]
		write := func(more map[string]any) map[string]any {
			body := map[string]any{sha: head, "action": "add", "note": "looks good\n"}
			for k, v := range more {
				body[k] = v
			}
			return body
		}
		s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+sha+"="+head, token, nil)

		var added, appended, gone api.NoteUpdate
		s.want(http.StatusOK, "POST", path, token, write(map[string]any{"author": map[string]any{"name": "N", "email": "n@example.com"}}), &added)
		if added.SHA != head || added.TargetRef != "refs/notes/commits" || added.NotesRef != added.TargetRef || added.BaseCommit != "" || len(added.NewRefSHA) != 40 || !added.Result.Success || added.Result.Status != "ok" {
			t.Errorf("added %+v", added)
		}
		var commit api.CommitDetails
		s.want(http.StatusOK, "GET", repoPath("r", "commit?ref=refs/notes/commits"), token, nil, &commit)
		if commit.Commit.AuthorName != "N" || commit.Commit.SHA != added.NewRefSHA {
			t.Errorf("the commit is %+v", commit)
		}
		s.want(http.StatusOK, "POST", path, token, write(map[string]any{sha: "main", "action": "append", "note": "  and tested ", guard: added.NewRefSHA}), &appended)
		if appended.SHA != head || appended.BaseCommit != added.NewRefSHA {
			t.Errorf("appended %+v", appended)
		}
		var note api.Note
		s.want(http.StatusOK, "GET", path+"?"+sha+"=main", token, nil, &note)
		if note.Note != "looks good\n\nand tested" || note.SHA != head || note.RefSHA != appended.NewRefSHA {
			t.Errorf("the note is %+v", note)
		}
		s.want(http.StatusOK, "GET", repoPath("r", "commit?ref=refs/notes/commits"), token, nil, &commit)
		if commit.Commit.AuthorName != "tester" || commit.Commit.AuthorEmail != "tester@users.noreply.acme" {
			t.Errorf("the commit is %+v", commit)
		}

		// What a guard, the note that is there or a policy refuses.
		n := s.refusedNote(http.StatusConflict, "precondition_failed", "POST", path, token, write(map[string]any{"action": "append", guard: head}))
		if n.NewRefSHA != appended.NewRefSHA || n.BaseCommit != appended.NewRefSHA {
			t.Errorf("refused %+v", n)
		}
		s.refusedNote(http.StatusConflict, "precondition_failed", "POST", path, token, write(map[string]any{"action": "append", guard: strings.Repeat("0", 40)}))
		n = s.refusedNote(http.StatusConflict, "precondition_failed", "POST", path, token, write(map[string]any{ref: "new", guard: head}))
		if n.NewRefSHA != "" || n.BaseCommit != "" || n.TargetRef != "refs/notes/new" {
			t.Errorf("refused %+v", n)
		}
		s.refusedNote(http.StatusConflict, "conflict", "POST", path, token, write(nil))
		s.refusedNote(http.StatusConflict, "conflict", "POST", path, token, write(map[string]any{ref: "commits/below"}))
		s.refusedNote(http.StatusConflict, "precondition_failed", "DELETE", path, token, map[string]any{sha: head, guard: added.NewRefSHA})
		denied := s.mint(s.key, auth.Claims{Org: "acme", Repo: "r", Scopes: []auth.Scope{auth.GitWrite}, Policies: policy.List{rule(t, "refs/notes/*", policy.NoPush)}})
		s.refusedNote(http.StatusForbidden, "forbidden", "POST", path, denied, write(map[string]any{"action": "append"}))
		s.refusedNote(http.StatusForbidden, "forbidden", "DELETE", path, denied, map[string]any{sha: head})

		for body, status := range map[string]int{
			`{"action":"add","note":"x"}`:                                                 400,
			fmt.Sprintf(`{%q:%q,"action":"add"}`, sha, head):                              400,
			fmt.Sprintf(`{%q:%q,"action":"add","note":" \n"}`, sha, head):                 400,
			fmt.Sprintf(`{%q:%q,"action":"replace","note":"x"}`, sha, head):               400,
			fmt.Sprintf(`{%q:%q,"note":"x",%q:"refs/heads/x"}`, sha, head, ref):           400,
			fmt.Sprintf(`{%q:%q,"note":"x",%q:"a..b"}`, sha, head, ref):                   400,
			fmt.Sprintf(`{%q:%q,"note":"x",%q:"abc"}`, sha, head, guard):                  400,
			fmt.Sprintf(`{%q:%q,"note":"x","author":{"name":"","email":"x"}}`, sha, head): 400,
			fmt.Sprintf(`{%q:"none","note":"x"}`, sha):                                    404,
			fmt.Sprintf(`{%q:%q,"note":"x"}`, sha, s.absent()):                            404,
			fmt.Sprintf(`{%q:%q,"action":"remove",%q:"other"}`, sha, head, ref):           404,
			fmt.Sprintf(`{%q:%q,"action":"remove"}`, sha, appended.NewRefSHA):             404,
		} {
			if a := s.do("POST", path, token, body); a.status != status {
				t.Errorf("%s: %d, want %d: %s", body, a.status, status, a.body)
			} else {
				a.error(t)
			}
		}
		for q, status := range map[string]int{
			"": 400, sha + "=" + head + "&" + ref + "=refs/heads/main": 400, sha + "=none": 404, sha + "=" + s.absent(): 404, sha + "=" + head + "&" + ref + "=none": 404,
		} {
			if a := s.do("GET", path+"?"+q, token, nil); a.status != status {
				t.Errorf("%s: %d, want %d: %s", q, a.status, status, a.body)
			} else {
				a.error(t)
			}
		}
		reader := s.token("r", auth.GitRead)
		s.refused(http.StatusForbidden, api.ScopeMissing, "POST", path, reader, write(nil))
		s.refused(http.StatusForbidden, api.ScopeMissing, "DELETE", path, reader, map[string]any{sha: head})
		s.refused(http.StatusBadRequest, api.Invalid, "DELETE", path, token, nil)

		s.want(http.StatusOK, "DELETE", path, token, map[string]any{sha: head}, &gone)
		if !gone.Result.Success || gone.BaseCommit != appended.NewRefSHA {
			t.Errorf("deleted %+v", gone)
		}
		s.refused(http.StatusNotFound, api.NotFound, "DELETE", path, token, map[string]any{sha: head})
		s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+sha+"="+head, token, nil)
		s.want(http.StatusOK, "POST", path, token, write(nil), nil)
		s.want(http.StatusOK, "POST", path, token, map[string]any{sha: head, "action": "remove"}, nil)
	}
}

func TestNotesRefs(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	s.commit("r", nil, map[string]string{"f": "1"})
	for _, path := range pathsOf("r", "notes/refs") {
		var empty api.NotesRefList
		s.want(http.StatusOK, "GET", repoPath("r", "notes/refs?prefix=none"), token, nil, &empty)
		if empty.Refs == nil || len(empty.Refs) > 0 || empty.HasMore || empty.Prefix != "refs/notes/none" {
			t.Errorf("nothing is %+v", empty)
		}
		for _, name := range []string{"commits", "reviews/b", "notes/reviews/a", "refs/notes/z"} {
			s.do("POST", repoPath("r", "notes"), token, map[string]any{"sha": "main", "note": "x", "ref": name})
		}
		for q, want := range map[string]string{
			"":                            "commits reviews/a reviews/b z",
			"prefix=reviews":              "reviews/a reviews/b",
			"prefix=notes/reviews/b":      "reviews/b",
			"prefix=refs/notes/":          "commits reviews/a reviews/b z",
			"prefix=refs/notes/z&limit=1": "z",
		} {
			var list api.NotesRefList
			s.want(http.StatusOK, "GET", path+"?"+q, token, nil, &list)
			var got []string
			for _, r := range list.Refs {
				got = append(got, strings.TrimPrefix(r.Ref, "refs/notes/"))
				if len(r.SHA) != 40 || !strings.HasPrefix(r.Ref, "refs/notes/") {
					t.Errorf("listed %+v", r)
				}
			}
			if strings.Join(got, " ") != want || list.HasMore || !strings.HasPrefix(list.Prefix, "refs/notes/") {
				t.Errorf("%s: %+v", q, list)
			}
		}
		var page, rest api.NotesRefList
		s.want(http.StatusOK, "GET", path+"?limit=2", token, nil, &page)
		s.want(http.StatusOK, "GET", path+"?cursor="+page.Refs[0].Cursor, token, nil, &rest)
		if len(page.Refs) != 2 || !page.HasMore || page.NextCursor != page.Refs[1].Cursor || len(rest.Refs) != 3 || rest.Refs[0].Ref != "refs/notes/reviews/a" {
			t.Errorf("pages are %+v and %+v", page, rest)
		}
		for _, q := range []string{"limit=0", "limit=x", "cursor=x", "cursor=" + afterName(tagCursor, "refs/tags/x"), "prefix=refs/heads/"} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "GET", path, s.token("r", auth.OrgRead), nil)
	}
}

// TestDefaultNotesOnly: without custom notes refs the default one works by each of
// its names, and others are refused however they are named.
func TestDefaultNotesOnly(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "1"})
	s.handler.Service.DefaultNotesOnly = true
	path := repoPath("r", "notes")
	for _, ref := range []string{"reviews", "notes/reviews", "refs/notes/reviews", "commits/x"} {
		for _, a := range []answer{
			s.do("GET", path+"?sha=main&ref="+ref, s.full("r"), nil),
			s.do("POST", path, s.full("r"), `{"sha":"main","action":"add","note":"x","ref":"`+ref+`"}`),
			s.do("POST", path, s.full("r"), `{"sha":"main","action":"append","note":"x","notes_ref":"`+ref+`"}`),
			s.do("DELETE", path, s.full("r"), `{"sha":"main","ref":"`+ref+`"}`),
		} {
			if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "custom notes refs are not enabled") {
				t.Errorf("%s: %d %s", ref, a.status, a.body)
			}
		}
	}
	for _, ref := range []string{"", "commits", "notes/commits", "refs/notes/commits"} {
		s.want(http.StatusOK, "POST", path, s.full("r"), `{"sha":"main","action":"append","note":"x","ref":"`+ref+`"}`, nil)
	}
}

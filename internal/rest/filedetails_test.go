package rest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

func TestFileDetails(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	first := s.commit("r", map[string]any{"commit_message": "first\n\nof all\n"}, map[string]string{"a.txt": "a", "d/b": "bb", "d/e/c": "ccc", "z": ""})
	second := s.commit("r", map[string]any{"commit_message": "second", "author": map[string]any{"name": "Bea", "email": "b@example.com", "date": "2024-02-03T04:05:06Z"}},
		map[string]string{"d/b": "bbbb", "a.txt": "a"})
	s.commit("r", map[string]any{"target_branch": "e", "base_branch": "main", "ephemeral": true}, map[string]string{"eph": "1"})
	old, recent := first.Commit.CommitSHA, second.Commit.CommitSHA
	for _, path := range pathsOf("r", "files/metadata") {
		var all api.FileDetailList
		s.want(http.StatusOK, "GET", path, token, nil, &all)
		want := []api.FileDetail{
			{Path: "a.txt", Type: "blob", Mode: "100644", Size: 1, LastCommitSHA: old},
			{Path: "d/b", Type: "blob", Mode: "100644", Size: 4, LastCommitSHA: recent},
			{Path: "d/e/c", Type: "blob", Mode: "100644", Size: 3, LastCommitSHA: old},
			{Path: "z", Type: "blob", Mode: "100644", Size: 0, LastCommitSHA: old},
		}
		if len(all.Files) != len(want) || all.HasMore || all.Ref != "main" || len(all.Commits) != 2 {
			t.Fatalf("listed %+v", all)
		}
		for i, f := range all.Files {
			if f != want[i] {
				t.Errorf("file %d is %+v, want %+v", i, f, want[i])
			}
		}
		if c := all.Commits[recent]; c.Author != "Bea" || c.Date != "2024-02-03T04:05:06Z" || c.Message != "second" || all.Commits[old].Message != "first\n\nof all" {
			t.Errorf("commits are %+v", all.Commits)
		}
		var paged []api.FileDetail
		cursor := ""
		for {
			var page api.FileDetailList
			s.want(http.StatusOK, "GET", path+"?limit=1&cursor="+url.QueryEscape(cursor), token, nil, &page)
			paged = append(paged, page.Files...)
			if len(page.Files) != 1 || len(page.Commits) != 1 {
				t.Fatalf("a page is %+v", page)
			}
			if cursor = page.NextCursor; !page.HasMore {
				break
			}
		}
		if len(paged) != 4 || paged[1] != want[1] {
			t.Errorf("pages give %+v", paged)
		}
		for q, names := range map[string]string{
			"path=d":                   "d/b d/e/c",
			"path=/d/&recursive=false": "d/b d/e/c",
			"ref=main~1&path=d/e":      "d/e/c",
			"cursor=d/c":               "d/e/c z",
			"ref=e&ephemeral=true":     "a.txt d/b d/e/c eph z",
		} {
			var list api.FileDetailList
			s.want(http.StatusOK, "GET", path+"?"+q, token, nil, &list)
			var got []string
			for _, f := range list.Files {
				got = append(got, f.Path)
			}
			if strings.Join(got, " ") != names {
				t.Errorf("%s lists %v", q, got)
			}
		}
		for _, q := range []string{"limit=0", "limit=x", "ephemeral=1", "recursive=no", "path=a/../b", "cursor=%00!", "ephemeral=true"} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
		}
		for _, q := range []string{"ref=none", "path=none", "path=z", "ref=e"} {
			s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+q, token, nil)
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "GET", path, s.token("r", auth.OrgRead), nil)
	}
	s.create("empty")
	s.refused(http.StatusNotFound, api.NotFound, "GET", "/api/v1/repos/files/metadata", s.full("empty"), nil)
	// The fallback of a default branch that is not there.
	s.want(http.StatusCreated, "POST", "/api/repos", s.full("trunk"), `{"default_branch":"trunk"}`, nil)
	s.commit("trunk", nil, map[string]string{"f": "1"})
	var list api.FileDetailList
	s.want(http.StatusOK, "GET", repoPath("trunk", "files/metadata"), s.full("trunk"), nil, &list)
	if len(list.Files) != 1 || list.Ref != "main" {
		t.Errorf("listed %+v", list)
	}
}

package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

func TestBlame(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	for _, path := range pathsOf("r", "blame") {
		s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?path=f", token, nil)
	}
	one := s.commit("r", map[string]any{
		"commit_message": "first\n\nbody", "author": map[string]any{"name": "Ann Ö", "email": "ann@example.com", "date": "2024-02-03T04:05:06+02:00"},
		"committer": map[string]any{"name": "Cee", "email": "c@example.com", "date": "2024-02-03T04:05:07Z"},
	}, map[string]string{"f": "a\nb\nc\n", "bin": "a\x00", "d/g": "x\n"}).Commit.CommitSHA
	two := s.commit("r", nil, map[string]string{"f": "a\nnew\nb\nc\n"}).Commit.CommitSHA
	head := s.commit("r", nil, map[string]string{"other": "1"}).Commit.CommitSHA
	s.commit("r", map[string]any{"target_branch": "side", "base_branch": "main", "ephemeral": true}, map[string]string{"e": "only here\n"})
	for _, path := range pathsOf("r", "blame") {
		var got api.Blame
		s.want(http.StatusOK, "GET", path+"?path=/f", token, nil, &got)
		if got.Ref != "main" || got.Path != "f" || got.CommitSHA != head || len(got.Lines) != 4 {
			t.Fatalf("blamed %+v", got)
		}
		want := api.BlameLine{LineNumber: 3, CommitSHA: one, OriginalLineNumber: 2, OriginalPath: "f", AuthorName: "Ann Ö", AuthorEmail: "ann@example.com",
			AuthorTime: "2024-02-03T02:05:06Z", CommitterName: "Cee", CommitterEmail: "c@example.com", CommitterTime: "2024-02-03T04:05:07Z", Summary: "first"}
		if got.Lines[2] != want {
			t.Errorf("a line comes from %+v, want %+v", got.Lines[2], want)
		}
		if l := got.Lines[1]; l.CommitSHA != two || l.PreviousCommitSHA != one || l.OriginalLineNumber != 2 {
			t.Errorf("the new line comes from %+v", l)
		}
		for q, numbers := range map[string]string{
			"path=f&range=2,3": "23", "path=f&range=1,%2B1&range=4&range=": "", "path=f&range=1,%2B1&range=4,4": "14", "path=f&range=/new/,/c/": "234",
			"path=f&ref=main~2": "123", "path=f&detect_moves=true": "1234", "path=f&ref=" + one: "123", "path=e&ref=side&ephemeral=true": "1", "path=d/g": "1",
		} {
			var got api.Blame
			if numbers == "" {
				s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
				continue
			}
			s.want(http.StatusOK, "GET", path+"?"+q, token, nil, &got)
			told := ""
			for _, l := range got.Lines {
				told += string(rune('0' + l.LineNumber))
			}
			if told != numbers {
				t.Errorf("%s tells lines %s, want %s", q, told, numbers)
			}
		}
		for _, q := range []string{
			"", "path=", "path=a/../f", "path=a%00b", "path=bin", "path=f&range=9", "path=f&range=x", "path=f&range=--help", "path=f&range=/(none)/",
			"path=f&detect_moves=1", "path=f&ephemeral=yes", "path=f" + strings.Repeat("&range=1", 17),
		} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
		}
		for _, q := range []string{"path=none", "path=d", "path=f/x", "path=f&ref=none", "path=f&ref=side", "path=e", "path=f&ref=" + s.absent()} {
			s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+q, token, nil)
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "GET", path+"?path=f", s.token("r", auth.RepoWrite), nil)
	}
}

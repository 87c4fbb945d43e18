package git_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestForeignAndAbsentLookTheSame asks with one repository's token for another one
// and for one that is not there.
func TestForeignAndAbsentLookTheSame(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "mine")
	seeded(t, s, "foreign")
	token := s.Token(harness.Grant{Repo: "mine", Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite}})
	for _, call := range [][2]string{
		{http.MethodGet, "/api/repos/%s"}, {http.MethodDelete, "/api/repos/%s"}, {http.MethodGet, "/api/repos/%s/branches"},
		{http.MethodGet, "/api/repos/%s/file?path=a"}, {http.MethodGet, "/%s.git/info/refs?service=git-upload-pack"},
		{http.MethodGet, "/%s.git/info/refs?service=git-receive-pack"},
	} {
		var got [2]harness.Answer
		for i, name := range []string{"foreign", "absentx"} {
			a, err := s.Do(nil, call[0], fmt.Sprintf(call[1], name), token, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			a.Header.Del("Date")
			got[i] = a
		}
		body := strings.ReplaceAll(string(got[0].Body), "foreign", "absentx")
		if got[0].Status != got[1].Status || body != string(got[1].Body) || fmt.Sprint(got[0].Header) != fmt.Sprint(got[1].Header) {
			t.Errorf("%s %s: foreign %d %v %s; absent %d %v %s", call[0], call[1], got[0].Status, got[0].Header, got[0].Body, got[1].Status, got[1].Header, got[1].Body)
		}
		if got[0].Status != http.StatusNotFound {
			t.Errorf("%s %s answered %d, want 404", call[0], call[1], got[0].Status)
		}
	}
}

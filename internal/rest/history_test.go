package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/service"
)

func TestCommits(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	for _, path := range pathsOf("r", "commits") {
		var empty api.CommitList
		s.want(http.StatusOK, "GET", path, token, nil, &empty)
		if empty.Commits == nil || len(empty.Commits) > 0 || empty.HasMore {
			t.Errorf("an empty repository has %+v", empty)
		}
		s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?ref=main", token, nil)
	}
	var shas []string
	for i := range 7 {
		ack := s.commit("r", map[string]any{"commit_message": fmt.Sprintf("change %d\n\nbody", i),
			"author":    map[string]any{"name": "Ann Ö", "email": "ann@example.com", "date": "2024-02-03T04:05:06+02:00"},
			"committer": map[string]any{"name": "Cee", "email": "c@example.com", "date": fmt.Sprintf("2024-02-03T04:05:%02dZ", i)},
		}, map[string]string{fmt.Sprintf("d%d/f", i%2): fmt.Sprint(i)})
		shas = append([]string{ack.Commit.CommitSHA}, shas...)
	}
	side := s.commit("r", map[string]any{"target_branch": "side", "base_branch": "main", "ephemeral": true}, map[string]string{"x": "1"})
	for _, path := range pathsOf("r", "commits") {
		var list api.CommitList
		s.want(http.StatusOK, "GET", path, token, nil, &list)
		if len(list.Commits) != 7 || list.HasMore {
			t.Fatalf("listed %+v", list)
		}
		for i, c := range list.Commits {
			if c.SHA != shas[i] {
				t.Errorf("commit %d is %s, want %s", i, c.SHA, shas[i])
			}
		}
		c := list.Commits[0]
		if c.Message != "change 6\n\nbody" || c.AuthorName != "Ann Ö" || c.AuthorEmail != "ann@example.com" || c.CommitterName != "Cee" || c.CommitterEmail != "c@example.com" ||
			c.Date != "2024-02-03T04:05:06Z" || len(c.ParentSHAs) != 1 || c.ParentSHAs[0] != shas[1] {
			t.Errorf("the newest is %+v", c)
		}
		for q, want := range map[string][]string{
			"ref=main~5":                  shas[5:],
			"branch=main~5":               shas[5:],
			"ref=main~5&branch=none":      shas[5:],
			"path=d0/f":                   {shas[0], shas[2], shas[4], shas[6]},
			"path=/d1/":                   {shas[1], shas[3], shas[5]},
			"path=none":                   {},
			"ref=side&ephemeral=true&x=y": append([]string{side.Commit.CommitSHA}, shas...),
			"ref=" + shas[6]:              shas[6:],
		} {
			var list api.CommitList
			s.want(http.StatusOK, "GET", path+"?"+q, token, nil, &list)
			var got []string
			for _, c := range list.Commits {
				got = append(got, c.SHA)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s lists %v, want %v", q, got, want)
			}
		}
		for _, q := range []string{"limit=0", "limit=x", "cursor=x", "cursor=" + afterBranch(service.Branch{Name: "main"}), "ephemeral=1", "path=a/../b", "path=a%00b"} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
		}
		for _, q := range []string{"ref=none", "ref=side", "ref=" + s.absent(), "ephemeral=true&ref=main"} {
			s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+q, token, nil)
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "GET", path, s.token("r", auth.OrgRead), nil)

		var page api.CommitList
		s.want(http.StatusOK, "GET", path+"?limit=2&path=d0/f", token, nil, &page)
		if len(page.Commits) != 2 || !page.HasMore || page.NextCursor == "" {
			t.Fatalf("a page is %+v", page)
		}
		s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?path=d1/f&cursor="+page.NextCursor, token, nil)
		s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?cursor="+page.NextCursor, token, nil)
		s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?path=d0/f&cursor="+page.NextCursor+"AA", token, nil)
		var rest api.CommitList
		s.want(http.StatusOK, "GET", path+"?path=d0/f&cursor="+page.NextCursor, token, nil, &rest)
		if len(rest.Commits) != 2 || rest.HasMore || rest.NextCursor != "" || rest.Commits[0].SHA != shas[4] {
			t.Errorf("the next page is %+v", rest)
		}
	}
	// A cursor of what this repository does not reach.
	other := historyPosition{skip: 1}
	copy(other.tip[:], "01234567890123456789")
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/v1/repos/commits?cursor="+afterCommit(other, ""), token, nil)
}

func TestGetCommit(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	head := s.repoBranch("main")
	for _, path := range pathsOf(populated, "commit") {
		for _, q := range []string{"ref=main", "sha=" + head, "ref=" + head[:10], "sha=HEAD", "ref=main&sha=none", "ref=session~1&ephemeral=true"} {
			var got api.CommitDetails
			s.want(http.StatusOK, "GET", path+"?"+q, token, nil, &got)
			if got.Commit.SHA != head || len(got.Commit.ParentSHAs) != 1 || got.Commit.Message != "change" || got.Commit.Signature != "" || got.Commit.Payload != "" {
				t.Errorf("%s: %+v", q, got)
			}
		}
		for _, q := range []string{"", "ref=", "sha=%20", "ref=main&ephemeral=x"} {
			s.refused(http.StatusBadRequest, api.Invalid, "GET", path+"?"+q, token, nil)
		}
		for _, q := range []string{"ref=none", "sha=" + s.absent(), "ref=main~50", "ref=session"} {
			s.refused(http.StatusNotFound, api.NotFound, "GET", path+"?"+q, token, nil)
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "GET", path+"?ref=main", s.token(populated, auth.RepoWrite), nil)
	}
}

// TestSignedCommit describes commits that only Git makes.
func TestSignedCommit(t *testing.T) {
	head := "tree " + s40('1') + "\nparent " + s40('2') + "\nauthor J\xf6rg <j@example.com> 1 +0100\ncommitter C <c@example.com> 99999999999999 +0000\n"
	signature := "-----BEGIN SSH SIGNATURE-----\nabc\n-----END SSH SIGNATURE-----"
	plain := strings.Replace(head, "\xf6", "o", 1)
	for name, row := range map[string]struct{ data, author, signature, payload string }{
		"signed":           {plain + "gpgsig " + strings.ReplaceAll(signature, "\n", "\n ") + "\n\nwhat\n\n", "Jorg", signature, plain + "\nwhat\n\n"},
		"in latin1":        {head + "encoding ISO-8859-1\n\nwhat\n", "Jörg", "", ""},
		"in nothing known": {head + "\nwhat\n", "J\ufffdrg", "", ""},
		"signed, no UTF-8": {head + "gpgsig " + strings.ReplaceAll(signature, "\n", "\n ") + "\n\nwhat\n", "J\ufffdrg", "", ""},
	} {
		d, err := object.ParseCommit([]byte(row.data))
		if err != nil {
			t.Fatal(err)
		}
		c := describeSigned(object.ID{1}, d)
		if c.AuthorName != row.author || c.Message != "what" || c.Date != "9999-12-31T23:59:59Z" || c.Signature != row.signature || c.Payload != row.payload || len(c.ParentSHAs) != 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func s40(digit byte) string { return strings.Repeat(string(digit), 40) }

// TestPagesUnderWriters reads lists page by page while others write: what was
// there when the list began is seen once and in order.
func TestPagesUnderWriters(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	const n = 60
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d%d/f%02d", i%4, i)] = "x"
	}
	s.commit("r", nil, files)
	for i := range n {
		s.commit("r", nil, map[string]string{fmt.Sprintf("d%d/f%02d", i%4, i): fmt.Sprint(i)})
		s.want(http.StatusOK, "POST", "/api/v1/repos/branches/create", token, map[string]any{"target_branch": fmt.Sprintf("b%02d", (i*7)%n), "base_branch": "main"}, nil)
	}
	tip := ""
	{
		var b api.BranchInfo
		s.want(http.StatusOK, "GET", "/api/v1/repos/branch?name=main", token, nil, &b)
		tip = b.Branch.HeadSHA
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body := commitBody(map[string]any{"commit_message": "meanwhile"}, map[string]string{fmt.Sprintf("w%d", w): fmt.Sprint(i)})
				if a := s.do("POST", "/api/v1/repos/commit-pack", token, body); a.status != http.StatusCreated {
					t.Errorf("commit: %d %s", a.status, a.body)
					return
				}
				body = fmt.Sprintf(`{"target_branch":"new-%d-%d","base_branch":"main"}`, w, i)
				if a := s.do("POST", "/api/v1/repos/branches/create", token, body); a.status != http.StatusOK {
					t.Errorf("branch: %d %s", a.status, a.body)
					return
				}
			}
		})
	}
	var commits, branches, paths []string
	cursor := ""
	for {
		var list api.CommitList
		s.want(http.StatusOK, "GET", repoPath("r", "commits?limit=7&cursor="+cursor), token, nil, &list)
		for _, c := range list.Commits {
			commits = append(commits, c.SHA)
		}
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
	}
	for cursor = ""; ; {
		var list api.BranchList
		s.want(http.StatusOK, "GET", repoPath("r", "branches?limit=7&cursor="+cursor), token, nil, &list)
		for _, b := range list.Branches {
			branches = append(branches, b.Name)
		}
		if cursor = list.NextCursor; !list.HasMore || strings.HasPrefix(list.Branches[0].Name, "new-") {
			break
		}
	}
	for cursor = ""; ; {
		var list api.FileDetailList
		s.want(http.StatusOK, "GET", repoPath("r", "files/metadata?limit=7&cursor="+url.QueryEscape(cursor)), token, nil, &list)
		for _, f := range list.Files {
			if !strings.HasPrefix(f.Path, "w") {
				paths = append(paths, f.Path)
			}
		}
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
	}
	close(stop)
	writers.Wait()
	var want []string
	for cursor = ""; ; {
		var list api.CommitList
		s.want(http.StatusOK, "GET", repoPath("r", "commits?limit=100&ref="+tip+"&cursor="+cursor), token, nil, &list)
		for _, c := range list.Commits {
			want = append(want, c.SHA)
		}
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
	}
	if len(want) != n+1 || len(commits) < len(want) || strings.Join(commits[len(commits)-len(want):], " ") != strings.Join(want, " ") {
		t.Errorf("%d commits were listed, %d were there", len(commits), len(want))
	}
	seen := map[string]bool{}
	for _, sha := range commits {
		if seen[sha] {
			t.Errorf("commit %s is listed twice", sha)
		}
		seen[sha] = true
	}
	for i := range n {
		if name := fmt.Sprintf("b%02d", (i*7)%n); len(branches) <= i+1 || branches[i+1] != name {
			t.Fatalf("branches are %v", branches)
		}
	}
	if len(paths) != n {
		t.Errorf("%d files are listed, %d were there", len(paths), n)
	}
}

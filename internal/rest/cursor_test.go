package rest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

func TestCursorsComeBack(t *testing.T) {
	for _, b := range []service.Branch{{Name: "main", Version: 1}, {Name: "a/ü/x", Version: 1 << 40}, {Name: "x", Version: 0}} {
		got, err := branchPosition(afterBranch(b))
		if err != nil || got.Name != b.Name || got.Version != b.Version {
			t.Errorf("%+v comes back as %+v, %v", b, got, err)
		}
	}
	r := meta.Repo{ID: 77, CreatedAt: time.UnixMicro(1712345678901234)}
	if at, id, err := repoPosition(afterRepo(r)); err != nil || !at.Equal(r.CreatedAt) || id != r.ID {
		t.Errorf("comes back as %v %d %v", at, id, err)
	}
	for _, path := range []string{"a/b", "ü", "bad\xff\xfename", "\x80/"} {
		cursor := afterPath(path)
		if strings.ToValidUTF8(cursor, "") != cursor {
			t.Errorf("cursor after %q is no text", path)
		}
		if got, err := pathPosition(cursor); err != nil || got != path {
			t.Errorf("%q comes back as %q, %v", path, got, err)
		}
	}
}

func TestBadCursors(t *testing.T) {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	bad := []string{"x", "!!", "1", encode("b"), encode("b\x01"), encode("b\x01a..b"), encode("b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01main"),
		encode("r"), encode("r1234567812345678x"), encode("r\xff2345678\xff2345678"), encode("q\x01main"), strings.Repeat("A", 20000)}
	for _, cursor := range bad {
		if _, err := branchPosition(cursor); err == nil || service.Public(err).Code != service.Invalid {
			t.Errorf("branch cursor %.40q: %v", cursor, err)
		}
		if _, _, err := matchPosition(cursor, repo.GrepQuery{}); err == nil || service.Public(err).Code != service.Invalid {
			t.Errorf("cursor of a search %.40q: %v", cursor, err)
		}
		if _, _, err := repoPosition(cursor); err == nil || service.Public(err).Code != service.Invalid {
			t.Errorf("repository cursor %.40q: %v", cursor, err)
		}
	}
	for _, cursor := range []string{rawPath + "!", strings.Repeat("a", maxPathCursor+1)} {
		if _, err := pathPosition(cursor); err == nil || service.Public(err).Code != service.Invalid {
			t.Errorf("path cursor %.40q: %v", cursor, err)
		}
	}
}

// FuzzCursors holds that what is accepted is what the server writes.
func FuzzCursors(f *testing.F) {
	f.Add(afterBranch(service.Branch{Name: "main", Version: 300}))
	f.Add(afterRepo(meta.Repo{ID: 1, CreatedAt: time.UnixMicro(1)}))
	f.Add(afterPath("a\xff"))
	f.Add(afterCommit(historyPosition{object.ID{1}, 300}, ""))
	f.Add(afterCommit(historyPosition{object.ID{1}, 0}, "src/a.txt"))
	f.Add(afterName(tagCursor, "refs/tags/v1"))
	f.Add(afterName(notesCursor, "refs/notes/reviews"))
	f.Add(beforeDelivery(1 << 40))
	f.Fuzz(func(t *testing.T, cursor string) {
		if p, err := branchPosition(cursor); err == nil && cursor != "" {
			if q, err := branchPosition(afterBranch(service.Branch{Name: p.Name, Version: p.Version})); err != nil || q != p {
				t.Fatalf("%q: %+v, then %+v, %v", cursor, p, q, err)
			}
		}
		if at, id, err := repoPosition(cursor); err == nil && cursor != "" {
			if got := afterRepo(meta.Repo{ID: id, CreatedAt: at}); got != cursor {
				t.Fatalf("%q reads as %v %d, which is %q", cursor, at, id, got)
			}
		}
		for _, path := range []string{"", "src/a.txt"} {
			if p, err := commitPosition(cursor, path); err == nil {
				if q, err := commitPosition(afterCommit(p, path), path); err != nil || q != p {
					t.Fatalf("%q: %+v, then %+v, %v", cursor, p, q, err)
				}
			}
		}
		for _, kind := range []byte{notesCursor, tagCursor} {
			if name, err := namePosition(cursor, kind); err == nil && cursor != "" {
				if again, err := namePosition(afterName(kind, name), kind); err != nil || again != name {
					t.Fatalf("%q: %q, then %q, %v", cursor, name, again, err)
				}
			}
		}
		if at, err := deliveryPosition(cursor); err == nil && cursor != "" {
			if again, err := deliveryPosition(beforeDelivery(at)); err != nil || again != at {
				t.Fatalf("%q: %d, then %d, %v", cursor, at, again, err)
			}
		}
		if path, err := pathPosition(cursor); err == nil {
			if again, err := pathPosition(afterPath(path)); !strings.Contains(path, "\x00") && (err != nil || again != path) {
				t.Fatalf("%q: %q, then %q, %v", cursor, path, again, err)
			}
		}
	})
}

// TestBranchPagesUnderInserts follows cursors while branches are created: all
// that were there at the start are seen once.
func TestBranchPagesUnderInserts(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "1"})
	token := s.full("r")
	add := func(name string) {
		s.want(http.StatusOK, "POST", "/api/v1/repos/branches/create", token,
			fmt.Sprintf(`{"target_branch":%q,"base_branch":"main","target_is_ephemeral":true}`, name), nil)
	}
	const n = 45
	for i := range n {
		add(fmt.Sprintf("b%02d", (i*7)%n))
	}
	var seen []api.BranchItem
	cursor := ""
	for page := 0; ; page++ {
		var list api.BranchList
		s.want(http.StatusOK, "GET", "/api/v1/repos/branches?ephemeral=true&limit=10&cursor="+url.QueryEscape(cursor), token, nil, &list)
		seen = append(seen, list.Branches...)
		if !list.HasMore {
			if list.NextCursor != "" {
				t.Errorf("the last page has the cursor %q", list.NextCursor)
			}
			break
		}
		if len(list.Branches) != 10 || list.NextCursor != list.Branches[9].Cursor {
			t.Fatalf("page is %+v", list)
		}
		if page < 3 {
			add(fmt.Sprintf("a-new-%d", page))
			s.want(http.StatusOK, "DELETE", "/api/v1/repos/branches", token, fmt.Sprintf(`{"name":%q,"ephemeral":true}`, list.Branches[9].Name), nil)
		}
		cursor = list.NextCursor
	}
	if len(seen) != n+3 {
		t.Errorf("%d branches seen, want %d", len(seen), n+3)
	}
	for i := range n {
		if want := fmt.Sprintf("b%02d", (i*7)%n); seen[i].Name != want {
			t.Fatalf("branch %d is %q, want %q: not the order of creation", i, seen[i].Name, want)
		}
	}
	var rest api.BranchList
	s.want(http.StatusOK, "GET", "/api/v1/repos/branches?ephemeral=true&cursor="+seen[n-1].Cursor, token, nil, &rest)
	if len(rest.Branches) != 3 || rest.HasMore {
		t.Errorf("after an item's own cursor: %+v", rest)
	}
	var def, clamped api.BranchList
	s.want(http.StatusOK, "GET", "/api/v1/repos/branches?ephemeral=true&cursor=", token, nil, &def)
	s.want(http.StatusOK, "GET", "/api/v1/repos/branches?ephemeral=true&limit=100000", token, nil, &clamped)
	if len(def.Branches) != 20 || len(clamped.Branches) != n || clamped.HasMore {
		t.Errorf("pages of %d and %d", len(def.Branches), len(clamped.Branches))
	}
	for _, q := range []string{"limit=0", "limit=-1", "limit=x", "limit=1.5", "limit=99999999999999999999", "cursor=%21", "cursor=bWFpbg", "ephemeral=yes"} {
		s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/v1/repos/branches?"+q, token, nil)
	}
}

func TestFilePages(t *testing.T) {
	s := newStack(t)
	s.create("r")
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("d%d/f%02d", i%3, i)] = "x"
	}
	files["top"] = "x"
	s.commit("r", nil, files)
	token := s.full("r")
	var paths []string
	cursor := ""
	for {
		var list api.FileList
		s.want(http.StatusOK, "GET", repoPath("r", "files?limit=7&cursor="+url.QueryEscape(cursor)), token, nil, &list)
		paths = append(paths, list.Paths...)
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
	}
	var all api.FileList
	s.want(http.StatusOK, "GET", repoPath("r", "files"), token, nil, &all)
	if len(paths) != 31 || strings.Join(paths, " ") != strings.Join(all.Paths, " ") || all.HasMore || len(all.Entries) != 34 {
		t.Errorf("pages give %v, the whole %v", paths, all.Paths)
	}
	many := map[string]string{}
	for i := range filesDefault + 300 {
		many[fmt.Sprintf("many/%04d", i)] = "x"
	}
	s.commit("r", map[string]any{"target_branch": "many", "base_branch": "main"}, many)
	var whole, part api.FileList
	s.want(http.StatusOK, "GET", repoPath("r", "files?ref=many"), token, nil, &whole)
	s.want(http.StatusOK, "GET", repoPath("r", "files?ref=many&cursor=d9"), token, nil, &part)
	if len(whole.Paths) != 31+len(many) || len(whole.Entries) != len(whole.Paths)+4 || whole.HasMore || whole.Ref != "many" || !slices.IsSorted(whole.Paths) {
		t.Errorf("the whole has %d paths and %d entries", len(whole.Paths), len(whole.Entries))
	}
	if len(part.Entries) != filesDefault || !part.HasMore || part.NextCursor != "many/0998" {
		t.Errorf("a page has %d entries, next %q", len(part.Entries), part.NextCursor)
	}
	var sub, flat, after api.FileList
	s.want(http.StatusOK, "GET", repoPath("r", "files?path=/d1/"), token, nil, &sub)
	s.want(http.StatusOK, "GET", repoPath("r", "files?recursive=false"), token, nil, &flat)
	s.want(http.StatusOK, "GET", repoPath("r", "files?cursor=d2/f2"), token, nil, &after)
	if len(sub.Paths) != 10 || sub.Paths[0] != "d1/f01" {
		t.Errorf("subtree: %v", sub.Paths)
	}
	if fmt.Sprint(flat.Paths) != "[top]" || len(flat.Entries) != 4 || flat.Entries[0].Type != "tree" || flat.Entries[0].Path != "d0" {
		t.Errorf("children: %+v", flat)
	}
	if len(after.Paths) != 5 || after.Paths[0] != "d2/f20" {
		t.Errorf("after a path: %v", after.Paths)
	}
	for _, q := range []string{"path=none", "path=top", "ref=none"} {
		s.refused(http.StatusNotFound, api.NotFound, "GET", repoPath("r", "files?"+q), token, nil)
	}
	for _, q := range []string{"limit=0", "recursive=1", "path=a/../b", "cursor=%00!"} {
		s.refused(http.StatusBadRequest, api.Invalid, "GET", repoPath("r", "files?"+q), token, nil)
	}
	s.create("empty")
	s.refused(http.StatusNotFound, api.NotFound, "GET", repoPath("empty", "files"), s.full("empty"), nil)
}

func TestRepoPages(t *testing.T) {
	s := newStack(t)
	for i := range 25 {
		s.create(fmt.Sprintf("team%d/app-%02d", i%2, i))
	}
	s.want(http.StatusOK, "DELETE", "/api/v1/repos/delete", s.full("team0/app-00"), nil, nil)
	org := s.token("org", "org:read")
	var names []string
	cursor := ""
	for page := 0; ; page++ {
		var list api.RepoList
		s.want(http.StatusOK, "GET", "/api/v1/repos?limit=10&cursor="+cursor, org, nil, &list)
		for _, r := range list.Repos {
			names = append(names, r.URL)
		}
		if page == 0 {
			s.create("team0/newer")
		}
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
	}
	if len(names) != 24 || names[0] != "team0/app-24" || names[23] != "team1/app-01" {
		t.Errorf("repositories are %v", names)
	}
	var found api.RepoList
	s.want(http.StatusOK, "GET", "/api/repos?q=%20TEAM1%2FAPP-0%20", s.token("", "org:read"), nil, &found)
	if len(found.Repos) != 5 || found.HasMore {
		t.Errorf("found %+v", found)
	}
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/repos?cursor=x", org, nil)
	s.refused(http.StatusForbidden, api.ScopeMissing, "GET", "/api/repos", s.token("org", "git:read"), nil)
}

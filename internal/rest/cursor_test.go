package rest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/webhook"
)

func TestCursorsComeBack(t *testing.T) {
	for _, b := range []service.Branch{{Name: "main", Version: 1}, {Name: "a/ü/x", Version: 1 << 40}, {Name: "x", Version: 0}} {
		got, err := branchPosition(afterBranch(b))
		if err != nil || got.Name != b.Name || got.Version != b.Version {
			t.Errorf("%+v comes back as %+v, %v", b, got, err)
		}
	}
	r := meta.Repo{ID: 77, CreatedAt: time.UnixMicro(1712345678901234)}
	if at, err := repoPosition(afterRepo(r)); err != nil || !at.CreatedAt.Equal(r.CreatedAt) || at.ID != r.ID {
		t.Errorf("comes back as %+v %v", at, err)
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
		if _, err := repoPosition(cursor); err == nil || service.Public(err).Code != service.Invalid {
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
		if at, err := repoPosition(cursor); err == nil && cursor != "" {
			if got := afterRepo(at); got != cursor {
				t.Fatalf("%q reads as %+v, which is %q", cursor, at, got)
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
	s.want(http.StatusOK, "GET", "/api/v1/repos/branches?ephemeral=true&limit=99999999999999999999", token, nil, &clamped)
	if len(def.Branches) != 20 || len(clamped.Branches) != n || clamped.HasMore {
		t.Errorf("pages of %d and %d", len(def.Branches), len(clamped.Branches))
	}
	for _, q := range []string{"limit=0", "limit=-1", "limit=x", "limit=1.5", "limit=-99999999999999999999", "cursor=%21", "cursor=bWFpbg", "ephemeral=yes"} {
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

// cursorOf asks for the first item of a list and returns the cursor after it.
func (s *stack) cursorOf(method, path, token string, body any) string {
	s.t.Helper()
	a := s.do(method, path, token, body)
	var page map[string]any
	if a.status != http.StatusOK || json.Unmarshal(a.body, &page) != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if next, ok := page["next_cursor"].(string); ok {
		return next
	}
	for _, list := range page {
		if items, ok := list.([]any); ok && len(items) > 0 {
			if item, ok := items[0].(map[string]any); ok && item["cursor"] != nil {
				return item["cursor"].(string)
			}
		}
	}
	s.t.Fatalf("%s %s gives no cursor: %s", method, path, a.body)
	return ""
}

// TestForeignCursors walks the routes that take a cursor: one of another list, of
// another repository or org, cut anywhere or with a letter changed is refused with
// the stable code, and tells nothing. Those of files are paths, of which any will do.
func TestForeignCursors(t *testing.T) {
	s := newStack(t)
	populate(s)
	s.hideAll()
	const other = "team/" + hidden
	for i := range 2 { // something more of everything
		for _, repo := range []string{populated, other} {
			s.commit(repo, nil, map[string]string{fmt.Sprint("more", i): "hello again\nhello\n"})
			s.want(http.StatusOK, "POST", repoPath(repo, "notes"), s.full(repo), fmt.Sprintf(`{"sha":"main","action":"append","note":"x","ref":"more%d"}`, i), nil)
			hook := map[string]any{"url": "https://hooks.example.com/x"}
			s.want(http.StatusCreated, "POST", "/api/webhooks", s.token(repo, auth.RepoWrite), hook, nil)
		}
	}
	save := func(repo string, hook meta.WebhookID) {
		r := s.repo(repo)
		page, err := s.meta.EventPage(t.Context(), meta.EventQuery{Org: r.Org, Repo: r.ID, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := s.meta.LeaseWebhook(t.Context(), hook, "test", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p := meta.DeliveryProgress{Webhook: hook, Fence: lease.Fence, Release: true}
		for _, e := range page.Events {
			p.Deliveries = append(p.Deliveries, meta.Delivery{Position: e.Position, Type: e.Type})
		}
		if err := s.meta.SaveDeliveries(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	save(populated, sampleWebhook)
	save(other, 8)

	type list struct{ name, method, path, token, body string }
	at := func(l list, cursor string) (path string, body any) {
		if l.method == http.MethodPost {
			return l.path, fmt.Sprintf(l.body, fmt.Sprintf(`,"cursor":%q`, cursor))
		}
		return with(l.path, "limit=1&cursor="+url.QueryEscape(cursor)), nil
	}
	first := func(l list) string {
		if l.method == http.MethodPost {
			return s.cursorOf(l.method, l.path, l.token, fmt.Sprintf(l.body, ""))
		}
		return s.cursorOf(l.method, with(l.path, "limit=1"), l.token, nil)
	}
	var lists []list
	foreign := make(map[string]string) // a cursor of the same list elsewhere
	cursors := make(map[string]string)
	for _, r := range routes() {
		_, paged := r.op.request.FieldByName("Cursor")
		if _, in := r.op.request.FieldByName("Pagination"); !paged && !in || r.ofThread() {
			continue // for those of threads see TestThreadCursors
		}
		of := func(repo, hook string) list {
			token := s.token(repo, auth.GitRead, auth.RepoWrite)
			if slices.Contains(r.access.scopes, auth.OrgRead) || slices.Contains(r.access.scopes, auth.OrgAdmin) {
				token = s.token("org", auth.OrgRead, auth.OrgAdmin)
			}
			path := strings.NewReplacer(repoSegment, url.PathEscape(repo), "{webhook}", hook).Replace("/api/" + r.path)
			return list{r.name, r.method, path, token, `{"query":{"pattern":"."},"pagination":{"limit":1%s}}`}
		}
		l := of(populated, webhook.PublicID(sampleWebhook))
		lists = append(lists, l)
		cursors[r.name] = first(l)
		foreign[r.name] = first(of(other, webhook.PublicID(8)))
	}
	t.Logf("%d routes take a cursor", len(lists))
	if len(lists) == 0 {
		t.Error("no route takes a cursor")
	}
	for _, l := range lists {
		own := cursors[l.name]
		path, body := at(l, own)
		s.want(http.StatusOK, l.method, path, l.token, body, nil)
		var bad []string
		bad = append(bad, foreign[l.name]) // the same one where the list is the org's
		for name, cursor := range cursors {
			if name != l.name {
				bad = append(bad, cursor)
			}
		}
		for i := range len(own) {
			bad = append(bad, own[:i], own[:i]+string(rune('A'+(own[i]+1)%26))+own[i+1:])
		}
		bad = slices.DeleteFunc(bad, func(c string) bool { return c == "" || c == own })
		for _, cursor := range bad {
			path, body := at(l, cursor)
			a := s.do(l.method, path, l.token, body)
			if strings.HasPrefix(l.name, "files.") {
				if a.status != http.StatusOK {
					t.Errorf("%s with %q: %d %s", l.name, cursor, a.status, a.body)
				}
			} else if a.status != http.StatusBadRequest || a.error(t).Code != api.Invalid || a.error(t).Message != badCursor().Error() {
				t.Errorf("%s with %q: %d %s", l.name, cursor, a.status, a.body)
			}
			if strings.Contains(string(a.body), hidden) {
				t.Errorf("%s with %q tells of another repository: %s", l.name, cursor, a.body)
			}
		}
	}
}

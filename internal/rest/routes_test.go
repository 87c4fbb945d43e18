package rest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/webhook"
)

// sample is a request of a route that succeeds in the repository that populate
// makes.
type sample struct {
	query string
	body  any
}

// samples has one or more for every route.
var samples = map[string][]sample{
	"events.list":         {{}, {query: "after={event}&limit=1"}},
	"webhooks.list":       {{}},
	"webhooks.create":     {{body: `{"url":"https://hooks.example.com/x","events":["push"]}`}, {body: `{"url":"https://hooks.example.com/x","secret":"0123456789"}`}},
	"webhooks.get":        {{}},
	"webhooks.update":     {{body: `{"enabled":false}`}, {body: `{"url":"https://hooks.example.com/y","events":["*"]}`}},
	"webhooks.delete":     {{}},
	"webhooks.rotate":     {{}, {body: `{"secret":"0123456789"}`}},
	"webhooks.deliveries": {{}, {query: "limit=1"}},
	"webhooks.ping":       {{}},
	"webhooks.redeliver":  {{body: `{"event_id":"{event}"}`}},
	"repos.create":        {{body: map[string]any{"default_branch": "trunk"}}, {}},
	"repos.list":          {{}},
	"repos.get":           {{}},
	"repos.update":        {{body: `{"default_branch":"old"}`}},
	"repos.lookup":        {{}},
	"repos.delete":        {{}},
	"repos.undelete":      {{}},
	"usage.org":           {{}},
	"usage.repo":          {{}},
	"protections.get":     {{}},
	"protections.set":     {{body: `{"protections":[{"pattern":"release/*","ops":["no-push"]}]}`}},
	"audit.list":          {{}, {query: "limit=1&repo=team%2Fapp&sub=tester&since=2024-01-01T00:00:00Z"}},
	"signing_keys.list":   {{}},
	"signing_keys.add":    {{body: map[string]any{"public_key": someSigningKey, "title": "CI", "not_before": "2024-01-01T00:00:00Z"}}},
	"signing_keys.remove": {{query: "fingerprint=" + url.QueryEscape(someFingerprint)}},
	"file.get":            {{query: "path=README.md"}, {query: "path=README.md&ref=session&ephemeral=true"}},
	"file.head":           {{query: "path=README.md"}},
	"files.list":          {{}, {query: "limit=1"}},
	"archive.post":        {{}, {body: `{"ref":"main"}`}},
	"archive.get":         {{query: "ref=main"}},
	"branches.list":       {{}, {query: "ephemeral=true&limit=1"}},
	"branches.get":        {{query: "name=main"}},
	"branches.create": {
		{body: `{"target_branch":"new","base_ref":"main"}`},
		{body: `{"target_branch":"session","base_branch":"session","base_is_ephemeral":true}`},
		{body: `{"target_branch":"old","base_ref":"main","force":true}`},
		{body: `{"target_branch":"new","base_ref":"main","target_is_ephemeral":true}`},
	},
	"branches.delete": {{body: `{"name":"old"}`}, {body: `{"target_branch":"session","ephemeral":true}`}},
	"merge": {
		{body: `{"source_ref":"main","target_branch":"old","strategy":"ff_only"}`},
		{body: `{"source_branch":"session","source_is_ephemeral":true,"target_branch":"main","strategy":"merge","squash":true}`},
		{body: `{"source_ref":"old","target_branch":"main","strategy":"ff_prefer"}`},
	},
	"merge.preview": {{query: "source_branch=session&source_is_ephemeral=true&target_branch=main&include_content=true"}},
	"tags.list":     {{}, {query: "limit=1"}},
	"tags.get":      {{query: "name=v1"}},
	"tags.create":   {{body: `{"name":"v2","ref":"main~1"}`}, {body: `{"name":"v1","ref":"main"}`}},
	"tags.delete":   {{body: `{"name":"v1"}`}},
	"files.details": {{}, {query: "limit=1&path=src"}, {query: "ref=session&ephemeral=true"}},
	"commits.list":  {{}, {query: "path=README.md&limit=1"}, {query: "branch=session&ephemeral=true"}},
	"notes.get":     {{query: "object_ref=main"}, {query: "sha=old&ref=reviews"}},
	"notes.write": {
		{body: `{"object_ref":"main~1","action":"add","note":"text"}`},
		{body: `{"sha":"main","action":"append","note":"text","ref":"reviews"}`},
		{body: `{"sha":"main","action":"remove"}`},
	},
	"notes.delete":  {{body: `{"object_ref":"main"}`}, {body: `{"sha":"old","ref":"reviews"}`}},
	"notes.refs":    {{}, {query: "prefix=rev&limit=1"}},
	"commits.get":   {{query: "ref=main~1"}, {query: "sha=v1"}, {query: "ref=session&ephemeral=true"}},
	"commits.diff":  {{query: "ref=main"}, {query: "sha=old&gitApplyCompatible=true"}, {query: "ref=session&ref_is_ephemeral=true&base_ref=main&path=s"}},
	"branches.diff": {{query: "branch=session&ephemeral=true"}, {query: "branch=main&base=old&path=README.md&path=src"}},
	"commits.patch": {{body: patchBody(nil, "--- a/README.md\n+++ b/README.md\n@@ -1 +1,2 @@\n hello again\n+more\n")}},
	"commits.restore": {
		{body: `{"metadata":{"target_branch":"main","base_ref":"HEAD~1","author":{"name":"a","email":"e"}}}`},
		{body: `{"metadata":{"target_branch":"session","ephemeral":true,"base_ref":"HEAD^","author":{"name":"a","email":"e"}}}`},
	},
	"commits.reset":      {{body: `{"metadata":{"target_branch":"main","base_ref":"old","author":{"name":"a","email":"e"}}}` + "\n"}},
	"blame":              {{query: "path=README.md"}, {query: "path=s&ref=session&ephemeral=true&range=1,1&detect_moves=true"}},
	"grep":               {{body: `{"query":{"pattern":"hello"}}`}},
	"credentials.create": {{body: `{"username":"u","password":"p"}`}},
	"credentials.update": {{body: `{"id":"{credential}","password":"q"}`}},
	"credentials.delete": {{body: `{"id":"{credential}"}`}},
	"upstream.pull":      {{}, {body: `{"ref":"main","after":"x"}`}},
	"upstream.detach":    {{}},
	"commits.pack": {
		{body: commitBody(nil, map[string]string{"n": "1"})},
		{body: commitBody(map[string]any{"target_branch": "fresh", "base_branch": "main", "ephemeral": true}, map[string]string{"n": "1"})},
	},
}

const populated = "team/app"

// sampleWebhook is the endpoint of the populated repository.
const sampleWebhook meta.WebhookID = 7

// A signing key that is registered by populate.
const (
	someSigningKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBKVH4VI2dkA9sPHjcH/wrobUrBV1iFWp0LUPpNXTqBn"
	someFingerprint = "SHA256:Rr+3+Hvznss7UsDJ1yhiMAbB98jtdQM0l5k53jXTsDs"
)

// populate makes the repository of the samples.
func populate(s *stack) {
	s.create(populated)
	s.commit(populated, nil, map[string]string{"README.md": "hello\n", "src/a.txt": "a"})
	s.want(http.StatusOK, "POST", repoPath(populated, "branches/create"), s.full(populated), `{"target_branch":"old","base_ref":"main"}`, nil)
	s.commit(populated, nil, map[string]string{"README.md": "hello again\n"})
	s.commit(populated, map[string]any{"target_branch": "session", "base_branch": "main", "ephemeral": true}, map[string]string{"s": "1"})
	s.want(http.StatusOK, "POST", repoPath(populated, "tags"), s.full(populated), `{"name":"v1","ref":"old"}`, nil)
	for _, body := range []string{`{"sha":"main","action":"add","note":"looks good"}`, `{"sha":"old","action":"add","note":"old","ref":"reviews"}`} {
		s.want(http.StatusOK, "POST", repoPath(populated, "notes"), s.full(populated), body, nil)
	}
	s.create("team/other")
	populateThread(s)
	app := s.repo(populated)
	v, err := s.meta.Apply(s.t.Context(), meta.Change{Org: app.Org, CreateWebhook: &meta.Webhook{
		ID: sampleWebhook, Repo: app.ID, URL: "https://127.0.0.1:9/", Secret: []byte("\x00secret"), Enabled: true,
	}})
	if err != nil || !v.Applied {
		s.t.Fatal(v, err)
	}
	s.want(http.StatusCreated, "POST", "/api/org/signing-keys", s.full("org"), map[string]any{"public_key": someSigningKey + " someone"}, nil)
	s.follow(mirror)
	var k api.Credential
	s.want(http.StatusCreated, "POST", repoPath(populated, "git-credentials"), s.full(populated), `{"password":"x"}`, &k)
	s.credential = k.ID
	page, err := s.meta.EventPage(s.t.Context(), meta.EventQuery{Org: app.Org, Repo: app.ID, Limit: 1})
	if err != nil || len(page.Events) == 0 {
		s.t.Fatal("no event", err)
	}
	s.event = events.ID(page.Events[0], app.ID)
}

// mirror is a repository that follows an upstream.
const mirror = "team/mirror"

// paths returns where a route is mounted, for a repository and what it has. The
// stack fills in "{id}", that of the populated repository.
func (r *route) paths(repo string) []string {
	var out []string
	if r.legacy != "" {
		out = append(out, "/api/v1/"+r.legacy)
	}
	if r.path != "" {
		out = append(out, strings.Replace("/api/"+r.path, "repos/{r}", strings.TrimPrefix(repoPath(repo, ""), "/api/"), 1))
	}
	for i := range out {
		out[i] = strings.Replace(out[i], "{tag}", "v1", 1)
		out[i] = strings.NewReplacer("{webhook}", webhook.PublicID(sampleWebhook), "{thread}", url.PathEscape(someThread), "{checkpoint}", r.point(),
			"{digest}", blobSum, "{path}", "w/a").Replace(out[i])
	}
	return out
}

// point is the checkpoint that a sample of a route names.
func (r *route) point() string {
	if r.name == "checkpoints.diff" {
		return firstPoint
	}
	return headPoint
}

// ofRepo reports whether a route is about a repository that exists.
func (r *route) ofRepo() bool { return strings.Contains(r.path, repoSegment) }

func with(path, query string) string {
	if query == "" {
		return path
	}
	return path + "?" + query
}

func TestTableIsComplete(t *testing.T) {
	names, mounted := map[string]bool{}, map[string]bool{}
	for _, r := range routes() {
		if names[r.name] {
			t.Errorf("two routes are named %q", r.name)
		}
		names[r.name] = true
		if r.access.open == nil || len(r.access.scopes) == 0 || r.op.run == nil || r.op.request == nil || r.op.response == nil {
			t.Errorf("route %q lacks a column", r.name)
		}
		if samples[r.name] == nil {
			t.Errorf("route %q has no sample", r.name)
		}
		for _, p := range r.paths("x") {
			if key := r.method + " " + p; mounted[key] {
				t.Errorf("%s is mounted twice", key)
			} else {
				mounted[key] = true
			}
		}
		if pkg := r.op.request.PkgPath(); !strings.HasSuffix(pkg, "/api") {
			t.Errorf("route %q takes %s, which is no type of package api", r.name, r.op.request)
		}
	}
	for name := range samples {
		if !names[name] {
			t.Errorf("sample of %q, which is no route", name)
		}
	}
}

// TestEveryRoute asks every route at every path as nobody, with bad tokens,
// without its scope, and properly.
func TestEveryRoute(t *testing.T) {
	s := newStack(t)
	populate(s)
	stranger := newKey(t)
	bad := map[string]string{
		string(api.TokenMissing):   "",
		string(api.TokenMalformed): "x.y.z",
		string(api.TokenSignature): s.mint(stranger, auth.Claims{Org: "acme", Repo: populated, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}}),
		string(api.TokenExpired):   s.mint(s.key, auth.Claims{Org: "acme", Repo: populated, IssuedAt: 1000, Expires: 2000, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite}}),
	}
	scopeless := s.token(populated, auth.CheckpointRead)
	for _, r := range routes() {
		for i, p := range r.paths(populated) {
			q := samples[r.name][0]
			for code, token := range bad {
				a := s.do(r.method, with(p, q.query), token, q.body)
				checkRefusal(t, r, a, http.StatusUnauthorized, api.Code(code))
				if a.header.Get("Www-Authenticate") == "" {
					t.Errorf("%s: 401 without a challenge", r.name)
				}
			}
			checkRefusal(t, r, s.do(r.method, with(p, q.query), scopeless, q.body), http.StatusForbidden, api.ScopeMissing)
			t.Run(fmt.Sprintf("%s/%d", r.name, i), func(t *testing.T) {
				s := newStack(t)
				populate(s)
				token := s.full(populated)
				if r.ofThread() {
					token = r.tokenFor(s)
				}
				s.lease(r)
				switch r.name {
				case "repos.undelete":
					s.want(http.StatusOK, "DELETE", repoPath(populated, ""), token, nil, nil)
				case "repos.create":
					token = s.full("team/new")
				case "credentials.create":
					p, token = r.paths("team/other")[i], s.full("team/other")
				case "upstream.pull":
					p, token = r.paths(mirror)[i], s.full(mirror)
				}
				a := s.do(r.method, with(p, q.query), token, q.body)
				if a.status >= 300 || (r.op.status != 0 && a.status != r.op.status) {
					t.Errorf("%s %s: %d %s", r.method, p, a.status, a.body)
				}
				basic := s.do(r.method, with(p, "path=README.md"), "", nil, "Authorization", "bAsIc dDp4") // t:x
				checkRefusal(t, r, basic, http.StatusUnauthorized, api.TokenMalformed)
			})
		}
	}
}

// checkRefusal checks the whole shape of a refusal.
func checkRefusal(t *testing.T, r *route, a answer, status int, code api.Code) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %d, want %d: %s", r.name, a.status, status, a.body)
		return
	}
	if r.method == http.MethodHead {
		if len(a.body) > 0 {
			t.Errorf("%s: a refusal of HEAD has a body", r.name)
		}
		return
	}
	if code == api.Denied && strings.HasPrefix(r.name, "notes.") {
		var n api.NoteUpdate
		a.json(t, &n)
		if strings.Contains(string(a.body), `"error"`) || n.SHA == "" || n.TargetRef == "" || n.NotesRef != n.TargetRef ||
			n.Result.Success || n.Result.Status != "forbidden" || !strings.Contains(n.Result.Message, "denied by policy") {
			t.Errorf("%s: a refused note is %s", r.name, a.body)
		}
		return
	}
	e := a.error(t)
	if e.Code != code {
		t.Errorf("%s: code %q, want %q", r.name, e.Code, code)
	}
	if (e.Result != nil) != r.commits {
		t.Errorf("%s: result is %v", r.name, e.Result)
	}
	if e.Result != nil && (e.Result.Success || e.Result.Status == "" || e.Result.Message == "") {
		t.Errorf("%s: result is %+v", r.name, e.Result)
	}
}

// TestForeignLooksAbsent compares everything that the server says of a
// repository that exists elsewhere with what it says of none.
func TestForeignLooksAbsent(t *testing.T) {
	s := newStack(t)
	populate(s)
	foreign := s.full("team/other")        // exists, and is not the one asked for
	absent := s.full("team/never-existed") // is asked for, and does not exist
	for _, r := range routes() {
		if !strings.Contains(r.path, repoSegment) {
			continue
		}
		q := samples[r.name][0]
		a := s.do(r.method, with(r.paths(populated)[len(r.paths(populated))-1], q.query), foreign, q.body)
		b := s.do(r.method, with(r.paths("team/never-existed")[len(r.paths(""))-1], q.query), absent, q.body)
		a.header.Del("Date")
		b.header.Del("Date")
		if a.status != http.StatusNotFound || a.status != b.status || !bytes.Equal(a.body, b.body) || !reflect.DeepEqual(a.header, b.header) {
			t.Errorf("%s: foreign %d %v %s, absent %d %v %s", r.name, a.status, a.header, a.body, b.status, b.header, b.body)
		}
		checkRefusal(t, r, a, http.StatusNotFound, api.RepositoryMissing)
	}
}

// state is all that writes could change.
func (s *stack) state() string {
	s.t.Helper()
	ctx := s.t.Context()
	var b strings.Builder
	gate, err := s.meta.Gate(ctx, meta.GateQuery{Org: "acme"})
	if err != nil {
		s.t.Fatal(err)
	}
	repos, err := s.meta.ListRepos(ctx, meta.RepoQuery{Org: gate.Org.ID, Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range repos {
		page, err := s.meta.Refs(ctx, meta.RefQuery{Repo: r.ID})
		if err != nil {
			s.t.Fatal(err)
		}
		rules, err := s.meta.Protections(ctx, r.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%+v\n%+v\n%+v\n", r, page.Refs, rules)
	}
	hooks, err := s.meta.Webhooks(ctx, meta.WebhookQuery{Org: gate.Org.ID, Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v\n", hooks)
	keys, err := s.meta.SigningKeys(ctx, gate.Org.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v\n", keys)
	s.addRest(&b, gate.Org.ID, repos)
	return b.String()
}

// addRest adds what only some repositories have, and what happened.
func (s *stack) addRest(b *strings.Builder, org meta.OrgID, repos []meta.Repo) {
	s.t.Helper()
	ctx := s.t.Context()
	for _, r := range repos {
		u, err := s.meta.Upstream(ctx, r.ID)
		if err != nil && !errors.Is(err, meta.ErrNotFound) {
			s.t.Fatal(err)
		}
		k, err := s.meta.RepoCredential(ctx, r.ID)
		if err != nil && !errors.Is(err, meta.ErrNotFound) {
			s.t.Fatal(err)
		}
		usage, err := s.meta.Usage(ctx, org, r.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(b, "%+v\n%+v\n%+v\n", u, k, usage)
	}
	syncs, err := s.meta.SyncsDue(ctx, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	last, err := s.meta.LastEvent(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	floors, err := s.meta.Floors(ctx, org)
	if err != nil {
		s.t.Fatal(err)
	}
	audit, err := s.meta.Audit(ctx, meta.AuditQuery{Org: org, Limit: 10_000})
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(b, "%+v\n%d\n%+v\n%+v\n%+v\n", syncs, last, floors, audit, s.threadState(org))
}

// TestConfinedToken walks the table with a token that may do everything, on one
// branch: through no route does anything else change.
func TestConfinedToken(t *testing.T) {
	s := newStack(t)
	populate(s)
	own := "refs/namespaces/ephemeral/refs/heads/mine"
	confined := func(repo string) string {
		return s.mint(s.key, auth.Claims{
			Org: "acme", Repo: repo, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead, auth.OrgAdmin},
			Policies: policy.List{rule(t, own, policy.NoForcePush), rule(t, "*", policy.NoPush)},
		})
	}
	before := s.state()
	for _, r := range routes() {
		if r.ofThread() {
			continue // refs are no part of it
		}
		repo := populated
		if r.name == "repos.create" {
			repo = "team/new"
		}
		for _, p := range r.paths(repo) {
			for _, q := range samples[r.name] {
				a := s.do(r.method, with(p, q.query), confined(repo), q.body)
				if changing := r.method != http.MethodGet && r.method != http.MethodHead && r.name != "archive.post" && r.name != "grep"; changing {
					checkRefusal(t, r, a, http.StatusForbidden, api.Denied)
				} else if a.status >= 300 {
					t.Errorf("%s: %d %s", r.name, a.status, a.body)
				}
				if after := s.state(); after != before {
					t.Fatalf("%s %s changed\n%s\nto\n%s", r.method, p, before, after)
				}
			}
		}
	}
	commit := commitBody(map[string]any{"target_branch": "mine", "base_branch": "main", "ephemeral": true}, map[string]string{"n": "1"})
	var ack api.CommitAck
	s.want(http.StatusCreated, "POST", repoPath(populated, "commit-pack"), confined(populated), commit, &ack)
	s.refused(http.StatusForbidden, api.Denied, "DELETE", repoPath(populated, "branches"), confined(populated), `{"name":"mine","ephemeral":true}`)
	denied := s.do("POST", "/api/v1/repos/commit-pack", confined(populated), commitBody(nil, map[string]string{"n": "2"})).error(t)
	if !strings.Contains(denied.Message, "denied by policy") || denied.Result.Status != "forbidden" || denied.Result.Branch != "main" {
		t.Errorf("refusal is %+v %+v", denied, denied.Result)
	}
}

func TestRouting(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	for path, status := range map[string]int{
		"//api//v1//repo":                200,
		"/api/v1/repo/":                  200,
		"/api/repos/team%2Fapp":          200,
		"/api/repos/team%2fapp/":         200,
		"//api/repos/team%2Fapp":         200,
		"/api/repos/team%252Fapp":        404,
		"/api/repos/team/app":            404,
		"/api/v1/repos/team%2Fapp":       404,
		"/api/repos/%2E%2E/branches":     404,
		"/api/repos/../repos/team%2Fapp": 404,
		"/api":                           404,
		"/api/":                          404,
		"/api/v1/repos/none":             404,
	} {
		a := s.do("GET", path, token, nil)
		if a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if status != 200 {
			a.error(t)
		}
	}
	for _, row := range []struct{ method, path, allow string }{
		{"PUT", "/api/v1/repo", "GET, PATCH"},
		{"OPTIONS", "/api/repos/team%2Fapp", "DELETE, GET, PATCH"},
		{"HEAD", "/api/repos/team%2Fapp/branches", "DELETE, GET"},
		{"PUT", "/api/v1/repos/file", "GET, HEAD"},
		{"GET", "/api/v1/repos/commit-pack", "POST"},
	} {
		a := s.do(row.method, row.path, token, nil)
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != row.allow {
			t.Errorf("%s %s: %d, Allow %q", row.method, row.path, a.status, a.header.Get("Allow"))
		}
		if row.method != "HEAD" && a.error(t).Code != api.MethodNotAllowed {
			t.Errorf("%s %s: %s", row.method, row.path, a.body)
		}
	}
}

func TestMatch(t *testing.T) {
	s := newStack(t)
	rows := []struct {
		method, path, route string
		ok                  bool
	}{
		{"GET", "/api/v1/repos/file", "file.get", true},
		{"HEAD", "//api/repos/a%2Fb/file", "file.head", true},
		{"POST", "/api/nothing", unrouted, true},
		{"PUT", "/api/v1/repos/file", unrouted, true},
		{"GET", "/api", unrouted, true},
		{"GET", "/apiary", "", false},
		{"GET", "/", "", false},
		{"GET", "/x/api/v1/repos", "", false},
	}
	for _, row := range rows {
		req, err := http.NewRequest(row.method, "http://x"+row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if route, ok := s.handler.Match(req); route != row.route || ok != row.ok {
			t.Errorf("%s %s: %q, %t", row.method, row.path, route, ok)
		}
	}
}

// TestCodesAreDocumented holds the codes of the server and of the wire types
// together.
func TestCodesAreDocumented(t *testing.T) {
	codes := []api.Code{
		api.Invalid, api.Unsupported, api.Unauthorized, api.ScopeMissing, api.Denied, api.NotFound, api.RepositoryMissing,
		api.MethodNotAllowed, api.Timeout, api.RepositoryDeleted, api.AlreadyExists, api.Stale, api.Conflict, api.MergeConflict, api.DefaultBranch, api.KeyReused,
		api.Syncing, api.NoChanges, api.Precondition, api.TooLarge, api.QuotaExceeded, api.Range, api.Limited, api.Internal, api.Unavailable,
	}
	for code := range labels {
		if !slices.Contains(codes, api.Code(code)) {
			t.Errorf("code %q is not in package api", code)
		}
	}
	for _, code := range codes {
		if _, ok := labels[service.Code(code)]; !ok && code != api.Unauthorized && code != api.MethodNotAllowed && code != api.Range {
			t.Errorf("code %q has no label", code)
		}
	}
}

// TestForgeriesLookAlike compares all that the server says to a token that is
// signed by a stranger, for an org that exists and for one that does not.
func TestForgeriesLookAlike(t *testing.T) {
	s := newStack(t)
	populate(s)
	stranger := newKey(t)
	scopes := []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}
	forge := func(org, kid string) string {
		token, err := auth.Mint(stranger, kid, auth.Claims{Org: org, Repo: populated, Subject: "x", Scopes: scopes,
			IssuedAt: time.Now().Unix(), Expires: time.Now().Unix() + 60})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for _, r := range routes() {
		p, q := r.paths(populated)[0], samples[r.name][0]
		absent := s.do(r.method, with(p, q.query), forge("globex", ""), q.body)
		absent.header.Del("Date")
		if absent.status != http.StatusUnauthorized {
			t.Errorf("%s: %d for an unknown org", r.name, absent.status)
		}
		for _, token := range []string{forge("acme", ""), forge("acme", "k1"), forge("globex", "k1")} {
			a := s.do(r.method, with(p, q.query), token, q.body)
			a.header.Del("Date")
			if a.status != absent.status || !bytes.Equal(a.body, absent.body) || !reflect.DeepEqual(a.header, absent.header) {
				t.Errorf("%s: %d %v %s, and for an unknown org %d %v %s", r.name, a.status, a.header, a.body, absent.status, absent.header, absent.body)
			}
		}
	}
}

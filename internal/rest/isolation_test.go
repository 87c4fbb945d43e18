package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/webhook"
)

// secretValue names something that the asking token must not get at, and
// something of the same form that does not exist.
type secretValue struct {
	foreign, absent string
	elsewhere       bool // it is of another org
}

// Words that all of another repository's, and of another org's, content has.
const (
	hidden  = "hidden"
	outside = "outside"
)

// tenant is a repository whose content nobody else may see.
type tenant struct {
	org, repo, word string
	token           string
	hook            meta.WebhookID
}

// hide makes the repository of a tenant, with one of everything that has a name,
// and returns the names.
func (s *stack) hide(n tenant, source map[string]any) []secretValue {
	s.t.Helper()
	in := func(path string) string { return repoPath(n.repo, path) }
	s.want(http.StatusCreated, "POST", "/api/repos", n.token, source, nil)
	var ack api.CommitAck
	text := n.word + " text"
	s.want(http.StatusCreated, "POST", in("commit-pack"), n.token, commitBody(map[string]any{"commit_message": n.word + " change"}, map[string]string{n.word + ".txt": text}), &ack)
	for _, body := range []string{`{"target_branch":"%s-branch","base_ref":"main"}`, `{"target_branch":"%s-session","base_ref":"main","target_is_ephemeral":true}`} {
		s.want(http.StatusOK, "POST", in("branches/create"), n.token, fmt.Sprintf(body, n.word), nil)
	}
	s.want(http.StatusOK, "POST", in("tags"), n.token, fmt.Sprintf(`{"name":"%s-tag","ref":"main"}`, n.word), nil)
	s.want(http.StatusOK, "POST", in("notes"), n.token, fmt.Sprintf(`{"sha":"main","action":"add","note":"%[1]s","ref":"%[1]s"}`, n.word), nil)
	var k api.Credential
	s.want(http.StatusCreated, "POST", in("git-credentials"), n.token, `{"password":"x"}`, &k)
	gate, err := s.meta.Gate(s.t.Context(), meta.GateQuery{Org: n.org, Repo: n.repo})
	if err != nil {
		s.t.Fatal(err)
	}
	hook := &meta.Webhook{ID: n.hook, Repo: gate.Repo.ID, URL: "https://127.0.0.1:9/" + n.word, Secret: []byte("\x00secret"), Enabled: true}
	if v, err := s.meta.Apply(s.t.Context(), meta.Change{Org: gate.Org.ID, CreateWebhook: hook}); err != nil || !v.Applied {
		s.t.Fatal(v, err)
	}
	list, err := s.meta.Events(s.t.Context(), gate.Org.ID, 0, 1000)
	if err != nil || len(list) == 0 {
		s.t.Fatal("no events", err)
	}
	last := list[len(list)-1]
	position := events.ID(last, 0)
	never := func(what string) string { return object.Hash(object.Blob, []byte(n.repo+" never had "+what)).String() }
	values := []secretValue{
		{foreign: ack.Commit.CommitSHA, absent: never("commit")},
		{foreign: ack.Commit.CommitSHA + "^{tree}", absent: never("tree") + "^{tree}"},
		{foreign: ack.Commit.CommitSHA[:12], absent: never("prefix")[:12]},
		{foreign: object.Hash(object.Blob, []byte(text)).String(), absent: never("blob")},
		{foreign: n.repo, absent: strings.Replace(n.repo, n.word, strings.Repeat("x", len(n.word)), 1)},
		{foreign: n.word + "-branch", absent: strings.Repeat("x", len(n.word)) + "-branch"},
		{foreign: n.word + "-session", absent: strings.Repeat("x", len(n.word)) + "-session"},
		{foreign: n.word + "-tag", absent: strings.Repeat("x", len(n.word)) + "-tag"},
		{foreign: n.word, absent: strings.Repeat("x", len(n.word))},
		{foreign: webhook.PublicID(n.hook), absent: webhook.PublicID(n.hook + 1000)},
		{foreign: k.ID, absent: k.ID[:len(k.ID)-1] + string('0'+(k.ID[len(k.ID)-1]+1)%2)},
		{foreign: service.RepoID(gate.Repo.ID), absent: service.RepoID(gate.Repo.ID ^ 0x5555)},
		{foreign: events.ID(last, last.Repo), absent: events.At(last.Repo^0x5555, last.Place)},
		{foreign: position, absent: strings.Repeat("9", len(position))},
	}
	for i := range values {
		values[i].elsewhere = n.org != "acme"
	}
	return values
}

// hideAll makes what no token of the populated repository may see: another
// repository, a fork with commits of its own, a deleted branch, another org.
func (s *stack) hideAll() []secretValue {
	s.t.Helper()
	other := newKey(s.t)
	s.org("globex", other)
	outsider := s.mint(other, auth.Claims{Org: "globex", Repo: "team/" + outside, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgAdmin}})
	values := s.hide(tenant{"acme", "team/" + hidden, hidden, s.full("team/" + hidden), 8}, nil)
	values = append(values, s.hide(tenant{"globex", "team/" + outside, outside, outsider, 9}, nil)...)
	values = append(values, secretValue{foreign: "globex", absent: "absent", elsewhere: true})
	fork := "team/" + hidden + "-fork"
	values = append(values, s.hide(tenant{"acme", fork, hidden, s.full(fork), 10}, map[string]any{"base_repo": map[string]any{
		"provider": "code", "owner": "acme", "name": populated, "operation": "fork", "auth": map[string]any{"token": s.full(populated)},
	}})...)
	gone := s.commit(populated, map[string]any{"target_branch": "gone", "base_branch": "main"}, map[string]string{hidden: hidden}).Commit.CommitSHA
	s.want(http.StatusOK, "DELETE", repoPath(populated, "branches"), s.full(populated), `{"name":"gone"}`, nil)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKgBuR9Dj5oFF7LZKXZyVP3tbGYIlhvVBlBoZl6JTq5h"
	var added api.SigningKey
	s.want(http.StatusCreated, "POST", "/api/org/signing-keys", outsider, map[string]any{"public_key": key, "title": outside}, &added)
	values = append(values,
		secretValue{foreign: gone, absent: object.Hash(object.Blob, []byte("also never stored")).String()},
		secretValue{foreign: added.Fingerprint, absent: added.Fingerprint[:len(added.Fingerprint)-6] + "AAAAAA", elsewhere: true})
	seen := map[string]bool{}
	return slices.DeleteFunc(values, func(v secretValue) bool {
		again := seen[v.foreign]
		seen[v.foreign] = true
		return again
	})
}

// slot is a place of a request that takes a text.
type slot struct {
	name string
	put  func(value string) (path string, body any)
}

// textFields calls yield with the names that lead to each text in a JSON object.
func textFields(t reflect.Type, at []string, yield func(names []string)) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		of := t.Field(i).Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		names := append(slices.Clone(at), name)
		switch {
		case name == "" || name == "-":
		case of.Kind() == reflect.String:
			yield(names)
		case of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]():
			textFields(of, names, yield)
		}
	}
}

// laid returns an object with a value at names.
func laid(object map[string]any, names []string, value string) map[string]any {
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	if len(names) == 1 {
		object[names[0]] = value
		return object
	}
	below, _ := object[names[0]].(map[string]any)
	object[names[0]] = laid(below, names[1:], value)
	return object
}

// slots returns every place for a text in a request of a route.
func (s *stack) slots(r *route, template string, q sample) []slot {
	s.t.Helper()
	var out []slot
	filled := func(path string) string {
		path = strings.Replace(path, "{tag}", "v1", 1)
		path = strings.NewReplacer("{thread}", url.PathEscape(someThread), "{checkpoint}", r.point(), "{digest}", blobSum, "{path}", "w/a").Replace(path)
		return strings.Replace(path, "{webhook}", webhook.PublicID(sampleWebhook), 1)
	}
	for _, item := range []string{"{tag}", "{webhook}", "{credential}", "{id}", "{thread}", "{checkpoint}", "{digest}"} {
		if strings.Contains(template, item) {
			out = append(out, slot{"path " + item, func(value string) (string, any) {
				return with(filled(strings.Replace(template, item, url.PathEscape(value), 1)), q.query), q.body
			}})
		}
	}
	base := filled(template)
	for i := range r.op.request.NumField() {
		name := r.op.request.Field(i).Tag.Get("query")
		if kind := r.op.request.Field(i).Type.String(); name != "" && strings.HasSuffix(kind, "string") {
			out = append(out, slot{"query " + name, func(value string) (string, any) {
				v, err := url.ParseQuery(q.query)
				if err != nil {
					s.t.Fatal(err)
				}
				v.Set(name, value)
				return base + "?" + v.Encode(), q.body
			}})
		}
	}
	if other := r.op.body != "" && r.op.body != "application/x-ndjson"; other || r.method == http.MethodGet || r.method == http.MethodHead {
		return out
	}
	text, _ := q.body.(string)
	if q.body != nil && text == "" {
		data, err := json.Marshal(q.body)
		if err != nil {
			s.t.Fatal(err)
		}
		text = string(data)
	}
	head, rest, _ := strings.Cut(text, "\n")
	object := map[string]any{}
	if head != "" {
		if err := json.Unmarshal([]byte(s.filled(head)), &object); err != nil {
			s.t.Fatal(err)
		}
	}
	textFields(r.op.request, nil, func(names []string) {
		out = append(out, slot{"body " + strings.Join(names, "."), func(value string) (string, any) {
			data, err := json.Marshal(laid(object, names, value))
			if err != nil {
				s.t.Fatal(err)
			}
			return with(base, q.query), string(data) + "\n" + rest
		}})
	})
	return out
}

var anyID = regexp.MustCompile(`\b[0-9a-f]{40}\b`)

// told is an answer in a form in which only what tells one value from another
// differs.
func told(a answer, value string) string {
	a.header.Del("Date")
	var h bytes.Buffer
	if err := a.header.Write(&h); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d\n%s\n%s", a.status, h.String(), a.body)
	if len(value) < 4 {
		return text
	}
	for _, form := range []string{value, url.QueryEscape(value), value[:min(len(value), 40)], value[:min(len(value), 20)]} {
		text = strings.ReplaceAll(text, form, "VALUE")
	}
	return anyID.ReplaceAllString(text, "ID")
}

// TestIsolation puts the names of what is another repository's or org's, and names
// of nothing, in every place of every request that takes a text. What is foreign
// is answered as what is not there, and no answer has anything of it. Places where
// any text will do are passed over.
func TestIsolation(t *testing.T) {
	for _, r := range routes() {
		if r.ofThread() {
			continue // see TestThreadIsolation
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var s *stack
			var values []secretValue
			begin := func() {
				s = newStack(t)
				populate(s)
				values = s.hideAll()
			}
			begin()
			orgOnly := !slices.ContainsFunc(r.access.scopes, func(sc auth.Scope) bool { return !strings.HasPrefix(string(sc), "org:") })
			// A repository's token gets that repository's events only.
			wholeOrg := orgOnly && r.name != "events.list"
			token := func() string {
				switch {
				case r.name == "repos.create":
					return s.full("team/new")
				case orgOnly:
					return s.full(populated)
				}
				return s.token(populated, auth.GitRead, auth.GitWrite, auth.RepoWrite)
			}
			template := "/api/" + strings.Replace(r.path, repoSegment, url.PathEscape(populated), 1)
			reads := r.method == http.MethodGet || r.method == http.MethodHead
			for i := range s.slots(r, template, samples[r.name][0]) {
				slot := s.slots(r, template, samples[r.name][0])[i]
				path, body := slot.put(object.Hash(object.Blob, []byte("nothing")).String())
				if any := s.do(r.method, path, token(), body); any.status < 300 && !reads {
					begin()
					continue
				}
				if slot.name == "query range" { // names lines: its form alone decides
					continue
				}
				for j, v := range values {
					if !testkit.Soaking() && (i+j)%3 != 0 { // each place gets a third of the values
						continue
					}
					if wholeOrg && !v.elsewhere || len(v.foreign) < 4 && slot.name != "body event_id" {
						continue
					}
					s.compare(r, template, slot, v, token(), wholeOrg)
				}
			}
		})
	}
}

// compare asks for what is foreign and for what is absent.
func (s *stack) compare(r *route, template string, slot slot, v secretValue, token string, wholeOrg bool) {
	s.t.Helper()
	var got [2]answer
	for i, value := range []string{v.foreign, v.absent} {
		path, body := slot.put(value)
		got[i] = s.do(r.method, path, token, body)
	}
	a, b := told(got[0], v.foreign), told(got[1], v.absent)
	// A page of files may begin at any path, and an archive have any prefix.
	if free := got[0].status < 300 && got[1].status < 300; !free && a != b {
		s.t.Errorf("%s %s with %q in %s:\n%.500s\nand with %q:\n%.500s", r.method, template, v.foreign, slot.name, a, v.absent, b)
	}
	for _, word := range []string{hidden, outside} {
		if strings.Contains(a, word) && (word == outside || !wholeOrg) && !strings.Contains(v.foreign, word) {
			s.t.Errorf("%s %s with %q in %s tells of %q: %.500s", r.method, template, v.foreign, slot.name, word, a)
		}
	}
}

// TestNothingOfOthers asks through every route that reads, before and after much
// happened elsewhere in the org: a token that was made for one repository gets the
// same answers, and the same room for endpoints.
func TestNothingOfOthers(t *testing.T) {
	s := newStack(t)
	populate(s)
	type asked struct{ method, path, token string }
	var all []asked
	for _, r := range routes() {
		token := s.token(populated, auth.GitRead, auth.GitWrite, auth.RepoWrite)
		switch orgOnly := !slices.ContainsFunc(r.access.scopes, func(sc auth.Scope) bool { return !strings.HasPrefix(string(sc), "org:") }); {
		case r.name == "events.list":
			token = s.token(populated, auth.OrgRead)
		case orgOnly, r.method != http.MethodGet && r.method != http.MethodHead, r.ofThread():
			continue
		}
		for _, p := range r.paths(populated) {
			for _, q := range samples[r.name] {
				all = append(all, asked{r.method, with(p, q.query), token})
			}
		}
	}
	ask := func() (answers []string) {
		for _, q := range all {
			answers = append(answers, told(s.do(q.method, q.path, q.token, nil), ""))
		}
		return answers
	}
	ask() // some answers are made once
	before := ask()
	for i := range 3 {
		s.commit("team/other", nil, map[string]string{"f": fmt.Sprint(i)})
	}
	other := s.repo("team/other")
	for i := range webhook.MaxPerOrg {
		for _, repo := range []meta.RepoID{0, other.ID} {
			hook := &meta.Webhook{ID: meta.WebhookID(1000 + 2*i), Repo: repo, URL: "https://127.0.0.1:9/", Secret: []byte("\x00secret")}
			if repo != 0 {
				hook.ID++
			}
			if v, err := s.meta.Apply(t.Context(), meta.Change{Org: other.Org, CreateWebhook: hook}); err != nil || !v.Applied {
				t.Fatal(v, err)
			}
		}
	}
	s.commit("team/other", nil, map[string]string{"f": "last"})
	for i, after := range ask() {
		if after != before[i] {
			t.Errorf("%s %s:\n%s\nand then\n%s", all[i].method, all[i].path, before[i], after)
		}
	}
	own := s.token(populated, auth.RepoWrite)
	for range webhook.MaxPerRepo - 1 {
		s.want(http.StatusCreated, "POST", "/api/webhooks", own, `{"url":"https://hooks.example.com/x"}`, nil)
	}
	s.refused(http.StatusBadRequest, api.Invalid, "POST", "/api/webhooks", own, `{"url":"https://hooks.example.com/x"}`)
	s.refused(http.StatusBadRequest, api.Invalid, "POST", "/api/webhooks", s.token("org", auth.RepoWrite), `{"url":"https://hooks.example.com/x"}`)

	// Ids are made of what the repository itself does.
	var page api.EventList
	s.want(http.StatusOK, "GET", "/api/events", s.token("team/other", auth.OrgRead), nil, &page)
	for i, e := range page.Events {
		if want := events.At(other.ID, meta.PlaceOf(int64(i+2), 0)); e.ID != want {
			t.Errorf("event %d has id %s, want %s", i, e.ID, want)
		}
	}
}

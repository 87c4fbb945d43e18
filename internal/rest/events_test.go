package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
)

// pushOf decodes the payload of a push.
func pushOf(t testing.TB, e api.Event) events.Push {
	t.Helper()
	var p events.Push
	if e.Type != events.TypePush {
		t.Fatalf("event %+v is no push", e)
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEventPages(t *testing.T) {
	s := newStack(t)
	s.create("one")
	s.create("two")
	other := newKey(t)
	s.org("beta", other)
	for i := range 5 {
		s.commit("one", nil, map[string]string{"f": fmt.Sprint(i)})
		s.commit("two", nil, map[string]string{"f": fmt.Sprint(i)})
	}
	org := s.token("org", auth.OrgRead)
	var all api.EventList
	s.want(200, "GET", "/api/events", org, nil, &all)
	if len(all.Events) != 10 || all.HasMore || all.NextAfter != all.Events[9].ID {
		t.Fatalf("all events: %+v", all)
	}
	for i, e := range all.Events {
		p := pushOf(t, e)
		name := []string{"one", "two"}[i%2]
		if p.Repository.RepoName != name || p.Repository.ID != e.RepoID || p.Ref != "refs/heads/main" || p.Org != "acme" || p.CustomerID != "acme" {
			t.Errorf("event %d is %+v %+v", i, e, p)
		}
		if _, err := time.Parse("2006-01-02T15:04:05Z", e.At); err != nil {
			t.Error(err)
		}
	}
	pages := func(token, query string) (ids []string) {
		t.Helper()
		after := "0"
		for range 20 {
			var list api.EventList
			s.want(200, "GET", "/api/events?limit=2&after="+after+query, token, nil, &list)
			for _, e := range list.Events {
				ids = append(ids, e.ID)
			}
			after = list.NextAfter
			if !list.HasMore {
				return ids
			}
		}
		t.Fatal("pages do not end")
		return nil
	}
	var every, ones []string
	for i, e := range all.Events {
		every = append(every, e.ID)
		if i%2 == 0 {
			ones = append(ones, events.At(s.repo("one").ID, meta.PlaceOf(int64(i/2+2), 0)))
		}
	}
	for name, row := range map[string]struct {
		token, query string
		want         []string
	}{
		"org":                   {org, "", every},
		"no claim":              {s.token("", auth.OrgRead), "", every},
		"org's name":            {s.token("acme", auth.OrgRead), "", every},
		"filter":                {org, "&repo=one", ones},
		"one repository":        {s.token("one", auth.OrgRead), "", ones},
		"one and its filter":    {s.token("one", auth.OrgRead), "&repo=one", ones},
		"another org":           {s.mint(other, auth.Claims{Org: "beta", Scopes: []auth.Scope{auth.OrgRead}}), "", nil},
		"confined to something": {s.full("one"), "", ones},
	} {
		if got := pages(row.token, row.query); !slices.Equal(got, row.want) {
			t.Errorf("%s: events %v, want %v", name, got, row.want)
		}
	}
	foreign := s.refused(404, api.RepositoryMissing, "GET", "/api/events?repo=two", s.token("one", auth.OrgRead), nil)
	absent := s.refused(404, api.RepositoryMissing, "GET", "/api/events?repo=none", s.token("one", auth.OrgRead), nil)
	if foreign != absent {
		t.Errorf("foreign %+v, absent %+v", foreign, absent)
	}
	s.refused(404, api.RepositoryMissing, "GET", "/api/events?repo=none", org, nil)
	s.refused(404, api.RepositoryMissing, "GET", "/api/events", s.token("none", auth.OrgRead), nil)
	s.refused(403, api.ScopeMissing, "GET", "/api/events", s.token("one", auth.GitRead), nil)
	for _, query := range []string{"after=x", "after=-1", "limit=0", "after=99999999999999999999"} {
		s.refused(400, api.Invalid, "GET", "/api/events?"+query, org, nil)
	}
}

// TestPrunedEvents: who had come to an event whose successors are not all kept is
// told so, and where to go on; the others notice nothing.
func TestPrunedEvents(t *testing.T) {
	s := newStack(t)
	s.create("one")
	s.create("two")
	org := s.token("org", auth.OrgRead)
	own := map[string]string{"": org, "one": s.token("one", auth.OrgRead), "two": s.token("two", auth.OrgRead)}
	for i := range 4 {
		s.commit("one", nil, map[string]string{"f": fmt.Sprint(i)})
		s.commit("two", nil, map[string]string{"f": fmt.Sprint(i)})
	}
	before := map[string][]api.Event{}
	for repo, token := range own {
		var list api.EventList
		s.want(200, "GET", "/api/events", token, nil, &list)
		before[repo] = list.Events
	}
	if n, err := s.meta.PruneEvents(t.Context(), time.Now().Add(time.Hour), 0, 5); err != nil || n.Events != 5 {
		t.Fatal(n, err)
	}
	for repo, gone := range map[string]int{"": 5, "one": 3, "two": 2} {
		list, token := before[repo], own[repo]
		for i, e := range list {
			path := "/api/events?after=" + e.ID
			next := list[gone-1].ID
			if i < gone-1 {
				refusal := s.refused(http.StatusGone, api.EventsPruned, "GET", path, token, nil)
				if refusal.NextAfter != next {
					t.Errorf("%q: go on after %q, want %q", repo, refusal.NextAfter, next)
				}
				stream := open(t, s.server.URL, token, "", e.ID)
				var said []string
				for len(said) < 6 && stream.lines.Scan() {
					said = append(said, stream.lines.Text())
				}
				want := []string{"retry: 2000", "", "id: " + next, "event: gap", fmt.Sprintf(`data: {"after":%q,"next_after":%q}`, e.ID, next), ""}
				if !slices.Equal(said, want) {
					t.Errorf("%q: a stream says %q, want %q", repo, said, want)
				}
				if first, _, _ := stream.next(t); first.ID != list[gone].ID {
					t.Errorf("%q: a stream goes on with %+v", repo, first)
				}
				continue
			}
			var page api.EventList
			s.want(200, "GET", path, token, nil, &page)
			if len(page.Events) != len(list)-1-i || len(page.Events) > 0 && page.Events[0].ID != list[i+1].ID {
				t.Errorf("%q: after %s came %+v", repo, e.ID, page.Events)
			}
		}
		for _, query := range []string{"", "?after=0"} {
			var page api.EventList
			s.want(200, "GET", "/api/events"+query, token, nil, &page)
			if len(page.Events) != len(list)-gone || page.Events[0].ID != list[gone].ID {
				t.Errorf("%q: %q gives %+v", repo, query, page.Events)
			}
		}
	}
	// An empty page of what had events tells where they ended.
	if n, err := s.meta.PruneEvents(t.Context(), time.Now().Add(time.Hour), 0, 100); err != nil || n.Events != 2 {
		t.Fatal(n, err)
	}
	var page api.EventList
	s.want(200, "GET", "/api/events", own["one"], nil, &page)
	if len(page.Events) != 0 || page.NextAfter != before["one"][3].ID {
		t.Errorf("page of a repository without events %+v", page)
	}
}

// stream reads server-sent events.
type stream struct {
	*http.Response
	lines *bufio.Scanner
	end   context.CancelFunc
}

func open(t testing.TB, base, token, query, last string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", base+"/api/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html;q=0.1, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &stream{resp, lines, cancel}
}

// next returns the next event, or a comment; ok is false at the end.
func (s *stream) next(t testing.TB) (e api.Event, comment string, ok bool) {
	t.Helper()
	id, kind := "", ""
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			if value != "" {
				return e, value, true
			}
			if e.ID != "" {
				if e.ID != id || e.Type != kind {
					t.Errorf("event %+v has id %q and type %q", e, id, kind)
				}
				return e, "", true
			}
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e, "", false
}

// TestEventStream follows commits through many connections that break.
func TestEventStream(t *testing.T) {
	s := newStack(t)
	s.create("r")
	s.commit("r", nil, map[string]string{"f": "before"})
	token := s.token("org", auth.OrgRead)
	const commits = 60
	first := open(t, s.server.URL, token, "", "")
	if first.StatusCode != 200 || first.Header.Get("Content-Type") != "text/event-stream" || first.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", first.StatusCode, first.Header)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		full := s.full("r")
		for i := range commits {
			s.write(full, fmt.Sprint("b", i%3), i)
		}
	})
	var ids []string
	values := map[string]string{}
	at := first
	for len(ids) < commits {
		e, comment, ok := at.next(t)
		if !ok {
			t.Fatal("the stream ended")
		}
		if comment != "" {
			continue
		}
		p := pushOf(t, e)
		if last := values[p.Ref]; last != "" && p.Before != last {
			t.Errorf("%s goes from %s after it was %s", p.Ref, p.Before, last)
		}
		values[p.Ref] = p.After
		ids = append(ids, e.ID)
		if len(ids)%7 == 0 {
			at.end()
			at = open(t, s.server.URL, token, "?after=0", e.ID)
		}
	}
	var all api.EventList
	s.want(200, "GET", "/api/events?limit=1000", token, nil, &all)
	var want []string
	for _, e := range all.Events[1:] {
		want = append(want, e.ID)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("received %v, want %v", ids, want)
	}
	from := open(t, s.server.URL, token, "?after="+ids[10], "")
	if e, _, _ := from.next(t); e.ID != ids[11] {
		t.Errorf("after %s came %s", ids[10], e.ID)
	}
	s.want(200, "GET", "/api/events?limit=12&repo=r", token, nil, &all)
	from = open(t, s.server.URL, token, "?repo=r&after="+all.Events[10].ID, "")
	if e, _, _ := from.next(t); e.ID != all.Events[11].ID {
		t.Errorf("of the repository, after %s came %s", all.Events[10].ID, e.ID)
	}
	for _, last := range []string{"x", "-1", "1 2"} {
		if bad := open(t, s.server.URL, token, "", last); bad.StatusCode != 400 {
			t.Errorf("Last-Event-ID %q: %d", last, bad.StatusCode)
		}
	}
}

// TestEventStreamEnds: a stream shows that it lives, and ends when the server
// stops, when the token is refused, and when the client takes nothing.
func TestEventStreamEnds(t *testing.T) {
	s := newStack(t)
	s.create("r")
	stop := make(chan struct{})
	h := New(Config{Service: s.handler.Service, PublicURL: s.handler.PublicURL, IdleTimeout: 400 * time.Millisecond, Stopping: stop})
	server := httptest.NewServer(h)
	defer server.Close()
	s.create("quiet")
	live := open(t, server.URL, s.token("quiet", auth.OrgRead), "", "")
	for range 3 {
		if _, comment, ok := live.next(t); !ok || comment == "" {
			t.Errorf("comment %q, %v", comment, ok)
		}
	}
	expired := s.mint(s.key, auth.Claims{Org: "acme", Repo: "org", Scopes: []auth.Scope{auth.OrgRead}, IssuedAt: time.Now().Unix() - 100, Expires: time.Now().Unix() + 2})
	dying := open(t, server.URL, expired, "", "")
	for ok := dying.StatusCode == 200; ok; {
		_, _, ok = dying.next(t)
	}
	waitStreams(t, h, 1)
	slow(t, s, h, server)
	close(stop)
	for ok := true; ok; {
		_, _, ok = live.next(t)
	}
	waitStreams(t, h, 0)
}

// slow opens a stream over a history that no buffer holds, reads nothing of it,
// and waits until the server has ended it.
func slow(t *testing.T, s *stack, h *Handler, server *httptest.Server) {
	t.Helper()
	row := s.repo("r")
	body := []byte(`{"ref":"` + strings.Repeat("x", 100<<10) + `"}`)
	for range 20 {
		big := make([]meta.Event, 20)
		for i := range big {
			big[i] = meta.Event{Type: events.TypePush, Body: body}
		}
		if v, err := s.meta.Apply(t.Context(), meta.Change{Org: row.Org, Repo: row.ID, Events: big}); err != nil || !v.Applied {
			t.Fatal(v, err)
		}
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/events?after=0 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n", s.token("r", auth.OrgRead))
	waitStreams(t, h, 2)
	waitStreams(t, h, 1)
}

// waitStreams waits until n streams are open.
func waitStreams(t *testing.T, h *Handler, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		h.streams.mu.Lock()
		now := h.streams.all
		h.streams.mu.Unlock()
		if now == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are open, want %d", now, n)
		}
	}
}

func TestEventStreamLimit(t *testing.T) {
	var open streams
	var ends []func()
	for range maxOrgStream {
		end, ok := open.open(1)
		if !ok {
			t.Fatal("refused below the limit")
		}
		ends = append(ends, end)
	}
	if _, ok := open.open(1); ok {
		t.Error("one too many")
	}
	end, ok := open.open(2)
	if !ok {
		t.Error("another org is refused")
	}
	end()
	for _, end := range ends {
		end()
	}
	if open.all != 0 || len(open.orgs) != 0 {
		t.Errorf("left behind %+v", open.orgs)
	}
}

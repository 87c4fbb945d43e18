package webhooks_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/webhook"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// received is one request that a receiver answered with 2xx.
type received struct {
	header http.Header
	body   []byte
	push   events.Push
}

// receiver is an endpoint on one address that comes and goes.
type receiver struct {
	t       *testing.T
	address string
	mu      sync.Mutex
	got     []received
	answer  func() int // nil answers 204; 0 hangs until the request ends
	server  *http.Server
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, address: "127.0.0.1:0"}
	r.up()
	t.Cleanup(r.down)
	return r
}

func (r *receiver) url() string { return "http://" + r.address + "/hook" }

// up starts to answer.
func (r *receiver) up() {
	r.t.Helper()
	ln, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = ln.Addr().String()
	r.server = &http.Server{Handler: http.HandlerFunc(r.take)}
	go r.server.Serve(ln)
}

// down ends every connection.
func (r *receiver) down() { r.server.Close() }

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	got := received{header: req.Header, body: body}
	if err != nil {
		return
	}
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	status := http.StatusNoContent
	if answer != nil {
		status = answer()
	}
	if status == 0 {
		<-req.Context().Done()
		return
	}
	if status/100 == 2 {
		if err := json.Unmarshal(body, &got.push); err != nil {
			r.t.Errorf("body %q: %v", body, err)
		}
		r.mu.Lock()
		r.got = append(r.got, got)
		r.mu.Unlock()
	}
	w.WriteHeader(status)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// follows waits until the receiver has every value of every ref, and fails when
// a ref went another way than value after value.
func (r *receiver) follows(want map[string][]string, within time.Duration) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	for {
		got := map[string][]string{}
		for _, e := range r.all() {
			if values := got[e.push.Ref]; !slices.Contains(values, e.push.After) {
				got[e.push.Ref] = append(values, e.push.After)
			}
		}
		missing := ""
		for ref, values := range want {
			if len(got[ref]) < len(values) {
				missing = fmt.Sprintf("%s: received %d of %d", ref, len(got[ref]), len(values))
			} else if !slices.Equal(got[ref], values) {
				r.t.Fatalf("%s: received %v, want %v", ref, got[ref], values)
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s", within, missing)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// loopback lets the server deliver to the receivers of this package.
var loopback = harness.Options{Args: []string{"--allow-host", "127.0.0.1"}}

func subscribe(t *testing.T, s *harness.Server, body map[string]any) api.Webhook {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	token := s.Token(harness.Grant{Repo: "org", Scopes: []auth.Scope{auth.RepoWrite}})
	a, err := s.Do(nil, "POST", "/api/v1/webhooks", token, "application/json", data)
	var hook api.Webhook
	if err != nil || a.Status != http.StatusCreated || json.Unmarshal(a.Body, &hook) != nil || hook.Secret == "" {
		t.Fatalf("create webhook: %v, %d %s", err, a.Status, a.Body)
	}
	return hook
}

// writer commits through REST and remembers the values of refs.
type writer struct {
	t      *testing.T
	client *http.Client
	refs   map[string][]string
	first  string // branch that was made first
}

func newWriter(t *testing.T, s *harness.Server) *writer {
	if err := s.CreateRepo("r"); err != nil {
		t.Fatal(err)
	}
	return &writer{t: t, client: s.HTTP(), refs: map[string][]string{}}
}

func (w *writer) commit(s *harness.Server, branch string) {
	w.t.Helper()
	ref := "refs/heads/" + branch
	c := harness.Commit{Repo: "r", Branch: branch, Files: map[string]string{"f": fmt.Sprint(branch, len(w.refs[ref]))}}
	if values := w.refs[ref]; len(values) > 0 {
		c.Expected = values[len(values)-1]
	} else {
		c.Base = w.first // "" in the empty repository
	}
	a, err := s.Commit(w.client, c)
	if err != nil || a.Status != http.StatusCreated {
		w.t.Fatalf("commit to %s: %v, %d %s", branch, err, a.Status, a.Body)
	}
	w.refs[ref] = append(w.refs[ref], a.Text("commit", "commit_sha"))
	if w.first == "" {
		w.first = branch
	}
}

// TestPayloads makes each kind of change and looks at what is delivered.
func TestPayloads(t *testing.T) {
	s := harness.Serve(t, loopback)
	all, muted := newReceiver(t), newReceiver(t)
	hook := subscribe(t, s, map[string]any{"url": all.url(), "events": []string{"push"}})
	subscribe(t, s, map[string]any{"url": muted.url(), "mute_ephemeral": true})
	w := newWriter(t, s)
	w.commit(s, "main")
	main := w.refs["refs/heads/main"][0]
	g := harness.NewGit(t)
	grant := harness.Grant{Repo: "r"}
	g.Run("clone", "-q", s.Remote(grant, ""), "work")
	g = g.In("work")
	g.Run("commit", "-q", "--allow-empty", "-m", "two")
	two := strings.TrimSpace(g.Run("rev-parse", "HEAD"))
	g.Run("tag", "-a", "v1", "-m", "one", two)
	tag := strings.TrimSpace(g.Run("rev-parse", "v1"))
	g.Run("push", "-q", "origin", "main", "HEAD:refs/heads/side", "v1")
	g.Run("push", "-q", "origin", ":side")
	g.Run("push", "-q", s.Remote(grant, "+ephemeral"), "HEAD:refs/heads/session")
	g.Run("push", "-q", "origin", "main") // nothing moves
	a, err := s.Do(nil, "DELETE", "/api/v1/repos/branches", s.Token(grant), "application/json", []byte(`{"name":"session","ephemeral":true}`))
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("delete branch: %v, %d %s", err, a.Status, a.Body)
	}
	zero := strings.Repeat("0", 40)
	session := "refs/namespaces/ephemeral/refs/heads/session"
	want := map[string][][2]string{
		"refs/heads/main": {{zero, main}, {main, two}},
		"refs/heads/side": {{zero, two}, {two, zero}},
		"refs/tags/v1":    {{zero, tag}},
		session:           {{zero, two}, {two, zero}},
	}
	values := map[string][]string{}
	for ref, moves := range want {
		for _, m := range moves {
			values[ref] = append(values[ref], m[1])
		}
	}
	all.follows(values, 30*time.Second)
	delete(values, session)
	muted.follows(values, 30*time.Second)
	check := func(r *receiver) {
		t.Helper()
		got := map[string][][2]string{}
		for _, e := range r.all() {
			p := e.push
			got[p.Ref] = append(got[p.Ref], [2]string{p.Before, p.After})
			if _, err := time.Parse("2006-01-02T15:04:05Z", p.PushedAt); err != nil || p.CustomerID != harness.Org || p.Org != harness.Org ||
				p.Repository.URL != "r" || p.Repository.RepoName != "r" || !strings.HasPrefix(p.Repository.ID, "repo_") {
				t.Errorf("payload %s", e.body)
			}
			if e.header.Get("User-Agent") != "Pierre-Webhook/1.0" || e.header.Get("X-Pierre-Event") != "push" ||
				e.header.Get("Content-Type") != "application/json" || e.header.Get("X-Cairn-Event-Id") == "" {
				t.Errorf("header %v", e.header)
			}
		}
		for ref, moves := range got {
			if !slices.Equal(moves, want[ref]) {
				t.Errorf("%s moved %v, want %v", ref, moves, want[ref])
			}
		}
	}
	check(all)
	check(muted)
	for _, e := range muted.all() {
		if e.push.Ref == session {
			t.Errorf("the muted endpoint got %s", e.body)
		}
	}
	first := all.all()[0]
	stamp, _, _ := strings.Cut(strings.TrimPrefix(first.header.Get("X-Pierre-Signature"), "t="), ",")
	at, err := time.ParseDuration(stamp + "s")
	if err != nil {
		t.Fatal(err)
	}
	if signed := webhook.Sign([]byte(hook.Secret), first.body, time.Unix(int64(at.Seconds()), 0)); signed != first.header.Get("X-Pierre-Signature") {
		t.Errorf("signature %s, want %s", first.header.Get("X-Pierre-Signature"), signed)
	}
	if strings.Contains(s.Log(), hook.Secret) {
		t.Error("the log holds the secret")
	}
}

// TestReceiverFails: a receiver that fails, hangs and restarts gets each event,
// in the order of its ref.
func TestReceiverFails(t *testing.T) {
	s := harness.Serve(t, loopback)
	r := newReceiver(t)
	subscribe(t, s, map[string]any{"url": r.url()})
	w := newWriter(t, s)
	set := func(status int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answer = func() int { return status }
	}
	commit := func() {
		t.Helper()
		for i := range 4 {
			w.commit(s, fmt.Sprint("b", i%2))
		}
	}
	commit()
	r.follows(w.refs, 30*time.Second)
	set(http.StatusServiceUnavailable)
	commit()
	time.Sleep(300 * time.Millisecond) // the first attempts fail
	set(0)
	time.Sleep(1500 * time.Millisecond) // the next ones hang
	r.down()
	commit()
	set(http.StatusOK)
	r.up()
	// The attempts that hung were cut off; the third comes 5 s after the second,
	// give or take a fifth.
	r.follows(w.refs, 30*time.Second)
}

// TestKilled: what was committed before the server was killed is delivered by
// the next one.
func TestKilled(t *testing.T) {
	s := harness.Serve(t, loopback)
	r := newReceiver(t)
	subscribe(t, s, map[string]any{"url": r.url()})
	w := newWriter(t, s)
	w.commit(s, "main")
	r.follows(w.refs, 30*time.Second)
	for range 2 {
		r.down()
		for range 3 {
			w.commit(s, "main")
		}
		w.commit(s, "side")
		s.Kill()
		r.up()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		// The lease of the killed process ends within 15 s.
		r.follows(w.refs, 60*time.Second)
	}
}

// TestTwoNodes: one of two nodes delivers, whichever wrote; when it is killed
// the other one goes on. Streams of either node see the events of both.
func TestTwoNodes(t *testing.T) {
	opts := harness.OnPostgresAndS3(t, loopback)
	opts.Env = append(opts.Env, "CAIRN_SECRET_KEY="+strings.TrimSpace(string(secret.Generate())))
	one := harness.Serve(t, opts)
	two := one.Beside(t)
	r := newReceiver(t)
	subscribe(t, one, map[string]any{"url": r.url()})
	w := newWriter(t, one)
	streams := []<-chan string{follow(t, one), follow(t, two)}
	for i := range 20 {
		w.commit([]*harness.Server{one, two}[i%2], fmt.Sprint("b", i%3))
	}
	r.follows(w.refs, 60*time.Second)
	if n := len(r.all()); n != 20 {
		t.Errorf("%d deliveries of 20 events", n)
	}
	for _, s := range streams {
		seen := map[string]int{}
		for range 20 {
			select {
			case id := <-s:
				seen[id]++
			case <-time.After(30 * time.Second):
				t.Fatalf("a stream has %d of 20 events", len(seen))
			}
		}
		if len(seen) != 20 {
			t.Errorf("a stream has %v", seen)
		}
	}
	one.Kill()
	for i := range 6 {
		w.commit(two, fmt.Sprint("b", i%3))
	}
	r.follows(w.refs, 60*time.Second)
}

// follow returns the ids of events as a stream tells them.
func follow(t *testing.T, s *harness.Server) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+s.Token(harness.Grant{Repo: "org", Scopes: []auth.Scope{auth.OrgRead}}))
	resp, err := s.HTTP().Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	ids := make(chan string, 100)
	go func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				ids <- id
			}
		}
	}()
	return ids
}

// TestCommands administers webhooks from the command line.
func TestCommands(t *testing.T) {
	s := harness.Serve(t, loopback)
	r := newReceiver(t)
	allow := []string{"--allow-host", "127.0.0.1", "--org", harness.Org}
	operate := func(args ...string) string {
		t.Helper()
		out, err := s.Operate(append(append([]string{"webhook"}, args...), allow...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var hook api.Webhook
	if err := json.Unmarshal([]byte(operate("create", r.url(), "--event", "push", "--json")), &hook); err != nil || hook.Secret == "" || !hook.Enabled {
		t.Fatalf("created %+v, %v", hook, err)
	}
	operate("disable", hook.ID)
	if list := operate("list"); !strings.Contains(list, hook.ID) || !strings.Contains(list, "disabled") || strings.Contains(list, hook.Secret) {
		t.Errorf("list %q", list)
	}
	w := newWriter(t, s)
	w.commit(s, "main")
	if operate("enable", hook.ID); len(r.all()) > 0 {
		t.Error("a disabled endpoint got something")
	}
	r.follows(w.refs, 30*time.Second)
	if rotated := operate("rotate", hook.ID); strings.Contains(rotated, hook.Secret) || !strings.Contains(rotated, "whsec_") {
		t.Errorf("rotated %q", rotated)
	}
	r.mu.Lock()
	r.answer = func() int { return 418 }
	r.mu.Unlock()
	if _, err := s.Operate(append([]string{"webhook", "test", hook.ID}, allow...)...); err == nil || !strings.Contains(err.Error(), "not delivered: status 418") {
		t.Errorf("test: %v", err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(operate("deliveries", hook.ID), "\tpush\tdelivered\t1\t") {
		if time.Now().After(deadline) {
			t.Fatal("the delivery is not recorded")
		}
	}
	operate("delete", hook.ID)
	if list := operate("list", "--json"); strings.Contains(list, hook.ID) {
		t.Errorf("list after deletion %s", list)
	}
}

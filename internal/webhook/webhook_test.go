package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/testkit"
)

func TestSignatureOfTheContract(t *testing.T) {
	got := Sign([]byte("s3cret"), []byte(`{"ref":"refs/heads/main","before":"0","after":"1"}`), time.Unix(1790000000, 0))
	if want := "t=1790000000,sha256=4d38e01ea6039c2094e98395081b85c0efd6af8ae2740ebfab403ded420cb4b8"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

// world is a store with an org, a repository and what delivers its events.
type world struct {
	*testing.T
	feed      *events.Feed
	endpoints *Endpoints
	org       meta.OrgID
	repo      meta.RepoID
	pushed    map[string][]string // values of each ref, in order
	mu        sync.Mutex
}

// engines opens an empty store of each kind.
var engines = map[string]func(t *testing.T) meta.Store{
	"sqlite": func(t *testing.T) meta.Store {
		s, err := sqlstore.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
	"postgres": func(t *testing.T) meta.Store {
		s, err := sqlstore.OpenPostgres(t.Context(), testkit.Postgres(t), sqlstore.PostgresOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
}

func newWorld(t *testing.T, engine string) *world {
	t.Helper()
	store := engines[engine](t)
	t.Cleanup(func() { store.Close() })
	w := &world{
		T: t, feed: events.NewFeed(store), org: meta.OrgID(meta.NewID(time.Now())), repo: meta.RepoID(meta.NewID(time.Now())),
		pushed: make(map[string][]string),
	}
	w.apply(meta.Change{CreateOrg: &meta.Org{Name: "acme"}})
	w.apply(meta.Change{Repo: w.repo, CreateRepo: &meta.Repo{Name: "r", DefaultBranch: "main"}})
	guard, err := netguard.New([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := secret.Parse(secret.Generate())
	if err != nil {
		t.Fatal(err)
	}
	w.endpoints = &Endpoints{Meta: w.feed, Secrets: keys, Guard: guard, Sender: NewSender(keys, guard, nil)}
	return w
}

func (w *world) apply(c meta.Change) {
	w.Helper()
	c.Org = w.org
	if v, err := w.feed.Apply(context.Background(), c); err != nil || !v.Applied {
		w.Fatal(v, err)
	}
}

// push writes the event of one more value of a ref.
func (w *world) push(ref string) {
	w.Helper()
	w.mu.Lock()
	value := fmt.Sprintf("%s#%d", ref, len(w.pushed[ref]))
	w.pushed[ref] = append(w.pushed[ref], value)
	w.mu.Unlock()
	w.apply(meta.Change{Repo: w.repo, Events: []meta.Event{events.Push{Ref: ref, After: value}.Event()}})
}

// start runs a deliverer until the test ends or stop is called.
func (w *world) start(process string, c Config) (d *Deliverer, stop func()) {
	c.Feed, c.Sender, c.Process = w.feed, w.endpoints.Sender, process
	c.Report = func(err error) { w.Errorf("%s: %v", process, err) }
	if c.Schedule == nil {
		c.Schedule = slices.Repeat([]time.Duration{20 * time.Millisecond}, 50)
	}
	d = New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return d, stop
}

func (w *world) endpoint(s Spec) meta.Webhook {
	w.Helper()
	s.Enabled = true
	hook, _, err := w.endpoints.Create(context.Background(), meta.Change{Org: w.org}, s)
	if err != nil {
		w.Fatal(err)
	}
	return hook
}

// redeliver sends an event once more.
func (w *world) redeliver(hook meta.Webhook, id string) (Outcome, error) {
	e, err := w.endpoints.Event(w.Context(), hook, id)
	if err != nil {
		return Outcome{}, err
	}
	return w.endpoints.Sender.Send(w.Context(), hook, e), nil
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within a minute: %s", what)
		}
	}
}

// settled reports whether an endpoint has nothing more to get.
func (w *world) settled(id meta.WebhookID) bool {
	w.Helper()
	hook, err := w.endpoints.Get(context.Background(), w.org, id)
	if err != nil {
		w.Fatal(err)
	}
	last, err := w.feed.LastEvent(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return hook.Position == last
}

// receiver is an endpoint. fail decides which requests are answered 500.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	tries map[string]int // requests by value
	got   map[string][]string
	count int
	fail  func(e events.Push, try int) bool
}

func newReceiver(t *testing.T, fail func(e events.Push, try int) bool) *receiver {
	r := &receiver{tries: make(map[string]int), got: make(map[string][]string), fail: fail}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var e events.Push
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = jsonInto(body, &e)
		}
		if err != nil || req.Header.Get("X-Pierre-Event") != "push" {
			t.Errorf("request %s %q: %v", req.Header, body, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.count++
		r.tries[e.After]++
		if r.fail != nil && r.fail(e, r.tries[e.After]) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.got[e.Ref] = append(r.got[e.Ref], e.After)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) received() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]string)
	for ref, values := range r.got {
		all[ref] = slices.Clone(values)
	}
	return all
}

// check holds what a receiver accepted against what was pushed: every event, in
// order for each ref, and again only what came directly before.
func (w *world) check(r *receiver, exactlyOnce bool) {
	w.Helper()
	got := r.received()
	for ref, want := range w.pushed {
		values := got[ref]
		if !exactlyOnce {
			values = firstTimes(values)
		}
		if !slices.Equal(values, want) {
			w.Errorf("%s: received %v, want %v", ref, got[ref], want)
		}
	}
}

// firstTimes drops what was seen before.
func firstTimes(values []string) []string {
	seen := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		old := seen[v]
		seen[v] = true
		return old
	})
}

// TestDelivers writes events while the receiver fails now and then: each comes
// once, in the order of its ref.
func TestDelivers(t *testing.T) {
	for engine := range engines {
		t.Run(engine, func(t *testing.T) {
			w := newWorld(t, engine)
			w.push("refs/heads/before")
			delete(w.pushed, "refs/heads/before")
			random := rand.New(rand.NewPCG(testkit.Seed(t), 0))
			r := newReceiver(t, func(_ events.Push, try int) bool { return try < 5 && random.IntN(4) == 0 })
			hook := w.endpoint(Spec{URL: r.URL + "/hook?x=1"})
			d, _ := w.start("one", Config{})
			for i := range 120 {
				w.push(fmt.Sprintf("refs/heads/b%d", i%7))
			}
			w.eventually("all events settled", func() bool { return w.settled(hook.ID) })
			w.check(r, true)
			if got := r.received(); len(got) != 7 {
				t.Errorf("received refs %v", got)
			}
			f := d.Figures()
			if f.Attempts != int64(r.count) || f.Attempts-f.Failures != 120 || f.GivenUp != 0 || f.Disabled != 0 {
				t.Errorf("figures %+v of %d requests", f, r.count)
			}
			list, err := w.feed.Deliveries(t.Context(), meta.DeliveryQuery{Webhook: hook.ID, Limit: 500})
			if err != nil || len(list) != 120 {
				t.Fatalf("%d deliveries, %v", len(list), err)
			}
			for _, row := range list {
				if row.State != meta.DeliveryDelivered || row.Status != 200 || row.Error != "" || row.Attempts < 1 || !row.Next.IsZero() {
					t.Errorf("delivery %+v", row)
				}
			}
		})
	}
}

// TestOneOfSeveralDelivers runs two processes, stops one in the middle, and
// starts a third.
func TestOneOfSeveralDelivers(t *testing.T) {
	for engine := range engines {
		t.Run(engine, func(t *testing.T) {
			w := newWorld(t, engine)
			r := newReceiver(t, nil)
			hook := w.endpoint(Spec{URL: r.URL})
			_, stop := w.start("one", Config{})
			w.start("two", Config{})
			for i := range 60 {
				w.push(fmt.Sprintf("refs/heads/b%d", i%5))
				if i == 30 {
					stop()
					w.start("three", Config{})
				}
			}
			w.eventually("all events settled", func() bool { return w.settled(hook.ID) })
			w.check(r, false)
			extra := -60
			for _, values := range r.received() {
				extra += len(values)
			}
			if extra > maxFlying {
				t.Errorf("%d events came again: at most the attempts that the stop cut off may", extra)
			}
		})
	}
}

// TestDeadProcess leaves a lease behind as a killed process does.
func TestDeadProcess(t *testing.T) {
	w := newWorld(t, "sqlite")
	r := newReceiver(t, nil)
	hook := w.endpoint(Spec{URL: r.URL})
	w.push("refs/heads/main")
	const lease = 2 * time.Second
	if _, err := w.feed.LeaseWebhook(t.Context(), hook.ID, "dead", lease); err != nil {
		t.Fatal(err)
	}
	w.start("one", Config{})
	w.eventually("the lease has ended", func() bool { return w.settled(hook.ID) })
	w.check(r, true)
}

// TestFailingEndpoints: one that hangs and one that is down hold up neither the
// others nor writes, and get everything once they are back.
func TestFailingEndpoints(t *testing.T) {
	w := newWorld(t, "sqlite")
	good := newReceiver(t, nil)
	back := make(chan struct{})
	open := sync.OnceFunc(func() { close(back) })
	late := newReceiver(t, func(events.Push, int) bool {
		select {
		case <-back:
			return false
		default:
			return true
		}
	})
	hang := newReceiver(t, nil)
	inner := hang.Config.Handler
	hang.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		select {
		case <-back:
			inner.ServeHTTP(rw, req)
		case <-req.Context().Done():
		}
	})
	defer open()
	hooks := map[*receiver]meta.Webhook{}
	for _, r := range []*receiver{good, late, hang} {
		hooks[r] = w.endpoint(Spec{URL: r.URL})
	}
	// An endpoint that was up, is down, and comes back: a retry succeeds, and what
	// waits much longer follows at once.
	d, _ := w.start("one", Config{Schedule: []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second, 2 * time.Second, time.Hour}})
	for i := range 40 {
		w.push(fmt.Sprintf("refs/heads/b%d", i%4))
	}
	w.eventually("the good endpoint has all", func() bool { return w.settled(hooks[good].ID) })
	w.check(good, true)
	if f := d.Figures(); f.Backlog == 0 {
		t.Errorf("figures %+v although two endpoints fail", f)
	}
	w.eventually("the failure shows", func() bool {
		hook, err := w.endpoints.Get(t.Context(), w.org, hooks[late].ID)
		return err == nil && !hook.FailingSince.IsZero()
	})
	open()
	w.eventually("the others have all", func() bool { return w.settled(hooks[late].ID) && w.settled(hooks[hang].ID) })
	w.check(late, false)
	w.check(hang, false)
	if hook, err := w.endpoints.Get(t.Context(), w.org, hooks[late].ID); err != nil || !hook.FailingSince.IsZero() {
		t.Errorf("endpoint that is back: %+v, %v", hook, err)
	}
}

// TestGivingUp: after its last attempt an event is recorded as failed, and the
// next of its ref is delivered.
func TestGivingUp(t *testing.T) {
	w := newWorld(t, "sqlite")
	r := newReceiver(t, func(e events.Push, _ int) bool { return e.After == "refs/heads/main#1" })
	hook := w.endpoint(Spec{URL: r.URL})
	d, _ := w.start("one", Config{Schedule: []time.Duration{time.Millisecond, time.Millisecond}})
	for range 3 {
		w.push("refs/heads/main")
	}
	w.eventually("all events settled", func() bool { return w.settled(hook.ID) })
	if got := r.received()["refs/heads/main"]; !slices.Equal(got, []string{"refs/heads/main#0", "refs/heads/main#2"}) {
		t.Errorf("received %v", got)
	}
	if r.tries["refs/heads/main#1"] != 3 || d.Figures().GivenUp != 1 {
		t.Errorf("%d attempts, figures %+v", r.tries["refs/heads/main#1"], d.Figures())
	}
	list, err := w.feed.Deliveries(t.Context(), meta.DeliveryQuery{Webhook: hook.ID, Limit: 10})
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if row := list[1]; row.State != meta.DeliveryFailed || row.Attempts != 3 || row.Status != 500 || row.Error != "status 500" {
		t.Errorf("delivery %+v", row)
	}
	// What was given up can be sent again.
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
	out, err := w.redeliver(hook, events.At(0, list[1].Position))
	if err != nil || !out.Delivered || out.Status != 200 {
		t.Errorf("redelivery %+v, %v", out, err)
	}
	for _, id := range []string{events.At(0, 1<<40), "0", "x", events.At(w.repo, list[1].Place)} {
		if _, err := w.redeliver(hook, id); !isA[*NotFoundError](err) {
			t.Errorf("redelivery of nothing (%q): %v", id, err)
		}
	}
}

// TestOneFailingRef: an event that keeps failing holds up its own ref only,
// however many wait behind it; a restart does not send what others got again.
func TestOneFailingRef(t *testing.T) {
	w := newWorld(t, "sqlite")
	r := newReceiver(t, func(e events.Push, _ int) bool { return e.Ref == "refs/heads/bad" })
	hook := w.endpoint(Spec{URL: r.URL})
	schedule := []time.Duration{time.Hour}
	_, stop := w.start("one", Config{Schedule: schedule})
	for range 2 * maxWindow {
		w.push("refs/heads/bad")
	}
	for range 30 {
		w.push("refs/heads/good")
	}
	done := func() bool { return len(r.received()["refs/heads/good"]) >= 30 }
	w.eventually("the good ref has all", done)
	if w.settled(hook.ID) {
		t.Error("the position passed an event that is not settled")
	}
	stop()
	w.start("two", Config{Schedule: schedule})
	w.push("refs/heads/good")
	w.eventually("the good ref has one more", func() bool { return len(r.received()["refs/heads/good"]) > 30 })
	if got := r.received()["refs/heads/good"]; !slices.Equal(got, w.pushed["refs/heads/good"]) {
		t.Errorf("received %v", got)
	}
	if n := r.tries["refs/heads/bad#0"]; n != 1 {
		t.Errorf("the failing event was tried %d times although an hour is between attempts", n)
	}
}

func TestDisabling(t *testing.T) {
	w := newWorld(t, "sqlite")
	down := true
	r := newReceiver(t, func(events.Push, int) bool { return down })
	hook := w.endpoint(Spec{URL: r.URL})
	d, _ := w.start("one", Config{DisableAfter: 100 * time.Millisecond})
	w.push("refs/heads/main")
	w.eventually("the endpoint is disabled", func() bool {
		now, err := w.endpoints.Get(t.Context(), w.org, hook.ID)
		if err != nil {
			t.Fatal(err)
		}
		hook = now
		return !now.Enabled
	})
	if !strings.HasPrefix(hook.Reason, "every delivery failed since 20") || d.Figures().Disabled != 1 {
		t.Errorf("disabled endpoint %+v", hook)
	}
	r.mu.Lock()
	down = false
	r.mu.Unlock()
	w.push("refs/heads/main")
	spec := SpecOf(hook)
	spec.Enabled = true
	w.endpoints.Changed = d.Changed
	if hook, err := w.endpoints.Update(t.Context(), meta.Change{Org: w.org}, hook.ID, spec); err != nil || hook.Reason != "" || !hook.FailingSince.IsZero() {
		t.Errorf("enabled endpoint %+v, %v", hook, err)
	}
	w.eventually("what waited is delivered", func() bool { return w.settled(hook.ID) })
	w.check(r, true)
}

func TestFilters(t *testing.T) {
	w := newWorld(t, "sqlite")
	other := meta.RepoID(meta.NewID(time.Now()))
	w.apply(meta.Change{Repo: other, CreateRepo: &meta.Repo{Name: "other", DefaultBranch: "main"}})
	rows := []struct {
		spec Spec
		want []string
	}{
		{Spec{}, []string{"one", "two", "three", "four"}},
		{Spec{Events: []string{"*"}}, []string{"one", "two", "three", "four"}},
		{Spec{Events: []string{events.TypePush, events.TypePush}}, []string{"one", "two", "four"}},
		{Spec{Events: []string{events.TypeSyncFailed, events.TypeSyncStarted}}, []string{"three"}},
		{Spec{MuteEphemeral: true}, []string{"one", "three", "four"}},
		{Spec{Repo: other}, []string{"four"}},
	}
	var mu sync.Mutex
	got := make([][]string, len(rows))
	hooks := make([]meta.Webhook, len(rows))
	for i, row := range rows {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			var e struct{ After, Error string }
			body, err := io.ReadAll(req.Body)
			if err = errors.Join(err, jsonInto(body, &e)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[i] = append(got[i], e.After+e.Error)
		}))
		t.Cleanup(s.Close)
		row.spec.URL = s.URL
		hooks[i] = w.endpoint(row.spec)
	}
	w.apply(meta.Change{Repo: w.repo, Events: []meta.Event{events.Push{Ref: "refs/heads/a", After: "one"}.Event()}})
	w.apply(meta.Change{Repo: w.repo, Events: []meta.Event{events.Push{Ref: "refs/namespaces/ephemeral/refs/heads/a", After: "two"}.Event()}})
	w.apply(meta.Change{Repo: w.repo, Events: []meta.Event{events.Sync{Type: events.TypeSyncFailed, Error: "three"}.Event()}})
	w.apply(meta.Change{Repo: other, Events: []meta.Event{events.Push{Ref: "refs/heads/a", After: "four"}.Event()}})
	w.start("one", Config{})
	for i, hook := range hooks {
		w.eventually("all settled", func() bool { return w.settled(hook.ID) })
		mu.Lock()
		slices.Sort(got[i])
		slices.Sort(rows[i].want)
		if !slices.Equal(got[i], rows[i].want) {
			t.Errorf("%+v: received %v, want %v", rows[i].spec, got[i], rows[i].want)
		}
		mu.Unlock()
	}
}

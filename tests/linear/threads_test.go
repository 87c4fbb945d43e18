package linear_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/stack"
	"github.com/cairnstate/cairn/tests/world"
)

// leaseTime is how long a lease lasts.
const leaseTime = int64(120 * time.Second)

// thread is a state of a thread: its checkpoints, and its lease.
type thread struct {
	chain  string // ids, each after a blank
	fence  int64  // the highest that was told
	holder string // the token of the lease; "" for none
	// The lease was given, or renewed last, between these times.
	from, to int64
}

func (t thread) String() string {
	return fmt.Sprintf("{%s fence %d lease %q %d-%d}", t.chain, t.fence, t.holder, t.from, t.to)
}

func (t thread) head() string { return t.chain[strings.LastIndexByte(t.chain, ' ')+1:] }

// request is what a client asked of a thread, and what it was told.
type request struct {
	call, end int64
	thread    string
	what      string
	id        string // of an append or a deletion
	expected  string // head of an append
	any       bool   // whatever the head is
	lease     string // the token that was given, "" for none

	outcome outcome
	head    string // that a read or a refusal told
	parent  string // of what was appended
	token   string // of a lease that was given
	fence   int64
}

type outcome string

const (
	done     outcome = "done"
	held     outcome = "another writer"
	lost     outcome = "lease lost"
	stale    outcome = "stale"
	notHead  outcome = "not the head"
	nobody   outcome = "" // an answer that never came
	appendTo         = "append"
	take             = "acquire"
	prolong          = "renew"
	giveBack         = "release"
	pop              = "delete head"
	look             = "read"
)

// may reports whether the lease can be over at the time of a request, and whether it
// can last.
func (t thread) may(r request) (over, last bool) {
	if t.holder == "" {
		return true, false
	}
	return r.end >= t.from+leaseTime, r.call <= t.to+leaseTime
}

// mine reports whether the request's lease can be the current one, and whether it
// cannot.
func (t thread) mine(r request) (yes, no bool) {
	over, last := t.may(r)
	if t.holder != r.lease {
		return false, true
	}
	return last, over
}

// apply applies a request, or reports that it cannot have been answered so.
func (t thread) apply(r request) (bool, thread) {
	over, last := t.may(r)
	yes, no := t.mine(r)
	switch r.what {
	case look:
		return t.head() == r.head, t
	case take:
		if r.outcome == held {
			return last, t
		}
		if !over || r.outcome == done && r.fence <= t.fence {
			return false, t
		}
		t.holder, t.from, t.to, t.fence = r.token, r.call, r.end, max(t.fence, r.fence)
		if r.outcome == nobody {
			t.holder = "somebody " + r.id
		}
		return true, t
	case prolong:
		if r.outcome == lost {
			return no, t
		}
		t.from, t.to = r.call, r.end
		return yes, t
	case giveBack:
		if t.holder == r.lease {
			t.holder, t.from, t.to = "", 0, 0
		}
		return true, t
	}
	if r.lease != "" && r.outcome == lost {
		return no, t
	}
	if r.lease == "" && r.outcome == held {
		return last, t
	}
	if r.lease != "" && !yes || r.lease == "" && !over {
		return false, t
	}
	if r.lease == "" {
		t.holder, t.from, t.to = "", 0, 0
	}
	return t.move(r)
}

// move appends or takes the head off, for a writer that may.
func (t thread) move(r request) (bool, thread) {
	switch {
	case r.what == pop && r.outcome == notHead:
		return t.head() != r.id, t
	case r.what == pop:
		ok := t.head() == r.id
		t.chain = strings.TrimSuffix(t.chain, " "+r.id)
		return ok, t
	case r.outcome == stale:
		return !r.any && t.head() != r.expected && t.head() == r.head, t
	case !r.any && t.head() != r.expected, r.outcome == done && t.head() != r.parent:
		return false, t
	}
	t.chain += " " + r.id
	return true, t
}

// explains judges the requests of one thread, which began with a checkpoint.
func explains(first string, requests []request) error {
	var events []event[thread]
	for _, r := range requests {
		e := event[thread]{call: r.call, end: r.end, text: fmt.Sprintf("%+v", r), step: func(t thread) (bool, thread) { return t.apply(r) }}
		e.still = r.what == look || r.outcome != done
		if r.outcome == nobody {
			e.end, e.still, e.maybe = math.MaxInt64, false, true
		}
		events = append(events, e)
	}
	return explain(events, thread{chain: " " + first})
}

// field is where writers contend for threads.
type field struct {
	world   *world.World
	clients []*checkpoint.Remote // of one server each
	root    checkpoint.Digest
	lossy   atomic.Bool
	ids     atomic.Int64

	mu       sync.Mutex
	requests map[string][]request
	first    map[string]string
}

func newField(t *testing.T, database string, servers int) *field {
	t.Helper()
	f := &field{requests: map[string][]request{}, first: map[string]string{}}
	var err error
	if f.world, err = world.Open(t.Context(), t.TempDir(), database); err != nil {
		t.Fatal(err)
	}
	for i := range servers {
		n := f.world
		if i > 0 {
			if n, err = f.world.Beside(t.Context(), t.TempDir()); err != nil {
				t.Fatal(err)
			}
		}
		server := httptest.NewServer(f.losing(n.Handler))
		client, err := cairn.NewClient(option.WithBaseURL(server.URL), option.WithOrg(n.Org), option.WithPrivateKey(n.Key()))
		if err != nil {
			t.Fatal(err)
		}
		remote := checkpoint.NewRemote(client)
		f.clients = append(f.clients, remote)
		t.Cleanup(func() {
			remote.Close()
			server.Close()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	root, objects := stack.Workspace{"f": "text"}.Objects()
	f.root = root
	for _, thread := range []string{"a", "b"} {
		if err := f.clients[0].Put(t.Context(), checkpoint.Scope{Thread: thread, Upload: "u"}, objects); err != nil {
			t.Fatal(err)
		}
		first := thread + "0"
		_, err := f.clients[0].Append(t.Context(), checkpoint.Append{Checkpoint: checkpoint.Checkpoint{ID: first, Thread: thread, Root: root}, Upload: "u"})
		if err != nil {
			t.Fatal(err)
		}
		f.first[thread] = first
	}
	f.lossy.Store(true)
	return f
}

// losing is a server of which some requests do not arrive, and some answers.
func (f *field) losing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fate := rand.IntN(40)
		if !f.lossy.Load() {
			fate = 40
		}
		if fate == 0 {
			panic(http.ErrAbortHandler)
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if fate <= 2 {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	})
}

// writer is a client that contends for threads.
type writer struct {
	*field
	remote *checkpoint.Remote
	rand   *rand.Rand
	off    time.Duration // of its clock
	heads  map[string]string
	leases map[string]*checkpoint.Writer
}

func (f *field) now() int64 { return f.world.Clock.Now().UnixNano() }

// run makes n requests. The error is a fault.
func (w *writer) run(ctx context.Context, n int) error {
	for range n {
		time.Sleep(time.Duration(w.rand.IntN(3)) * time.Millisecond)
		r := request{thread: []string{"a", "b"}[w.rand.IntN(2)]}
		lease := w.leases[r.thread]
		if lease != nil {
			r.lease = lease.OwnerToken
		}
		r.call = w.now()
		var err error
		switch n := w.rand.IntN(20); {
		case n < 3:
			r.what = look
			r.head, err = w.remote.Head(ctx, r.thread)
			w.heads[r.thread] = r.head
		case n < 4 && lease == nil:
			r.what, r.id = take, strconv.FormatInt(w.ids.Add(1), 10)
			var given *checkpoint.Lease
			if given, err = w.remote.Acquire(ctx, r.thread); err == nil {
				r.token, r.fence, w.leases[r.thread] = given.OwnerToken, given.Fence, &given.Writer
			}
		case n < 5 && lease != nil:
			r.what = prolong
			_, err = w.remote.Renew(ctx, *lease)
		case n < 8 && lease != nil:
			r.what = giveBack
			err = w.remote.Release(ctx, *lease)
			delete(w.leases, r.thread)
		case n < 10 && lease != nil:
			r.what, r.id = pop, w.heads[r.thread]
			if r.id == w.first[r.thread] || r.id == "" {
				r.id = "never"
			}
			err = w.remote.DeleteHead(ctx, r.thread, r.id, *lease)
			w.heads[r.thread] = ""
		default:
			err = w.append(ctx, &r, lease)
		}
		r.end = w.now()
		if err := w.note(r, err); err != nil {
			return err
		}
	}
	return nil
}

// append appends onto what the writer believes to be the head; now and then onto
// any. An answer that is lost is asked for again, or given up.
func (w *writer) append(ctx context.Context, r *request, lease *checkpoint.Writer) error {
	r.what, r.id, r.expected, r.any = appendTo, fmt.Sprint(r.thread, w.ids.Add(1)), w.heads[r.thread], w.rand.IntN(4) == 0
	if r.expected == "" {
		r.expected = w.first[r.thread]
	}
	a := checkpoint.Append{
		Checkpoint: checkpoint.Checkpoint{ID: r.id, Thread: r.thread, Root: w.root, CreatedAt: w.world.Clock.Now().Add(w.off)},
		Writer:     lease, ExpectedHead: r.expected, AnyHead: r.any, Always: true,
	}
	if w.rand.IntN(3) > 0 {
		a.Key = "key-" + r.id
	}
	for {
		appended, err := w.remote.Append(ctx, a)
		if a.Key != "" && errors.Is(err, checkpoint.ErrUnavailable) {
			continue
		}
		var conflict *checkpoint.HeadConflictError
		if errors.As(err, &conflict) {
			r.head = conflict.Head
			w.heads[r.thread] = conflict.Head
		}
		if err == nil {
			r.parent = appended.Checkpoint.Parent
			w.heads[r.thread] = r.id
		}
		return err
	}
}

// note keeps a request with its outcome.
func (w *writer) note(r request, err error) error {
	switch {
	case err == nil:
		r.outcome = done
	case errors.Is(err, checkpoint.ErrWriterConflict):
		r.outcome = held
	case errors.Is(err, checkpoint.ErrWriterLost):
		r.outcome = lost
		delete(w.leases, r.thread)
	case errors.Is(err, checkpoint.ErrHeadConflict):
		r.outcome = stale
	case errors.Is(err, checkpoint.ErrNotHead):
		r.outcome = notHead
	case errors.Is(err, checkpoint.ErrUnavailable):
		if r.what == look {
			return nil
		}
	default:
		return fmt.Errorf("%s: %w", r.what, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[r.thread] = append(w.requests[r.thread], r)
	return nil
}

// contend lets writers loose while time jumps, so that leases end.
func (f *field) contend(t *testing.T, seed uint64, writers, each int) {
	t.Helper()
	var all, ticking sync.WaitGroup
	over := make(chan struct{})
	ticking.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 77))
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(1+rng.IntN(8)) * time.Millisecond):
				f.world.Clock.Advance(time.Duration(rng.Int64N(int64(50 * time.Second))))
			}
		}
	})
	for i := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		w := &writer{
			field: f, remote: f.clients[i%len(f.clients)], rand: rng, off: []time.Duration{-time.Hour, 0, time.Hour}[i%3],
			heads: map[string]string{}, leases: map[string]*checkpoint.Writer{},
		}
		all.Go(func() {
			if err := w.run(t.Context(), each); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(over)
	ticking.Wait()
}

// judge checks what the writers were told, with a last look at the heads, and counts
// it.
func (f *field) judge(t *testing.T, outcomes map[outcome]int) {
	t.Helper()
	f.lossy.Store(false)
	for thread, requests := range f.requests {
		for _, r := range requests {
			outcomes[r.outcome]++
		}
		at := f.now()
		head, err := f.clients[0].Head(t.Context(), thread)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, request{call: at, end: f.now(), thread: thread, what: look, head: head, outcome: done})
		if err := explains(f.first[thread], requests); err != nil {
			t.Errorf("thread %q: %v", thread, err)
		}
	}
}

func testHeads(t *testing.T, servers int, database func(testing.TB) string) {
	rounds, writers, each := 3, 8, 50
	if testkit.Soaking() {
		rounds = 60
	}
	seed := testkit.Seed(t)
	outcomes := map[outcome]int{}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			f := newField(t, database(t), servers)
			f.contend(t, seed+uint64(round), writers, each)
			f.judge(t, outcomes)
		})
	}
	t.Logf("outcomes: %v", outcomes)
	for _, o := range []outcome{done, held, lost, stale, nobody} {
		if outcomes[o] == 0 {
			t.Errorf("no request ended with %q", o)
		}
	}
}

// TestHistoriesOfHeadsSQLite checks what writers are told who contend for threads and
// their leases, whose answers get lost and whose clocks are wrong.
func TestHistoriesOfHeadsSQLite(t *testing.T) {
	testHeads(t, 1, func(testing.TB) string { return "" })
}

// TestHistoriesOfHeadsPostgres is the same with two servers on one database.
func TestHistoriesOfHeadsPostgres(t *testing.T) { testHeads(t, 2, testkit.Postgres) }

// TestHeadsChecker gives the checker histories that it must take and refuse.
func TestHeadsChecker(t *testing.T) {
	on := func(call, end int64, id, expected string, o outcome) request {
		r := request{call: call, end: end, what: appendTo, id: id, expected: expected, outcome: o}
		if o == done {
			r.parent = expected
		}
		return r
	}
	see := func(call int64, head string) request {
		return request{call: call, end: call + 1, what: look, head: head, outcome: done}
	}
	with := func(r request, lease string) request {
		r.lease = lease
		return r
	}
	told := func(r request, head string) request {
		r.head = head
		return r
	}
	lease := func(call, end int64, token string, fence int64) request {
		return request{call: call, end: end, what: take, token: token, fence: fence, outcome: done}
	}
	for _, c := range []struct {
		name    string
		good    bool
		history []request
	}{
		{"one after the other", true, []request{on(0, 1, "1", "0", done), on(2, 3, "2", "1", done), see(4, "2")}},
		{"two from one head", false, []request{on(0, 9, "1", "0", done), on(1, 8, "2", "0", done)}},
		{"a stale one", true, []request{on(0, 9, "1", "0", done), told(on(1, 8, "2", "0", stale), "1"), see(10, "1")}},
		{"stale without a reason", false, []request{told(on(0, 1, "1", "0", stale), "0")}},
		{"an answer lost, and done", true, []request{on(0, 1, "1", "0", nobody), see(4, "1")}},
		{"an answer lost, and not done", true, []request{on(0, 1, "1", "0", nobody), see(4, "0")}},
		{"an answer lost, and done twice", false, []request{on(0, 1, "1", "0", nobody), see(2, "1"), see(4, "0")}},
		{"an acknowledged one gone", false, []request{on(0, 1, "1", "0", done), see(2, "0")}},
		{"a lease keeps others out", true, []request{lease(0, 1, "x", 1), on(2, 3, "1", "0", held), with(on(4, 5, "2", "0", done), "x")}},
		{"a lease that did not keep others out", false, []request{lease(0, 1, "x", 1), on(2, 3, "1", "0", done)}},
		{"a lease that ended", true, []request{lease(0, 1, "x", 1), on(2, leaseTime+2, "1", "0", done), with(on(leaseTime+3, leaseTime+4, "2", "1", lost), "x")}},
		{"a paused writer that still writes", false, []request{
			lease(0, 1, "x", 1), lease(leaseTime+2, leaseTime+3, "y", 2), with(on(leaseTime+4, leaseTime+5, "2", "0", done), "x"),
		}},
		{"two leases", false, []request{lease(0, 1, "x", 1), lease(2, 3, "y", 2)}},
		{"a fence that goes back", false, []request{
			lease(0, 1, "x", 5), {call: 2, end: 3, what: giveBack, lease: "x", outcome: done}, lease(4, 5, "y", 5),
		}},
		{"a lease lost without a reason", false, []request{lease(0, 1, "x", 1), with(on(2, 3, "1", "0", lost), "x")}},
		{"the head taken off", true, []request{
			lease(0, 1, "x", 1), with(on(2, 3, "1", "0", done), "x"), {call: 4, end: 5, what: pop, id: "1", lease: "x", outcome: done}, see(6, "0"),
		}},
	} {
		if err := explains("0", c.history); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

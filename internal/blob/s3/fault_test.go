package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/blobtest"
	"github.com/cairnstate/cairn/internal/blob/s3"
)

// fault is a way in which a service fails one request.
type fault string

const (
	none        fault = ""
	dropBefore  fault = "connection closed before the request was done"
	dropAfter   fault = "request done, answer lost"
	halfAnswer  fault = "request done, half of the answer"
	conflict    fault = "409 and nothing done"
	slowDown    fault = "503 and nothing done"
	errorAfter  fault = "500 though the request was done"
	error200    fault = "200 with an error inside, though the request was done"
	stallBefore fault = "no answer in time and nothing done"
	stallAfter  fault = "no answer in time, request done"
	slow        fault = "a late answer in pieces"
)

var faults = []fault{dropBefore, dropAfter, halfAnswer, conflict, slowDown, errorAfter, error200, stallBefore, stallAfter, slow}

// stall is the store's limit for requests; a stalling proxy never answers. A busy
// machine must be able to move some megabytes in that time.
const stall = time.Second

// proxy stands before a real server and fails the requests that choose picks.
type proxy struct {
	upstream string
	choose   func(r *http.Request) fault
	injected atomic.Int64
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault := p.choose(r)
	if fault == error200 && (r.Method != http.MethodPost || !r.URL.Query().Has("uploadId")) {
		fault = errorAfter // only CompleteMultipartUpload answers before it is done
	}
	if fault != none {
		p.injected.Add(1)
	}
	switch fault {
	case dropBefore:
		panic(http.ErrAbortHandler)
	case conflict:
		answerError(w, http.StatusConflict, "ConditionalRequestConflict")
		return
	case slowDown:
		answerError(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case stallBefore:
		hang(r)
		panic(http.ErrAbortHandler)
	}
	resp, answer := p.forward(r, body)
	switch fault {
	case dropAfter:
		panic(http.ErrAbortHandler)
	case stallAfter:
		hang(r)
		panic(http.ErrAbortHandler)
	case errorAfter:
		answerError(w, http.StatusInternalServerError, "InternalError")
		return
	case error200:
		answerError(w, http.StatusOK, "InternalError")
		return
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if fault == halfAnswer {
		w.Write(answer[:len(answer)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if fault == slow {
		w.(http.Flusher).Flush()
		time.Sleep(stall / 20)
		w.Write(answer[:len(answer)/2])
		answer = answer[len(answer)/2:]
		w.(http.Flusher).Flush()
		time.Sleep(stall / 20)
	}
	w.Write(answer)
}

// hang waits until the client gives up, though not as long as a client does that
// waits for a large part.
func hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(2 * stall):
	}
}

func (p *proxy) forward(r *http.Request, body []byte) (*http.Response, []byte) {
	out, err := http.NewRequest(r.Method, p.upstream+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	out.Header = r.Header.Clone()
	out.Host = r.Host // it is signed
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return resp, answer
}

func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
}

// throughProxy returns the configuration for a server behind a proxy.
func throughProxy(tb testing.TB, choose func(r *http.Request) fault) (s3.Config, *proxy) {
	c := config(tb)
	p := &proxy{upstream: c.Endpoint, choose: choose}
	server := httptest.NewServer(p)
	tb.Cleanup(server.Close)
	c.Endpoint = server.URL
	c.Stall = stall
	c.MaxWait = 200 * time.Millisecond
	c.PartSize = 5 << 20
	return c, p
}

// TestStoreUnderFaults runs the whole suite while one request in five fails.
func TestStoreUnderFaults(t *testing.T) {
	config(t) // or skip
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var injected int64
	blobtest.Test(t, func(tb testing.TB) blob.Store {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 0))
		c, p := throughProxy(tb, func(*http.Request) fault {
			mu.Lock()
			defer mu.Unlock()
			if rng.IntN(5) > 0 {
				return none
			}
			f := faults[rng.IntN(len(faults))]
			if (f == stallBefore || f == stallAfter || f == slow) && rng.IntN(20) > 0 {
				return dropAfter // stalls take their time: have fewer
			}
			return f
		})
		tb.Cleanup(func() { injected += p.injected.Load() })
		return open(tb, c)
	})
	t.Logf("%d faults", injected)
	if injected < 100 {
		t.Errorf("only %d faults were injected", injected)
	}
}

// operation is one use of a store, in which each request shall fail.
type operation struct {
	name     string
	requests int // that it makes at least
	data     []byte
	stored   bool // whether an object with data is there before
	run      func(t *testing.T, s, direct blob.Store, key blob.Key, data []byte) error
}

var operations = []operation{
	{"put", 1, blobtest.Data("small", 1000), false, putAndRead},
	{"put parts", 4, blobtest.Data("large", 5<<20+1), false, putAndRead},
	{"put existing", 2, blobtest.Data("small", 1000), true, func(t *testing.T, s, _ blob.Store, key blob.Key, data []byte) error {
		return wantError(blob.ErrExists, s.Put(t.Context(), key, bytes.NewReader(data), -1))
	}},
	{"read", 2, blobtest.Data("medium", 1<<20+1), true, func(t *testing.T, s, _ blob.Store, key blob.Key, data []byte) error {
		got, err := blobtest.ReadAll(s, key)
		if err == nil && !bytes.Equal(got, data) {
			err = errors.New("read wrong bytes")
		}
		return err
	}},
	{"delete", 1, blobtest.Data("small", 1000), true, func(t *testing.T, s, direct blob.Store, key blob.Key, _ []byte) error {
		if err := s.Delete(t.Context(), key); err != nil {
			return err
		}
		_, err := direct.Stat(t.Context(), key)
		return wantError(blob.ErrNotFound, err)
	}},
	{"list", 1, blobtest.Data("small", 1000), true, func(t *testing.T, s, _ blob.Store, key blob.Key, _ []byte) error {
		for info, err := range s.List(t.Context(), string(key)) {
			if err != nil || info.Key == key {
				return err
			}
		}
		return fmt.Errorf("the list lacks %q", key)
	}},
}

func putAndRead(t *testing.T, s, direct blob.Store, key blob.Key, data []byte) error {
	if err := s.Put(t.Context(), key, bytes.NewReader(data), -1); err != nil {
		return err
	}
	got, err := blobtest.ReadAll(direct, key)
	if err == nil && !bytes.Equal(got, data) {
		err = errors.New("read back wrong bytes")
	}
	return err
}

func wantError(want, got error) error {
	if errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("got error %v, want %v", got, want)
}

// TestEveryFaultOnEveryRequest fails each request of each operation in each way:
// the operation succeeds all the same and its effect is there.
func TestEveryFaultOnEveryRequest(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			var count, failing atomic.Int64
			var inject atomic.Value
			c, p := throughProxy(t, func(*http.Request) fault {
				if count.Add(1) == failing.Load() {
					return inject.Load().(fault)
				}
				return none
			})
			s := open(t, c)
			past := c
			past.Endpoint, past.Stall = p.upstream, time.Minute
			direct := open(t, past)
			for _, f := range faults {
				inject.Store(f)
				for n := int64(1); ; n++ {
					key := blob.Key(fmt.Sprintf("every/%d-%d", slices.Index(faults, f), n))
					if op.stored {
						if err := direct.Put(t.Context(), key, bytes.NewReader(op.data), -1); err != nil {
							t.Fatal(err)
						}
					}
					count.Store(0)
					failing.Store(n)
					if err := op.run(t, s, direct, key, op.data); err != nil {
						t.Errorf("request %d, %s: %v", n, f, err)
					}
					if count.Load() < n {
						if n <= int64(op.requests) {
							t.Errorf("operation made %d requests, want at least %d", n-1, op.requests)
						}
						break
					}
				}
			}
		})
	}
}

// TestOutage checks that a service that stays down gives an error which is no
// verdict on the object.
func TestOutage(t *testing.T) {
	var down atomic.Bool
	c, _ := throughProxy(t, func(*http.Request) fault {
		if down.Load() {
			return slowDown
		}
		return none
	})
	s := open(t, c)
	down.Store(true)
	err := s.Put(t.Context(), "outage/put", strings.NewReader("x"), 1)
	if err == nil || errors.Is(err, blob.ErrExists) || errors.Is(err, blob.ErrNotFound) {
		t.Errorf("put: %v", err)
	}
	down.Store(false)
	if err := s.Put(t.Context(), "outage/later", strings.NewReader("x"), 1); err != nil {
		t.Errorf("put after the outage: %v", err)
	}
}

package checkpoint

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestRestoredElsewhere(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	a, b := newSandbox(t, server, "t"), newSandbox(t, server, "t")
	if doc := a.restore().document(t); len(doc) != 1 || doc["checkpoint"] != nil {
		t.Errorf("restore of a thread without checkpoints: %v", doc)
	}
	files := map[string]string{"a": "1", "sub/b": "2", "large": strings.Repeat("0123456789abcdef", 300_000)}
	a.write(files)
	first := a.capture("--label", "begin")
	if again := a.want(0, "capture", "--json", "--root", a.dir).document(t); again["unchanged"] != true {
		t.Errorf("a second capture: %v", again)
	}
	if got := b.restore().id(t); got != first {
		t.Errorf("restored %s, want %s", got, first)
	}
	b.has(files)
	b.write(map[string]string{"c": "3"})
	second := b.capture()
	b.restore("--checkpoint", first)
	b.has(files)
	b.restore("--undo")
	files["c"] = "3"
	b.has(files)
	if got := a.ids(); len(got) != 2 || got[0] != first || got[1] != second {
		t.Errorf("the thread has %q", got)
	}
	a.want(4, "restore", "--root", a.dir, "--checkpoint", "nothing")
	a.want(4, "checkpoint", "list", "--thread", "another") // whether it exists is not told
	a.want(2, "capture", "--root", a.dir, "--if-busy", "now")
	foreign := newSandbox(t, server, "t")
	foreign.write(map[string]string{"mine": "keep"})
	if r := foreign.run("restore", "--root", foreign.dir); r.status == 0 || !strings.Contains(r.stderr, "never captured or restored") {
		t.Errorf("restore over other files: %+v", r)
	}
	foreign.has(map[string]string{"mine": "keep"})
	foreign.want(0, "restore", "--root", foreign.dir, "--yes")
	foreign.has(files)
	for _, dir := range []string{"/", foreign.home} {
		if r := foreign.run("restore", "--root", dir); r.status == 0 {
			t.Errorf("restore into %s: %+v", dir, r)
		}
	}
}

// TestStaleSandbox restores A at c1, lets B append c2, and captures from A.
func TestStaleSandbox(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	a, b := newSandbox(t, server, "t"), newSandbox(t, server, "t")
	a.write(map[string]string{"f": "1"})
	a.capture()
	b.restore()
	b.write(map[string]string{"f": "2"})
	second := b.capture()
	a.write(map[string]string{"f": "late"})
	stale := func(when string) {
		t.Helper()
		for _, args := range [][]string{{"capture"}, {"watch", "--every", "10ms"}, {"capture", "--always"}, {"capture", "--onto", "none"}} {
			a.want(3, append(args, "--root", a.dir)...)
		}
		if ids := b.ids(); len(ids) != 2 || ids[1] != second {
			t.Errorf("%s the thread has %q", when, ids)
		}
	}
	stale("with a free lease")
	store := remote(t, server.URL, a.token)
	lease, err := store.Acquire(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	stale("while another has the lease")
	for _, busy := range []string{"skip", "wait=1h"} { // nothing to skip, and nothing to wait for
		a.want(3, "capture", "--root", a.dir, "--if-busy", busy)
	}
	a.want(6, "capture", "--root", a.dir, "--onto", "head")
	b.want(6, "capture", "--root", b.dir, "--always")
	a.want(0, "capture", "--root", a.dir, "--onto", "head", "--if-busy", "skip")
	if err := store.Release(t.Context(), lease.Writer); err != nil {
		t.Fatal(err)
	}
	stale("after the lease")
	third := a.capture("--onto", "head")
	if ids := a.ids(); len(ids) != 3 || ids[2] != third {
		t.Errorf("onto the head: the thread has %q", ids)
	}
	b.want(3, "capture", "--root", b.dir, "--always")
	b.capture("--onto", third)
}

// TestPausedWriter holds a lease for too long.
func TestPausedWriter(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.write(map[string]string{"f": "1"})
	first := s.capture()
	answer, err := server.Do(nil, http.MethodPost, "/api/threads/t/lease", s.token, "application/json", []byte(`{"duration_ms":1000}`))
	if err != nil || answer.Status >= 300 {
		t.Fatalf("acquire: %v, %d %s", err, answer.Status, answer.Body)
	}
	fence, _ := answer.JSON("fence").(float64)
	paused := checkpoint.Writer{Thread: "t", OwnerToken: answer.Text("owner_token"), Fence: int64(fence)}
	store := remote(t, server.URL, s.token)
	var next *checkpoint.Lease
	soon(t, "the end of the lease", func() bool {
		next, err = store.Acquire(t.Context(), "t")
		return err == nil
	})
	if next.Fence <= paused.Fence {
		t.Errorf("the fence went from %d to %d", paused.Fence, next.Fence)
	}
	p := checkpoint.CaptureParams{
		Store: store, Blobs: store, Thread: "t", Roots: []checkpoint.Root{{Path: s.dir}}, StateDir: t.TempDir(), ExpectedHead: &first, Always: true, Writer: &paused,
	}
	if _, err := checkpoint.Capture(t.Context(), p); !errors.Is(err, checkpoint.ErrWriterLost) {
		t.Errorf("a capture of the paused writer: %v", err)
	}
	p.Writer = &next.Writer
	if _, err := checkpoint.Capture(t.Context(), p); err != nil {
		t.Errorf("a capture of the next one: %v", err)
	}
	if ids := s.ids(); len(ids) != 2 {
		t.Errorf("the thread has %q", ids)
	}
}

// TestClocksOfClients appends with times that are an hour off.
func TestClocksOfClients(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	store := remote(t, server.URL, s.token)
	head := ""
	for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		lease, err := store.Acquire(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		id := string(rune('a' + i))
		_, err = store.Append(t.Context(), checkpoint.Append{
			Checkpoint: checkpoint.Checkpoint{
				ID: id, Thread: "t", Parent: head, CreatedAt: time.Now().Add(off), External: true,
			},
			ExpectedHead: head, Writer: &lease.Writer,
		})
		if err != nil {
			t.Fatalf("with a clock %s off: %v", off, err)
		}
		if _, err := store.Renew(t.Context(), lease.Writer); err != nil {
			t.Errorf("renew with a clock %s off: %v", off, err)
		}
		if err := store.Release(t.Context(), lease.Writer); err != nil {
			t.Fatal(err)
		}
		if head, err = store.Head(t.Context(), "t"); err != nil || head != id {
			t.Errorf("the head is %q (%v), want %q", head, err, id)
		}
	}
	// Files that seem to be of the future, or long ago, are captured as they are.
	for i, off := range []time.Duration{time.Hour, -time.Hour} {
		s.write(map[string]string{"f": string(rune('0' + i))})
		at := time.Now().Add(off)
		if err := os.Chtimes(filepath.Join(s.dir, "f"), at, at); err != nil {
			t.Fatal(err)
		}
		id := s.capture("--onto", "head")
		if c, err := store.Get(t.Context(), id); err != nil || time.Since(c.CreatedAt).Abs() > 10*time.Minute {
			t.Errorf("created at %v (%v)", c.CreatedAt, err)
		}
	}
	s.write(map[string]string{"f": "2"}) // of the same size
	s.capture()
	b := newSandbox(t, server, "t")
	b.restore()
	b.has(map[string]string{"f": "2"})
}

// between passes requests on to a server, and loses the answers that lose says.
func between(t *testing.T, server *harness.Server, lose func(*http.Request) bool) string {
	t.Helper()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if lose(r.Request) {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL
}

func TestLostAnswers(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	var lost atomic.Int64
	s := newSandbox(t, server, "t")
	s.url = between(t, server, func(r *http.Request) bool {
		return r.Method == http.MethodPost && lost.Add(1)%2 == 1 // every other answer, appends among them
	})
	var ids []string
	for _, text := range []string{"1", "2", "3"} {
		s.write(map[string]string{"f": text})
		ids = append(ids, s.capture())
	}
	if got := s.ids(); strings.Join(got, " ") != strings.Join(ids, " ") || lost.Load() < 6 {
		t.Errorf("the thread has %q, acknowledged were %q (%d answers)", got, ids, lost.Load())
	}
}

// TestKilledBeforeTheAnswer kills a capture whose append was done, and captures
// again: the workspace came from that checkpoint, and is not stale.
func TestKilledBeforeTheAnswer(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	reached, held := make(chan struct{}), make(chan struct{})
	var first sync.Once
	s.url = between(t, server, func(r *http.Request) bool {
		lost := false
		if strings.HasSuffix(r.URL.Path, "/checkpoints") && r.Method == http.MethodPost {
			first.Do(func() {
				close(reached)
				<-held
				lost = true
			})
		}
		return lost
	})
	s.write(map[string]string{"f": "1"})
	cmd := s.command("capture", "--root", s.dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	close(held)
	s.write(map[string]string{"f": "2"})
	second := s.capture()
	if ids := s.ids(); len(ids) != 2 || ids[1] != second {
		t.Errorf("the thread has %q", ids)
	}
}

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/tests/harness"
)

// source reads objects of a thread from a server.
type source struct {
	store  *checkpoint.Remote
	thread string
}

func (s *source) Get(ctx context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	return s.store.Fetch(ctx, checkpoint.Scope{Thread: s.thread}, digests, fn)
}

// crashes is one run of TestCrashRounds.
type crashes struct {
	*sandbox
	server *harness.Server
	random *rand.Rand
	saved  map[string]map[string]string // the files of each acknowledged checkpoint
	order  []string
	// flying are requests without an answer yet.
	flying         atomic.Int64
	kills, between int
}

// front stands between the program and the server, and counts requests that are under
// way. A server that dies takes its connections with it.
func (c *crashes) front() string {
	c.Helper()
	target, err := url.Parse(c.server.URL)
	if err != nil {
		c.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.flying.Add(1)
		defer c.flying.Add(-1)
		proxy.ServeHTTP(w, r)
	}))
	c.Cleanup(server.Close)
	return server.URL
}

// TestCrashRounds edits, captures and restores while the client or the server is
// killed: 5 rounds on SQLite and 2 on PostgreSQL, 50 of each in a soak. What was
// acknowledged stays, nothing in a workspace is a mixture, and an interrupted restore is
// completed by the next.
func TestCrashRounds(t *testing.T) {
	seed := testkit.Seed(t)
	for _, e := range []struct {
		name    string
		rounds  int
		options func(*testing.T) harness.Options
	}{
		{"SQLite", 5, func(*testing.T) harness.Options { return harness.Options{} }},
		{"Postgres", 2, func(t *testing.T) harness.Options { return harness.OnPostgresAndS3(t, harness.Options{}) }},
	} {
		if testkit.Soaking() {
			e.rounds = 50
		}
		t.Run(e.name, func(t *testing.T) {
			server := harness.Serve(t, e.options(t))
			c := &crashes{
				sandbox: newSandbox(t, server, "t"), server: server, random: rand.New(rand.NewPCG(seed, 5)), saved: map[string]map[string]string{},
			}
			c.rounds(e.rounds)
		})
	}
}

func (c *crashes) rounds(n int) {
	c.url = c.front()
	c.write(map[string]string{"start": "start"})
	for round := range n {
		c.edit(round)
		c.captureThrough(round)
		c.restoreThrough()
		c.check()
	}
	c.Logf("%d kills, %d (%d %%) between a request and its answer; %d acknowledged checkpoints", c.kills, c.between, 100*c.between/max(c.kills, 1), len(c.order))
	if 3*c.between < c.kills {
		c.Errorf("only %d of %d kills came between a request and its answer", c.between, c.kills)
	}
	if c.kills < n {
		c.Errorf("only %d kills in %d rounds", c.kills, n)
	}
	if out, err := c.server.Operate("fsck"); err != nil {
		c.Errorf("fsck: %v\n%s", err, out)
	}
}

// edit changes some files: small ones, and one of several chunks.
func (c *crashes) edit(round int) {
	files := map[string]string{}
	for range 1 + c.random.IntN(20) {
		name := fmt.Sprintf("d%d/f%d", c.random.IntN(5), c.random.IntN(40))
		files[name] = strings.Repeat(fmt.Sprintf("%s in round %d\n", name, round), 1+c.random.IntN(500))
	}
	large := make([]byte, 1<<20+c.random.IntN(4<<20))
	for i := range large {
		large[i] = byte(c.random.Uint32())
	}
	files["large"] = string(large)
	c.write(files)
}

// interrupted runs the program and kills it, or the server, after some time. It
// reports whether the program ended well.
func (c *crashes) interrupted(args ...string) (out []byte, done bool) {
	c.Helper()
	cmd := c.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case <-c.moment():
		c.kills++
		if c.flying.Load() > 0 {
			c.between++
		}
		if c.random.IntN(2) == 0 {
			c.server.Kill()
			if err := c.server.Restart(); err != nil {
				c.Fatalf("restart: %v", err)
			}
		} else if err := cmd.Process.Kill(); err != nil {
			c.Log(err)
		}
		err = <-ended
	case err = <-ended:
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() && exit.ExitCode() == 3 {
		c.Errorf("%v is stale: %s", args, stderr.Bytes())
	}
	return stdout.Bytes(), err == nil
}

// moment comes when it is time for a kill: at any time, and mostly during a request, if
// there is one soon.
func (c *crashes) moment() <-chan time.Time {
	wait := time.Duration(5+c.random.IntN(120)) * time.Millisecond
	if c.random.IntN(3) == 0 {
		return time.After(wait)
	}
	at := make(chan time.Time, 1)
	skip := c.random.IntN(4) // requests that are left alone
	go func() {
		for range 3000 {
			if c.flying.Load() > 0 {
				if skip--; skip < 0 {
					break
				}
				for c.flying.Load() > 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			time.Sleep(100 * time.Microsecond)
		}
		at <- time.Now()
	}()
	return at
}

// captureThrough captures until it succeeds.
func (c *crashes) captureThrough(round int) {
	args := []string{"capture", "--json", "--root", c.dir, "--label", fmt.Sprint("round ", round)}
	for try := 0; ; try++ {
		var out []byte
		if try < 5 {
			var done bool
			if out, done = c.interrupted(args...); !done {
				continue
			}
		} else {
			out = []byte(c.want(0, args...).stdout)
		}
		id := result{stdout: string(out)}.id(c.T)
		if c.saved[id] == nil {
			c.order = append(c.order, id)
		}
		c.saved[id] = c.files()
		return
	}
}

// restoreThrough restores an acknowledged checkpoint, through kills, and the head
// after it.
func (c *crashes) restoreThrough() {
	now := c.files()
	id := c.order[c.random.IntN(len(c.order))]
	args := []string{"restore", "--json", "--no-undo", "--root", c.dir, "--checkpoint", id}
	for range 3 {
		if _, done := c.interrupted(args...); done {
			break
		}
		for name, text := range c.files() {
			if !strings.HasPrefix(name, ".cairn-restore-") && text != now[name] && text != c.saved[id][name] {
				c.Fatalf("%q is neither the old nor the new one", name)
			}
		}
	}
	c.want(0, args...)
	c.has(c.saved[id])
	c.restore("--no-undo", "--checkpoint", c.order[len(c.order)-1])
}

// check compares every acknowledged checkpoint with what it was.
func (c *crashes) check() {
	ids := c.ids()
	position := 0
	for _, id := range ids {
		if position < len(c.order) && id == c.order[position] {
			position++
		}
	}
	if position < len(c.order) {
		c.Fatalf("the thread has %q, acknowledged were %q", ids, c.order)
	}
	other := newSandbox(c.T, c.server, "t")
	for range 2 {
		id := c.order[c.random.IntN(len(c.order))]
		other.restore("--no-undo", "--checkpoint", id)
		if got := other.files(); !maps.Equal(got, c.saved[id]) {
			c.Fatalf("checkpoint %s has %d files, want %d, or others", id, len(got), len(c.saved[id]))
		}
	}
}

package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/tests/harness"
	"github.com/cairnstate/cairn/tests/stack"
)

// cutter is a TCP proxy whose connections can all be cut at once, as by a database
// that restarts.
type cutter struct {
	net.Listener
	target string
	mu     sync.Mutex
	down   bool
	open   map[net.Conn]bool
}

func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, target: target, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Close()
		c.cut(true)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(conn)
		}
	}()
	return c
}

// cut ends all connections; down refuses others from then on.
func (c *cutter) cut(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	for conn := range c.open {
		conn.Close()
	}
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		return
	}
	c.open[client], c.open[server] = true, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, client)
		delete(c.open, server)
	}()
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	io.Copy(client, server)
}

// flaky is a proxy to an object store that drops requests and answers, gives half of
// an answer, and lets clients wait.
type flaky struct {
	proxy  *httputil.ReverseProxy
	faults atomic.Bool
	struck atomic.Int64
}

func newFlaky(t *testing.T, endpoint string) (f *flaky, address string) {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f = &flaky{proxy: &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }, // which is signed
		ErrorLog: nil,
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fate := 100
	if f.faults.Load() {
		fate = rand.IntN(25)
	}
	if fate < 5 {
		f.struck.Add(1)
	}
	switch fate {
	case 0:
		panic(http.ErrAbortHandler)
	case 1, 2:
		answer := httptest.NewRecorder()
		f.proxy.ServeHTTP(answer, r)
		if fate == 1 || r.Method == http.MethodHead {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		if answer.Body.Len() > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case 3:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 4:
		time.Sleep(300 * time.Millisecond)
		f.proxy.ServeHTTP(w, r)
	default:
		f.proxy.ServeHTTP(w, r)
	}
}

// chain is a thread that one client writes to, one checkpoint after another.
type chain struct {
	thread string
	remote *checkpoint.Remote
	ids    []string
	files  []stack.Workspace
	tries  atomic.Int64 // that failed
}

// again calls do until the server can be used.
func (c *chain) again(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if !errors.Is(err, checkpoint.ErrUnavailable) || try == 200 {
			return err
		}
		c.tries.Add(1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// grow sends and appends one more checkpoint, however often that takes.
func (c *chain) grow(ctx context.Context, w stack.Workspace) error {
	root, objects := w.Objects()
	id, head := fmt.Sprint(c.thread, "-", len(c.ids)), ""
	if len(c.ids) > 0 {
		head = c.ids[len(c.ids)-1]
	}
	for {
		scope := checkpoint.Scope{Thread: c.thread, Upload: fmt.Sprintf("u%x", rand.Uint64())}
		if err := c.again(ctx, func() error { return c.remote.Put(ctx, scope, objects) }); err != nil {
			return fmt.Errorf("put: %w", err)
		}
		var done *checkpoint.Appended
		err := c.again(ctx, func() (err error) {
			done, err = c.remote.Append(ctx, checkpoint.Append{
				Checkpoint: checkpoint.Checkpoint{ID: id, Thread: c.thread, Root: root}, ExpectedHead: head, Upload: scope.Upload, Always: true, Key: id,
			})
			return err
		})
		if errors.Is(err, checkpoint.ErrMissingBlob) {
			continue
		}
		if err != nil {
			return fmt.Errorf("append %s: %w", id, err)
		}
		c.ids, c.files = append(c.ids, done.Checkpoint.ID), append(c.files, w)
		return nil
	}
}

// check compares the thread with what was acknowledged.
func (c *chain) check(t *testing.T) {
	t.Helper()
	n := 0
	for found, err := range c.remote.List(t.Context(), c.thread, checkpoint.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(c.ids) || found.ID != c.ids[n] {
			t.Fatalf("%s has %s in place %d, acknowledged were %q", c.thread, found.ID, n, c.ids)
		}
		got, err := stack.ReadWorkspace(t.Context(), &source{c.remote, c.thread}, found.Root)
		if err != nil || !maps.Equal(got, c.files[n]) {
			t.Fatalf("checkpoint %s: %d files, want %d: %v", found.ID, len(got), len(c.files[n]), err)
		}
		n++
	}
	if n != len(c.ids) {
		t.Errorf("%s has %d checkpoints, acknowledged were %d", c.thread, n, len(c.ids))
	}
}

// TestStoreFaults appends while the database ends and cuts its connections, and the object store drops, delays
// and breaks off: each checkpoint is there once, as it was sent.
func TestStoreFaults(t *testing.T) {
	d := 4 * time.Second
	if testkit.Soaking() {
		d = 5 * time.Minute
	}
	o := harness.OnPostgresAndS3(t, harness.Options{})
	var database *cutter
	var admin *sql.DB
	var bucket *flaky
	for i, flag := range o.Storage {
		u, err := url.Parse(flag)
		if err != nil {
			t.Fatal(err)
		}
		switch u.Scheme {
		case "postgres":
			if admin, err = sql.Open("pgx", flag); err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			database = newCutter(t, u.Host)
			u.Host = database.Addr().String()
			o.Storage[i] = u.String()
		case "s3":
			q := u.Query()
			f, address := newFlaky(t, q.Get("endpoint"))
			bucket = f
			q.Set("endpoint", address)
			u.RawQuery = q.Encode()
			o.Storage[i] = u.String()
		}
	}
	server := harness.Serve(t, o)
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 9))
	var chains []*chain
	for i := range 4 {
		thread := fmt.Sprint("t", i)
		chains = append(chains, &chain{thread: thread, remote: remote(t, server.URL, server.Token(harness.Grant{Thread: thread}))})
	}
	bucket.faults.Store(true)
	var all sync.WaitGroup
	var stop atomic.Bool
	for i, c := range chains {
		all.Go(func() {
			for n := uint64(0); !stop.Load(); n++ {
				w := stack.Workspace{"same": noise(n, 70_000), "own": noise(n*10+uint64(i), 200_000), "text": fmt.Sprint(i, n)}
				if err := c.grow(t.Context(), w); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	failed := func() (n int64) {
		for _, c := range chains {
			n += c.tries.Load()
		}
		return n
	}
	cuts, began := 0, time.Now()
	// A machine that is busy takes longer until something happens.
	for ; time.Since(began) < d || time.Since(began) < time.Minute && (failed() < 3 || bucket.struck.Load() < 5); cuts++ {
		time.Sleep(time.Duration(20+rng.IntN(700)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			const end = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid != pg_backend_pid()`
			if _, err := admin.Exec(end); err != nil {
				t.Fatal(err)
			}
			continue
		}
		database.cut(true)
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		database.cut(false)
	}
	stop.Store(true)
	all.Wait()
	bucket.faults.Store(false)
	if t.Failed() {
		for line := range strings.Lines(server.Log()) {
			if strings.Contains(line, `"level":"ERROR"`) {
				t.Log(line)
			}
		}
	}
	total, tries := 0, failed()
	for _, c := range chains {
		c.check(t)
		total += len(c.ids)
	}
	if out, err := server.Operate("fsck"); err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
	t.Logf("%d checkpoints, %d requests failed in %d restarts of the database and %d faults of the object store", total, tries, cuts, bucket.struck.Load())
	if total < 4 || tries == 0 || bucket.struck.Load() == 0 {
		t.Error("too little happened to prove anything")
	}
}

// TestFullDisk fills the disk of a server: what needs room is refused as such, what
// is there can be read, nothing is damaged, and with room again all goes on.
func TestFullDisk(t *testing.T) {
	at := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	server := harness.Serve(t, harness.Options{Storage: []string{"--data", filepath.Join(at, "data")}})
	token := server.Token(harness.Grant{Thread: "t"})
	c := &chain{thread: "t", remote: remote(t, server.URL, token)}
	for i := range 3 {
		if err := c.grow(t.Context(), stack.Workspace{"a": noise(uint64(i), 300_000), "b": strings.Repeat("b", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, left := range []int64{1 << 20, 64 << 10, 0} {
		ballast := filepath.Join(at, "ballast")
		fill(t, at, ballast, left)
		refused := 0
		for i := range 20 { // until even small rows find no room
			w := stack.Workspace{"large": noise(uint64(100+i), 3<<20), "small": fmt.Sprint(left, i)}
			if i%2 == 1 {
				delete(w, "large")
				w["row"] = noise(uint64(i), 30_000)
			}
			status := c.once(t, server, token, w)
			switch status {
			case http.StatusCreated:
			case http.StatusServiceUnavailable, http.StatusInsufficientStorage:
				refused++
			default:
				t.Errorf("with %d bytes left: %d", left, status)
			}
		}
		if refused == 0 {
			t.Errorf("with %d bytes left nothing was refused", left)
		}
		// A sweep needs room too. It may fail, and does no harm.
		if _, err := server.Operate("gc"); err != nil {
			t.Logf("gc on a full disk: %.300v", err)
		}
		c.check(t)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if status := c.once(t, server, token, stack.Workspace{"again": noise(uint64(left), 400_000)}); status != http.StatusCreated {
			t.Errorf("with room again: %d", status)
		}
		c.check(t)
		if out, err := server.Operate("fsck"); err != nil {
			t.Errorf("fsck: %v\n%s", err, out)
		}
	}
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	c.check(t)
}

// fill leaves so many bytes on a disk.
func fill(t *testing.T, disk, ballast string, left int64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	if err := os.WriteFile(ballast, make([]byte, max(free-left, 0)), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// once sends and appends a checkpoint without trying again, and returns the first
// status that is no success, or that of the append.
func (c *chain) once(t *testing.T, s *harness.Server, token string, w stack.Workspace) int {
	t.Helper()
	root, objects := w.Objects()
	stream := frame.Append(nil, objects...)
	upload := fmt.Sprintf("u%x", rand.Uint64())
	a, err := s.Do(nil, http.MethodPost, "/api/threads/t/blobs?upload="+upload, token, "application/vnd.cairn.objects", stream)
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusOK {
		return a.Status
	}
	id := fmt.Sprintf("c%d-%x", len(c.ids), rand.Uint64())
	body := fmt.Sprintf(`{"id":%q,"root":%q,"upload":%q,"expected_head":%q,"always":true}`, id, root, upload, c.ids[len(c.ids)-1])
	a, err = s.Do(nil, http.MethodPost, "/api/threads/t/checkpoints", token, "application/json", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if a.Status == http.StatusCreated {
		c.ids, c.files = append(c.ids, id), append(c.files, w)
	}
	return a.Status
}

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnstate/cairn/tests/harness"
)

// gate stands before a server and keeps requests whose path ends with what is shut.
type gate struct {
	*httptest.Server
	mu      sync.Mutex
	suffix  string
	pass    int           // how many go through before
	held    chan struct{} // gets one for each request that is kept
	release chan struct{}
}

func newGate(t *testing.T, server string) *gate {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{held: make(chan struct{}, 1000), release: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		keep := g.suffix != "" && strings.HasSuffix(r.URL.Path, g.suffix)
		if keep && g.pass > 0 {
			keep = false
			g.pass--
		}
		g.mu.Unlock()
		if keep {
			g.held <- struct{}{}
			select {
			case <-g.release:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(g.release)
		g.Close()
	})
	return g
}

func (g *gate) shut(suffix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.suffix, g.pass = suffix, 0
}

// signalled starts the program, signals it when a request is kept, and returns what
// it did.
func (s *sandbox) signalled(g *gate, sig syscall.Signal, args ...string) result {
	s.Helper()
	cmd := s.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	select {
	case <-g.held:
	case <-time.After(time.Minute):
		s.Fatalf("%v asks for nothing: %s", args, &stderr)
	}
	if err := cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
	_ = cmd.Wait()
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestSignals ends captures and restores at each of their requests: they say how to
// go on, append and change nothing, leave no lease, and the next run succeeds.
func TestSignals(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	g := newGate(t, server.URL)
	s := newSandbox(t, server, "t")
	s.url = g.URL
	s.write(map[string]string{"f": "1", "large": strings.Repeat("large", 1<<20)})
	store := remote(t, server.URL, s.token)
	for i, suffix := range []string{"/threads/t", "/blobs", "/checkpoints"} {
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[i%2]
		g.shut(suffix)
		r := s.signalled(g, sig, "capture", "--root", s.dir)
		if g.shut(""); r.status != 1 || r.stdout != "" || !strings.Contains(r.stderr, "interrupted") || !strings.Contains(r.stderr, "run it again") {
			t.Errorf("a capture that %v ends at %s: %+v", sig, suffix, r)
		}
		if head, err := store.Head(t.Context(), "t"); head != "" || err != nil {
			t.Errorf("the head is %q (%v)", head, err)
		}
	}
	id := s.capture()
	lease, err := store.Acquire(t.Context(), "t")
	if err != nil {
		t.Fatalf("the lease after interrupted captures: %v", err)
	}
	if err := store.Release(t.Context(), lease.Writer); err != nil {
		t.Fatal(err)
	}
	want := s.files()
	b := newSandbox(t, server, "t")
	b.url = g.URL
	b.write(map[string]string{"f": "mine"})
	for _, suffix := range []string{"/threads/t", "/" + id, "/blobs/get"} {
		g.shut(suffix)
		r := b.signalled(g, syscall.SIGTERM, "restore", "--root", b.dir, "--yes")
		if g.shut(""); r.status != 1 || !strings.Contains(r.stderr, "interrupted") || !strings.Contains(r.stderr, "nothing was changed") {
			t.Errorf("a restore that ends at %s: %+v", suffix, r)
		}
		b.has(map[string]string{"f": "mine"})
	}
	b.want(0, "restore", "--root", b.dir, "--yes")
	b.has(want)
	b.want(0, "restore", "--root", b.dir, "--undo")
	b.has(map[string]string{"f": "mine"})
}

// TestWatchThroughSignals ends a watch in the middle of a capture. It goes on with
// that and saves what was written last; a second signal ends it at once.
func TestWatchThroughSignals(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	g := newGate(t, server.URL)
	s := newSandbox(t, server, "t")
	s.url = g.URL
	s.write(map[string]string{"f": "1"})
	g.shut("/blobs")
	cmd := s.command("watch", "--root", s.dir, "--every", "1h", "--grace", "1m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-g.held
	s.write(map[string]string{"g": "the last words"})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.shut("")
	g.release <- struct{}{}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the watch: %v", err)
	}
	b := newSandbox(t, server, "t")
	b.restore()
	b.has(map[string]string{"f": "1", "g": "the last words"})

	s.write(map[string]string{"h": "never saved"})
	g.shut("/blobs")
	cmd = s.command("watch", "--root", s.dir, "--every", "1h", "--grace", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-g.held
	for range 600 { // the first one may be at work when the second comes
		if cmd.Process.Signal(syscall.SIGTERM) != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil || bytes.Contains(state, []byte(") Z ")) {
			break
		}
	}
	ended, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	if !ok || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("after a second signal: %v", ended)
	}
	g.shut("")
	if got := len(s.ids()); got != 1 && got != 2 {
		t.Errorf("%d checkpoints", got)
	}
}

// watching starts a watch of a sandbox with one file, and waits for its first capture.
func (s *sandbox) watching(args ...string) (cmd *exec.Cmd, stderr *lockedBuffer) {
	s.Helper()
	s.write(map[string]string{"f": "1"})
	stderr = &lockedBuffer{}
	cmd = s.command(append([]string{"watch", "--root", s.dir}, args...)...)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	soon(s.T, "a first capture", func() bool { return strings.Contains(stderr.String(), "msg=captured") })
	return cmd, stderr
}

// TestWatchEndsWithWhatIsNotSaved ends a watch while the server is away.
func TestWatchEndsWithWhatIsNotSaved(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	cmd, stderr := s.watching("--every", "1h", "--grace", "500ms")
	server.Kill()
	s.write(map[string]string{"f": "2"})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 6 && code != 1 {
		t.Errorf("the watch ended with %d: %s", code, stderr)
	}
}

// TestWatchThroughARestart takes the server away for a while.
func TestWatchThroughARestart(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	g := newGate(t, server.URL)
	s := newSandbox(t, server, "t")
	s.url = g.URL
	cmd, stderr := s.watching("--every", "200ms", "--grace", "1m")
	server.Kill()
	s.write(map[string]string{"f": "2"})
	soon(t, "a failure", func() bool { return strings.Contains(stderr.String(), "capture failed") })
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	soon(t, "a capture after the restart", func() bool { return strings.Count(stderr.String(), "msg=captured") == 2 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the watch: %v: %s", err, stderr)
	}
	b := newSandbox(t, server, "t")
	b.restore()
	b.has(map[string]string{"f": "2"})
}

// lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOneAtATime captures and restores one directory by two processes.
func TestOneAtATime(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	g := newGate(t, server.URL)
	s := newSandbox(t, server, "t")
	s.token, s.url = server.Token(harness.Grant{Thread: "*"}), g.URL
	s.write(map[string]string{"f": "1"})
	s.capture()
	s.write(map[string]string{"f": "2"})
	other := *s
	other.home = t.TempDir() // another user's memory
	for _, c := range []struct {
		suffix string
		first  []string
		second []string
		who    *sandbox
		status int
	}{
		{"/blobs", []string{"capture"}, []string{"capture"}, s, 6},
		{"/blobs", []string{"capture"}, []string{"restore"}, s, 6},
		{"/blobs", []string{"capture"}, []string{"restore", "--yes"}, &other, 6},
		{"/blobs", []string{"capture"}, []string{"capture", "--onto", "head", "--thread", "u"}, s, 0},
		{"/blobs/get", []string{"restore"}, []string{"capture"}, s, 6},
		{"/blobs/get", []string{"restore"}, []string{"capture", "--thread", "u"}, &other, 6},
		{"/blobs/get", []string{"restore"}, []string{"restore"}, s, 6},
	} {
		g.shut("/threads/t" + c.suffix)
		if c.suffix == "/blobs/get" {
			g.mu.Lock()
			g.pass = 1 // the root, which says where the restore goes
			g.mu.Unlock()
		}
		cmd := s.command(append(c.first, "--root", s.dir)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-g.held
		if c.suffix == "/blobs/get" { // what others ask for is given
			g.shut("")
		}
		r := c.who.run(append(c.second, "--root", s.dir)...)
		if r.status != c.status || r.status == 6 && (!strings.Contains(r.stderr, "is at work in") || !strings.Contains(r.stderr, "try again")) {
			t.Errorf("%v in a %v: %+v", c.second, c.first, r)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		g.shut("")
		for len(g.held) > 0 {
			<-g.held
		}
	}
}

// terminal is the end of a terminal that a program does not see.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be had: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be had: %v", err)
	}
	return master, slave
}

// TestProgress shows how far work has come, on a terminal and nowhere else.
func TestProgress(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.write(map[string]string{"f": "1"})
	for _, c := range []struct {
		args []string
		verb string
	}{
		{[]string{"capture", "--json", "--root", s.dir}, "sent "},
		{[]string{"restore", "--json", "--root", filepath.Join(t.TempDir(), "new")}, "fetched "},
	} {
		master, slave := terminal(t)
		cmd := s.command(c.args...)
		var stdout bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, slave
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		shown, _ := io.ReadAll(master) // it ends with an error when nobody has the other end
		if !strings.Contains(string(shown), c.verb) || !strings.HasSuffix(string(shown), "\r\x1b[K") {
			t.Errorf("%v shows %q", c.args, shown)
		}
		result{stdout: stdout.String()}.document(t)
	}
	if r := s.want(0, "capture", "--root", s.dir, "--always"); r.stderr != "" {
		t.Errorf("without a terminal it shows %q", r.stderr)
	}
}

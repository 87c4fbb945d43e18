package harness

import (
	"bufio"
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/testkit"
)

// Org is the org that every server of this package has.
const Org = "acme"

// startWait bounds how long a server may take until it listens.
const startWait = 60 * time.Second

// logTail is how much of a server's log a failed test prints, in bytes.
const logTail = 4 << 10

// Options say how a server runs. The zero value keeps everything in one
// directory and answers plain HTTP.
type Options struct {
	TLS     bool     // --dev-tls
	Storage []string // the storage flags instead of --data DIR
	Args    []string // further flags of serve
	Env     []string // further variables, NAME=value
}

// Server is a running cairn program.
type Server struct {
	URL     string // of REST and Git
	Dir     string // a directory of the server's own
	KeyFile string // the private key of Org

	binary  string
	storage []string
	opts    Options
	key     crypto.Signer
	cmd     *exec.Cmd
	exited  chan struct{}
	log     logBuffer
}

// logBuffer collects what a program prints. It is safe for concurrent use.
type logBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

func (l *logBuffer) String() string {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.String()
}

// Serve starts a server with Org and stops it when the test ends. When the test
// failed, the server's log is printed.
func Serve(tb testing.TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(Binary(tb), tb.TempDir(), opts)
	if err != nil {
		tb.Fatalf("start cairn: %v", err)
	}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			log := s.Log()
			tb.Logf("the end of the server's log:\n%s", log[max(0, len(log)-logTail):])
		}
	})
	return s
}

// OnPostgresAndS3 returns options that keep metadata in a real PostgreSQL and
// bytes on a real S3 server. The test is skipped when SKIP names what is missing.
func OnPostgresAndS3(tb testing.TB, opts Options) Options {
	tb.Helper()
	database := testkit.Postgres(tb)
	s3 := testkit.S3(tb)
	bucket := url.URL{Scheme: "s3", Host: s3.Bucket, RawQuery: url.Values{
		"endpoint": {s3.Endpoint}, "region": {s3.Region}, "path_style": {"true"},
	}.Encode()}
	opts.Storage = []string{"--database-url", database, "--bucket", bucket.String(), "--cache-dir", tb.TempDir()}
	opts.Env = append(opts.Env, "AWS_ACCESS_KEY_ID="+s3.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3.SecretKey)
	return opts
}

// Start makes Org and starts a server that keeps its files below dir.
func Start(binary, dir string, opts Options) (*Server, error) {
	s := &Server{Dir: dir, KeyFile: filepath.Join(dir, "acme.key"), binary: binary, storage: opts.Storage, opts: opts}
	if s.storage == nil {
		s.storage = []string{"--data", filepath.Join(dir, "data")}
	}
	if _, err := s.Operate("org", "create", Org, "--key-out", s.KeyFile); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.key, err = auth.ParsePrivateKey(pem); err != nil {
		return nil, err
	}
	return s, s.start("127.0.0.1:0")
}

// Beside starts another process on the storage of a server that uses a database
// and a bucket, and stops it when the test ends.
func (s *Server) Beside(tb testing.TB) *Server {
	tb.Helper()
	n := &Server{Dir: s.Dir, KeyFile: s.KeyFile, binary: s.binary, storage: slices.Clone(s.storage), opts: s.opts, key: s.key}
	for i, flag := range n.storage {
		if flag == "--cache-dir" {
			n.storage[i+1] = tb.TempDir()
		}
	}
	if err := n.start("127.0.0.1:0"); err != nil {
		tb.Fatalf("start cairn: %v", err)
	}
	tb.Cleanup(n.Kill)
	return n
}

func (s *Server) environment() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.Dir, "TMPDIR=" + os.TempDir()}, s.opts.Env...)
}

// start runs the program until it says where it listens.
func (s *Server) start(listen string) error {
	args := append([]string{"serve", "--listen", listen}, s.storage...)
	if s.opts.TLS {
		args = append(args, "--dev-tls")
	}
	s.cmd = exec.Command(s.binary, append(args, s.opts.Args...)...)
	s.cmd.Env = s.environment()
	s.cmd.Stderr = &s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.exited = make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		out := bufio.NewReader(io.TeeReader(stdout, &s.log))
		line, _ := out.ReadString('\n')
		ready <- strings.TrimSpace(line)
		io.Copy(io.Discard, out)
		s.cmd.Wait()
		close(s.exited)
	}()
	select {
	case line := <-ready:
		address, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			<-s.exited
			return fmt.Errorf("serve ended before it listened: %s", s.Log())
		}
		s.URL = address
		return nil
	case <-time.After(startWait):
		s.Kill()
		return fmt.Errorf("serve does not listen: %s", s.Log())
	}
}

// Kill ends the program at once, as a crash does.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// Stop asks the program to end and returns its exit status.
func (s *Server) Stop() int {
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.exited
	return s.cmd.ProcessState.ExitCode()
}

// Restart starts the program again on the address that it had.
func (s *Server) Restart() error {
	u, err := url.Parse(s.URL)
	if err != nil {
		return err
	}
	return s.start(u.Host)
}

// Log is everything that the program printed.
func (s *Server) Log() string { return s.log.String() }

// PID is the process id of the running program.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Bundle is the file of trusted certificates for clients of a TLS server.
func (s *Server) Bundle() string {
	for i, flag := range s.storage {
		if flag == "--data" {
			return filepath.Join(s.storage[i+1], "tls", "bundle.pem")
		}
	}
	return ""
}

// Operate runs an operator command with the server's storage flags after it and
// returns its standard output. An error holds standard error.
func (s *Server) Operate(args ...string) (string, error) {
	return s.run(append(append([]string{}, args...), s.storage...), nil)
}

// Client runs a client command as Org, with its private key, and returns its
// standard output.
func (s *Server) Client(args ...string) (string, error) {
	return s.run(args, []string{"CAIRN_URL=" + s.URL, "CAIRN_ORG=" + Org, "CAIRN_PRIVATE_KEY=" + s.KeyFile, "SSL_CERT_FILE=" + s.Bundle()})
}

func (s *Server) run(args, env []string) (string, error) {
	cmd := exec.Command(s.binary, args...)
	cmd.Env = append(s.environment(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("cairn %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out), err
}

// Grant says what a token allows.
type Grant struct {
	Repo     string
	Thread   string       // of checkpoints; its scopes when Scopes is nil and there is no Repo
	Scopes   []auth.Scope // git:read and git:write when nil
	Policies policy.List
	TTL      time.Duration // one hour when zero
	Subject  string
	Issued   time.Time // now when zero
}

// Token mints a token of Org.
func (s *Server) Token(g Grant) string {
	if g.Scopes == nil && g.Repo == "" && g.Thread != "" {
		g.Scopes = []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite}
	}
	if g.Scopes == nil {
		g.Scopes = []auth.Scope{auth.GitRead, auth.GitWrite}
	}
	if g.TTL == 0 {
		g.TTL = time.Hour
	}
	if g.Issued.IsZero() {
		g.Issued = time.Now()
	}
	if g.Subject == "" {
		g.Subject = "test"
	}
	token, err := auth.Mint(s.key, "", auth.Claims{
		Org: Org, Subject: g.Subject, Repo: g.Repo, Thread: g.Thread, Scopes: g.Scopes, Policies: g.Policies,
		IssuedAt: g.Issued.Unix(), Expires: g.Issued.Add(g.TTL).Unix(),
	})
	if err != nil {
		panic(err) // the key was parsed and the claims are ours
	}
	return token
}

// Remote is the URL of a repository for stock git; suffix is "", "+ephemeral" or
// "+import".
func (s *Server) Remote(g Grant, suffix string) string {
	scheme, host, _ := strings.Cut(s.URL, "://")
	return scheme + "://t:" + s.Token(g) + "@" + host + "/" + g.Repo + suffix + ".git"
}

// errStatus is an answer that a helper of this package did not expect.
var errStatus = errors.New("unexpected status")

// Package testkit starts the real services that tests run against, tells which
// one is missing when it cannot, and gives random tests their seed.
package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// versityGW is the S3 server that tests run against.
const versityGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// S3Server is a running S3 server with one empty bucket.
type S3Server struct {
	Endpoint  string // http://127.0.0.1:PORT
	Region    string
	AccessKey string
	SecretKey string
	Bucket    string
}

var s3Buckets atomic.Int64

// S3 starts a real S3 server on a temporary directory and stops it when the test
// ends. Its program is the one named by CAIRN_TEST_VERSITYGW, or versitygw in
// PATH, or in .tools/bin of the repository, where it is built when missing. With
// "s3" in the variable SKIP a missing program skips the test instead.
func S3(tb testing.TB) S3Server {
	tb.Helper()
	program, err := findVersityGW()
	if errors.Is(err, fs.ErrNotExist) {
		if slices.Contains(strings.FieldsFunc(os.Getenv("SKIP"), func(r rune) bool { return r == ',' || r == ' ' }), "s3") {
			tb.Skipf("SKIP names s3 and there is no S3 server to test against: %v", err)
		}
		program, err = buildVersityGW(tb.Context())
	}
	if err != nil {
		tb.Fatalf("no S3 server to test against: %v (set CAIRN_TEST_VERSITYGW to a versitygw program, or SKIP=s3)", err)
	}
	s := S3Server{
		Region:    "us-east-1",
		AccessKey: "cairn-test",
		SecretKey: "cairn-test-secret",
		Bucket:    fmt.Sprintf("test-%d", s3Buckets.Add(1)),
	}
	// A directory below the root is a bucket.
	root := tb.TempDir()
	if err := os.Mkdir(filepath.Join(root, s.Bucket), 0o755); err != nil {
		tb.Fatal(err)
	}
	const tries = 5 // another process may take a port that was free
	for try := 1; ; try++ {
		s.Endpoint, err = startVersityGW(tb, program, root, s)
		if err == nil {
			return s
		}
		if try == tries {
			tb.Fatalf("start S3 server: %v", err)
		}
	}
}

// startVersityGW runs the server on a free port until the test ends and returns
// its endpoint once it answers.
func startVersityGW(tb testing.TB, program, root string, s S3Server) (endpoint string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", err
	}
	var output bytes.Buffer
	cmd := exec.Command(program, "--port", address, "--access", s.AccessKey, "--secret", s.SecretKey,
		"--region", s.Region, "--quiet", "posix", root)
	cmd.Env = []string{"HOME=" + root}
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	tb.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	endpoint = "http://" + address
	deadline := time.Now().Add(30 * time.Second)
	for {
		if resp, err := http.Get(endpoint); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return endpoint, nil
		}
		select {
		case <-exited:
			return "", fmt.Errorf("%s ended: %s", program, output.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s does not answer on %s", program, address)
		}
	}
}

// findVersityGW returns the path of the program, or an error that matches
// fs.ErrNotExist when there is none.
func findVersityGW() (string, error) {
	if program := os.Getenv("CAIRN_TEST_VERSITYGW"); program != "" {
		if _, err := os.Stat(program); err != nil {
			return "", fmt.Errorf("CAIRN_TEST_VERSITYGW: %w", err)
		}
		return program, nil
	}
	if program, err := exec.LookPath("versitygw"); err == nil {
		return program, nil
	}
	dir, err := toolsDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "versitygw")
	_, err = os.Stat(program)
	return program, err
}

// buildVersityGW installs the program into the tools directory, unless another
// process has done so meanwhile, and returns its path.
func buildVersityGW(ctx context.Context) (string, error) {
	dir, err := toolsDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "versitygw.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and unlock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %q: %w", lock.Name(), err)
	}
	program := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	cmd := exec.CommandContext(ctx, "go", "install", versityGW)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w: %s", versityGW, err, out)
	}
	return program, nil
}

// toolsDir is .tools/bin in the directory of go.mod.
func toolsDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".tools", "bin"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find go.mod: no directory above the working directory has one")
		}
		dir = parent
	}
}

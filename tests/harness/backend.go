package harness

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Backend serves the bare repositories of one directory with git http-backend:
// the oracle of the differential tests and the peer of the measurements.
type Backend struct {
	URL string // repositories are at URL/NAME

	server *http.Server
}

// StartBackend serves root on a free loopback port.
func StartBackend(root string) (*Backend, error) {
	exec, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	host := &cgi.Handler{
		Path: exec, Args: []string{"http-backend"}, Dir: root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "GIT_CONFIG_NOSYSTEM=1", "REMOTE_USER=test",
			"GIT_CONFIG_COUNT=4",
			"GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=true",
			"GIT_CONFIG_KEY_2=http.receivepack", "GIT_CONFIG_VALUE_2=true",
			"GIT_CONFIG_KEY_3=safe.directory", "GIT_CONFIG_VALUE_3=*",
		},
		InheritEnv: []string{"PATH"},
		Stderr:     io.Discard,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Backend{URL: "http://" + listener.Addr().String(), server: &http.Server{Handler: whole(host)}}
	go b.server.Serve(listener)
	return b, nil
}

// whole gives CGI programs the length of a body that came in chunks, which the
// interface cannot express otherwise.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 {
			next.ServeHTTP(w, r)
			return
		}
		f, err := os.CreateTemp("", "cairn-body-")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer f.Close()
		os.Remove(f.Name())
		n, err := io.Copy(f, r.Body)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = f, n, nil
		next.ServeHTTP(w, r)
	})
}

// Close ends the server.
func (b *Backend) Close() error { return b.server.Close() }

// ServeBackend is StartBackend for the time of a test.
func ServeBackend(tb testing.TB, root string) *Backend {
	tb.Helper()
	b, err := StartBackend(root)
	if err != nil {
		tb.Fatalf("start git http-backend: %v", err)
	}
	tb.Cleanup(func() { b.Close() })
	return b
}

// Tool returns the path of a client program that tests/deps.sh installs: a path
// below .tools. When it is missing, the test is skipped if SKIP names word or
// "clients", and fails otherwise.
func Tool(tb testing.TB, word, path string) string {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	full := filepath.Join(root, ".tools", path)
	if _, err := os.Stat(full); err == nil {
		return full
	}
	reason := fmt.Sprintf("%s is not there", filepath.Join(".tools", path))
	for _, skip := range strings.FieldsFunc(os.Getenv("SKIP"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if skip == word || skip == "clients" {
			tb.Skipf("SKIP names %s and %s", skip, reason)
		}
	}
	tb.Fatalf("%s: run tests/deps.sh, or set SKIP=%s", reason, word)
	return ""
}

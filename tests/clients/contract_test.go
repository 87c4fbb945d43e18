package clients_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// outcome is a line that a client's program prints.
type outcome struct {
	Case  string // "" in the line that counts the cases of Method
	Error string // why it failed

	Method       string
	Works, Fails int
}

// TestPublishedTypeScript calls every method of the published TypeScript client,
// and compares the methods that it has with those called.
func TestPublishedTypeScript(t *testing.T) {
	modules := harness.Tool(t, "node", "node/node_modules")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	contract(t, exec.Command("node", filepath.Join(dir, "contract.mjs")))
}

// TestPublishedPython is TestPublishedTypeScript for the published Python client.
func TestPublishedPython(t *testing.T) {
	program, err := filepath.Abs("python/published.py")
	if err != nil {
		t.Fatal(err)
	}
	contract(t, exec.Command(harness.Tool(t, "python", "venv/bin/python"), "-B", program))
}

// contract runs a client's program against a server that may follow an upstream
// on loopback, and makes a subtest of each of its cases.
func contract(t *testing.T, program *exec.Cmd) {
	t.Helper()
	host := upstream(t)
	s := harness.Serve(t, harness.Options{TLS: true, Args: []string{"--allow-host", host, "--upstream-plain", host}})
	limited := harness.Serve(t, harness.Options{Args: []string{"--rate-limit", "1"}})
	small := narrow(t)
	rsaKey, edKey := keys(t)
	ca := filepath.Join(filepath.Dir(s.Bundle()), "ca.pem")
	program.Dir = t.TempDir()
	program.Env = slices.Concat(harness.GitEnv(program.Dir), published(t, s), []string{
		"LIMITED_API_BASE_URL=" + limited.URL, "LIMITED_PRIVATE_KEY=" + privateKey(t, limited),
		"NARROW_API_BASE_URL=" + small.URL, "NARROW_PRIVATE_KEY=" + privateKey(t, small),
		"FAULTY_URL=" + faulty(t).URL,
		"RSA_PRIVATE_KEY=" + register(t, s, rsaKey), "ED25519_PRIVATE_KEY=" + register(t, s, edKey),
		"UPSTREAM_HOST=" + host,
		"SSL_CERT_FILE=" + ca, "GIT_SSL_CAINFO=" + ca, // alone, because every process reads it
	})
	methods, works, fails := 0, 0, 0
	for line := range strings.Lines(output(t, program)) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if o.Method != "" {
			methods, works, fails = methods+1, works+o.Works, fails+o.Fails
			continue
		}
		t.Run(o.Case, func(t *testing.T) {
			if o.Error != "" {
				t.Error(o.Error)
			}
		})
	}
	t.Logf("%d methods, %d successes, %d failures", methods, works, fails)
	if methods == 0 {
		t.Error("no method was called")
	}
}

// keys makes keys of the kinds that no server makes for an org.
func keys(t *testing.T) (*rsa.PrivateKey, ed25519.PrivateKey) {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return rsaKey, edKey
}

// register makes a key one of the org's, without a kid, and returns it as PEM.
func register(t *testing.T, s *harness.Server, key crypto.Signer) string {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Operate("org", "key", "add", harness.Org, "--public-key", file); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// upstream serves the repository team/app with a branch trunk, never answers for
// team/silent, and returns the host.
func upstream(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	g := harness.NewGit(t)
	bare := filepath.Join(root, "team", "app.git")
	g.Run("init", "-q", "--bare", "--initial-branch=trunk", bare)
	g.In(bare).Input("commit refs/heads/trunk\ncommitter T <t@example.com> 1700000000 +0000\ndata 5\nbegin\nM 100644 inline a\ndata 2\na\n\n", "fast-import", "--quiet")
	base, err := url.Parse(harness.ServeBackend(t, root).URL)
	if err != nil {
		t.Fatal(err)
	}
	backend := httputil.NewSingleHostReverseProxy(base)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/team/silent") {
			<-r.Context().Done()
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return strings.TrimPrefix(front.URL, "http://")
}

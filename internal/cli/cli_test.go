package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

// terminal runs command lines in an environment of its own.
type terminal struct {
	t    *testing.T
	vars map[string]string
	now  func() time.Time
}

func newTerminal(t *testing.T, vars ...string) *terminal {
	term := &terminal{t: t, vars: map[string]string{}, now: time.Now}
	return term.with(vars...)
}

// with returns a terminal with further variables; an empty value unsets one.
func (m *terminal) with(vars ...string) *terminal {
	all := map[string]string{}
	for k, v := range m.vars {
		all[k] = v
	}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	return &terminal{t: m.t, vars: all, now: m.now}
}

func (m *terminal) env(stdout, stderr io.Writer) Env {
	return Env{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		Getenv: func(name string) string { return m.vars[name] }, ReadFile: os.ReadFile, Now: m.now,
	}
}

// run runs one command line.
func (m *terminal) run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(m.t.Context(), args, m.env(&out, &errs))
	return code, out.String(), errs.String()
}

// must runs a command line that succeeds, and returns what it printed.
func (m *terminal) must(args ...string) string {
	m.t.Helper()
	code, out, errs := m.run(args...)
	if code != exitDone || errs != "" {
		m.t.Fatalf("cairn %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// document runs a command line and decodes its one JSON document.
func (m *terminal) document(v any, args ...string) {
	m.t.Helper()
	decode(m.t, m.must(append(args, "--json")...), v)
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one JSON document: %s", text)
	}
}

// refused runs a command line that fails with a code and one line that holds text,
// and nothing on standard output.
func (m *terminal) refused(want int, text string, args ...string) {
	m.t.Helper()
	code, out, errs := m.run(args...)
	line := strings.HasPrefix(errs, "cairn: ") && strings.Count(errs, "\n") == 1
	if code != want || !strings.Contains(errs, text) || !line || out != "" {
		m.t.Errorf("cairn %s: exit code %d, want %d and a line with %q\n%s%s", strings.Join(args, " "), code, want, text, out, errs)
	}
}

// serve runs a server until the test ends, and returns its URL and how to end it
// earlier, which returns the exit code and what it printed.
func (m *terminal) serve(args ...string) (url string, stop func() (int, string)) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		code := Main(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), m.env(write, &errs))
		write.Close()
		ended <- code
	}()
	out := bufio.NewReader(read)
	first, err := out.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if err != nil || !ok {
		cancel()
		m.t.Fatalf("serve printed %q (%v), ended with %d: %s", first, err, <-ended, errs.String())
	}
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(out)
		rest <- string(b)
	}()
	stopped := false
	stop = func() (int, string) {
		cancel()
		stopped = true
		return <-ended, <-rest
	}
	m.t.Cleanup(func() {
		if !stopped {
			stop()
		}
	})
	return url, stop
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything else"), 1},
		{&service.Error{Code: service.AlreadyExists}, 1},
		{&service.Error{Code: service.Internal}, 1},
		{usagef("wrong"), 2},
		{fmt.Errorf("load: %w", &config.UsageError{Setting: "data", Reason: "missing"}), 2},
		{&service.Error{Code: service.Invalid}, 2},
		{&service.Error{Code: service.Stale}, 3},
		{&service.Error{Code: service.NotFound}, 4},
		{&service.Error{Code: service.RepositoryMissing}, 4},
		{&service.Error{Code: service.Denied}, 5},
		{&service.Error{Code: service.ScopeMissing}, 5},
		{&service.Error{Code: "token_expired"}, 5},
		{&service.Error{Code: service.Limited}, 6},
		{&service.Error{Code: service.Unavailable}, 6},
		{fmt.Errorf("open: %w", meta.ErrUnavailable), 6},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("exit code of %v is %d, want %d", tc.err, got, tc.want)
		}
	}
}

// TestEveryCommandRefuses gives every command what it does not know.
func TestEveryCommandRefuses(t *testing.T) {
	m := newTerminal(t)
	commands := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			path := strings.Fields(sub.CommandPath())[1:]
			m.refused(2, "--bogus", append(slices.Clone(path), "--bogus")...)
			if sub.Name() != "dev" {
				m.refused(2, "", append(slices.Clone(path), "a", "b", "c", "d")...)
			}
			commands++
			walk(sub)
		}
	}
	walk(newRoot(m.env(io.Discard, io.Discard)))
	if commands < 20 {
		t.Errorf("walked %d commands", commands)
	}
	m.refused(2, "bogus", "bogus")
	m.refused(2, "--bogus", "--bogus")
	m.refused(2, "needs a command", "org")
	m.refused(2, "needs a command", "org", "key")
	m.refused(2, "needs a command", "repo")
	m.refused(2, "a command to run follows --", "dev", "false")
	if out := m.must(); !strings.Contains(out, "Exit codes: 0 done") {
		t.Errorf("without a command it prints %q", out)
	}
}

func TestMissingInput(t *testing.T) {
	m := newTerminal(t)
	key := filepath.Join(t.TempDir(), "k")
	m.must("org", "create", "acme", "--key-out", key, "--data", filepath.Join(t.TempDir(), "d"))
	signer := m.with("CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+key)
	notKey := filepath.Join(t.TempDir(), "not-a-key")
	if err := os.WriteFile(notKey, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}

	m.refused(2, "usage: cairn org create NAME", "org", "create")
	m.refused(2, "--key-out", "org", "create", "x")
	m.refused(2, "--key-out", "org", "create", "x", "--key-out", "a", "--public-key", "b")
	m.refused(2, "--data", "org", "list")
	m.refused(2, "--data", "serve")
	m.refused(2, "--data", "fsck")
	m.refused(2, "--org", "fsck", "--repo", "r")
	m.refused(2, "--max-ttl", "org", "limit", "x")
	m.refused(2, "--org", "token", "revoke")
	m.refused(2, "--org", "token")
	m.refused(2, "--key", "token", "--org", "acme")
	m.refused(2, "private key file", "token", "--org", "acme", "--key", "missing")
	m.refused(2, "private key", "token", "--org", "acme", "--key", notKey)
	m.refused(2, "--repo", "url")
	m.refused(2, "--org", "repo", "list")
	m.with("CAIRN_TOKEN_FILE=missing").refused(2, "CAIRN_TOKEN_FILE", "repo", "list")
	for _, bad := range []string{"ftp://h", "h", "http://u:hunter2@h", "http://h?x=1"} {
		signer.with("CAIRN_URL="+bad).refused(2, "CAIRN_URL", "repo", "list")
	}
	signer.refused(2, "without --repo", "token")
	signer.refused(2, "without --thread", "token", "--repo", "r", "--scope", "checkpoint:read")
	signer.refused(2, "not known", "token", "--repo", "r", "--scope", "git:all")
	signer.refused(2, "--long-lived", "token", "--repo", "r", "--ttl", "61m")
	signer.refused(2, "one second", "token", "--repo", "r", "--ttl", "1ms")
	signer.refused(2, "--ref-policy", "token", "--repo", "r", "--ref-policy", "main")
	signer.refused(2, "--ephemeral or --import", "url", "--repo", "r", "--ephemeral", "--import")
	signer.refused(2, "--confine", "url", "--repo", "r", "--format", "json")
	signer.refused(2, "dot segment", "url", "--repo", "../r")
	signer.refused(2, "plain name", "url", "--repo", "r+ephemeral")
	for _, bad := range []string{"refs/heads/x", "*", "a b", "a..b", "-x/", "a\nb"} {
		signer.refused(2, "short branch name", "url", "--repo", "r", "--confine", bad)
	}
	signer.refused(2, "40 lowercase", "url", "--repo", "r", "--confine", "s", "--sha", "abc")
	signer.refused(2, "env, sh or json", "url", "--repo", "r", "--confine", "s", "--format", "yaml")
	signer.refused(2, "decides", "url", "--repo", "r", "--confine", "s", "--scope", "git:read")
	signer.refused(2, "--rule or --clear", "repo", "protect", "r", "--clear", "--rule", "main=no-push")
	signer.refused(2, "PATTERN=op,op", "repo", "protect", "r", "--rule", "main")
}

// TestSecretsAreNotRepeated gives secrets where they are wrong.
func TestSecretsAreNotRepeated(t *testing.T) {
	m := newTerminal(t, "CAIRN_ORG=acme", "CAIRN_URL=http://127.0.0.1:1")
	for _, term := range []*terminal{
		m.with("CAIRN_PRIVATE_KEY=MIGHAgEAMBMhunter2"),
		m.with("CAIRN_PRIVATE_KEY=-----BEGIN PRIVATE KEY-----\\nhunter2\\n-----END PRIVATE KEY-----"),
		m.with("CAIRN_TOKEN_FILE=/hunter2/token"),
		m.with("CAIRN_TOKEN=eyJhbGciOiJFUzI1NiJ9.hunter2.hunter2"),
		m.with("CAIRN_URL=http://u:hunter2@h"),
		m.with("CAIRN_URL=", "CAIRN_DATABASE_URL=mysql://u:hunter2@h/d", "CAIRN_DATA="+t.TempDir()),
		m.with("CAIRN_URL=", "CAIRN_DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/d", "CAIRN_DATA="+t.TempDir()),
	} {
		if code, out, errs := term.run("repo", "list"); code == 0 || errs == "" || strings.Contains(out+errs, "hunter2") {
			t.Errorf("%v: exit code %d\n%s%s", term.vars, code, out, errs)
		}
	}
}

func TestOrgs(t *testing.T) {
	dir := t.TempDir()
	data, key := filepath.Join(dir, "data"), filepath.Join(dir, "keys", "acme.key")
	m := newTerminal(t)
	m.refused(4, "no Cairn data", "org", "list", "--data", data)
	if fileExists(data) {
		t.Error("a look at a directory made it")
	}
	if out := m.must("org", "create", "acme", "--key-out", key, "--data", data); out != "created org acme\n" {
		t.Errorf("org create prints %q", out)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", info, err)
	}
	m = m.with("CAIRN_DATA=" + data)
	m.refused(2, "not overwritten", "org", "create", "other", "--key-out", key)
	unused := filepath.Join(dir, "unused")
	m.refused(1, "exists already", "org", "create", "acme", "--key-out", unused)
	if fileExists(unused) {
		t.Error("a key stays of an org that was not made")
	}
	m.refused(2, "org name", "org", "create", "a b", "--key-out", unused)
	m.refused(2, "cannot be used", "org", "create", "x", "--public-key", "cli_test.go")
	m.refused(2, "cannot read", "org", "create", "x", "--public-key", "missing")

	var created struct {
		Name      string `json:"name"`
		CreatedAt string `json:"created_at"`
		KeyFile   string `json:"key_file"`
	}
	m.document(&created, "org", "create", "beta", "--public-key", key, "--kid", "k1")
	if created.Name != "beta" || created.CreatedAt == "" || created.KeyFile != "" {
		t.Errorf("org create --json: %+v", created)
	}
	m.must("org", "limit", "beta", "--max-ttl", "24h")
	var list struct {
		Orgs []struct {
			Name      string `json:"name"`
			CreatedAt string `json:"created_at"`
			MaxTTL    int64  `json:"max_ttl_seconds"`
		} `json:"orgs"`
	}
	m.document(&list, "org", "list")
	if len(list.Orgs) != 2 || list.Orgs[0].Name != "acme" || list.Orgs[1].Name != "beta" || list.Orgs[0].MaxTTL != 0 || list.Orgs[1].MaxTTL != 86400 {
		t.Errorf("org list --json: %+v", list)
	}

	var added struct {
		Fingerprint string `json:"fingerprint"`
		KID         string `json:"kid"`
		KeyFile     string `json:"key_file"`
	}
	m.document(&added, "org", "key", "add", "beta", "--key-out", filepath.Join(dir, "next.key"), "--kid", "k2")
	var keys struct {
		Keys []struct {
			Fingerprint string `json:"fingerprint"`
			KID         string `json:"kid"`
			PublicKey   string `json:"public_key"`
			CreatedAt   string `json:"created_at"`
		} `json:"keys"`
	}
	m.document(&keys, "org", "key", "list", "beta")
	if len(keys.Keys) != 2 || keys.Keys[1].Fingerprint != added.Fingerprint || keys.Keys[1].KID != "k2" || !strings.Contains(keys.Keys[1].PublicKey, "PUBLIC KEY") {
		t.Errorf("org key list --json: %+v", keys)
	}
	m.refused(4, "no key", "org", "key", "remove", "beta", "k3")
	m.refused(1, "kid already", "org", "key", "add", "beta", "--key-out", unused, "--kid", "k2")
	m.must("org", "key", "remove", "beta", "k1")
	m.must("org", "key", "remove", "beta", added.Fingerprint)
	if out := m.must("org", "key", "list", "beta"); out != "" {
		t.Errorf("after removing both keys there is %q", out)
	}
	m.must("org", "delete", "beta")
	m.refused(4, `no org "beta"`, "org", "delete", "beta")
	m.refused(4, `no org "beta"`, "org", "key", "list", "beta")
	m.refused(4, `no org "beta"`, "token", "revoke", "--org", "beta")
}

func TestTokenClaims(t *testing.T) {
	private, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := auth.ParsePublicKey("", private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	org := auth.OrgKeys{Name: "acme", Keys: []auth.Key{public}}
	escaped := strings.ReplaceAll(string(private), "\n", `\n`)
	m := newTerminal(t, "PIERRE_ORG=acme", "PIERRE_PRIVATE_KEY="+escaped)
	claims := func(args ...string) *auth.Principal {
		t.Helper()
		p, err := verifier.Verify(strings.TrimSpace(m.must(append([]string{"token"}, args...)...)), org, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := claims("--repo", "r"); p.Expires-p.IssuedAt != 900 || !slices.Equal(p.Scopes, []auth.Scope{auth.GitRead}) || p.Repo != "r" || p.Subject == "" {
		t.Errorf("the default token: %+v", p.Claims)
	}
	p := claims("--repo", "r", "--thread", "*", "--session", "s", "--sub", "me", "--scope", "git:write,checkpoint:write", "--scope", "session:write",
		"--ttl", "48h", "--long-lived", "--ref-policy", "main=no-push", "--ref-policy", "*=")
	if p.Expires-p.IssuedAt != 48*3600 || p.Thread != "*" || p.Session != "s" || p.Subject != "me" || len(p.Scopes) != 3 || len(p.Policies) != 2 {
		t.Errorf("a full token: %+v", p.Claims)
	}
	var doc struct {
		Token     string `json:"token"`
		ExpiresAt string `json:"expires_at"`
	}
	m.document(&doc, "token", "--repo", "r", "--ttl", "1h")
	if at, err := time.Parse(time.RFC3339, doc.ExpiresAt); err != nil || at.Location() != time.UTC || time.Until(at) > time.Hour {
		t.Errorf("token --json: %+v, %v", doc, err)
	}
	m.with("CAIRN_ORG=other").must("token", "--repo", "r")
	m.with("CAIRN_PRIVATE_KEY=missing").refused(2, "private key file", "token", "--repo", "r")
}

func TestVersion(t *testing.T) {
	m := newTerminal(t)
	if out := m.must("--version"); out != "cairn "+version+"\n" {
		t.Errorf("--version prints %q", out)
	}
	m.refused(exitUsage, `unknown command "nothing"`, "help", "nothing")
	if out := m.must("help", "org", "key"); !strings.Contains(out, "cairn org key [command]") {
		t.Errorf("help org key prints %q", out)
	}
	if out := m.must("version"); out != "cairn "+version+"\n" {
		t.Errorf("version prints %q", out)
	}
	var doc struct {
		Version string `json:"version"`
	}
	m.document(&doc, "version")
	if doc.Version != version {
		t.Errorf("version --json: %+v", doc)
	}
}

func TestNoServer(t *testing.T) {
	private := filepath.Join(t.TempDir(), "k")
	m := newTerminal(t, "CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+private)
	m.must("org", "create", "acme", "--key-out", private, "--data", filepath.Join(t.TempDir(), "d"))

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	m.refused(1, "address already in use", "serve", "--data", t.TempDir(), "--listen", address)
	m.refused(1, "address already in use", "dev", "--data", t.TempDir(), "--listen", address)
	free.Close()
	m.with("CAIRN_URL=http://"+address).refused(6, "is the server running?", "repo", "list")

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	m.with("CAIRN_URL="+other.URL).refused(4, "not as a Cairn server does", "repo", "delete", "r")
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer broken.Close()
	m.with("CAIRN_URL="+broken.URL).refused(6, "502", "repo", "list")
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }))
	defer wrong.Close()
	m.with("CAIRN_URL="+wrong.URL).refused(1, "not what a Cairn server sends", "repo", "list")
	moved := httptest.NewServer(http.RedirectHandler(wrong.URL, http.StatusFound))
	defer moved.Close()
	m.with("CAIRN_URL="+moved.URL).refused(1, "302", "repo", "list")
	unknown := httptest.NewUnstartedServer(http.NotFoundHandler())
	unknown.Config.ErrorLog = log.New(io.Discard, "", 0)
	unknown.StartTLS()
	defer unknown.Close()
	m.with("CAIRN_URL="+unknown.URL).refused(1, "SSL_CERT_FILE", "repo", "list")
}

func TestUnusableDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := newTerminal(t)
	m.refused(1, "data directory", "serve", "--data", file)
	m.refused(1, "directory", "dev", "--data", filepath.Join(file, "d"))
	m.refused(1, "data directory", "org", "create", "x", "--key-out", filepath.Join(t.TempDir(), "k"), "--data", file)
}

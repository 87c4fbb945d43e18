package clients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// node runs a program of tests/clients/node in a fresh directory and returns its
// standard output.
func node(t *testing.T, program string, env []string, args ...string) string {
	t.Helper()
	modules := harness.Tool(t, "node", "node/node_modules")
	source, err := os.ReadFile(filepath.Join("node", program))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, program)
	if err := os.WriteFile(file, source, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", append([]string{file}, args...)...)
	cmd.Dir, cmd.Env = dir, append(harness.GitEnv(dir), env...)
	return output(t, cmd)
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args[:2], " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// privateKey is the private key of a server's org, as PEM.
func privateKey(t *testing.T, s *harness.Server) string {
	t.Helper()
	key, err := os.ReadFile(s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(key)
}

// published is the environment of the published SDK: a server with TLS, and both
// base URLs.
func published(t *testing.T, s *harness.Server) []string {
	t.Helper()
	_, host, _ := strings.Cut(s.URL, "://")
	return []string{
		"PIERRE_PRIVATE_KEY=" + privateKey(t, s), "API_BASE_URL=" + s.URL, "STORAGE_BASE_URL=" + host,
		"NODE_EXTRA_CA_CERTS=" + s.Bundle(), "GIT_SSL_CAINFO=" + s.Bundle(),
	}
}

// fillers is the number of ephemeral branches among which the guide's branch is
// found again.
const fillers = 1000

func TestPublishedSDKResumesASession(t *testing.T) {
	s := harness.Serve(t, harness.Options{TLS: true})
	env := published(t, s)
	const repo = "team/project"
	if err := s.CreateRepo(repo); err != nil {
		t.Fatal(err)
	}
	client := s.HTTP()
	commit := func(c harness.Commit) string {
		t.Helper()
		c.Repo = repo
		a, err := s.Commit(client, c)
		if err != nil || a.Status != http.StatusCreated {
			t.Fatalf("commit: %v, %d %s", err, a.Status, a.Body)
		}
		return a.Text("commit", "commit_sha")
	}
	main := commit(harness.Commit{Branch: "main", Files: map[string]string{"src/auth.ts": "// begin\n"}})
	// One push makes half of the others, another one the rest, so that the session's branch is in the middle by name and by
	// age.
	g := harness.NewGit(t, "GIT_SSL_CAINFO="+s.Bundle())
	g.Run("clone", "-q", s.Remote(harness.Grant{Repo: repo}, ""), "work")
	fill := func(prefix string) {
		t.Helper()
		var names strings.Builder
		for i := range fillers / 2 {
			fmt.Fprintf(&names, "create refs/heads/%s/%04d %s\n", prefix, i, main)
		}
		g.In("work").Input(names.String(), "update-ref", "--stdin")
		g.In("work").Run("push", "-q", s.Remote(harness.Grant{Repo: repo}, "+ephemeral"), "refs/heads/"+prefix+"/*:refs/heads/"+prefix+"/*")
	}
	fill("a")
	tip := commit(harness.Commit{Branch: "sessions/s-42", Base: "main", Ephemeral: true, Files: map[string]string{"src/auth.ts": "// session\n"}})
	fill("z")

	out := node(t, "resume.mjs", append(env, "REPOSITORY_ID="+repo, "SESSION_ID=s-42", "TIP_SHA="+tip, fmt.Sprintf("FILLERS=%d", fillers)))
	var result struct{ Tip string }
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got := g.In("work").Run("ls-remote", s.Remote(harness.Grant{Repo: repo}, "+ephemeral"), "refs/heads/sessions/s-42"); !strings.HasPrefix(got, result.Tip) {
		t.Errorf("the session branch is %q, want %s", got, result.Tip)
	}
	if strings.Contains(s.Log(), "eyJ") {
		t.Error("the server's log holds a token")
	}
}

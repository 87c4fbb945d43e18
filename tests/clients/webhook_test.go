package clients_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// delivery is one request to an endpoint.
type delivery struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// TestPublishedValidators gives real deliveries to the validators of the
// published TypeScript and Python clients.
func TestPublishedValidators(t *testing.T) {
	got := make(chan delivery, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		d := delivery{Headers: map[string]string{}, Body: string(body)}
		for name, values := range req.Header {
			d.Headers[strings.ToLower(name)] = values[0]
		}
		got <- d
	}))
	defer receiver.Close()
	s := harness.Serve(t, harness.Options{Args: []string{"--allow-host", "127.0.0.1"}})
	token := s.Token(harness.Grant{Repo: "org", Scopes: []auth.Scope{auth.RepoWrite}})
	a, err := s.Do(nil, "POST", "/api/v1/webhooks", token, "application/json", fmt.Appendf(nil, `{"url":%q,"events":["*"]}`, receiver.URL))
	var hook api.Webhook
	if err != nil || a.Status != http.StatusCreated || json.Unmarshal(a.Body, &hook) != nil {
		t.Fatalf("create webhook: %v, %d %s", err, a.Status, a.Body)
	}
	if err := s.CreateRepo("r"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if a, err := s.Commit(nil, harness.Commit{Repo: "r", Branch: "main", Files: map[string]string{"ü": fmt.Sprint(i)}}); err != nil || a.Status != http.StatusCreated {
			t.Fatalf("commit: %v, %d %s", err, a.Status, a.Body)
		}
	}
	if a, err := s.Do(nil, "POST", "/api/webhooks/"+hook.ID+"/ping", token, "", nil); err != nil || a.JSON("delivered") != true {
		t.Fatalf("ping: %v, %s", err, a.Body)
	}
	given := map[string]any{"secret": hook.Secret}
	var list []delivery
	for len(list) < 3 {
		select {
		case d := <-got:
			list = append(list, d)
		case <-time.After(30 * time.Second):
			t.Fatalf("%d deliveries", len(list))
		}
	}
	given["deliveries"] = list
	input, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("typescript", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(harness.Tool(t, "node", "node/node_modules"), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile("node/webhook.mjs")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "webhook.mjs")
		if err := os.WriteFile(file, source, 0o644); err != nil {
			t.Fatal(err)
		}
		validate(t, input, "node", file)
	})
	t.Run("python", func(t *testing.T) {
		validate(t, input, harness.Tool(t, "python", "venv/bin/python"), "python/webhook.py")
	})
}

func validate(t *testing.T, input []byte, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = harness.GitEnv(t.TempDir())
	cmd.Stdin = strings.NewReader(string(input))
	if out := output(t, cmd); out != "3" {
		t.Errorf("the validator says %q", out)
	}
}

package hostile_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// TestHostileSecrets lets clients put tokens wherever one can go wrong with
// them, while the server logs all it can: no log line, answer, metric or file has
// any of them afterwards.
func TestHostileSecrets(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--log-level", "debug"}})
	createPublic(t, s, "r", commit(publicTree.id()))
	tokens := []string{
		tokenOf(s, "r"), tokenOf(s, "absent"), tokenOf(s, "org"),
		s.Token(harness.Grant{Repo: "r", Policies: confinement}),
	}
	tokens = append(tokens, tokens[0]+"x", tokens[0][:len(tokens[0])-4])
	var said strings.Builder
	ask := func(method, path, credential string, header map[string]string, body string) {
		a := request(t, s, method, path, credential, header, strings.NewReader(body))
		if !strings.Contains(path+body, "eyJ") {
			fmt.Fprintf(&said, "%v %s\n", a.Header, a.Body) // else it repeats what it was asked
		}
	}
	for i, token := range tokens {
		agents := map[string]string{"User-Agent": "x/" + token, "Code-Storage-Agent": "y/" + token, "Idempotency-Key": strconv.Itoa(i) + "-" + token[:200]}
		work := harness.Commit{Repo: "r", Branch: "agents", Base: "main", Message: "Save", Files: map[string]string{"a": strconv.Itoa(i)}}
		if a := request(t, s, http.MethodPost, "/api/repos/r/commit-pack", tokens[0], agents, bytes.NewReader(work.Body())); a.Status != http.StatusCreated {
			t.Errorf("a commit by a client that names itself %.40q: %d %s", token, a.Status, a.Body)
		}
		for _, path := range []string{"/r.git/info/refs?service=git-upload-pack", "/api/repos/r/branches", "/api/v1/repos/files", "/nothing", "/metrics"} {
			ask("GET", path, token, nil, "")
			ask("GET", path, "", map[string]string{"Authorization": "Bearer " + token}, "")
			ask("GET", path, "", map[string]string{"Authorization": token}, "")
			ask("GET", path, "", map[string]string{"Authorization": "Basic " + token}, "")
			ask("GET", path, "", map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(token))}, "")
			ask("GET", path, "", map[string]string{"Authorization": "Digest username=\"" + token + "\""}, "")
			sep := map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]
			ask("GET", path+sep+"access_token="+token+"&ref="+token+"&name="+token, token, nil, "")
			ask("GET", path, token, map[string]string{
				"User-Agent": "x " + token, "Code-Storage-Agent": token, "Referer": "http://t:" + token + "@host/", "Git-Protocol": "version=2:" + token,
				"X-Forwarded-For": token, "Content-Encoding": token, "Range": token, "If-None-Match": token, "Content-Type": token, "Idempotency-Key": token,
			}, "")
		}
		ask("GET", "/"+token+".git/info/refs?service=git-upload-pack", tokens[0], nil, "")
		ask("GET", "/r.git/info/refs?service="+token, tokens[0], nil, "")
		ask("GET", "/t:"+token+"@host/r.git/info/refs?service=git-upload-pack", tokens[0], nil, "")
		ask("GET", "/api/repos/"+token, tokens[0], nil, "")
		ask(http.MethodPost, "/r.git/git-upload-pack", tokens[0], map[string]string{"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2"}, fetchV2("want "+token))
		ask(http.MethodPost, "/r.git/git-upload-pack", tokens[0], map[string]string{"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2"}, pkt("agent="+token)+fetchV2("want-ref "+token))
		ask(http.MethodPost, "/r.git/git-receive-pack", tokens[0], map[string]string{"Content-Type": "application/x-git-receive-pack-request"}, string(pushBody(nil, "report-status agent="+token, command(zero, zero, "refs/heads/"+token))))
		ask(http.MethodPost, "/api/repos/r/commit-pack", tokens[0], map[string]string{"Content-Type": "application/x-ndjson"}, `{"metadata":{"target_branch":"`+token+`"`)
		for _, provider := range []string{"code", "github"} {
			body, err := json.Marshal(map[string]any{"base_repo": map[string]any{"provider": provider, "owner": harness.Org, "name": "r", "operation": "fork", "upstream_host": token, "auth": map[string]string{"token": token}}})
			if err != nil {
				t.Fatal(err)
			}
			ask(http.MethodPost, "/api/repos", tokenOf(s, "r"), nil, string(body))
			ask(http.MethodPost, "/api/repos", token, nil, string(body[:len(body)-3]))
		}
		for path, body := range map[string]string{
			"/api/repos/r/merge":                 `{"source_ref":"TOKEN","target_branch":"TOKEN","strategy":"merge"}`,
			"/api/repos/r/tags":                  `{"name":"v1","ref":"TOKEN"}`,
			"/api/repos/r/notes":                 `{"object_ref":"TOKEN","action":"add","note":"TOKEN"}`,
			"/api/repos/r/grep":                  `{"query":{"pattern":"(TOKEN"},"ref":"TOKEN"}`,
			"/api/repos/r/branches/create":       `{"target_branch":"b","base_ref":"TOKEN"}`,
			"/api/repos/r/restore-commit":        `{"metadata":{"target_branch":"main","base_ref":"TOKEN","author":{"name":"A","email":"a@b"}}}`,
			"/api/repos/r/diff-commit":           `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"A","email":"a@b"}}}` + "\n" + `{"diff_chunk":{"data":"TOKEN","eof":true}}`,
			"/api/repos/r/pull-upstream":         `{"ref":"TOKEN"}`,
			"/api/repos/r/git-credentials/TOKEN": `{"password":""}`,
			"/api/webhooks":                      `{"url":"https://t:TOKEN@example.com/TOKEN","events":["TOKEN"]}`,
			"/api/webhooks/TOKEN/ping":           `{}`,
			"/api/org/signing-keys":              `{"public_key":"TOKEN","title":"TOKEN"}`,
		} {
			ask(http.MethodPost, strings.ReplaceAll(path, "TOKEN", token), tokens[i%3], nil, strings.ReplaceAll(body, "TOKEN", token))
		}
		g := harness.NewGit(t)
		host := strings.TrimPrefix(s.URL, "http://")
		for _, remote := range []string{"http://t:" + token + "@" + host + "/r.git", "http://" + token + "@" + host + "/r.git", "http://" + token + ":x@" + host + "/r.git"} {
			g.Try("ls-remote", remote)
			g.Try("-c", "http.extraHeader=Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("t:"+token)), "clone", "-q", "http://"+host+"/r.git", "x")
		}
	}
	ask("GET", "/metrics", "", nil, "")
	s.Stop()

	secrets := map[string]bool{}
	for _, token := range tokens {
		parts := strings.Split(token, ".")
		encoded := base64.StdEncoding.EncodeToString([]byte("t:" + token))
		for _, secret := range []string{token, parts[2], encoded, encoded[len(encoded)/2:], base64.RawURLEncoding.EncodeToString([]byte("t:" + token)), url.QueryEscape("t:" + token), parts[1], parts[1][:60]} {
			secrets[secret] = true
		}
	}
	search := func(where, text string) {
		for secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has a secret: %.300q", where, text[max(0, i-200):])
				return
			}
		}
	}
	search("an answer", said.String())
	for line := range strings.Lines(s.Log()) {
		search("the log", line)
	}
	if !strings.Contains(s.Log(), "DEBUG") {
		t.Error("the server did not log at level debug")
	}
	err := filepath.WalkDir(filepath.Join(s.Dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		search(d.Name(), string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

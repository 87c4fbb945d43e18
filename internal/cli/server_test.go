package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/server"
)

// operated returns a terminal of a client of a running server and one of its
// operator, with the org "acme".
func operated(t *testing.T, args ...string) (client, op *terminal, stop func() (int, string)) {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "acme.key")
	op = newTerminal(t, "CAIRN_DATA="+filepath.Join(dir, "data"), "CAIRN_ORG=acme")
	op.must("org", "create", "acme", "--key-out", key)
	base, stop := op.serve(args...)
	return newTerminal(t, "CAIRN_URL="+base, "CAIRN_ORG=acme", "CAIRN_PRIVATE_KEY="+key), op, stop
}

func TestServe(t *testing.T) {
	client, _, stop := operated(t)
	resp, err := http.Get(client.vars["CAIRN_URL"] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz answered %s", resp.Status)
	}
	if code, rest := stop(); code != exitDone || rest != "" {
		t.Errorf("at its end serve printed %q more and returned %d", rest, code)
	}
	client.refused(6, "is the server running?", "repo", "list")
}

func TestServeFromAFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newTerminal(t)
	write("data: " + dir + "/data\npublic-url: https://git.example.com/\n")
	base, _ := m.serve("--config", file)
	if !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Errorf("listening on %q", base)
	}
	m.must("org", "create", "acme", "--key-out", dir+"/key", "--config", file)
	req, err := http.NewRequest(http.MethodPost, base+"/api/repos", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(m.must("token", "--org", "acme", "--key", dir+"/key", "--repo", "r", "--scope", "repo:write")))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"https://git.example.com/r.git"`) {
		t.Errorf("a new repository is answered with %s (%v)", body, err)
	}
	write("data: d\nlisten_on: x\n")
	m.refused(2, "listen_on", "serve", "--config", file)
	m.refused(2, "cannot read", "serve", "--config", file+".missing")
	m.refused(2, "--bucket", "serve", "--database-url", "postgres://h/d")
	for _, half := range [][]string{
		{"--tls-cert", "c"}, {"--tls-host", "h"}, {"--cache-dir", "c"}, {"--listen", "x"}, {"--admin-listen", "x"},
		{"--log-level", "loud"}, {"--trusted-proxy", "x"}, {"--public-url", "x"}, {"--memory-cache", "0"},
	} {
		m.refused(2, strings.TrimPrefix(half[0], "--"), append([]string{"serve", "--data", dir + "/unused"}, half...)...)
	}
	if fileExists(dir + "/unused") {
		t.Error("a refused configuration made its directory")
	}
}

// TestRepositories runs the same commands at a server and on its storage.
func TestRepositories(t *testing.T) {
	client, op, _ := operated(t)
	type row struct {
		Name          string `json:"repo_name"`
		ID            string `json:"repo_id"`
		DefaultBranch string `json:"default_branch"`
		CreatedAt     string `json:"created_at"`
	}
	for name, m := range map[string]*terminal{"remote": client, "direct": op} {
		t.Run(name, func(t *testing.T) {
			m := m.with()
			m.t = t
			var made struct {
				Name string `json:"repo_name"`
				ID   string `json:"repo_id"`
			}
			m.document(&made, "repo", "create", name+"/r", "--default-branch", "trunk")
			if made.Name != name+"/r" || !strings.HasPrefix(made.ID, "repo_") {
				t.Errorf("repo create --json: %+v", made)
			}
			m.refused(1, "exists", "repo", "create", name+"/r")
			m.refused(2, "cannot be used", "repo", "create", "a b")
			if out := m.must("repo", "fork", name+"/r", name+"/f"); out != "created repository "+name+"/f\n" {
				t.Errorf("repo fork prints %q", out)
			}
			m.refused(4, "", "repo", "fork", "absent", name+"/g")
			m.refused(4, "", "repo", "fork", name+"/r", name+"/g", "--sha", strings.Repeat("a", 40))
			var list struct {
				Repos []row `json:"repos"`
			}
			m.document(&list, "repo", "list", "--q", strings.ToUpper(name))
			if len(list.Repos) != 2 || list.Repos[1].ID != made.ID || list.Repos[1].DefaultBranch != "trunk" || list.Repos[0].CreatedAt == "" {
				t.Errorf("repo list --json: %+v", list)
			}
			if out := m.must("repo", "list", "--q", name+"/r"); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, name+"/r\ttrunk\t") {
				t.Errorf("repo list prints %q", out)
			}
			if out := m.must("repo", "protect", name+"/r", "--rule", "main=no-force-push,no-delete", "--rule", "refs/tags/*=no-update"); out != "refs/heads/main\tno-force-push,no-delete\nrefs/tags/*\tno-update\n" {
				t.Errorf("repo protect prints %q", out)
			}
			m.refused(2, "not known", "repo", "protect", name+"/r", "--rule", "main=no-fly")
			var rules struct {
				Protections []protection `json:"protections"`
			}
			m.document(&rules, "repo", "protect", name+"/r")
			if len(rules.Protections) != 2 {
				t.Errorf("after a refused change the rules are %+v", rules)
			}
			if out := m.must("repo", "protect", name+"/r", "--clear"); out != "" {
				t.Errorf("after --clear there is %q", out)
			}
			m.refused(4, "", "repo", "protect", "absent")
			m.must("repo", "delete", name+"/r")
			m.refused(1, "deleted", "repo", "delete", name+"/r")
			m.refused(1, "deleted", "repo", "create", name+"/r")
			m.refused(4, "", "repo", "delete", "absent")
			op.refused(1, "not deleted", "repo", "purge", name+"/f")
			op.must("repo", "purge", name+"/r")
			op.refused(4, "", "repo", "purge", name+"/r")
			m.must("repo", "create", name+"/r")
		})
	}
	client.with("CAIRN_ORG=nobody").refused(5, "", "repo", "list")
	op.with("CAIRN_ORG=nobody").refused(4, `"nobody"`, "repo", "list")
	op.with("CAIRN_ORG=").refused(2, "--org", "repo", "list")
	client.refused(2, "--data", "repo", "purge", "r")
}

func TestGivenToken(t *testing.T) {
	client, _, _ := operated(t)
	client.must("repo", "create", "r")
	read := strings.TrimSpace(client.must("token", "--repo", "r"))
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(read + "\n")
	base := "CAIRN_URL=" + client.vars["CAIRN_URL"]
	for name, m := range map[string]*terminal{"CAIRN_TOKEN": newTerminal(t, base, "CAIRN_TOKEN="+read), "CAIRN_TOKEN_FILE": newTerminal(t, base, "CAIRN_TOKEN_FILE="+file)} {
		m.must("repo", "protect", "r")
		m.refused(5, "", "repo", "delete", "r")
		m.refused(4, "", "repo", "protect", "other")
		if out, want := m.must("url", "--repo", "r", "--ephemeral"), "://t:"+read+"@"; !strings.Contains(out, want) || !strings.HasSuffix(out, "/r+ephemeral.git\n") {
			t.Errorf("%s: url prints %q", name, out)
		}
		m.refused(2, "--scope needs the org's private key", "url", "--repo", "r", "--scope", "git:write")
		m.refused(2, "--org", "url", "--repo", "r", "--confine", "s")
	}
	m := newTerminal(t, base, "CAIRN_TOKEN_FILE="+file)
	write(strings.TrimSpace(client.must("token", "--repo", "r", "--scope", "repo:write,git:read")))
	m.must("repo", "delete", "r") // the file is read anew
	write("")
	m.refused(2, "CAIRN_TOKEN_FILE", "repo", "list")
	newTerminal(t, base, "CAIRN_TOKEN=nonsense").refused(2, "token", "url", "--repo", "r")
	newTerminal(t, base, "CAIRN_TOKEN=nonsense").refused(5, "", "repo", "list")
}

func TestRotationAndRevocation(t *testing.T) {
	client, op, _ := operated(t)
	client.must("repo", "create", "r")
	next := filepath.Join(t.TempDir(), "next.key")
	renewed := client.with("CAIRN_PRIVATE_KEY=" + next)
	op.must("org", "key", "add", "acme", "--key-out", next, "--kid", "next")
	client.must("repo", "list")
	renewed.must("repo", "list", "--kid", "next")
	var keys struct {
		Keys []map[string]string `json:"keys"`
	}
	op.document(&keys, "org", "key", "list", "acme")
	op.must("org", "key", "remove", "acme", keys.Keys[0]["fingerprint"])
	client.refused(5, "", "repo", "list")
	renewed.must("repo", "list", "--kid", "next")

	given := func() *terminal {
		return newTerminal(t, "CAIRN_URL="+client.vars["CAIRN_URL"], "CAIRN_TOKEN="+strings.TrimSpace(renewed.must("token", "--repo", "r", "--sub", "agent", "--kid", "next")))
	}
	old := given()
	old.must("repo", "protect", "r")
	op.refused(2, "--before", "token", "revoke", "--org", "acme", "--before", "yesterday")
	op.refused(2, "in the future", "token", "revoke", "--org", "acme", "--before", time.Now().Add(time.Hour).Format(time.RFC3339))
	op.must("token", "revoke", "--org", "acme", "--sub", "somebody-else")
	op.must("token", "revoke", "--org", "acme", "--before", time.Now().Add(-time.Hour).Format(time.RFC3339))
	old.must("repo", "protect", "r")
	op.must("token", "revoke", "--org", "acme", "--sub", "agent")
	old.refused(5, "revoked", "repo", "protect", "r")
	given().must("repo", "protect", "r") // minted after the revocation
	fresh := newTerminal(t, "CAIRN_URL="+client.vars["CAIRN_URL"], "CAIRN_TOKEN="+strings.TrimSpace(renewed.must("token", "--repo", "r", "--kid", "next")))
	fresh.must("repo", "protect", "r")
	op.must("org", "limit", "acme", "--max-ttl", "10m")
	fresh.refused(5, "", "repo", "protect", "r")
	op.must("org", "limit", "acme", "--max-ttl", "0")
	fresh.must("repo", "protect", "r")
	renewed.must("repo", "list", "--kid", "next")
}

func TestURL(t *testing.T) {
	client, _, _ := operated(t)
	client.must("repo", "create", "team/r")
	base := strings.TrimPrefix(client.vars["CAIRN_URL"], "http://")
	for _, tc := range []struct {
		flag, path string
	}{{"--ephemeral=false", "/team/r.git"}, {"--ephemeral", "/team/r+ephemeral.git"}, {"--import", "/team/r+import.git"}} {
		u, err := url.Parse(strings.TrimSpace(client.must("url", "--repo", "team/r", tc.flag)))
		if err != nil || u.Host != base || u.Path != tc.path || u.User.Username() != "t" {
			t.Errorf("url %s prints %v (%v)", tc.flag, u, err)
		}
	}
	sha := strings.Repeat("0123456789", 4)
	branch := "sessions/o'$(false)&1"
	args := []string{"url", "--repo", "team/r", "--confine", branch, "--sha", sha, "--ttl", "5m", "--format"}
	var doc map[string]string
	decode(t, client.must(append(args, "json")...), &doc)
	if len(doc) != 5 || doc["SESSION_BRANCH"] != branch || doc["BASE_SHA"] != sha || !strings.HasSuffix(doc["READ_URL"], "/team/r.git") || !strings.HasSuffix(doc["WRITE_URL"], "/team/r+ephemeral.git") {
		t.Errorf("the JSON form is %v", doc)
	}
	if at, err := time.Parse(time.RFC3339, doc["EXPIRES_AT"]); err != nil || time.Until(at) > 5*time.Minute {
		t.Errorf("it expires at %q (%v)", doc["EXPIRES_AT"], err)
	}
	shell := client.must(append(args, "sh")...)
	if _, lines, _ := strings.Cut(shell, "BASE_SHA='"+sha+"'\n"); lines != `git clone --depth 1 --single-branch --no-checkout "$READ_URL" work
cd work
git fetch origin "$BASE_SHA"
git remote set-url --push origin "$WRITE_URL"
git switch -c "$SESSION_BRANCH" "$BASE_SHA"
` {
		t.Errorf("the git lines are\n%s", lines)
	}
	for name, text := range map[string]string{"sh": shell[:strings.Index(shell, "git clone")], "env": client.must(append(args, "env")...)} {
		out, err := exec.Command("sh", "-c", text+`printf '%s\n' "$READ_URL" "$WRITE_URL" "$SESSION_BRANCH" "$BASE_SHA"`).CombinedOutput()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) != 5 || !strings.HasSuffix(lines[0], "/team/r.git") || !strings.HasSuffix(lines[1], "/team/r+ephemeral.git") || lines[2] != branch || lines[3] != sha {
			t.Errorf("as %s a shell reads %q (%v)", name, out, err)
		}
	}
	plain := client.must("url", "--repo", "team/r", "--confine", "sessions/1")
	if strings.ContainsAny(plain, `'"`) || strings.Contains(plain, "BASE_SHA") || strings.Count(plain, "\n") != 3 {
		t.Errorf("the default form is %q", plain)
	}
}

func TestFsckAndDoctor(t *testing.T) {
	client, op, _ := operated(t)
	client.must("repo", "create", "r")
	if out := op.must("fsck"); out != "1 repositories checked: all there and whole\n" {
		t.Errorf("fsck prints %q", out)
	}
	var doc struct {
		Repositories int       `json:"repositories"`
		Orgs         int       `json:"checkpoint_orgs"`
		OK           bool      `json:"ok"`
		Findings     []fsckRow `json:"findings"`
	}
	op.document(&doc, "fsck", "--org", "acme", "--repo", "r")
	if doc.Repositories != 1 || !doc.OK || doc.Findings == nil {
		t.Errorf("fsck --json: %+v", doc)
	}
	op.refused(4, "", "fsck", "--org", "acme", "--repo", "absent")
	op.refused(4, "", "fsck", "--org", "absent")
	op.refused(4, "no Cairn data", "fsck", "--data", filepath.Join(t.TempDir(), "absent"))

	var checks struct {
		Checks []finding `json:"checks"`
	}
	both := op.with("CAIRN_URL=" + client.vars["CAIRN_URL"])
	both.document(&checks, "doctor")
	names := ""
	for _, c := range checks.Checks {
		names += c.Check + " "
		if !c.OK || c.Detail == "" {
			t.Errorf("doctor finds %+v", c)
		}
	}
	if names != "git database bytes server clock " {
		t.Errorf("doctor checks %s", names)
	}
	late := both.with()
	late.now = func() time.Time { return time.Now().Add(5 * time.Minute) }
	for name, m := range map[string]*terminal{"clock": late, "server": op.with("CAIRN_URL=http://127.0.0.1:1"), "storage": newTerminal(t, "CAIRN_DATA=doctor.go")} {
		code, out, errs := m.run("doctor")
		if code != exitFailed || !strings.Contains(out, "FAIL  "+name) || !strings.Contains(errs, "1 of") {
			t.Errorf("doctor with a wrong %s: exit code %d\n%s%s", name, code, out, errs)
		}
		code, out, _ = m.run("doctor", "--json")
		if decode(t, out, &checks); code != exitFailed {
			t.Errorf("doctor --json with a wrong %s: exit code %d", name, code)
		}
	}
}

// TestDamageIsFound removes what a repository stands on.
func TestDamageIsFound(t *testing.T) {
	client, op, stop := operated(t, "--inline-pack", "0")
	client.must("repo", "create", "r")
	work := t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "m")
	git("push", "-q", strings.TrimSpace(client.must("url", "--repo", "r", "--scope", "git:write")), "main")
	op.must("fsck")
	stop()
	if err := os.RemoveAll(filepath.Join(op.vars["CAIRN_DATA"], "blobs")); err != nil {
		t.Fatal(err)
	}
	code, out, errs := op.run("fsck")
	if code != exitFailed || !strings.Contains(out, "acme/r: ") || !strings.Contains(errs, "damage was found") {
		t.Errorf("fsck of a damaged repository: exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = op.run("fsck", "--json")
	var doc map[string]any
	if decode(t, out, &doc); code != exitFailed || doc["ok"] != false {
		t.Errorf("fsck --json of a damaged repository: exit code %d\n%s", code, out)
	}
}

func TestDev(t *testing.T) {
	data := filepath.Join(t.TempDir(), "dev's data")
	m := newTerminal(t)
	dev := func(command ...string) (int, string, string) {
		return m.run(append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--"}, command...)...)
	}
	code, out, errs := dev("sh", "-c", `echo "$CAIRN_URL $CAIRN_TLS_URL $CAIRN_ORG"; cat "$CAIRN_PRIVATE_KEY" "$CAIRN_CA_BUNDLE" >/dev/null; exit 7`)
	parts := strings.Fields(out)
	if code != 7 || errs != "" || len(parts) != 3 || parts[2] != "local" || strings.TrimPrefix(parts[1], "https") != strings.TrimPrefix(parts[0], "http") {
		t.Errorf("dev with a command: exit code %d, %q, %q", code, out, errs)
	}
	key, err := os.ReadFile(filepath.Join(data, "local.key"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := dev("false"); code != exitFailed || errs != "" {
		t.Errorf("dev -- false: exit code %d, %q", code, errs)
	}
	if code, _, errs := dev("sh", "-c", "kill -9 $$"); code != exitFailed || errs != "" {
		t.Errorf("dev with a killed command: exit code %d, %q", code, errs)
	}
	if code, _, errs := dev("no-such-program"); code != exitUsage || !strings.Contains(errs, "no-such-program") {
		t.Errorf("dev with no program: exit code %d, %q", code, errs)
	}
	if again, err := os.ReadFile(filepath.Join(data, "local.key")); err != nil || !bytes.Equal(again, key) {
		t.Errorf("a second start made another key (%v)", err)
	}
	for name, mode := range map[string]os.FileMode{"env": 0o600, "local.key": 0o600, "tls/ca.pem": 0o644, "tls/bundle.pem": 0o644} {
		if info, err := os.Stat(filepath.Join(data, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if out, err := exec.Command("git", "-C", filepath.Dir(data), "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	if out, err := exec.Command("git", "-C", filepath.Dir(data), "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a repository around the directory would take up %s (%v)", out, err)
	}
}

// TestDevEnvironment sources DATA/env, as a person does.
func TestDevEnvironment(t *testing.T) {
	data := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan int, 1)
	m := newTerminal(t)
	go func() {
		ended <- Main(ctx, []string{"dev", "--data", data, "--listen", "127.0.0.1:0"}, m.env(write, io.Discard))
		write.Close()
	}()
	var printed [128]byte
	n, err := io.ReadAtLeast(read, printed[:], 20)
	if err != nil || !bytes.HasPrefix(printed[:n], []byte("listening on http://127.0.0.1:")) {
		t.Errorf("dev printed %q (%v)", printed[:n], err)
	}
	go io.Copy(io.Discard, read)
	out, err := exec.Command("sh", "-c", `. "$1"/env; env`, "sh", data).Output()
	if err != nil {
		t.Fatal(err)
	}
	var vars []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(line, "CAIRN_") {
			vars = append(vars, line)
		}
	}
	person := newTerminal(t, vars...)
	person.must("repo", "create", "r")
	person.must("token", "revoke", "--org", "local")
	person.must("fsck")
	cancel()
	if code := <-ended; code != exitDone {
		t.Errorf("dev ended with %d", code)
	}
}

// TestReloadSignal sends SIGHUP to a server with another certificate in its files.
func TestReloadSignal(t *testing.T) {
	dir := t.TempDir()
	files := func() []byte {
		d, err := server.NewDevTLS(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The authority's own certificate and key serve as well as any.
		for from, to := range map[string]string{d.CAFile: "cert.pem", filepath.Join(filepath.Dir(d.CAFile), "ca-key.pem"): "key.pem"} {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	shown := func(address string) []byte {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Raw
	}
	first := files()
	_, op, _ := operated(t)
	base, _ := op.serve("--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	address, ok := strings.CutPrefix(base, "https://")
	if !ok || !bytes.Equal(shown(address), first) {
		t.Fatalf("%s shows another certificate", base)
	}
	second := files()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if bytes.Equal(shown(address), second) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the new certificate is not shown")
}

func TestPrintedJSONIsPlain(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, map[string]string{"url": "https://h/?a&b<c>"}); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) || !strings.Contains(b.String(), "a&b<c>") || !strings.HasSuffix(b.String(), "}\n") {
		t.Errorf("printed %s", b.String())
	}
}

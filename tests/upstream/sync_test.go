package upstream

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestImportAndPull(t *testing.T) {
	w := newWorld(t, harness.Options{})
	first := w.commit("trunk", "", "README.md", "hello")
	second := w.commit("trunk", first, "src/a.txt", "a")
	side := w.commit("feature/x", first, "x.txt", "x")
	w.origin.Run("tag", "v1", first)
	w.origin.Run("-c", "user.name=T", "-c", "user.email=t@e", "tag", "-a", "-m", "two", "v2", second)
	tag := strings.TrimSpace(w.origin.Run("rev-parse", "v2"))
	w.origin.Run("update-ref", "refs/pull/1/head", side)
	w.follow("m")
	w.synced("m", "refs/heads/feature/x "+side, "refs/heads/trunk "+second, "refs/tags/v1 "+first, "refs/tags/v2 "+tag)
	if state, _, branch := w.status("m"); state != "synced" || branch != "trunk" {
		t.Errorf("%s, default branch %s", state, branch)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git := harness.NewGit(t)
	git.Run("clone", "-q", w.cairn.Remote(harness.Grant{Repo: "m"}, ""), clone)
	git.In(clone).Fsck()
	if got, want := git.In(clone).Run("rev-list", "--objects", "--all", "--no-object-names"), w.origin.Run("rev-list", "--objects", "--branches", "--tags", "--no-object-names"); lines(got) != lines(want) {
		t.Errorf("%d objects here, %d there", lines(got), lines(want))
	}

	// An ephemeral branch is nobody else's business.
	eph := harness.Commit{Repo: "m", Branch: "session", Base: "trunk", Ephemeral: true, Files: map[string]string{"s": "1"}}
	if a, err := w.cairn.Commit(w.client, eph); err != nil || a.Status != http.StatusCreated {
		t.Fatalf("%v %d %s", err, a.Status, a.Body)
	}
	third := w.commit("trunk", second, "src/a.txt", "b")
	w.origin.Run("tag", "v3", third)
	w.pull("m")
	w.synced("m", "refs/heads/feature/x "+side, "refs/heads/trunk "+third, "refs/tags/v1 "+first, "refs/tags/v2 "+tag, "refs/tags/v3 "+third)

	// Forced and deleted upstream, untouched here: they follow.
	forced := w.commit("trunk", first, "src/c.txt", "c")
	w.origin.Run("branch", "-q", "-D", "feature/x")
	w.origin.Run("tag", "-f", "v1", second)
	w.origin.Run("tag", "-d", "v3")
	w.pull("m")
	w.synced("m", "refs/heads/trunk "+forced, "refs/tags/v1 "+second, "refs/tags/v2 "+tag)
	out, err := git.Try("ls-remote", w.cairn.Remote(harness.Grant{Repo: "m"}, "+ephemeral"))
	if err != nil || !strings.Contains(out, "refs/heads/session") {
		t.Errorf("ephemeral branch: %s, %v", out, err)
	}

	// The default branch follows the upstream's.
	w.origin.Run("branch", "main", forced)
	w.origin.Run("symbolic-ref", "HEAD", "refs/heads/main")
	w.pull("m")
	w.until("the default branch main", func() bool { _, _, b := w.status("m"); return b == "main" })

	w.do(http.StatusOK, "DELETE", harness.RepoPath("m")+"/base", "m", "")
	w.do(http.StatusOK, "DELETE", harness.RepoPath("m")+"/base", "m", "")
	w.do(http.StatusBadRequest, "POST", harness.RepoPath("m")+"/pull-upstream", "m", "")
	w.synced("m", "refs/heads/main "+forced, "refs/heads/trunk "+forced, "refs/tags/v1 "+second, "refs/tags/v2 "+tag)
}

func lines(s string) int { return strings.Count(s, "\n") }

// TestLocalWorkIsKept: what was done here is never overwritten, and follows again
// when it can.
func TestLocalWorkIsKept(t *testing.T) {
	w := newWorld(t, harness.Options{})
	base := w.commit("trunk", "", "a", "1")
	w.commit("ahead", base, "b", "1")
	w.commit("gone", base, "c", "1")
	w.follow("m")
	w.until("import", func() bool { s, _, _ := w.status("m"); return s == "synced" })
	local := make(map[string]string)
	for _, branch := range []string{"trunk", "ahead", "gone", "own"} {
		a, err := w.cairn.Commit(w.client, harness.Commit{Repo: "m", Branch: branch, Base: "trunk", Files: map[string]string{"local": branch}})
		if err != nil || a.Status != http.StatusCreated {
			t.Fatalf("%v %d %s", err, a.Status, a.Body)
		}
		local[branch] = a.Text("commit", "commit_sha")
	}
	// trunk diverges, ahead takes what was done here, gone is deleted there.
	git := harness.NewGit(t)
	w.origin.Run("fetch", "-q", w.cairn.Remote(harness.Grant{Repo: "m"}, ""), "+refs/heads/ahead:refs/heads/ahead")
	theirs := w.commit("trunk", base, "a", "2")
	ahead := w.commit("ahead", local["ahead"], "b", "2")
	w.origin.Run("branch", "-q", "-D", "gone")
	w.pull("m")
	kept := []string{"refs/heads/ahead " + ahead, "refs/heads/gone " + local["gone"], "refs/heads/own " + local["own"], "refs/heads/trunk " + local["trunk"]}
	w.synced("m", kept...)

	// Back where the last sync left it, the branch follows.
	git.Run("init", "-q", filepath.Join(t.TempDir(), "w"))
	work := git.In(filepath.Join(t.TempDir(), "x"))
	git.Run("clone", "-q", w.cairn.Remote(harness.Grant{Repo: "m"}, ""), work.Dir)
	work.Run("push", "-q", "--force", "origin", base+":refs/heads/trunk")
	w.pull("m")
	kept[3] = "refs/heads/trunk " + theirs
	w.synced("m", kept...)
}

func TestCredentialWrongThenRight(t *testing.T) {
	w := newWorld(t, harness.Options{})
	tip := w.commit("trunk", "", "a", "1")
	const wrong, right = "wrong-hunter2", "right-swordfish"
	w.front(func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "robot" || password != right {
				rw.Header().Set("Www-Authenticate", "Basic")
				http.Error(rw, "no: "+password, http.StatusUnauthorized)
				return
			}
			pass.ServeHTTP(rw, r)
		})
	})
	w.follow("m")
	if reason := w.failed("m"); !strings.Contains(reason, "asks for a credential") {
		t.Errorf("without a credential: %q", reason)
	}
	a := w.do(http.StatusCreated, "POST", harness.RepoPath("m")+"/git-credentials", "m", `{"username":"robot","password":"`+wrong+`"}`)
	w.pull("m")
	w.until("a refused credential", func() bool { _, why, _ := w.status("m"); return strings.Contains(why, "refuses the credential") })
	w.do(http.StatusOK, "PUT", harness.RepoPath("m")+"/git-credentials/"+a.Text("id"), "m", `{"username":"robot","password":"`+right+`"}`)
	w.pull("m")
	w.synced("m", "refs/heads/trunk "+tip)
	if state, why, _ := w.status("m"); state != "synced" || why != "" {
		t.Errorf("%s %q", state, why)
	}
	// Neither password is anywhere: not in the log at debug level, not in a file.
	for _, secret := range []string{wrong, right, "cm9ib3Q6"} { // the last begins "robot:" in base64
		if strings.Contains(w.cairn.Log(), secret) {
			t.Errorf("the log holds %q", secret)
		}
		err := filepath.WalkDir(w.cairn.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // files come and go
			}
			data, err := os.ReadFile(path)
			if err == nil && bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s holds %q", path, secret)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.do(http.StatusOK, "DELETE", harness.RepoPath("m")+"/git-credentials/"+a.Text("id"), "m", "")
	w.pull("m")
	w.until("a missing credential", func() bool { _, why, _ := w.status("m"); return strings.Contains(why, "asks for a credential") })
	w.synced("m", "refs/heads/trunk "+tip)
}

func TestServerDownThenUp(t *testing.T) {
	w := newWorld(t, harness.Options{})
	tip := w.commit("trunk", "", "a", "1")
	w.front(always(hangUp))
	w.follow("m")
	if reason := w.failed("m"); !strings.Contains(reason, "cannot be reached") {
		t.Errorf("%q", reason)
	}
	a := w.do(http.StatusConflict, "GET", harness.RepoPath("m")+"/branches", "m", "")
	if !strings.Contains(a.Text("error"), "repository sync in progress") {
		t.Errorf("%s", a.Body)
	}
	w.front(nil)
	w.synced("m", "refs/heads/trunk "+tip)
	w.front(always(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }))
	w.pull("m")
	if reason := w.failed("m"); !strings.Contains(reason, "503") {
		t.Errorf("%q", reason)
	}
	w.synced("m", "refs/heads/trunk "+tip) // reads go on
}

// TestHostileAnswers: what an upstream sends instead of Git's protocol ends the
// sync with a reason and changes nothing.
func TestHostileAnswers(t *testing.T) {
	w := newWorld(t, harness.Options{})
	w.commit("trunk", "", "a", "1")
	advertisement := "001e# service=git-upload-pack\n0000000eversion 2\n000cls-refs\n000afetch\n0000"
	packets := func(lines ...string) string {
		var out strings.Builder
		for _, l := range lines {
			fmt.Fprintf(&out, "%04x%s", len(l)+4, l)
		}
		return out.String()
	}
	answer := func(refs, fetch string) func(http.Handler) http.Handler {
		return always(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				io.WriteString(rw, advertisement)
				return
			}
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			body, err := io.ReadAll(r.Body)
			if err == nil && bytes.Contains(body, []byte("command=ls-refs")) {
				io.WriteString(rw, refs)
			} else {
				io.WriteString(rw, fetch)
			}
		})
	}
	one := packets(strings.Repeat("a", 40)+" refs/heads/trunk\n") + "0000"
	var many strings.Builder
	for i := range 40_000 {
		many.WriteString(packets(fmt.Sprintf("%040x refs/heads/b%d\n", i+1, i)))
	}
	rows := map[string]struct {
		front func(http.Handler) http.Handler
		want  string
	}{
		"a page": {always(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "<html>") }), "does not answer as a Git server"},
		"garbage": {always(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(rw, "zzzzzzzzz")
		}), "breaks Git's protocol"},
		"version 0": {always(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(rw, packets("# service=git-upload-pack\n")+"0000"+packets(strings.Repeat("a", 40)+" HEAD\x00caps\n")+"0000")
		}), "version 2"},
		"an error":           {answer(packets("ERR go \x1b[31maway\n")+"0000", ""), "go [31maway"},
		"a bad ref name":     {answer(packets(strings.Repeat("a", 40)+" refs/heads/../../x\n")+"0000", ""), "breaks Git's protocol"},
		"a bad id":           {answer(packets("xyz refs/heads/a\n")+"0000", ""), "breaks Git's protocol"},
		"too many refs":      {answer(many.String()+"0000", ""), "more than 30000"},
		"no pack":            {answer(one, "0000"), "no pack"},
		"a pack of garbage":  {answer(one, packets("packfile\n", "\x01PACKgarbage")+"0000"), "pack that is refused"},
		"another pack":       {answer(one, packets("packfile\n", "\x01PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e")+"0000"), "pack that is refused"},
		"an error in a band": {answer(one, packets("packfile\n", "\x03no\n")+"0000"), "says: no"},
		"a redirect outwards": {always(func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://127.0.0.1:1"+r.URL.Path, 302)
		}), "redirects to another host"},
		"a redirect astray":  {always(func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/etc/passwd", 302) }), "no repository"},
		"redirects for ever": {always(func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, r.URL.String(), 302) }), "no repository"},
		"not found":          {always(http.NotFound), "not found"},
	}
	i := 0
	for name, row := range rows {
		i++
		repo := fmt.Sprintf("r%d", i)
		w.front(row.front)
		w.follow(repo)
		if reason := w.failed(repo); !strings.Contains(reason, row.want) {
			t.Errorf("%s: %q, want %q", name, reason, row.want)
		}
		w.do(http.StatusOK, "DELETE", harness.RepoPath(repo)+"/base", repo, "")
		if refs := w.refs(repo); len(refs) != 0 {
			t.Errorf("%s: %q", name, refs)
		}
	}
}

// TestKilledDuringImport: the import goes on when the server is back.
func TestKilledDuringImport(t *testing.T) {
	w := newWorld(t, harness.Options{})
	tip := w.commit("trunk", "", "a", strings.Repeat("x\n", 100_000))
	hold := make(chan struct{})
	begun := make(chan struct{}, 16)
	w.front(func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				select {
				case begun <- struct{}{}:
				default:
				}
				select {
				case <-hold:
				case <-r.Context().Done():
					return
				case <-time.After(settled):
				}
			}
			pass.ServeHTTP(rw, r)
		})
	})
	w.follow("m")
	<-begun
	w.cairn.Kill()
	close(hold)
	if err := w.cairn.Restart(); err != nil {
		t.Fatal(err)
	}
	w.synced("m", "refs/heads/trunk "+tip)
}

// TestPrivateHostsAreRefused: by default nothing on loopback is asked, by
// whatever name.
func TestPrivateHostsAreRefused(t *testing.T) {
	w := newWorld(t, harness.Options{Args: []string{"--closed"}})
	_, port, _ := strings.Cut(w.host, ":")
	for _, host := range []string{w.host, "127.0.0.1", "[::1]:" + port, "0.0.0.0:" + port, "[::ffff:127.0.0.1]:" + port, "10.0.0.1", "169.254.169.254", "2130706433"} {
		w.do(http.StatusBadRequest, "POST", "/api/repos", "x",
			`{"base_repo":{"provider":"gitea","upstream_host":"`+host+`","owner":"team","name":"app"}}`)
	}
	w.do(http.StatusCreated, "POST", "/api/repos", "x",
		`{"base_repo":{"provider":"gitea","upstream_host":"localhost:`+port+`","owner":"team","name":"app"}}`)
	if reason := w.failed("x"); !strings.Contains(reason, "not on the public network") {
		t.Errorf("%q", reason)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) != 0 {
		t.Errorf("asked %q", w.asked)
	}
}

// TestRulesHold: a sync moves what the repository's rules and the pulling token
// let it, keeps the rest, and takes it over once nothing forbids it.
func TestRulesHold(t *testing.T) {
	w := newWorld(t, harness.Options{})
	base := w.commit("trunk", "", "a", "1")
	w.commit("side", base, "b", "1")
	w.follow("m")
	w.until("import", func() bool { s, _, _ := w.status("m"); return s == "synced" })
	before := w.refs("m")
	protect := func(rules string) {
		w.do(http.StatusOK, "PUT", harness.RepoPath("m")+"/protections", "m", `{"protections":[`+rules+`]}`)
	}
	protect(`{"pattern":"trunk","ops":["no-force-push"]}`)
	forced := w.commit("trunk", "", "a", "2")
	side := w.commit("side", strings.TrimSpace(w.origin.Run("rev-parse", "side")), "b", "2")
	w.origin.Run("tag", "v1", base)
	rule, err := policy.NewRule("refs/tags/*", []policy.Op{policy.NoPush})
	if err != nil {
		t.Fatal(err)
	}
	pull := func(status int, rules policy.List) {
		t.Helper()
		token := w.cairn.Token(harness.Grant{Repo: "m", Scopes: everything, Policies: rules})
		a, err := w.cairn.Do(w.client, "POST", harness.RepoPath("m")+"/pull-upstream", token, "", nil)
		if err != nil || a.Status != status {
			t.Fatalf("%v %d %s", err, a.Status, a.Body)
		}
	}
	pull(http.StatusForbidden, policy.List{{Pattern: "*", Ops: []policy.Op{policy.NoPush}}})
	pull(http.StatusAccepted, policy.List{rule})
	w.synced("m", "refs/heads/side "+side, before[1])
	protect("")
	pull(http.StatusAccepted, policy.List{rule})
	w.synced("m", "refs/heads/side "+side, "refs/heads/trunk "+forced)
	pull(http.StatusAccepted, nil)
	w.synced("m", "refs/heads/side "+side, "refs/heads/trunk "+forced, "refs/tags/v1 "+base)
}

// TestOtherStorage runs the import on PostgreSQL and S3, where a key must be
// given for credentials.
func TestOtherStorage(t *testing.T) {
	w := newWorld(t, harness.OnPostgresAndS3(t, harness.Options{}))
	tip := w.commit("trunk", "", "a", strings.Repeat("x\n", 100_000))
	w.follow("m")
	w.synced("m", "refs/heads/trunk "+tip)
	a := w.do(http.StatusBadRequest, "POST", harness.RepoPath("m")+"/git-credentials", "m", `{"password":"x"}`)
	if !strings.Contains(a.Text("error"), "--secret-key-file") {
		t.Errorf("%s", a.Body)
	}
	next := w.commit("trunk", tip, "b", "2")
	w.pull("m")
	w.synced("m", "refs/heads/trunk "+next)
}

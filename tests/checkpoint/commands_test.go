package checkpoint

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestCommands runs each command about checkpoints.
func TestCommands(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.token = server.Token(harness.Grant{Thread: "*"})
	s.write(map[string]string{"src/main.go": "package main\n", "README": "one"})
	if err := os.Chmod(filepath.Join(s.dir, "src/main.go"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := s.capture("--label", "begin", "--git-repo", "app", "--git-branch", "main")
	s.write(map[string]string{"README": "two", "new/file": "x"})
	second := s.capture("--label", "middle")
	// A name is a reason to save, even where no file changed; the same name is not.
	s.write(map[string]string{"README": "three"})
	s.capture()
	third := s.capture("--label", "end")
	if again := s.want(0, "capture", "--root", s.dir, "--label", "end", "--json").document(t); again["unchanged"] != true || again["checkpoint"].(map[string]any)["id"] != third {
		t.Errorf("the same files under the same name: %v", again)
	}
	unnamed := s.want(0, "checkpoint", "list", "--json", "--limit", "2").document(t)["checkpoints"].([]any)[1].(map[string]any)
	s.want(0, "checkpoint", "delete", unnamed["id"].(string))
	if r := s.want(4, "checkpoint", "diff", third); !strings.Contains(r.stderr, "was deleted: name another one as base") {
		t.Errorf("diff with one that was deleted: %q", r.stderr)
	}

	if got := s.want(0, "checkpoint", "list", "--json", "--label", "end").document(t); got["head"] != third || len(got["checkpoints"].([]any)) != 1 {
		t.Errorf("list: %v", got)
	}
	shown := s.want(0, "checkpoint", "show", first, "--json").document(t)
	if git, _ := shown["git"].(map[string]any); shown["label"] != "begin" || shown["thread"] != "t" || git["repo"] != "app" {
		t.Errorf("show: %v", shown)
	}
	if out := s.want(0, "checkpoint", "diff", second, "--base", first).stdout; !strings.Contains(out, "M workspace/README") || !strings.Contains(out, "A workspace/new") {
		t.Errorf("diff: %q", out)
	}
	if got := s.want(0, "checkpoint", "diff", second, "--json").document(t); got["id"] != second || got["base"] != first {
		t.Errorf("diff with the one before: %v", got)
	}
	if got := s.want(0, "checkpoint", "diff", first, "--json").document(t); got["base"] != nil || len(got["changes"].([]any)) != 1 {
		t.Errorf("diff of the first: %v", got)
	}
	if out := s.want(0, "checkpoint", "files", second).stdout; !strings.Contains(out, "-0755         13") || !strings.Contains(out, "workspace/new/file") {
		t.Errorf("files: %q", out)
	}
	if got := s.want(0, "checkpoint", "files", second, "--path", "workspace/src", "--json").document(t); len(got["entries"].([]any)) != 1 {
		t.Errorf("files of a directory: %v", got)
	}
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	s.want(0, "checkpoint", "archive", second, "-o", archive)
	if got := untar(t, archive); got["workspace/README"] != "two" || got["workspace/src/main.go"] != "package main\n" {
		t.Errorf("archive: %q", got)
	}
	s.want(4, "checkpoint", "archive", "nothing", "-o", archive+"2")
	if _, err := os.Stat(archive + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive of nothing: %v", err)
	}
	if got := s.want(0, "restore", "--thread", "new", "--root", s.dir, "--json").stdout; got != "{\"checkpoint\":null}\n" {
		t.Errorf("restore of a thread without checkpoints: %q", got)
	}
	s.write(map[string]string{"README": "four", "zz": "late"})
	plan := s.want(0, "restore", "--root", s.dir, "--dry-run").stdout
	if removed, changed := strings.Index(plan, `would remove "workspace/zz"`), strings.Index(plan, `would change "workspace/README"`); removed < 0 || changed < removed {
		t.Errorf("a dry run does not begin with what would be lost: %q", plan)
	}
	s.manage(first, second, third)
	s.promote(server, third)
	if got := s.want(0, "thread", "list", "--json").document(t); len(got["threads"].([]any)) != 2 {
		t.Errorf("thread list: %v", got)
	}
	out, err := server.Operate("usage", "--json")
	var doc struct {
		Usage []struct{ Threads, Checkpoints int }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &doc)
	}
	if err != nil || len(doc.Usage) != 1 || doc.Usage[0].Threads != 2 || doc.Usage[0].Checkpoints < 2 {
		t.Errorf("usage: %v: %s", err, out)
	}
	s.want(0, "thread", "delete", "other")
	if got := s.want(0, "thread", "list", "--json").document(t); len(got["threads"].([]any)) != 1 {
		t.Errorf("thread list: %v", got)
	}
}

// manage forks, pins, prunes and deletes.
func (s *sandbox) manage(first, second, third string) {
	s.Helper()
	fork := s.want(0, "checkpoint", "fork", first, "--thread", "other", "--json").document(s.T)
	if fork["thread"] != "other" || fork["reason"] != "fork-root" {
		s.Errorf("fork: %v", fork)
	}
	if r := s.run("checkpoint", "fork", second, "--thread", "other"); r.status != 1 {
		s.Errorf("a fork into a thread in use: %+v", r)
	}
	s.want(0, "checkpoint", "pin", first)
	if r := s.run("checkpoint", "delete", first); r.status != 1 || !strings.Contains(r.stderr, "pin") {
		s.Errorf("deletion of a pinned one: %+v", r)
	}
	dry := s.want(0, "checkpoint", "prune", "--keep-last", "1", "--dry-run", "--json").document(s.T)
	if got := dry["deleted"].([]any); len(got) != 1 || got[0] != second || len(s.ids()) != 3 {
		s.Errorf("a dry run of prune: %v", dry)
	}
	s.want(2, "checkpoint", "prune")
	s.want(2, "checkpoint", "prune", "--label", "")
	for label, want := range map[string]int{"begin": 0, "end": 0, "nobody's": 0, "middle": 1} { // pinned, the head, none
		dry := s.want(0, "checkpoint", "prune", "--label", label, "--dry-run", "--json").document(s.T)
		if got := dry["deleted"].([]any); len(got) != want {
			s.Errorf("a dry run of prune by the label %q: %v", label, dry)
		}
	}
	s.want(0, "checkpoint", "prune", "--keep-last", "1")
	if got := s.ids(); len(got) != 2 || got[0] != first || got[1] != third {
		s.Errorf("after prune: %q", got)
	}
	s.want(0, "checkpoint", "pin", first, "--off")
	s.want(0, "checkpoint", "delete", first)
	s.want(4, "checkpoint", "show", first)
	s.restore()
}

// promote makes a commit of a checkpoint.
func (s *sandbox) promote(server *harness.Server, id string) {
	s.Helper()
	if err := server.CreateRepo("app"); err != nil {
		s.Fatal(err)
	}
	p := *s
	p.token = server.Token(harness.Grant{Repo: "app", Thread: "t", Scopes: []auth.Scope{auth.CheckpointRead, auth.GitRead, auth.GitWrite}})
	made := p.want(0, "checkpoint", "promote", id, "--repo", "app", "--branch", "main", "--message", "Save", "--author", "An Agent <agent@example.com>", "--json").document(s.T)
	git := harness.NewGit(s.T)
	git.Run("clone", "-q", server.Remote(harness.Grant{Repo: "app"}, ""), "work")
	if got := git.In("work").Run("rev-parse", "HEAD"); strings.TrimSpace(got) != made["commit"] {
		s.Errorf("the branch is at %s, promoted was %v", got, made)
	}
	if r := p.run("checkpoint", "promote", id, "--repo", "app", "--branch", "main", "--expected-head", strings.Repeat("0", 40)); r.status != 3 && r.status != 1 {
		s.Errorf("onto a branch that is there: %+v", r)
	}
	// And back: a thread begins with the commit.
	p.token = server.Token(harness.Grant{Repo: "app", Thread: "from", Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite, auth.GitRead}})
	begun := p.want(0, "thread", "from-commit", "from", "--repo", "app", "--json").document(s.T)
	origin := begun["checkpoint"].(map[string]any)["git"].(map[string]any)
	if origin["commit"] != made["commit"] || origin["branch"] != "main" {
		s.Errorf("from the commit: %v", begun)
	}
	if r := p.run("thread", "from-commit", "from", "--repo", "app"); r.status != 3 {
		s.Errorf("onto a thread that has begun: %+v", r)
	}
	p.want(0, "thread", "from-commit", "from", "--repo", "app", "--onto", begun["head"].(string), "--label", "again")
	p.want(2, "thread", "from-commit", "from")
	p.want(4, "thread", "from-commit", "from", "--repo", "app", "--onto", "head", "--ref", "nothing")
	p.want(0, "thread", "delete", "from")
}

// untar reads the files of an archive.
func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(text)
	}
}

// TestPartlyDone leaves paths out, which is told, and makes the status 7.
func TestPartlyDone(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.write(map[string]string{"f": "1", "tool": "2", "node_modules/x": "3"})
	for _, err := range []error{
		os.Symlink("/etc/hostname", filepath.Join(s.dir, "out")), syscall.Mkfifo(filepath.Join(s.dir, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := s.want(1, "capture", "--root", s.dir)
	for _, want := range []string{`"workspace/out"`, `"workspace/pipe"`, "--exclude '/out'", "--exclude '/pipe'"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the refusal does not say %s: %s", want, r.stderr)
		}
	}
	if len(s.ids()) != 0 {
		t.Error("something was appended")
	}
	got := s.want(7, "capture", "--root", s.dir, "--outside-links", "skip", "--exclude", "/pipe", "--json").document(t)
	if list := got["left_out"].([]any); len(list) != 3 {
		t.Errorf("left out: %v", list)
	}
	kept := s.want(0, "capture", "--root", s.dir, "--outside-links", "keep", "--exclude", "/pipe", "--json").id(t)
	b := newSandbox(t, server, "t")
	b.restore()
	if target, err := os.Readlink(filepath.Join(b.dir, "out")); err != nil || target != "/etc/hostname" {
		t.Errorf("the link says %q (%v), captured as %s", target, err, kept)
	}
	if err := os.Chmod(filepath.Join(s.dir, "tool"), 0o4755); err != nil { // os.Chmod takes set-id bits another way
		t.Fatal(err)
	}
	if err := syscall.Chmod(filepath.Join(s.dir, "tool"), 0o4755); err != nil {
		t.Fatal(err)
	}
	s.capture("--outside-links", "keep", "--exclude", "/pipe")
	dropped := b.want(7, "restore", "--root", b.dir, "--json").document(t)
	if list := dropped["left_out"].([]any); len(list) != 1 {
		t.Errorf("left out of the restore: %v", list)
	}
	b.want(0, "restore", "--root", b.dir, "--set-id")
	if st, err := os.Stat(filepath.Join(b.dir, "tool")); err != nil || st.Mode()&os.ModeSetuid == 0 {
		t.Errorf("the tool has mode %v (%v)", st.Mode(), err)
	}
}

// TestWatch ends a watch while files change: the last ones are saved.
func TestWatch(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.write(map[string]string{"f": "1"})
	cmd := s.command("watch", "--root", s.dir, "--every", "100ms", "--grace", "30s")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := newSandbox(t, server, "t")
	soon(t, "a first checkpoint", func() bool { return len(other.ids()) > 0 })
	store := remote(t, server.URL, s.token)
	soon(t, "the lease", func() bool {
		lease, err := store.Acquire(t.Context(), "t")
		if err != nil {
			return false
		}
		time.Sleep(300 * time.Millisecond)
		return store.Release(t.Context(), lease.Writer) == nil
	})
	s.write(map[string]string{"f": "2", "g": "the last words"})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("watch: %v: %s", err, &stderr)
	}
	other.restore()
	other.has(map[string]string{"f": "2", "g": "the last words"})
	for _, want := range []string{"msg=captured", "skipped: busy"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the log does not say %q: %s", want, &stderr)
		}
	}
}

// TestWithoutServer finds nobody there, a token that is no good, and none.
func TestWithoutServer(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	s.write(map[string]string{"f": "1"})
	reader := *s
	reader.token = server.Token(harness.Grant{Thread: "t", Scopes: []auth.Scope{auth.CheckpointRead}})
	reader.want(5, "capture", "--root", s.dir)
	reader.token = server.Token(harness.Grant{Thread: "t", Issued: time.Now().Add(-2 * time.Hour)})
	reader.want(5, "restore", "--root", s.dir)
	reader.token = "no token"
	reader.want(2, "capture", "--root", s.dir)
	reader.token = ""
	reader.want(2, "capture", "--root", s.dir)
	s.want(2, "capture", "--roots", s.dir)
	s.url = "http://127.0.0.1:1"
	s.want(6, "restore", "--root", s.dir)
}

// TestRestoreOfAList restores what an application wrote as a list of files and
// blobs, one of them large.
func TestRestoreOfAList(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	want := map[string]string{"a": "small", "d/large": strings.Repeat("0123456789abcdef", 400_000), "d/zero": ""}
	var files []string
	for name, text := range want {
		key := fmt.Sprintf("sandbox-files/sha256/%x", sha256.Sum256([]byte(text)))
		put, err := server.Do(nil, http.MethodPut, "/api/blobs/"+key, s.token, "application/octet-stream", []byte(text))
		if err != nil || put.Status >= 300 {
			t.Fatalf("put: %v, %d %s", err, put.Status, put.Body)
		}
		files = append(files, fmt.Sprintf(`{"path":%q,"kind":"file","blobKey":%q,"size":%d}`, name, key, len(text)))
	}
	lease, err := remote(t, server.URL, s.token).Acquire(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"checkpoint":{"id":"c1","threadId":"t","parentCheckpointId":null,"createdAt":1700000000000,"reason":"automatic","files":[%s],"conversation":[],"artifacts":[]},
		"expectedHeadId":null,"writer":{"threadId":"t","ownerToken":%q,"fence":%d}}`, strings.Join(files, ","), lease.OwnerToken, lease.Fence)
	appended, err := server.Do(nil, http.MethodPost, "/api/threads/t/manifests", s.token, "application/json", []byte(body))
	if err != nil || appended.Status != http.StatusCreated {
		t.Fatalf("append: %v, %d %s", err, appended.Status, appended.Body)
	}
	if got := s.restore().id(t); got != "c1" {
		t.Errorf("restored %q", got)
	}
	s.has(want)
}

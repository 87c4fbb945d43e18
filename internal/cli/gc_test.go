package cli

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitIn runs git in a folder, which must succeed.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestGC collects a repository with lost commits beside the running server.
func TestGC(t *testing.T) {
	client, op, _ := operated(t)
	client.must("repo", "create", "r")
	remote := strings.TrimSpace(client.must("url", "--repo", "r", "--scope", "git:write", "--scope", "git:read"))
	if u, err := url.Parse(remote); err != nil || u.Host == "" {
		t.Fatalf("the URL is %q", remote)
	}
	dir := t.TempDir()
	gitIn(t, dir, "init", "-q", "-b", "main")
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(strings.Repeat("line\n", 100*i)), 0o644); err != nil {
			t.Fatal(err)
		}
		gitIn(t, dir, "add", "f")
		gitIn(t, dir, "commit", "-q", "-m", "m")
		gitIn(t, dir, "push", "-q", remote, "main")
	}
	gitIn(t, dir, "push", "-q", "-f", remote, "HEAD~1:main")

	var doc struct {
		DryRun       bool    `json:"dry_run"`
		Repositories []gcRow `json:"repositories"`
		Total        gcTotal `json:"total"`
	}
	op.document(&doc, "gc", "--dry-run", "--full")
	if !doc.DryRun || len(doc.Repositories) != 1 || doc.Repositories[0].Did != "repack" || doc.Repositories[0].PacksAfter < 4 || doc.Total.Changed != 1 {
		t.Errorf("gc --dry-run: %+v", doc)
	}
	objects := doc.Repositories[0].Objects
	// What was forced away a moment ago may be in use, and is no garbage yet.
	op.document(&doc, "gc", "--unseen-grace", "0s", "--org", "acme", "--repo", "r", "--full")
	if doc.DryRun || len(doc.Repositories) != 1 || doc.Repositories[0].Objects != objects || doc.Total.PacksAfter != 2 || doc.Repositories[0].Tidy {
		t.Errorf("gc --full: %+v", doc)
	}
	if out := op.must("fsck"); !strings.HasPrefix(out, "1 repositories checked") {
		t.Errorf("fsck prints %q", out)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	gitIn(t, dir, "clone", "-q", remote, copied)
	gitIn(t, copied, "fsck", "--full", "--strict")
	if got := gitIn(t, copied, "rev-list", "--count", "HEAD"); got != "3" {
		t.Errorf("the clone has %s commits, want 3", got)
	}
	if out := op.must("gc", "--full"); !strings.Contains(out, "acme/r: repack: ") || !strings.Contains(out, "1 repositories, 1 changed") {
		t.Errorf("gc prints %q", out)
	}
	res, err := http.Get(client.vars["CAIRN_URL"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), "\ncairn_repacks_total 0\n") || !strings.Contains(string(text), "\ncairn_compaction_failures_total 0\n") {
		t.Errorf("the server's figures lack those of compaction (%v)", err)
	}
	op.refused(4, "", "gc", "--org", "acme", "--repo", "absent")
	op.refused(2, "--org", "gc", "--repo", "r")
}

// TestObjectsOfCheckpoints sweeps and checks them from outside a running server.
func TestObjectsOfCheckpoints(t *testing.T) {
	client, op, _ := operated(t)
	work := filepath.Join(t.TempDir(), "work")
	capture := func(size int) (id string) {
		t.Helper()
		b := make([]byte, size)
		rand.Read(b)
		if err := errors.Join(os.MkdirAll(work, 0o755), os.WriteFile(filepath.Join(work, "data"), b, 0o644)); err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		client.document(&doc, "capture", "--thread", "t", "--root", work)
		checkpoint, _ := doc["checkpoint"].(map[string]any)
		id, _ = checkpoint["id"].(string)
		return id
	}
	first := capture(300_000)
	capture(200_000)
	if out := op.must("fsck"); !strings.Contains(out, "the checkpoints of 1 orgs") {
		t.Errorf("fsck prints %q", out)
	}
	client.must("checkpoint", "delete", first)
	var doc struct {
		DryRun       bool    `json:"dry_run"`
		Repositories []gcRow `json:"repositories"`
		Total        gcTotal `json:"total"`
	}
	op.document(&doc, "gc", "--dry-run")
	if doc.Total.DeadObjectBytes < 300_000 || doc.Total.FreedObjectBytes != 0 || doc.Total.Objects == 0 {
		t.Errorf("gc --dry-run: %+v", doc.Total)
	}
	op.document(&doc, "gc")
	if doc.Total.FreedObjectBytes < 300_000 {
		t.Errorf("gc: %+v", doc.Total)
	}
	if out := op.must("gc", "--org", "acme"); !strings.Contains(out, "objects of checkpoints") {
		t.Errorf("gc prints %q", out)
	}
	op.must("fsck")
	restored := filepath.Join(t.TempDir(), "restored")
	client.must("restore", "--thread", "t", "--root", restored)
	if info, err := os.Stat(filepath.Join(restored, "data")); err != nil || info.Size() != 200_000 {
		t.Errorf("restored %v, %v", info, err)
	}
	// What the sweep left is damaged: fsck says so.
	packs, err := filepath.Glob(filepath.Join(op.vars["CAIRN_DATA"], "blobs", "objects", "*", "content~*.pack"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("packs %q, %v", packs, err)
	}
	for _, name := range packs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := errors.Join(os.Remove(name), os.WriteFile(name, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, _ := op.run("fsck"); code != exitFailed || !strings.Contains(out, "pack: acme: ") {
		t.Errorf("fsck of damaged packs ends with %d and prints %q", code, out)
	}
}

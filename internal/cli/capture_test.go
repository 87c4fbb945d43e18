package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkspaceMessages takes what the commands say about one workspace, and how
// they end.
func TestWorkspaceMessages(t *testing.T) {
	client, op, _ := operated(t)
	work, other := filepath.Join(t.TempDir(), "work"), filepath.Join(t.TempDir(), "other")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string, args ...string) {
		t.Helper()
		if out := client.must(args...); !strings.Contains(out, want) {
			t.Errorf("cairn %s prints %q, want %q", strings.Join(args, " "), out, want)
		}
	}
	client.refused(exitFailed, "make the directory, or name another root", "capture", "--thread", "t", "--root", work)
	write(filepath.Join(work, "a"), "x")
	says(": 1 file, 1 byte; ", "capture", "--thread", "t", "--root", work)
	says("1 file, 1 byte head", "checkpoint", "list", "--thread", "t")
	write(filepath.Join(work, "b"), "yz")
	says(": 2 files, 3 bytes; ", "capture", "--thread", "t", "--root", work)
	says("restored; 2 paths changed, 0 removed; 2 files with 3 bytes written", "restore", "--thread", "t", "--root", filepath.Join(other, "new"))
	client.refused(exitUsage, "or give --yes", "restore", "--thread", "t", "--root", other)

	op.must("org", "quota", "acme", "--bytes", "1KiB")
	big := make([]byte, 1<<16)
	for i := range big {
		big[i] = byte(i*i>>3 ^ i*7919>>5)
	}
	write(filepath.Join(work, "large"), string(big))
	client.refused(exitFailed, "the org may have 1024 bytes", "capture", "--thread", "t", "--root", work)
	client.refused(exitUsage, "is for cairn capture", "watch", "--thread", "t", "--root", work, "--if-busy", "fail")
}

// TestServerDataIsNoWorkspace captures and restores a directory in which a server
// for development keeps its data.
func TestServerDataIsNoWorkspace(t *testing.T) {
	client, _, _ := operated(t)
	work := t.TempDir()
	key := filepath.Join(work, "sub [1]", ".cairn", "local.key")
	for _, path := range []string{key, filepath.Join(work, "code")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("as it was"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, filepath.Dir(key))
	if err != nil {
		t.Fatal(err)
	}
	for i, args := range [][]string{nil, {"--policy", "full"}, {"--policy", "full"}} {
		client = client.with("CAIRN_DATA=" + []string{filepath.Dir(key), filepath.Dir(key), relative}[i])
		code, _, errs := client.run(append([]string{"capture", "--thread", "t", "--root", work, "--onto", "head"}, args...)...)
		if code != exitDone {
			t.Fatalf("capture ends with %d: %s", code, errs)
		}
		if out := client.must("checkpoint", "archive", client.head("t"), "--format", "tar"); strings.Contains(out, "local.key") || !strings.Contains(out, "workspace/code") {
			t.Error("the checkpoint has the server's key, or not the code")
		}
	}
	if err := os.WriteFile(filepath.Join(work, "code"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := client.run("restore", "--thread", "t", "--root", work, "--yes"); code != exitDone {
		t.Fatalf("restore ends with %d: %s", code, errs)
	}
	for _, path := range []string{key, filepath.Join(work, "code")} {
		if b, err := os.ReadFile(path); err != nil || string(b) != "as it was" {
			t.Errorf("%s: %q (%v)", path, b, err)
		}
	}
}

// head returns the id of the newest checkpoint of a thread.
func (m *terminal) head(thread string) string {
	m.t.Helper()
	var doc struct {
		Head, Thread string
		Checkpoints  []map[string]any
	}
	m.document(&doc, "checkpoint", "list", "--thread", thread)
	return doc.Head
}

package object

import (
	"bytes"
	"compress/zlib"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repo is a bare repository of the installed git.
type repo struct {
	t   *testing.T
	dir string
	env []string // besides the clean environment
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t: t, dir: t.TempDir()}
	r.git("", "init", "-q", "--bare", ".")
	return r
}

// command prepares git with an environment that no configuration reaches.
func (r *repo) command(in string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(in)
	cmd.Env = append([]string{
		"GIT_CONFIG_NOSYSTEM=1", "HOME=" + r.dir, "PATH=/usr/local/bin:/usr/bin:/bin",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_AUTHOR_DATE=1700000000 +0130",
		"GIT_COMMITTER_NAME=Bo", "GIT_COMMITTER_EMAIL=bo@example.com", "GIT_COMMITTER_DATE=1700000001 -0800",
	}, r.env...)
	return cmd
}

// git runs a command that must succeed and returns its output without the
// final newline.
func (r *repo) git(in string, args ...string) string {
	r.t.Helper()
	cmd := r.command(in, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// content returns the content of an object as git stores it.
func (r *repo) content(typ Type, name string) []byte {
	r.t.Helper()
	out, err := r.command("", "cat-file", typ.String(), name).Output()
	if err != nil {
		r.t.Fatalf("git cat-file %s %s: %v", typ, name, err)
	}
	return out
}

// store writes a loose object, whatever its content.
func (r *repo) store(typ Type, content []byte) ID {
	r.t.Helper()
	id := Hash(typ, content)
	dir := filepath.Join(r.dir, "objects", id.String()[:2])
	if err := os.MkdirAll(dir, 0o777); err != nil {
		r.t.Fatal(err)
	}
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write(appendHeader(nil, typ, int64(len(content))))
	z.Write(content)
	z.Close()
	if err := os.WriteFile(filepath.Join(dir, id.String()[2:]), packed.Bytes(), 0o666); err != nil {
		r.t.Fatal(err)
	}
	return id
}

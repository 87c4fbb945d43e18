package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// sandbox is a bare machine with the program and a token: a workspace, and a home
// in which the program remembers.
type sandbox struct {
	*testing.T
	url, token string
	dir, home  string
	env        []string
}

func newSandbox(t *testing.T, s *harness.Server, thread string) *sandbox {
	t.Helper()
	return &sandbox{
		T: t, url: s.URL, token: s.Token(harness.Grant{Thread: thread}), dir: filepath.Join(t.TempDir(), "workspace"), home: t.TempDir(),
		env: []string{"CAIRN_THREAD=" + thread},
	}
}

// result is what a command of the program did.
type result struct {
	status         int
	stdout, stderr string
}

// document is the JSON document that a command printed.
func (r result) document(t *testing.T) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		t.Fatalf("%v in %q (and %q)", err, r.stdout, r.stderr)
	}
	return doc
}

// id is that of the checkpoint in the document.
func (r result) id(t *testing.T) string {
	t.Helper()
	c, ok := r.document(t)["checkpoint"].(map[string]any)
	if !ok {
		t.Fatalf("no checkpoint in %q", r.stdout)
	}
	return c["id"].(string)
}

// command prepares the program.
func (s *sandbox) command(args ...string) *exec.Cmd {
	cmd := exec.Command(harness.Binary(s.T), args...)
	cmd.Env = append([]string{"CAIRN_URL=" + s.url, "CAIRN_TOKEN=" + s.token, "HOME=" + s.home, "TMPDIR=" + os.TempDir()}, s.env...)
	return cmd
}

// run runs the program.
func (s *sandbox) run(args ...string) result {
	s.Helper()
	var stdout, stderr bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		s.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// want runs the program and checks its exit status.
func (s *sandbox) want(status int, args ...string) result {
	s.Helper()
	r := s.run(args...)
	if r.status != status {
		s.Fatalf("cairn %s: status %d, want %d: %s%s", strings.Join(args, " "), r.status, status, r.stdout, r.stderr)
	}
	return r
}

func (s *sandbox) capture(args ...string) string {
	s.Helper()
	return s.want(0, append([]string{"capture", "--json", "--root", s.dir}, args...)...).id(s.T)
}

func (s *sandbox) restore(args ...string) result {
	s.Helper()
	return s.want(0, append([]string{"restore", "--json", "--root", s.dir}, args...)...)
}

func (s *sandbox) write(files map[string]string) {
	s.Helper()
	for name, text := range files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *sandbox) has(want map[string]string) {
	s.Helper()
	if got := s.files(); !maps.Equal(got, want) {
		s.Errorf("the files are %q, want %q", got, want)
	}
}

func (s *sandbox) files() map[string]string {
	s.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(s.dir, path)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all[rel] = "-> " + target
			return err
		}
		b, err := os.ReadFile(path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// ids lists the thread, the oldest first.
func (s *sandbox) ids() (ids []string) {
	s.Helper()
	list, _ := s.want(0, "checkpoint", "list", "--oldest-first", "--json").document(s.T)["checkpoints"].([]any)
	for _, c := range list {
		ids = append(ids, c.(map[string]any)["id"].(string))
	}
	return ids
}

// remote is the server's store for a thread, as the library has it.
func remote(t *testing.T, url, token string) *checkpoint.Remote {
	t.Helper()
	client, err := cairn.NewClient(option.WithBaseURL(url), option.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	r := checkpoint.NewRemote(client)
	t.Cleanup(r.Close)
	return r
}

// soon waits until something holds.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it never came: " + what)
}

package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// bare is a container with the program and a workspace, and nothing else: no
// home, no directory for temporary files, no devices, no user database, and no
// place but the workspace that its user may write to.
type bare struct {
	*testing.T
	root string
	env  []string
}

// bareUser is a user that no database knows.
const bareUser = 54321

func newBare(t *testing.T, server *harness.Server) *bare {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("an empty root needs chroot, and that needs root")
	}
	b := &bare{T: t, root: t.TempDir(), env: []string{
		"CAIRN_URL=" + server.URL, "CAIRN_THREAD=t", "CAIRN_TOKEN=" + server.Token(harness.Grant{Thread: "t"}),
	}}
	from, err := os.Open(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(b.root, "cairn"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
		err = errors.Join(err, to.Close())
	}
	if err == nil {
		err = os.Chmod(b.root, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.writable("workspace")
	return b
}

func (b *bare) writable(name string) {
	b.Helper()
	dir := filepath.Join(b.root, name)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, bareUser, bareUser)); err != nil {
		b.Fatal(err)
	}
}

func (b *bare) put(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.root, "workspace", name), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *bare) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/cairn", args...)
	cmd.Dir, cmd.Env = "/", b.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.root, Credential: &syscall.Credential{Uid: bareUser, Gid: bareUser, NoSetGroups: false}}
	return cmd
}

func (b *bare) want(status int, args ...string) result {
	b.Helper()
	var stdout, stderr bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		b.Fatal(err)
	}
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if r.status != status {
		b.Fatalf("cairn %s: status %d, want %d: %s%s", strings.Join(args, " "), r.status, status, r.stdout, r.stderr)
	}
	return r
}

// TestBareContainer captures and restores where there is nothing but the program
// and the workspace.
func TestBareContainer(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	a := newBare(t, server)
	a.put("f", "1")
	first := a.want(0, "capture", "--json")
	id := first.id(t)
	if !strings.Contains(first.stderr, "--onto "+id) {
		t.Errorf("it does not say that nothing is remembered: %q", first.stderr)
	}
	a.put("f", "2")
	a.want(3, "capture")
	second := a.want(0, "capture", "--onto", id, "--json").id(t)

	b := newBare(t, server)
	if r := b.want(0, "restore"); !strings.Contains(r.stderr, "--onto "+second) {
		t.Errorf("it does not say that nothing is remembered: %q", r.stderr)
	}
	if text, err := os.ReadFile(filepath.Join(b.root, "workspace/f")); err != nil || string(text) != "2" {
		t.Errorf("restored %q (%v)", text, err)
	}
	if names, err := os.ReadDir(b.root); err != nil || len(names) != 2 {
		t.Errorf("the container has %v (%v)", names, err)
	}

	// A watch remembers what it does itself.
	var log lockedBuffer
	cmd := b.command("watch", "--every", "100ms", "--grace", "30s", "--onto", second)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"3", "4"} {
		b.put("f", text)
		soon(t, "a capture of "+text, func() bool { return strings.Count(log.String(), "msg=captured") > i })
	}
	b.put("f", "5")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the watch: %v: %s", err, &log)
	}
	c := newSandbox(t, server, "t")
	c.restore()
	c.has(map[string]string{"f": "5"})
}

// TestBareContainerWithAPlaceToRemember names a directory for what is remembered,
// and has one that is found without a name.
func TestBareContainerWithAPlaceToRemember(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	for dir, env := range map[string]string{"state": "CAIRN_STATE_DIR=/state", "tmp": "", "home": "HOME=/home", "dev": ""} {
		b := newBare(t, server)
		if dir == "dev" {
			if err := os.Mkdir(filepath.Join(b.root, "dev"), 0o755); err != nil {
				t.Fatal(err)
			}
			dir = "dev/shm"
		}
		b.writable(dir)
		b.env = append(b.env, env, "CAIRN_THREAD="+dir, "CAIRN_TOKEN="+server.Token(harness.Grant{Thread: dir}))
		b.put("f", "1")
		if r := b.want(0, "capture"); r.stderr != "" {
			t.Errorf("with %s: %q", dir, r.stderr)
		}
		b.put("f", "2")
		b.want(0, "capture")
		b.put("f", "3")
		b.want(0, "restore")
		b.want(0, "restore", "--undo")
		if text, err := os.ReadFile(filepath.Join(b.root, "workspace/f")); err != nil || string(text) != "3" {
			t.Errorf("with %s: %q after an undo (%v)", dir, text, err)
		}
	}
}

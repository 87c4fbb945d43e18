package docs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// TestDemo runs what `make demo` runs: it ends by itself, says what it shows, and
// leaves nothing.
func TestDemo(t *testing.T) {
	stage := t.TempDir()
	cmd := exec.Command("bash", "../demo/demo.sh", harness.Binary(t))
	cmd.Env = append(os.Environ(), "TMPDIR="+stage)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, out)
	}
	for _, want := range []string{"A Cairn server is up", "denied by policy", "A dies", "Sandbox B", "rejected", "409 precondition_failed", "Nothing of B's work is lost",
		"nothing changed since", "the files are back", "notes.md: Half of the index", "refused: the head of thread", "Nothing of D's work is lost"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
	if strings.Contains(string(out), "eyJ") {
		t.Error("the demo prints a token")
	}
	if left, err := os.ReadDir(stage); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v (%v)", left, err)
	}
}

// TestVersionIsStamped compares what the Makefile stamps with what the program
// says.
func TestVersionIsStamped(t *testing.T) {
	plan, err := exec.Command("make", "-n", "-C", "../..", "build", "VERSION=v9.8.7").CombinedOutput()
	if err != nil {
		t.Fatalf("make -n build: %v\n%s", err, plan)
	}
	if want := "-X github.com/cairnstate/cairn/internal/cli.version=v9.8.7"; !strings.Contains(string(plan), want) {
		t.Errorf("make build does not pass %s:\n%s", want, plan)
	}
	if os.Getenv("CAIRN_BIN") != "" {
		return // built by others, under a name of theirs
	}
	if out, err := exec.Command(harness.Binary(t), "version").Output(); err != nil || string(out) != "cairn "+harness.Version+"\n" {
		t.Errorf("a program stamped %s says %q (%v)", harness.Version, out, err)
	}
}

package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines bounds a production file: longer ones hold more than one idea.
const maxLines = 520

func TestFilesStayReadable(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasSuffix(p.ImportPath, "test") {
			continue // a conformance suite: tests may be longer
		}
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(src, []byte("\n")); n > maxLines {
				t.Errorf("%s/%s has %d lines; split it at a noun", p.ImportPath, f, n)
			}
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestGofmt(t *testing.T) {
	if out := run(t, "gofmt", "-l", "api", "bench", "cmd", "internal", "sdk", "tests"); out != "" {
		t.Errorf("not formatted:\n%s", out)
	}
}

func TestVet(t *testing.T) { run(t, "go", "vet", "./...") }

func TestModuleIsTidy(t *testing.T) {
	if out := run(t, "go", "mod", "tidy", "-diff"); out != "" {
		t.Errorf("go.mod is not tidy:\n%s", out)
	}
}

// TestStaticcheck runs the analyser at the version pinned in tools/go.mod.
func TestStaticcheck(t *testing.T) {
	run(t, "go", "run", "-modfile=internal/lint/tools/go.mod", "honnef.co/go/tools/cmd/staticcheck", "-checks=SA*,S1*,ST1005,U1000", "./...")
}

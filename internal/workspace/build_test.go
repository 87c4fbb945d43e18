package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/tree"
)

// moved captures a directory, removes it, and restores it in its place: what built
// something there finds all as it was.
func moved(t *testing.T, dir string) {
	t.Helper()
	m := &tree.Memory{}
	root := capture(t, options(dir), m).Root
	want := snapshot(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	restored(t, dir, m, root, nil)
	compare(t, "restored", snapshot(t, dir), want)
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func touch(t *testing.T, path string) {
	t.Helper()
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
}

const makefile = `all: both.out alone.out
a.out: a.in ; cp a.in a.out
b.out: b.in ; cp b.in b.out
both.out: a.out b.out ; cat a.out b.out > both.out
alone.out: alone.in ; cp alone.in alone.out
`

func TestMakeDoesNoWorkAfterARestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	write(t, dir+"/Makefile", makefile)
	for _, name := range []string{"a", "b", "alone"} {
		write(t, dir+"/"+name+".in", name)
	}
	run(t, dir, "make")
	moved(t, dir)
	if out := run(t, dir, "make"); !strings.Contains(out, "Nothing to be done") {
		t.Errorf("after the restore make does: %s", out)
	}
	touch(t, dir+"/a.in")
	moved(t, dir)
	out := run(t, dir, "make")
	for command, want := range map[string]bool{"cp a.in": true, "cat a.out": true, "cp b.in": false, "cp alone.in": false} {
		if strings.Contains(out, command) != want {
			t.Errorf("after one input was touched, %q among what make does is %v, want %v: %s", command, !want, want, out)
		}
	}
}

func TestCargoDoesNoWorkAfterARestore(t *testing.T) {
	if _, err := exec.LookPath("cargo"); err != nil {
		t.Skipf("no cargo to build with: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "w")
	for path, text := range map[string]string{
		"Cargo.toml":         "[workspace]\nmembers = [\"lib\", \"other\", \"app\"]\nresolver = \"2\"\n",
		"lib/Cargo.toml":     "[package]\nname = \"words\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"lib/src/lib.rs":     "pub fn word() -> &'static str { \"cairn\" }\n",
		"other/Cargo.toml":   "[package]\nname = \"other\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"other/src/lib.rs":   "pub fn number() -> u8 { 7 }\n",
		"app/Cargo.toml":     "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nwords = { path = \"../lib\" }\n",
		"app/src/main.rs":    "fn main() { println!(\"{}\", words::word()); }\n",
		".cargo/config.toml": "[net]\noffline = true\n",
	} {
		write(t, dir+"/"+path, text)
	}
	// states returns what cargo says it did with each package.
	states := func() string {
		var all []string
		for line := range strings.Lines(run(t, dir, "cargo", "build", "--offline", "-v")) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "Fresh" || f[0] == "Compiling" || f[0] == "Dirty") {
				all = append(all, f[0]+" "+f[1])
			}
		}
		return strings.Join(all, ", ")
	}
	states()
	moved(t, dir)
	if got := states(); strings.Contains(got, "Compiling") || strings.Count(got, "Fresh") != 3 {
		t.Errorf("after the restore: %s", got)
	}
	touch(t, dir+"/lib/src/lib.rs")
	moved(t, dir)
	got := states()
	for _, want := range []string{"Compiling words", "Compiling app", "Fresh other"} {
		if !strings.Contains(got, want) {
			t.Errorf("after one file was touched: %s, want %s", got, want)
		}
	}
}

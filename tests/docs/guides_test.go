// Package docs_test runs every code block of the guides, in order, against a
// real server: what a guide says is what happens.
package docs_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// fence opens a code block: its language and, where the reader saves it as a
// file, the name.
var fence = regexp.MustCompile("^```(\\w+)(?: file=(\\S+))?$")

type block struct {
	lang, file, text string
	line             int
}

func blocks(t *testing.T, path string) []block {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []block
	var open *block
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		switch {
		case open == nil && strings.HasPrefix(line, "```"):
			m := fence.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("%s:%d: a code block must name its language", path, n)
			}
			open = &block{lang: m[1], file: m[2], line: n}
		case open != nil && line == "```":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: code block is not closed", path, open.line)
	}
	return out
}

// script turns a guide into one shell script. Blocks to read only ("text") are
// left out; every other language must be run or be written to a file.
func script(t *testing.T, path, dir string) string {
	t.Helper()
	var sh strings.Builder
	sh.WriteString("set -euo pipefail\n")
	ran := 0
	for _, b := range blocks(t, path) {
		switch {
		case b.file != "":
			name := filepath.Join(dir, b.file)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(b.text), 0o644); err != nil {
				t.Fatal(err)
			}
		case b.lang == "sh":
			fmt.Fprintf(&sh, "trap 'echo \"failed in the block at line %d\" >&2' ERR\n%s", b.line, b.text)
			ran++
		case b.lang != "text":
			t.Fatalf("%s:%d: a %q block is neither run nor written to a file", path, b.line, b.lang)
		}
	}
	if ran == 0 {
		t.Fatalf("%s has no block to run", path)
	}
	return sh.String()
}

func TestMain(m *testing.M) { harness.Main(m) }

// program returns a directory's worth of Cairn: the path of a file named cairn.
func program(t *testing.T) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "cairn")
	if err := os.Symlink(harness.Binary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestGuides(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := program(t)
	guides, err := filepath.Glob(root + "/docs/guides/*.md")
	if err != nil || len(guides) < 4 {
		t.Fatalf("found %d guides (%v)", len(guides), err)
	}
	for _, guide := range guides {
		t.Run(strings.TrimSuffix(filepath.Base(guide), ".md"), func(t *testing.T) {
			t.Parallel()
			run(t, root, bin, guide)
		})
	}
}

func run(t *testing.T, root, bin, guide string) {
	dir, home, data := t.TempDir(), t.TempDir(), t.TempDir()
	text := script(t, guide, dir)
	if strings.Contains(text, "node ") {
		install(t, guide, dir)
	}
	gomod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(root + "/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Replace(string(gomod), "module github.com/cairnstate/cairn", "module guide", 1) +
		"\nrequire github.com/cairnstate/cairn v0.0.0\nreplace github.com/cairnstate/cairn => " + root + "\n"
	for name, data := range map[string]string{"go.mod": module, "go.sum": string(sum), "guide.sh": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bin, "dev", "--data", data, "--listen", "127.0.0.1:0", "--", "bash", "guide.sh")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "HOME="+home,
		"GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOCACHE="+goEnv(t, "GOCACHE"), "GOFLAGS=-mod=mod",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Agent", "GIT_AUTHOR_EMAIL=agent@example.com", "GIT_COMMITTER_NAME=Agent", "GIT_COMMITTER_EMAIL=agent@example.com",
		"NODE_EXTRA_CA_CERTS="+filepath.Join(data, "tls", "ca.pem"),
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", guide, err, out)
	}
}

// install gives a guide the npm packages that it names.
func install(t *testing.T, guide, dir string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if !strings.Contains(string(text), "@cairnstate/tanstack-ai") {
		link(t, harness.Tool(t, "node", "node/node_modules"), modules)
		return
	}
	installed, adapter := harness.Tool(t, "typescript", "typescript/node_modules"), harness.Adapter(t)
	for _, name := range []string{"jose", "@tanstack/ai-sandbox-local-process"} {
		link(t, filepath.Join(installed, name), filepath.Join(modules, name))
	}
	// These are copied: node looks for what a module imports from where it really is.
	for name, from := range map[string]string{
		"@tanstack/ai-sandbox": "build/tanstack", "@cairnstate/tanstack-ai/dist": "dist",
	} {
		if err := os.CopyFS(filepath.Join(modules, name), os.DirFS(filepath.Join(adapter, from))); err != nil {
			t.Fatal(err)
		}
	}
	link(t, filepath.Join(adapter, "package.json"), filepath.Join(modules, "@cairnstate/tanstack-ai/package.json"))
}

func link(t *testing.T, old, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(old, path); err != nil {
		t.Fatal(err)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

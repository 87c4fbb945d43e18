package typescript_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// vitest runs files of sdk/typescript/test in a directory of harness.Adapter.
func vitest(t *testing.T, dir string, env []string, files ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join("node_modules", ".bin", "vitest"), append([]string{"run", "--no-color"}, files...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestAdapter builds the package as strictly as the compiler can and runs its tests:
// without a server; the rules of TanStack's store, on each engine; and what people
// do with it, in Node.js and in workerd, against the program.
func TestAdapter(t *testing.T) {
	dir := harness.Adapter(t)
	run := func(name string, files func(t *testing.T) (env string, args []string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, args := files(t)
			vitest(t, dir, []string{env}, args...)
		})
	}
	run("Alone", func(*testing.T) (string, []string) {
		return "CAIRN_TEST_CONTROL=", []string{"test/connection.test.ts", "test/errors.test.ts"}
	})
	for _, engine := range []string{"SQLite", "Postgres"} {
		run(engine, func(t *testing.T) (string, []string) {
			return "CAIRN_TEST_CONTROL=" + control(t, onEngine(t, engine)), []string{"test/store.test.ts"}
		})
	}
	run("Program", func(t *testing.T) (string, []string) {
		// One file after the other: a test has the server crash.
		return "CAIRN_TEST_CONTROL=" + control(t, &program{Server: harness.Serve(t, harness.Options{})}),
			[]string{"--no-file-parallelism", "test/server.test.ts", "test/walk.test.ts", "test/worker.test.ts"}
	})
}

// TestTanStackSuites runs TanStack's own suites: those of the installed package, or
// of the checkout of TanStack/ai that CAIRN_TANSTACK_AI names.
func TestTanStackSuites(t *testing.T) {
	suites, sources := "installed", os.Getenv("CAIRN_TANSTACK_AI")
	if !exportsSuites(t, harness.Tool(t, "typescript", "typescript/node_modules")) {
		if sources == "" {
			t.Skip("the installed @tanstack/ai-sandbox has no suites for checkpoints, and CAIRN_TANSTACK_AI names no checkout of TanStack/ai")
		}
		suites = "sources"
	}
	dir := harness.Adapter(t)
	if suites == "sources" {
		for part, from := range map[string]string{"sandbox": "ai-sandbox", "local-process": "ai-sandbox-local-process"} {
			to := filepath.Join(dir, "upstream", part)
			if err := os.CopyFS(to, os.DirFS(filepath.Join(sources, "packages", from, "src"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	env := []string{"CAIRN_TEST_CONTROL=" + control(t, onEngine(t, "SQLite")), "CAIRN_TANSTACK_SUITES=" + suites}
	vitest(t, dir, env, "test/upstream", "--no-file-parallelism")
}

// exportsSuites reports whether the installed package has suites for checkpoints.
func exportsSuites(t *testing.T, modules string) bool {
	t.Helper()
	installed := filepath.Join(modules, "@tanstack", "ai-sandbox")
	text, err := os.ReadFile(filepath.Join(installed, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Exports map[string]json.RawMessage `json:"exports"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	_, kit := manifest.Exports["./testkit"]
	_, err = os.Stat(filepath.Join(installed, "dist", "esm", "testkit", "checkpoint-conformance.js"))
	return kit && err == nil
}

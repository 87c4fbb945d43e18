package typescript_test

import (
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

// TestAdapterAlone builds the package as strictly as the compiler can and runs what
// needs no server.
func TestAdapterAlone(t *testing.T) {
	vitest(t, harness.Adapter(t), nil, "test/connection.test.ts", "test/errors.test.ts")
}

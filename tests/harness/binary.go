// Package harness runs the built cairn program, stock git and stock git's own
// HTTP server for the tests that look at Cairn from outside.
package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Version is what programs built here say they are.
const Version = "v0.0.0-test"

var build struct {
	sync.Once
	path string
	err  error
}

// Binary returns the path of the program: CAIRN_BIN when set, else one that the
// first call builds and Main removes.
func Binary(tb testing.TB) string {
	tb.Helper()
	build.Do(func() { build.path, build.err = Build(Version) })
	if build.err != nil {
		tb.Fatalf("build cairn: %v", build.err)
	}
	return build.path
}

// Build returns the path of the program: CAIRN_BIN when set, else one built into a
// directory of its own, which is the caller's to remove, and stamped with version.
func Build(version string) (string, error) {
	if path := os.Getenv("CAIRN_BIN"); path != "" {
		return filepath.Abs(path)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "cairn-binary-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cairn")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path,
		"-ldflags", "-X github.com/cairnstate/cairn/internal/cli.version="+version, "./cmd/cairn")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w: %s", err, out), os.RemoveAll(dir))
	}
	return path, nil
}

// Main runs a package's tests and removes the program that they built. It is
// what TestMain calls.
func Main(m *testing.M) {
	code := m.Run()
	if build.path != "" && os.Getenv("CAIRN_BIN") == "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
	os.Exit(code)
}

// Root is the directory of the project's go.mod, at or above the working
// directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find go.mod: no directory above the working directory has one")
		}
		dir = parent
	}
}

package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Adapter builds the TypeScript package in a fresh copy and returns the copy's
// directory: the package is package.json and dist, and build/tanstack is what stands
// for TanStack's package in tests.
func Adapter(tb testing.TB) string {
	tb.Helper()
	modules := Tool(tb, "typescript", "typescript/node_modules")
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	from, dir := filepath.Join(root, "sdk", "typescript"), tb.TempDir()
	for _, part := range []string{"src", "test"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(from, part))); err != nil {
			tb.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(from, "*.*s*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("npm", "run", "--silent", "pretest")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("the TypeScript adapter does not build: %v\n%s", err, out)
	}
	return dir
}

package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
)

type discard struct{}

func (discard) Put(context.Context, tree.Object) error { return nil }

// dirSource keeps objects as files.
type dirSource struct{ dir string }

func (s dirSource) name(d tree.Digest) string {
	return filepath.Join(s.dir, d.String()[:2], d.String())
}

func (s dirSource) Put(_ context.Context, o tree.Object) error {
	return os.WriteFile(s.name(o.Digest), o.Bytes, 0o644)
}

func (s dirSource) Get(_ context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	for _, d := range digests {
		b, err := os.ReadFile(s.name(d))
		if errors.Is(err, fs.ErrNotExist) {
			return &tree.MissingError{Digests: []tree.Digest{d}}
		}
		if err == nil {
			err = fn(d, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkProject measures a workspace of 60,000 files and 500 MB:
//
//	go test ./internal/workspace -run '^$' -bench Project -benchtime 1x
//
// beside a plain walk with lstat, and tar -x of the same files.
func BenchmarkProject(b *testing.B) {
	dir := b.TempDir()
	project := filepath.Join(dir, "project")
	if err := testkit.Project(project, 60_000, 500<<20); err != nil {
		b.Fatal(err)
	}
	src := dirSource{filepath.Join(dir, "objects")}
	for i := range 256 {
		if err := os.MkdirAll(src.name(tree.Digest{byte(i)})[:len(src.dir)+3], 0o755); err != nil {
			b.Fatal(err)
		}
	}
	tarball := filepath.Join(dir, "project.tar")
	if out, err := exec.Command("tar", "-cf", tarball, "-C", project, ".").CombinedOutput(); err != nil {
		b.Fatalf("tar: %v: %s", err, out)
	}
	root := capture(b, options(project), src).Root
	time.Sleep(trustAge)
	o := options(project)
	o.Cache = filepath.Join(dir, "cache")
	b.Run("scan/first", func(b *testing.B) {
		for b.Loop() {
			os.Remove(o.Cache)
			capture(b, o, discard{})
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/1e6, "MB-sys")
	})
	b.Run("scan/unchanged", func(b *testing.B) {
		for b.Loop() {
			capture(b, o, discard{})
		}
	})
	b.Run("walk", func(b *testing.B) {
		for b.Loop() {
			if err := filepath.WalkDir(project, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
	to := filepath.Join(dir, "to")
	cached := func(o *RestoreOptions) { o.Cache = filepath.Join(dir, "restored") }
	empty := func(b *testing.B) {
		b.StopTimer()
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.Run("restore/tar", func(b *testing.B) {
		for b.Loop() {
			empty(b)
			if out, err := exec.Command("sh", "-c", "mkdir "+to+" && tar -xf "+tarball+" -C "+to).CombinedOutput(); err != nil {
				b.Fatalf("tar: %v: %s", err, out)
			}
		}
	})
	b.Run("restore/empty", func(b *testing.B) {
		for b.Loop() {
			empty(b)
			restored(b, to, src, root, cached)
		}
	})
	b.Run("restore/equal", func(b *testing.B) {
		for b.Loop() {
			restored(b, to, src, root, cached)
		}
	})
	b.Run("restore/one-file", func(b *testing.B) {
		for b.Loop() {
			write(b, to+"/src/part-0000/file00.js", "changed")
			restored(b, to, src, root, cached)
		}
	})
}

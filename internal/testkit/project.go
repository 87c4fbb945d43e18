package testkit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Project writes files of bytes in all beneath dir, like a project with its
// dependencies: text of many small files and a few large ones, scripts, links to
// them, and times long ago. The same numbers give the same tree.
func Project(dir string, files, size int) error {
	rng := rand.New(rand.NewPCG(7, 7))
	var words [][]byte
	for range 4000 {
		w := make([]byte, 3+rng.IntN(9))
		for i := range w {
			w[i] = byte('a' + rng.IntN(26))
		}
		words = append(words, w)
	}
	past := time.Date(2024, 5, 1, 12, 0, 0, 123456789, time.UTC)
	const perPackage = 60
	for p := range (files + perPackage - 1) / perPackage {
		pkg := filepath.Join(dir, "node_modules", fmt.Sprintf("package-%04d", p))
		if p%10 == 0 {
			pkg = filepath.Join(dir, "src", fmt.Sprintf("part-%04d", p))
		}
		for i := range min(perPackage, files-p*perPackage) {
			folder := filepath.Join(pkg, []string{"", "lib", "lib/deep", "dist", "test/data"}[i%5])
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			n := int(float64(size/files) * rng.ExpFloat64())
			var b bytes.Buffer
			for b.Len() < n {
				b.Write(words[rng.IntN(len(words))])
				b.WriteByte(" \n.("[rng.IntN(4)])
			}
			name := filepath.Join(folder, fmt.Sprintf("file%02d.js", i))
			if err := os.WriteFile(name, b.Bytes(), []os.FileMode{0o644, 0o755}[(i+1)%2*(1-min(1, i%9))]); err != nil {
				return err
			}
			if err := os.Chtimes(name, past, past.Add(time.Duration(i)*time.Minute)); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "node_modules", ".bin"), 0o755); err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.Join(dir, "node_modules", ".bin"), filepath.Join(pkg, "file00.js"))
		if err != nil {
			return err
		}
		if err := os.Symlink(rel, filepath.Join(dir, "node_modules", ".bin", fmt.Sprintf("tool%04d", p))); err != nil {
			return err
		}
	}
	return nil
}

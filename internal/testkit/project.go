package testkit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// prose makes text that compresses as source code does: lines of words, frequent
// and rare ones, of which a package repeats many.
type prose struct {
	rng   *rand.Rand
	words [][]byte
	lines [][]byte // that a package repeats
}

func newProse() *prose {
	p := &prose{rng: rand.New(rand.NewPCG(7, 7))}
	for range 4000 {
		w := make([]byte, 2+p.rng.IntN(10))
		for i := range w {
			w[i] = "etaoinsrhldcumfpgwybvkxjqz_"[min(p.rng.IntN(27), p.rng.IntN(27))]
		}
		p.words = append(p.words, w)
	}
	return p
}

func (p *prose) line() []byte {
	b := bytes.Repeat([]byte("  "), p.rng.IntN(5))
	for range 1 + p.rng.IntN(9) {
		b = append(b, p.words[min(p.rng.IntN(4000), p.rng.IntN(4000), p.rng.IntN(4000))]...)
		b = append(b, []string{" ", ".", " = ", "(", ", ", ");"}[p.rng.IntN(6)]...)
	}
	return append(b, '\n')
}

// begin chooses the lines of another package.
func (p *prose) begin() {
	p.lines = p.lines[:0]
	for range 300 {
		p.lines = append(p.lines, p.line())
	}
}

func (p *prose) text(b *bytes.Buffer, size int) {
	for b.Len() < size {
		if p.rng.IntN(2) == 0 {
			b.Write(p.lines[p.rng.IntN(len(p.lines))])
		} else {
			b.Write(p.line())
		}
	}
}

// Project writes files of bytes in all beneath dir, like a project with its
// dependencies: text of many small files and a few large ones, scripts, links to
// them, and times long ago. The same numbers give the same tree.
func Project(dir string, files, size int) error {
	words := newProse()
	rng := words.rng
	past := time.Date(2024, 5, 1, 12, 0, 0, 123456789, time.UTC)
	const perPackage = 60
	for p := range (files + perPackage - 1) / perPackage {
		pkg := filepath.Join(dir, "node_modules", fmt.Sprintf("package-%04d", p))
		if p%10 == 0 {
			pkg = filepath.Join(dir, "src", fmt.Sprintf("part-%04d", p))
		}
		words.begin()
		for i := range min(perPackage, files-p*perPackage) {
			folder := filepath.Join(pkg, []string{"", "lib", "lib/deep", "dist", "test/data"}[i%5])
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			n := int(float64(size/files) * rng.ExpFloat64())
			var b bytes.Buffer
			words.text(&b, n)
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

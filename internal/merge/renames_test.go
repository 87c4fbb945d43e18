package merge_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// renames makes a history in which branches move files and directories, change
// what others move or delete, put files where others put directories, and merge
// across each other.
func renames(tb testing.TB, seed uint64, commits int) *repotest.Git {
	tb.Helper()
	h := &mover{r: rand.New(rand.NewPCG(seed, 2))}
	h.trees = append(h.trees, h.first())
	h.write(nil, h.trees[0])
	for mark := 2; mark <= commits; mark++ {
		first := h.pick()
		parents := []int{first}
		files := maps.Clone(h.trees[first-1])
		if other := h.pick(); other != first && h.r.IntN(3) == 0 {
			parents = append(parents, other)
			for path, text := range h.trees[other-1] {
				if h.r.IntN(2) == 0 {
					files[path] = text
				}
			}
			untangle(files)
		}
		for range 1 + h.r.IntN(4) {
			h.change(files)
		}
		h.trees = append(h.trees, files)
		h.write(parents, files)
	}
	g := repotest.NewGit(tb)
	g.Feed(h.out.Bytes(), "fast-import", "--quiet")
	return g
}

type mover struct {
	r     *rand.Rand
	out   bytes.Buffer
	trees []map[string]string // path to mode and content, by mark
}

// pick picks one of the last commits.
func (h *mover) pick() int {
	n := len(h.trees)
	return n - h.r.IntN(min(n, 12))
}

func (h *mover) text() string {
	var b strings.Builder
	kind := h.r.IntN(5)
	for i := range 20 {
		fmt.Fprintf(&b, "line %d of kind %d\n", i, kind)
	}
	fmt.Fprintf(&b, "one of a kind %d\n", h.r.IntN(1000))
	return b.String()
}

func (h *mover) first() map[string]string {
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("d%d/e%d/f%d", i%3, i%2, i)] = "100644" + h.text()
	}
	files["bin"] = "100644\x00\x01\x02" + h.text()
	files["link"] = "120000d0/e0/f0"
	files["sub"] = "1600001111111111111111111111111111111111111111"
	return files
}

func (h *mover) change(files map[string]string) {
	paths := slices.Sorted(maps.Keys(files))
	if len(paths) == 0 {
		files["again"] = "100644" + h.text()
		return
	}
	path := paths[h.r.IntN(len(paths))]
	entry := files[path]
	mode, text := entry[:6], entry[6:]
	switch h.r.IntN(12) {
	case 0, 1, 2: // a line
		if mode == "160000" {
			text = strings.Repeat(fmt.Sprint(1+h.r.IntN(8)), 40)
		} else if lines := strings.SplitAfter(text, "\n"); len(lines) > 1 {
			lines[h.r.IntN(len(lines)-1)] = fmt.Sprintf("changed %d\n", h.r.IntN(1000))
			text = strings.Join(lines, "")
		}
		files[path] = mode + text
	case 3: // the mode
		if mode == "100644" {
			files[path] = "100755" + text
		}
	case 4: // a new file
		files[fmt.Sprintf("d%d/e%d/n%d", h.r.IntN(4), h.r.IntN(3), h.r.IntN(20))] = "100644" + h.text()
	case 5:
		delete(files, path)
	case 6, 7: // one file moves
		delete(files, path)
		files[fmt.Sprintf("d%d/m%d", h.r.IntN(4), h.r.IntN(10))] = entry
	case 8, 9: // a directory moves
		dir, _, ok := strings.Cut(path, "/")
		if !ok {
			break
		}
		to := fmt.Sprintf("d%d", h.r.IntN(8))
		for _, p := range paths {
			if rest, in := strings.CutPrefix(p, dir+"/"); in && to != dir {
				files[to+"/"+rest] = files[p]
				delete(files, p)
			}
		}
	case 10: // a file where a directory is
		dir, _, ok := strings.Cut(path, "/")
		if !ok {
			break
		}
		for _, p := range paths {
			if strings.HasPrefix(p, dir+"/") {
				delete(files, p)
			}
		}
		files[dir] = "100644" + h.text()
	case 11: // a link where a file is
		if mode == "100644" {
			files[path] = "120000d1"
		}
	}
	untangle(files)
}

// untangle drops what lies below files.
func untangle(files map[string]string) {
	for _, p := range slices.Sorted(maps.Keys(files)) {
		for i, c := range p {
			if _, file := files[p[:i]]; c == '/' && file {
				delete(files, p)
			}
		}
	}
}

func (h *mover) write(parents []int, files map[string]string) {
	mark := len(h.trees)
	when := 1700000000 + 60*mark
	fmt.Fprintf(&h.out, "commit refs/heads/b%d\nmark :%d\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", mark, mark, when)
	for i, p := range parents {
		fmt.Fprintf(&h.out, "%s :%d\n", []string{"from", "merge"}[min(i, 1)], p)
	}
	h.out.WriteString("deleteall\n")
	for _, p := range slices.Sorted(maps.Keys(files)) {
		mode, text := files[p][:6], files[p][6:]
		if mode == "160000" {
			fmt.Fprintf(&h.out, "M 160000 %s %s\n", text, p)
			continue
		}
		fmt.Fprintf(&h.out, "M %s inline %s\ndata %d\n%s\n", mode, p, len(text), text)
	}
}

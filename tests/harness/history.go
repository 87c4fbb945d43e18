package harness

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// History is a generated bare repository.
type History struct {
	Git  Git
	Name string // directory name, also its path on a Backend that serves Root
	Root string
}

// Generate makes the bare repository root/name with a history that is a function
// of seed and size (commits): merges, octopus and criss-cross merges, renames,
// submodules, symbolic links, odd names, empty commits, tags of tags, deep and
// wide trees.
func Generate(tb testing.TB, root, name string, seed uint64, size int) History {
	tb.Helper()
	return generate(tb, root, name, seed, size, (*historyWriter).specials)
}

// GeneratePlain is Generate with nothing in the trees that only git itself can
// check out: no odd names, links or submodules.
func GeneratePlain(tb testing.TB, root, name string, seed uint64, size int) History {
	tb.Helper()
	return generate(tb, root, name, seed, size, (*historyWriter).shapes)
}

func generate(tb testing.TB, root, name string, seed uint64, size int, second func(*historyWriter, map[string]string)) History {
	tb.Helper()
	g := NewGit(tb).In(root)
	g.Run("init", "-q", "--bare", name)
	repo := g.In(name)
	w := &historyWriter{rand: rand.New(rand.NewPCG(seed, 0x5eed)), trees: map[int]map[string]string{}}
	w.history(size, func(tree map[string]string) { second(w, tree) })
	repo.Input(w.out.String(), "fast-import", "--quiet", "--force")
	repo.Run("symbolic-ref", "HEAD", "refs/heads/main")
	repo.Run("repack", "-adq", "--write-bitmap-index")
	repo.Run("commit-graph", "write", "--reachable")
	return History{Git: repo, Name: name, Root: root}
}

// historyWriter writes one fast-import stream.
type historyWriter struct {
	out   strings.Builder
	rand  *rand.Rand
	mark  int
	time  int
	trees map[int]map[string]string // commit mark → path → content, for choosing what to change
}

var oddNames = []string{
	"with space", "tab\there", "quote\"d", "back\\slash", "ünïcödé", "\xff\xfelatin", "-dash", "a.lock", "percent%2F", "new\nline",
	".hidden", "UPPER", "upper", "#hash", "semi;colon", "$dollar", "café", "日本語", "trailing.", "~tilde",
}

func (w *historyWriter) next() int {
	w.mark++
	return w.mark
}

// data writes a counted string.
func (w *historyWriter) data(s string) { fmt.Fprintf(&w.out, "data %d\n%s\n", len(s), s) }

func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// commit writes a commit with parents and lets change write its files; it
// returns the commit's mark.
func (w *historyWriter) commit(ref, message string, parents []int, change func(tree map[string]string)) int {
	mark := w.next()
	w.time += 60 + w.rand.IntN(3600)
	who := fmt.Sprintf("Agent %d <agent%d@example.com> %d %+05d", w.rand.IntN(4), w.rand.IntN(4), 1600000000+w.time, (w.rand.IntN(25)-12)*100)
	fmt.Fprintf(&w.out, "commit %s\nmark :%d\nauthor %s\ncommitter %s\n", ref, mark, who, who)
	w.data(message)
	tree := map[string]string{}
	for i, p := range parents {
		word := "merge"
		if i == 0 {
			word = "from"
			for path, content := range w.trees[p] {
				tree[path] = content
			}
		}
		fmt.Fprintf(&w.out, "%s :%d\n", word, p)
	}
	if change != nil {
		change(tree)
	}
	w.trees[mark] = tree
	w.out.WriteByte('\n')
	return mark
}

func (w *historyWriter) put(tree map[string]string, path, content string) {
	mode := "100644"
	if w.rand.IntN(10) == 0 {
		mode = "100755"
	}
	fmt.Fprintf(&w.out, "M %s inline %s\n", mode, quote(path))
	w.data(content)
	tree[path] = content
}

func (w *historyWriter) text(lines int) string {
	var b strings.Builder
	for range lines {
		fmt.Fprintf(&b, "line %d of %x\n", w.rand.IntN(50), w.rand.Uint64())
	}
	return b.String()
}

// paths lists a tree's files in a fixed order.
func paths(tree map[string]string) []string {
	out := make([]string, 0, len(tree))
	for p := range tree {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

// edit changes a few files: new ones, changed ones, renames and removals.
func (w *historyWriter) edit(tree map[string]string) {
	for range 1 + w.rand.IntN(4) {
		known := paths(tree)
		switch n := w.rand.IntN(10); {
		case n < 4 || len(known) == 0:
			w.put(tree, fmt.Sprintf("dir%d/sub%d/file%d.txt", w.rand.IntN(6), w.rand.IntN(6), w.rand.IntN(40)), w.text(1+w.rand.IntN(60)))
		case n < 8:
			path := known[w.rand.IntN(len(known))]
			w.put(tree, path, tree[path]+w.text(1+w.rand.IntN(3)))
		case n < 9:
			old := known[w.rand.IntN(len(known))]
			to := fmt.Sprintf("moved/%d/%s", w.rand.IntN(1000), filepath.Base(old))
			fmt.Fprintf(&w.out, "R %s %s\n", quote(old), quote(to))
			tree[to] = tree[old]
			delete(tree, old)
		default:
			old := known[w.rand.IntN(len(known))]
			fmt.Fprintf(&w.out, "D %s\n", quote(old))
			delete(tree, old)
		}
	}
}

// specials writes what is seldom in a tree but legal.
func (w *historyWriter) specials(tree map[string]string) {
	for i, name := range oddNames {
		w.put(tree, "odd/"+name, fmt.Sprintf("odd %d\n", i))
	}
	w.shapes(tree)
	fmt.Fprintf(&w.out, "M 120000 inline link\ndata 12\ndir0/target\n\n")
	fmt.Fprintf(&w.out, "M 120000 inline dangling\ndata 12\n../../absent\n")
	fmt.Fprintf(&w.out, "M 160000 %040x vendor/module\n", w.rand.Uint64())
}

// shapes writes trees that are deep or wide, and files that are empty or large.
func (w *historyWriter) shapes(tree map[string]string) {
	deep := strings.Repeat("d/", 60) + "bottom.txt"
	w.put(tree, deep, "deep\n")
	for i := range 700 {
		w.put(tree, fmt.Sprintf("wide/f%04d", i), fmt.Sprintf("wide %d\n", i))
	}
	w.put(tree, "empty", "")
	w.put(tree, "large.bin", w.text(8000))
}

func (w *historyWriter) history(size int, second func(tree map[string]string)) {
	const main = "refs/heads/main"
	tips := map[string]int{}
	tip := w.commit(main, "Begin", nil, func(tree map[string]string) { w.edit(tree) })
	tip = w.commit(main, "Add what is seldom", []int{tip}, second)
	tips[main] = tip
	commits := []int{tip}
	branch := 0
	for len(commits) < size {
		ref := main
		names := sortedRefs(tips)
		switch n := w.rand.IntN(20); {
		case n < 9: // go on somewhere
			ref = names[w.rand.IntN(len(names))]
			tips[ref] = w.commit(ref, fmt.Sprintf("Work %d\n\nOn %s.\n", len(commits), ref), []int{tips[ref]}, w.edit)
		case n < 12: // a new branch from somewhere
			branch++
			ref = fmt.Sprintf("refs/heads/topic/%d", branch)
			tips[ref] = w.commit(ref, "Branch off", []int{commits[w.rand.IntN(len(commits))]}, w.edit)
		case n < 13: // nothing changed
			tips[ref] = w.commit(ref, "", []int{tips[ref]}, nil)
		case n < 16: // a merge of two
			other := names[w.rand.IntN(len(names))]
			if other == ref {
				continue
			}
			tips[ref] = w.commit(ref, "Merge "+other, []int{tips[ref], tips[other]}, w.edit)
		case n < 17: // a criss-cross
			other := names[w.rand.IntN(len(names))]
			if other == ref {
				continue
			}
			a, b := tips[ref], tips[other]
			tips[ref] = w.commit(ref, "Cross", []int{a, b}, w.edit)
			commits = append(commits, tips[ref])
			ref = other
			tips[other] = w.commit(other, "Criss", []int{b, a}, w.edit)
		case n < 18: // an octopus
			parents := []int{tips[ref]}
			for _, other := range names {
				if other != ref && len(parents) < 5 {
					parents = append(parents, tips[other])
				}
			}
			tips[ref] = w.commit(ref, "Octopus", parents, w.edit)
		case n < 19: // a new root
			branch++
			ref = fmt.Sprintf("refs/heads/root/%d", branch)
			tips[ref] = w.commit(ref, "Another beginning", nil, w.edit)
		default: // a tag, and a tag of it
			w.tag(fmt.Sprintf("v%d", w.mark), commits[w.rand.IntN(len(commits))])
			continue
		}
		commits = append(commits, tips[ref])
	}
	w.tag("last", commits[len(commits)-1])
	for _, ref := range sortedRefs(tips) {
		fmt.Fprintf(&w.out, "reset %s\nfrom :%d\n\n", ref, tips[ref])
	}
	fmt.Fprintf(&w.out, "reset refs/tags/light\nfrom :%d\n\n", commits[len(commits)/2])
	w.out.WriteString("done\n")
}

func (w *historyWriter) tag(name string, target int) {
	for _, n := range []string{name, name + "-again"} {
		mark := w.next()
		fmt.Fprintf(&w.out, "tag %s\nmark :%d\nfrom :%d\ntagger Agent <agent@example.com> %d +0000\n", n, mark, target, 1600000000+w.time)
		w.data("Tag " + n + "\n")
		target = mark
	}
}

func sortedRefs(tips map[string]int) []string {
	out := make([]string, 0, len(tips))
	for ref := range tips {
		out = append(out, ref)
	}
	sort.Strings(out)
	return out
}

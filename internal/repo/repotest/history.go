package repotest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// oddNames are file names that have broken programs before.
var oddNames = []string{"a b", "ünïcode", "-dash", "tab\tname", "quo\"te", "back\\slash", "new\nline", "x.", "name.lock", "a-", "a.", "~", "*", "%2e"}

// History makes a repository with a history made at random from a seed: merges,
// octopus and criss-cross merges, renames, submodules, symbolic links, odd
// names, empty commits, tags of tags, trees and blobs, deep and wide trees, and
// dates that go backwards.
func History(tb testing.TB, seed uint64, commits int) *Git {
	tb.Helper()
	h := &history{g: NewGit(tb), r: rand.New(rand.NewPCG(seed, 1)), files: map[int][]string{}}
	for i := 1; i <= commits; i++ {
		h.commit(i)
	}
	h.out.WriteString("done\n")
	h.g.Feed(h.out.Bytes(), "fast-import", "--quiet", "--done", "--export-marks=marks")
	h.refs(commits)
	return h.g
}

type history struct {
	g     *Git
	r     *rand.Rand
	out   bytes.Buffer
	files map[int][]string // by mark
}

// content returns a file's text, which often resembles other files'.
func (h *history) content() []byte {
	var b bytes.Buffer
	for range h.r.IntN(60) {
		fmt.Fprintf(&b, "line %d of some text that deltas well\n", h.r.IntN(200))
	}
	if h.r.IntN(20) == 0 {
		for range 3000 {
			b.WriteByte(byte(h.r.Uint32()))
		}
	}
	return b.Bytes()
}

func (h *history) path() string {
	depth := h.r.IntN(4)
	if h.r.IntN(40) == 0 {
		depth = 12
	}
	parts := make([]string, 0, depth+1)
	for range depth {
		parts = append(parts, fmt.Sprintf("d%d", h.r.IntN(3)))
	}
	name := fmt.Sprintf("f%d", h.r.IntN(12))
	if h.r.IntN(10) == 0 {
		name = oddNames[h.r.IntN(len(oddNames))]
	}
	return strings.Join(append(parts, name), "/")
}

func quote(path string) string {
	return `"` + strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`, "\t", `\t`).Replace(path) + `"`
}

func (h *history) commit(mark int) {
	parents := h.parents(mark)
	when := 1700000000 + 60*mark
	if h.r.IntN(8) == 0 {
		when -= 60 * h.r.IntN(30)
	}
	fmt.Fprintf(&h.out, "commit refs/marks/m%d\nmark :%d\nauthor A <a@example.com> %d +0100\ncommitter C <c@example.com> %d +0000\ndata 4\nm%03d\n", mark, mark, when, when, mark%1000)
	var files []string
	for i, p := range parents {
		if i == 0 {
			fmt.Fprintf(&h.out, "from :%d\n", p)
			files = append(files, h.files[p]...)
			continue
		}
		fmt.Fprintf(&h.out, "merge :%d\n", p)
	}
	changes := h.r.IntN(4)
	if mark == 1 {
		changes = 30
	}
	for range changes {
		files = h.change(files)
	}
	h.out.WriteString("\n")
	h.files[mark] = files
}

// parents picks the parents of a commit: most often a late one.
func (h *history) parents(mark int) []int {
	if mark == 1 || h.r.IntN(50) == 0 {
		return nil
	}
	n := 1
	switch h.r.IntN(10) {
	case 0, 1:
		n = 2
	case 2:
		n = 2 + h.r.IntN(4)
	}
	var out []int
	for range n {
		p := max(1, mark-1-h.r.IntN(min(mark, 6)))
		if h.r.IntN(10) == 0 {
			p = 1 + h.r.IntN(mark-1)
		}
		fresh := true
		for _, q := range out {
			fresh = fresh && q != p
		}
		if fresh {
			out = append(out, p)
		}
	}
	return out
}

// change writes one change and returns the files there are then, some of which
// may be gone.
func (h *history) change(files []string) []string {
	pick := func() string { return files[h.r.IntN(len(files))] }
	path := h.path()
	switch k := h.r.IntN(20); {
	case k == 0:
		fmt.Fprintf(&h.out, "M 160000 %040x %s\n", h.r.Uint64()|1, quote(path+"-sub"))
	case k == 1:
		fmt.Fprintf(&h.out, "M 120000 inline %s\ndata 9\n../target\n", quote(path+"-link"))
	case k == 2 && len(files) > 5:
		fmt.Fprintf(&h.out, "D %s\n", quote(pick()))
	case k == 3:
		// Moves a whole directory.
		fmt.Fprintf(&h.out, "M 100644 inline \"moved/x/keep\"\ndata 1\n%d\nR \"moved/x\" %s\n", h.r.IntN(10), quote(fmt.Sprintf("m%d", h.r.IntN(5))))
	case k == 4:
		body := h.content()
		fmt.Fprintf(&h.out, "M 100755 inline %s\ndata %d\n%s\n", quote(path), len(body), body)
		return append(files, path)
	default:
		if len(files) > 0 && h.r.IntN(2) == 0 {
			path = pick()
		}
		body := h.content()
		fmt.Fprintf(&h.out, "M 100644 inline %s\ndata %d\n%s\n", quote(path), len(body), body)
		return append(files, path)
	}
	return files
}

// refs gives the repository branches, tags of all kinds and notes.
func (h *history) refs(commits int) {
	g := h.g
	var b bytes.Buffer
	at := func(i int) string { return fmt.Sprintf("refs/marks/m%d", i) }
	g.Run("update-ref", "refs/heads/main", at(commits))
	for i := range 6 {
		g.Run("update-ref", fmt.Sprintf("refs/heads/topic/%d", i), at(1+h.r.IntN(commits)))
	}
	for i := range 3 {
		g.Run("update-ref", fmt.Sprintf("refs/tags/light-%d", i), at(1+h.r.IntN(commits)))
	}
	tag := func(name, kind, id string) string {
		text := fmt.Sprintf("object %s\ntype %s\ntag %s\ntagger T <t@example.com> 1700000000 +0000\n\nmessage\n", id, kind, name)
		made := g.Feed([]byte(text), "mktag")
		g.Run("update-ref", "refs/tags/"+name, made)
		return made
	}
	main := g.Run("rev-parse", "refs/heads/main")
	one := tag("annotated", "commit", main)
	tag("of-tag", "tag", tag("inner", "tag", one))
	tag("old", "commit", g.Run("rev-parse", at(1+commits/2)))
	tag("of-tree", "tree", g.Run("rev-parse", "main^{tree}"))
	blob := g.Feed([]byte("a tagged blob\n"), "hash-object", "-w", "--stdin")
	tag("of-blob", "blob", blob)
	g.Run("update-ref", "refs/notes/commits", at(1+commits/3))
	for line := range strings.Lines(g.Run("for-each-ref", "--format=%(refname) %(objectname)", "refs/marks")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		if h.r.IntN(3) != 0 {
			fmt.Fprintf(&b, "delete %s %s\n", name, id)
		}
	}
	g.Feed(b.Bytes(), "update-ref", "--stdin")
	// What no ref reaches is not part of the history.
	g.Run("-c", "gc.pruneExpire=now", "gc", "--prune=now", "-q")
}

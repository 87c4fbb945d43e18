package tree

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// Source gives objects by their digests. It need not be trusted: what it gives is
// checked by those who read it through this package. It may be used at the same
// time.
type Source interface {
	// Get calls fn for each of digests, in any order but not at the same time;
	// b is valid during the call only. Digests that it does not have end in a
	// *MissingError, before or after others were given. An error of fn ends it
	// and is returned.
	Get(ctx context.Context, digests []Digest, fn func(d Digest, b []byte) error) error
}

// Checker is a Source that gives only bytes that are what their digests name.
type Checker interface {
	Source
	Checked()
}

// batch is how many objects one Get asks for. Directories have up to 4 MiB, few
// of them more than some kilobytes. The fewer are visited before what lies beneath
// them, the nearer to each other files are wanted that were stored together.
const batch = 64

// Fetch gets objects of src and gives those to fn whose bytes are what their
// digests name. It is an error if one is not given.
func Fetch(ctx context.Context, src Source, digests []Digest, fn func(d Digest, b []byte) error) error {
	want := make(map[Digest]bool, len(digests))
	for _, d := range digests {
		want[d] = true
	}
	list := make([]Digest, 0, len(want))
	for _, d := range digests {
		if want[d] {
			want[d] = false
			list = append(list, d)
		}
	}
	got := 0
	_, checked := src.(Checker)
	err := src.Get(ctx, list, func(d Digest, b []byte) error {
		seen, asked := want[d]
		if !asked || seen {
			return fmt.Errorf("object %s was given without being asked for", d)
		}
		if !checked && Sum(b) != d {
			return &CorruptError{Digest: d}
		}
		want[d] = true
		got++
		return fn(d, b)
	})
	if err != nil {
		return err
	}
	if got < len(list) {
		missing := &MissingError{}
		for _, d := range list {
			if !want[d] {
				missing.Digests = append(missing.Digests, d)
			}
		}
		return missing
	}
	return nil
}

// FetchOne returns one object of src.
func FetchOne(ctx context.Context, src Source, d Digest) (b []byte, err error) {
	err = Fetch(ctx, src, []Digest{d}, func(_ Digest, got []byte) error {
		b = slices.Clone(got)
		return nil
	})
	return b, err
}

// Node is a directory of a tree with its path: the name of its root, and names
// with slashes between them.
type Node struct {
	Path    string
	Digest  Digest
	Paged   bool
	Summary Summary
	first   string // of a page: the name it begins with
	next    string // of a page: the name the one after it begins with
	page    bool
	depth   int
}

// Page reports whether the node is one page of a large directory.
func (n Node) Page() bool { return n.page }

// place is where a directory that is still to be visited lies. Those beneath one
// directory share what is above them: a path may have half a million bytes, and is
// made when the directory is visited.
type place struct {
	up   *place
	name string // the whole path where up is nil
}

func (p *place) String() string {
	n := -1
	for q := p; q != nil; q = q.up {
		n += 1 + len(q.name)
	}
	b := make([]byte, n)
	for q := p; q != nil; q = q.up {
		n -= len(q.name)
		copy(b[n:], q.name)
		if n > 0 {
			n--
			b[n] = '/'
		}
	}
	return string(b)
}

// pending is a node whose path is not made yet.
type pending struct {
	Node
	at *place
}

// NodeOf returns the node of a directory's entry at path.
func NodeOf(path string, e *Entry) Node {
	return Node{Path: path, Digest: e.Dir, Paged: e.Paged, Summary: e.Summary, depth: strings.Count(path, "/")}
}

// Walk visits every directory beneath nodes and checks each object: its digest,
// its encoding, its place in order among the pages of its directory, the
// summaries, and the depth. visit gets entries of one directory in order of their
// names, those of a large one in several calls and any order; a directory is visited before
// what lies beneath it. Only the directories for which visit calls descend are
// walked; descend counts for entries of that call. Memory follows the width of
// the tree, not its size, and not the length of its paths.
func Walk(ctx context.Context, src Source, nodes []Node, visit func(dir Node, entries []Entry, descend func(e *Entry)) error) error {
	stack := make([]pending, 0, len(nodes))
	for _, n := range slices.Backward(nodes) {
		stack = append(stack, pending{n, &place{name: n.Path}})
	}
	for len(stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		cut := max(0, len(stack)-batch)
		todo := slices.Clone(stack[cut:])
		clear(stack[cut:])
		stack = stack[:cut]
		byDigest := make(map[Digest][]int, len(todo))
		digests := make([]Digest, 0, len(todo))
		for i, n := range todo {
			byDigest[n.Digest] = append(byDigest[n.Digest], i)
			digests = append(digests, n.Digest)
		}
		err := Fetch(ctx, src, digests, func(d Digest, b []byte) error {
			for _, i := range byDigest[d] {
				n := &todo[i]
				n.Path = n.at.String()
				more, err := n.expand(b, visit)
				if err != nil {
					return fmt.Errorf("directory %q: %w", clip(n.Path), err)
				}
				n.Path = ""
				stack = append(stack, more...)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clip shortens a path for people.
func clip(path string) string {
	const most = 4096
	if len(path) <= most {
		return path
	}
	return path[:most] + "..."
}

// expand decodes one object of a walk and returns the nodes that follow from it.
func (n *pending) expand(b []byte, visit func(Node, []Entry, func(*Entry)) error) (more []pending, err error) {
	if n.Paged {
		pages, err := DecodeIndex(b)
		if err != nil {
			return nil, err
		}
		nodes, err := n.pages(pages)
		more = make([]pending, len(nodes))
		for i := range nodes {
			more[i] = pending{nodes[i], n.at}
		}
		return more, err
	}
	entries, err := DecodeDir(b)
	if err != nil {
		return nil, err
	}
	if err := n.check(entries); err != nil {
		return nil, err
	}
	err = visit(n.Node, entries, func(e *Entry) {
		child := Node{Digest: e.Dir, Paged: e.Paged, Summary: e.Summary, depth: n.depth + 1}
		more = append(more, pending{child, &place{n.at, strings.Clone(e.Name)}})
	})
	return more, err
}

// pages returns the nodes of the pages of n, without their path.
func (n Node) pages(pages []Page) ([]Node, error) {
	var total Summary
	nodes := make([]Node, 0, len(pages))
	for i, p := range pages {
		total = total.Plus(p.Summary)
		node := Node{Digest: p.Digest, Summary: p.Summary, first: p.First, page: true, depth: n.depth}
		if i+1 < len(pages) {
			node.next = pages[i+1].First
		}
		nodes = append(nodes, node)
	}
	if total != n.Summary {
		return nil, invalid("a directory whose pages have other counts than its entry says")
	}
	slices.Reverse(nodes)
	return nodes, nil
}

// check compares the entries of n with what its entry or index says of them.
func (n Node) check(entries []Entry) error {
	var total Summary
	for i := range entries {
		total = total.Plus(entries[i].Counts())
		if entries[i].Type == Directory && n.depth >= MaxDepth {
			return invalid("more than %d directories lie within each other", MaxDepth)
		}
	}
	if total != n.Summary {
		return invalid("a directory with other counts than its entry says")
	}
	if !n.page {
		return nil
	}
	if len(entries) == 0 || entries[0].Name != n.first || n.next != "" && entries[len(entries)-1].Name >= n.next {
		return invalid("a page with names of another")
	}
	return nil
}

// Lookup returns the entry at path, which begins with the name of a root, or nil
// where there is none. It reads one object for each name, two in large
// directories.
func Lookup(ctx context.Context, src Source, t *Tree, path string) (*Entry, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	root, rest, _ := strings.Cut(path, "/")
	i, ok := slices.BinarySearchFunc(t.Roots, root, func(e Entry, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return nil, nil
	}
	at := &t.Roots[i]
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if at.Type != Directory {
			return nil, nil
		}
		next, err := lookupIn(ctx, src, NodeOf("", at), name)
		if next == nil || err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func lookupIn(ctx context.Context, src Source, n Node, name string) (*Entry, error) {
	b, err := FetchOne(ctx, src, n.Digest)
	if err != nil {
		return nil, err
	}
	if n.Paged {
		pages, err := DecodeIndex(b)
		if err != nil {
			return nil, err
		}
		i := sort.Search(len(pages), func(i int) bool { return pages[i].First > name })
		if i == 0 {
			return nil, nil
		}
		if b, err = FetchOne(ctx, src, pages[i-1].Digest); err != nil {
			return nil, err
		}
	}
	entries, err := DecodeDir(b)
	if err != nil {
		return nil, err
	}
	i, ok := slices.BinarySearchFunc(entries, name, func(e Entry, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return nil, nil
	}
	return &entries[i], nil
}

// Parts returns the chunks of a file. A file without a recipe has one, an empty
// one none.
func Parts(ctx context.Context, src Source, c Content) ([]Part, error) {
	if c.Size == 0 {
		return nil, nil
	}
	if !c.Chunked {
		return []Part{{c.Size, c.Digest}}, nil
	}
	b, err := FetchOne(ctx, src, c.Digest)
	if err != nil {
		return nil, err
	}
	return RecipeOf(c, b)
}

// RecipeOf decodes the recipe b of a file.
func RecipeOf(c Content, b []byte) ([]Part, error) {
	parts, err := DecodeRecipe(b)
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, p := range parts {
		total += p.Length
	}
	if total != c.Size {
		return nil, invalid("a recipe of %d bytes for a file of %d", total, c.Size)
	}
	return parts, nil
}

// Copy writes the contents of a file to w, one chunk at a time, and checks their
// sum. What was written before an error is part of the file, or not the file.
func Copy(ctx context.Context, src Source, c Content, w io.Writer) error {
	parts, err := Parts(ctx, src, c)
	if err != nil {
		return err
	}
	h := sha256.New()
	for _, p := range parts {
		err := Fetch(ctx, src, []Digest{p.Digest}, func(_ Digest, b []byte) error {
			if uint64(len(b)) != p.Length {
				return invalid("a chunk of %d bytes where the file has %d", len(b), p.Length)
			}
			h.Write(b)
			_, err := w.Write(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	if c.Size > 0 && Digest(h.Sum(nil)) != c.Sum {
		return invalid("a file whose chunks are not those of its sum")
	}
	return nil
}

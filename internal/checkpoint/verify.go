package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	// fetchBatch is how many objects are asked for at once.
	fetchBatch = 256
	// maxMissing is how many missing objects are told at most.
	maxMissing = 10_000
	// sizeBatch is how many chunks are looked up at once.
	sizeBatch = 4096
	// maxEntries bounds what a checkpoint may say that it holds.
	maxEntries = 1 << 28
	// maxWalked bounds the directories and recipes of one checkpoint that a thread does
	// not know, each counted for every depth that it is at: a few objects that name each
	// other many times are a tree of millions.
	maxWalked = 1 << 19
)

// verifier finds out whether all that a root reaches may be named by a thread: is
// known to it, or was received by an upload. It walks only what the thread does not
// know. Without known and received everything is walked, and nothing is refused.
type verifier struct {
	org      meta.OrgID
	content  *content.Store
	src      tree.Source
	known    *known
	received *content.Received
	open     bool // whatever is walked may be named

	walked   map[key]bool // roles of objects that were walked, or will be
	fresh    []freshKey   // what the thread will know
	distinct int          // of fresh when it was compacted last
	missing  map[tree.Digest]bool
	todo     []node
	sizes    []chunkSize // that are to be compared with what is stored
}

// chunkSize is how long a chunk is by what names it.
type chunkSize struct {
	digest tree.Digest
	bytes  uint64
}

// freshKey is a key that is new to the thread, with the bytes that it stands for.
type freshKey struct {
	key   key
	bytes uint64
}

// node is an object to be read, and what its parent says of it.
type node struct {
	kind    tree.Kind
	digest  tree.Digest
	summary tree.Summary
	content tree.Content // of a recipe
	page    bool
	first   string // of a page: the name it begins with
	next    string // and the one that the page after it begins with
	depth   int
}

func (n *node) role() key {
	switch {
	case n.kind == tree.Recipe:
		return roleKey(n.kind, n.digest, n.content.Size)
	case n.page:
		return roleKey(n.kind, n.digest, n.summary, uint64(n.depth), n.first, n.next)
	}
	// What is known at a depth may reach too deep from another one.
	return roleKey(n.kind, n.digest, n.summary, uint64(n.depth))
}

func (e *Engine) newVerifier(org meta.OrgID, k *known, received *content.Received) *verifier {
	return &verifier{
		org: org, content: e.cfg.Content, src: e.cfg.Content.Source(org), known: k, received: received,
		walked: make(map[key]bool), missing: make(map[tree.Digest]bool),
	}
}

// allowed reports whether the bytes of an object may be named. What may not is
// missing.
func (v *verifier) allowed(ctx context.Context, d tree.Digest) (bool, error) {
	if v.known == nil || v.open || v.known.has(bytesKey(d)) {
		return true, nil
	}
	if v.received != nil {
		if ok, err := v.received.Has(ctx, d); ok || err != nil {
			return ok, err
		}
	}
	if len(v.missing) < maxMissing {
		v.missing[d] = true
	}
	return false, nil
}

// learn notes that the bytes of an object will be known.
func (v *verifier) learn(d tree.Digest, bytes uint64) {
	if k := bytesKey(d); v.known == nil || !v.known.has(k) {
		v.note(k, bytes)
	}
}

// push has a node walked, unless the thread knows it in its role.
func (v *verifier) push(ctx context.Context, n node) error {
	role := n.role()
	if v.walked[role] || v.known != nil && v.known.has(role) {
		return nil
	}
	ok, err := v.allowed(ctx, n.digest)
	if err != nil || !ok {
		return err
	}
	if v.known != nil && len(v.walked) >= maxWalked {
		return refuse(InvalidEntry, "the checkpoint has more than %d directories and large files that are new to the thread", maxWalked)
	}
	v.walked[role] = true
	v.note(role, 0)
	v.todo = append(v.todo, n)
	return nil
}

// note notes a key that the thread will know. Those that were noted before are
// dropped from time to time.
func (v *verifier) note(k key, bytes uint64) {
	if len(v.fresh) == cap(v.fresh) && len(v.fresh) >= 2*v.distinct+1<<16 {
		v.compact()
		v.distinct = len(v.fresh)
	}
	v.fresh = append(v.fresh, freshKey{k, bytes})
}

func (v *verifier) compact() {
	slices.SortFunc(v.fresh, func(a, b freshKey) int { return slices.Compare(a.key[:], b.key[:]) })
	v.fresh = slices.CompactFunc(v.fresh, func(a, b freshKey) bool { return a.key == b.key })
}

// file notes the objects of a file's content.
func (v *verifier) file(ctx context.Context, c tree.Content) error {
	switch {
	case c.Size == 0:
		return nil
	case c.Chunked:
		return v.push(ctx, node{kind: tree.Recipe, digest: c.Digest, content: c})
	}
	return v.chunk(ctx, c.Digest, c.Size)
}

func (v *verifier) chunk(ctx context.Context, d tree.Digest, size uint64) error {
	ok, err := v.allowed(ctx, d)
	if !ok || err != nil {
		return err
	}
	v.learn(d, size)
	if v.known == nil {
		return nil // it was compared when it was appended
	}
	if v.sizes = append(v.sizes, chunkSize{d, size}); len(v.sizes) < sizeBatch {
		return nil
	}
	return v.compareSizes(ctx)
}

// compareSizes refuses chunks that are longer or shorter than what names them says.
func (v *verifier) compareSizes(ctx context.Context) error {
	digests := make([]tree.Digest, len(v.sizes))
	for i := range v.sizes {
		digests[i] = v.sizes[i].digest
	}
	stored, err := v.content.Lengths(ctx, v.org, digests)
	if err != nil {
		return err
	}
	for i, c := range v.sizes {
		switch {
		case stored[i] < 0 && len(v.missing) < maxMissing:
			v.missing[c.digest] = true
		case stored[i] >= 0 && uint64(stored[i]) != c.bytes:
			return fmt.Errorf("chunk %s has %d bytes and what names it says %d: %w", c.digest, stored[i], c.bytes, tree.ErrInvalid)
		}
	}
	v.sizes = v.sizes[:0]
	return nil
}

// root verifies a root object and returns what it holds. Objects that are missing
// are an Error with the code MissingObjects.
func (v *verifier) root(ctx context.Context, d tree.Digest) (tree.Summary, error) {
	var total tree.Summary
	ok, err := v.allowed(ctx, d)
	if err != nil {
		return total, err
	}
	if !ok {
		return total, v.refuse()
	}
	b, err := tree.FetchOne(ctx, v.src, d)
	if err != nil {
		return total, v.unread(err)
	}
	t, err := tree.DecodeRoot(b)
	if err != nil {
		return total, err
	}
	v.learn(d, uint64(len(b)))
	for i := range t.Roots {
		total = total.Plus(t.Roots[i].Counts())
	}
	if total.Entries > maxEntries || total.Bytes > math.MaxInt64 {
		return total, refuse(InvalidEntry, "the checkpoint says that it holds %d entries of %d bytes, more than can be", total.Entries, total.Bytes)
	}
	for i := range t.Roots {
		if err := v.entry(ctx, &t.Roots[i], 0); err != nil {
			return total, err
		}
	}
	if err := v.file(ctx, t.Links); err != nil {
		return total, err
	}
	if err := v.walk(ctx); err != nil {
		return total, err
	}
	if len(v.missing) > 0 {
		return total, v.refuse()
	}
	return total, v.links(ctx, t.Links)
}

// links checks the table of hard links.
func (v *verifier) links(ctx context.Context, c tree.Content) error {
	if c.Size == 0 {
		return nil
	}
	if c.Size > tree.MaxLinks {
		return fmt.Errorf("a table of hard links of %d bytes: %w", c.Size, tree.ErrInvalid)
	}
	var b sink
	if err := tree.Copy(ctx, v.src, c, &b); err != nil {
		return v.unread(err)
	}
	_, err := tree.DecodeLinks(b)
	return err
}

type sink []byte

func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

// entry notes what an entry names.
func (v *verifier) entry(ctx context.Context, e *tree.Entry, depth int) error {
	switch e.Type {
	case tree.File:
		return v.file(ctx, e.Content)
	case tree.Directory:
		if depth > tree.MaxDepth {
			return fmt.Errorf("more than %d directories lie within each other: %w", tree.MaxDepth, tree.ErrInvalid)
		}
		n := node{kind: tree.Dir, digest: e.Dir, summary: e.Summary, depth: depth}
		if e.Paged {
			n.kind = tree.Index
		}
		return v.push(ctx, n)
	}
	return nil
}

// walk reads all nodes that are to be walked.
func (v *verifier) walk(ctx context.Context) error {
	for len(v.todo) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		cut := max(0, len(v.todo)-fetchBatch)
		batch := slices.Clone(v.todo[cut:])
		v.todo = v.todo[:cut]
		byDigest := make(map[tree.Digest][]int, len(batch))
		digests := make([]tree.Digest, 0, len(batch))
		for i := range batch {
			d := batch[i].digest
			if byDigest[d] == nil {
				digests = append(digests, d)
			}
			byDigest[d] = append(byDigest[d], i)
		}
		err := tree.Fetch(ctx, v.src, digests, func(d tree.Digest, b []byte) error {
			v.learn(d, uint64(len(b)))
			for _, i := range byDigest[d] {
				if err := v.expand(ctx, &batch[i], b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return v.unread(err)
		}
	}
	return v.compareSizes(ctx)
}

// expand checks an object and notes what it names.
func (v *verifier) expand(ctx context.Context, n *node, b []byte) error {
	switch n.kind {
	case tree.Recipe:
		parts, err := tree.RecipeOf(n.content, b)
		if err != nil {
			return err
		}
		for _, p := range parts {
			if err := v.chunk(ctx, p.Digest, p.Length); err != nil {
				return err
			}
		}
		return nil
	case tree.Index:
		return v.index(ctx, n, b)
	}
	entries, err := tree.DecodeDir(b)
	if err != nil {
		return err
	}
	var total tree.Summary
	for i := range entries {
		total = total.Plus(entries[i].Counts())
		if err := v.entry(ctx, &entries[i], n.depth+1); err != nil {
			return err
		}
	}
	if total != n.summary {
		return fmt.Errorf("a directory with other counts than its entry says: %w", tree.ErrInvalid)
	}
	if n.page && (len(entries) == 0 || entries[0].Name != n.first || n.next != "" && entries[len(entries)-1].Name >= n.next) {
		return fmt.Errorf("a page with names of another: %w", tree.ErrInvalid)
	}
	return nil
}

func (v *verifier) index(ctx context.Context, n *node, b []byte) error {
	pages, err := tree.DecodeIndex(b)
	if err != nil {
		return err
	}
	var total tree.Summary
	for i, p := range pages {
		total = total.Plus(p.Summary)
		page := node{kind: tree.Dir, digest: p.Digest, summary: p.Summary, page: true, first: p.First, depth: n.depth}
		if i+1 < len(pages) {
			page.next = pages[i+1].First
		}
		if err := v.push(ctx, page); err != nil {
			return err
		}
	}
	if total != n.summary {
		return fmt.Errorf("a directory whose pages have other counts than its entry says: %w", tree.ErrInvalid)
	}
	return nil
}

// refuse says what is missing, in order.
func (v *verifier) refuse() error {
	e := &Error{Code: MissingObjects}
	for d := range v.missing {
		e.Missing = append(e.Missing, d)
	}
	slices.SortFunc(e.Missing, func(a, b tree.Digest) int { return slices.Compare(a[:], b[:]) })
	return e
}

// unread says what it means that an object which may be named cannot be read: for
// an append that it is to be sent again, otherwise corruption.
func (v *verifier) unread(err error) error {
	gone, ok := errors.AsType[*tree.MissingError](err)
	switch {
	case ok && v.known != nil:
		for _, d := range gone.Digests {
			v.missing[d] = true
		}
		return v.refuse()
	case ok:
		return fmt.Errorf("%w: %w", err, meta.ErrCorrupt)
	}
	return err
}

// finish returns the keys that the thread will know, and how many bytes of objects
// they stand for.
func (v *verifier) finish() (bytes int64, list []key) {
	v.compact()
	total := uint64(0)
	list = make([]key, len(v.fresh))
	for i := range v.fresh {
		list[i] = v.fresh[i].key
		total = min(total+v.fresh[i].bytes, math.MaxInt64)
	}
	return int64(total), list
}

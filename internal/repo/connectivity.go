package repo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/odb"
)

// MissingError refuses a pack or a ref that names an object which is neither in
// the pack nor reachable in the repository. It does not tell whether the object
// exists.
type MissingError struct{ ID object.ID }

func (e *MissingError) Error() string { return fmt.Sprintf("missing necessary objects: %s", e.ID) }

// LinkError refuses a pack in which an object is named as what it is not.
type LinkError struct {
	ID   object.ID
	Want object.Type
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("object %s is named as a %s and is none", e.ID, e.Want)
}

// link is an object that an object of a new pack names, with the type that it
// must have.
type link struct {
	id  object.ID
	typ object.Type
	// modules says that a tree calls it .gitmodules.
	modules bool
}

// Bounds of what the checks of a new pack keep in memory.
const (
	linksInMemory  = 1 << 15 // before they go to a scratch file
	recentLinks    = 1 << 14 // for leaving out repetitions
	externalBatch  = 1 << 12 // looked up in the repository at once
	maxBoundary    = 1 << 12 // commits; with more a pack is not called exact
	maxUnexplained = 1 << 16 // trees and blobs outside the pack, likewise
	linkLen        = object.Size + 1
)

// modulesFlag is set in the code of a link whose modules is.
const modulesFlag = 0x80

// code is what the log has of a link besides its ID.
func (k link) code() byte {
	if k.modules {
		return byte(k.typ) | modulesFlag
	}
	return byte(k.typ)
}

// linkOf reads what the log has of a link.
func linkOf(b []byte) link {
	code := b[object.Size]
	return link{object.ID(b), object.Type(code &^ modulesFlag), code&modulesFlag != 0}
}

// linkLog records what the objects of a pack name while they are received, in
// bounded memory. It is not safe for concurrent use; Close must be called.
type linkLog struct {
	scratch string // directory
	recent  []link // direct-mapped by the first bytes of the ID
	buf     []byte
	file    *scratch
}

// add records the links of one object, which object.Check accepts.
func (l *linkLog) add(t object.Type, data []byte) error { return eachLink(t, data, l.record) }

// eachLink yields what an object names, but for the commits of submodules,
// which are elsewhere.
func eachLink(t object.Type, data []byte, yield func(link) error) error {
	switch t {
	case object.Commit:
		var some [2]object.ID
		tree, parents, _, err := object.CommitLinks(data, some[:0])
		if err != nil {
			return err
		}
		for _, p := range parents {
			if err := yield(link{id: p, typ: object.Commit}); err != nil {
				return err
			}
		}
		return yield(link{id: tree, typ: object.Tree})
	case object.Tree:
		it := object.TreeEntries(data)
		for {
			e, ok := it.Next()
			if !ok {
				return it.Err()
			}
			if typ := e.Mode.Type(); typ != object.Commit {
				if err := yield(link{e.ID, typ, typ == object.Blob && object.IsGitmodules(e.Name)}); err != nil {
					return err
				}
			}
		}
	case object.Tag:
		id, typ, err := object.TagTarget(data)
		if err != nil {
			return err
		}
		return yield(link{id: id, typ: typ})
	}
	return nil
}

func (l *linkLog) record(k link) error {
	if l.recent == nil {
		l.recent = make([]link, recentLinks)
	}
	slot := &l.recent[(int(k.id[0])<<8|int(k.id[1]))%recentLinks]
	if *slot == k {
		return nil
	}
	*slot = k
	l.buf = append(append(l.buf, k.id[:]...), k.code())
	if len(l.buf) < linksInMemory*linkLen {
		return nil
	}
	if l.file == nil {
		f, err := newScratch(l.scratch)
		if err != nil {
			return err
		}
		l.file = f
	}
	if _, err := l.file.Write(l.buf); err != nil {
		return err
	}
	l.buf = l.buf[:0]
	return nil
}

// each yields all links; some may come more than once.
func (l *linkLog) each(yield func(link) error) error {
	if l.file != nil {
		r := bufio.NewReaderSize(io.NewSectionReader(l.file, 0, l.file.size), 1<<16)
		var b [linkLen]byte
		for {
			_, err := io.ReadFull(r, b[:])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read scratch file: %w", err)
			}
			if err := yield(linkOf(b[:])); err != nil {
				return err
			}
		}
	}
	for b := l.buf; len(b) > 0; b = b[linkLen:] {
		if err := yield(linkOf(b)); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the scratch file.
func (l *linkLog) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// connection is the result of checking that a pack is complete: whatever an
// object of it names is in it or reachable in the repository. By induction all
// that a tip in the pack reaches is then there, without a walk.
type connection struct {
	view  *View
	db    *odb.DB // of the view
	index *pack.Index
	types []object.Type // by index position

	// named marks the positions that some object of the pack names. What is
	// not marked is reached only if a ref points to it.
	named []uint64
	// modules marks likewise the blobs that are called .gitmodules; nil for none.
	modules []uint64
	// boundary are the commits and tags outside the pack that it names.
	boundary map[object.ID]struct{}
	// unexplained are the trees and blobs outside the pack that it names.
	unexplained map[object.ID]struct{}
	// countless says that there were too many to tell whether the pack is exact.
	countless bool
	// outsideModules are those of a batch that are called .gitmodules.
	outsideModules map[object.ID]struct{}
}

// connect checks a received pack against the repository. The error is a
// *MissingError or *LinkError when the pack is to be refused.
func connect(ctx context.Context, v *View, db *odb.DB, index *pack.Index, types []object.Type, links *linkLog) (*connection, error) {
	c := &connection{
		view: v, db: db, index: index, types: types,
		named:       make([]uint64, (index.Count()+63)/64),
		boundary:    make(map[object.ID]struct{}),
		unexplained: make(map[object.ID]struct{}),

		outsideModules: make(map[object.ID]struct{}),
	}
	outside := make(map[object.ID]object.Type, 64)
	err := links.each(func(k link) error {
		if pos, ok := index.Lookup(k.id); ok {
			if types[pos] != k.typ {
				return &LinkError{ID: k.id, Want: k.typ}
			}
			c.named[pos/64] |= 1 << (pos % 64)
			if k.modules {
				c.markModules(pos)
			}
			return nil
		}
		if t, ok := outside[k.id]; ok && t != k.typ {
			return &LinkError{ID: k.id, Want: k.typ}
		}
		outside[k.id] = k.typ
		if k.modules {
			c.outsideModules[k.id] = struct{}{}
		}
		if len(outside) < externalBatch {
			return nil
		}
		return c.flush(ctx, outside)
	})
	if err == nil {
		err = c.flush(ctx, outside)
	}
	return c, err
}

func (c *connection) markModules(pos int) {
	if c.modules == nil {
		c.modules = make([]uint64, len(c.named))
	}
	c.modules[pos/64] |= 1 << (pos % 64)
}

// flush checks a batch of objects outside the pack and empties it.
func (c *connection) flush(ctx context.Context, outside map[object.ID]object.Type) error {
	if err := requireReachable(ctx, c.view, c.db, outside); err != nil {
		return err
	}
	for id := range c.outsideModules {
		if err := c.view.engine.checkModules(ctx, c.db, id); err != nil {
			return err
		}
	}
	clear(c.outsideModules)
	for id, want := range outside {
		set, limit := c.boundary, maxBoundary
		if want == object.Tree || want == object.Blob {
			set, limit = c.unexplained, maxUnexplained
		}
		if len(set) < limit {
			set[id] = struct{}{}
		} else {
			c.countless = true
		}
	}
	clear(outside)
	return nil
}

// requireReachable checks that objects are reachable in the repository and of
// the types that they are named as.
func requireReachable(ctx context.Context, v *View, db *odb.DB, want map[object.ID]object.Type) error {
	ids := make([]object.ID, 0, len(want))
	for id := range want {
		ids = append(ids, id)
	}
	missing, err := v.Reachable(ctx, ids...)
	if err != nil {
		return err
	}
	if !missing.IsZero() {
		return &MissingError{ID: missing}
	}
	for id, t := range want {
		got, err := db.Type(ctx, id)
		if err != nil {
			return err
		}
		if got != t {
			return &LinkError{ID: id, Want: t}
		}
	}
	return nil
}

// reachedBy reports whether refs at the tips reach every object of the pack,
// but for those of known, which others reach.
func (c *connection) reachedBy(tips, known map[object.ID]struct{}) bool {
	for pos := range c.index.Count() {
		if c.named[pos/64]&(1<<(pos%64)) != 0 {
			continue
		}
		id := c.index.ID(pos)
		_, tip := tips[id]
		_, base := known[id]
		if !tip && !base {
			return false
		}
	}
	return true
}

// anyKnown reports whether the repository's packs hold an object of the pack.
func (c *connection) anyKnown() bool {
	for pos := range c.index.Count() {
		if c.db.Has(c.index.ID(pos)) {
			return true
		}
	}
	return false
}

// explain reports whether every tree and blob outside the pack that it names is
// reached from the boundary too, as far as comparing the trees of its commits
// with those of their parents outside shows.
func (c *connection) explain(ctx context.Context, get func(ctx context.Context, id object.ID) ([]byte, error)) (bool, error) {
	if len(c.unexplained) == 0 {
		return true, nil
	}
	pairs, err := c.roots(ctx, get)
	if err != nil {
		return false, err
	}
	const maxPairs = 1 << 14
	seen := make(map[treePair]struct{}, len(pairs))
	for n := 0; len(pairs) > 0 && len(c.unexplained) > 0 && n < maxPairs; n++ {
		p := pairs[len(pairs)-1]
		pairs = pairs[:len(pairs)-1]
		if _, ok := seen[p]; ok {
			continue
		}
		seen[p] = struct{}{}
		deeper, err := c.compare(ctx, p, get)
		if err != nil {
			return false, err
		}
		pairs = append(pairs, deeper...)
	}
	return len(c.unexplained) == 0, nil
}

// treePair is a tree of the pack and the one of the repository that has its
// place in a parent.
type treePair struct{ fresh, base object.ID }

// roots pairs the trees of the pack's commits with those of their parents
// outside.
func (c *connection) roots(ctx context.Context, get func(ctx context.Context, id object.ID) ([]byte, error)) ([]treePair, error) {
	var pairs []treePair
	for pos, t := range c.types {
		if t != object.Commit {
			continue
		}
		data, err := get(ctx, c.index.ID(pos))
		if err != nil {
			return nil, err
		}
		tree, parents, _, err := object.CommitLinks(data, nil)
		if err != nil {
			return nil, err
		}
		for _, p := range parents {
			if _, ok := c.boundary[p]; !ok {
				continue
			}
			data, err := get(ctx, p)
			if err != nil {
				return nil, err
			}
			base, _, _, err := object.CommitLinks(data, nil)
			if err != nil {
				return nil, err
			}
			delete(c.unexplained, base)
			pairs = append(pairs, treePair{tree, base})
		}
		if len(pairs) > maxBoundary {
			return pairs, nil
		}
	}
	return pairs, nil
}

// compare strikes out what a tree of the pack shares with its counterpart, and
// returns the pairs below them.
func (c *connection) compare(ctx context.Context, p treePair, get func(ctx context.Context, id object.ID) ([]byte, error)) ([]treePair, error) {
	if _, ok := c.index.Lookup(p.fresh); !ok {
		return nil, nil
	}
	base, err := get(ctx, p.base)
	if err != nil {
		return nil, err
	}
	dirs := make(map[string]object.ID)
	for it := object.TreeEntries(base); ; {
		e, ok := it.Next()
		if !ok {
			break
		}
		delete(c.unexplained, e.ID)
		if e.Mode.IsDir() {
			dirs[string(e.Name)] = e.ID
		}
	}
	fresh, err := get(ctx, p.fresh)
	if err != nil {
		return nil, err
	}
	var deeper []treePair
	for it := object.TreeEntries(fresh); ; {
		e, ok := it.Next()
		if !ok {
			return deeper, it.Err()
		}
		if id, ok := dirs[string(e.Name)]; ok && e.Mode.IsDir() && id != e.ID {
			deeper = append(deeper, treePair{e.ID, id})
		}
	}
}

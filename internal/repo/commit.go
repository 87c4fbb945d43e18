package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// FileEdit puts a file at a path, or deletes what is there.
type FileEdit struct {
	Path string
	// Mode 0 keeps the mode of the file or link at Path, and is
	// object.ModeRegular where there is none.
	Mode   object.Mode
	Delete bool // also a folder with all that is in it
	// KeepEnds has lines end as those of the file at Path do, if all of those end
	// alike; else contents are stored byte for byte.
	KeepEnds bool
	// Content is closed. For object.ModeSymlink it is the link's target, for
	// object.ModeSubmodule the commit's ID in hexadecimal.
	Content *Content
}

// CommitRequest asks for one commit upon a branch.
type CommitRequest struct {
	TargetBranch    string // short name
	TargetEphemeral bool
	// BaseBranch is what a target that does not exist starts from; "" is none.
	BaseBranch    string
	BaseEphemeral bool
	// Expected is what the target must point to (the base, where the target does
	// not exist yet); zero says that the target must not exist, nil anything.
	Expected  *object.ID
	Message   string
	Author    object.Signature
	Committer object.Signature
	// Files are applied in turn: of several edits of one path the last wins.
	Files    []FileEdit
	Contents *Contents // nil when no file has content
	// Record, when set, makes the row that is kept for the request's
	// idempotency key; it is called before the commit is written.
	Record func(CommitResult) *meta.Idempotency
}

// CommitResult describes a commit that was written.
type CommitResult struct {
	Commit, Tree object.ID
	// Old is what the target pointed to, zero when it did not exist.
	Old       object.ID
	PackBytes int64
	Blobs     int // contents among the files
	Version   int64
}

// Commit writes one commit upon the tip of a branch. Without Expected it is
// made anew upon the new tip when the branch moves meanwhile. Refusals are those
// of Update, *NotFoundError, *NoChangesError and *InvalidError.
func (e *Engine) Commit(ctx context.Context, w Writer, v *View, req CommitRequest) (CommitResult, error) {
	c := commit{engine: e, writer: w, req: req}
	if err := c.prepare(); err != nil {
		return CommitResult{}, err
	}
	if req.Contents != nil {
		c.space = req.Contents.space
	}
	if c.space == nil {
		c.space = e.space(w, v.Repo().ID)
	}
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	defer done()
	unlock, err := e.lanes.lock(ctx, v.Repo().ID, c.target)
	if err != nil {
		return CommitResult{}, err
	}
	defer unlock()
	for range maxAttempts {
		v = e.newest(v)
		res, err := c.attempt(ctx, v)
		var stale *StaleError
		if !errors.As(err, &stale) {
			return res, err
		}
		if req.Expected != nil && stale.Current != *req.Expected {
			return CommitResult{}, err
		}
		if v, err = e.renew(ctx, v); err != nil {
			return CommitResult{}, err
		}
	}
	return CommitResult{}, &ConflictError{Ref: c.target}
}

// Bounds of what one commit may change, for it is put together in memory.
const (
	maxNames     = 150_000  // files, and the directories that hold them
	maxTreeBytes = 64 << 20 // new trees
)

// commit is one request while it is served.
type commit struct {
	engine *Engine
	writer Writer
	req    CommitRequest

	target string // full stored names
	base   string
	edit   edit
	names  int // that edit has
	space  odb.Space
	count  int // contents that are told
	blobs  map[object.ID]*Content
}

// prepare checks what does not depend on the repository.
func (c *commit) prepare() error {
	var err error
	if c.target, err = branchName(c.req.TargetBranch, c.req.TargetEphemeral); err != nil {
		return err
	}
	if c.req.BaseBranch != "" {
		if c.base, err = branchName(c.req.BaseBranch, c.req.BaseEphemeral); err != nil {
			return err
		}
	}
	if strings.TrimSpace(c.req.Message) == "" {
		return invalid("the commit message is empty")
	}
	c.blobs = make(map[object.ID]*Content)
	for i := range c.req.Files {
		if err := c.file(&c.req.Files[i]); err != nil {
			return err
		}
		if c.names > maxNames {
			return invalid("the commit changes more than %d files and directories: split it", maxNames)
		}
	}
	c.count = len(c.blobs)
	return nil
}

// file adds one edit.
func (c *commit) file(f *FileEdit) error {
	if err := object.CheckPath(f.Path); err != nil {
		return &InvalidError{Reason: err.Error()}
	}
	if f.Delete {
		c.names += c.edit.remove(f.Path)
		return nil
	}
	if err := checkModulesAt(f.Path, f.Mode, f.Content.open); err != nil {
		return err
	}
	switch f.Mode {
	case object.ModeSubmodule:
		id, err := object.ParseID(strings.TrimSpace(string(f.Content.head)))
		if err != nil || id.IsZero() || f.Content.Size() > headLen {
			return invalid("path %q: the content of a submodule is the 40 hexadecimal digits of its commit", f.Path)
		}
		c.names += c.edit.put(f.Path, leaf{f.Mode, id})
		return nil
	case object.ModeSymlink:
		if f.Content.Size() == 0 || f.Content.Size() > object.MaxPath || f.Content.hasNUL {
			return invalid("path %q: the target of a symbolic link has 1 to %d bytes and no NUL", f.Path, object.MaxPath)
		}
		link := []object.Entry{{Mode: f.Mode, Name: []byte(path.Base(f.Path)), ID: f.Content.ID()}}
		if err := object.Check(object.Tree, object.EncodeTree(link)); err != nil {
			return invalid("path %q: %v", f.Path, err)
		}
	case 0, object.ModeRegular, object.ModeExecutable:
	default:
		return invalid("path %q: mode %s is not one of 100644, 100755, 120000 and 160000", f.Path, f.Mode)
	}
	c.blobs[f.Content.ID()] = f.Content
	c.names += c.edit.put(f.Path, leaf{f.Mode, f.Content.ID()})
	return nil
}

// start says where the commit is to be made.
type start struct {
	old    object.ID // of the target; zero: it does not exist
	parent object.ID // zero: a root commit
}

// start finds the parent by the rules for targets and bases.
func (c *commit) start(v *View) (start, error) {
	tip := v.valueOf(c.target)
	expected := c.req.Expected
	if !tip.IsZero() {
		if expected != nil && *expected != tip {
			return start{}, &StaleError{Ref: c.target, Current: tip}
		}
		return start{tip, tip}, nil
	}
	if c.base != "" {
		base := v.valueOf(c.base)
		if base.IsZero() {
			return start{}, &NotFoundError{What: "branch", Name: c.req.BaseBranch}
		}
		if expected != nil && !expected.IsZero() && *expected != base {
			return start{}, &StaleError{Ref: c.base, Current: base}
		}
		return start{parent: base}, nil
	}
	if v.hasBranches() {
		return start{}, &NotFoundError{What: "branch", Name: c.req.TargetBranch}
	}
	if expected != nil && !expected.IsZero() {
		return start{}, &StaleError{Ref: c.target}
	}
	return start{}, nil
}

// attempt makes the commit upon one view.
func (c *commit) attempt(ctx context.Context, v *View) (CommitResult, error) {
	at, err := c.start(v)
	if err != nil {
		return CommitResult{}, err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	if slices.ContainsFunc(c.req.Files, func(f FileEdit) bool { return f.KeepEnds }) {
		var base object.ID
		if !at.parent.IsZero() {
			if base, err = c.engine.rootOf(ctx, db, at.parent); err != nil {
				return CommitResult{}, err
			}
		}
		if err := c.keepEnds(ctx, db, base); err != nil {
			return CommitResult{}, err
		}
	}
	return c.write(ctx, v, db, at)
}

// write makes the commit of the edit.
func (c *commit) write(ctx context.Context, v *View, db *odb.DB, at start) (CommitResult, error) {
	built, err := c.build(ctx, db, at)
	if err != nil {
		return CommitResult{}, err
	}
	f, err := c.pack(db, v.tidy(), built)
	defer f.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	if err != nil {
		return CommitResult{}, err
	}
	row, err := f.finish(ctx, v, built.commit())
	if err != nil {
		return CommitResult{}, err
	}
	res := CommitResult{Commit: built.id, Tree: built.tree, Old: at.old, PackBytes: row.Bytes, Blobs: c.count}
	u := Update{Refs: []RefUpdate{{Name: c.target, Old: at.old, New: built.id, descends: true}}, Pack: row, upon: db, made: built}
	if row.Inline {
		u.commits = []graph.Commit{built.commit()} // a large pack has its table stored
	}
	if c.req.Record != nil {
		u.Idempotency = c.req.Record(res)
	}
	out, err := c.engine.publish(ctx, c.writer, v, u, f.file, f.index)
	if err == nil {
		c.engine.roots.Put(built.id, built.tree, object.Size)
	}
	res.Version = out.Version
	return res, err
}

// built is a commit with the trees that it brings.
type built struct {
	id, tree object.ID
	parents  []object.ID
	time     int64 // of the committer
	data     []byte
	trees    []madeTree
	known    map[object.ID]struct{} // contents that the parent's trees name
}

func (b *built) commit() graph.Commit {
	return graph.Commit{ID: b.id, Tree: b.tree, Parents: b.parents, Time: b.time}
}

type madeTree struct {
	id   object.ID
	data []byte
}

// build makes the trees and the commit.
func (c *commit) build(ctx context.Context, db *odb.DB, at start) (*built, error) {
	b := &built{known: make(map[object.ID]struct{})}
	var parents []object.ID
	var base object.ID
	if !at.parent.IsZero() {
		parents = []object.ID{at.parent}
		var err error
		if base, err = c.engine.rootOf(ctx, db, at.parent); err != nil {
			return nil, err
		}
	}
	size := 0
	m := treeMaker{
		read: db.Tree,
		made: func(id object.ID, data []byte) error {
			if size += len(data); size > maxTreeBytes {
				return invalid("the commit needs more than %d bytes of new trees: split it", maxTreeBytes)
			}
			b.trees = append(b.trees, madeTree{id, data})
			return nil
		},
		kept: func(id object.ID) {
			if _, ok := c.blobs[id]; ok {
				b.known[id] = struct{}{}
			}
		},
	}
	b.parents = parents
	tree, n, err := m.apply(ctx, base, &c.edit)
	if err != nil {
		return nil, fmt.Errorf("make trees: %w", err)
	}
	if tree == base || (base.IsZero() && n == 0) {
		return nil, &NoChangesError{}
	}
	if n == 0 {
		b.trees = append(b.trees, madeTree{id: tree})
	}
	b.tree = tree
	return b, c.engine.encode(ctx, c.writer, b, object.CommitData{Author: c.req.Author, Committer: c.req.Committer, Message: c.req.Message})
}

// pack writes what the commit brings into a pack.
func (c *commit) pack(db *odb.DB, tidy bool, b *built) (*freshPack, error) {
	f := &freshPack{file: c.engine.cfg.ODB.NewPack(meta.PackInsert).Within(c.space), exact: true}
	// What is reachable already is left out. In a tidy repository that is all
	// that is listed; what the parent's trees name is known either way.
	fresh := func(id object.ID) bool {
		if _, ok := b.known[id]; ok {
			return false
		}
		if !db.Has(id) {
			return true
		}
		f.exact = false
		return !tidy
	}
	trees := slices.DeleteFunc(b.trees, func(t madeTree) bool { return !fresh(t.id) })
	var blobs []*Content
	for id, content := range c.blobs {
		if fresh(id) {
			blobs = append(blobs, content)
		}
	}
	f.exact = f.exact && !db.Has(b.id)
	count := 1 + len(trees) + len(blobs)
	w := pack.NewWriter(f.file, uint32(count))
	f.note(b.id)(w.Add(object.Commit, b.data))
	for _, t := range trees {
		f.note(t.id)(w.Add(object.Tree, t.data))
	}
	for _, content := range blobs {
		f.note(content.id)(w.AddCompressed(object.Blob, content.size, content.stream()))
	}
	return f, f.close(w)
}

// freshPack is a pack that Cairn wrote.
type freshPack struct {
	file    *odb.PackFile
	index   *pack.Index
	entries []pack.IndexEntry
	exact   bool
	err     error
}

// note returns what notes the outcome of writing an object.
func (f *freshPack) note(id object.ID) func(pack.Written, error) {
	return func(at pack.Written, err error) {
		f.err = cmp.Or(f.err, err)
		f.entries = append(f.entries, pack.IndexEntry{ID: id, Offset: at.Offset, CRC: at.CRC})
	}
}

// close ends the pack that w writes.
func (f *freshPack) close(w *pack.Writer) error {
	sum, err := w.Close()
	if err = cmp.Or(f.err, err); err != nil {
		return fmt.Errorf("write pack: %w", err)
	}
	if f.index, err = pack.ParseIndex(pack.BuildIndex(f.entries, sum)); err != nil {
		return fmt.Errorf("index pack: %w", err)
	}
	return nil
}

// finish makes the pack, which brings the commit, durable and returns its row.
func (f *freshPack) finish(ctx context.Context, v *View, commit graph.Commit) (*meta.PackWrite, error) {
	contents := odb.Contents{}
	if f.exact {
		contents = odb.Contents{Exact: true, Tips: []object.ID{commit.ID}, Boundary: commit.Parents}
	}
	var table []byte
	if f.file.Large() {
		near, err := v.Graph(ctx)
		if err != nil {
			return nil, err
		}
		table, err = graph.Encode(f.index, []graph.Commit{commit}, generations(near))
		if err != nil {
			return nil, fmt.Errorf("make commit table: %w", err)
		}
	}
	return f.file.Finish(ctx, f.index, table, contents)
}

// rootOf is treeOf for commits whose trees are asked for again and again.
func (e *Engine) rootOf(ctx context.Context, db *odb.DB, commit object.ID) (object.ID, error) {
	if tree, ok := e.roots.Get(commit); ok && db.Has(commit) {
		return tree, nil
	}
	tree, err := treeOf(ctx, db, commit)
	if err == nil {
		e.roots.Put(commit, tree, object.Size)
	}
	return tree, err
}

// treeOf returns the root tree of a commit.
func treeOf(ctx context.Context, db *odb.DB, commit object.ID) (object.ID, error) {
	_, data, err := db.Get(ctx, commit)
	if err != nil {
		return object.Zero, err
	}
	tree, _, _, err := object.CommitLinks(data, nil)
	if err != nil {
		return object.Zero, fmt.Errorf("read commit %s: %w", commit, err)
	}
	return tree, nil
}

// generations tells what a commit table needs of the commits outside its pack.
func generations(near *graph.Graph) func(object.ID) (uint32, bool) {
	return func(id object.ID) (uint32, bool) {
		n, ok := near.Node(id)
		if !ok {
			return 0, false
		}
		return near.Generation(n), true
	}
}

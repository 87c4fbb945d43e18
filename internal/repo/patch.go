package repo

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/patch"
	"github.com/cairnstate/cairn/internal/policy"
)

// The refusals of patches.
type (
	// PatchConflictError refuses a patch that does not fit the branch.
	PatchConflictError = patch.ConflictError
	// PatchMalformedError refuses what is no patch.
	PatchMalformedError = patch.MalformedError
	// PatchPathError refuses a patch of a path that no tree may have.
	PatchPathError = patch.PathError
)

// Bounds of a patch in bytes.
const (
	maxPatch      = 64 << 20
	patchInMemory = 256 << 10 // the rest lies in a scratch file
)

// Patch takes a patch while it arrives, in bounded memory. Close must be called.
type Patch struct {
	scratch string // directory
	mem     []byte
	file    *scratch
}

// NewPatch returns an empty patch.
func (e *Engine) NewPatch() *Patch { return &Patch{scratch: e.cfg.Scratch} }

// Write appends to the patch. One that gets too long is a *LimitError.
func (p *Patch) Write(b []byte) (int, error) {
	if p.Size()+int64(len(b)) > maxPatch {
		return 0, &LimitError{What: "bytes of diff", Limit: maxPatch}
	}
	if p.file == nil && len(p.mem)+len(b) <= patchInMemory {
		p.mem = append(p.mem, b...)
		return len(b), nil
	}
	if p.file == nil {
		f, err := newScratch(p.scratch)
		if err != nil {
			return 0, err
		}
		if p.file = f; len(p.mem) > 0 {
			if _, err := f.Write(p.mem); err != nil {
				return 0, err
			}
			p.mem = nil
		}
	}
	return p.file.Write(b)
}

// Size is the number of bytes written so far.
func (p *Patch) Size() int64 {
	if p.file != nil {
		return p.file.size
	}
	return int64(len(p.mem))
}

// Close releases everything.
func (p *Patch) Close() error {
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

func (p *Patch) reader() io.ReadSeeker {
	if p.file == nil {
		return bytes.NewReader(p.mem)
	}
	return io.NewSectionReader(p.file, 0, p.file.size)
}

// CommitPatch is Commit with a patch in place of Files and Contents. An empty one
// is a *NoChangesError. Refusals besides are *PatchMalformedError,
// *PatchPathError, *PatchConflictError and *LimitError.
func (e *Engine) CommitPatch(ctx context.Context, w Writer, v *View, req CommitRequest, p *Patch) (CommitResult, error) {
	c := patching{commit: commit{engine: e, writer: w, req: req}, patch: p}
	if err := c.prepare(); err != nil {
		return CommitResult{}, err
	}
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	defer done()
	return e.upon(ctx, v, c.target, req.Expected, c.attempt)
}

// patching is one request while it is served.
type patching struct {
	commit
	patch *Patch
}

// attempt makes the commit upon one view.
func (c *patching) attempt(ctx context.Context, v *View) (CommitResult, error) {
	at, err := c.start(v)
	if err != nil {
		return CommitResult{}, err
	}
	kind := policy.FastForward
	if at.old.IsZero() {
		kind = policy.Create
	}
	if err := c.engine.permitted(ctx, c.writer, v, c.target, kind); err != nil {
		return CommitResult{}, err
	}
	if c.patch.Size() == 0 {
		return CommitResult{}, &NoChangesError{}
	}
	db, err := v.DB(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	contents := c.engine.NewContents(ctx, c.writer, v.Repo())
	defer contents.Close() // scratch that nobody reads again
	c.space = contents.space
	if err := c.apply(ctx, db, at, contents); err != nil {
		return CommitResult{}, err
	}
	return c.write(ctx, v, db, at)
}

// apply makes the edit of what the patch changes.
func (c *patching) apply(ctx context.Context, db *odb.DB, at start, contents *Contents) (err error) {
	var tree object.ID
	if !at.parent.IsZero() {
		if tree, err = treeOf(ctx, db, at.parent); err != nil {
			return err
		}
	}
	applied, err := patch.Apply(ctx, patch.Application{
		DB: db, Tree: tree, Patch: c.patch.reader(), Git: c.engine.cfg.Tasks, Room: c.engine.room,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, applied.Close()) }()
	c.edit, c.names, c.count, c.blobs = edit{}, 0, 0, make(map[object.ID]*Content)
	for _, change := range applied.Changes {
		if change.Now.Mode == 0 {
			c.names += c.edit.remove(change.Path)
		}
	}
	for _, change := range applied.Changes {
		now := change.Now
		if now.Mode == 0 {
			continue
		}
		content := func() (int64, io.ReadCloser, error) { return applied.Content(ctx, now.ID) }
		if err := checkModulesAt(change.Path, now.Mode, content); err != nil {
			return err
		}
		c.names += c.edit.put(change.Path, leaf{now.Mode, now.ID})
		if c.names > maxNames {
			return invalid("the commit changes more than %d files and directories: split it", maxNames)
		}
		if now.Mode.Type() != object.Blob {
			continue
		}
		c.count++
		if c.blobs[now.ID] == nil && applied.Wrote(now.ID) {
			if c.blobs[now.ID], err = takeOver(ctx, applied, now.ID, contents); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeOver copies a content that git wrote, checked anew.
func takeOver(ctx context.Context, from *patch.Applied, id object.ID, contents *Contents) (*Content, error) {
	_, src, err := from.Content(ctx, id)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	to := contents.New()
	if _, err := io.Copy(to, src); err != nil {
		return nil, err
	}
	if err := to.Close(); err != nil {
		return nil, err
	}
	if to.ID() != id {
		return nil, errors.New("git wrote a content under an id that is not its own")
	}
	return to, nil
}

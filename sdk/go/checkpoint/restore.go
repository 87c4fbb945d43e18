package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// ErrForeignFolder is returned for a folder that a careful restore does not touch.
const ErrForeignFolder Code = "SANDBOX_SNAPSHOT_FOREIGN_FOLDER"

// RestoreParams say what is restored, and where.
type RestoreParams struct {
	Store  Store  // required
	Blobs  Blobs  // required
	Thread string // required
	// Checkpoint is an id; the head of the thread when empty.
	Checkpoint string

	// Handle is the sandbox that gets the files; nil for this machine.
	Handle Handle
	// Roots say where the roots of the checkpoint go; /workspace when empty. One without a name is the checkpoint's only
	// root, or "workspace".
	Roots []Root
	// Policy spares more paths than the one that is stored with the checkpoint.
	Policy *Policy
	// Secrets are written where the capture zeroed them.
	Secrets []Secret
	Owner   bool // restore owners and groups
	SetID   bool // restore set-id bits
	DryRun  bool // say what would be done, and do nothing

	// Careful refuses "/", the home directory, and a folder with something in it that the thread never captured or
	// restored, with ErrForeignFolder.
	Careful bool
	// NoUndo keeps nothing of what the restore replaces, so that Undo cannot bring it back. Else what the roots have is
	// captured into the state directory before the first change, objects that the thread has left out: as many bytes as a
	// capture would send. The next restore into these roots, and Undo, remove it.
	NoUndo bool

	// StateDir keeps what is remembered of roots; see CaptureParams.
	StateDir string
	// Progress is called from time to time, by one goroutine at a time.
	Progress func(Fetched)
}

// Restored is what a restore did, or in a dry run would do.
type Restored struct {
	Checkpoint *Checkpoint // nil for an undo to what was no checkpoint
	Written    Stats       // what was put in place
	Changed    List        // paths that were put in place, or whose metadata was set
	Removed    List        // top paths that were removed
	LeftOut    List        // what was not restored, and why
	// Forgotten says that no state directory can be used: the restore cannot be undone, and another process knows nothing of
	// it; a capture by one needs the checkpoint's id as its ExpectedHead.
	Forgotten bool
}

// Restore makes the roots equal to a checkpoint: what differs is replaced, what the checkpoint does not have is removed, and
// what its policy excludes stays. It returns nil, and does nothing, for a thread without checkpoints. Everything is fetched
// and verified before the first change; after a crash each file is the old or the new one, and another Restore completes
// it. Nothing else may write to the roots meanwhile. An id that the thread does not have ends in ErrMissingCheckpoint.
func Restore(ctx context.Context, p RestoreParams) (*Restored, error) {
	r, err := newRestore(&p)
	if err != nil {
		return nil, err
	}
	defer r.close()
	c, err := find(ctx, p.Store, p.Thread, p.Checkpoint)
	if c == nil || err != nil {
		return nil, err
	}
	root := c.Root
	if !c.Native() {
		var done func()
		if r.source, root, done, err = fromList(ctx, p.Blobs, c, p.Progress); err != nil {
			return nil, missingBlobs(err)
		}
		defer done()
		r.listed = true
	}
	stored, err := r.readRoot(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := r.open(ctx, stored); err != nil {
		return nil, err
	}
	if !p.DryRun && !r.undoable {
		if err := r.keep(ctx, stored); err != nil {
			return nil, fmt.Errorf("keep what the restore replaces, to undo it: %w", err)
		}
		r.kept = true
	}
	out, err := r.run(ctx, r.source, root, c.ID)
	if err != nil {
		return nil, err
	}
	out.Checkpoint = c
	return out, nil
}

// find returns a checkpoint of a thread, or its head for no id, or nil for a thread without checkpoints.
func find(ctx context.Context, store Store, thread, id string) (*Checkpoint, error) {
	given := id != ""
	if !given {
		var err error
		if id, err = store.Head(ctx, thread); id == "" || err != nil {
			return nil, err
		}
	}
	c, err := store.Get(ctx, id)
	missing := errors.Is(err, ErrMissingCheckpoint)
	switch {
	case missing && !given:
		return nil, &Error{Code: ErrCheckpointNotFound, Message: fmt.Sprintf("the head of thread %q is %q, which is not there", thread, id), Err: err}
	case missing || errors.Is(err, ErrInvalidID) || err == nil && c.Thread != thread:
		return nil, &Error{Code: ErrMissingCheckpoint, Message: fmt.Sprintf("thread %q has no checkpoint %q", thread, id)}
	}
	return c, err
}

// restore is one run.
type restore struct {
	*RestoreParams
	place  place
	id     string // of the handle
	source tree.Source
	listed bool // the checkpoint was written as a list
	state  *state
	// undoable says that an interrupted restore is completed, and that the state before it is kept; kept, that this one keeps
	// what it replaces.
	undoable, kept bool
}

func newRestore(p *RestoreParams) (*restore, error) {
	if err := checkTarget(p.Store, p.Blobs, p.Thread); err != nil {
		return nil, err
	}
	if len(p.Roots) == 0 {
		p.Roots = []Root{{Path: DefaultRootPath}}
	}
	p.Roots = slices.Clone(p.Roots)
	r := &restore{RestoreParams: p, source: newSource(p.Blobs, Scope{Thread: p.Thread}, p.Progress)}
	var err error
	r.place, r.id, err = placeOf(p.Handle)
	return r, err
}

func (r *restore) close() {
	if r.state != nil {
		r.state.close()
	}
}

// readRoot fetches a root object.
func (r *restore) readRoot(ctx context.Context, root Digest) (*tree.Tree, error) {
	b, err := tree.FetchOne(ctx, r.source, root)
	if err != nil {
		return nil, missingBlobs(err)
	}
	t, err := tree.DecodeRoot(b)
	return t, missingBlobs(err)
}

// open names the roots as the checkpoint does, and loads what is remembered of them.
func (r *restore) open(ctx context.Context, stored *tree.Tree) error {
	for i := range r.Roots {
		if r.Roots[i].Name == "" {
			if r.Roots[i].Name = DefaultRootName; len(stored.Roots) == 1 {
				r.Roots[i].Name = stored.Roots[0].Name
			}
		}
	}
	if err := r.openState(); err != nil {
		return err
	}
	if !r.Careful || r.DryRun {
		return nil
	}
	for _, root := range r.Roots {
		if err := r.guard(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

// openState loads what is remembered of the roots.
func (r *restore) openState() (err error) {
	use := restoring
	if r.DryRun {
		use = looking
	}
	if r.state, err = openState(r.StateDir, r.Store.Identity(), r.Thread, r.id, r.Roots, use); err != nil {
		return err
	}
	r.undoable, err = r.state.resumeUndo()
	return err
}

// guard refuses folders that are hardly meant.
func (r *restore) guard(ctx context.Context, root Root) error {
	real := r.state.place(root.Path)
	if home, err := os.UserHomeDir(); r.Handle == nil && (real == "/" || err == nil && real == resolve(home)) {
		return errorf(ErrForeignFolder, "%q is not restored into without being asked twice: files that the checkpoint does not have would be removed", root.Path)
	}
	if r.state.remembered(root.Path) {
		return nil
	}
	exists, empty, err := r.place.look(ctx, root.Path)
	if err != nil {
		return err
	}
	if exists && !empty {
		return errorf(ErrForeignFolder, "%q has files, and thread %q never captured or restored it: what the checkpoint does not have would be removed", root.Path, r.Thread)
	}
	return nil
}

// run makes the roots equal to what root names, and remembers that they are. head is its checkpoint, "" for none.
func (r *restore) run(ctx context.Context, src tree.Source, root Digest, head string) (*Restored, error) {
	before, known := slices.Clone(r.state.mem), slices.Clone(r.state.known)
	if !r.DryRun {
		if err := r.state.update(func(m *memory) { m.Restoring = cmp.Or(head, "nothing") }); err != nil {
			return nil, err
		}
	}
	cache := r.state.cache()
	if r.listed {
		cache = "" // the thread does not know the objects that were made of the list
	}
	out, err := r.place.restore(ctx, workspace.RestoreOptions{
		Roots: r.Roots, Policy: r.Policy, Secrets: r.Secrets, Owner: r.Owner, SetID: r.SetID, DryRun: r.DryRun, Cache: cache,
	}, src, root)
	if _, incomplete := errors.AsType[*workspace.IncompleteError](err); err != nil && !incomplete && !r.DryRun {
		return nil, errors.Join(restoreError(err), r.state.reset(before, known))
	}
	if r.kept {
		err = errors.Join(err, r.state.commitUndo())
	}
	if err != nil {
		return nil, restoreError(err)
	}
	if !r.DryRun {
		if err := r.state.update(func(m *memory) { m.Head, m.Pending, m.Restoring = head, nil, "" }); err != nil {
			return nil, err
		}
	}
	return &Restored{
		Written: Stats(out.Written), Changed: out.Changed, Removed: out.Removed, LeftOut: out.LeftOut, Forgotten: r.state.dir == "",
	}, nil
}

// restoreError turns errors of a restore into those of this package.
func restoreError(err error) error {
	if _, ok := errors.AsType[*workspace.SpareError](err); ok {
		return &Error{Code: ErrInvalidPath, Message: err.Error(), Err: err}
	}
	if _, ok := errors.AsType[*workspace.SpaceError](err); ok {
		return &Error{Code: ErrNoSpace, Message: err.Error(), Err: err}
	}
	if errors.Is(err, workspace.ErrInvalid) || errors.Is(err, ignore.ErrInvalid) {
		return &Error{Code: ErrInvalid, Message: err.Error(), Err: err}
	}
	return missingBlobs(err)
}

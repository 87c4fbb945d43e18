package checkpoint

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// undone is what the roots were before the last restore. The objects that the thread does not have lie beside it.
//
// It is kept beside what is remembered of the roots, in one directory that the next restore replaces: first under another
// name, until the restore begins to change the roots. Where that was interrupted, what the roots were before the first
// attempt stays, since the mixture that the next one finds is nothing to go back to.
type undone struct {
	Version int      `json:"version"`
	Root    string   `json:"root"`  // the root object
	Roots   []string `json:"roots"` // names of the roots that were there
	Heads   []memory `json:"heads"`
	Known   []bool   `json:"known"`
}

const (
	undoFile    = "undo.json"
	objectsFile = "objects"
)

// Undo makes the roots what they were before the last Restore into them, and with them what is remembered of the head that
// they came from. What that restore found and could not keep, such as sockets, does not come back. It fails with
// ErrNothingToUndo where no restore is remembered, after one with NoUndo, and after an Undo, which is not undone itself.
func Undo(ctx context.Context, p RestoreParams) (*Restored, error) {
	r, err := newRestore(&p)
	if err != nil {
		return nil, err
	}
	defer r.close()
	p.Roots = withDefaults(p.Roots)
	r.Roots = p.Roots
	if err := r.openState(); err != nil {
		return nil, err
	}
	was, err := r.loadUndo()
	if err != nil {
		return nil, err
	}
	kept, err := openPile(filepath.Join(r.state.undoDir(), objectsFile))
	if err != nil {
		return nil, err
	}
	defer kept.close()
	root, err := tree.ParseDigest(was.Root)
	if err != nil {
		return nil, err
	}
	r.Roots = slices.DeleteFunc(slices.Clone(r.Roots), func(x Root) bool { return !slices.Contains(was.Roots, x.Name) })
	out, err := r.run(ctx, &union{kept, r.source}, root, was.Heads[0].Head)
	if err != nil || p.DryRun {
		return out, err
	}
	return out, errors.Join(r.state.reset(was.Heads, was.Known), r.state.dropUndo())
}

// undoDir is where what a restore replaced is kept.
func (s *state) undoDir() string {
	return filepath.Join(s.dir, filepath.Base(s.cache())+".undo")
}

// freshUndoDir is where it is kept until the restore begins to change something.
func (s *state) freshUndoDir() string { return s.undoDir() + ".new" }

// dropUndo leaves nothing to be undone.
func (s *state) dropUndo() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.undoDir())
}

// commitUndo makes what keep kept what Undo goes back to; where it kept nothing, nothing is.
func (s *state) commitUndo() error {
	if err := s.dropUndo(); s.dir == "" || err != nil {
		return err
	}
	if err := os.Rename(s.freshUndoDir(), s.undoDir()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// interrupted reports whether a restore into the roots began and did not end.
func (s *state) interrupted() bool {
	return slices.ContainsFunc(s.mem, func(m memory) bool { return m.Restoring != "" })
}

// resumeUndo completes what an interrupted restore did about undoing it. It reports whether that can be undone.
func (s *state) resumeUndo() (bool, error) {
	if s.dir == "" || !s.interrupted() {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(s.freshUndoDir(), undoFile)); err == nil {
		if err := s.commitUndo(); err != nil {
			return false, err
		}
	}
	_, err := os.Stat(filepath.Join(s.undoDir(), undoFile))
	return err == nil, nil
}

// loadUndo reads what keep wrote.
func (r *restore) loadUndo() (*undone, error) {
	b, err := []byte(nil), fs.ErrNotExist
	if r.state.dir != "" {
		b, err = os.ReadFile(filepath.Join(r.state.undoDir(), undoFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errorf(ErrNothingToUndo, "no restore of thread %q into these roots is remembered that could be undone", r.Thread)
	}
	if err != nil {
		return nil, err
	}
	var was undone
	if err := json.Unmarshal(b, &was); err != nil || was.Version != memoryVersion || len(was.Heads) != len(r.Roots) || len(was.Known) != len(r.Roots) {
		return nil, errorf(ErrNothingToUndo, "what was kept to undo the restore cannot be read")
	}
	return &was, nil
}

// keep captures what is in the roots: the objects that the thread does not have go to the state directory.
func (r *restore) keep(ctx context.Context, stored *tree.Tree) error {
	if r.state.dir == "" {
		return nil
	}
	if err := os.RemoveAll(r.state.freshUndoDir()); err != nil {
		return err
	}
	if r.NoUndo {
		return r.state.dropUndo()
	}
	var there []Root
	was := undone{Version: memoryVersion, Heads: r.state.mem, Known: r.state.known}
	for _, root := range r.Roots {
		exists, _, err := r.place.look(ctx, root.Path)
		if err != nil {
			return err
		}
		if exists {
			there = append(there, root)
			was.Roots = append(was.Roots, root.Name)
		}
	}
	if there == nil {
		return r.state.dropUndo()
	}
	policy, err := ignore.Decode(stored.Policy)
	if err != nil {
		return err
	}
	fresh := r.state.freshUndoDir()
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	root, err := r.keepIn(ctx, fresh, there, policy)
	if err == nil {
		was.Root = root.String()
		var b []byte
		if b, err = json.Marshal(was); err == nil {
			err = writeFile(filepath.Join(fresh, undoFile), b)
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return nil
}

// keepIn captures into dir. What cannot be captured is left out: it cannot be brought back.
func (r *restore) keepIn(ctx context.Context, dir string, roots []Root, policy Policy) (root Digest, err error) {
	f, err := os.OpenFile(filepath.Join(dir, objectsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return root, err
	}
	defer f.Close()
	pile := &pileWriter{blobs: r.Blobs, w: bufio.NewWriterSize(f, 256<<10)}
	for refused := 0; ; refused++ {
		up := newUpload(ctx, pile, Scope{Thread: r.Thread}, false, nil)
		result, err := r.place.scan(up.ctx, workspace.ScanOptions{
			Roots: roots, Policy: policy, Links: workspace.KeepOutside, Secrets: r.Secrets, AllowShort: true,
			MarkMixed: true, Cache: r.state.cache(),
		}, up)
		if e, ok := errors.AsType[*workspace.RefusedError](err); ok && refused < 3 {
			up.abort(err)
			policy.Exclude = append(policy.Exclude, e.Excludes()...)
			continue
		}
		if err != nil {
			up.abort(err)
			return root, scanError(err)
		}
		defer result.Close()
		if _, err := up.finish(); err != nil {
			return root, err
		}
		if err := errors.Join(pile.w.Flush(), f.Sync()); err != nil {
			return root, err
		}
		return result.Root, nil
	}
}

// pileWriter appends the objects that blobs does not have to a file: the digest, the length, the bytes.
type pileWriter struct {
	blobs Blobs
	mu    sync.Mutex
	w     *bufio.Writer
}

func (p *pileWriter) Missing(ctx context.Context, at Scope, digests []Digest) ([]Digest, error) {
	return p.blobs.Missing(ctx, at, digests)
}

func (p *pileWriter) Put(_ context.Context, _ Scope, objects []Object) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range objects {
		head := binary.BigEndian.AppendUint32(o.Digest[:], uint32(len(o.Bytes)))
		if _, err := p.w.Write(head); err != nil {
			return err
		}
		if _, err := p.w.Write(o.Bytes); err != nil {
			return err
		}
	}
	return nil
}

func (p *pileWriter) Fetch(context.Context, Scope, []Digest, func(Digest, []byte) error) error {
	return errorf(ErrInvalid, "the pile is only written")
}

// pile reads what a pileWriter wrote.
type pile struct {
	f  *os.File
	at map[Digest]piece
}

type piece struct {
	at int64
	n  uint32
}

func openPile(path string) (*pile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	p := &pile{f: f, at: map[Digest]piece{}}
	r := bufio.NewReaderSize(f, 256<<10)
	for at := int64(0); ; {
		var head [36]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return p, nil
		} else if err != nil {
			f.Close()
			return nil, fmt.Errorf("read what was kept: %w", err)
		}
		n := binary.BigEndian.Uint32(head[32:])
		at += 36
		p.at[Digest(head[:32])] = piece{at, n}
		if _, err := r.Discard(int(n)); err != nil {
			f.Close()
			return nil, fmt.Errorf("read what was kept: %w", err)
		}
		at += int64(n)
	}
}

func (p *pile) close() { p.f.Close() }

// Get gives objects. See tree.Source.
func (p *pile) Get(_ context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	var missing []tree.Digest
	for _, d := range digests {
		place, ok := p.at[d]
		if !ok {
			missing = append(missing, d)
			continue
		}
		if place.n > tree.MaxLinks {
			return &tree.CorruptError{Digest: d}
		}
		b := make([]byte, place.n)
		if _, err := p.f.ReadAt(b, place.at); err != nil {
			return err
		}
		if err := fn(d, b); err != nil {
			return err
		}
	}
	if missing != nil {
		return &tree.MissingError{Digests: missing}
	}
	return nil
}

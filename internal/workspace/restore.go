package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// RestoreOptions say what is made equal to a checkpoint and how.
type RestoreOptions struct {
	Roots   []Root         // where the roots of the checkpoint go; others of it are left out
	Policy  *ignore.Policy // spares more paths than the checkpoint's own
	Secrets []Secret       // written where the capture zeroed them
	Owner   bool           // restore owners and groups
	SetID   bool           // restore set-id bits
	DryRun  bool           // plan only
	Cache   string         // path of the stat cache, outside the roots; none if empty
	Workers int            // files written in parallel; 0 chooses

	// step is called before each change of the file system; tests fail it.
	step func(op, path string) error
	// room says what a file system has left; tests answer otherwise.
	room func(path string) (space, error)
}

// Restored says what a restore did, or would do in a dry run.
type Restored struct {
	Tree    *tree.Tree
	Written tree.Summary // what was fetched and put in place
	Removed List         // top paths that were removed
	Changed List         // paths that were put in place, or whose metadata was set
	LeftOut List         // what was not restored, and why
}

// SpareError reports a path that the checkpoint has as something else than a
// directory while paths beneath it are to be spared.
type SpareError struct{ Path string }

func (e *SpareError) Error() string {
	return fmt.Sprintf("%q cannot be replaced: paths beneath it are excluded and stay; move them away", e.Path)
}

// IncompleteError reports that a restore ended after its first change: each file is
// the old or the new one. After any other error everything is as it was.
type IncompleteError struct{ Err error }

// Error says what to do.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("the restore is not complete, run it again: %v", e.Err)
}

// Unwrap returns the cause.
func (e *IncompleteError) Unwrap() error { return e.Err }

// restore is one run.
type restore struct {
	ctx     context.Context
	opts    RestoreOptions
	src     *dirCache
	roots   []*liveRoot
	stored  *ignore.Matcher
	given   *ignore.Matcher
	old     *cacheReader
	fresh   *cacheWriter
	secrets *searcher
	groups  map[string]*group
	out     *Restored

	planning  sync.Mutex           // guards what follows, groups and out, during the plan
	inodes    map[inode][]*placing // equal files that have several names, or should
	ops       []*placing           // files, links and fresh directories to put in place
	removes   []target
	replaces  bool        // something that is there is replaced
	learn     []tree.Node // directories whose records are made at the end
	fileMetas []dirMeta   // of files and links whose contents stay
	metas     []dirMeta   // of directories, parents first
}

// liveRoot is a root as it is now. fd is -1 while it does not exist.
type liveRoot struct {
	Root
	fd      int
	trail   trail // beneath fd
	entry   tree.Entry
	existed bool
	before  stat   // of a root that existed
	staging string // its name in the root, once it exists
	stageFD int
	bytes   uint64 // to be written
	entries uint64
}

// target is a path of a root.
type target struct {
	root *liveRoot
	path string // with the root's name
}

// rel is the path within the root, empty for the root itself.
func (t target) rel() string { return strings.TrimPrefix(t.path[len(t.root.Name):], "/") }

// placing is an entry that may have to be put in place.
type placing struct {
	target
	entry  tree.Entry
	staged string // its name in the staging directory
	group  *group
	dir    *liveDir
	meta   bool // more than the contents of what is there differs
	keep   bool // what is there stays
}

// dirMeta is an entry whose metadata is set in place.
type dirMeta struct {
	target
	entry tree.Entry
}

// Restore makes the directories of o equal to the checkpoint whose root object is
// root. Everything is checked, fetched and verified into a staging directory
// beneath each root before the first change; files are replaced whole. Excluded
// paths are spared. After an error or a crash each file is the old or the new
// one, and another Restore completes it. The end of ctx ends it before the first
// change or not at all. No other process may write to the
// directories meanwhile; if one does, nothing outside them is touched all the
// same.
func Restore(ctx context.Context, o RestoreOptions, src tree.Source, root tree.Digest) (*Restored, error) {
	r := &restore{ctx: ctx, opts: o, src: &dirCache{src: src}, out: &Restored{}, groups: map[string]*group{}, inodes: map[inode][]*placing{}}
	if r.opts.Workers <= 0 {
		r.opts.Workers = 2 * runtime.GOMAXPROCS(0)
	}
	if r.opts.room == nil {
		r.opts.room = room
	}
	defer r.close()
	if err := r.open(root); err != nil {
		return nil, err
	}
	if err := r.plan(); err != nil {
		return nil, fmt.Errorf("plan the restore: %w", err)
	}
	for _, t := range r.removes {
		if _, name := split(t.rel()); !strings.HasPrefix(name, StagingName) {
			r.out.Removed.Add(t.path, "")
		}
	}
	if o.DryRun {
		return r.out, nil
	}
	if err := r.stage(); err != nil {
		return nil, errors.Join(fmt.Errorf("fetch into the staging directory, nothing was changed yet: %w", err), r.abandon())
	}
	// What was begun is completed: it takes no more than renames, and half of it helps nobody.
	r.ctx = context.WithoutCancel(ctx)
	if err := r.apply(); err != nil {
		return nil, &IncompleteError{Err: err}
	}
	if r.ctx = ctx; ctx.Err() != nil {
		return r.out, nil // without the cache, which only saves time
	}
	if err := r.saveCache(); err != nil && ctx.Err() == nil {
		return nil, &IncompleteError{Err: err}
	}
	return r.out, nil
}

func (r *restore) close() {
	for _, root := range r.roots {
		root.trail.close()
		for _, fd := range []int{root.fd, root.stageFD} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	r.old.close()
	r.fresh.abort()
}

// open reads the root object and opens the directories that exist.
func (r *restore) open(root tree.Digest) error {
	b, err := tree.FetchOne(r.ctx, r.src.src, root)
	if err != nil {
		return err
	}
	t, err := tree.DecodeRoot(b)
	if err != nil {
		return err
	}
	r.out.Tree = t
	policy, err := ignore.Decode(t.Policy)
	if err != nil {
		return err
	}
	if r.stored, err = ignore.Compile(policy); err != nil {
		return err
	}
	if r.opts.Policy != nil {
		if r.given, err = ignore.Compile(*r.opts.Policy); err != nil {
			return err
		}
	}
	if r.secrets, err = newSearcher(r.opts.Secrets, true); err != nil {
		return err
	}
	if err := r.openRoots(t); err != nil {
		return err
	}
	if r.opts.Cache != "" {
		r.old = openCache(r.opts.Cache, r.secrets)
		if !r.opts.DryRun {
			if r.fresh, err = createCache(r.opts.Cache, r.secrets); err != nil {
				return err
			}
		}
	}
	return r.loadLinks(t)
}

func (r *restore) openRoots(t *tree.Tree) error {
	roots := slices.Clone(r.opts.Roots)
	for i := range roots {
		path, err := filepath.Abs(roots[i].Path)
		if err != nil {
			return err
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		roots[i].Path = path
	}
	if err := checkRoots(roots, r.opts.Cache); err != nil {
		return err
	}
	for _, root := range roots {
		i := slices.IndexFunc(t.Roots, func(e tree.Entry) bool { return e.Name == root.Name })
		if i < 0 {
			return fmt.Errorf("%w: the checkpoint has no root %q", ErrInvalid, root.Name)
		}
		l := &liveRoot{Root: root, fd: -1, stageFD: -1, entry: t.Roots[i]}
		r.roots = append(r.roots, l)
		var err error
		if l.fd, err = openDir(unix.AT_FDCWD, root.Path); err != nil {
			if l.fd = -1; !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("open the root %q: %w", root.Path, err)
			}
		}
		l.trail.root = l.fd
	}
	for _, e := range t.Roots {
		if !slices.ContainsFunc(roots, func(x Root) bool { return x.Name == e.Name }) {
			r.out.LeftOut.Add(e.Name, "a root that was not asked for")
		}
	}
	return nil
}

// split cuts the last name off a relative path.
func split(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}

// do runs one change of the file system.
func (r *restore) do(op, path string, change func() error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.opts.step != nil {
		if err := r.opts.step(op, path); err != nil {
			return err
		}
	}
	_, err := again(func() (int, error) { return 0, change() })
	if err != nil {
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// dirCache keeps directory objects that were read once, up to a bound, since a
// plan and what follows from it both read them.
type dirCache struct {
	src  tree.Source
	held map[tree.Digest][]byte
	size int
}

const dirCacheBytes = 48 << 20

// Get gives what digests name. It is for one goroutine.
func (c *dirCache) Get(ctx context.Context, digests []tree.Digest, fn func(d tree.Digest, b []byte) error) error {
	var rest []tree.Digest
	for _, d := range digests {
		if b, ok := c.held[d]; !ok {
			rest = append(rest, d)
		} else if err := fn(d, b); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	if c.held == nil {
		c.held = map[tree.Digest][]byte{}
	}
	return c.src.Get(ctx, rest, func(d tree.Digest, b []byte) error {
		if c.size+len(b) <= dirCacheBytes {
			c.held[d] = slices.Clone(b)
			c.size += len(b)
		}
		return fn(d, b)
	})
}

package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// ScanOptions say what a capture walks and how.
type ScanOptions struct {
	Roots      []Root
	Policy     ignore.Policy
	Links      LinkRule // of links that leave their root
	Secrets    []Secret
	AllowShort bool   // take secrets below 6 bytes
	MarkMixed  bool   // take a file that keeps changing and mark it; else the capture fails
	ReadOnce   bool   // do not read a file again that changed while it was read
	Cache      string // path of the stat cache, outside the roots; none if empty
	Workers    int    // files and directories looked at in parallel; 0 chooses
}

// ChangedError reports a file that kept changing while it was read.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%q kept changing while it was read; capture when nothing writes to it, or allow marked files", e.Path)
}

// Result is a finished capture.
type Result struct {
	Root    tree.Digest // the root object
	Tree    *tree.Tree  // what it holds
	LeftOut List        // what the policy and the options left out
	Mixed   List        // files that changed while they were read
	Read    tree.Summary
	cache   *cacheWriter
}

// SaveCache keeps what the capture learned for the next one. Call it when the
// receiver of the objects has confirmed them: the next capture puts no object
// that it finds in the cache.
func (r *Result) SaveCache() error { return r.cache.commit() }

// Close drops the cache unless it was saved.
func (r *Result) Close() { r.cache.abort() }

// scan is one walk.
type scan struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	opts    ScanOptions
	sink    Sink
	policy  *ignore.Matcher
	secrets *searcher
	old     *cacheReader
	fresh   *cacheWriter
	tokens  chan struct{}
	refused atomic.Bool // nothing is read any more; only offenders are gathered

	mu        sync.Mutex
	offenders List
	leftOut   List
	mixed     List
	read      tree.Summary
	linked    map[inode]*linkedFile
}

type inode struct{ dev, ino uint64 }

// Scan captures the roots of o: it puts every object that is not in the cache to
// sink, children before what names them, and the root last. Nothing beneath the
// roots is written. The Result must be closed.
func Scan(ctx context.Context, o ScanOptions, sink Sink) (*Result, error) {
	s, err := newScan(ctx, o, sink)
	if err != nil {
		return nil, err
	}
	defer s.cancel(nil)
	defer s.old.close()
	t, err := s.roots()
	if err == nil && s.offenders.Total > 0 {
		s.offenders.sort()
		err = &RefusedError{List: s.offenders}
	}
	var root tree.Digest
	if err == nil {
		root, err = s.finish(t, s.groups())
	}
	if err == nil && s.fresh != nil {
		err = s.fresh.finish()
	}
	if err != nil {
		s.fresh.abort()
		return nil, err
	}
	for _, l := range []*List{&s.leftOut, &s.mixed} {
		l.sort()
	}
	return &Result{Root: root, Tree: t, LeftOut: s.leftOut, Mixed: s.mixed, Read: s.read, cache: s.fresh}, nil
}

func newScan(ctx context.Context, o ScanOptions, sink Sink) (*scan, error) {
	o.Roots = slices.Clone(o.Roots)
	for i := range o.Roots {
		path, err := filepath.Abs(o.Roots[i].Path)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return nil, fmt.Errorf("find the root %q: %w", o.Roots[i].Name, err)
		}
		o.Roots[i].Path = path
	}
	slices.SortFunc(o.Roots, func(a, b Root) int { return strings.Compare(a.Name, b.Name) })
	if o.Cache != "" {
		path, err := filepath.Abs(o.Cache)
		if err != nil {
			return nil, err
		}
		o.Cache = path
	}
	if err := checkRoots(o.Roots, o.Cache); err != nil {
		return nil, err
	}
	if o.Workers <= 0 {
		o.Workers = 2 * runtime.GOMAXPROCS(0)
	}
	s := &scan{opts: o, sink: sink, linked: map[inode]*linkedFile{}, tokens: make(chan struct{}, o.Workers-1)}
	var err error
	if s.policy, err = ignore.Compile(o.Policy); err != nil {
		return nil, err
	}
	if s.secrets, err = newSearcher(o.Secrets, o.AllowShort); err != nil {
		return nil, err
	}
	if s.fresh, err = createCache(o.Cache, s.secrets); err != nil {
		return nil, err
	}
	if o.Cache != "" {
		s.old = openCache(o.Cache, s.secrets)
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s, nil
}

// fail ends the walk with its first error.
func (s *scan) fail(err error) {
	if err != nil {
		s.cancel(err)
	}
}

// spawn runs fn, beside the caller if a worker is free.
func (s *scan) spawn(wg *sync.WaitGroup, fn func()) {
	select {
	case s.tokens <- struct{}{}:
		wg.Go(func() {
			defer func() { <-s.tokens }()
			fn()
		})
	default:
		fn()
	}
}

func (s *scan) offend(path, reason string) {
	s.refused.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offenders.Add(path, reason)
}

func (s *scan) leave(path, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftOut.Add(path, reason)
}

// roots walks all roots one after the other.
func (s *scan) roots() (*tree.Tree, error) {
	policy, err := s.opts.Policy.Encode()
	if err != nil {
		return nil, err
	}
	t := &tree.Tree{Policy: policy}
	for i, r := range s.opts.Roots {
		fd, err := openDir(unix.AT_FDCWD, r.Path)
		if err != nil {
			return nil, fmt.Errorf("open the root %q: %w", r.Path, err)
		}
		st, err := fstat(fd)
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("open the root %q: %w", r.Path, err)
		}
		d := &dirScan{scan: s, fd: fd, root: i, path: r.Name}
		e, _ := d.run(r.Name, &st)
		unix.Close(fd)
		if err := context.Cause(s.ctx); err != nil {
			return nil, err
		}
		t.Roots = append(t.Roots, e)
	}
	return t, nil
}

// finish puts the table of links and the root.
func (s *scan) finish(t *tree.Tree, groups [][]string) (root tree.Digest, err error) {
	if len(groups) > 0 {
		b, err := tree.EncodeLinks(groups)
		if err != nil {
			return root, err
		}
		if t.Links, err = s.store(strings.NewReader(string(b)), true); err != nil {
			return root, err
		}
	}
	b, err := tree.EncodeRoot(t)
	if err != nil {
		return root, err
	}
	root = tree.Sum(b)
	return root, s.put(tree.Root, root, b)
}

func (s *scan) put(k tree.Kind, d tree.Digest, b []byte) error {
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	return s.sink.Put(s.ctx, tree.Object{Kind: k, Digest: d, Bytes: b})
}

// groups returns the paths that share a file, in order.
func (s *scan) groups() (groups [][]string) {
	for _, l := range s.linked {
		if len(l.paths) > 1 {
			slices.Sort(l.paths)
			groups = append(groups, l.paths)
		}
	}
	slices.SortFunc(groups, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return groups
}

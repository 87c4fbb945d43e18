package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// A batch of small files is fetched with one request.
const (
	batchFiles = 256
	batchBytes = 4 << 20
)

// syncedFiles is up to how many files are made durable one by one before they
// replace others. For more than that the file system is synced as a whole.
const syncedFiles = 64

// stagedFile is where the first name of a file with several was written.
type stagedFile struct {
	root *liveRoot
	rel  string // in the staging directory
}

// heldDir is an open directory of a staging directory. When the last file in it is
// done it gets its metadata, is remembered for the cache, and is closed.
type heldDir struct {
	fd      int
	refs    atomic.Int32
	node    tree.Node
	entry   tree.Entry   // of a directory that is finished here; else without a name
	entries []tree.Entry // of one that is remembered here
	stats   []stat       // what the entries are, zero where that is not known
}

// fileJob is a file to be written into a staging directory.
type fileJob struct {
	target
	dir   *heldDir
	name  string
	rel   string // in the staging directory
	entry tree.Entry
	group *group
	at    int // its place in dir.stats, if that has any
}

// stager fills the staging directories.
type stager struct {
	*restore
	ctx    context.Context
	cancel context.CancelCauseFunc
	jobs   chan []fileJob
	batch  []fileJob
	bytes  uint64
	last   *heldDir   // of the last file of batch
	dirs   int        // that batch holds open
	most   int        // that it may
	sync   bool       // each file is made durable as it is written
	mu     sync.Mutex // guards out, metas and learn
}

// stage fetches everything that will be put in place. An error leaves staging
// directories, which unstage removes, and nothing else.
func (r *restore) stage() error {
	if err := r.makeStaging(); err != nil {
		return err
	}
	s := &stager{restore: r, jobs: make(chan []fileJob), sync: r.replaces && r.out.Written.Files <= syncedFiles, most: heldDirs(r.opts.Workers)}
	s.ctx, s.cancel = context.WithCancelCause(r.ctx)
	defer s.cancel(nil)
	var wg sync.WaitGroup
	for range r.opts.Workers {
		wg.Go(func() {
			for jobs := range s.jobs {
				if err := s.write(jobs); err != nil {
					s.cancel(err)
				}
				s.release(jobs)
			}
		})
	}
	err := s.all()
	close(s.jobs)
	wg.Wait()
	s.release(s.batch)
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return err
}

// makeStaging makes the roots that do not exist and their staging directories.
func (r *restore) makeStaging() error {
	for _, root := range r.roots {
		if root.fd < 0 {
			if err := r.do("create the root", root.Path, func() error { return os.MkdirAll(root.Path, 0o755) }); err != nil {
				return err
			}
			fd, err := openDir(unix.AT_FDCWD, root.Path)
			if err != nil {
				return err
			}
			root.fd, root.trail.root = fd, fd
		}
	}
	for _, op := range r.ops {
		root := op.root
		if root.staging != "" {
			continue
		}
		if err := r.writable(root.fd); err != nil {
			return err
		}
		name := StagingName + rand.Text()
		if err := r.do("create", path.Join(root.Path, name), func() error { return unix.Mkdirat(root.fd, name, 0o700) }); err != nil {
			return err
		}
		root.staging = name
		r.metas = append(r.metas, dirMeta{target{root, root.Name}, root.entry})
		fd, err := openDir(root.fd, name)
		if err != nil {
			return err
		}
		root.stageFD = fd
	}
	return nil
}

// unstage removes the staging directories.
func (r *restore) unstage() error {
	var errs []error
	for _, root := range r.roots {
		if root.staging != "" {
			errs = append(errs, r.removeAll(root.fd, root.staging, root.staging))
			root.staging = ""
		}
	}
	return errors.Join(errs...)
}

// abandon removes the staging directories, and the roots that were made, after
// which everything is as it was.
func (r *restore) abandon() error {
	r.ctx = context.WithoutCancel(r.ctx)
	err := r.unstage()
	for _, root := range r.roots {
		if !root.existed && root.fd >= 0 {
			err = errors.Join(err, unix.Rmdir(root.Path))
		}
		if root.existed {
			err = errors.Join(err, unix.Fchmod(root.fd, root.before.Mode&0o7777),
				unix.UtimesNanoAt(root.fd, ".", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, root.before.Mtim}, 0))
		}
	}
	return err
}

// release is called when jobs are done.
func (s *stager) release(jobs []fileJob) {
	for _, j := range jobs {
		s.drop(j.dir)
	}
}

// drop gives up one hold of d, and finishes it with the last one.
func (s *stager) drop(d *heldDir) {
	if d.refs.Add(-1) > 0 {
		return
	}
	defer unix.Close(d.fd)
	if s.ctx.Err() != nil {
		return
	}
	if d.entries != nil {
		s.remember(d.fd, d.node, d.entries, d.stats)
	}
	if d.entry.Name != "" {
		if _, err := s.setMeta(d.fd, ".", d.fd, d.node.Path, &d.entry, true, s.leave); err != nil {
			s.cancel(err)
		}
	}
}

func (s *stager) all() error {
	tops := map[*liveRoot]*heldDir{}
	defer func() {
		for _, d := range tops {
			s.drop(d)
		}
	}()
	for i, op := range s.ops {
		op.staged = strconv.Itoa(i)
		switch op.entry.Type {
		case tree.Directory:
			if err := s.do("create", op.path, func() error { return unix.Mkdirat(op.root.stageFD, op.staged, 0o700) }); err != nil {
				return err
			}
			s.later(op.target, &op.entry)
			if err := s.fill(op); err != nil {
				return err
			}
		default:
			if tops[op.root] == nil {
				fd, err := openDir(op.root.stageFD, ".")
				if err != nil {
					return err
				}
				tops[op.root] = hold(fd)
			}
			if err := s.add(fileJob{op.target, tops[op.root], op.staged, op.staged, op.entry, op.group, 0}); err != nil {
				return err
			}
		}
	}
	return s.flush()
}

func hold(fd int) *heldDir {
	d := &heldDir{fd: fd}
	d.refs.Store(1)
	return d
}

// fill stages what lies in a directory that is not there.
func (s *stager) fill(op *placing) error {
	fresh := map[string]tree.Entry{} // directories that are made and not visited yet
	staged := trail{root: op.root.stageFD}
	defer staged.close()
	return tree.Walk(s.ctx, s.src, []tree.Node{tree.NodeOf(op.path, &op.entry)}, func(dir tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
		rel := op.staged + dir.Path[len(op.path):]
		fd, err := staged.to(rel)
		if err == nil {
			fd, err = openDir(fd, ".")
		}
		if err != nil {
			return err
		}
		held := hold(fd)
		defer s.drop(held)
		held.node, held.entry = dir, fresh[dir.Path]
		delete(fresh, dir.Path)
		whole := !dir.Page() && s.fresh != nil
		if whole {
			held.stats = make([]stat, len(entries))
		}
		for i := range entries {
			e := &entries[i]
			t := target{op.root, dir.Path + "/" + e.Name}
			if s.verdict(t.rel(), e.Type == tree.Directory) == ignore.Skip {
				whole = false
				continue
			}
			if e.Type != tree.Directory {
				whole = whole && s.groups[t.path] == nil
				if err := s.add(fileJob{t, held, e.Name, rel + "/" + e.Name, *e, s.groups[t.path], i}); err != nil {
					return err
				}
				continue
			}
			if err := s.do("create", t.path, func() error { return unix.Mkdirat(fd, e.Name, 0o700) }); err != nil {
				return err
			}
			if !e.Paged && e.Mode&0o500 == 0o500 {
				fresh[t.path] = *e // it stays open to what fills it when it is finished early
			} else {
				s.later(t, e)
			}
			descend(e)
		}
		if whole {
			held.entries = entries
		} else {
			s.mu.Lock()
			s.relearn(dir)
			s.mu.Unlock()
		}
		return nil
	})
}

// later has the metadata of a directory set when everything is in place.
func (s *stager) later(t target, e *tree.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metas = append(s.metas, dirMeta{t, *e})
}

func (s *stager) add(j fileJob) error {
	j.dir.refs.Add(1)
	s.batch = append(s.batch, j)
	if j.dir != s.last {
		s.last = j.dir
		s.dirs++
	}
	if s.bytes += j.entry.Content.Size; len(s.batch) >= batchFiles || s.bytes >= batchBytes || s.dirs >= s.most {
		return s.flush()
	}
	return nil
}

func (s *stager) flush() error {
	if len(s.batch) == 0 {
		return nil
	}
	select {
	case s.jobs <- s.batch:
		s.batch, s.bytes, s.last, s.dirs = nil, 0, nil, 0
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// heldDirs is how many directories a batch may hold open, so that those of all
// workers together are half of the files that the process may have open.
func heldDirs(workers int) int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1
	}
	return int(max(1, min(l.Cur/2/uint64(workers+2), batchFiles)))
}

// write writes some files. Those of one chunk are fetched together.
func (s *stager) write(jobs []fileJob) error {
	byDigest := map[tree.Digest][]*fileJob{}
	var digests []tree.Digest
	for i := range jobs {
		j := &jobs[i]
		switch {
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case j.entry.Type == tree.Symlink:
			if err := s.writeLink(j); err != nil {
				return err
			}
		case j.group != nil:
			if err := s.writeShared(j); err != nil {
				return err
			}
		case j.entry.Content.Chunked || j.entry.Content.Size == 0:
			if err := s.writeParts(j); err != nil {
				return err
			}
		default:
			d := j.entry.Content.Digest
			if byDigest[d] == nil {
				digests = append(digests, d)
			}
			byDigest[d] = append(byDigest[d], j)
		}
	}
	if len(digests) == 0 {
		return nil
	}
	return tree.Fetch(s.ctx, s.src.src, digests, func(d tree.Digest, b []byte) error {
		for _, j := range byDigest[d] {
			if uint64(len(b)) != j.entry.Content.Size {
				return fmt.Errorf("%q has %d bytes and its entry says %d: %w", j.path, len(b), j.entry.Content.Size, tree.ErrInvalid)
			}
			w, err := s.create(j)
			if err != nil {
				return err
			}
			if err := w.end(w.write(b, 0)); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeShared writes a file with several names once and links the others to it.
func (s *stager) writeShared(j *fileJob) error {
	g := j.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first != nil {
		dir, name := split(g.first.rel)
		staged := trail{root: g.first.root.stageFD}
		defer staged.close()
		fd, err := staged.to(dir)
		if err != nil {
			return err
		}
		err = s.do("link", j.path, func() error { return unix.Linkat(fd, name, j.dir.fd, j.name, 0) })
		if !errors.Is(err, unix.EXDEV) {
			return err
		}
		s.leave(j.path, "a hard link to another file system")
	}
	if err := s.writeParts(j); err != nil {
		return err
	}
	if g.first == nil {
		g.first = &stagedFile{j.root, j.rel}
	}
	return nil
}

// writeParts writes a file chunk by chunk.
func (s *stager) writeParts(j *fileJob) error {
	parts, err := tree.Parts(s.ctx, s.src.src, j.entry.Content)
	if err != nil {
		return err
	}
	w, err := s.create(j)
	if err != nil {
		return err
	}
	h, at := sha256.New(), uint64(0)
	for _, p := range parts {
		err = tree.Fetch(s.ctx, s.src.src, []tree.Digest{p.Digest}, func(_ tree.Digest, b []byte) error {
			if uint64(len(b)) != p.Length {
				return fmt.Errorf("a chunk of %q has %d bytes and its recipe says %d: %w", j.path, len(b), p.Length, tree.ErrInvalid)
			}
			h.Write(b)
			return w.write(b, at)
		})
		if err != nil {
			break
		}
		at += p.Length
	}
	if err == nil && len(parts) > 0 && tree.Digest(h.Sum(nil)) != j.entry.Content.Sum {
		err = fmt.Errorf("the chunks of %q are not those of its sum: %w", j.path, tree.ErrInvalid)
	}
	return w.end(err)
}

func (s *stager) leave(path, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.LeftOut.Add(path, reason)
}

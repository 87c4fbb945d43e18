package workspace

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// liveDir is a directory of the checkpoint that is there already.
type liveDir struct {
	target
	entry   tree.Entry
	st      stat
	fd      int // -1 if the root does not exist; open while it is compared only
	level   int // how many directories above it are held open for it
	opened  bool
	names   []string // that are there
	met     []bool   // which of names the checkpoint has
	touched bool     // something in it is put in place or removed
	learned bool     // the cache does not know all of it
	listed  bool     // its metadata is set at the end
	cache   map[string]cached
}

// plan compares the checkpoint with what is there and lists what must be done.
func (r *restore) plan() error {
	for _, root := range r.roots {
		p := &planner{restore: r, root: root, live: map[string]*liveDir{}, tokens: make(chan struct{}, r.opts.Workers-1)}
		p.ctx, p.cancel = context.WithCancelCause(r.ctx)
		err := p.run()
		p.cancel(err)
		p.wg.Wait()
		if err != nil {
			return context.Cause(p.ctx)
		}
	}
	r.settleLinks()
	for _, l := range []*List{&r.out.Changed, &r.out.LeftOut} {
		l.sort()
	}
	slices.SortFunc(r.removes, func(a, b target) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(r.metas, func(a, b dirMeta) int { return strings.Compare(a.path, b.path) })
	return r.checkSpace()
}

// planner plans one root. Directories that the cache knows are compared at the same
// time; planning guards what is gathered of them.
type planner struct {
	*restore
	root   *liveRoot
	ctx    context.Context
	cancel context.CancelCauseFunc
	tokens chan struct{}
	wg     sync.WaitGroup
	live   map[string]*liveDir // directories whose entries come, by path
	queue  []tree.Node         // those that no walk under way will visit
	deep   []*liveDir          // those that are to be entered when nothing above them is open
}

func (p *planner) run() error {
	top := &liveDir{target: target{p.root, p.root.Name}, entry: p.root.entry, fd: p.root.fd}
	if p.root.fd >= 0 {
		var err error
		if top.st, err = fstat(p.root.fd); err != nil {
			return err
		}
		p.root.existed, p.root.before = true, top.st
	}
	if rec, ok := p.known(top); ok && top.fd >= 0 {
		if err := p.sweep(top, rec); err != nil {
			return err
		}
	} else {
		p.expect(top)
		p.enqueue(top.path, &top.entry)
	}
	for {
		if err := p.settle(); err != nil {
			return err
		}
		nodes := p.queue
		p.queue = nil
		if len(nodes) == 0 {
			return nil
		}
		if err := tree.Walk(p.ctx, p.src, nodes, p.visit); err != nil {
			return err
		}
		if err := p.settle(); err != nil {
			return err
		}
		for _, d := range p.live { // large ones, all of whose pages have come now
			if d.opened || d.fd < 0 {
				if err := p.within(d, func() error { return p.finish(d) }); err != nil {
					return err
				}
				delete(p.live, d.path)
			}
		}
	}
}

// settle waits until nothing is compared any more, and enters what lies too deep.
func (p *planner) settle() error {
	for {
		p.wg.Wait()
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
		deep := p.deep
		p.deep = nil
		if len(deep) == 0 {
			return nil
		}
		for _, d := range deep {
			rec, _ := p.known(d)
			if err := p.within(d, func() error { return p.sweep(d, rec) }); err != nil {
				return err
			}
		}
	}
}

// enqueue has a directory fetched.
func (p *planner) enqueue(path string, e *tree.Entry) {
	p.planning.Lock()
	defer p.planning.Unlock()
	p.queue = append(p.queue, tree.NodeOf(path, e))
}

// spawn runs fn, beside the caller if a worker is free.
func (p *planner) spawn(fn func() error) error {
	select {
	case p.tokens <- struct{}{}:
		p.wg.Go(func() {
			defer func() { <-p.tokens }()
			if err := fn(); err != nil {
				p.cancel(err)
			}
		})
		return nil
	default:
		return fn()
	}
}

// known returns what the cache has of a directory, if that is the checkpoint's.
func (p *planner) known(d *liveDir) (record, bool) {
	rec := p.old.find(d.path)
	dir, _, ok := rec.digest()
	return rec, ok && dir == d.entry.Dir
}

// expect has the entries of a directory that the cache does not know come to visit.
func (p *planner) expect(d *liveDir) {
	p.planning.Lock()
	defer p.planning.Unlock()
	p.live[d.path] = d
}

// within runs fn while d is open.
func (p *planner) within(d *liveDir, fn func() error) error {
	d.fd, d.level = -1, 0
	if p.root.fd >= 0 {
		fd, err := p.root.trail.to(d.rel())
		if err != nil {
			return err
		}
		d.fd = fd
	}
	return fn()
}

// visit takes entries of one directory of the checkpoint.
func (p *planner) visit(dir tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
	p.planning.Lock()
	d := p.live[dir.Path]
	p.planning.Unlock()
	if d == nil {
		p.visitFresh(dir, entries, descend)
		return nil
	}
	return p.within(d, func() error {
		if err := p.openLive(d); err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			var c *cached
			if known, ok := d.cache[e.Name]; ok {
				c = &known
			}
			at, there := slices.BinarySearch(d.names, e.Name)
			if there {
				d.met[at] = true
			}
			if err := p.compare(d, e, there, c, descend); err != nil {
				return err
			}
		}
		if d.entry.Paged {
			return nil
		}
		p.planning.Lock()
		delete(p.live, d.path)
		p.planning.Unlock()
		return p.finish(d)
	})
}

// visitFresh counts what is in a directory that is not there.
func (p *planner) visitFresh(dir tree.Node, entries []tree.Entry, descend func(*tree.Entry)) {
	for i := range entries {
		e := &entries[i]
		t := target{p.root, dir.Path + "/" + e.Name}
		if p.verdict(t.rel(), e.Type == tree.Directory) == ignore.Skip {
			p.spare(t)
			continue
		}
		p.need(t, e)
		if e.Type == tree.Directory {
			descend(e)
		}
	}
}

// spare notes a path that a policy leaves out.
func (r *restore) spare(t target) {
	r.planning.Lock()
	defer r.planning.Unlock()
	r.out.LeftOut.Add(t.path, ReasonExcluded)
}

// need counts what an entry will take when it is put in place.
func (r *restore) need(t target, e *tree.Entry) {
	r.planning.Lock()
	defer r.planning.Unlock()
	r.out.Written.Entries++
	t.root.entries++
	if e.Type != tree.File {
		return
	}
	if g := r.groups[t.path]; g != nil {
		g.renew = true
	}
	bytes := e.Content.Size
	for _, h := range e.Holes {
		bytes -= h.Length
	}
	r.out.Written.Files++
	r.out.Written.Bytes += e.Content.Size
	t.root.bytes += bytes
}

// openLive lists the directory when its first entries come.
func (p *planner) openLive(d *liveDir) (err error) {
	if d.opened || d.fd < 0 {
		return nil
	}
	d.opened, d.learned = true, true
	if d.names, err = list(d.fd); err != nil {
		return err
	}
	d.met = make([]bool, len(d.names))
	rec := p.old.find(d.path)
	d.cache = make(map[string]cached, len(d.names))
	for c, ok := rec.next(); ok; c, ok = rec.next() {
		d.cache[string(c.head.Name)] = c
	}
	return nil
}

// compare decides on one entry of the checkpoint in a directory that is there. c
// is what the cache knows of what has the entry's name there.
func (p *planner) compare(d *liveDir, e *tree.Entry, there bool, c *cached, descend func(*tree.Entry)) error {
	t := target{p.root, d.path + "/" + e.Name}
	if p.verdict(t.rel(), e.Type == tree.Directory) == ignore.Skip {
		p.spare(t)
		return nil
	}
	var st stat
	was := there
	if there {
		var err error
		if st, err = lstat(d.fd, e.Name); err != nil {
			return err
		}
		if typeOf(&st) != e.Type {
			if typeOf(&st) == tree.Directory {
				if _, spared, err := p.removeTop(d.fd, e.Name, t); err != nil {
					return err
				} else if spared {
					return &SpareError{Path: t.path}
				}
			}
			there = false
		}
	}
	switch {
	case !there:
		p.place(d, t, e, was)
		if e.Type == tree.Directory {
			descend(e)
		}
	case e.Type == tree.Directory:
		return p.compareDir(d, t, e, &st, descend)
	case e.Type == tree.Symlink:
		return p.compareLink(d, t, e, &st)
	default:
		return p.compareFile(d, t, e, &st, c)
	}
	return nil
}

// compareDir compares a directory, beside others if the cache knows it.
func (p *planner) compareDir(d *liveDir, t target, e *tree.Entry, st *stat, descend func(*tree.Entry)) error {
	sub := &liveDir{target: t, entry: *e, st: *st, fd: -1, level: d.level + 1}
	rec, ok := p.known(sub)
	if !ok {
		p.expect(sub)
		descend(e)
		return nil
	}
	if sub.level >= maxLevel {
		p.planning.Lock()
		defer p.planning.Unlock()
		p.deep = append(p.deep, sub)
		return nil
	}
	fd, err := openDir(d.fd, e.Name)
	if err != nil {
		return &os.PathError{Op: "open", Path: t.path, Err: err}
	}
	sub.fd = fd
	return p.spawn(func() error {
		defer unix.Close(fd)
		return p.sweep(sub, rec)
	})
}

// place lists an entry to be put in place.
func (p *planner) place(d *liveDir, t target, e *tree.Entry, there bool) {
	p.need(t, e)
	d.touched = true
	p.planning.Lock()
	defer p.planning.Unlock()
	p.replaces = p.replaces || there
	p.ops = append(p.ops, &placing{target: t, entry: *e, group: p.groups[t.path]})
	p.out.Changed.Add(t.path, "")
}

func (p *planner) compareLink(d *liveDir, t target, e *tree.Entry, st *stat) error {
	have, err := readlink(d.fd, e.Name)
	if err != nil {
		return err
	}
	want, filled := fillString(e.Target, e.Redactions, p.opts.Secrets)
	if !filled {
		b := []byte(have)
		if len(have) == len(want) {
			zero(b, e.Redactions)
		}
		have = string(b)
	}
	if have != want {
		p.place(d, t, e, true)
	} else if p.differs(st, e) {
		p.change(d, t, e)
	}
	return nil
}

// change lists an entry whose metadata is set in place.
func (p *planner) change(d *liveDir, t target, e *tree.Entry) {
	d.touched = true
	p.planning.Lock()
	defer p.planning.Unlock()
	p.fileMetas = append(p.fileMetas, dirMeta{t, *e})
	p.out.Changed.Add(t.path, "")
}

func (p *planner) compareFile(d *liveDir, t target, e *tree.Entry, st *stat, c *cached) error {
	equal, meta, err := p.sameFile(d, e, st, c)
	if err != nil {
		return err
	}
	g := p.groups[t.path]
	switch {
	case !equal:
		p.place(d, t, e, true)
	case st.Nlink > 1 || g != nil:
		// Its names decide, which are known when all were met.
		op := &placing{target: t, entry: *e, group: g, dir: d, meta: meta}
		k := inode{st.Dev, st.Ino}
		p.planning.Lock()
		defer p.planning.Unlock()
		p.inodes[k] = append(p.inodes[k], op)
	case meta:
		p.change(d, t, e)
	}
	return nil
}

// finish lists what is in the directory and not in the checkpoint, and whether
// the directory's metadata must be set.
func (p *planner) finish(d *liveDir) error {
	for i, name := range d.names {
		if d.met[i] {
			continue
		}
		listed, _, err := p.removeTop(d.fd, name, target{p.root, d.path + "/" + name})
		if err != nil {
			return err
		}
		d.touched = d.touched || listed
	}
	meta := d.touched || d.fd < 0
	if !meta {
		xs, err := xattrs(d.fd)
		if err != nil {
			return err
		}
		meta = p.differs(&d.st, &d.entry) || !p.sameXattrs(xs, d.entry.Xattrs)
	}
	d.names, d.met, d.cache = nil, nil, nil
	p.planning.Lock()
	defer p.planning.Unlock()
	if meta {
		p.list(d)
	}
	if d.touched || d.learned {
		p.relearn(tree.NodeOf(d.path, &d.entry))
	}
	return nil
}

// list has the metadata of d set at the end.
func (r *restore) list(d *liveDir) {
	if !d.listed {
		d.listed = true
		r.metas = append(r.metas, dirMeta{d.target, d.entry})
	}
}

// verdict is that of both policies on a path whose parents are not left out.
func (r *restore) verdict(rel string, dir bool) ignore.Verdict {
	v := r.stored.Verdict(rel, dir)
	if r.given != nil {
		v = min(v, r.given.Verdict(rel, dir))
	}
	return v
}

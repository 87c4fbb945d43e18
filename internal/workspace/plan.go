package workspace

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// group is a file with several names.
type group struct {
	paths []string
	renew bool // not all of its names are that one file now

	mu    sync.Mutex
	first *stagedFile
}

// loadLinks reads the table of hard links.
func (r *restore) loadLinks(t *tree.Tree) error {
	if t.Links.Size == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := tree.Copy(r.ctx, r.src.src, t.Links, &b); err != nil {
		return err
	}
	groups, err := tree.DecodeLinks(b.Bytes())
	if err != nil {
		return err
	}
	for _, paths := range groups {
		g := &group{}
		for _, p := range paths {
			root, rel, _ := strings.Cut(p, "/")
			if slices.ContainsFunc(r.roots, func(l *liveRoot) bool { return l.Name == root }) && !r.spared(rel) {
				g.paths = append(g.paths, p)
			}
		}
		if len(g.paths) > 1 {
			for _, p := range g.paths {
				r.groups[p] = g
			}
		}
	}
	return nil
}

// spared reports whether a policy leaves out the file at rel or a parent of it.
func (r *restore) spared(rel string) bool {
	for i := range len(rel) {
		if rel[i] == '/' && r.verdict(rel[:i], true) == ignore.Skip {
			return true
		}
	}
	return r.verdict(rel, false) == ignore.Skip
}

// liveDir is a directory of the checkpoint that is there already.
type liveDir struct {
	target
	entry   tree.Entry
	st      stat
	fd      int // -1 if the root does not exist; open while it is compared only
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
		p := &planner{restore: r, root: root, live: map[string]*liveDir{}}
		if err := p.run(); err != nil {
			return err
		}
	}
	r.settleLinks()
	slices.SortFunc(r.metas, func(a, b dirMeta) int { return strings.Compare(a.path, b.path) })
	return r.checkSpace()
}

// planner plans one root.
type planner struct {
	*restore
	root  *liveRoot
	live  map[string]*liveDir // directories whose entries come, by path
	queue []tree.Node         // those that no walk under way will visit
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
	if err := p.enter(top, p.enqueue); err != nil {
		return err
	}
	for len(p.queue) > 0 {
		nodes := p.queue
		p.queue = nil
		if err := tree.Walk(p.ctx, p.src, nodes, p.visit); err != nil {
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
	return nil
}

func (p *planner) enqueue(d *liveDir) {
	p.queue = append(p.queue, tree.NodeOf(d.path, &d.entry))
}

// enter begins with a directory of both, which is open. If the cache has the
// entries of the checkpoint's they are compared at once; else fetch is called and
// they come to visit.
func (p *planner) enter(d *liveDir, fetch func(d *liveDir)) error {
	if d.fd >= 0 {
		rec := p.old.find(d.path)
		if dir, _, ok := rec.digest(); ok && dir == d.entry.Dir {
			return p.sweep(d, rec)
		}
	}
	p.live[d.path] = d
	fetch(d)
	return nil
}

// within runs fn while d is open.
func (p *planner) within(d *liveDir, fn func() error) error {
	d.fd = -1
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
	d := p.live[dir.Path]
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
		delete(p.live, d.path)
		return p.finish(d)
	})
}

// visitFresh counts what is in a directory that is not there.
func (p *planner) visitFresh(dir tree.Node, entries []tree.Entry, descend func(*tree.Entry)) {
	for i := range entries {
		e := &entries[i]
		t := target{p.root, dir.Path + "/" + e.Name}
		if p.verdict(t.rel(), e.Type == tree.Directory) == ignore.Skip {
			p.out.LeftOut.Add(t.path, ReasonExcluded)
			continue
		}
		p.need(t, e)
		if e.Type == tree.Directory {
			descend(e)
		}
	}
}

// need counts what an entry will take when it is put in place.
func (r *restore) need(t target, e *tree.Entry) {
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
		p.out.LeftOut.Add(t.path, ReasonExcluded)
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
				if spared, err := p.remove(d.fd, e.Name, t); err != nil {
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
		return p.compareDir(d, t, e, &st, func(*liveDir) { descend(e) })
	case e.Type == tree.Symlink:
		return p.compareLink(d, t, e, &st)
	default:
		return p.compareFile(d, t, e, &st, c)
	}
	return nil
}

func (p *planner) compareDir(d *liveDir, t target, e *tree.Entry, st *stat, fetch func(*liveDir)) error {
	fd, err := openDir(d.fd, e.Name)
	if err != nil {
		return &os.PathError{Op: "open", Path: t.path, Err: err}
	}
	defer unix.Close(fd)
	return p.enter(&liveDir{target: t, entry: *e, st: *st, fd: fd}, fetch)
}

// place lists an entry to be put in place.
func (p *planner) place(d *liveDir, t target, e *tree.Entry, there bool) {
	p.need(t, e)
	d.touched = true
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
		d.touched = true
		p.fileMetas = append(p.fileMetas, dirMeta{t, *e})
		p.out.Changed.Add(t.path, "")
	}
	return nil
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
		p.inodes[k] = append(p.inodes[k], op)
	case meta:
		d.touched = true
		p.fileMetas = append(p.fileMetas, dirMeta{t, *e})
		p.out.Changed.Add(t.path, "")
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
		t := target{p.root, d.path + "/" + name}
		before := len(p.removes)
		if _, err := p.remove(d.fd, name, t); err != nil {
			return err
		}
		d.touched = d.touched || len(p.removes) > before
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

// remove lists what is to be removed of name and what lies beneath it, and
// reports whether anything is spared.
func (p *planner) remove(parent int, name string, t target) (spared bool, err error) {
	if !strings.Contains(t.rel(), "/") && strings.HasPrefix(name, StagingName) {
		p.removes = append(p.removes, t) // what a restore that ended early left
		return false, nil
	}
	st, err := lstat(parent, name)
	if err != nil {
		return false, err
	}
	isDir := typeOf(&st) == tree.Directory
	v := p.verdict(t.rel(), isDir)
	if v == ignore.Skip {
		return true, nil
	}
	at := len(p.removes)
	if isDir {
		fd, err := openDir(parent, name)
		if err != nil {
			return false, err
		}
		defer unix.Close(fd)
		names, err := list(fd)
		if err != nil {
			return false, err
		}
		for _, n := range names {
			s, err := p.remove(fd, n, target{t.root, t.path + "/" + n})
			if err != nil {
				return false, err
			}
			spared = spared || s
		}
	}
	if spared || v == ignore.Descend {
		return true, nil
	}
	p.removes = append(p.removes[:at], t)
	return false, nil
}

// settleLinks decides on equal files with several names: they stay if their
// names are exactly those of one file of the checkpoint.
func (r *restore) settleLinks() {
	for _, ops := range r.inodes {
		g := ops[0].group
		ok := g == nil && len(ops) == 1 && !ops[0].meta
		if g != nil && len(ops) == len(g.paths) {
			ok = !slices.ContainsFunc(ops, func(o *placing) bool { return o.group != g || o.meta })
		}
		for _, o := range ops {
			if !ok && o.group != nil {
				o.group.renew = true
			}
			o.keep = ok
		}
	}
	for _, ops := range r.inodes {
		for _, o := range ops {
			if o.keep && (o.group == nil || !o.group.renew) {
				continue
			}
			r.need(o.target, &o.entry)
			r.ops = append(r.ops, o)
			r.out.Changed.Add(o.path, "")
			r.list(o.dir)
		}
	}
	r.inodes = nil
}

// verdict is that of both policies on a path whose parents are not left out.
func (r *restore) verdict(rel string, dir bool) ignore.Verdict {
	v := r.stored.Verdict(rel, dir)
	if r.given != nil {
		v = min(v, r.given.Verdict(rel, dir))
	}
	return v
}

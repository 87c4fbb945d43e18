package workspace

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// StagingName begins the names of directories in which a restore gathers files
// at the top of a root. A capture leaves them out.
const StagingName = ".cairn-restore-"

// trustAge is how long ago a file must have been touched for its times to tell
// the next touch.
const trustAge = 2 * time.Second

// batchSize is how many entries of a directory are held at a time.
const batchSize = 512

// dirScan walks one directory.
type dirScan struct {
	*scan
	fd     int
	root   int
	path   string // with the root's name
	depth  int
	within bool // a parent was taken by an include pattern

	old    record
	next   cached // the entry of old that is looked at next
	more   bool
	out    recordWriter
	counts tree.Summary

	// While the entries are those of the old record they make its objects, and
	// nothing is built.
	had   record
	same  int // how many entries were those of had; -1: some were not
	rest  record
	build tree.Builder

	deep      []deepItem      // directories of a batch that are walked when it is done
	names     []string        // all that were listed
	families  map[string]bool // databases that are read with what is beside them
	databases map[string]database
	recalled  map[string]cached // the entries of had, where they are looked for out of order
}

// item is one entry of a batch.
type item struct {
	name   string
	st     stat
	enc    []byte // empty: it is left out
	counts tree.Summary
	ino    uint64 // 0: not to be trusted
	beside string // the database that it is read with
	marked bool   // it is of no use without more
}

// deepItem is a directory so deep that those above it are closed meanwhile.
type deepItem struct {
	it      *item
	path    string
	verdict ignore.Verdict
}

// run returns the entry of the directory. It is not kept if only what an include
// pattern matches is taken, and nothing was.
func (d *dirScan) run(name string, st *stat) (e tree.Entry, kept bool) {
	e = entryOf(name, st)
	xs, err := xattrs(d.fd)
	if err == nil {
		e.Xattrs, err = d.secrets.redactXattrs(xs)
	}
	if err != nil {
		d.fault(d.path, err)
		return e, false
	}
	if d.names, err = list(d.fd); err != nil {
		d.fault(d.path, err)
		return e, false
	}
	d.begin()
	for rest := d.names; len(rest) > 0 && d.ctx.Err() == nil; {
		n := min(batchSize, len(rest))
		if rest, err = d.batch(rest[:n], rest[n:]); err != nil {
			d.fail(err)
			return e, false
		}
	}
	if d.ctx.Err() != nil {
		return e, false
	}
	if e.Dir, e.Paged, err = d.finish(); err != nil {
		d.fail(err)
		return e, false
	}
	e.Summary = d.counts
	if err := e.Check(); err != nil {
		d.offend(d.path, ReasonAttributes)
	}
	d.fresh.add(d.path, &d.out)
	return e, e.Summary.Entries > 0
}

// begin looks up what the cache knows of the directory.
func (d *dirScan) begin() {
	d.old = d.scan.old.find(d.path)
	d.had, d.rest = d.old, d.old
	if _, _, ok := d.had.digest(); !ok {
		d.same = -1
	}
	d.next, d.more = d.old.next()
	d.build.Emit = func(o tree.Object) error {
		d.out.object(o.Digest)
		if d.refused.Load() || d.had.has(o.Digest) {
			return nil
		}
		return d.put(o.Kind, o.Digest, o.Bytes)
	}
}

// add adds an entry, which follows all those before.
func (d *dirScan) add(it *item) error {
	d.counts = d.counts.Plus(it.counts)
	d.out.entry(it.ino, ctimeOf(&it.st), it.enc)
	if d.same >= 0 {
		if c, ok := d.rest.next(); ok && bytes.Equal(c.enc, it.enc) {
			d.same++
			return nil
		}
		if err := d.differ(); err != nil {
			return err
		}
	}
	return d.build.AddEncoded(it.name, it.enc, it.counts)
}

// differ builds what was spared so far.
func (d *dirScan) differ() error {
	r := d.had
	for range d.same {
		c, _ := r.next()
		if err := d.build.AddEncoded(string(c.head.Name), c.enc, c.head.Counts); err != nil {
			return err
		}
	}
	d.same = -1
	return nil
}

// finish returns the digest of the directory once all entries were added.
func (d *dirScan) finish() (dir tree.Digest, paged bool, err error) {
	if d.same >= 0 {
		if d.rest.left == 0 {
			d.out.objects = d.had.objects
			dir, paged, _ = d.had.digest()
			return dir, paged, nil
		}
		if err := d.differ(); err != nil {
			return dir, false, err
		}
	}
	dir, paged, _, err = d.build.Finish()
	return dir, paged, err
}

// batch looks at some entries in parallel and adds them in order. It returns the
// names that follow them.
func (d *dirScan) batch(names, rest []string) ([]string, error) {
	trusted := time.Now().Add(-trustAge)
	items := make([]item, len(names))
	var wg sync.WaitGroup
	for i := range items {
		it := &items[i]
		it.name = names[i]
		d.look(it, trusted, &wg)
	}
	wg.Wait()
	for i := range items {
		if it := &items[i]; it.beside != "" && !d.take(it) { // the database is gone
			d.file(it, d.path+"/"+it.name, trusted, &wg)
		}
	}
	wg.Wait()
	for _, x := range d.deep {
		d.descend(x.it, x.path, x.verdict)
	}
	d.deep = d.deep[:0]
	if len(d.databases) > 0 {
		items, rest = d.besides(items, rest)
	}
	for i := range items {
		if it := &items[i]; len(it.enc) > 0 {
			if err := d.add(it); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

// look decides on one entry and starts what must be read.
func (d *dirScan) look(it *item, trusted time.Time, wg *sync.WaitGroup) {
	path := d.path + "/" + it.name
	if d.depth == 0 && strings.HasPrefix(it.name, StagingName) {
		return
	}
	rel := path[len(d.opts.Roots[d.root].Name)+1:]
	var err error
	if it.st, err = lstat(d.fd, it.name); err != nil {
		if !errors.Is(err, unix.ENOENT) { // gone since it was listed
			d.fault(path, err)
		}
		return
	}
	verdict := d.policy.Match(rel, typeOf(&it.st) == tree.Directory, d.within)
	if verdict == ignore.Skip {
		d.leave(path, ReasonExcluded)
		return
	}
	if reason := d.objection(it, &it.st); reason != "" {
		d.offend(path, reason)
		return
	}
	switch typeOf(&it.st) {
	case tree.Directory:
		if d.depth >= maxLevel {
			d.deep = append(d.deep, deepItem{it, path, verdict})
			return
		}
		d.spawn(wg, func() { d.descend(it, path, verdict) })
	case tree.Symlink:
		d.link(it, path, trusted)
	case tree.File:
		d.lookFile(it, path, trusted, wg)
	}
}

// lookFile parts databases and what is beside them from other files.
func (d *dirScan) lookFile(it *item, path string, trusted time.Time, wg *sync.WaitGroup) {
	if base, ok := besideOf(it.name); ok {
		if d.families[base] {
			it.beside = base
			return
		}
		if d.take(it) {
			return
		}
	}
	if d.family(it) {
		if d.families == nil {
			d.families = map[string]bool{}
		}
		d.families[it.name] = true
	}
	d.file(it, path, trusted, wg)
}

// objection returns why no tree can hold the entry.
func (d *dirScan) objection(it *item, st *stat) string {
	switch {
	case len(it.name) > tree.MaxName:
		return ReasonName
	case d.secrets.in(it.name):
		return ReasonSecretName
	case typeOf(st) == 0:
		return ReasonSpecial
	case typeOf(st) == tree.Directory && d.depth >= tree.MaxDepth:
		return ReasonDepth
	}
	return ""
}

func (d *dirScan) descend(it *item, path string, verdict ignore.Verdict) {
	if d.ctx.Err() != nil {
		return
	}
	fd, err := openDir(d.fd, it.name)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			d.fault(path, err)
		}
		return
	}
	sub := &dirScan{scan: d.scan, fd: fd, root: d.root, path: path, depth: d.depth + 1, within: verdict == ignore.Take}
	defer func() { unix.Close(sub.fd) }()
	// The directory may be another one than was looked at; what is open counts.
	if it.st, err = fstat(fd); err != nil {
		d.fault(path, err)
		return
	}
	var e tree.Entry
	kept := false
	run := func() error {
		e, kept = sub.run(it.name, &it.st)
		return context.Cause(d.ctx)
	}
	if d.depth < maxLevel {
		_ = run() // the walk's own error ends it
	} else if err := without(&d.fd, &sub.fd, run); err != nil {
		d.fault(d.path, err)
		return
	}
	if (kept || verdict == ignore.Take) && d.ctx.Err() == nil {
		d.encode(it, &e)
	}
}

func (d *dirScan) encode(it *item, e *tree.Entry) {
	it.enc, it.counts = tree.AppendEntry(nil, e), e.Counts()
}

// fault takes an error of the file system: what cannot be read is an offender,
// everything else ends the capture.
func (d *dirScan) fault(path string, err error) {
	switch {
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EIO):
		d.offend(path, ReasonUnreadable)
	case errors.Is(err, errTooOften):
		d.offend(path, ReasonRedactions)
	case errors.Is(err, errSecretName):
		d.offend(path, ReasonSecretName)
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, errMoved):
		d.fail(&ChangedError{Path: path})
	default:
		d.fail(&os.PathError{Op: "capture", Path: path, Err: err})
	}
}

// known takes the encoding that the cache has for the entry, if it is to be
// trusted. Entries are looked up in order of their names.
func (d *dirScan) known(it *item) bool {
	for d.more && string(d.next.head.Name) < it.name {
		d.next, d.more = d.old.next()
	}
	if !d.more || string(d.next.head.Name) != it.name || !d.next.is(&it.st) {
		return false
	}
	it.enc, it.counts = d.next.enc, d.next.head.Counts
	return true
}

// trust returns the inode if the entry's times tell the next touch.
func trust(st *stat, trusted time.Time) uint64 {
	m, c := time.Unix(st.Mtim.Sec, st.Mtim.Nsec), time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
	if m.After(trusted) || c.After(trusted) {
		return 0
	}
	return st.Ino
}

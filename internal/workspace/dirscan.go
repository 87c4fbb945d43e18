package workspace

import (
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

	old   record
	next  cached // the entry of old that is compared next
	more  bool
	out   recordWriter
	build tree.Builder
}

// item is one entry of a batch.
type item struct {
	name   string
	st     stat
	enc    []byte // empty: it is left out
	counts tree.Summary
	ino    uint64 // 0: not to be trusted
}

// run returns the entry of the directory. It is not kept if only what an include
// pattern matches is taken, and nothing was.
func (d *dirScan) run(name string, st *stat) (e tree.Entry, kept bool) {
	e = entryOf(name, st)
	xs, err := xattrs(d.fd)
	if err == nil {
		e.Xattrs, err = d.redactXattrs(xs)
	}
	if err != nil {
		d.fault(d.path, err)
		return e, false
	}
	names, err := list(d.fd)
	if err != nil {
		d.fault(d.path, err)
		return e, false
	}
	d.old = d.scan.old.find(d.path)
	had := d.old
	d.next, d.more = d.old.next()
	d.build.Emit = func(o tree.Object) error {
		d.out.object(o.Digest)
		if d.refused.Load() || had.has(o.Digest) {
			return nil
		}
		return d.put(o.Kind, o.Digest, o.Bytes)
	}
	for len(names) > 0 && d.ctx.Err() == nil {
		n := min(batchSize, len(names))
		if err := d.batch(names[:n]); err != nil {
			d.fail(err)
			return e, false
		}
		names = names[n:]
	}
	if d.ctx.Err() != nil {
		return e, false
	}
	if e.Dir, e.Paged, e.Summary, err = d.build.Finish(); err != nil {
		d.fail(err)
		return e, false
	}
	if err := e.Check(); err != nil {
		d.offend(d.path, ReasonAttributes)
	}
	d.fresh.add(d.path, &d.out)
	return e, e.Summary.Entries > 0
}

// batch looks at some entries in parallel and adds them in order.
func (d *dirScan) batch(names []string) error {
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
		if it := &items[i]; len(it.enc) > 0 {
			if err := d.build.AddEncoded(it.name, it.enc, it.counts); err != nil {
				return err
			}
			if typeOf(&it.st) != tree.Directory {
				d.out.entry(it.ino, ctimeOf(&it.st), it.enc)
			}
		}
	}
	return nil
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
		d.spawn(wg, func() { d.descend(it, path, verdict) })
	case tree.Symlink:
		d.link(it, path, trusted)
	case tree.File:
		d.file(it, path, trusted, wg)
	}
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
	defer unix.Close(fd)
	// The directory may be another one than was looked at; what is open counts.
	if it.st, err = fstat(fd); err != nil {
		d.fault(path, err)
		return
	}
	sub := &dirScan{scan: d.scan, fd: fd, root: d.root, path: path, depth: d.depth + 1, within: verdict == ignore.Take}
	e, kept := sub.run(it.name, &it.st)
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
	case errors.Is(err, unix.ENOTDIR):
		d.fail(&ChangedError{Path: path})
	default:
		d.fail(&os.PathError{Op: "capture", Path: path, Err: err})
	}
}

// known returns the encoding that the cache has for the entry, if it is to be
// trusted. Entries are looked up in order of their names.
func (d *dirScan) known(it *item) []byte {
	for d.more && d.next.name < it.name {
		d.next, d.more = d.old.next()
	}
	if !d.more || d.next.name != it.name || d.next.ino == 0 || d.next.ino != it.st.Ino || d.next.ctime != ctimeOf(&it.st) {
		return nil
	}
	return d.next.enc
}

// trust returns the inode if the entry's times tell the next touch.
func trust(st *stat, trusted time.Time) uint64 {
	m, c := time.Unix(st.Mtim.Sec, st.Mtim.Nsec), time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
	if m.After(trusted) || c.After(trusted) {
		return 0
	}
	return st.Ino
}

func (d *dirScan) redactXattrs(xs []tree.Xattr) ([]tree.Xattr, error) {
	for i := range xs {
		var err error
		if d.secrets.in(xs[i].Name) {
			return nil, errSecretName
		}
		if xs[i].Value, xs[i].Redactions, err = d.secrets.redactString(xs[i].Value); err != nil {
			return nil, err
		}
	}
	return xs, nil
}

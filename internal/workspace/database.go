package workspace

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// A SQLite database is a file and, while it is open or after a crash, its logs
// beside it. They are read together, so that what was read is what a crash could
// have left. SQLite brings that to the last commit when it opens it. Nothing is
// locked that could make the writer fail.
//
// With a write-ahead log the database changes only by what is in the log already.
// If that was not begun anew meanwhile, the log read last makes good whatever of
// the database was read too early or too late. With a rollback journal, or none,
// the database is read twice: where both are equal it was so at the time between,
// and so was the journal that was read then, if it is still the same one.
const (
	databaseMagic = "SQLite format 3\x00"
	walSuffix     = "-wal"
	journalSuffix = "-journal"
	sharedSuffix  = "-shm" // made anew by whoever opens the database first
)

// databaseTime is how long a busy database is tried. After patience attempts its
// log is held.
const (
	databaseTime = 10 * time.Second
	patience     = 3
)

// lastReader is the byte of a database's -shm whose lock is that of its last place
// for readers.
const lastReader = 127

// errDatabase reports that a file is a SQLite database, which is read otherwise.
var errDatabase = errors.New("a database")

// database is what was read of the files beside a database, by name.
type database map[string]*item

// besideOf returns the name of the database beside which name would be.
func besideOf(name string) (base string, ok bool) {
	for _, suffix := range []string{walSuffix, journalSuffix, sharedSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok && base != "" {
			return base, true
		}
	}
	return "", false
}

// family decides on a file that has others beside it. It reports whether it is a
// database that must be read with them, since the cache does not know all.
func (d *dirScan) family(it *item) bool {
	at, _ := slices.BinarySearch(d.names, it.name)
	if at++; at == len(d.names) || !strings.HasPrefix(d.names[at], it.name+"-") {
		return false
	}
	listed, known := 0, d.remembers(it.name, &it.st)
	for _, suffix := range []string{walSuffix, journalSuffix, sharedSuffix} {
		if _, ok := slices.BinarySearch(d.names, it.name+suffix); ok {
			listed++
			st, err := lstat(d.fd, it.name+suffix)
			known = known && err == nil && d.remembers(it.name+suffix, &st)
		}
	}
	return listed > 0 && !known && d.headOf(it.name, len(databaseMagic)) == databaseMagic
}

// remembers reports whether the cache knows a file whatever was looked at last.
func (d *dirScan) remembers(name string, st *stat) bool {
	if d.recalled == nil {
		d.recalled = map[string]cached{}
		r := d.had
		for c, ok := r.next(); ok; c, ok = r.next() {
			d.recalled[string(c.head.Name)] = c
		}
	}
	c, ok := d.recalled[name]
	return ok && c.is(st)
}

// keep notes what was read beside a database.
func (d *dirScan) keep(base string, beside database, size uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read.Files++
	d.read.Bytes += size
	for _, m := range beside {
		if m.marked {
			d.mixed.Add(d.path+"/"+m.name, ReasonLog)
		}
	}
	if d.databases == nil {
		d.databases = map[string]database{}
	}
	d.databases[base] = beside
}

// take gives an entry what was read of it with its database, and reports whether
// that is all there is to it.
func (d *dirScan) take(it *item) bool {
	base, ok := besideOf(it.name)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	db, ok := d.databases[base]
	if !ok {
		return false
	}
	if m := db[it.name]; m != nil {
		*it = *m
		delete(db, it.name)
	}
	return true
}

// headOf returns the first n bytes of a file, nothing if it is shorter or cannot
// be read.
func (d *dirScan) headOf(name string, n int) string {
	fd, err := openFile(d.fd, name)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b := make([]byte, n)
	if _, err := io.ReadFull(&fileReader{fd: fd}, b); err != nil {
		return ""
	}
	return string(b)
}

// logs tell one generation of a database's logs from every other.
type logs struct{ wal, journal string }

// logsOf returns the logs of the database name as they are. The header of a
// write-ahead log has random numbers; so has that of a journal, in which only the
// number of records changes.
func (d *dirScan) logsOf(name string) (l logs) {
	l.wal = d.headOf(name+walSuffix, 32)
	if h := d.headOf(name+journalSuffix, 28); h != "" {
		l.journal = h[:8] + h[12:]
	}
	return l
}

// readDatabase reads a database and what is beside it until they belong together.
func (d *dirScan) readDatabase(it *item, path string) (*tree.Entry, error) {
	end := time.Now().Add(databaseTime)
	for try := 1; ; try++ {
		release := func() {}
		if try > patience {
			release = d.holdLog(it.name)
		}
		e, beside, ok, err := d.readFamily(it, path)
		release()
		if err != nil {
			return nil, err
		}
		if !ok && !d.opts.ReadOnce && time.Now().Before(end) {
			// A busy writer has its own rhythm; meet it at another point.
			time.Sleep(time.Duration(rand.Int64N(int64(min(try, 20)) * int64(time.Millisecond))))
			continue
		}
		if !ok && !d.opts.MarkMixed {
			return nil, &ChangedError{Path: path}
		}
		if e.Mixed = !ok; !ok {
			it.ino = 0
		}
		d.keep(it.name, beside, e.Content.Size)
		return e, nil
	}
}

// holdLog keeps the write-ahead log of a database from being begun anew until it is
// released. It takes the lock that a reader has: commits and checkpoints go on, and
// the log grows meanwhile. Where there is no such lock to be had it does nothing.
func (d *dirScan) holdLog(name string) (release func()) {
	fd, err := openFile(d.fd, name+sharedSuffix)
	if err != nil {
		return func() {}
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: lastReader, Len: 1}
	_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock) // without it the attempt is as those before
	return func() { unix.Close(fd) }
}

// readFamily reads all once and reports whether they belong together.
func (d *dirScan) readFamily(it *item, path string) (e *tree.Entry, beside database, ok bool, err error) {
	before := d.logsOf(it.name)
	head := d.headOf(it.name, 20)
	wal := before.wal != "" && len(head) == 20 && head[18] == 2
	var first tree.Entry
	if wal {
		e, err = d.readMember(it, true)
	} else {
		var f *tree.Entry
		if f, err = d.readMember(it, false); err == nil {
			first = *f
			before = d.logsOf(it.name)
		}
	}
	if err != nil {
		return nil, nil, false, err
	}
	if beside, err = d.readBeside(it.name, path); err != nil {
		return nil, nil, false, err
	}
	if !wal {
		if e, err = d.readMember(it, true); err != nil {
			return nil, nil, false, err
		}
		if e.Content != first.Content || !sameRedactions(e.Redactions, first.Redactions) {
			return e, beside, false, nil
		}
	}
	return e, beside, d.logsOf(it.name) == before, nil
}

// readBeside reads what is beside the database.
func (d *dirScan) readBeside(base, path string) (database, error) {
	beside := database{}
	for _, suffix := range []string{journalSuffix, sharedSuffix, walSuffix} {
		m := &item{name: base + suffix}
		var err error
		if m.st, err = lstat(d.fd, m.name); errors.Is(err, unix.ENOENT) || err == nil && typeOf(&m.st) != tree.File {
			continue // what is no file is looked at for itself
		}
		if err != nil {
			return nil, err
		}
		rel := path[len(d.opts.Roots[d.root].Name)+1:] + suffix
		if d.objection(m, &m.st) != "" {
			continue
		}
		if d.policy.Match(rel, false, d.within) == ignore.Skip {
			m.marked = suffix != sharedSuffix && m.st.Size > 0
			beside[m.name] = m
			continue
		}
		e, err := d.readMember(m, true)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.Check() != nil {
			d.offend(path+suffix, ReasonAttributes)
			continue
		}
		m.marked = len(e.Redactions) > 0 // its checksums are not those of zeros
		d.encode(m, e)
		beside[m.name] = m
	}
	return beside, nil
}

// readMember reads a file of a database as it is at the time. It is put or only
// summed.
func (d *dirScan) readMember(it *item, put bool) (*tree.Entry, error) {
	fd, err := openFile(d.fd, it.name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	trusted := time.Now().Add(-trustAge)
	before, err := fstat(fd)
	if err != nil {
		return nil, err
	}
	if typeOf(&before) != tree.File {
		return nil, &ChangedError{Path: d.path + "/" + it.name}
	}
	e := entryOf(it.name, &before)
	if e.Content, e.Redactions, err = d.contents(&fileReader{fd: fd}, put); err != nil {
		return nil, err
	}
	xs, err := xattrs(fd)
	if err != nil {
		return nil, err
	}
	if e.Xattrs, err = d.secrets.redactXattrs(xs); err != nil {
		return nil, err
	}
	after, err := fstat(fd)
	if err != nil {
		return nil, err
	}
	e.Mtime = mtimeOf(&after)
	if it.st, it.ino = after, trust(&after, trusted); !same(&before, &after) || e.Content.Size != uint64(after.Size) {
		it.ino = 0
	}
	return &e, nil
}

// besides adds to a batch what was read beside databases and had not been listed.
// rest are the names that follow the batch.
func (d *dirScan) besides(items []item, rest []string) ([]item, []string) {
	for _, db := range d.databases {
		for name, m := range db {
			if len(m.enc) == 0 {
				continue
			}
			if len(rest) == 0 || name < rest[0] {
				at, listed := slices.BinarySearchFunc(items, name, func(it item, name string) int { return strings.Compare(it.name, name) })
				if listed { // it became a database after it was listed
					items[at] = *m
				} else {
					items = slices.Insert(items, at, *m)
				}
				delete(db, name)
			} else if at, listed := slices.BinarySearch(rest, name); !listed {
				rest = slices.Insert(rest, at, name)
			}
		}
	}
	return items, rest
}

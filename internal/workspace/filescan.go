package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// attempts is how often a file that changes is read.
const attempts = 4

// linkedFile is a file with more than one name. Its names share what was read.
type linkedFile struct {
	mu    sync.Mutex
	st    stat
	read  *tree.Entry
	paths []string
}

// file encodes a regular file, from the cache or by reading it.
func (d *dirScan) file(it *item, path string, trusted time.Time, wg *sync.WaitGroup) {
	var l *linkedFile
	if it.st.Nlink > 1 {
		l = d.linkOf(&it.st)
	}
	it.ino = trust(&it.st, trusted)
	if !d.families[it.name] && d.known(it) {
		d.join(l, path)
		return
	}
	if d.refused.Load() {
		return
	}
	d.spawn(wg, func() {
		if d.ctx.Err() != nil {
			return
		}
		e, err := d.readShared(l, it, path)
		switch {
		case errors.Is(err, unix.ENOENT): // gone since it was looked at
			return
		case err != nil:
			d.fault(path, err)
			return
		case e == nil:
			return
		}
		if err := e.Check(); err != nil {
			d.offend(path, ReasonAttributes)
			return
		}
		d.encode(it, e)
		d.join(l, path)
		d.note(e, path)
	})
}

// is reports whether the cached entry is what st is of, and was not touched since.
func (c *cached) is(st *stat) bool {
	h := &c.head
	return c.ino != 0 && c.ino == st.Ino && c.ctime == ctimeOf(st) &&
		h.Type == typeOf(st) && !h.Mixed && h.Mtime == mtimeOf(st) && h.Mode == uint16(st.Mode&0o7777) && h.UID == st.Uid && h.GID == st.Gid &&
		(h.Type != tree.File || h.Counts.Bytes == uint64(st.Size))
}

func (d *dirScan) linkOf(st *stat) *linkedFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := inode{st.Dev, st.Ino}
	l := d.linked[k]
	if l == nil {
		l = &linkedFile{}
		d.linked[k] = l
	}
	return l
}

func (d *dirScan) join(l *linkedFile, path string) {
	if l != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		l.paths = append(l.paths, path)
	}
}

// note lists a file that is marked.
func (d *dirScan) note(e *tree.Entry, path string) {
	if e.Mixed {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mixed.Add(path, ReasonChanged)
	}
}

// readShared reads a file once for all its names.
func (d *dirScan) readShared(l *linkedFile, it *item, path string) (*tree.Entry, error) {
	if l == nil {
		return d.readFile(it, path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read != nil && same(&l.st, &it.st) {
		e := *l.read
		e.Name = it.name
		return &e, nil
	}
	e, err := d.readFile(it, path)
	if err == nil && e != nil {
		l.st, l.read = it.st, e
	}
	return e, err
}

// readFile reads until the file stays as it is. It returns nil if it became
// something that is no file, which an offender or an error tells.
func (d *dirScan) readFile(it *item, path string) (*tree.Entry, error) {
	for try := 1; ; try++ {
		e, after, err := d.readOnce(it)
		if errors.Is(err, errDatabase) {
			return d.readDatabase(it, path)
		}
		if err != nil {
			return nil, err
		}
		if same(&it.st, &after) {
			d.mu.Lock()
			d.read.Files++
			d.read.Bytes += e.Content.Size
			d.mu.Unlock()
			return e, nil
		}
		if typeOf(&after) != tree.File {
			return nil, &ChangedError{Path: path}
		}
		it.ino = 0
		if try == attempts || d.opts.ReadOnce {
			if !d.opts.MarkMixed {
				return nil, &ChangedError{Path: path}
			}
			e.Mixed = true
			return e, nil
		}
		time.Sleep(time.Duration(try) * 10 * time.Millisecond)
		if it.st, err = lstat(d.fd, it.name); err != nil {
			return nil, err
		}
		if typeOf(&it.st) != tree.File {
			return nil, &ChangedError{Path: path}
		}
	}
}

var smallBufs = sync.Pool{New: func() any { b := make([]byte, chunk.NormalSize); return &b }}

// readOnce reads the file as it is now. It is whole if the file system says
// after it the same of it as before.
func (d *dirScan) readOnce(it *item) (e *tree.Entry, after stat, err error) {
	fd, err := openFile(d.fd, it.name)
	if err != nil {
		return nil, after, err
	}
	defer unix.Close(fd)
	entry := entryOf(it.name, &it.st)
	e = &entry
	if it.st.Blocks*512 < it.st.Size {
		if e.Holes, err = holes(fd, it.st.Size); err != nil {
			return nil, after, err
		}
	}
	var read uint64
	if it.st.Size < chunk.NormalSize {
		read, err = d.readSmall(fd, e, int(it.st.Size))
	} else {
		read, err = d.readLarge(fd, e)
	}
	if err != nil {
		return nil, after, err
	}
	xs, err := xattrs(fd)
	if err != nil {
		return nil, after, err
	}
	if e.Xattrs, err = d.secrets.redactXattrs(xs); err != nil {
		return nil, after, err
	}
	if after, err = fstat(fd); err != nil {
		return nil, after, err
	}
	if read != uint64(it.st.Size) {
		after.Ctim.Nsec = -1 // cut short or grown: not the same, whatever its times say
		e.Holes = nil
	}
	return e, after, nil
}

func (d *dirScan) readSmall(fd int, e *tree.Entry, size int) (uint64, error) {
	buf := smallBufs.Get().(*[]byte)
	defer smallBufs.Put(buf)
	n, err := io.ReadFull(&fileReader{fd: fd}, (*buf)[:size])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	b := (*buf)[:n]
	if strings.HasPrefix(string(b[:min(n, len(databaseMagic))]), databaseMagic) {
		return 0, errDatabase
	}
	if e.Redactions, err = d.secrets.redact(b); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, nil
	}
	sum := tree.Sum(b)
	e.Content = tree.Content{Size: uint64(n), Digest: sum, Sum: sum}
	return uint64(n), d.put(tree.Chunk, sum, b)
}

func (d *dirScan) readLarge(fd int, e *tree.Entry) (read uint64, err error) {
	var head [len(databaseMagic)]byte
	if _, err := io.ReadFull(&fileReader{fd: fd}, head[:]); err == nil && string(head[:]) == databaseMagic {
		return 0, errDatabase
	}
	e.Content, e.Redactions, err = d.contents(&fileReader{fd: fd}, true)
	return e.Content.Size, err
}

// contents takes what r gives with secrets zeroed. It is put or only summed.
func (s *scan) contents(r io.Reader, put bool) (tree.Content, []tree.Redaction, error) {
	if s.secrets == nil {
		c, err := s.store(r, put)
		return c, nil, err
	}
	clean := s.secrets.reader(r)
	c, err := s.store(clean, put)
	if err != nil {
		return c, nil, err
	}
	rs, err := clean.found.redactions()
	return c, rs, err
}

// store puts what r gives as chunks, and their recipe if there are several.
func (s *scan) store(r io.Reader, put bool) (c tree.Content, err error) {
	send := s.put
	if !put {
		send = func(tree.Kind, tree.Digest, []byte) error { return context.Cause(s.ctx) }
	}
	whole := sha256.New()
	var parts []tree.Part
	err = chunk.Split(r, func(b []byte) error {
		p := tree.Part{Length: uint64(len(b)), Digest: tree.Sum(b)}
		parts = append(parts, p)
		c.Size += p.Length
		_, _ = whole.Write(b)
		return send(tree.Chunk, p.Digest, b)
	})
	if err != nil || len(parts) == 0 {
		return c, err
	}
	c.Digest, c.Sum = parts[0].Digest, parts[0].Digest
	if len(parts) > 1 {
		b, err := tree.EncodeRecipe(parts)
		if err != nil {
			return c, err
		}
		c.Digest, c.Chunked, c.Sum = tree.Sum(b), true, tree.Digest(whole.Sum(nil))
		return c, send(tree.Recipe, c.Digest, b)
	}
	return c, nil
}

// link encodes a symbolic link.
func (d *dirScan) link(it *item, path string, trusted time.Time) {
	target, err := readlink(d.fd, it.name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return
	case errors.Is(err, unix.EINVAL):
		d.fail(&ChangedError{Path: path})
		return
	case err != nil:
		d.fault(path, err)
		return
	}
	if d.opts.Links != KeepOutside && d.outside(path, target) {
		if d.opts.Links == SkipOutside {
			d.leave(path, ReasonOutside)
		} else {
			d.offend(path, ReasonOutside)
		}
		return
	}
	e := entryOf(it.name, &it.st)
	if e.Target, e.Redactions, err = d.secrets.redactString(target); err != nil {
		d.fault(path, err)
		return
	}
	if e.Check() != nil {
		d.offend(path, ReasonName)
		return
	}
	it.ino = trust(&it.st, trusted)
	d.encode(it, &e)
}

// outside reports whether following target from the link at path leaves its root
// at any step.
func (d *dirScan) outside(path, target string) bool {
	root := d.opts.Roots[d.root].Path
	fd, err := openDir(unix.AT_FDCWD, root)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	_, below, _ := strings.Cut(path, "/")
	return Leaves(root, below, target, func(path string) (string, bool) {
		next, err := readlink(fd, path)
		return next, err == nil
	})
}

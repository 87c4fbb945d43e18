package pack

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/object"
)

// complete names the deltas whose bases are not in the pack, and appends those
// bases.
func (x *indexer) complete() error {
	var missing *MissingBaseError
	r := newResolver(x, nil)
	for obj := range x.count {
		if *x.rows.typ(obj) != object.Invalid || x.rows.kind(obj) != REFDelta {
			continue
		}
		err := x.completeOne(r, *x.rows.id(obj))
		var absent *MissingBaseError
		if !errors.As(err, &absent) {
			if err != nil {
				return err
			}
			continue
		}
		// A delta that comes later may make this base.
		if missing == nil {
			missing = absent
		}
	}
	if missing == nil {
		return nil
	}
	for obj := range x.count {
		if *x.rows.typ(obj) == object.Invalid && x.rows.kind(obj) == REFDelta {
			return &MissingBaseError{*x.rows.id(obj)}
		}
	}
	return nil
}

// completeOne appends a base and resolves the deltas against it.
func (x *indexer) completeOne(r *resolver, id object.ID) error {
	if x.opts.Base == nil {
		return &MissingBaseError{id}
	}
	t, base, err := x.fetchBase(id)
	if err != nil {
		return err
	}
	taken := false
	defer func() {
		if !taken {
			r.release(base)
		}
	}()
	r.h.Reset(t, base.size)
	if _, err := io.Copy(r.h, base.section()); err != nil {
		return &IOError{"read delta base", err}
	}
	if got, err := r.h.Sum(); err != nil || got != id {
		return fmt.Errorf("delta base %s in this repository is corrupt: its content has the id %s", id, got)
	}
	if x.size > x.opts.MaxPackSize {
		return &LimitError{"pack size in bytes", uint64(x.size), uint64(x.opts.MaxPackSize)}
	}
	obj := x.rows.add(x.size, t)
	*x.rows.id(obj), *x.rows.typ(obj) = id, t
	crc, err := x.append(t, base)
	if err != nil {
		return err
	}
	*x.rows.crc(obj) = crc
	x.bases++
	taken = true
	return r.resolve(tree{obj: obj, typ: t, base: base})
}

// BaseFunc returns an object from outside the pack, which is closed once it was
// read. An object that does not exist is a *MissingBaseError.
type BaseFunc func(id object.ID) (object.Type, int64, io.ReadCloser, error)

// fetchBase reads a base into memory or, when it is large, into a scratch file.
func (x *indexer) fetchBase(id object.ID) (object.Type, content, error) {
	t, size, src, err := x.opts.Base(id)
	if err != nil {
		return t, content{}, err
	}
	defer src.Close()
	if size > holdLimit(t) {
		base, err := spool(func() (Scratch, error) { return x.openScratch(size) }, size, func(w io.Writer) error {
			_, err := io.CopyN(w, src, size)
			return err
		})
		return t, base, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(src, data); err != nil {
		return t, content{}, &IOError{"read delta base", err}
	}
	return t, content{mem: data, size: size}, nil
}

// append writes an object at the end of the stored pack.
func (x *indexer) append(t object.Type, c content) (crc uint32, err error) {
	w := &countingWriter{w: x.dst}
	buf := bufio.NewWriterSize(w, writerBuffer)
	z := zlibWriters.Get().(*zlib.Writer)
	defer zlibWriters.Put(z)
	z.Reset(buf)
	var h [maxEntryHeader]byte
	_, err = buf.Write(AppendEntryHeader(h[:0], t, uint64(c.size)))
	if err == nil {
		_, err = io.Copy(z, c.section())
	}
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return 0, &IOError{"write pack", err}
	}
	x.size += w.n
	return w.crc, nil
}

// countingWriter counts and sums what passes.
type countingWriter struct {
	w   io.Writer
	n   int64
	crc uint32
}

// Write passes p on.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.crc = crc32.Update(c.crc, crc32.IEEETable, p[:n])
	return n, err
}

package pack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/delta"
	"github.com/cairnstate/cairn/internal/git/object"
)

// resolver resolves trees, one after another. It walks a tree depth first with
// a stack of its own, so that no chain is too long for it.
type resolver struct {
	x *indexer
	q *queue
	*hasher

	next, last uint32 // objects to search for trees

	typ     object.Type // of all objects in the current tree
	depth   int         // of the current tree's root
	path    []step      // from the root to the object in work
	pending []uint32    // deltas to descend to, of all steps
	held    int64       // bytes in memory of path, the last step left out
	kept    content     // of the last of pending, when it is at hand

	raw, own, spare []byte
}

// step is an object on the way to the one in work.
type step struct {
	obj   uint32
	base  content
	first int // where its part of pending begins
}

func newResolver(x *indexer, q *queue) *resolver {
	return &resolver{x: x, q: q, hasher: newHasher(x)}
}

// nextWhole returns the next object stored whole that has deltas.
func (r *resolver) nextWhole() (tree, bool) {
	for r.next < r.last {
		obj := r.next
		r.next++
		if k := r.x.rows.kind(obj); !isDelta(k) && r.x.hasDeltas(obj) {
			return tree{obj: obj, typ: k}, true
		}
	}
	return tree{}, false
}

// resolve names all deltas of a tree.
func (r *resolver) resolve(t tree) error {
	r.typ, r.depth = t.typ, t.depth
	err := r.walk(t)
	for _, s := range r.path {
		r.release(s.base)
	}
	r.release(r.kept)
	r.path, r.pending, r.held, r.kept = r.path[:0], r.pending[:0], 0, content{}
	return err
}

func (r *resolver) walk(t tree) error {
	base := t.base
	if !base.present() {
		var err error
		if base, err = r.load(t.obj); err != nil {
			return err
		}
	}
	if err := r.enter(t.obj, base); err != nil {
		return err
	}
	for len(r.path) > 0 {
		top := &r.path[len(r.path)-1]
		if len(r.pending) == top.first {
			r.leave()
			continue
		}
		obj := r.pending[len(r.pending)-1]
		r.pending = r.pending[:len(r.pending)-1]
		child := r.kept
		r.kept = content{}
		if !child.present() {
			var err error
			if child, err = r.again(obj); err != nil {
				return err
			}
		}
		if len(r.pending) > top.first && child.mem != nil && r.q != nil && r.q.wanted() {
			if r.q.give(tree{obj, r.typ, child, r.depth + len(r.path)}) {
				continue
			}
		}
		r.retire()
		if err := r.enter(obj, child); err != nil {
			return err
		}
	}
	return nil
}

// retire prepares the last step for becoming one on the way: its content is
// dropped if nothing needs it again or memory is short.
func (r *resolver) retire() {
	n := len(r.path) - 1
	top := &r.path[n]
	if len(r.pending) == top.first && n > 0 {
		r.release(top.base)
		top.base = content{}
		return
	}
	r.held += int64(len(top.base.mem))
	for i := 1; i <= n && r.held > heldBases; i++ {
		if s := &r.path[i]; s.base.mem != nil {
			r.held -= int64(len(s.base.mem))
			s.base = content{}
		}
	}
}

// enter makes an object the one in work: it names the deltas against it and
// leaves those that have deltas themselves pending.
func (r *resolver) enter(obj uint32, base content) error {
	r.path = append(r.path, step{obj, base, len(r.pending)})
	rows := r.x.rows
	for next := rows.child(obj); next != 0; next = rows.sibling(next - 1) {
		if err := r.child(next-1, &base); err != nil {
			return err
		}
	}
	g := findGroup(r.x.groups, rows.id(obj))
	if g == nil {
		return nil
	}
	// Whoever takes the list resolves it: were an object in the pack twice,
	// its deltas would otherwise be resolved again, and again for theirs.
	for next := g.first.Swap(0); next != 0; next = rows.sibling(next - 1) {
		if err := r.child(next-1, &base); err != nil {
			return err
		}
	}
	return nil
}

// child names one delta against the object in work.
func (r *resolver) child(obj uint32, base *content) error {
	if r.depth+len(r.path) > r.x.opts.MaxDepth {
		return &LimitError{"length of a delta chain", uint64(r.depth + len(r.path)), uint64(r.x.opts.MaxDepth)}
	}
	c, err := r.patch(obj, base, true)
	if err != nil {
		return err
	}
	if c.mem != nil {
		if err := r.name(obj, r.typ, c.mem); err != nil {
			return err
		}
	}
	if !r.x.hasDeltas(obj) {
		r.release(c)
		return nil
	}
	r.release(r.kept)
	r.kept = c
	r.pending = append(r.pending, obj)
	return nil
}

// leave drops the last step.
func (r *resolver) leave() {
	n := len(r.path) - 1
	r.release(r.path[n].base)
	r.path = r.path[:n]
	if n > 0 {
		r.held -= int64(len(r.path[n-1].base.mem))
	}
}

// release lets go of a content, whose memory may be used again.
func (r *resolver) release(c content) {
	if c.file != nil {
		// Nothing was written that matters any more.
		_ = c.file.Close()
	}
	if cap(c.mem) > cap(r.spare) && cap(c.mem) <= maxHeld {
		r.spare = c.mem
	}
}

// again makes the content of a delta of the last step, whose own content is
// made first if it was dropped.
func (r *resolver) again(obj uint32) (content, error) {
	n := len(r.path) - 1
	from := n
	for from > 0 && !r.path[from].base.present() {
		from--
	}
	base := r.path[from].base
	for i := from + 1; i <= n; i++ {
		next, err := r.patch(r.path[i].obj, &base, false)
		if err != nil {
			return content{}, err
		}
		if i > from+1 {
			r.release(base)
		}
		base = next
	}
	r.path[n].base = base
	return r.patch(obj, &base, false)
}

// load reads an object that is stored whole.
func (r *resolver) load(obj uint32) (content, error) {
	h, raw, err := r.x.read(obj, &r.raw)
	if err != nil {
		return content{}, err
	}
	size := int64(h.size)
	if err := r.x.spend(size); err != nil {
		return content{}, err
	}
	if size <= holdLimit(r.typ) {
		mem, err := r.x.inflate(r.take(size), raw, size)
		return content{mem: mem, size: size}, err
	}
	file, err := r.x.openScratch(size)
	if err != nil {
		return content{}, err
	}
	w := bufio.NewWriterSize(file, streamPart)
	err = r.x.inflateStream(raw, func(z *bufio.Reader) error {
		if _, err := io.CopyN(w, z, size); err != nil {
			return err
		}
		return w.Flush()
	})
	made := content{file: file, size: size}
	if err != nil {
		r.release(made)
		return content{}, err
	}
	return made, nil
}

// take returns memory for an object of size bytes, not much more than that.
func (r *resolver) take(size int64) []byte {
	if have := int64(cap(r.spare)); have < size || have > 4*size+4096 || size == 0 {
		return make([]byte, size)
	}
	b := r.spare[:size]
	r.spare = nil
	return b
}

// patch applies the delta obj to base. The first time, an object that is too
// large to hold is named at once, and its content is not returned.
func (r *resolver) patch(obj uint32, base *content, first bool) (content, error) {
	h, raw, err := r.x.read(obj, &r.raw)
	if err != nil {
		return content{}, err
	}
	if err := r.x.spend(int64(h.size)); err != nil {
		return content{}, err
	}
	if base.mem == nil || h.size > maxHeldDelta {
		return r.patchStream(obj, base, raw, first)
	}
	if r.own, err = r.x.inflate(slices.Grow(r.own[:0], int(h.size))[:h.size], raw, int64(h.size)); err != nil {
		return content{}, err
	}
	_, size, err := delta.Sizes(r.own)
	if err != nil {
		return content{}, r.malformed(obj, err)
	}
	if size > uint64(holdLimit(r.typ)) {
		return r.patchStream(obj, base, raw, first)
	}
	if err := r.x.spend(int64(size)); err != nil {
		return content{}, err
	}
	mem, err := delta.Apply(r.take(int64(size)), base.mem, r.own, int64(size))
	if err != nil {
		return content{}, r.malformed(obj, err)
	}
	return content{mem: mem, size: int64(size)}, nil
}

func (r *resolver) malformed(obj uint32, err error) error {
	var bad *delta.Error
	if errors.As(err, &bad) {
		return &FormatError{r.x.rows.offset(obj), bad.Error()}
	}
	return err
}

// patchStream is patch for what does not fit memory.
func (r *resolver) patchStream(obj uint32, base *content, raw *rawEntry, first bool) (content, error) {
	var made content
	err := r.x.inflateStream(raw, func(z *bufio.Reader) error {
		s, err := delta.NewStream(base.readerAt(), base.size, z)
		if err != nil {
			return err
		}
		if made.size, err = r.checkSize(s.ResultSize()); err != nil {
			return err
		}
		if made.size <= holdLimit(r.typ) {
			w := &fixedWriter{buf: r.take(made.size)[:0]}
			err = s.WriteResult(w)
			made.mem = w.buf
			return err
		}
		if first {
			r.h.Reset(r.typ, made.size)
			if err := s.WriteResult(r.h); err != nil {
				return err
			}
			return r.done(obj, r.typ, made.size, nil)
		}
		if made.file, err = r.x.openScratch(made.size); err != nil {
			return err
		}
		w := bufio.NewWriterSize(made.file, streamPart)
		if err := s.WriteResult(w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		r.release(made)
		return content{}, r.malformed(obj, err)
	}
	return made, nil
}

// checkSize checks and counts a result of size bytes.
func (r *resolver) checkSize(size uint64) (int64, error) {
	if size > uint64(r.x.opts.MaxObjectSize) {
		return 0, &LimitError{"object size in bytes", size, uint64(r.x.opts.MaxObjectSize)}
	}
	if r.typ != object.Blob && size > MaxStructured {
		return 0, &LimitError{"size in bytes of a " + r.typ.String(), size, MaxStructured}
	}
	return int64(size), r.x.spend(int64(size))
}

// fixedWriter fills a buffer that is large enough.
type fixedWriter struct{ buf []byte }

// Write appends p.
func (w *fixedWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}

// rawEntry is an entry's zlib stream in the storage.
type rawEntry struct {
	offset int64  // of the entry
	at     int64  // of the stream
	end    int64  // of the entry
	mem    []byte // the stream, when it is small
}

// readWhole is the length up to which entries are read in one step.
const readWhole = 1 << 20

// read reads the header of a received entry, and its data if that is small,
// into buf.
func (x *indexer) read(obj uint32, buf *[]byte) (rawHeader, *rawEntry, error) {
	e := &rawEntry{offset: x.rows.offset(obj), end: x.end}
	if obj+1 < x.count {
		e.end = x.rows.offset(obj + 1)
	}
	n := e.end - e.offset
	if n > readWhole {
		n = maxEntryHeader
	}
	*buf = slices.Grow((*buf)[:0], int(n))[:n]
	if _, err := x.dst.ReadAt(*buf, e.offset); err != nil && err != io.EOF {
		return rawHeader{}, nil, &IOError{"read pack", err}
	}
	h, short, fault := parseEntryHeader(*buf)
	if short || fault != "" {
		return h, nil, &IOError{"read pack", errChanged}
	}
	e.at = e.offset + int64(h.length)
	if e.end-e.offset == n {
		e.mem = (*buf)[h.length:]
	}
	return h, e, nil
}

// errChanged is a storage that does not return what was written to it.
var errChanged = errors.New("storage does not return what was written")

// inflate inflates an entry that was found good when it was received into dst,
// which has size bytes.
func (x *indexer) inflate(dst []byte, e *rawEntry, size int64) ([]byte, error) {
	if e.mem != nil {
		if _, err := inflate(dst, e.mem); err != nil {
			return nil, &IOError{"read pack", fmt.Errorf("%w: %w", errChanged, err)}
		}
		return dst, nil
	}
	err := x.inflateStream(e, func(z *bufio.Reader) error {
		_, err := io.ReadFull(z, dst)
		return err
	})
	return dst, err
}

// inflateStream passes an entry's inflated data to use.
func (x *indexer) inflateStream(e *rawEntry, use func(z *bufio.Reader) error) error {
	z := zlibReaders.Get().(*zlibReader)
	defer func() {
		z.src.Reset(nil)
		zlibReaders.Put(z)
	}()
	z.src.Reset(io.NewSectionReader(storageReader{x.dst}, e.at, e.end-e.at))
	err := z.Reset()
	if err == nil {
		err = use(bufio.NewReaderSize(z.r, 64<<10))
	}
	if isFlateError(err) || errors.Is(err, zlib.ErrHeader) || errors.Is(err, zlib.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &IOError{"read pack", fmt.Errorf("%w: %w", errChanged, err)}
	}
	return err
}

// storageReader names the storage's errors.
type storageReader struct{ r io.ReaderAt }

// ReadAt reads from the storage.
func (s storageReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = &IOError{"read pack", err}
	}
	return n, err
}

// openScratch makes a temporary file for an object of size bytes.
func (x *indexer) openScratch(size int64) (Scratch, error) {
	if x.opts.Scratch == nil {
		return nil, &LimitError{"size in bytes of an object stored as a delta", uint64(size), maxHeld}
	}
	f, err := x.opts.Scratch()
	if err != nil {
		return nil, fmt.Errorf("make scratch file: %w", err)
	}
	return f, nil
}

package pack

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/git/delta"
	"github.com/cairnstate/cairn/internal/git/object"
)

const (
	// MaxStructured is the largest commit, tree or tag that Receive accepts, in
	// bytes: those are held in memory.
	MaxStructured = 32 << 20

	// MaxVisitBlob is the largest blob whose content Receive passes to Visit, in
	// bytes.
	MaxVisitBlob = 256 << 10
)

// Object is one object of a received pack.
type Object struct {
	ID     object.ID
	Type   object.Type
	Size   int64
	Offset int64  // where its entry begins in the pack
	Data   []byte // content, valid during the call; nil for blobs over MaxVisitBlob
}

// Options of Receive. A limit that is zero has the default stated.
type Options struct {
	MaxPackSize   int64  // bytes of the received pack; no limit
	MaxObjects    uint32 // objects of the received pack; no limit
	MaxObjectSize int64  // bytes of one object; no limit
	MaxDepth      int    // deltas between an object and its whole base; 4096
	// MaxWork bounds the bytes inflated and made by deltas, bases that have to
	// be made again included; no limit for entries stored whole, and 64 GiB plus
	// 1024 times the received bytes for resolving deltas.
	MaxWork int64

	// RefuseTrailing makes data after the pack an error. Receive then reads src
	// to its end.
	RefuseTrailing bool

	// Visit is called once for each object of the pack, from several
	// goroutines at once and in no particular order; bases that complete a thin
	// pack are left out. Its error ends Receive, which returns it as it is.
	Visit func(Object) error

	// Base returns objects that the pack lacks and has deltas against. Nil
	// refuses thin packs. It is not called concurrently.
	Base BaseFunc

	// Scratch makes a temporary file, for deltas of objects over 16 MiB. Nil
	// refuses such deltas.
	Scratch func() (Scratch, error)
}

// Result describes the pack that Receive stored.
type Result struct {
	Checksum object.ID // the pack's trailer
	Size     int64     // bytes of the pack
	Bases    int       // objects appended to complete a thin pack

	rows  *table
	order []uint32
}

// Count returns the number of objects, appended bases included.
func (r *Result) Count() int { return len(r.order) }

// Types returns the types in order of ID.
func (r *Result) Types() []object.Type {
	types := make([]object.Type, len(r.order))
	for i, obj := range r.order {
		types[i] = *r.rows.typ(obj)
	}
	return types
}

// Entry returns the type and index entry of the i-th object in order of ID.
func (r *Result) Entry(i int) (object.Type, IndexEntry) {
	obj := r.order[i]
	return *r.rows.typ(obj), IndexEntry{*r.rows.id(obj), r.rows.offset(obj), *r.rows.crc(obj)}
}

// WriteIndex writes the pack's index.
func (r *Result) WriteIndex(w io.Writer) error {
	return WriteIndex(w, r.Count(), func(i int) IndexEntry { _, e := r.Entry(i); return e }, r.Checksum)
}

// Receive stores and indexes a pack: it reads src up to the pack's end, or up to a buffer's
// length beyond, stores the pack in dst, verifies it and finds the ID of every
// object. Memory does not depend on the size of the pack or of its blobs, but
// for some 40 to 70 bytes per object.
//
// What is wrong with the pack is a *FormatError, *LimitError, *MissingBaseError
// or object.ErrCollision; a failing src or dst is an *IOError; ctx's error and
// those of opts' functions are returned as they are. After an error dst holds
// part of a pack and is of no use.
func Receive(ctx context.Context, src io.Reader, dst Storage, opts Options) (*Result, error) {
	opts = opts.withDefaults()
	in, release := newSource(ctx, src, dst, opts.MaxPackSize)
	defer release()
	x := &indexer{ctx: ctx, opts: opts, in: in, dst: dst, maxWork: opts.MaxWork}
	if x.maxWork == 0 {
		x.maxWork = math.MaxInt64
	}
	if err := x.receive(); err != nil {
		return nil, err
	}
	if opts.MaxWork == 0 {
		x.maxWork = x.work.Load() + 64<<30 + 1024*x.end
	}
	if err := x.resolve(); err != nil {
		return nil, err
	}
	if err := x.complete(); err != nil {
		return nil, err
	}
	return x.finish()
}

func (o Options) withDefaults() Options {
	if o.MaxPackSize == 0 {
		o.MaxPackSize = math.MaxInt64
	}
	if o.MaxObjects == 0 {
		o.MaxObjects = math.MaxUint32
	}
	if o.MaxObjectSize == 0 {
		o.MaxObjectSize = math.MaxInt64
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = defaultMaxDepth
	}
	return o
}

// indexer is one call of Receive.
type indexer struct {
	ctx  context.Context
	opts Options
	in   *source
	dst  Storage

	count    uint32 // objects that the header states
	rows     *table
	refs     int        // REFDelta entries
	groups   []refGroup // filled by resolve
	end      int64      // where the last received entry ends
	size     int64      // bytes in dst
	checksum object.ID
	bases    int // objects appended
	work     atomic.Int64
	maxWork  int64
	hashers  *hashers
	scratch  []byte // own data of small deltas
}

// receive reads the whole pack, and names the objects that are stored whole.
func (x *indexer) receive() error {
	if err := x.in.need(headerLen); err != nil {
		return err
	}
	count, fault := parseHeader(x.in.available())
	if fault != "" {
		return &FormatError{0, fault}
	}
	x.in.advance(headerLen)
	if count > x.opts.MaxObjects {
		return &LimitError{"pack objects", uint64(count), uint64(x.opts.MaxObjects)}
	}
	x.count = count
	x.rows = newTable(int(count))
	x.hashers = newHashers(x)
	err := x.entries()
	if err2 := x.hashers.finish(err == nil); err == nil {
		err = err2
	}
	if err != nil {
		return err
	}
	return x.trailer()
}

func (x *indexer) entries() error {
	for range x.count {
		if err := x.entry(); err != nil {
			return err
		}
	}
	return nil
}

// trailer checks the checksum, which is not stored yet: appended bases change
// it.
func (x *indexer) trailer() error {
	if err := x.in.flush(); err != nil {
		return err
	}
	x.end = x.in.offset()
	x.size = x.end
	x.checksum = object.ID(x.in.sum.Sum(nil))
	// From here on nothing that is read belongs in the storage.
	x.in.w, x.in.sum = io.Discard, sha1.New()
	if err := x.in.need(trailerLen); err != nil {
		return err
	}
	if object.ID(x.in.available()[:trailerLen]) != x.checksum {
		return &FormatError{x.end, "pack checksum does not match"}
	}
	x.in.advance(trailerLen)
	if !x.opts.RefuseTrailing {
		return nil
	}
	more, err := x.in.trailing()
	if err == nil && more {
		err = &FormatError{x.end + trailerLen, "data follows the pack"}
	}
	return err
}

// entry reads one entry.
func (x *indexer) entry() error {
	in := x.in
	start := in.offset()
	in.startEntry()
	h, short, fault := parseEntryHeader(in.available())
	for short {
		if err := in.more(); err != nil {
			return in.fault(err)
		}
		h, short, fault = parseEntryHeader(in.available())
	}
	if fault != "" {
		return &FormatError{start, fault}
	}
	if h.size > uint64(x.opts.MaxObjectSize) {
		return &LimitError{"object size in bytes", h.size, uint64(x.opts.MaxObjectSize)}
	}
	in.advance(h.length)
	obj := x.rows.add(start, h.typ)
	if err := x.link(obj, start, h); err != nil {
		return err
	}
	if err := x.spend(int64(h.size)); err != nil {
		return err
	}
	if err := x.body(obj, h.typ, int64(h.size)); err != nil {
		return err
	}
	*x.rows.crc(obj) = in.endEntry()
	return nil
}

// link notes what a delta is against.
func (x *indexer) link(obj uint32, start int64, h rawHeader) error {
	switch h.typ {
	case OFSDelta:
		if h.distance == 0 || h.distance > uint64(start) {
			return &FormatError{start, "delta base offset lies outside the pack"}
		}
		base, ok := x.rows.at(start - int64(h.distance))
		if !ok {
			return &FormatError{start, "delta base offset is not where an entry begins"}
		}
		x.rows.setSibling(obj, x.rows.child(base))
		x.rows.setChild(base, obj+1)
	case REFDelta:
		*x.rows.id(obj) = h.base
		x.refs++
	}
	return nil
}

// body reads an entry's data: deltas are only checked, whole objects named.
func (x *indexer) body(obj uint32, t object.Type, size int64) error {
	switch {
	case isDelta(t):
		return x.deltaBody(size)
	case size <= MaxVisitBlob:
		return x.hashers.add(obj, int(size))
	case t != object.Blob && size > MaxStructured:
		return &LimitError{"size in bytes of a " + t.String(), uint64(size), MaxStructured}
	case t != object.Blob:
		data := make([]byte, size)
		if err := x.in.inflateTo(data); err != nil {
			return err
		}
		return x.hashers.own.name(obj, t, data)
	default:
		return x.hashers.addBlob(obj, size)
	}
}

// deltaBody checks a delta's size and header.
func (x *indexer) deltaBody(size int64) error {
	head := x.scratch[:0]
	var err error
	if size <= MaxVisitBlob {
		x.scratch = slices.Grow(x.scratch[:0], int(size))
		head = x.scratch[:size]
		err = x.in.inflateTo(head)
	} else {
		err = x.in.inflateStream(size, func(part []byte) error {
			head = append(head, part[:min(len(part), maxEntryHeader-min(len(head), maxEntryHeader))]...)
			return nil
		})
	}
	if err != nil {
		return err
	}
	_, result, err := delta.Sizes(head)
	if err != nil {
		return x.in.fault(err)
	}
	if result > uint64(x.opts.MaxObjectSize) {
		return &LimitError{"object size in bytes", result, uint64(x.opts.MaxObjectSize)}
	}
	return nil
}

// spend counts work and stops it at the limit.
func (x *indexer) spend(n int64) error {
	if done := x.work.Add(n); done < 0 || done > x.maxWork {
		return &LimitError{"bytes inflated or made by deltas", uint64(done), uint64(x.maxWork)}
	}
	return x.ctx.Err()
}

// finish completes the stored pack and sorts the result.
func (x *indexer) finish() (*Result, error) {
	if x.bases > 0 {
		if err := x.rewriteHeader(); err != nil {
			return nil, err
		}
	}
	if _, err := x.dst.Write(x.checksum[:]); err != nil {
		return nil, &IOError{"write pack", err}
	}
	x.rows.dropLinks()
	x.groups, x.hashers = nil, nil
	order := x.rows.sortByID(x.rows.count, x.rows.all)
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; *x.rows.id(a) == *x.rows.id(b) {
			return nil, &FormatError{x.rows.offset(max(a, b)), fmt.Sprintf("object %s is in the pack twice", x.rows.id(a))}
		}
	}
	return &Result{Checksum: x.checksum, Size: x.size + trailerLen, Bases: x.bases, rows: x.rows, order: order}, nil
}

// rewriteHeader sets the count of a pack that got longer, and its checksum.
func (x *indexer) rewriteHeader() error {
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(x.rows.count))
	if _, err := x.dst.WriteAt(count[:], 8); err != nil {
		return &IOError{"write pack", err}
	}
	sum := sha1.New()
	buf := make([]byte, sourceBuffer)
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(x.dst, 0, x.size), buf); err != nil {
		return &IOError{"read pack", err}
	}
	x.checksum = object.ID(sum.Sum(nil))
	return nil
}

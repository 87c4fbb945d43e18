package odb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
)

// Pack is one opened pack. It is safe for concurrent use.
type Pack struct {
	store *Store
	info  meta.Pack
	file  *pack.Pack
	blob  blob.Object // nil for a small pack

	memo     sync.Mutex
	memoized any
}

// Info returns the pack's row. Its ID is 0 for a pack that is not published.
func (p *Pack) Info() *meta.Pack { return &p.info }

// File returns the pack for access to its entries.
func (p *Pack) File() *pack.Pack { return p.file }

// Index returns the pack's index.
func (p *Pack) Index() *pack.Index { return p.file.Index() }

// copyBuffer is the size of the pieces in which packs are copied.
const copyBuffer = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// WriteTo copies the whole pack file to w.
func (p *Pack) WriteTo(w io.Writer) (int64, error) {
	if s, ok := p.blob.(io.WriterTo); ok {
		return s.WriteTo(w)
	}
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(w, p.file.Run(0, p.file.Size()), buf[:])
}

var _ io.WriterTo = (*Pack)(nil)

// Get returns the type and content of the object at an index position. The
// content must not be modified.
func (p *Pack) Get(pos int) (object.Type, []byte, error) { return p.get(pos) }

// Type returns the type of the object at an index position.
func (p *Pack) Type(pos int) (object.Type, error) {
	t, err := p.file.Type(pos, p.store.limits)
	return t, p.fault(pos, err)
}

// Size returns the size in bytes of the object at an index position.
func (p *Pack) Size(pos int) (int64, error) {
	size, err := p.file.ObjectSize(pos)
	return size, p.fault(pos, err)
}

// Stream returns the object at an index position as a stream.
func (p *Pack) Stream(pos int) (object.Type, int64, io.ReadCloser, error) {
	t, size, r, err := p.file.Stream(pos, p.store.limits)
	return t, size, r, p.fault(pos, err)
}

// Corrupt counts and returns a *CorruptError about the pack.
func (p *Pack) Corrupt(err error) error {
	return p.store.corrupt(&CorruptError{Pack: p.info.ID, Err: err})
}

func (p *Pack) get(pos int) (object.Type, []byte, error) {
	t, data, err := p.file.Get(pos, p.store.limits)
	return t, data, p.fault(pos, err)
}

// Fault turns damage met at an index position into a *CorruptError; other
// errors stay.
func (p *Pack) Fault(pos int, err error) error { return p.fault(pos, err) }

func (p *Pack) fault(pos int, err error) error {
	if err == nil {
		return nil
	}
	var bad *pack.CorruptError
	if errors.As(err, &bad) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, blob.ErrNotFound) {
		return p.store.corrupt(&CorruptError{Object: p.Index().ID(pos), Pack: p.info.ID, Err: err})
	}
	return err
}

// Memo returns what make returned the first time, if that was no error: one
// value computed from the pack by the layer above, kept as long as the pack.
func (p *Pack) Memo(make func() (any, error)) (any, error) {
	p.memo.Lock()
	defer p.memo.Unlock()
	if p.memoized != nil {
		return p.memoized, nil
	}
	v, err := make()
	if err == nil {
		p.memoized = v
	}
	return v, err
}

// GraphData returns the commit table stored beside a large pack; nil for a
// small one, which has none.
func (p *Pack) GraphData(ctx context.Context) ([]byte, error) {
	if p.blob == nil {
		return nil, nil
	}
	return p.store.readBlob(ctx, &p.info, GraphSuffix)
}

// load returns opened packs, from the cache where it has them.
func (s *Store) load(ctx context.Context, ids []meta.PackID) ([]*Pack, error) {
	out := make([]*Pack, len(ids))
	var unknown []meta.PackID
	var place []int // of the unknown ones
	for i, id := range ids {
		if p, ok := s.packs.Get(id); ok {
			out[i] = p
			continue
		}
		unknown, place = append(unknown, id), append(place, i)
	}
	if len(unknown) == 0 {
		return out, nil
	}
	rows, err := s.cfg.Meta.PacksByID(ctx, unknown)
	if err != nil {
		return nil, fmt.Errorf("read packs: %w", err)
	}
	var small []meta.PackID
	var at []int // their places in rows
	for i := range rows {
		if rows[i].Inline {
			small, at = append(small, rows[i].ID), append(at, i)
			continue
		}
		if out[place[i]], err = s.loadLarge(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	const batch = 256 // at most 16 MiB of rows at once
	for len(small) > 0 {
		n := min(batch, len(small))
		data, err := s.cfg.Meta.SmallPacks(ctx, small[:n])
		if err != nil {
			return nil, fmt.Errorf("read small packs: %w", err)
		}
		for i, d := range data {
			p, err := s.loadSmall(ctx, &rows[at[i]], d)
			if err != nil {
				return nil, err
			}
			out[place[at[i]]] = p
		}
		small, at = small[n:], at[n:]
	}
	return out, nil
}

// loadSmall opens a pack that is a row; its index is computed.
func (s *Store) loadSmall(ctx context.Context, row *meta.Pack, data []byte) (*Pack, error) {
	idx, err := indexBytes(ctx, data)
	if err != nil {
		return nil, s.corrupt(&CorruptError{Pack: row.ID, Err: err})
	}
	return s.adopt(*row, data, idx)
}

// adopt opens and keeps a small pack whose index is known.
func (s *Store) adopt(row meta.Pack, data []byte, idx *pack.Index) (*Pack, error) {
	file, err := pack.OpenBytes(data, idx)
	if err != nil {
		return nil, s.corrupt(&CorruptError{Pack: row.ID, Err: err})
	}
	p := &Pack{store: s, info: row, file: file.WithCache(s.bases)}
	if row.ID != 0 {
		s.packs.Put(row.ID, p, int64(len(data)+len(idx.Bytes())+512))
	}
	return p, nil
}

// loadLarge opens a pack that is stored as blobs.
func (s *Store) loadLarge(ctx context.Context, row *meta.Pack) (*Pack, error) {
	v, err, _ := s.flights.Do(fmt.Sprintf("pack %d", row.ID), func() (any, error) {
		if p, ok := s.packs.Get(row.ID); ok {
			return p, nil
		}
		return s.openLarge(ctx, *row)
	})
	if err != nil {
		return nil, err
	}
	return v.(*Pack), nil
}

func (s *Store) openLarge(ctx context.Context, row meta.Pack) (*Pack, error) {
	data, err := s.readBlob(ctx, &row, IndexSuffix)
	if err != nil {
		return nil, err
	}
	idx, err := pack.ParseIndex(data)
	if err != nil {
		return nil, s.corrupt(&CorruptError{Pack: row.ID, Err: err})
	}
	p, err := s.openIndexed(ctx, row, idx)
	if err != nil {
		return nil, err
	}
	s.keepLarge(p)
	return p, nil
}

// openIndexed opens a large pack whose index is known.
func (s *Store) openIndexed(ctx context.Context, row meta.Pack, idx *pack.Index) (*Pack, error) {
	o, err := blob.MustOpen(ctx, s.cfg.Blobs, blob.Key(row.Key+PackSuffix), row.Bytes)
	if err != nil {
		return nil, s.blobFault(&row, err)
	}
	file, err := pack.Open(o, o.Size(), idx)
	if err != nil {
		o.Close()
		return nil, s.corrupt(&CorruptError{Pack: row.ID, Err: err})
	}
	p := &Pack{store: s, info: row, file: file.WithCache(s.bases), blob: o}
	// Views and streams hold packs for as long as they like; the object is closed
	// when the last of them is gone.
	runtime.AddCleanup(p, func(o blob.Object) { o.Close() }, o)
	return p, nil
}

// keepLarge caches an opened large pack.
func (s *Store) keepLarge(p *Pack) {
	// The offset order, 4 bytes an object, comes with the first copy.
	s.packs.Put(p.info.ID, p, int64(len(p.Index().Bytes())+4*p.Index().Count()+1024))
}

// readBlob reads a whole blob of a pack into memory.
func (s *Store) readBlob(ctx context.Context, row *meta.Pack, suffix string) ([]byte, error) {
	o, err := blob.MustOpen(ctx, s.cfg.Blobs, blob.Key(row.Key+suffix), -1)
	if err != nil {
		return nil, s.blobFault(row, err)
	}
	defer o.Close()
	data := make([]byte, o.Size())
	if n, err := o.ReadAt(data, 0); n < len(data) {
		return nil, s.blobFault(row, fmt.Errorf("read %q: %w", row.Key+suffix, err))
	}
	return data, nil
}

func (s *Store) blobFault(row *meta.Pack, err error) error {
	if errors.Is(err, blob.ErrCorrupt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.corrupt(&CorruptError{Pack: row.ID, Err: err})
	}
	return err
}

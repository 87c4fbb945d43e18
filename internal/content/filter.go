package content

import (
	"context"
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/tree"
)

// maxFiltered is up to how many records a table gets a filter.
const maxFiltered = 1 << 18

// filter says of most digests that a table does not have that it does not have
// them: three bits of a few for each record. Digests are random, and their bytes are
// their hashes.
type filter struct {
	bits []uint64
	mask uint64
}

func newFilter(records int) *filter {
	n := uint64(1) << bits.Len(uint(max(records*12, 64)))
	return &filter{make([]uint64, n/64), n - 1}
}

func (f *filter) add(d *tree.Digest) {
	for i := 8; i < digestSize; i += 8 {
		at := binary.BigEndian.Uint64(d[i:]) & f.mask
		f.bits[at/64] |= 1 << (at % 64)
	}
}

func (f *filter) may(d *tree.Digest) bool {
	for i := 8; i < digestSize; i += 8 {
		at := binary.BigEndian.Uint64(d[i:]) & f.mask
		if f.bits[at/64]&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

// filtered makes the filter of a table once it has been asked so often that this
// is worth a pass over it.
type filtered struct {
	asked atomic.Int64
	made  atomic.Pointer[filter]
	busy  atomic.Bool
}

// excludes reports whether the table certainly does not have d.
func (f *filtered) excludes(ctx context.Context, t *table, d *tree.Digest) bool {
	if made := f.made.Load(); made != nil {
		return !made.may(d)
	}
	if t.records > maxFiltered || f.asked.Add(1) <= int64(t.records/8) || !f.busy.CompareAndSwap(false, true) {
		return false
	}
	made := newFilter(t.records)
	err := t.each(ctx, func(_ int, r *record) error {
		made.add(&r.digest)
		return nil
	})
	if err != nil {
		// The look-up itself meets what is wrong.
		f.asked.Store(0)
		f.busy.Store(false)
		return false
	}
	f.made.Store(made)
	return !made.may(d)
}

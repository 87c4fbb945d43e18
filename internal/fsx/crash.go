package fsx

import (
	"math/rand/v2"
	"slices"
	"time"
)

// sector is the unit in which a disk writes, in bytes: a loss of power leaves it
// as it was or as it was to be.
const sector = 512

// memWrite is one change of a file: bytes put at an offset or, when data is nil,
// the size at given to it.
type memWrite struct {
	at   int64
	data []byte
}

// apply makes the change on data.
func (w memWrite) apply(data []byte) []byte {
	if w.data == nil {
		return resized(data, w.at)
	}
	data = resized(data, max(int64(len(data)), w.at+int64(len(w.data))))
	copy(data[w.at:], w.data)
	return data
}

// resized returns data with another length; new bytes are zero.
func resized(data []byte, size int64) []byte {
	if grow := int(size) - len(data); grow > 0 {
		n := len(data)
		data = slices.Grow(data, grow)[:size]
		clear(data[n:])
		return data
	}
	return data[:size]
}

// change applies w and notes it as not durable.
func (n *memNode) change(w memWrite) {
	n.data = w.apply(n.data)
	n.unsynced = append(n.unsynced, w)
	n.modTime = time.Now()
}

func (n *memNode) write(at int64, p []byte) {
	if len(p) > 0 {
		n.change(memWrite{at: at, data: slices.Clone(p)})
	}
}

func (n *memNode) resize(size int64) {
	if size != int64(len(n.data)) {
		n.change(memWrite{at: size})
	}
}

// sync makes the file durable as it is.
func (n *memNode) sync() {
	for _, w := range n.unsynced {
		n.durable = w.apply(n.durable)
	}
	n.unsynced = nil
}

// forsake takes what is not durable out of what a later Sync makes durable: so
// it goes to pages that a disk did not take.
func (f *memFile) forsake() {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.unsynced = nil
}

// crashData returns the bytes that a loss of power leaves: those that were
// synced and, by rng's choice, either the unsynced changes up to one that is
// torn, or any sectors of any of them. A nil rng leaves none.
func (n *memNode) crashData(rng *rand.Rand) []byte {
	data := slices.Clone(n.durable)
	if rng == nil || len(n.unsynced) == 0 {
		return data
	}
	if rng.IntN(2) == 0 { // the disk wrote in order
		last := rng.IntN(len(n.unsynced))
		for _, w := range n.unsynced[:last] {
			data = w.apply(data)
		}
		return n.unsynced[last].torn(data, rng)
	}
	for _, w := range n.unsynced {
		data = w.torn(data, rng)
	}
	return data
}

// torn applies some of the sectors of a change. Sectors that are lost may still
// have made the file longer.
func (w memWrite) torn(data []byte, rng *rand.Rand) []byte {
	if w.data == nil {
		if rng.IntN(2) == 0 {
			data = w.apply(data)
		}
		return data
	}
	if rng.IntN(4) == 0 {
		return w.apply(data)
	}
	for from := int64(0); from < int64(len(w.data)); {
		at := w.at + from
		to := min(from+sector-at%sector, int64(len(w.data)))
		switch rng.IntN(4) {
		case 0: // the sector is lost
		case 1:
			data = resized(data, max(int64(len(data)), w.at+to))
		default:
			data = memWrite{at: at, data: w.data[from:to]}.apply(data)
		}
		from = to
	}
	return data
}

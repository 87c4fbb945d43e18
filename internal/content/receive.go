package content

import (
	"slices"
	"sync"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
)

const (
	batchBytes = 2 << 20 // of objects that one worker takes at a time, as they are
	batchCount = 4096
)

// batch are groups on their way through a worker.
type batch struct {
	raw     []byte        // of all of them, as they were written
	groups  []frame.Group // single objects are groups too
	objects int
	length  int   // of all when they are decoded
	at      []int // where each begins in raw
	members []frame.Member
	plain   []byte // of one group
	out     []byte
	new     []frame.Group
	grouper frame.Grouper
	ready   chan struct{}
}

// batches are used again, with the room that they have.
var batches = sync.Pool{New: func() any { return &batch{raw: make([]byte, 0, batchBytes+batchBytes/8)} }}

// release gives a batch back that the packer is done with.
func (b *batch) release() {
	b.grouper.Drop() // of what ended with an error
	if max(cap(b.raw), cap(b.plain), cap(b.out)) <= 2*batchBytes {
		clear(b.groups)
		clear(b.new)
		b.raw, b.groups, b.at, b.members, b.out, b.new = b.raw[:0], b.groups[:0], b.at[:0], b.members[:0], b.out[:0], b.new[:0]
		b.objects, b.length = 0, 0
		batches.Put(b)
	}
}

// process hashes the objects of a batch and puts the new ones together.
func (u *Upload) process(b *batch) error {
	if err := u.failed(); err != nil {
		return err
	}
	b.grouper.Give = func(g *frame.Group) error {
		start := len(b.out)
		b.out = append(b.out, g.Bytes...)
		// A longer out may have moved: what was appended before keeps its array.
		b.new = append(b.new, frame.Group{Members: slices.Clone(g.Members), Encoding: g.Encoding, Length: g.Length, Bytes: b.out[start:]})
		return nil
	}
	for i := range b.groups {
		if err := u.group(b, &b.groups[i]); err != nil {
			return err
		}
	}
	return b.grouper.Close()
}

// group hashes the objects of a group. Those that are not wanted lose their digest.
func (u *Upload) group(b *batch, g *frame.Group) (err error) {
	plain := g.Bytes
	if g.Encoding != frame.Raw {
		if b.plain, err = frame.Decompress(b.plain[:0], g.Encoding, g.Bytes, g.Length); err != nil {
			return &tree.CorruptError{Digest: g.Members[0].Digest}
		}
		plain = b.plain
	}
	rest := plain
	for i := range g.Members {
		m := &g.Members[i]
		if tree.Sum(rest[:m.Length]) != m.Digest {
			return &tree.CorruptError{Digest: m.Digest}
		}
		rest = rest[m.Length:]
	}
	wanted, err := u.wanted(g.Members)
	if err != nil || wanted < 0 {
		return err
	}
	if keeps(g.Encoding, len(g.Bytes), g.Length, wanted) {
		b.new = append(b.new, *g)
		return nil
	}
	rest = plain
	for i := range g.Members {
		m := &g.Members[i]
		if m.Digest != (tree.Digest{}) {
			if err := b.grouper.Add(tree.Object{Kind: m.Kind, Digest: m.Digest, Bytes: rest[:m.Length]}); err != nil {
				return err
			}
		}
		rest = rest[m.Length:]
	}
	return nil
}

// wanted notes that objects were received and takes the digests from those that need
// not be stored. It returns how many bytes the others have, -1 if there are none.
func (u *Upload) wanted(members []frame.Member) (bytes int, err error) {
	fresh := make([]bool, len(members))
	u.mu.Lock()
	for i := range members {
		m := &members[i]
		u.stored.Objects++
		u.stored.Bytes += int64(m.Length)
		if _, seen := u.received[m.Digest]; !seen {
			u.received[m.Digest] = false
			fresh[i] = true
		}
	}
	u.mu.Unlock()
	var had []tree.Digest
	count := 0
	for i := range members {
		m := &members[i]
		if !fresh[i] {
			m.Digest = tree.Digest{}
			continue
		}
		ok, err := u.view.has(u.ctx, m.Digest)
		if err != nil && !corrupt(err) { // what cannot be looked up is stored again
			return 0, err
		}
		if ok && err == nil {
			had = append(had, m.Digest)
			m.Digest = tree.Digest{}
			continue
		}
		bytes, count = bytes+m.Length, count+1
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, d := range had {
		u.received[d] = true
	}
	u.stored.New += int64(count)
	if count == 0 {
		return -1, nil
	}
	return bytes, nil
}

package repo

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// namesPerBlock is how many names are stored as what differs from the one before.
const namesPerBlock = 16

// nameList is a sorted list of names in little memory: names that follow each
// other mostly begin alike. It is immutable once it is filled.
type nameList struct {
	n int
	// text is blocks of names. Each name is the length that it shares with the one
	// before in its block, the length of the rest, and the rest.
	text   []byte
	blocks []int // where each begins
	last   []byte
}

// add appends a name, which sorts after all others.
func (l *nameList) add(name string) {
	shared := 0
	if l.n%namesPerBlock == 0 {
		l.blocks = append(l.blocks, len(l.text))
	} else {
		for shared < len(name) && shared < len(l.last) && name[shared] == l.last[shared] {
			shared++
		}
	}
	l.text = binary.AppendUvarint(l.text, uint64(shared))
	l.text = binary.AppendUvarint(l.text, uint64(len(name)-shared))
	l.text = append(l.text, name[shared:]...)
	l.last = append(l.last[:shared], name[shared:]...)
	l.n++
}

// nextName reads the name at the beginning of text, given the one before it in its
// block, whose memory it takes.
func nextName(text, before []byte) (name, rest []byte) {
	shared, n := binary.Uvarint(text)
	text = text[n:]
	length, n := binary.Uvarint(text)
	text = text[n:]
	return append(before[:shared], text[:length]...), text[length:]
}

// first returns the first name of a block, in the list's memory.
func (l *nameList) first(block int) []byte {
	text := l.text[l.blocks[block]+1:] // it shares nothing
	length, n := binary.Uvarint(text)
	return text[n : n+int(length)]
}

// find returns the place of the first name that does not sort before the given
// one, and whether it is that.
func (l *nameList) find(name string) (int, bool) {
	block := sort.Search(len(l.blocks), func(k int) bool { return string(l.first(k)) > name }) - 1
	if block < 0 {
		return 0, false
	}
	var space [128]byte
	at, text, now := block*namesPerBlock, l.text[l.blocks[block]:], space[:0]
	for ; at < min(l.n, (block+1)*namesPerBlock); at++ {
		if now, text = nextName(text, now); string(now) >= name {
			return at, string(now) == name
		}
	}
	return at, false
}

// bytes returns the memory of the list.
func (l *nameList) bytes() int64 { return int64(cap(l.text) + 8*cap(l.blocks)) }

// clip gives up what the list does not need once it is filled.
func (l *nameList) clip() { l.text, l.last = bytes.Clone(l.text), nil }

// nameCursor reads a list from one place on. One goroutine uses it.
type nameCursor struct {
	list  *nameList
	block int
	names []string // of the block
}

// at returns the name at a place, which exists.
func (c *nameCursor) at(i int) string {
	if c.names == nil || c.block != i/namesPerBlock {
		c.read(i / namesPerBlock)
	}
	return c.names[i%namesPerBlock]
}

// read makes the names of a block, which share one string.
func (c *nameCursor) read(block int) {
	var space [128]byte
	var ends [namesPerBlock]int
	count := min(namesPerBlock, c.list.n-block*namesPerBlock)
	text, now := c.list.text[c.list.blocks[block]:], space[:0]
	var all []byte
	for k := range count {
		now, text = nextName(text, now)
		if all == nil {
			all = make([]byte, 0, count*(len(now)+4))
		}
		all = append(all, now...)
		ends[k] = len(all)
	}
	joined, start := string(all), 0
	if c.names == nil {
		c.names = make([]string, 0, namesPerBlock)
	}
	c.block, c.names = block, c.names[:0]
	for _, end := range ends[:count] {
		c.names = append(c.names, joined[start:end])
		start = end
	}
}

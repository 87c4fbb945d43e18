package pack

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"math/bits"
	"sync"
)

// Faults of a zlib stream.
var (
	errShort   = errors.New("compressed data is cut short")
	errDeflate = errors.New("compressed data is malformed")
	errAdler   = errors.New("compressed data has a wrong checksum")
	errSize    = errors.New("inflated data does not have the size that its header states")
)

// inflater decodes whole zlib streams from memory to memory. Where both ends
// fit in memory it takes about half the time of a streaming decoder, since the
// output is its own window and no state survives the call.
type inflater struct {
	ownLit, ownDist huffman // of the current block, if it has its own codes

	lengths [maxLit + maxDist]uint8

	src    []byte
	in     int    // next byte of src to load
	bitbuf uint64 // loaded bits, the next one lowest
	nbits  int    // loaded bits; below zero once the input is overrun
	dst    []byte
	out    int // next byte of dst to write
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// inflate decodes the zlib stream at the start of src into dst, which it must
// fill exactly, and returns the length of the stream. The error is errShort if
// src ends before the stream does.
func inflate(dst, src []byte) (int, error) {
	f := inflaters.Get().(*inflater)
	n, err := f.decode(dst, src)
	f.src, f.dst = nil, nil
	inflaters.Put(f)
	return n, err
}

func (f *inflater) decode(dst, src []byte) (int, error) {
	if len(src) < 2 {
		return 0, errShort
	}
	if h := binary.BigEndian.Uint16(src); h%31 != 0 || h>>8&0x0f != 8 || h>>12 > 7 || h&0x20 != 0 {
		return 0, errDeflate
	}
	f.src, f.in, f.bitbuf, f.nbits = src, 2, 0, 0
	f.dst, f.out = dst, 0
	for last := false; !last; {
		f.refill()
		last = f.take(1) == 1
		var err error
		switch f.take(2) {
		case 0:
			err = f.stored()
		case 1:
			err = f.block(&fixedLit, &fixedDist)
		case 2:
			if err = f.dynamic(); err == nil {
				err = f.block(&f.ownLit, &f.ownDist)
			}
		default:
			err = errDeflate
		}
		if f.nbits < 0 {
			return 0, errShort
		}
		if err != nil {
			return 0, err
		}
	}
	if f.out != len(dst) {
		return 0, errSize
	}
	at := f.in - f.nbits>>3
	if len(src)-at < 4 {
		return 0, errShort
	}
	if binary.BigEndian.Uint32(src[at:]) != adler32.Checksum(dst) {
		return 0, errAdler
	}
	return at + 4, nil
}

// refill loads input until at least 56 bits are there or the input ends.
func (f *inflater) refill() {
	if len(f.src)-f.in >= 8 {
		f.bitbuf |= binary.LittleEndian.Uint64(f.src[f.in:]) << (f.nbits & 63)
		f.in += (63 - f.nbits) >> 3
		f.nbits |= 56
		return
	}
	for f.nbits >= 0 && f.nbits < 56 && f.in < len(f.src) {
		f.bitbuf |= uint64(f.src[f.in]) << f.nbits
		f.in++
		f.nbits += 8
	}
}

// take consumes n loaded bits.
func (f *inflater) take(n int) uint64 {
	v := f.bitbuf & (1<<n - 1)
	f.bitbuf >>= n
	f.nbits -= n
	return v
}

// stored copies a block that is not compressed.
func (f *inflater) stored() error {
	if f.nbits < 0 {
		return errShort
	}
	f.in -= f.nbits >> 3
	f.bitbuf, f.nbits = 0, 0
	if len(f.src)-f.in < 4 {
		return errShort
	}
	n := int(binary.LittleEndian.Uint16(f.src[f.in:]))
	if n^0xffff != int(binary.LittleEndian.Uint16(f.src[f.in+2:])) {
		return errDeflate
	}
	f.in += 4
	if n > len(f.dst)-f.out {
		return errSize
	}
	if n > len(f.src)-f.in {
		return errShort
	}
	copy(f.dst[f.out:], f.src[f.in:f.in+n])
	f.in += n
	f.out += n
	return nil
}

const (
	maxLit  = 288
	maxDist = 32
)

// codeOrder is the order in which a dynamic block states the lengths of the
// codes for code lengths.
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// fixedLit and fixedDist are the codes that the format fixes.
var fixedLit, fixedDist = fixedCodes()

func fixedCodes() (lit, dist huffman) {
	var l [maxLit]uint8
	for i := range l {
		switch {
		case i < 144:
			l[i] = 8
		case i < 256:
			l[i] = 9
		case i < 280:
			l[i] = 7
		default:
			l[i] = 8
		}
	}
	lit.build(l[:], &litValues, litBits, false)
	for i := range maxDist {
		l[i] = 5
	}
	dist.build(l[:maxDist], &distValues, distBits, false)
	return lit, dist
}

// dynamic reads a block's own codes.
func (f *inflater) dynamic() error {
	f.refill()
	nlit, ndist, ncode := int(f.take(5))+257, int(f.take(5))+1, int(f.take(4))+4
	if nlit > 286 || ndist > 30 {
		return errDeflate
	}
	var codes [19]uint8
	for i := range ncode {
		f.refill()
		codes[codeOrder[i]] = uint8(f.take(3))
	}
	if f.nbits < 0 {
		return errShort
	}
	// The codes for lengths are dead once the lengths are read: borrow ownDist.
	if !f.ownDist.build(codes[:], &codeValues, 7, true) {
		return errDeflate
	}
	lens := f.lengths[:nlit+ndist]
	for i := 0; i < len(lens); {
		f.refill()
		e := f.ownDist.table[f.bitbuf&127]
		if e == 0 {
			return errDeflate
		}
		f.take(int(e & lenMask))
		sym := e >> valueShift
		if sym < 16 {
			lens[i] = uint8(sym)
			i++
			continue
		}
		var repeat int
		var v uint8
		switch sym {
		case 16:
			if i == 0 {
				return errDeflate
			}
			v, repeat = lens[i-1], 3+int(f.take(2))
		case 17:
			repeat = 3 + int(f.take(3))
		default:
			repeat = 11 + int(f.take(7))
		}
		if f.nbits < 0 {
			return errShort
		}
		if repeat > len(lens)-i {
			return errDeflate
		}
		for range repeat {
			lens[i] = v
			i++
		}
	}
	if f.nbits < 0 {
		return errShort
	}
	if lens[256] == 0 || !f.ownLit.build(lens[:nlit], &litValues, litBits, false) || !f.ownDist.build(lens[nlit:], &distValues, distBits, false) {
		return errDeflate
	}
	return nil
}

// block decodes data compressed with the given codes up to the end of the
// block.
func (f *inflater) block(lit, dist *huffman) error {
	src, dst := f.src, f.dst
	in, out, bitbuf, nbits := f.in, f.out, f.bitbuf, f.nbits
	for {
		if nbits < 48 {
			if len(src)-in >= 8 {
				bitbuf |= binary.LittleEndian.Uint64(src[in:]) << (nbits & 63)
				in += (63 - nbits) >> 3
				nbits |= 56
			} else {
				for nbits < 56 && in < len(src) {
					bitbuf |= uint64(src[in]) << (nbits & 63)
					in++
					nbits += 8
				}
			}
		}
		e := lit.table[bitbuf&(1<<litBits-1)]
		if e&subFlag != 0 {
			e = lit.table[(e>>valueShift+uint32(bitbuf>>litBits)&(1<<(e>>extraShift&15)-1))&tableMask]
		}
		used := int(e & lenMask)
		nbits -= used
		if nbits < 0 {
			f.nbits = nbits
			return errShort
		}
		if e&literalFlag != 0 {
			bitbuf >>= used & 63
			if out >= len(dst) {
				return errSize
			}
			dst[out] = byte(e >> valueShift)
			out++
			continue
		}
		if e&endFlag != 0 {
			bitbuf >>= used & 63
			f.in, f.out, f.bitbuf, f.nbits = in, out, bitbuf, nbits
			return nil
		}
		if e>>valueShift == 0 {
			return errDeflate
		}
		bitbuf >>= used & 63
		extra := int(e >> extraShift & 15)
		length := int(e>>valueShift) + int(bitbuf&(1<<extra-1))
		bitbuf >>= extra
		nbits -= extra

		e = dist.table[bitbuf&(1<<distBits-1)]
		if e&subFlag != 0 {
			e = dist.table[(e>>valueShift+uint32(bitbuf>>distBits)&(1<<(e>>extraShift&15)-1))&tableMask]
		}
		used = int(e & lenMask)
		extra = int(e >> extraShift & 15)
		bitbuf >>= used & 63
		back := int(e>>valueShift) + int(bitbuf&(1<<extra-1))
		bitbuf >>= extra
		nbits -= used + extra
		if nbits < 0 {
			f.nbits = nbits
			return errShort
		}
		if e>>valueShift == 0 || back > out {
			return errDeflate
		}
		if length > len(dst)-out {
			return errSize
		}
		copyMatch(dst, out, back, length)
		out += length
	}
}

// copyMatch repeats the length bytes that begin dist bytes before dst[out:].
// It may write up to 7 bytes more, which later output replaces.
func copyMatch(dst []byte, out, dist, length int) {
	from, end := out-dist, out+length
	if dist >= 8 && end+8 <= len(dst) {
		for out < end {
			binary.LittleEndian.PutUint64(dst[out:], binary.LittleEndian.Uint64(dst[from:]))
			out += 8
			from += 8
		}
		return
	}
	for out < end {
		out += copy(dst[out:end], dst[from:out])
	}
}

// Layout of a table entry: the code's length, the number of extra bits (or of
// a subtable's index bits), flags, and a value from bit 16.
const (
	lenMask     = 0x0f
	extraShift  = 4
	literalFlag = 1 << 8
	endFlag     = 1 << 9
	subFlag     = 1 << 10
	valueShift  = 16

	litBits   = 10
	distBits  = 8
	tableSize = 2048
	tableMask = tableSize - 1
)

// huffman is a decoding table: 1<<bits entries, then subtables for codes that
// are longer. The largest sets of codes need 1334 entries.
type huffman struct {
	table [tableSize]uint32
}

// build makes the table for codes of the given lengths; values holds each
// symbol's entry without its length. As zlib does, it refuses sets that are
// over-subscribed, and incomplete ones unless complete is false and no code is
// longer than one bit.
func (h *huffman) build(lens []uint8, values *[maxLit]uint32, primary int, complete bool) bool {
	var count [16]int
	for _, l := range lens {
		count[l]++
	}
	maxLen := 15
	for maxLen > 0 && count[maxLen] == 0 {
		maxLen--
	}
	clear(h.table[:1<<primary])
	if maxLen == 0 {
		return !complete
	}
	count[0] = 0
	var next, offs [16]int
	code, left, sum := 0, 1, 0
	for l := 1; l <= 15; l++ {
		code = (code + count[l-1]) << 1
		next[l], offs[l] = code, sum
		sum += count[l]
		left = left<<1 - count[l]
		if left < 0 {
			return false
		}
	}
	if left > 0 && (complete || maxLen != 1) {
		return false
	}
	var sorted [maxLit]uint16
	for sym, l := range lens {
		if l > 0 {
			sorted[offs[l]] = uint16(sym)
			offs[l]++
		}
	}
	h.fill(sorted[:sum], lens, values, primary, maxLen, &count, &next)
	return true
}

// fill enters the symbols, which are sorted by code length and so by code.
func (h *huffman) fill(sorted []uint16, lens []uint8, values *[maxLit]uint32, primary, maxLen int, count, next *[16]int) {
	free, sub, subStart, subBits := 1<<primary, -1, 0, 0
	for _, sym := range sorted {
		l := int(lens[sym])
		rev := int(bits.Reverse16(uint16(next[l])) >> (16 - l))
		next[l]++
		e := values[sym] | uint32(l)
		if l <= primary {
			for i := rev; i < 1<<primary; i += 1 << l {
				h.table[i] = e
			}
			continue
		}
		if low := rev & (1<<primary - 1); low != sub {
			// Codes with this prefix follow each other: size their subtable
			// so that it holds the rest of them.
			sub, subStart, subBits = low, free, l-primary
			for room := 1<<subBits - count[l]; room > 0 && primary+subBits < maxLen; {
				subBits++
				room = room<<1 - count[primary+subBits]
			}
			free += 1 << subBits
			clear(h.table[subStart:free])
			h.table[low] = subFlag | uint32(subBits)<<extraShift | uint32(subStart)<<valueShift
		}
		for i := rev >> primary; i < 1<<subBits; i += 1 << (l - primary) {
			h.table[subStart+i] = e
		}
		count[l]--
	}
}

// litValues, distValues and codeValues hold the table entry of every symbol,
// without its code's length. Symbols that the format reserves have value 0.
var litValues, distValues, codeValues = symbolValues()

func symbolValues() (lit, dist, code [maxLit]uint32) {
	for i := range 256 {
		lit[i] = literalFlag | uint32(i)<<valueShift
	}
	lit[256] = endFlag
	for i, base := 0, 3; i < 28; i++ {
		extra := max(0, i/4-1)
		lit[257+i] = uint32(base)<<valueShift | uint32(extra)<<extraShift
		base += 1 << extra
	}
	lit[285] = 258 << valueShift
	for i, base := 0, 1; i < 30; i++ {
		extra := max(0, i/2-1)
		dist[i] = uint32(base)<<valueShift | uint32(extra)<<extraShift
		base += 1 << extra
	}
	for i := range 19 {
		code[i] = uint32(i) << valueShift
	}
	return lit, dist, code
}

// Package delta applies Git's binary deltas: a base length, a result length,
// then instructions that copy from the base or insert literal bytes.
package delta

import "fmt"

// minLen is the length below which git refuses a delta whatever it says.
const minLen = 4

// maxCopy is the length that a copy instruction with length zero stands for.
const maxCopy = 0x10000

// Error is a delta that cannot be applied.
type Error struct {
	Offset int    // where in the delta the fault was found, in bytes
	Reason string // what is wrong
}

// Error describes the fault and its place.
func (e *Error) Error() string {
	return fmt.Sprintf("delta is malformed at byte %d: %s", e.Offset, e.Reason)
}

// SizeError is a delta whose result would be larger than the caller allows.
type SizeError struct {
	Size  uint64 // the result's length in bytes, as the delta states it
	Limit int64  // the most that the caller allows
}

// Error states the size and the limit.
func (e *SizeError) Error() string {
	return fmt.Sprintf("delta result of %d bytes is over the limit of %d bytes", e.Size, e.Limit)
}

// Sizes returns the lengths of the base and of the result that the delta's
// header states. A prefix of the delta of 20 bytes is always enough.
func Sizes(d []byte) (base, result uint64, err error) {
	base, n, err := size(d, 0)
	if err != nil {
		return 0, 0, err
	}
	result, _, err = size(d, n)
	return base, result, err
}

// size reads the little-endian base-128 number at d[at:] and returns it with
// the position after it.
func size(d []byte, at int) (uint64, int, error) {
	var v uint64
	for i, shift := at, uint(0); i < len(d); i, shift = i+1, shift+7 {
		c := d[i]
		if shift > 56 && (shift > 63 || c>>(64-shift) != 0) {
			return 0, 0, &Error{i, "length is over 64 bits"}
		}
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return v, i + 1, nil
		}
	}
	return 0, 0, &Error{len(d), "header is cut short"}
}

// Apply returns the result of applying the delta d to base. It reuses dst's
// capacity, whose content is lost; dst must not share memory with base or d.
// A result over limit bytes is a *SizeError, found before anything is
// allocated; any other fault is an *Error.
func Apply(dst, base, d []byte, limit int64) ([]byte, error) {
	if len(d) < minLen {
		return nil, &Error{len(d), "shorter than any delta"}
	}
	baseSize, n, err := size(d, 0)
	if err != nil {
		return nil, err
	}
	if baseSize != uint64(len(base)) {
		return nil, &Error{0, fmt.Sprintf("made for a base of %d bytes, but the base has %d", baseSize, len(base))}
	}
	want, n, err := size(d, n)
	if err != nil {
		return nil, err
	}
	if limit < 0 || want > uint64(limit) {
		return nil, &SizeError{want, limit}
	}
	if uint64(cap(dst)) < want {
		dst = make([]byte, 0, want)
	}
	return instructions(dst[:0], base, d, n, int(want))
}

// instructions runs those at d[at:], appending to dst until it has want bytes.
func instructions(dst, base, d []byte, at, want int) ([]byte, error) {
	for at < len(d) {
		op := d[at]
		start := at
		at++
		switch {
		case op&0x80 != 0:
			off, length, next, ok := copyArgs(d, at, op)
			if !ok {
				return nil, &Error{start, "copy instruction is cut short"}
			}
			at = next
			if off+length > len(base) {
				return nil, &Error{start, fmt.Sprintf("copies bytes %d to %d of a base of %d", off, off+length, len(base))}
			}
			if length > want-len(dst) {
				return nil, &Error{start, "result is longer than the header says"}
			}
			dst = append(dst, base[off:off+length]...)
		case op != 0:
			length := int(op)
			if length > len(d)-at {
				return nil, &Error{start, "literal bytes are cut short"}
			}
			if length > want-len(dst) {
				return nil, &Error{start, "result is longer than the header says"}
			}
			dst = append(dst, d[at:at+length]...)
			at += length
		default:
			return nil, &Error{start, "reserved instruction 0"}
		}
	}
	if len(dst) != want {
		return nil, &Error{at, fmt.Sprintf("result has %d bytes, but the header says %d", len(dst), want)}
	}
	return dst, nil
}

// copyArgs decodes the offset and length that follow the copy opcode op at
// d[at:], and the position after them.
func copyArgs(d []byte, at int, op byte) (off, length, next int, ok bool) {
	for bit := range 4 {
		if op&(1<<bit) != 0 {
			if at >= len(d) {
				return 0, 0, 0, false
			}
			off |= int(d[at]) << (8 * bit)
			at++
		}
	}
	for bit := range 3 {
		if op&(0x10<<bit) != 0 {
			if at >= len(d) {
				return 0, 0, 0, false
			}
			length |= int(d[at]) << (8 * bit)
			at++
		}
	}
	if length == 0 {
		length = maxCopy
	}
	return off, length, at, true
}

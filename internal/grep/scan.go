package grep

import (
	"bytes"
	"context"
	"strings"
	"time"
)

// Line is a line of a text.
type Line struct {
	Number int    // from 1
	Text   string // in UTF-8, without its line break, cut at MaxText bytes
	Match  bool   // it matches; else it is near one that does
}

// MaxText is how much of a line is told, in bytes.
const MaxText = 4 << 10

// Group is a line that matches with the lines around it. No line is in two groups
// of one text.
type Group struct {
	Lines []Line
	Bytes int // of their texts
}

// Last is the number of the last line of the group.
func (g *Group) Last() int { return g.Lines[len(g.Lines)-1].Number }

// Search says what of a text is wanted.
type Search struct {
	Pattern *Pattern
	// After passes over the lines up to that number, also as context.
	After int
	// Before and Behind are how many lines before and behind a match belong to it.
	Before, Behind int
	// Matches is how many matches are wanted. Once there are Lines lines or Bytes
	// bytes of text, one more match is found and then none.
	Matches, Lines, Bytes int
	// Until is when the search may stop, though not before it has got on.
	Until time.Time
}

// Find returns the groups of a text in order. Where time was up, reached is the last
// line that was searched, else 0. It fails only with the error of ctx.
func (s *Search) Find(ctx context.Context, text []byte) (groups []Group, reached int, err error) {
	f := finder{Search: s, text: text, last: s.After}
	start, ok := skipLines(text, s.After)
	if !ok || s.Matches < 1 {
		return nil, 0, nil
	}
	f.lineStart, f.number = start, s.After+1
	end := len(text)
	if text[end-1] == '\n' {
		end--
	}
	for start <= end && !f.done {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if start > f.lineStart && !s.Until.IsZero() && time.Now().After(s.Until) {
			f.endGroup(start)
			f.advance(start)
			reached = f.number - 1
			break
		}
		stop := pieceEnd(text[:end], start, s.Pattern.piece)
		f.piece(start, stop)
		start = stop + 1
	}
	f.endGroup(len(f.text))
	return f.groups, reached, nil
}

// skipLines returns where the line after the first n begins, false if there is none.
func skipLines(text []byte, n int) (int, bool) {
	at := 0
	for ; n > 0; n-- {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	return at, at < len(text)
}

// pieceEnd returns the end of the last line that begins within size bytes of a
// start, and ends within them if it is not the first.
func pieceEnd(text []byte, start, size int) int {
	if len(text)-start <= size {
		return len(text)
	}
	if i := bytes.LastIndexByte(text[start:start+size], '\n'); i >= 0 {
		return start + i
	}
	if i := bytes.IndexByte(text[start+size:], '\n'); i >= 0 {
		return start + size + i
	}
	return len(text)
}

// finder is one search under way.
type finder struct {
	*Search
	text   []byte
	groups []Group
	lines  int // in groups
	bytes  int
	done   bool

	// The line at lineStart has that number; lines are counted as far as that.
	lineStart, number int
	last              int // the last line that is in a group, or before the search
	matchEnd          int // of the line of the last match
	open              bool
}

// advance counts lines up to the one that begins at an offset.
func (f *finder) advance(to int) {
	f.number += bytes.Count(f.text[f.lineStart:to], []byte{'\n'})
	f.lineStart = to
}

// piece finds the matches in some whole lines.
func (f *finder) piece(start, stop int) {
	p := f.Pattern
	part := f.text[start:stop]
	where := part
	if p.fold && len(p.literal) > 0 {
		where = lower(part)
	}
	for pos := 0; pos <= len(part) && !f.done; {
		at := pos
		switch {
		case len(p.literal) > 0:
			if at = bytes.Index(where[pos:], p.literal); at < 0 {
				return
			}
			at += pos
		case len(part)-pos <= p.piece:
			loc := p.re.FindIndex(part[pos:])
			if loc == nil {
				return
			}
			at += loc[0]
		}
		from := bytes.LastIndexByte(part[:at], '\n') + 1
		to := len(part)
		if i := bytes.IndexByte(part[at:], '\n'); i >= 0 {
			to = at + i
		}
		if p.re == nil || p.re.Match(part[from:min(to, from+p.piece)]) {
			f.match(start+from, start+to)
		}
		pos = to + 1
	}
}

// lower returns a copy of text with the letters of ASCII in lower case.
func lower(text []byte) []byte {
	out := make([]byte, len(text))
	for i, b := range text {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		out[i] = b
	}
	return out
}

// match takes a line that matches.
func (f *finder) match(from, to int) {
	f.endGroup(from)
	full := f.lines >= f.Lines || f.bytes >= f.Bytes
	f.advance(from)
	f.groups = append(f.groups, Group{})
	// The lines before it that are in no group.
	begin := from
	first := f.number
	for ; first > f.last+1 && f.number-first < f.Before; first-- {
		begin = bytes.LastIndexByte(f.text[:begin-1], '\n') + 1
	}
	for number := first; number < f.number; number++ {
		end := begin + bytes.IndexByte(f.text[begin:], '\n')
		f.take(number, begin, end, false)
		begin = end + 1
	}
	f.take(f.number, from, to, true)
	f.matchEnd, f.open = to, true
	if full || len(f.groups) == f.Matches {
		f.done = true
	}
}

// endGroup takes the lines behind the last match that begin before an offset.
func (f *finder) endGroup(limit int) {
	if !f.open {
		return
	}
	f.open = false
	at := f.matchEnd + 1
	for n := 0; n < f.Behind && at < limit; n++ {
		end := len(f.text)
		if i := bytes.IndexByte(f.text[at:], '\n'); i >= 0 {
			end = at + i
		}
		f.take(f.last+1, at, end, false)
		at = end + 1
	}
}

// take puts a line into the last group.
func (f *finder) take(number, from, to int, match bool) {
	g := &f.groups[len(f.groups)-1]
	cut := min(to, from+MaxText)
	line := strings.ToValidUTF8(string(f.text[from:cut]), "\ufffd")
	if cut < to {
		line = strings.TrimRight(line, "\ufffd")
	}
	g.Lines = append(g.Lines, Line{number, line, match})
	g.Bytes += len(line)
	f.lines++
	f.bytes += len(line)
	f.last = number
}

// sniffed is how much of a file git looks at to tell whether it is text.
const sniffed = 8000

// IsBinary reports whether git takes a file that begins so for binary.
func IsBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), sniffed)], 0) >= 0
}

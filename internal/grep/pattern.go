// Package grep finds the lines of a text that match a regular expression. Its
// dialect is RE2, matched against each line alone: time is linear in the text,
// whatever the expression.
package grep

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// Bounds of an expression.
const (
	MaxPattern = 4 << 10 // bytes
	maxProgram = 4000    // instructions, about
)

// Steps are what one call of package regexp may take: bytes times instructions. A
// search can be ended between two calls.
const (
	steps    = 64 << 20
	maxPiece = 1 << 20 // bytes
)

// PatternError says that an expression cannot be used.
type PatternError struct{ Reason string }

func (e *PatternError) Error() string { return "the pattern cannot be used: " + e.Reason }

// Pattern is a compiled expression. It is safe for concurrent use.
type Pattern struct {
	// re is nil where literal says it all.
	re *regexp.Regexp
	// literal is in every line that matches, "" if nothing is known to be. With fold
	// it is in small letters and stands for all ways to write them.
	literal []byte
	fold    bool
	// piece is how much is searched at a time, in bytes. Of a line that is longer no
	// more is searched for an expression.
	piece int
}

// Compile returns the pattern of an expression in the syntax of RE2, in which ^ and $
// are the ends of a line. An expression that is malformed or too large is a
// *PatternError.
func Compile(expr string, caseSensitive bool) (*Pattern, error) {
	if expr == "" {
		return nil, &PatternError{"it is empty"}
	}
	if len(expr) > MaxPattern {
		return nil, &PatternError{fmt.Sprintf("it is longer than %d bytes", MaxPattern)}
	}
	flags := syntax.PerlX | syntax.UnicodeGroups
	if !caseSensitive {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(expr, flags)
	if err != nil {
		return nil, &PatternError{err.Error()}
	}
	size := programSize(tree)
	if size > maxProgram {
		return nil, &PatternError{"its repetitions and alternatives are too large"}
	}
	withinLine(tree)
	p := &Pattern{piece: min(steps/size, maxPiece)}
	p.literal, p.fold = required(tree)
	if tree.Op == syntax.OpLiteral && !p.fold && string(p.literal) == string(tree.Rune) {
		p.piece = maxPiece
		return p, nil
	}
	if p.re, err = regexp.Compile(tree.String()); err != nil {
		return nil, &PatternError{err.Error()}
	}
	return p, nil
}

// programSize estimates the instructions of an expression, at least 1; it stops
// counting beyond maxProgram.
func programSize(re *syntax.Regexp) int {
	size := 1
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if size += programSize(sub); size > maxProgram {
			return size
		}
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return size
}

// withinLine changes an expression so that no match has a line break in it, and
// that the beginning and end of the text are those of a line.
func withinLine(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpBeginText:
		re.Op = syntax.OpBeginLine
	case syntax.OpEndText:
		re.Op = syntax.OpEndLine
		re.Flags &^= syntax.WasDollar
	case syntax.OpAnyChar:
		re.Op = syntax.OpAnyCharNotNL
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if r == '\n' {
				*re = syntax.Regexp{Op: syntax.OpNoMatch}
				return
			}
		}
	case syntax.OpCharClass:
		var ranges []rune
		for i := 0; i < len(re.Rune); i += 2 {
			lo, hi := re.Rune[i], re.Rune[i+1]
			if lo > '\n' || hi < '\n' {
				ranges = append(ranges, lo, hi)
				continue
			}
			if lo < '\n' {
				ranges = append(ranges, lo, '\n'-1)
			}
			if hi > '\n' {
				ranges = append(ranges, '\n'+1, hi)
			}
		}
		re.Rune = ranges
		if len(ranges) == 0 {
			*re = syntax.Regexp{Op: syntax.OpNoMatch}
		}
	}
	for _, sub := range re.Sub {
		withinLine(sub)
	}
}

// required returns the longest text found that every match contains, in small
// letters if fold is set.
func required(re *syntax.Regexp) (text []byte, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return literal(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if t, f := required(sub); len(t) > len(text) {
				text, fold = t, f
			}
		}
	}
	return text, fold
}

// literal returns the longest part of a literal that is found as bytes. An
// ill-formed byte counts as U+FFFD; k and s have forms beyond ASCII.
func literal(runes []rune, fold bool) ([]byte, bool) {
	var best, at []byte
	for _, r := range runes {
		switch {
		case r == utf8.RuneError, fold && (r >= utf8.RuneSelf || r == 'k' || r == 'K' || r == 's' || r == 'S'):
			at = nil
			continue
		case fold && 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		}
		at = utf8.AppendRune(at, r)
		if len(at) > len(best) {
			best = bytes.Clone(at)
		}
	}
	return best, fold
}

package rest

import (
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// next returns the next byte of the line that is not white space.
func (l *lines) next() (byte, error) {
	for {
		b, err := l.byte()
		if err != nil || (b != ' ' && b != '\t' && b != '\r') {
			return b, err
		}
	}
}

// byte returns the next byte of the line, and fails at its end.
func (l *lines) byte() (byte, error) {
	b, err := l.src.ReadByte()
	l.n++
	switch {
	case err == io.EOF, err == nil && b == '\n':
		return 0, badLine("it ends early")
	case err == nil && l.n > maxLine:
		return 0, longLine()
	}
	return b, err
}

func (l *lines) unread() {
	l.n--
	_ = l.src.UnreadByte() // a byte was read just before
}

// end reads what is left of the line, which is white space.
func (l *lines) end() error {
	for {
		b, err := l.src.ReadByte()
		switch {
		case err == io.EOF, err == nil && b == '\n':
			return nil
		case err != nil:
			return err
		case b != ' ' && b != '\t' && b != '\r':
			return badLine("something follows the JSON value")
		}
		if l.n++; l.n > maxLine {
			return longLine()
		}
	}
}

// object reads an object and calls member at the value of each.
func (l *lines) object(member func(key string) error) error {
	b, err := l.next()
	if err != nil {
		return err
	}
	if b != '{' {
		return badLine("an object is expected")
	}
	for first := true; ; first = false {
		if b, err = l.next(); err != nil {
			return err
		}
		if b == '}' && first {
			return nil
		}
		if !first {
			if b == '}' {
				return nil
			}
			if b != ',' {
				return badLine("a comma is expected")
			}
			if b, err = l.next(); err != nil {
				return err
			}
		}
		if b != '"' {
			return badLine("a name is expected")
		}
		key, err := l.shortString()
		if err != nil {
			return err
		}
		if b, err = l.next(); err != nil {
			return err
		}
		if b != ':' {
			return badLine("a colon is expected")
		}
		if err := member(key); err != nil {
			return err
		}
	}
}

// text reads a string of at most maxMember bytes.
func (l *lines) text() (string, error) {
	b, err := l.next()
	if err != nil {
		return "", err
	}
	if b != '"' {
		return "", badLine("a string is expected")
	}
	return l.shortString()
}

// shortString reads what follows the opening quote of a string.
func (l *lines) shortString() (string, error) {
	if text, ok := l.plainString(); ok {
		return text, nil
	}
	var text []byte
	err := l.string(func(part []byte) error {
		if len(text)+len(part) > maxMember {
			return badLine("a name or an id is too long")
		}
		text = append(text, part...)
		return nil
	})
	return string(text), err
}

// plainString is shortString for a string that is in the buffer already and has no
// escapes. It returns false, and reads nothing, for any other.
func (l *lines) plainString() (string, bool) {
	plain, _ := l.src.Peek(min(l.src.Buffered(), maxMember))
	n := 0
	for n < len(plain) && plain[n] != '"' && plain[n] != '\\' && plain[n] >= ' ' {
		n++
	}
	if n == len(plain) || plain[n] != '"' || l.n+n+1 > maxLine {
		return "", false
	}
	text := named(plain[:n])
	l.n += n + 1
	_, _ = l.src.Discard(n + 1) // what was peeked at
	return text, true
}

// named returns a string; the names of a line of content take no memory.
func named(text []byte) string {
	switch string(text) {
	case "blob_chunk":
		return "blob_chunk"
	case "content_id":
		return "content_id"
	case "data":
		return "data"
	case "eof":
		return "eof"
	}
	return string(text)
}

// flag reads true, false or null.
func (l *lines) flag() (bool, error) {
	word, err := l.word()
	if err == nil && word != "true" && word != "false" && word != "null" {
		err = badLine("true or false is expected")
	}
	return word == "true", err
}

// word reads a number or a literal.
func (l *lines) word() (string, error) {
	b, err := l.next()
	if err != nil {
		return "", err
	}
	var word []byte
	for b != ',' && b != '}' && b != ']' && b != ' ' && b != '\t' && b != '\r' {
		word = append(word, b)
		if len(word) > maxMember {
			return "", badLine("a number is too long")
		}
		if b, err = l.byte(); err != nil {
			return "", err
		}
	}
	l.unread()
	if len(word) == 0 || word[0] == '"' || word[0] == '{' || word[0] == '[' || !json.Valid(word) {
		return "", badLine("a value is expected")
	}
	return string(word), nil
}

// skip passes over a value.
func (l *lines) skip(depth int) error {
	if depth > maxNested {
		return badLine("it is nested too deeply")
	}
	b, err := l.next()
	if err != nil {
		return err
	}
	switch b {
	case '"':
		return l.string(func([]byte) error { return nil })
	case '{':
		l.unread()
		return l.object(func(string) error { return l.skip(depth + 1) })
	case '[':
		return l.skipArray(depth)
	}
	l.unread()
	_, err = l.word()
	return err
}

func (l *lines) skipArray(depth int) error {
	b, err := l.next()
	if err != nil || b == ']' {
		return err
	}
	l.unread()
	for {
		if err := l.skip(depth + 1); err != nil {
			return err
		}
		b, err := l.next()
		if err != nil || b == ']' {
			return err
		}
		if b != ',' {
			return badLine("a comma is expected")
		}
	}
}

// string reads what follows the opening quote of a string and gives it to emit
// in parts, escapes resolved.
func (l *lines) string(emit func(part []byte) error) error {
	for {
		if _, err := l.src.Peek(1); err == io.EOF {
			return badLine("it ends early")
		} else if err != nil {
			return err
		}
		plain, _ := l.src.Peek(l.src.Buffered())
		n := 0
		for n < len(plain) && plain[n] != '"' && plain[n] != '\\' && plain[n] >= ' ' {
			n++
		}
		if l.n += n; l.n > maxLine {
			return longLine()
		}
		if n > 0 {
			if err := emit(plain[:n]); err != nil {
				return err
			}
			_, _ = l.src.Discard(n) // what was peeked at
			continue
		}
		b, err := l.byte()
		switch {
		case err != nil:
			return err
		case b == '"':
			return nil
		case b != '\\':
			return badLine("a string has a control character")
		}
		part, err := l.escape()
		if err != nil {
			return err
		}
		if err := emit(part); err != nil {
			return err
		}
	}
}

// escapes are the bytes that a letter after a backslash stands for.
var escapes = map[byte]string{
	'"': `"`, '\\': `\`, '/': "/", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t",
}

// escape reads what follows a backslash.
func (l *lines) escape() ([]byte, error) {
	b, err := l.byte()
	if err != nil {
		return nil, err
	}
	if plain, ok := escapes[b]; ok {
		return []byte(plain), nil
	}
	if b != 'u' {
		return nil, badLine("a string has an unknown escape")
	}
	r, err := l.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return utf8.AppendRune(nil, r), err
	}
	// Half a pair on its own stands for U+FFFD; what follows it is read again.
	follows, err := l.src.Peek(6)
	if err != nil || follows[0] != '\\' || follows[1] != 'u' {
		return utf8.AppendRune(nil, utf8.RuneError), nil
	}
	low, err := strconv.ParseUint(string(follows[2:]), 16, 16)
	pair := utf16.DecodeRune(r, rune(low))
	if err != nil || pair == utf8.RuneError {
		return utf8.AppendRune(nil, utf8.RuneError), nil
	}
	_, _ = l.src.Discard(6) // what was peeked at
	l.n += 6
	return utf8.AppendRune(nil, pair), nil
}

func (l *lines) hex4() (rune, error) {
	var r rune
	for range 4 {
		b, err := l.byte()
		if err != nil {
			return 0, err
		}
		switch {
		case '0' <= b && b <= '9':
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, badLine("a string has a broken escape")
		}
		r = r<<4 | rune(b)
	}
	return r, nil
}

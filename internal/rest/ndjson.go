package rest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/service"
)

// Bounds of a commit's body, in bytes.
const (
	maxLine   = 8 << 20 // one line
	maxChunk  = 4 << 20 // the content of one line, decoded
	maxMember = 4 << 10 // a name or an id in a line of content
	maxNested = 32      // levels, of what is passed over
)

// lines reads newline-delimited JSON. Lines with content are decoded while they
// arrive: memory does not grow with them.
type lines struct {
	src *bufio.Reader
	n   int // bytes read of the current line
}

func newLines(r io.Reader) *lines { return &lines{src: bufio.NewReaderSize(r, 32<<10)} }

// more moves to the beginning of the next line that is not blank. It returns
// false at the end of the body.
func (l *lines) more() (bool, error) {
	for {
		b, err := l.src.ReadByte()
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case b == ' ' || b == '\t' || b == '\r' || b == '\n':
			continue
		}
		l.n = 0
		return true, l.src.UnreadByte()
	}
}

// whole returns the current line.
func (l *lines) whole() ([]byte, error) {
	var line []byte
	for {
		part, err := l.src.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, longLine()
		}
		line = append(line, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF {
			err = nil
		}
		return line, err
	}
}

// piece is what a line of content says besides its data.
type piece struct {
	id  string
	eof bool
}

// chunk reads the current line, which has the form
// {"blob_chunk":{"content_id":…,"data":…,"eof":…}} with members in any order. It
// gives the data to the writer that open returns for the id.
func (l *lines) chunk(open func(id string) (io.Writer, error)) (piece, error) {
	var p piece
	found := false
	err := l.object(func(key string) error {
		if key != "blob_chunk" {
			return l.skip(0)
		}
		if found {
			return badLine("it has two blob_chunks")
		}
		found = true
		var err error
		p, err = l.blobChunk(open)
		return err
	})
	if err == nil && !found {
		err = badLine("it is no blob_chunk")
	}
	if err == nil {
		err = l.end()
	}
	return p, err
}

func (l *lines) blobChunk(open func(id string) (io.Writer, error)) (piece, error) {
	var (
		p       piece
		dst     io.Writer
		early   bytes.Buffer // data that came before its id
		hasID   bool
		hasData bool
	)
	err := l.object(func(key string) error {
		var err error
		switch key {
		case "content_id":
			if hasID {
				return badLine("it has two content_ids")
			}
			hasID = true
			if p.id, err = l.text(); err == nil {
				dst, err = open(p.id)
			}
		case "data":
			if hasData {
				return badLine("it has two data members")
			}
			hasData = true
			if dst == nil {
				return l.base64(&early)
			}
			return l.base64(dst)
		case "eof":
			p.eof, err = l.flag()
		default:
			err = l.skip(0)
		}
		return err
	})
	if err == nil && !hasID {
		err = badLine("it has no content_id")
	}
	if err == nil && early.Len() > 0 {
		_, err = dst.Write(early.Bytes())
	}
	return p, err
}

func badLine(reason string) error { return invalid("a line of the body is malformed: %s", reason) }

func longLine() error {
	return service.Refuse(service.TooLarge, "a line of the body is longer than %d bytes", maxLine)
}

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

// base64 reads a string, or null, and writes what it decodes to.
func (l *lines) base64(dst io.Writer) error {
	b, err := l.next()
	if err != nil {
		return err
	}
	if b != '"' {
		l.unread()
		word, err := l.word()
		if err == nil && word != "null" {
			err = badLine("data is a string in base64")
		}
		return err
	}
	d := decoder{dst: dst}
	if err := l.string(d.add); err != nil {
		return err
	}
	if d.held > 0 {
		return badBase64()
	}
	return nil
}

func badBase64() error { return invalid("the data of a chunk is not base64 with padding") }

// decoder decodes base64 that comes in parts.
type decoder struct {
	dst   io.Writer
	quad  [4]byte // the beginning of a group that is not complete
	held  int
	n     int  // bytes decoded
	ended bool // padding was seen
	buf   [3 << 10]byte
}

func (d *decoder) add(part []byte) error {
	if d.held > 0 {
		n := copy(d.quad[d.held:], part)
		d.held, part = d.held+n, part[n:]
		if d.held < len(d.quad) {
			return nil
		}
		d.held = 0
		if err := d.decode(d.quad[:]); err != nil {
			return err
		}
	}
	whole := len(part) &^ 3
	for rest := part[:whole]; len(rest) > 0; {
		n := min(len(rest), 4<<10)
		if err := d.decode(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	d.held = copy(d.quad[:], part[whole:])
	return nil
}

// decode writes what groups decode to; there are at most 1024 of them.
func (d *decoder) decode(groups []byte) error {
	if d.ended || bytes.IndexByte(groups, '\n') >= 0 || bytes.IndexByte(groups, '\r') >= 0 {
		return badBase64()
	}
	n, err := base64.StdEncoding.Decode(d.buf[:], groups)
	if err != nil {
		return badBase64()
	}
	d.ended = groups[len(groups)-1] == '='
	if d.n += n; d.n > maxChunk {
		return service.Refuse(service.TooLarge, "a chunk holds more than %d bytes: split it", maxChunk)
	}
	_, err = d.dst.Write(d.buf[:n])
	return err
}

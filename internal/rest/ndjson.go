package rest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"sync"

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
// arrive, by a scanner of our own, because encoding/json holds whole strings in
// memory.
type lines struct {
	*buffers
	n int // bytes read of the current line
}

// buffers are what lines read through.
type buffers struct {
	src   *bufio.Reader
	plain [3 << 10]byte // what base64 decodes to
}

var bufferPool = sync.Pool{New: func() any { return &buffers{src: bufio.NewReaderSize(nil, 32<<10)} }}

func newLines(r io.Reader) *lines {
	b := bufferPool.Get().(*buffers)
	b.src.Reset(r)
	return &lines{buffers: b}
}

// close gives the buffers back; the lines cannot be read further.
func (l *lines) close() {
	l.src.Reset(nil)
	bufferPool.Put(l.buffers)
	l.buffers = nil
}

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

// whole returns the current line, until something else is read.
func (l *lines) whole() ([]byte, error) {
	var line []byte
	for {
		part, err := l.src.ReadSlice('\n')
		if line == nil && (err == nil || err == io.EOF) {
			return part, nil
		}
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
	return l.pieceOf("blob_chunk", nil, open)
}

// diffChunk reads the current line, which has the form
// {"diff_chunk":{"data":…,"eof":…}}, and gives the data to dst.
func (l *lines) diffChunk(dst io.Writer) (piece, error) { return l.pieceOf("diff_chunk", dst, nil) }

// pieceOf reads a line with one member that counts. Its data goes to dst, or where
// open says.
func (l *lines) pieceOf(name string, dst io.Writer, open func(id string) (io.Writer, error)) (piece, error) {
	var p piece
	found := false
	err := l.object(func(key string) error {
		if key != name {
			return l.skip(0)
		}
		if found {
			return badLine("it has two members " + name)
		}
		found = true
		var err error
		p, err = l.members(dst, open)
		return err
	})
	if err == nil && !found {
		err = badLine("it is no " + name)
	}
	if err == nil {
		err = l.end()
	}
	return p, err
}

func (l *lines) members(dst io.Writer, open func(id string) (io.Writer, error)) (piece, error) {
	var (
		p       piece
		early   bytes.Buffer // data that came before its id
		hasID   bool
		hasData bool
	)
	err := l.object(func(key string) error {
		var err error
		switch {
		case key == "content_id" && open != nil:
			if hasID {
				return badLine("it has two content_ids")
			}
			hasID = true
			if p.id, err = l.text(); err == nil {
				dst, err = open(p.id)
			}
		case key == "data":
			if hasData {
				return badLine("it has two data members")
			}
			hasData = true
			if dst == nil {
				return l.base64(&early)
			}
			return l.base64(dst)
		case key == "eof":
			p.eof, err = l.flag()
		default:
			err = l.skip(0)
		}
		return err
	})
	if err == nil && !hasID && open != nil {
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
	d := decoder{dst: dst, buf: &l.plain}
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
	buf   *[3 << 10]byte
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

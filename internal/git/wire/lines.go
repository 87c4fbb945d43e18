package wire

import (
	"bufio"
	"errors"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
)

// lines reads the pkt-lines of one request within the limits.
type lines struct {
	in        *pktline.Reader
	bytesLeft int64
	linesLeft int
	limits    Limits
}

func newLines(r *bufio.Reader, limits Limits) *lines {
	if limits.RequestBytes <= 0 {
		limits.RequestBytes = DefaultRequestBytes
	}
	if limits.Lines <= 0 {
		limits.Lines = DefaultLines
	}
	if limits.Commands <= 0 {
		limits.Commands = DefaultCommands
	}
	return &lines{
		in:        pktline.NewReader(r),
		bytesLeft: limits.RequestBytes,
		linesLeft: limits.Lines,
		limits:    limits,
	}
}

// next reads one packet. The error is io.EOF at the end of the input outside of
// a message, *MalformedError, *RefusalError at a limit, or the input's own.
func (l *lines) next() (pktline.Packet, error) {
	p, err := l.in.Next()
	if err != nil {
		_, badLength := errors.AsType[*pktline.LengthError](err)
		if badLength || errors.Is(err, pktline.ErrTruncated) {
			err = &MalformedError{Reason: "the request is not in pkt-line format", Err: err}
		}
		return p, err
	}
	l.bytesLeft -= int64(len(p.Data)) + 4
	l.linesLeft--
	if l.bytesLeft < 0 {
		return p, refuse("the request is longer than %d bytes, ask for less at a time", l.limits.RequestBytes)
	}
	if l.linesLeft < 0 {
		return p, refuse("the request has more than %d lines, ask for less at a time", l.limits.Lines)
	}
	return p, nil
}

// must is next where the end of the input is not allowed.
func (l *lines) must() (pktline.Packet, error) {
	p, err := l.next()
	if err == io.EOF {
		err = malformed("the request ends too early")
	}
	return p, err
}

// parseID reads the object id of a request line.
func parseID(line, value string) (object.ID, error) {
	id, err := object.ParseID(value)
	if err != nil {
		return id, malformed("expected an object id in the line %q", clip(line))
	}
	return id, nil
}

// idSet gathers ids in order, each once.
type idSet struct {
	ids  []object.ID
	seen map[object.ID]struct{}
}

func (s *idSet) add(id object.ID) {
	if s.seen == nil {
		s.seen = make(map[object.ID]struct{})
	}
	if _, ok := s.seen[id]; !ok {
		s.seen[id] = struct{}{}
		s.ids = append(s.ids, id)
	}
}

func (s *idSet) has(id object.ID) bool {
	_, ok := s.seen[id]
	return ok
}

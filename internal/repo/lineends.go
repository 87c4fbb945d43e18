package repo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// lineEnds says how the lines of a text end.
type lineEnds uint8

const (
	mixedEnds lineEnds = iota // differently, or there are none, or it is no text
	allLF
	allCRLF
)

// endsOf reads how the lines of a text end, up to where that is clear.
func endsOf(src io.Reader) (lineEnds, error) {
	r := bufio.NewReader(src)
	ends := mixedEnds
	for last := byte(0); ; {
		c, err := r.ReadByte()
		if err == io.EOF {
			return ends, nil
		}
		if err != nil {
			return mixedEnds, err
		}
		now := allLF
		if last == '\r' {
			now = allCRLF
		}
		last = c
		switch {
		case c == 0:
			return mixedEnds, nil
		case c != '\n':
		case ends != mixedEnds && ends != now:
			return mixedEnds, nil
		default:
			ends = now
		}
	}
}

// convert copies a text with its lines ended as ends says.
func convert(dst io.Writer, src io.Reader, ends lineEnds) error {
	r := bufio.NewReaderSize(src, 64<<10)
	inReturn := false // the text so far ends in a return that may be part of a line's end
	for {
		part, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
		line, ended := bytes.CutSuffix(part, []byte{'\n'})
		if inReturn && (len(line) > 0 || !ended) && len(part) > 0 {
			if _, err := dst.Write([]byte{'\r'}); err != nil {
				return err
			}
		}
		if len(part) > 0 {
			line, inReturn = bytes.CutSuffix(line, []byte{'\r'})
		}
		if inReturn && err == io.EOF {
			line, inReturn = append(line, '\r'), false
		}
		if ended {
			inReturn = false
			if line = append(bytes.Clone(line), '\r', '\n'); ends == allLF {
				line = append(line[:len(line)-2], '\n')
			}
		}
		if _, err := dst.Write(line); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
	}
}

// keepEnds arranges the edits anew upon a base, with the ends of lines that the
// files of the base have where that was asked for.
func (c *commit) keepEnds(ctx context.Context, db *odb.DB, base object.ID) error {
	c.edit, c.names, c.blobs = edit{}, 0, make(map[object.ID]*Content)
	for _, f := range c.req.Files {
		if f.KeepEnds && !f.Delete {
			var err error
			if f.Content, err = c.kept(ctx, db, base, f); err != nil {
				return err
			}
		}
		if err := c.file(&f); err != nil {
			return err
		}
	}
	c.count = len(c.blobs)
	return nil
}

// kept returns the content of a file with the ends of lines that the file has in
// the base; where those are mixed, or there are none, as it was sent.
func (c *commit) kept(ctx context.Context, db *odb.DB, base object.ID, f FileEdit) (*Content, error) {
	if base.IsZero() || f.Content.hasNUL || f.Mode == object.ModeSymlink || f.Mode == object.ModeSubmodule {
		return f.Content, nil
	}
	at, ok, err := lookup(ctx, db, base, f.Path)
	if err != nil || !ok || at.Mode != object.ModeRegular && at.Mode != object.ModeExecutable {
		return f.Content, err
	}
	_, _, old, err := db.Stream(ctx, at.ID)
	if err != nil {
		return nil, err
	}
	defer old.Close() // what matters of it was read
	ends, err := endsOf(old)
	if err != nil || ends == mixedEnds {
		return f.Content, err
	}
	_, src, err := f.Content.open()
	if err != nil {
		return nil, err
	}
	defer src.Close() // likewise
	fresh := c.req.Contents.New()
	if err := convert(fresh, src, ends); err != nil {
		return nil, fmt.Errorf("convert the ends of lines: %w", err)
	}
	return fresh, fresh.Close()
}

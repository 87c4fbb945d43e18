package pack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/git/delta"
)

// maxRead is the largest object, base or delta that is held in memory while a
// stored object is read as a stream: any number of clients may read at once.
const maxRead = 1 << 20

// hold is the largest object, base or delta that is held in memory.
func (l Limits) hold() int64 {
	if l.Scratch == nil {
		return l.MaxObject
	}
	return maxRead
}

// reader returns the content as a stream.
func (c *content) reader() io.ReadCloser {
	if c.file == nil {
		return io.NopCloser(bytes.NewReader(c.mem))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(c.file, 0, c.size), c.file}
}

// root reads an object that is stored whole; head holds what was read of its
// entry so far.
func (p *packData) root(e Entry, head []byte, limits Limits) (content, error) {
	if e.Size <= limits.hold() || limits.Scratch == nil {
		data, err := p.inflate(nil, e, head, limits.MaxObject)
		return content{mem: data, size: e.Size}, err
	}
	z := p.stream(e)
	defer z.Close()
	return spool(limits.Scratch, e.Size, func(w io.Writer) error {
		_, err := io.Copy(w, z)
		return err
	})
}

// applyOne applies one delta to base; own is memory for it.
func (p *packData) applyOne(e Entry, base content, own *[]byte, limits Limits) (content, error) {
	if base.file != nil || e.Size > limits.hold() && limits.Scratch != nil {
		return p.applyStream(e, base, limits)
	}
	var err error
	if *own, err = p.inflate(*own, e, nil, limits.MaxObject); err != nil {
		return content{}, err
	}
	_, size, err := delta.Sizes(*own)
	if err == nil && size > uint64(limits.hold()) && limits.Scratch != nil {
		return p.applyStream(e, base, limits)
	}
	data, err := delta.Apply(nil, base.mem, *own, limits.MaxObject)
	if over, ok := errors.AsType[*delta.SizeError](err); ok {
		return content{}, &LimitError{"object size in bytes", over.Size, uint64(limits.MaxObject)}
	}
	if err != nil {
		return content{}, p.corrupt(e.Offset, err.Error())
	}
	return content{mem: data, size: int64(len(data))}, nil
}

// applyStream is applyOne for what is not to be held in memory.
func (p *packData) applyStream(e Entry, base content, limits Limits) (content, error) {
	z := p.stream(e)
	defer z.Close()
	s, err := delta.NewStream(base.readerAt(), base.size, bufio.NewReader(z))
	if err == nil && s.ResultSize() > 1<<62 {
		return content{}, p.corrupt(e.Offset, "object size is over 62 bits")
	}
	var made content
	if err == nil {
		made, err = spool(limits.Scratch, int64(s.ResultSize()), s.WriteResult)
	}
	if bad, ok := errors.AsType[*delta.Error](err); ok {
		err = p.corrupt(e.Offset, bad.Error())
	}
	return made, err
}

// spool makes a content of size bytes in a scratch file.
func spool(scratch func() (Scratch, error), size int64, write func(io.Writer) error) (content, error) {
	file, err := scratch()
	if err != nil {
		return content{}, fmt.Errorf("make scratch file: %w", err)
	}
	w := bufio.NewWriterSize(file, streamPart)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return content{}, errors.Join(err, file.Close())
	}
	return content{file: file, size: size}, nil
}

package workspace

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

func (s *stager) writeLink(j *fileJob) error {
	text, filled := fillString(j.entry.Target, j.entry.Redactions, s.opts.Secrets)
	if !filled {
		s.leave(j.path, ReasonRedacted)
		return nil
	}
	if err := s.do("create", j.path, func() error { return unix.Symlinkat(text, j.dir.fd, j.name) }); err != nil {
		return err
	}
	st, err := s.setMeta(j.dir.fd, j.name, -1, j.path, &j.entry, true, s.leave)
	j.is(st)
	return err
}

// is notes what the file is now for the record of its directory.
func (j *fileJob) is(st stat) {
	if j.dir.stats != nil {
		j.dir.stats[j.at] = st
	}
}

// fileWriter is a file under way.
type fileWriter struct {
	s      *stager
	j      *fileJob
	fd     int
	mask   mask
	filled bool
}

func (s *stager) create(j *fileJob) (*fileWriter, error) {
	w := &fileWriter{s: s, j: j}
	err := s.do("create", j.path, func() (err error) {
		w.fd, err = unix.Openat(j.dir.fd, j.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(j.entry.Mode&0o777))
		return err
	})
	if err != nil {
		return nil, err
	}
	if w.filled = fillIn(j.entry.Redactions, s.opts.Secrets, func(uint64, string) {}); !w.filled {
		s.leave(j.path, ReasonRedacted)
	} else {
		w.mask = newMask(j.entry.Redactions)
	}
	return w, nil
}

// write writes b at its place, but for holes, which must be zeros.
func (w *fileWriter) write(b []byte, at uint64) error {
	if len(w.mask.ranges) > 0 {
		b = append([]byte(nil), b...)
		w.mask.fill(b, at, w.s.opts.Secrets)
	}
	from := at
	for _, h := range w.j.entry.Holes {
		start, end := max(h.Offset, at), min(h.Offset+h.Length, at+uint64(len(b)))
		if start >= end {
			continue
		}
		if uint64(bytes.Count(b[start-at:end-at], []byte{0})) != end-start {
			return fmt.Errorf("%q has data where its entry has a hole: %w", w.j.path, tree.ErrInvalid)
		}
		if err := w.pwrite(b[from-at:start-at], from); err != nil {
			return err
		}
		from = end
	}
	return w.pwrite(b[from-at:], from)
}

func (w *fileWriter) pwrite(b []byte, at uint64) error {
	for len(b) > 0 {
		n := 0
		if err := w.s.do("write", w.j.path, func() (err error) {
			n, err = unix.Pwrite(w.fd, b, int64(at))
			return err
		}); err != nil {
			return err
		}
		b, at = b[n:], at+uint64(n)
	}
	return nil
}

// end closes the file, with its metadata unless err is one.
func (w *fileWriter) end(err error) error {
	e := &w.j.entry
	if err == nil && len(e.Holes) > 0 {
		err = w.s.do("write", w.j.path, func() error { return unix.Ftruncate(w.fd, int64(e.Content.Size)) })
	}
	if err == nil {
		var st stat
		st, err = w.s.setMeta(w.j.dir.fd, w.j.name, w.fd, w.j.path, e, true, w.s.leave)
		w.j.is(st)
	}
	if err == nil && w.s.sync {
		err = w.s.do("sync", w.j.path, func() error { return unix.Fsync(w.fd) })
	}
	return errors.Join(err, unix.Close(w.fd))
}

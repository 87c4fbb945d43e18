package workspace

import (
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// sameFile reports whether a file has the contents of e, and whether anything
// else of it differs. c is what the cache knows of it.
func (p *planner) sameFile(d *liveDir, e *tree.Entry, st *stat, c *cached) (equal, meta bool, err error) {
	if c != nil && c.is(st) {
		have, _, err := tree.DecodeEntry(c.enc)
		if err == nil && have.Content == e.Content && sameRedactions(have.Redactions, e.Redactions) {
			return true, p.differs(st, e) || !slices.EqualFunc(have.Xattrs, e.Xattrs, sameXattr), nil
		}
	}
	if uint64(st.Size) != e.Content.Size {
		return false, false, nil
	}
	fd, err := openFile(d.fd, e.Name)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return false, false, nil // replaced whole instead
	}
	if err != nil {
		return false, false, err
	}
	defer unix.Close(fd)
	if equal, err = p.sameBytes(fd, e); err != nil || !equal {
		return false, false, err
	}
	xs, err := xattrs(fd)
	return true, p.differs(st, e) || !p.sameXattrs(xs, e.Xattrs), err
}

// sameBytes compares contents, but for redacted ranges that no secret fills.
func (p *planner) sameBytes(fd int, e *tree.Entry) (bool, error) {
	m := newMask(e.Redactions)
	filled := fillIn(e.Redactions, p.opts.Secrets, func(uint64, string) {})
	h := sha256.New()
	buf := make([]byte, min(1<<20, e.Content.Size+1))
	r := &fileReader{fd: fd}
	for at := uint64(0); ; {
		n, err := r.Read(buf)
		if filled && !m.holds(buf[:n], at, p.opts.Secrets) {
			return false, nil
		}
		m.zero(buf[:n], at)
		h.Write(buf[:n])
		at += uint64(n)
		if errors.Is(err, io.EOF) {
			return at == e.Content.Size && (at == 0 || tree.Digest(h.Sum(nil)) == e.Content.Sum), nil
		}
		if err != nil {
			return false, err
		}
	}
}

// sameRedactions compares redactions of a cache, whose secrets are those given,
// with others: where they are equal, every one of them is filled in.
func sameRedactions(a, b []tree.Redaction) bool {
	return slices.EqualFunc(a, b, func(a, b tree.Redaction) bool {
		return a.Name == b.Name && a.Length == b.Length && slices.Equal(a.Offsets, b.Offsets)
	})
}

func sameXattr(a, b tree.Xattr) bool {
	return a.Name == b.Name && a.Value == b.Value && sameRedactions(a.Redactions, b.Redactions)
}

func (p *planner) sameXattrs(have, want []tree.Xattr) bool {
	return slices.EqualFunc(have, want, func(a, b tree.Xattr) bool {
		v, filled := fillString(b.Value, b.Redactions, p.opts.Secrets)
		got := []byte(a.Value)
		if !filled && len(a.Value) == len(v) {
			zero(got, b.Redactions)
		}
		return a.Name == b.Name && string(got) == v
	})
}

// modeOf is the mode that an entry with mode gets.
func (r *restore) modeOf(mode uint16) uint32 {
	if r.opts.SetID {
		return uint32(mode)
	}
	return uint32(mode) &^ (unix.S_ISUID | unix.S_ISGID)
}

// differs reports whether what st says is not what e gets.
func (r *restore) differs(st *stat, e *tree.Entry) bool {
	return mtimeOf(st) != e.Mtime || e.Type != tree.Symlink && st.Mode&0o7777 != r.modeOf(e.Mode) || r.opts.Owner && (st.Uid != e.UID || st.Gid != e.GID)
}

// mask knows redacted ranges in order of their places.
type mask struct{ ranges []maskRange }

type maskRange struct {
	at, length uint64
	name       string
}

func newMask(rs []tree.Redaction) mask {
	var m mask
	for _, r := range rs {
		for _, off := range r.Offsets {
			m.ranges = append(m.ranges, maskRange{off, r.Length, r.Name})
		}
	}
	return m
}

// each calls fn for the part of every range that lies in b, which begins at at.
func (m mask) each(b []byte, at uint64, fn func(part []byte, r maskRange, skipped uint64)) {
	for _, r := range m.ranges {
		from, to := max(r.at, at), min(r.at+r.length, at+uint64(len(b)))
		if from < to {
			fn(b[from-at:to-at], r, from-r.at)
		}
	}
}

func (m mask) zero(b []byte, at uint64) {
	m.each(b, at, func(part []byte, _ maskRange, _ uint64) { clear(part) })
}

// fill puts the values of secrets where they were.
func (m mask) fill(b []byte, at uint64, secrets []Secret) {
	m.each(b, at, func(part []byte, r maskRange, skipped uint64) { copy(part, valueOf(secrets, r.name)[skipped:]) })
}

// holds reports whether b has the values of secrets in its redacted ranges.
func (m mask) holds(b []byte, at uint64, secrets []Secret) bool {
	ok := true
	m.each(b, at, func(part []byte, r maskRange, skipped uint64) {
		ok = ok && strings.HasPrefix(valueOf(secrets, r.name)[skipped:], string(part))
	})
	return ok
}

func valueOf(secrets []Secret, name string) string {
	return secrets[slices.IndexFunc(secrets, func(s Secret) bool { return s.Name == name })].Value
}

package workspace

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/tree"
)

// minSecret is how short a value may be without being asked for: zeroing a
// shorter one destroys bytes that are no secret.
const minSecret = 6

// maxSecretValue bounds what is held to find values across reads.
const maxSecretValue = 1 << 20

var (
	errTooOften   = errors.New("a secret is there too often")
	errSecretName = errors.New("the name of an attribute holds a secret")
)

// searcher finds many values in one pass. It skips as Wu and Manber's does: by
// the last two bytes of a window as long as the shortest value.
type searcher struct {
	secrets []Secret
	min     int
	max     int
	shift   []uint16
	bucket  map[uint16][]int
}

// newSearcher returns nil if there are no secrets.
func newSearcher(secrets []Secret, allowShort bool) (*searcher, error) {
	s := &searcher{secrets: slices.Clone(secrets), bucket: map[uint16][]int{}}
	slices.SortFunc(s.secrets, func(a, b Secret) int { return strings.Compare(a.Name, b.Name) })
	for i, x := range s.secrets {
		switch {
		case x.Name == "" || len(x.Name) > 128 || i > 0 && s.secrets[i-1].Name == x.Name:
			return nil, fmt.Errorf("%w: a secret's name is empty, too long or there twice", ErrInvalid)
		case x.Value == "" || len(x.Value) > maxSecretValue:
			return nil, fmt.Errorf("%w: the secret %q has %d bytes, want 1 to %d", ErrInvalid, x.Name, len(x.Value), maxSecretValue)
		case len(x.Value) < minSecret && !allowShort:
			return nil, fmt.Errorf("%w: the secret %q has less than %d bytes; zeroing it would destroy other bytes, allow it explicitly", ErrInvalid, x.Name, minSecret)
		}
		if s.max = max(s.max, len(x.Value)); i == 0 || len(x.Value) < s.min {
			s.min = len(x.Value)
		}
	}
	if len(secrets) == 0 {
		return nil, nil
	}
	s.prepare()
	return s, nil
}

// window is how long the beginnings of values are that the tables know.
func (s *searcher) window() int { return min(s.min, 1<<15) }

// key is the last two bytes of b, or its only one.
func key(b string) uint16 {
	k := uint16(b[len(b)-1])
	if len(b) > 1 {
		k |= uint16(b[len(b)-2]) << 8
	}
	return k
}

func (s *searcher) prepare() {
	w := s.window()
	s.shift = make([]uint16, 1<<16)
	for i := range s.shift {
		s.shift[i] = uint16(max(w-1, 1))
	}
	for n, x := range s.secrets {
		for end := min(2, w); end <= w; end++ {
			k := key(x.Value[:end])
			s.shift[k] = min(s.shift[k], uint16(w-end))
		}
		k := key(x.Value[:w])
		s.bucket[k] = append(s.bucket[k], n)
	}
}

// find calls fn for every place where a value begins, in order of places.
func (s *searcher) find(b []byte, fn func(at, n int)) {
	w := s.window()
	for end := w; end <= len(b); {
		k := uint16(b[end-1])
		if w > 1 {
			k |= uint16(b[end-2]) << 8
		}
		step := int(s.shift[k])
		if step > 0 {
			end += step
			continue
		}
		for _, n := range s.bucket[k] {
			if v := s.secrets[n].Value; len(v) <= len(b)-(end-w) && string(b[end-w:end-w+len(v)]) == v {
				fn(end-w, n)
			}
		}
		end++
	}
}

// found gathers where values were.
type found struct {
	s     *searcher
	at    map[int][]uint64
	total int
}

func (f *found) add(at uint64, n int) {
	if f.at == nil {
		f.at = map[int][]uint64{}
	}
	if f.total++; f.total <= tree.MaxRedacted {
		f.at[n] = append(f.at[n], at)
	}
}

func (f *found) redactions() ([]tree.Redaction, error) {
	if f.total > tree.MaxRedacted {
		return nil, errTooOften
	}
	var rs []tree.Redaction
	for n, x := range f.s.secrets {
		if offs := f.at[n]; offs != nil {
			rs = append(rs, tree.Redaction{Name: x.Name, Length: uint64(len(x.Value)), Offsets: offs})
		}
	}
	return rs, nil
}

// redact zeroes every value in b. Values that overlap are found all.
func (s *searcher) redact(b []byte) ([]tree.Redaction, error) {
	if s == nil {
		return nil, nil
	}
	f := &found{s: s}
	s.find(b, func(at, n int) { f.add(uint64(at), n) })
	rs, err := f.redactions()
	zero(b, rs)
	return rs, err
}

// redactString is redact for a string.
func (s *searcher) redactString(text string) (string, []tree.Redaction, error) {
	if s == nil {
		return text, nil, nil
	}
	b := []byte(text)
	rs, err := s.redact(b)
	return string(b), rs, err
}

// redactXattrs zeroes every value in those of attributes, whose names may hold none.
func (s *searcher) redactXattrs(xs []tree.Xattr) ([]tree.Xattr, error) {
	for i := range xs {
		var err error
		if s.in(xs[i].Name) {
			return nil, errSecretName
		}
		if xs[i].Value, xs[i].Redactions, err = s.redactString(xs[i].Value); err != nil {
			return nil, err
		}
	}
	return xs, nil
}

// finds reports whether the file fd has values exactly where e was redacted.
func (s *searcher) finds(fd int, e *tree.Entry) bool {
	if s == nil {
		return e.Redactions == nil
	}
	r := s.reader(&fileReader{fd: fd})
	if _, err := io.Copy(io.Discard, r); err != nil {
		return false
	}
	rs, err := r.found.redactions()
	return err == nil && sameRedactions(rs, e.Redactions)
}

// in reports whether text holds a value.
func (s *searcher) in(text string) (found bool) {
	if s != nil {
		s.find([]byte(text), func(int, int) { found = true })
	}
	return found
}

// zero clears the redacted ranges of b.
func zero(b []byte, rs []tree.Redaction) {
	for _, r := range rs {
		for _, off := range r.Offsets {
			clear(b[off : off+r.Length])
		}
	}
}

// redactReader gives what r has with values zeroed. It holds back as many bytes
// as a value may need to be complete.
type redactReader struct {
	r     io.Reader
	found found
	buf   []byte
	held  int    // bytes of buf that are filled
	ready []byte // bytes to give
	after int    // where the bytes behind those given begin
	zeros int    // how many bytes at the beginning of buf belong to a value
	at    uint64 // where buf begins in the stream
	err   error
}

func (s *searcher) reader(r io.Reader) *redactReader {
	return &redactReader{r: r, found: found{s: s}, buf: make([]byte, max(1<<20, 2*s.max))}
}

// Read fills p.
func (r *redactReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *redactReader) fill() {
	r.at += uint64(r.after)
	r.held = copy(r.buf, r.buf[r.after:r.held])
	n, err := io.ReadFull(r.r, r.buf[r.held:])
	r.held += n
	give := r.held - (r.found.s.max - 1)
	if err != nil {
		if r.err = err; errors.Is(err, io.ErrUnexpectedEOF) {
			r.err = io.EOF
		}
		give = r.held
	}
	type span struct{ from, to int }
	spans := []span{{0, r.zeros}}
	r.zeros = 0
	r.found.s.find(r.buf[:r.held], func(at, n int) {
		if at < give {
			r.found.add(r.at+uint64(at), n)
			spans = append(spans, span{at, at + len(r.found.s.secrets[n].Value)})
		}
	})
	for _, s := range spans {
		clear(r.buf[s.from:min(s.to, give)])
		r.zeros = max(r.zeros, s.to-give)
	}
	r.ready, r.after = r.buf[:give], give
}

// fill puts values back where they were. It returns false if one is not given or
// has another length.
func fillIn(rs []tree.Redaction, secrets []Secret, put func(at uint64, value string)) bool {
	for _, r := range rs {
		i := slices.IndexFunc(secrets, func(s Secret) bool { return s.Name == r.Name })
		if i < 0 || uint64(len(secrets[i].Value)) != r.Length {
			return false
		}
	}
	for _, r := range rs {
		i := slices.IndexFunc(secrets, func(s Secret) bool { return s.Name == r.Name })
		for _, off := range r.Offsets {
			put(off, secrets[i].Value)
		}
	}
	return true
}

// fillString is fillIn for a string.
func fillString(text string, rs []tree.Redaction, secrets []Secret) (string, bool) {
	b := []byte(text)
	ok := fillIn(rs, secrets, func(at uint64, v string) { copy(b[at:], v) })
	return string(b), ok
}

// fingerprint says under key which secrets contents were searched for.
func (s *searcher) fingerprint(k []byte) []byte {
	h := hmac.New(sha256.New, k)
	if s != nil {
		for _, x := range s.secrets {
			for _, part := range []string{x.Name, x.Value} {
				h.Write(binary.AppendUvarint(nil, uint64(len(part))))
				_, _ = io.WriteString(h, part)
			}
		}
	}
	return h.Sum(nil)
}

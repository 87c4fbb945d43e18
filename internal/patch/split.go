package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// errFull ends git when no more patches fit.
var errFull = errors.New("the patches are longer than they may be")

// The stages of what git writes.
const (
	inList = iota
	inCounts
	inPatches
)

// entry is a pair of files as git lists it.
type entry struct {
	modes      [2]string
	ids        [2]string
	state      string
	old, path  string // old is "" if it is the same
	counted    bool   // git shows something of it
	adds, dels int
	binary     bool

	header  string // the line that its patches begin with
	patches int    // that have begun
	patch   []byte // as far as it is kept
	bytes   int64
	dropped bool // the patch is longer than it may be
	cut     bool // there is no room for the rest
}

// splitter takes what git diff-tree writes with -z --raw --numstat -p, while it is
// written, and keeps what is told of it.
type splitter struct {
	named func(path string) bool // whose patches are kept at any length

	stage   int
	rest    []byte // the beginning of what is not complete
	token   []string
	entries []*entry
	next    int // of entries, the first that was not counted, or begun, yet
	at      *entry
	inLine  bool // in the middle of a line whose beginning was dealt with
	kept    int
	err     error
}

// Reset forgets everything.
func (s *splitter) Reset() { *s = splitter{named: s.named} }

// Write takes what git writes next.
func (s *splitter) Write(p []byte) (int, error) {
	all := len(p)
	for len(p) > 0 && s.err == nil && s.stage != inPatches {
		n := bytes.IndexByte(p, 0)
		if n < 0 {
			s.rest = append(s.rest, p...)
			if len(s.rest) > maxToken {
				s.err = errors.New("git writes a name that is too long")
			}
			p = nil
			break
		}
		s.rest = append(s.rest, p[:n]...)
		p = p[n+1:]
		s.err = s.field(string(s.rest))
		s.rest = s.rest[:0]
	}
	for len(p) > 0 && s.err == nil {
		n := bytes.IndexByte(p, '\n') + 1
		if n == 0 {
			n = len(p)
		}
		s.err = s.line(p[:n])
		p = p[n:]
	}
	if s.err != nil {
		return 0, s.err
	}
	return all, nil
}

// maxToken bounds a name, and a line that begins a patch, in bytes.
const maxToken = 64 << 10

// field takes a field that ended in NUL.
func (s *splitter) field(text string) error {
	if s.stage == inList && len(s.token) == 0 && !strings.HasPrefix(text, ":") {
		s.stage = inCounts
	}
	if s.stage == inCounts && len(s.token) == 0 && text == "" {
		s.stage, s.next = inPatches, 0
		return nil
	}
	s.token = append(s.token, text)
	var err error
	done := false
	if s.stage == inList {
		done, err = s.listed()
	} else {
		done, err = s.count()
	}
	if done {
		s.token = s.token[:0]
	}
	return err
}

// listed reads ":MODE MODE ID ID STATE", PATH and, of renames and copies, PATH.
func (s *splitter) listed() (done bool, err error) {
	head := strings.Fields(strings.TrimPrefix(s.token[0], ":"))
	if len(head) != 5 {
		return false, fmt.Errorf("git lists %.200q", s.token[0])
	}
	e := &entry{modes: [2]string(head[:2]), ids: [2]string(head[2:4]), state: head[4]}
	two := e.state[0] == 'R' || e.state[0] == 'C'
	switch {
	case len(s.token) == 1, two && len(s.token) == 2:
		return false, nil
	case two:
		e.old, e.path = s.token[1], s.token[2]
		e.header = "diff --git " + quote("a/"+e.old, false) + " " + quote("b/"+e.path, false) + "\n"
	default:
		e.path = s.token[1]
		e.header = "diff --git " + quote("a/"+e.path, false) + " " + quote("b/"+e.path, false) + "\n"
	}
	s.entries = append(s.entries, e)
	return true, nil
}

// count reads "ADDED\tDELETED\tPATH" or, of renames and copies, "ADDED\tDELETED\t",
// PATH and PATH, of the entries that git shows something of.
func (s *splitter) count() (done bool, err error) {
	parts := strings.SplitN(s.token[0], "\t", 3)
	if len(parts) != 3 {
		return false, fmt.Errorf("git counts %.200q", s.token[0])
	}
	old, path := "", parts[2]
	if path == "" {
		if len(s.token) < 3 {
			return false, nil
		}
		old, path = s.token[1], s.token[2]
	}
	for ; s.next < len(s.entries); s.next++ {
		e := s.entries[s.next]
		if e.path != path || e.old != old {
			continue
		}
		s.next++
		e.counted = true
		if parts[0] == "-" {
			e.binary = true
			return true, nil
		}
		e.adds, err = strconv.Atoi(parts[0])
		if err == nil {
			e.dels, err = strconv.Atoi(parts[1])
		}
		return true, err
	}
	return false, fmt.Errorf("git counts lines of %.200q, which it does not list", path)
}

var marker = []byte("diff --git ")

// line takes a line of patches, or a part of one.
func (s *splitter) line(part []byte) error {
	ended := part[len(part)-1] == '\n'
	if !s.inLine {
		s.rest = append(s.rest, part...)
		begins := bytes.HasPrefix(s.rest, marker)
		if !ended && len(s.rest) < maxToken && (begins || bytes.HasPrefix(marker, s.rest)) {
			return nil
		}
		part = s.rest
		s.rest = s.rest[:0]
		if begins {
			if err := s.begin(string(part)); err != nil {
				return err
			}
		}
	}
	s.inLine = !ended
	if s.at == nil {
		return fmt.Errorf("git begins its patches with %.80q", part)
	}
	return s.keep(part)
}

// begin finds the entry whose patch begins.
func (s *splitter) begin(header string) error {
	if s.at != nil && s.at.state == "T" && s.at.patches == 1 && s.at.header == header {
		s.at.patches++ // what changes its type goes and comes
		return nil
	}
	for s.next < len(s.entries) {
		s.at = s.entries[s.next]
		s.next++
		if s.at.header == header {
			s.at.patches = 1
			return nil
		}
	}
	return fmt.Errorf("git makes a patch %.200q of what it does not list", header)
}

// keep takes a part of the current patch.
func (s *splitter) keep(part []byte) error {
	e := s.at
	e.bytes += int64(len(part))
	if !s.named(e.path) && (e.binary || e.bytes > MaxPatch) {
		s.kept -= len(e.patch)
		e.patch, e.dropped = nil, true
		return nil
	}
	if room := MaxTotal - s.kept; len(part) > room {
		e.patch = append(e.patch, part[:room]...)
		e.cut = true
		return errFull
	}
	e.patch = append(e.patch, part...)
	s.kept += len(part)
	return nil
}

// finish returns the entries that git shows something of. full says that git was
// ended before its time.
func (s *splitter) finish(full bool) ([]*entry, error) {
	if !full && len(s.rest) > 0 {
		if len(s.token) > 0 || s.stage != inPatches {
			return nil, errors.New("git ended in the middle of a list")
		}
		if err := s.keep(s.rest); err != nil && !errors.Is(err, errFull) {
			return nil, err
		}
	}
	var shown []*entry
	for i, e := range s.entries {
		if !e.counted {
			continue
		}
		if full && !e.dropped && (i >= s.next || e == s.at) {
			e.cut = true
		}
		if e.patches == 0 && !e.cut {
			return nil, fmt.Errorf("git makes no patch of %.200q", e.path)
		}
		shown = append(shown, e)
	}
	return shown, nil
}

// file describes an entry.
func (e *entry) file(ctx context.Context, db *odb.DB) (File, error) {
	f := File{
		Path: e.path, Old: e.old, State: e.state, Bytes: e.bytes, Cut: e.cut,
		Additions: e.adds, Deletions: e.dels, Binary: e.binary,
	}
	if e.dropped {
		if !e.binary {
			return f, nil
		}
		var err error
		f.Bytes, err = e.size(ctx, db)
		return f, err
	}
	patch := e.patch
	if patch == nil {
		patch = []byte{} // there was no room for any of it
	}
	if e.cut {
		patch = patch[:bytes.LastIndexByte(patch, '\n')+1]
	}
	f.Patch = toUTF8(patch)
	f.Bytes = int64(len(f.Patch))
	return f, nil
}

// size returns the length in bytes of what the file holds, or held.
func (e *entry) size(ctx context.Context, db *odb.DB) (int64, error) {
	for i := 1; i >= 0; i-- {
		id, err := object.ParseID(e.ids[i])
		if err != nil {
			return 0, err
		}
		if !id.IsZero() && e.modes[i] != object.ModeSubmodule.String() {
			return db.Size(ctx, id)
		}
	}
	return 0, nil
}

// toUTF8 returns text that is never nil, what is not UTF-8 replaced.
func toUTF8(text []byte) []byte {
	if utf8.Valid(text) {
		return text[:len(text):len(text)]
	}
	return bytes.ToValidUTF8(text, []byte("\ufffd"))
}

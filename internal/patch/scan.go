package patch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/task"
)

// MalformedError refuses what is no patch.
type MalformedError struct{ Reason string }

func (e *MalformedError) Error() string { return "the diff cannot be read: " + e.Reason }

func malformed(format string, args ...any) error {
	return &MalformedError{Reason: fmt.Sprintf(format, args...)}
}

// PathError refuses a patch of a path that no tree may have.
type PathError struct{ Path string }

func (e *PathError) Error() string {
	return fmt.Sprintf("the diff names the path %.200q, which no repository may have", e.Path)
}

// Bounds of what a patch may hold.
const (
	maxSections = 50_000        // files
	maxMemory   = 256 << 20     // bytes that git needs for their contents, before and after
	maxHeading  = 64 << 10      // bytes of a line outside of contents
	maxInflated = 256 << 20     // bytes of all binary contents
	maxHunk     = 1_000_000_000 // lines that a hunk may claim
)

// section is the part of a patch that is about one file.
type section struct {
	// names are all that the file may be called in the trees, as git reads it or
	// might read it.
	names []string
	bytes int64 // of the section, and of the binary content that it makes
}

// scan finds the sections of a patch. It follows git's own reading of it, and
// checks what git does not: how much memory the patch asks for. Where it were to
// miss a name, git would find nothing to patch.
func scan(r io.Reader) ([]section, error) {
	s := scanner{src: bufio.NewReaderSize(r, maxHeading)}
	for {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return s.sections, nil
		}
		if err == nil {
			err = s.outside(line)
		}
		if err != nil {
			return nil, err
		}
	}
}

type scanner struct {
	src      *bufio.Reader
	number   int // of the current line
	held     []byte
	sections []section
	cur      *section // nil before the first one
	header   bool     // in the heading of a section that began with "diff --git"
	old, now string   // "--- " and "+++ " lines that stand before the current one
	inflated int64
	whole    bool // names may be whole, without a/ or b/ before them
}

// line returns the next line without its end, of long ones the beginning. It is
// valid until the next call.
func (s *scanner) line() ([]byte, error) {
	if s.held != nil {
		line := s.held
		s.held = nil
		return line, nil
	}
	line, err := s.src.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, io.EOF
	}
	s.number++
	size := int64(len(line))
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = s.src.ReadSlice('\n')
			size += int64(len(more))
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if s.cur != nil {
		s.cur.bytes += size
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

// begin begins a section.
func (s *scanner) begin() error {
	if len(s.sections) == maxSections {
		return &task.LimitError{What: "files", Limit: maxSections}
	}
	s.sections = append(s.sections, section{})
	s.cur = &s.sections[len(s.sections)-1]
	return nil
}

// name adds a name to the current section.
func (s *scanner) name(name string) error {
	if name == "" || name == "/dev/null" {
		return nil
	}
	for _, n := range s.cur.names {
		if n == name {
			return nil
		}
	}
	if err := checkPath(name, object.ModeRegular); err != nil {
		return err
	}
	s.cur.names = append(s.cur.names, name)
	return nil
}

// outside takes a line that is no part of contents.
func (s *scanner) outside(line []byte) error {
	text := string(line)
	if s.header {
		if done, err := s.heading(text); done || err != nil {
			return err
		}
		s.header = false
	}
	old, now := s.old, s.now
	s.old, s.now = "", ""
	switch {
	case strings.HasPrefix(text, "diff --git "):
		if err := s.begin(); err != nil {
			return err
		}
		s.header = true
		return s.names(headerName(text[len("diff --git "):]))
	case strings.HasPrefix(text, "@@ -"):
		if old != "" && now != "" {
			if err := s.traditional(old, now); err != nil {
				return err
			}
		}
		return s.hunk(text)
	case strings.HasPrefix(text, "--- "):
		s.old = text
	case strings.HasPrefix(text, "+++ ") && old != "":
		s.old, s.now = old, text
	case text == "GIT binary patch" && s.cur != nil:
		return s.binary()
	}
	return nil
}

func (s *scanner) names(names ...string) error {
	for _, n := range names {
		if err := s.name(n); err != nil {
			return err
		}
	}
	return nil
}

// headings are the lines that may stand between "diff --git" and contents. Those
// that are true hold a name.
var headings = []struct {
	prefix string
	named  bool
}{
	{"old mode ", false}, {"new mode ", false}, {"deleted file mode ", false}, {"new file mode ", false},
	{"copy from ", true}, {"copy to ", true}, {"rename old ", true}, {"rename new ", true},
	{"rename from ", true}, {"rename to ", true}, {"similarity index ", false}, {"dissimilarity index ", false}, {"index ", false},
}

// heading takes a line of a heading; done is false for what comes after it.
func (s *scanner) heading(text string) (done bool, err error) {
	if strings.HasPrefix(text, "--- ") || strings.HasPrefix(text, "+++ ") {
		return true, s.names(s.forms(nameIn(text[4:]))...)
	}
	for _, h := range headings {
		value, ok := strings.CutPrefix(text, h.prefix)
		if ok && h.named {
			return true, s.name(nameIn(value))
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// traditional begins a section that has no heading but "--- " and "+++ ".
func (s *scanner) traditional(old, now string) error {
	if err := s.begin(); err != nil {
		return err
	}
	first, second := nameIn(old[4:]), nameIn(now[4:])
	s.whole = s.whole || flat(first) && (flat(second) || second == "/dev/null") || first == "/dev/null" && flat(second)
	return s.names(append(s.forms(first), s.forms(second)...)...)
}

// flat reports whether a name has no directories.
func flat(name string) bool { return name != "" && strings.IndexByte(name, '/') < 0 }

// forms returns the names that a name may stand for. git takes the first directory
// off, which is a/ or b/, until it meets a file without any.
func (s *scanner) forms(name string) []string {
	if s.whole {
		return []string{strip(name), name}
	}
	return []string{strip(name)}
}

// nameIn reads the name that text begins with, in quotes or up to a tab.
func nameIn(text string) string {
	if name, _, ok := unquote(text); ok {
		return name
	}
	text, _, _ = strings.Cut(text, "\t")
	return strings.TrimSuffix(text, "\r")
}

// strip takes the first directory off a name; "" is left of one that has none.
func strip(name string) string {
	if name == "/dev/null" {
		return name
	}
	_, rest, _ := strings.Cut(name, "/")
	return strings.TrimLeft(rest, "/")
}

// headerName returns the name that both names of a "diff --git" line have, "" if
// they differ.
func headerName(text string) string {
	if first, rest, ok := unquote(text); ok {
		second := strings.TrimPrefix(rest, " ")
		if name, _, quoted := unquote(second); quoted {
			second = name
		}
		return same(first, second)
	}
	if i := strings.Index(text, ` "`); i >= 0 {
		if second, rest, ok := unquote(text[i+1:]); ok && rest == "" {
			return same(text[:i], second)
		}
	}
	text = strings.TrimSuffix(text, "\r")
	for i := 0; i < len(text); i++ {
		if text[i] == ' ' && len(strip(text[:i])) == len(strip(text[i+1:])) {
			if name := same(text[:i], text[i+1:]); name != "" {
				return name
			}
		}
	}
	return ""
}

func same(a, b string) string {
	if a, b = strip(a), strip(b); a == b {
		return a
	}
	return ""
}

// hunk reads the lines of a hunk, as many as its heading claims.
func (s *scanner) hunk(heading string) error {
	old, now, ok := hunkLines(heading)
	if !ok {
		return nil // git passes over it
	}
	if s.cur == nil {
		return malformed("a hunk without a file at line %d", s.number)
	}
	for old > 0 || now > 0 {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return malformed("it ends in the middle of a hunk, after line %d", s.number)
		}
		if err != nil {
			return err
		}
		kind := byte(' ')
		if len(line) > 0 {
			kind = line[0]
		}
		switch kind {
		case ' ':
			old, now = old-1, now-1
		case '-':
			old--
		case '+':
			now--
		case '\\':
		default:
			return malformed("line %d is no line of a hunk", s.number)
		}
		if old < 0 || now < 0 {
			return malformed("line %d is one more than its hunk claims", s.number)
		}
	}
	return nil
}

// hunkLines reads "@@ -1,2 +3,4 @@".
func hunkLines(text string) (old, now int, ok bool) {
	ranges, _, ok := strings.Cut(strings.TrimPrefix(text, "@@ -"), " @@")
	before, after, two := strings.Cut(ranges, " +")
	if !ok || !two {
		return 0, 0, false
	}
	counts := [2]int{1, 1}
	for i, r := range []string{before, after} {
		at, n, counted := strings.Cut(r, ",")
		if _, err := strconv.ParseUint(at, 10, 63); err != nil {
			return 0, 0, false
		}
		if !counted {
			continue
		}
		var err error
		if counts[i], err = strconv.Atoi(n); err != nil || counts[i] < 0 || counts[i] > maxHunk {
			return 0, 0, false
		}
	}
	return counts[0], counts[1], true
}

// checkPath refuses a path that a push with it would be refused for.
func checkPath(path string, mode object.Mode) error {
	if len(path) > object.MaxPath {
		return &PathError{path}
	}
	for path != "" {
		name, rest, deeper := strings.Cut(path, "/")
		m := mode
		if deeper {
			m = object.ModeDir
		}
		if name == "" || deeper && rest == "" || object.Check(object.Tree, object.EncodeTree([]object.Entry{{Mode: m, Name: []byte(name), ID: object.ID{1}}})) != nil {
			return &PathError{path}
		}
		path = rest
	}
	return nil
}

package tree

import (
	"math"
	"slices"
	"strings"
)

// Type is what an entry of a directory is.
type Type uint8

// The types of entries. The numbers are stored.
const (
	File      Type = 1
	Directory Type = 2
	Symlink   Type = 3
)

// Time is a point in time to the nanosecond. Seconds count from 1970 in UTC.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Content names the bytes of a file. An empty one has no object.
type Content struct {
	Size    uint64
	Digest  Digest // of the one chunk, or of the recipe
	Chunked bool   // Digest is that of a recipe
	Sum     Digest // SHA-256 of all bytes; equal to Digest where the file is one chunk
}

// Range is a range of bytes.
type Range struct{ Offset, Length uint64 }

// Redaction says where the bytes of a secret were, which are zeros now.
type Redaction struct {
	Name    string   // the secret's name, never its value
	Length  uint64   // bytes of the secret
	Offsets []uint64 // where it began, ascending
}

// Xattr is an extended attribute.
type Xattr struct {
	Name       string // begins with "user."
	Value      string
	Redactions []Redaction
}

// Summary counts what lies beneath a directory.
type Summary struct {
	Entries uint64 // of every type, at every depth
	Files   uint64
	Bytes   uint64 // of contents, holes included
}

// Entry is one name of a directory.
type Entry struct {
	Name       string // any bytes but '/' and NUL
	Type       Type
	Mode       uint16 // permissions, set-id and sticky bits: 12 bits
	Mtime      Time
	UID, GID   uint32
	Xattrs     []Xattr     // by name
	Redactions []Redaction // of the contents of a file or the target of a link, by name

	Content Content // of a file
	Holes   []Range // of a sparse file, ascending, apart from each other
	Mixed   bool    // the file changed while it was read: its contents may never have been together

	Dir     Digest // of a directory: its Dir, or its Index
	Paged   bool   // Dir names an Index
	Summary Summary

	Target string // of a link
}

// CheckName reports whether name may be an entry's.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return invalid("the name %q", name)
	case len(name) > MaxName:
		return invalid("a name of %d bytes, at most %d are allowed", len(name), MaxName)
	case strings.ContainsAny(name, "/\x00"):
		return invalid("the name %q with a slash or NUL", name)
	}
	return nil
}

// Check reports whether e can be stored.
func (e *Entry) Check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	if e.Mode > 0o7777 || e.Mtime.Nsec > 999_999_999 {
		return invalid("the mode or time of %q", e.Name)
	}
	if err := e.checkType(); err != nil {
		return err
	}
	total := 0
	for i, x := range e.Xattrs {
		if i > 0 && e.Xattrs[i-1].Name >= x.Name {
			return invalid("the attributes of %q are out of order", e.Name)
		}
		if !strings.HasPrefix(x.Name, "user.") || len(x.Name) > MaxName || strings.Contains(x.Name, "\x00") || len(x.Value) > maxXattr {
			return invalid("the attribute %q of %q", x.Name, e.Name)
		}
		if total += len(x.Name) + len(x.Value); total > MaxXattrs {
			return invalid("attributes of more than %d bytes at %q", MaxXattrs, e.Name)
		}
		if err := checkRedactions(x.Redactions, uint64(len(x.Value))); err != nil {
			return err
		}
	}
	return nil
}

func (e *Entry) checkType() error {
	if e.Type != File && (e.Content != Content{} || e.Holes != nil || e.Mixed) ||
		e.Type != Directory && (e.Dir != Digest{} || e.Paged || e.Summary != Summary{}) ||
		e.Type != Symlink && e.Target != "" {
		return invalid("%q has what another type of entry has", e.Name)
	}
	switch e.Type {
	case File:
		if err := e.Content.Check(); err != nil {
			return err
		}
		if err := checkHoles(e.Holes, e.Content.Size); err != nil {
			return err
		}
		return checkRedactions(e.Redactions, e.Content.Size)
	case Directory:
		if e.Redactions != nil {
			return invalid("the directory %q has redacted ranges", e.Name)
		}
		return nil
	case Symlink:
		return e.checkTarget()
	}
	return invalid("type %d of %q", e.Type, e.Name)
}

// Check reports whether c can be stored.
func (c *Content) Check() error {
	switch {
	case c.Size > maxFileBytes:
		return invalid("a file of %d bytes", c.Size)
	case c.Size == 0 && *c != Content{}:
		return invalid("an empty file with an object")
	case c.Size > MaxChunk && !c.Chunked:
		return invalid("a chunk of %d bytes", c.Size)
	case !c.Chunked && c.Sum != c.Digest:
		return invalid("a file of one chunk with another sum")
	}
	return nil
}

func checkHoles(holes []Range, size uint64) error {
	if len(holes) > MaxHoles {
		return invalid("a file of %d holes", len(holes))
	}
	end := uint64(0)
	for i, h := range holes {
		if h.Length == 0 || h.Offset > size || h.Length > size-h.Offset || i > 0 && h.Offset <= end {
			return invalid("holes that are not in order, apart and in the file")
		}
		end = h.Offset + h.Length
	}
	return nil
}

// checkTarget allows NUL only where a secret was.
func (e *Entry) checkTarget() error {
	if e.Target == "" || len(e.Target) > MaxTarget {
		return invalid("a link target of %d bytes at %q", len(e.Target), e.Name)
	}
	if err := checkRedactions(e.Redactions, uint64(len(e.Target))); err != nil {
		return err
	}
	for i := range len(e.Target) {
		if e.Target[i] == 0 && !covered(e.Redactions, uint64(i)) {
			return invalid("a link target with NUL at %q", e.Name)
		}
	}
	return nil
}

func covered(rs []Redaction, at uint64) bool {
	for _, r := range rs {
		for _, off := range r.Offsets {
			if at >= off && at-off < r.Length {
				return true
			}
		}
	}
	return false
}

func checkRedactions(rs []Redaction, size uint64) error {
	n := 0
	for i, r := range rs {
		if r.Name == "" || len(r.Name) > maxSecret || i > 0 && rs[i-1].Name >= r.Name {
			return invalid("redactions that are not in order of their names")
		}
		if n += len(r.Offsets); len(r.Offsets) == 0 || n > MaxRedacted {
			return invalid("%d redacted ranges", n)
		}
		for j, off := range r.Offsets {
			if r.Length == 0 || r.Length > size || off > size-r.Length || j > 0 && r.Offsets[j-1] >= off {
				return invalid("redacted ranges that are not in order and in the file")
			}
		}
	}
	return nil
}

// Counts returns what the entry adds to the summary of its directory.
func (e *Entry) Counts() Summary {
	s := Summary{Entries: 1}
	switch e.Type {
	case File:
		s.Files, s.Bytes = 1, e.Content.Size
	case Directory:
		s = s.Plus(e.Summary)
	}
	return s
}

// Clone returns a copy of e that does not hold the object in memory that e was read
// from.
func (e *Entry) Clone() Entry {
	c := *e
	c.Name, c.Target = strings.Clone(e.Name), strings.Clone(e.Target)
	c.Redactions = cloneRedactions(e.Redactions)
	c.Xattrs = slices.Clone(e.Xattrs)
	for i := range c.Xattrs {
		x := &c.Xattrs[i]
		x.Name, x.Value, x.Redactions = strings.Clone(x.Name), strings.Clone(x.Value), cloneRedactions(x.Redactions)
	}
	return c
}

func cloneRedactions(rs []Redaction) []Redaction {
	c := slices.Clone(rs)
	for i := range c {
		c[i].Name = strings.Clone(c[i].Name)
	}
	return c
}

// Room returns about how many bytes e takes in memory.
func (e *Entry) Room() int {
	n := 256 + len(e.Name) + len(e.Target) + 16*len(e.Holes) + redactionRoom(e.Redactions)
	for _, x := range e.Xattrs {
		n += 64 + len(x.Name) + len(x.Value) + redactionRoom(x.Redactions)
	}
	return n
}

func redactionRoom(rs []Redaction) int {
	n := 0
	for _, r := range rs {
		n += 64 + len(r.Name) + 8*len(r.Offsets)
	}
	return n
}

// Plus adds and stays at the largest value where a hostile summary would wrap.
func (s Summary) Plus(o Summary) Summary {
	return Summary{add(s.Entries, o.Entries), add(s.Files, o.Files), add(s.Bytes, o.Bytes)}
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

package object

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ErrMalformed is wrapped by the errors of everything here that reads objects.
var ErrMalformed = errors.New("malformed object")

// Mode is the mode of a tree entry, as Git writes it in octal.
type Mode uint32

// The modes that Git writes.
const (
	ModeRegular    Mode = 0o100644
	ModeExecutable Mode = 0o100755
	ModeSymlink    Mode = 0o120000
	ModeSubmodule  Mode = 0o160000
	ModeDir        Mode = 0o040000
)

const (
	modeFormat Mode = 0o170000 // the bits that say what an entry is
	modeFile   Mode = 0o100000
)

// IsDir reports whether the entry is a tree.
func (m Mode) IsDir() bool { return m&modeFormat == ModeDir }

// Canonical returns the mode that Git treats m as: files keep only their
// owner's execute bit, and what is no file, link or tree counts as a submodule.
// Trees of old programs hold such modes.
func (m Mode) Canonical() Mode {
	switch m & modeFormat {
	case modeFile:
		if m&0o100 != 0 {
			return ModeExecutable
		}
		return ModeRegular
	case ModeSymlink, ModeDir:
		return m & modeFormat
	}
	return ModeSubmodule
}

// Type returns the type of the object that an entry of this mode names: Commit
// for a submodule, whose commit is in another repository.
func (m Mode) Type() Type {
	switch m.Canonical() {
	case ModeDir:
		return Tree
	case ModeSubmodule:
		return Commit
	}
	return Blob
}

// String returns the mode in six octal digits, as git ls-tree prints it.
func (m Mode) String() string { return fmt.Sprintf("%06o", uint32(m)) }

// Entry is one entry of a tree.
type Entry struct {
	Mode Mode   // as written; see Mode.Canonical
	Name []byte // part of the tree's data when it comes from a TreeIter
	ID   ID
}

// TreeIter walks the entries of a tree without allocating. It reads what Check
// accepts, and also trees that are unsorted or hold forbidden names.
type TreeIter struct {
	rest []byte
	size int
	err  error
}

// TreeEntries returns an iterator over the content of a tree, which must not
// change meanwhile.
func TreeEntries(data []byte) TreeIter { return TreeIter{rest: data, size: len(data)} }

// Left returns how many bytes follow.
func (it *TreeIter) Left() int { return len(it.rest) }

// Next returns the next entry. ok is false at the end, and on an error, which
// Err then returns.
func (it *TreeIter) Next() (e Entry, ok bool) {
	if len(it.rest) == 0 {
		return Entry{}, false
	}
	var rest []byte
	e.Mode, e.Name, rest, ok = cutModeName(it.rest)
	if !ok || len(rest) < Size {
		it.err = fmt.Errorf("%w: tree entry at byte %d cannot be read", ErrMalformed, it.size-len(it.rest))
		it.rest = nil
		return Entry{}, false
	}
	e.ID = ID(rest[:Size])
	it.rest = rest[Size:]
	return e, true
}

// Rest returns the data of the entries that Next has not returned.
func (it *TreeIter) Rest() []byte { return it.rest }

// Err returns the error that ended the iteration, wrapping ErrMalformed, or nil.
func (it *TreeIter) Err() error { return it.err }

// cutModeName reads an octal mode, a space, and a name that is not empty and
// ends in NUL. Like Git it lets an absurdly long mode overflow.
func cutModeName(data []byte) (mode Mode, name, rest []byte, ok bool) {
	i := 0
	for ; i < len(data) && '0' <= data[i] && data[i] <= '7'; i++ {
		mode = mode<<3 | Mode(data[i]-'0')
	}
	if i == 0 || i == len(data) || data[i] != ' ' {
		return 0, nil, nil, false
	}
	data = data[i+1:]
	end := bytes.IndexByte(data, 0)
	if end <= 0 {
		return 0, nil, nil, false
	}
	return mode, data[:end], data[end+1:], true
}

// Find returns the entry of a tree with the given name, without decoding the
// others. The error wraps ErrMalformed.
func Find(tree []byte, name string) (e Entry, ok bool, err error) {
	for it := TreeEntries(tree); ; {
		e, ok = it.Next()
		if !ok {
			return Entry{}, false, it.Err()
		}
		if string(e.Name) == name {
			return e, true, nil
		}
	}
}

// CompareEntries orders the entries of a tree as Git does: by name, where the
// name of a tree counts as if it ended in a slash.
func CompareEntries(a, b Entry) int {
	n := min(len(a.Name), len(b.Name))
	if c := bytes.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c
	}
	return int(byteAfter(a, n)) - int(byteAfter(b, n))
}

// byteAfter returns byte n of the name that sorts the entry, where n is at most
// its length.
func byteAfter(e Entry, n int) byte {
	switch {
	case n < len(e.Name):
		return e.Name[n]
	case e.Mode.IsDir():
		return '/'
	}
	return 0
}

// EncodeTree returns the content of a tree with these entries, in Git's order
// whatever order they are given in. It does not check them: Check does.
func EncodeTree(entries []Entry) []byte {
	if !slices.IsSortedFunc(entries, CompareEntries) {
		entries = slices.Clone(entries)
		slices.SortFunc(entries, CompareEntries)
	}
	size := 0
	for _, e := range entries {
		size += len("100644 ") + len(e.Name) + 1 + Size
	}
	data := make([]byte, 0, size)
	for _, e := range entries {
		data = strconv.AppendUint(data, uint64(e.Mode), 8)
		data = append(data, ' ')
		data = append(data, e.Name...)
		data = append(data, 0)
		data = append(data, e.ID[:]...)
	}
	return data
}

package notetree

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// fromHex decodes digits, of either case, and reports whether they are some.
func fromHex(into, digits []byte) bool {
	_, err := hex.Decode(into, digits)
	return err == nil
}

// otherPath returns the path of an entry of a directory.
func otherPath(d *directory, name string) string { return spread(d.prefix, d.n, d.n) + name }

// spread returns the first n bytes of a key in hexadecimal, with a slash after
// each of the first fanout.
func spread(key object.ID, n, fanout int) string {
	digits := hex.EncodeToString(key[:n])
	var b strings.Builder
	for ; fanout > 0 && len(digits) > 0; fanout-- {
		b.WriteString(digits[:2])
		b.WriteByte('/')
		digits = digits[2:]
	}
	return b.String() + digits
}

// Write returns the tree of the notes. made takes each tree that was read or
// changed, children before parents. Its error ends the work.
func (t *Tree) Write(made func(id object.ID, data []byte) error) (object.ID, error) {
	out := new(folder)
	if err := t.emit(out, t.root, 0, 0); err != nil {
		return object.Zero, err
	}
	for path, o := range t.others {
		if err := out.put(path, o.mode, o.id); err != nil {
			return object.Zero, err
		}
	}
	return out.write(made)
}

// emit puts what is below a node into the tree that is written; fanout is how
// many bytes of the keys become directories.
func (t *Tree) emit(out *folder, node *inner, depth, fanout int) error {
	fanout = spreadAt(node, depth, fanout)
	for i := 0; i < len(node.slots); i++ {
		switch s := node.slots[i].(type) {
		case *inner:
			if err := t.emit(out, s, depth+1, fanout); err != nil {
				return err
			}
		case *note:
			if err := out.put(spread(s.key, object.Size, fanout), object.ModeRegular, s.blob); err != nil {
				return err
			}
		case *directory:
			if depth < 2*fanout {
				if err := out.put(strings.TrimSuffix(spread(s.prefix, s.n, fanout), "/"), object.ModeDir, s.id); err != nil {
					return err
				}
				continue
			}
			node.slots[i] = nil
			if err := t.load(s, node, depth); err != nil {
				return err
			}
			i--
		}
	}
	return nil
}

// spreadAt says how many bytes become directories below a node: one more when
// each digit has two notes or more.
func spreadAt(node *inner, depth, fanout int) int {
	if depth%2 != 0 || depth > 2*fanout {
		return fanout
	}
	for _, s := range node.slots {
		switch s.(type) {
		case *inner, *directory:
		default:
			return fanout
		}
	}
	return fanout + 1
}

// folder is a tree to be written.
type folder struct {
	folders map[string]*folder
	entries map[string]other
}

func (f *folder) put(path string, mode object.Mode, id object.ID) error {
	name, rest, deeper := strings.Cut(path, "/")
	if _, taken := f.entries[name]; taken {
		return fmt.Errorf("%w: two entries are called %q", ErrMalformed, path)
	}
	if deeper {
		next := f.folders[name]
		if next == nil {
			next = new(folder)
			if f.folders == nil {
				f.folders = map[string]*folder{}
			}
			f.folders[name] = next
		}
		return next.put(rest, mode, id)
	}
	if f.folders[name] != nil {
		return fmt.Errorf("%w: two entries are called %q", ErrMalformed, path)
	}
	if f.entries == nil {
		f.entries = map[string]other{}
	}
	f.entries[name] = other{mode, id}
	return nil
}

func (f *folder) write(made func(id object.ID, data []byte) error) (object.ID, error) {
	entries := make([]object.Entry, 0, len(f.folders)+len(f.entries))
	for name, sub := range f.folders {
		id, err := sub.write(made)
		if err != nil {
			return object.Zero, err
		}
		entries = append(entries, object.Entry{Mode: object.ModeDir, Name: []byte(name), ID: id})
	}
	for name, e := range f.entries {
		entries = append(entries, object.Entry{Mode: e.mode, Name: []byte(name), ID: e.id})
	}
	data := object.EncodeTree(entries)
	id := object.Hash(object.Tree, data)
	return id, made(id, data)
}

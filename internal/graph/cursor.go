package graph

import "github.com/cairnstate/cairn/internal/git/object"

// cursor finds the entries of a tree in order.
type cursor struct {
	it  object.TreeIter
	at  object.Entry
	ok  bool
	had bool
}

func newCursor(data []byte, had bool) cursor {
	c := cursor{it: object.TreeEntries(data), had: had}
	c.at, c.ok = c.it.Next()
	return c
}

// seek returns the entry with the name and kind of e. Entries must be asked for
// in the order of a tree; in an unsorted tree some are not found.
func (c *cursor) seek(e object.Entry) (object.Entry, bool) {
	for c.ok {
		switch order := object.CompareEntries(c.at, e); {
		case order == 0:
			return c.at, c.at.Mode.IsDir() == e.Mode.IsDir()
		case order > 0:
			return object.Entry{}, false
		}
		c.at, c.ok = c.it.Next()
	}
	return object.Entry{}, false
}

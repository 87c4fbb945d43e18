package merge

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// fields are the parts of git's output, each of which ends in NUL.
type fields struct{ rest []byte }

func (f *fields) next() (string, error) {
	part, rest, ok := bytes.Cut(f.rest, []byte{0})
	if !ok {
		return "", fmt.Errorf("what git says of the merge ends early")
	}
	f.rest = rest
	return string(part), nil
}

// parse reads what git merge-tree writes with -z and --messages: the tree, the
// stages of the paths in conflict, an empty field, then the messages. The labels
// are what ours and theirs are called. There are conflicts if conflicted is set;
// git tells of some that are none in the end.
func parse(out []byte, labels [2]string, conflicted bool) (object.ID, []Conflict, error) {
	f := fields{out}
	text, err := f.next()
	if err != nil {
		return object.Zero, nil, err
	}
	tree, err := object.ParseID(text)
	if err != nil {
		return object.Zero, nil, fmt.Errorf("read what git merged: %w", err)
	}
	found := map[string]*Conflict{}
	for {
		line, err := f.next()
		if err != nil {
			return object.Zero, nil, err
		}
		if line == "" {
			break
		}
		if err := addStage(found, line, labels); err != nil {
			return object.Zero, nil, err
		}
	}
	if conflicted && len(found) == 0 {
		// Some conflicts are about where files go, and leave no stages.
		if err := addMessages(found, &f, labels); err != nil {
			return object.Zero, nil, err
		}
	}
	if conflicted != (len(found) > 0) {
		return object.Zero, nil, fmt.Errorf("git says that %d paths are in conflict and ends otherwise", len(found))
	}
	conflicts := make([]Conflict, 0, len(found))
	for _, c := range found {
		conflicts = append(conflicts, *c)
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	return tree, conflicts, nil
}

// addStage notes a line "MODE ID STAGE\tPATH".
func addStage(found map[string]*Conflict, line string, labels [2]string) error {
	head, path, ok := strings.Cut(line, "\t")
	parts := strings.Split(head, " ")
	if !ok || len(parts) != 3 {
		return fmt.Errorf("git names a conflict as %.200q, which is not understood", line)
	}
	mode, err := strconv.ParseUint(parts[0], 8, 32)
	if err != nil {
		return fmt.Errorf("read the mode of a conflict: %w", err)
	}
	id, err := object.ParseID(parts[1])
	if err != nil {
		return fmt.Errorf("read the object of a conflict: %w", err)
	}
	c := conflictAt(found, path, labels)
	side := Side{Mode: object.Mode(mode), ID: id}
	switch parts[2] {
	case "1":
		c.Base = side
	case "2":
		c.Ours = side
	case "3":
		c.Theirs = side
	default:
		return fmt.Errorf("git names a conflict with stage %.40q", parts[2])
	}
	return nil
}

// addMessages notes the paths of those messages that tell conflicts.
func addMessages(found map[string]*Conflict, f *fields, labels [2]string) error {
	for len(f.rest) > 0 {
		text, err := f.next()
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > len(f.rest) {
			return fmt.Errorf("git tells of %.40q paths", text)
		}
		paths := make([]string, n)
		for i := range paths {
			if paths[i], err = f.next(); err != nil {
				return err
			}
		}
		kind, err := f.next()
		if err != nil {
			return err
		}
		if _, err = f.next(); err != nil {
			return err
		}
		if !strings.HasPrefix(kind, "CONFLICT") {
			continue
		}
		for _, path := range paths {
			conflictAt(found, path, labels)
		}
	}
	return nil
}

func conflictAt(found map[string]*Conflict, path string, labels [2]string) *Conflict {
	name := original(path, labels)
	c := found[name]
	if c == nil {
		c = &Conflict{Path: name}
		found[name] = c
	}
	if !slices.Contains(c.written, path) {
		c.written = append(c.written, path)
	}
	return c
}

// original returns the path of a file that git moved to PATH~LABEL, because a
// directory or another file is in its way.
func original(path string, labels [2]string) string {
	for _, l := range labels {
		if i := strings.LastIndex(path, "~"+l); i > 0 {
			return path[:i]
		}
	}
	return path
}

// Package merge merges two commits as git does, on as little of the repository as
// git needs for it. What git need not be asked is decided here: where one side
// changed nothing, the other one is the result.
package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/task"
)

// Request says what to merge.
type Request struct {
	DB    *odb.DB
	Graph *graph.Graph // of DB
	// Ours and Theirs are commits of Graph, neither of which reaches the other.
	Ours, Theirs object.ID
	// Bases are their merge bases; none for histories that are unrelated, which
	// are merged as if both had begun with nothing.
	Bases []object.ID
	Git   *gitcmd.Git
	Room  *gitcmd.Room
}

// Bounds of one merge.
const (
	timeout   = 2 * time.Minute
	maxOutput = 64 << 20
)

// Merged is the outcome of a merge. Close must be called.
type Merged struct {
	// Tree is the merged tree; where there are conflicts it holds what git makes
	// of them, with markers in texts.
	Tree object.ID
	// Conflicts are in order of their paths.
	Conflicts []Conflict
	// Trees are those of ours and theirs.
	Trees [2]object.ID

	db     *odb.DB
	task   *task.Task // nil when git was not needed
	labels [2]string  // what ours and theirs are called in Tree
}

// Conflict is a path at which the sides disagree.
type Conflict struct {
	// Path is the path in the commits; the one that git gives to a file that makes
	// way for a directory is not told.
	Path               string
	Base, Ours, Theirs Side

	written []string // the paths in the merged tree
}

// Side is what one side has at a path. Mode 0 says nothing.
type Side struct {
	Mode object.Mode
	ID   object.ID
}

// CrashError says that git gave up with a fault of its own, which it does after some
// chains of renames, in any repository.
type CrashError struct{ Err error }

func (e *CrashError) Error() string {
	return "git fails at this merge with a fault of its own: merge in a clone, in smaller steps, and push the result"
}

// Unwrap returns what git said.
func (e *CrashError) Unwrap() error { return e.Err }

// Merge merges. What is too large to be merged is a *task.LimitError, what git
// cannot read a *PathError, and what it breaks at a *CrashError.
func Merge(ctx context.Context, r Request) (*Merged, error) {
	m := &Merged{db: r.DB}
	for i, id := range []object.ID{r.Ours, r.Theirs} {
		c, ok := r.Graph.Commit(id)
		if !ok {
			return nil, fmt.Errorf("object %s is not a commit of this repository", id)
		}
		m.Trees[i] = c.Tree
	}
	if m.decide(r) {
		return m, nil
	}
	if err := m.run(ctx, r); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close gives up what git wrote.
func (m *Merged) Close() error {
	if m.task == nil {
		return nil
	}
	return m.task.Close()
}

// Given returns how many objects git was given, 0 when it was not started, and
// how often it missed one.
func (m *Merged) Given() (objects, missed int) {
	if m.task == nil {
		return 0, 0
	}
	return m.task.Objects()
}

// decide finds the result where only one side changed something, or both did the
// same.
func (m *Merged) decide(r Request) bool {
	if m.Trees[0] == m.Trees[1] {
		m.Tree = m.Trees[0]
		return true
	}
	if len(r.Bases) != 1 {
		return false
	}
	base, _ := r.Graph.Commit(r.Bases[0])
	switch base.Tree {
	case m.Trees[0]:
		m.Tree = m.Trees[1]
	case m.Trees[1]:
		m.Tree = m.Trees[0]
	default:
		return false
	}
	return true
}

// run has git merge.
func (m *Merged) run(ctx context.Context, r Request) error {
	var err error
	if m.task, err = task.New(r.DB, r.Room, task.Limits{}); err != nil {
		return err
	}
	tips, err := history(ctx, m.task, r)
	if err != nil {
		return err
	}
	m.labels = [2]string{tips[0].String(), tips[1].String()}
	options := []string{"--write-tree", "-z", "--messages"}
	if len(r.Bases) == 0 {
		options = append(options, "--allow-unrelated-histories")
	}
	var out bytes.Buffer
	err = m.task.Run(ctx, r.Git, task.Command{
		Name: gitcmd.MergeTree, Options: options, Args: m.labels[:], Timeout: timeout, MaxOutput: maxOutput,
	}, &out)
	var exit *gitcmd.ExitError
	conflicted := errors.As(err, &exit) && exit.Status == 1
	switch {
	case errors.Is(err, gitcmd.ErrOutput):
		return &task.LimitError{What: "bytes of conflicts", Limit: maxOutput}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return &task.LimitError{What: "seconds of work for git", Limit: int64(timeout / time.Second)}
	case exit != nil && exit.Status < 0:
		return &CrashError{err}
	case err != nil && !conflicted:
		return fmt.Errorf("merge: %w", err)
	}
	m.Tree, m.Conflicts, err = parse(out.Bytes(), m.labels, conflicted)
	return err
}

// ReadTree returns a tree that is part of the result or of the repository.
func (m *Merged) ReadTree(ctx context.Context, id object.ID) ([]byte, error) {
	if m.task == nil {
		return m.db.Tree(ctx, id)
	}
	return m.task.Tree(ctx, id)
}

// Object returns an object that is part of the result or of the repository, as a
// stream, which must be closed.
func (m *Merged) Object(ctx context.Context, id object.ID) (object.Type, int64, io.ReadCloser, error) {
	if m.task == nil {
		return m.db.Stream(ctx, id)
	}
	return m.task.Object(ctx, id)
}

// Wrote reports whether an object of the result is git's own, and not in the
// repository.
func (m *Merged) Wrote(id object.ID) bool { return m.task != nil && !m.db.Has(id) }

// Result returns what the merged tree has at a path in conflict. Of a file that
// made way for a directory it is the file.
func (m *Merged) Result(ctx context.Context, c Conflict) (Side, error) {
	for _, path := range c.written {
		side, err := m.find(ctx, path)
		if err != nil || side.Mode != 0 {
			return side, err
		}
	}
	return Side{}, nil
}

// find looks up a file in the merged tree.
func (m *Merged) find(ctx context.Context, path string) (Side, error) {
	at := Side{Mode: object.ModeDir, ID: m.Tree}
	for len(path) > 0 {
		if !at.Mode.IsDir() {
			return Side{}, nil
		}
		name := path
		if i := bytes.IndexByte([]byte(path), '/'); i >= 0 {
			name, path = path[:i], path[i+1:]
		} else {
			path = ""
		}
		data, err := m.ReadTree(ctx, at.ID)
		if err != nil {
			return Side{}, err
		}
		e, ok, err := object.Find(data, name)
		if err != nil || !ok {
			return Side{}, err
		}
		at = Side{Mode: e.Mode, ID: e.ID}
	}
	if at.Mode.IsDir() {
		return Side{}, nil
	}
	return at, nil
}

// Relabel puts names in place of what git calls the sides in a text with conflict
// markers.
func (m *Merged) Relabel(text []byte, ours, theirs string) []byte {
	if m.task == nil {
		return text
	}
	text = bytes.ReplaceAll(text, []byte(m.labels[0]), []byte(ours))
	return bytes.ReplaceAll(text, []byte(m.labels[1]), []byte(theirs))
}

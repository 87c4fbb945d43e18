// Package blame finds out which commits the lines of a file come from, with the
// answers of git blame. It follows the file through history itself and gives git only
// its versions, as a history in which every commit changes the file: what git does
// costs what the file's history does, however long that of the repository is. Where
// lines may come from any file, git is given the whole repository.
package blame

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
	"github.com/cairnstate/cairn/internal/task"
)

// Query says what is asked.
type Query struct {
	Commit object.ID // a commit of the graph
	Path   string    // of a file or symbolic link
	// Ranges are parts of the file in the forms of git blame -L, at most MaxRanges;
	// none is the whole file.
	Ranges []string
	// Moves also looks for lines that were moved or copied, as -M -C -C.
	Moves bool
}

// Bounds of a query and its answer.
const (
	MaxRanges = 16
	MaxLines  = 100_000
	MaxFile   = 16 << 20 // bytes

	maxVersion  = 64 << 20 // bytes of an earlier version
	maxVersions = 4 << 20  // commits that are looked at
	maxOutput   = 128 << 20
	timeout     = 45 * time.Second
)

// Line is where a line comes from.
type Line struct {
	Number   int // in the file, from 1
	Original int // in Path as Commit has it
	Commit   object.ID
	Path     string
	Previous object.ID // the parent of Commit that has the file too; zero for none
}

// NotFoundError says that the commit has no file at the path.
type NotFoundError struct{ Path string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("file %q not found", e.Path) }

// InvalidError says what cannot be answered.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// LimitError says that an answer takes too much.
type LimitError struct{ Reason string }

func (e *LimitError) Error() string { return e.Reason }

// Blame returns the lines asked for, in their order. Its refusals are *NotFoundError,
// *InvalidError and *LimitError. The view for git is made in room.
func Blame(ctx context.Context, git *gitcmd.Git, g *graph.Graph, room *gitcmd.Room, q Query) ([]Line, error) {
	if err := checkRanges(q.Ranges); err != nil {
		return nil, err
	}
	k, err := task.New(g.DB(), room, task.Limits{})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lines, err := blame(bounded, git, g, k, q)
	var limit *task.LimitError
	switch {
	case errors.As(err, &limit):
		err = &LimitError{fmt.Sprintf("the history of %q has more than %d %s: it cannot be blamed", q.Path, limit.Limit, limit.What)}
	case errors.Is(err, gitcmd.ErrOutput):
		err = tooMany()
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		err = &LimitError{fmt.Sprintf("the blame of %q takes longer than %s: ask for fewer lines, or without moves", q.Path, timeout)}
	}
	return lines, errors.Join(err, k.Close())
}

func tooMany() error {
	return &LimitError{fmt.Sprintf("more than %d lines are asked for: ask for ranges", MaxLines)}
}

func blame(ctx context.Context, git *gitcmd.Git, g *graph.Graph, k *task.Task, q Query) ([]Line, error) {
	f := newFollower(ctx, git, g, k)
	tip, err := f.begin(q)
	if err != nil {
		return nil, err
	}
	total, err := f.check(q, f.versions[tip].blob)
	if err != nil {
		return nil, err
	}
	c := task.Command{Name: gitcmd.Blame, Options: []string{"--incremental"}, MaxOutput: maxOutput, Timeout: timeout}
	for _, r := range q.Ranges {
		c.Options = append(c.Options, "-L"+r)
	}
	if q.Moves {
		if err := k.Whole(ctx); err != nil {
			return nil, err
		}
		c.Options = append(c.Options, "-M", "-C", "-C")
		c.Args = []string{q.Commit.String(), "--", q.Path}
	} else {
		if err := f.follow(); err != nil {
			return nil, err
		}
		id, err := f.standIn(tip)
		if err != nil {
			return nil, err
		}
		c.Args = []string{id.String(), "--", standInName}
	}
	var out bytes.Buffer
	err = k.Run(ctx, git, c, &out)
	if exit, failed := errors.AsType[*gitcmd.ExitError](err); failed && exit.Status > 0 && len(q.Ranges) > 0 {
		return nil, &InvalidError{fmt.Sprintf("a range cannot be used: it is malformed, matches nothing, or lies beyond the file's %d lines", total)}
	}
	if err != nil {
		return nil, err
	}
	lines, err := parse(out.Bytes(), total)
	if err == nil && !q.Moves {
		f.translate(lines)
	}
	return lines, err
}

// check refuses a file that cannot be blamed, and returns how many lines it has.
func (f *follower) check(q Query, id object.ID) (int, error) {
	size, err := f.g.DB().Size(f.ctx, id)
	if err != nil {
		return 0, err
	}
	if size > MaxFile {
		return 0, &LimitError{fmt.Sprintf("file %q has %d bytes: more than %d are not blamed", q.Path, size, MaxFile)}
	}
	_, _, r, err := f.g.DB().Stream(f.ctx, id)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return 0, fmt.Errorf("read blob %s: %w", id, err)
	}
	if bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
		return 0, &InvalidError{fmt.Sprintf("file %q is binary: it has no lines", q.Path)}
	}
	total := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		total++
	}
	if total > MaxLines && len(q.Ranges) == 0 {
		return 0, tooMany()
	}
	return total, nil
}

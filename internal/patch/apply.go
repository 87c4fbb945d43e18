package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/task"
)

// Application says what to apply to what.
type Application struct {
	DB    *odb.DB
	Tree  object.ID     // zero is the empty one
	Patch io.ReadSeeker // unified or in git's format; it is read several times
	Git   *gitcmd.Git
	Room  *gitcmd.Room
}

// Applied is what a patch makes of a tree. Close must be called.
type Applied struct {
	// Changes are the paths that differ, none if the patch changes nothing.
	Changes []Change

	task  *task.Task // nil when git was not needed
	given map[object.ID]bool
}

// Change is what a path holds after a patch; Mode 0 says nothing.
type Change struct {
	Path string
	Now  Side
}

// ConflictError refuses a patch that does not fit the tree.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return "the diff does not apply: " + e.Reason }

// Bounds of one application.
const (
	applyTimeout = 60 * time.Second
	applyOutput  = 64 << 20 // bytes
	applyMemory  = 2 << 30  // bytes of address space
)

// Apply applies a patch as git apply --cached does: wholly or not at all. Refusals
// are *MalformedError, *PathError, *ConflictError and *task.LimitError.
func Apply(ctx context.Context, a Application) (*Applied, error) {
	if _, err := a.Patch.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the diff: %w", err)
	}
	sections, err := scan(a.Patch)
	if err != nil {
		return nil, err
	}
	if len(sections) == 0 {
		return nil, malformed("it names no file")
	}
	p := applying{Application: a, base: newBase(sections)}
	if err := p.base.find(ctx, a.DB, a.Tree); err != nil {
		return nil, err
	}
	if err := p.weigh(ctx, sections); err != nil {
		return nil, err
	}
	done := &Applied{given: make(map[object.ID]bool)}
	if done.task, err = task.New(a.DB, a.Room, task.Limits{Bytes: maxMemory}); err != nil {
		return nil, err
	}
	if err := p.run(ctx, done); err != nil {
		return nil, errors.Join(err, done.Close())
	}
	return done, nil
}

// Close removes what git wrote.
func (a *Applied) Close() error { return a.task.Close() }

// Wrote reports whether a content is new, and not one that the tree has.
func (a *Applied) Wrote(id object.ID) bool { return !a.given[id] }

// Content returns a content that git wrote, or one of the repository, as a stream,
// which must be closed.
func (a *Applied) Content(ctx context.Context, id object.ID) (int64, io.ReadCloser, error) {
	typ, size, content, err := a.task.Object(ctx, id)
	if err == nil && typ != object.Blob {
		err = errors.Join(fmt.Errorf("git made %s, a %s, for a file", id, typ), content.Close())
	}
	return size, content, err
}

// applying is one application under way.
type applying struct {
	Application
	base *base
}

// weigh refuses a patch for which git would need too much memory: it holds every
// file of every section before and after it.
func (p *applying) weigh(ctx context.Context, sections []section) error {
	sizes := make(map[string]int64)
	for path, at := range p.base.files {
		if id := at.blob(); !id.IsZero() {
			n, err := p.DB.Size(ctx, id)
			if err != nil {
				return err
			}
			sizes[path] = n
		}
	}
	var total int64
	for _, s := range sections {
		after := s.bytes
		for _, name := range s.names {
			after = max(after, sizes[name]+s.bytes)
		}
		for _, name := range s.names {
			sizes[name] = max(sizes[name], after)
		}
		if total += after; total > maxMemory {
			return &task.LimitError{What: "bytes in the files that it touches", Limit: maxMemory}
		}
	}
	return nil
}

// run has git apply the patch to a tree of the files that it names.
func (p *applying) run(ctx context.Context, done *Applied) error {
	made := make(map[object.ID][]byte)
	var tree sparse
	for path, at := range p.base.files {
		if at.ID.IsZero() {
			return &PathError{path} // git takes a null id for no file
		}
		tree.put(path, at)
		if id := at.blob(); !id.IsZero() {
			done.given[id] = true
			if err := done.task.Add(id); err != nil {
				return err
			}
		}
	}
	before := tree.write(func(t object.Type, data []byte) object.ID {
		id := done.task.Make(t, data)
		made[id] = data
		return id
	})
	after, err := p.git(ctx, done.task, before)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, id object.ID) ([]byte, error) {
		if data, ok := made[id]; ok {
			return data, nil
		}
		return done.task.Tree(ctx, id)
	}
	err = task.Walk(ctx, read, []object.ID{before, after}, func(path []byte, at []object.Entry) (bool, error) {
		old, now := sideOf(at[0]), sideOf(at[1])
		if old.Mode.IsDir() || now.Mode.IsDir() {
			return true, nil
		}
		if now.Mode != 0 {
			if err := checkPath(string(path), now.Mode); err != nil {
				return false, err
			}
		}
		done.Changes = append(done.Changes, Change{string(path), now})
		return false, nil
	})
	if err != nil {
		return err
	}
	return p.base.fits(ctx, p.DB, done.Changes)
}

// git runs git and returns the tree that it makes.
func (p *applying) git(ctx context.Context, t *task.Task, before object.ID) (object.ID, error) {
	var out bytes.Buffer
	run := func(name gitcmd.Subcommand, in io.ReadSeeker, options []string, args ...string) error {
		return t.Run(ctx, p.Git, task.Command{
			Name: name, Options: options, Args: args, In: in, Timeout: applyTimeout, MaxOutput: applyOutput, MaxMemory: applyMemory,
		}, &out)
	}
	if err := run(gitcmd.ReadTree, nil, nil, before.String()); err != nil {
		return object.Zero, fmt.Errorf("prepare to apply a diff: %w", err)
	}
	err := run(gitcmd.Apply, p.Patch, []string{"--cached", "--binary", "--whitespace=nowarn"})
	var exit *gitcmd.ExitError
	switch {
	case errors.As(err, &exit):
		// Status 1 is of a patch that can be read; else reading alone tells.
		if exit.Status != 1 && errors.As(run(gitcmd.Apply, p.Patch, []string{"--numstat", "-z"}), new(*gitcmd.ExitError)) {
			return object.Zero, &MalformedError{p.told(exit)}
		}
		return object.Zero, &ConflictError{p.told(exit)}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return object.Zero, &task.LimitError{What: "seconds of work for git", Limit: int64(applyTimeout / time.Second)}
	case err != nil:
		return object.Zero, fmt.Errorf("apply a diff: %w", err)
	}
	if err := run(gitcmd.WriteTree, nil, []string{"--missing-ok"}); err != nil {
		return object.Zero, fmt.Errorf("write the tree of a diff: %w", err)
	}
	return object.ParseID(strings.TrimSpace(out.String()))
}

// told returns what git says first, unless that names an absolute path, which may
// be this server's.
func (p *applying) told(e *gitcmd.ExitError) string {
	line, _, _ := strings.Cut(e.Stderr, "\n")
	line = strings.TrimPrefix(strings.TrimPrefix(line, "error: "), "fatal: ")
	if line == "" || strings.Contains(line, " /") || strings.Contains(line, "'/") {
		return "git refuses it"
	}
	return strings.ToValidUTF8(line, "?")
}

// Package task gives git what one task needs of a repository, and nothing else:
// a bare view with the trees that differ, the blobs that git will read and
// commits that stand in for the history. What a task costs follows the change
// that it is about, not the repository, wherever the repository's bytes lie.
//
// A task is put together with [Task.Walk], [Task.Add] and [Task.StandIn]; [Task.Run]
// writes what was added into a pack and runs git on it. Objects that git may ask
// for but hardly ever does are named with [Task.Spare].
package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Limits bound what one task may hold. A field that is zero has the default.
type Limits struct {
	Objects int   // DefaultObjects
	Bytes   int64 // of all objects together, inflated; DefaultBytes
}

// Defaults of Limits.
const (
	DefaultObjects = 1 << 20
	DefaultBytes   = 2 << 30
)

// LimitError says that a task would need more than it may.
type LimitError struct {
	What  string // for example "bytes"
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the change has more than %d %s: make it smaller", e.Limit, e.What)
}

// Task is one task. It is not safe for concurrent use. Close must be called.
type Task struct {
	db     *odb.DB
	dir    *gitcmd.Dir
	limits Limits

	named   map[object.ID]struct{} // what git has, or will have when it runs
	pending []object.ID            // of them, what is not written yet
	made    []made                 // of the task's own making, not written yet
	spare   []object.ID
	bytes   int64
	missed  int

	// read are trees that Walk has read and git was not given yet.
	read     map[object.ID][]byte
	readLeft int64 // bytes
}

// maxRead bounds in bytes the trees that are kept until git is given them.
const maxRead = 4 << 20

// made is an object that the repository need not have.
type made struct {
	typ  object.Type
	id   object.ID
	data []byte
}

// New returns a task without objects, on the objects of db, with a view in room.
func New(db *odb.DB, room *gitcmd.Room, limits Limits) (*Task, error) {
	if limits.Objects == 0 {
		limits.Objects = DefaultObjects
	}
	if limits.Bytes == 0 {
		limits.Bytes = DefaultBytes
	}
	dir, err := room.NewDir()
	if err != nil {
		return nil, err
	}
	return &Task{db: db, dir: dir, limits: limits, named: make(map[object.ID]struct{}), read: make(map[object.ID][]byte), readLeft: maxRead}, nil
}

// Close gives the view up.
func (t *Task) Close() error { return t.dir.Close() }

// Objects returns how many objects git was or will be given, and how often it
// asked for one that it was not given.
func (t *Task) Objects() (given, missed int) { return len(t.named), t.missed }

// Add gives git objects, which exist. Those that it has already are left out.
func (t *Task) Add(ids ...object.ID) error {
	for _, id := range ids {
		if _, ok := t.named[id]; ok || id == emptyTree {
			continue
		}
		if len(t.named) == t.limits.Objects {
			return &LimitError{What: "objects", Limit: int64(t.limits.Objects)}
		}
		t.named[id] = struct{}{}
		t.pending = append(t.pending, id)
	}
	return nil
}

// Spare names objects, which exist and which git is not expected to read. It is
// given all of them as soon as it misses an object.
func (t *Task) Spare(ids ...object.ID) { t.spare = append(t.spare, ids...) }

// Walk gives git the trees that differ, as Walk finds them, and calls visit for
// the paths at which they do. What is given of other entries, visit decides.
func (t *Task) Walk(ctx context.Context, trees []object.ID, visit Visit) error {
	return Walk(ctx, func(ctx context.Context, id object.ID) ([]byte, error) {
		if err := t.Add(id); err != nil {
			return nil, err
		}
		data, err := t.db.Tree(ctx, id)
		if size := int64(len(data)); err == nil && size <= t.readLeft && t.read[id] == nil {
			t.read[id] = data
			t.readLeft -= size
		}
		return data, err
	}, trees, visit)
}

// StandIn gives git a commit of a tree that stands for the commit with an id, and
// returns the id that git knows it by. It has the parents that are said, which may
// be stand-ins, and a date in Unix seconds. With stand-ins git sees a history that
// is as short as the task allows. Its output names them: replace what is told.
func (t *Task) StandIn(id, tree object.ID, parents []object.ID, when int64) object.ID {
	b := fmt.Appendf(nil, "tree %s\n", tree)
	for _, p := range parents {
		b = fmt.Appendf(b, "parent %s\n", p)
	}
	const who = "Cairn <cairn@localhost>"
	// The message makes commits that are otherwise alike different ones.
	b = fmt.Appendf(b, "author %s %d +0000\ncommitter %[1]s %[2]d +0000\n\n%s\n", who, max(when, 0), id)
	return t.Make(object.Commit, b)
}

// Make gives git an object that the repository need not have, and returns its id.
func (t *Task) Make(typ object.Type, data []byte) object.ID {
	id := object.Hash(typ, data)
	if _, ok := t.named[id]; !ok && id != emptyTree {
		t.named[id] = struct{}{}
		t.made = append(t.made, made{typ, id, data})
	}
	return id
}

// Whole gives git all that the repository has, pack by pack.
func (t *Task) Whole(ctx context.Context) error {
	for _, p := range t.db.Packs() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.Info().Class == meta.PackGarbage || p.Index().Count() == 0 {
			continue
		}
		if t.bytes += p.Info().Bytes; t.bytes > t.limits.Bytes {
			return &LimitError{What: "bytes", Limit: t.limits.Bytes}
		}
		if err := t.dir.AddPack(p.Index().PackChecksum(), p, p.Index().Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// Attributes tells git what holds of paths, as lines of a gitattributes file.
func (t *Task) Attributes(lines []byte) error { return t.dir.Attributes(lines) }

// Shallow tells git that the history ends at commits, whose parents it is not
// given.
func (t *Task) Shallow(commits ...object.ID) error { return t.dir.Shallow(commits) }

// Command is one run of git; its fields are those of gitcmd.Command.
type Command struct {
	Name      gitcmd.Subcommand
	Options   []string
	Args      []string
	In        io.ReadSeeker // nil is empty; it is read from its beginning
	Timeout   time.Duration
	MaxOutput int64
	MaxMemory int64
}

// Output takes what git writes. It is reset when git has to run again.
type Output interface {
	io.Writer
	Reset()
}

var _ Output = (*bytes.Buffer)(nil)

// maxMisses is how often git may miss an object before that is an error.
const maxMisses = 8

// Run gives git what was added and runs it. When git misses an object that the
// repository has, it is given it, with the spare ones, and runs again. A failure of
// git is a *gitcmd.ExitError; out then holds what it wrote.
func (t *Task) Run(ctx context.Context, git *gitcmd.Git, c Command, out Output) error {
	for {
		if err := t.flush(ctx); err != nil {
			return err
		}
		out.Reset()
		run := gitcmd.Command{Name: c.Name, Options: c.Options, Args: c.Args, Out: out, Timeout: c.Timeout, MaxOutput: c.MaxOutput, MaxMemory: c.MaxMemory}
		if c.In != nil {
			if _, err := c.In.Seek(0, io.SeekStart); err != nil {
				return fmt.Errorf("read what git is given: %w", err)
			}
			run.In = c.In
		}
		err := git.Run(ctx, t.dir, run)
		var exit *gitcmd.ExitError
		if !errors.As(err, &exit) || t.missed == maxMisses {
			return err
		}
		missing := t.missing(exit.Stderr)
		if len(missing) == 0 {
			return err
		}
		t.missed++
		if err := t.Add(append(missing, t.spare...)...); err != nil {
			return err
		}
		t.spare = nil
	}
}

var fullID = regexp.MustCompile(`\b[0-9a-f]{40}\b`)

// missing returns the objects that git names in its last words, that the
// repository has and git has not.
func (t *Task) missing(said string) []object.ID {
	var ids []object.ID
	for _, text := range fullID.FindAllString(said, -1) {
		id, err := object.ParseID(text)
		if err != nil {
			continue
		}
		if _, given := t.named[id]; !given && t.db.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// flush writes a pack of what git was not given yet.
func (t *Task) flush(ctx context.Context) error {
	count := len(t.pending) + len(t.made)
	if count == 0 {
		return nil
	}
	err := t.dir.MakePack(func(w io.Writer) ([]byte, error) {
		out := pack.NewWriter(w, uint32(count))
		entries := make([]pack.IndexEntry, 0, count)
		for _, o := range t.made {
			at, err := out.AddStored(o.typ, int64(len(o.data)), bytes.NewReader(o.data))
			if err != nil {
				return nil, fmt.Errorf("write pack: %w", err)
			}
			entries = append(entries, pack.IndexEntry{ID: o.id, Offset: at.Offset, CRC: at.CRC})
		}
		for _, id := range t.pending {
			at, err := t.copy(ctx, out, id)
			if err != nil {
				return nil, err
			}
			entries = append(entries, pack.IndexEntry{ID: id, Offset: at.Offset, CRC: at.CRC})
		}
		sum, err := out.Close()
		if err != nil {
			return nil, fmt.Errorf("write pack: %w", err)
		}
		return pack.BuildIndex(entries, sum), nil
	})
	if err != nil {
		return err
	}
	t.pending, t.made = nil, nil
	clear(t.read)
	t.readLeft = maxRead
	return nil
}

// copy writes one object of the repository.
func (t *Task) copy(ctx context.Context, out *pack.Writer, id object.ID) (pack.Written, error) {
	typ, size := object.Tree, int64(0)
	var content io.ReadCloser
	if data, ok := t.read[id]; ok {
		size, content = int64(len(data)), io.NopCloser(bytes.NewReader(data))
	} else {
		var err error
		if typ, size, content, err = t.db.Stream(ctx, id); err != nil {
			return pack.Written{}, err
		}
	}
	defer content.Close()
	if t.bytes += size; t.bytes > t.limits.Bytes {
		return pack.Written{}, &LimitError{What: "bytes", Limit: t.limits.Bytes}
	}
	at, err := out.AddStored(typ, size, content)
	if err != nil {
		return at, fmt.Errorf("copy object %s for git: %w", id, err)
	}
	return at, nil
}

// Has reports whether the repository has an object.
func (t *Task) Has(id object.ID) bool { return t.db.Has(id) }

// Object returns an object of the repository, or one that git wrote, as a stream,
// which must be closed. It is known to exist; absence is an *odb.CorruptError.
func (t *Task) Object(ctx context.Context, id object.ID) (object.Type, int64, io.ReadCloser, error) {
	if !t.db.Has(id) {
		typ, size, content, err := t.dir.Written(id)
		if !errors.Is(err, fs.ErrNotExist) {
			return typ, size, content, err
		}
	}
	return t.db.Stream(ctx, id)
}

// Tree returns a tree of the repository, or one that git wrote.
func (t *Task) Tree(ctx context.Context, id object.ID) ([]byte, error) {
	if t.db.Has(id) {
		return t.db.Tree(ctx, id)
	}
	typ, size, content, err := t.Object(ctx, id)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if typ != object.Tree {
		return nil, fmt.Errorf("git names %s, a %s, as a tree", id, typ)
	}
	if size > odb.DefaultMaxObject {
		return nil, &LimitError{What: "bytes in a directory", Limit: odb.DefaultMaxObject}
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return nil, fmt.Errorf("read tree %s that git wrote: %w", id, err)
	}
	return data, nil
}

package patch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/task"
)

// Comparison says what to compare.
type Comparison struct {
	DB       *odb.DB
	Old, New object.ID // trees; zero is the empty one
	// Paths are the files and directories to compare; none is everything. What is
	// named is never filtered.
	Paths []string
	// Exact leaves nothing out, so that the patches of all files, one after the
	// other, make New of Old: no file is filtered, binary ones have binary patches,
	// and texts that are not UTF-8 count as binary. Otherwise changes of the amount
	// of white space count as none.
	Exact bool
	Git   *gitcmd.Git
	Room  *gitcmd.Room

	whole bool // renames and copies are not looked for
}

// Diff is how two trees differ.
type Diff struct {
	Stats
	Files []File // in the order of paths, renames by the new one
	// Filtered are files without a patch: binary ones, those whose patch is longer
	// than MaxPatch, and those too large to be compared at all.
	Filtered []File
}

// Stats count as git diff --numstat does; files that were too large to be
// compared add no lines.
type Stats struct{ Files, Additions, Deletions int }

// File is a file that differs.
type File struct {
	Path string
	Old  string // where it was, if it was renamed or copied
	// State is git's letter, with the similarity in per cent of renames and copies.
	State string
	// Patch is nil for files that are filtered.
	Patch []byte
	// Bytes is the length of Patch; of a filtered file that of the patch which is
	// left out, or of the content if it is binary.
	Bytes int64
	// Cut says that the end of Patch is missing, because the whole is too long.
	Cut bool
	// Additions and Deletions count lines; Binary files have none.
	Additions, Deletions int
	Binary               bool
}

// Bounds of one comparison.
const (
	// MaxPatch is the length in bytes of the longest patch of a file that nobody
	// named.
	MaxPatch = 500_000
	// MaxTotal bounds the patches of all files together, in bytes.
	MaxTotal = 32 << 20

	maxCompared = 16 << 20  // bytes of a file that nobody named
	maxGiven    = 512 << 20 // bytes of all files
	maxOutput   = 1 << 30   // bytes that git may write, most of which are dropped
	timeout     = 50 * time.Second
)

// Compare compares. What is too large to be compared is a *task.LimitError.
func Compare(ctx context.Context, c Comparison) (*Diff, error) {
	in := scopeOf(c.Paths)
	list, err := changes(ctx, c.DB, c.Old, c.New, in)
	if err != nil {
		return nil, err
	}
	given, apart, err := c.part(ctx, list, in)
	if err != nil {
		return nil, err
	}
	d := &Diff{Filtered: apart, Stats: Stats{Files: len(apart)}}
	if len(given) == 0 {
		return d, nil
	}
	entries, err := c.run(ctx, given, in)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		f, err := e.file(ctx, c.DB)
		if err != nil {
			return nil, err
		}
		d.Stats.Files++
		d.Additions += f.Additions
		d.Deletions += f.Deletions
		if f.Patch == nil {
			d.Filtered = append(d.Filtered, f)
		} else {
			d.Files = append(d.Files, f)
		}
	}
	slices.SortFunc(d.Filtered, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return d, nil
}

// part parts what git compares from what is filtered without being read: files
// that are too large, and null ids, which git takes for files of its own.
func (c *Comparison) part(ctx context.Context, list []change, in scope) (given []change, apart []File, err error) {
	var alone []change
	for _, ch := range list {
		null := ch.old.Mode != 0 && ch.old.ID.IsZero() || ch.now.Mode != 0 && ch.now.ID.IsZero()
		size, err := c.size(ctx, ch)
		if err != nil {
			return nil, nil, err
		}
		if null || size > maxCompared && !c.Exact && !in.named(ch.path) {
			alone = append(alone, ch)
			continue
		}
		given = append(given, ch)
	}
	// Of large files, those that were renamed as they are.
	gone := make(map[Side]string)
	for _, ch := range alone {
		if ch.now.Mode == 0 {
			gone[ch.old] = ch.path
		}
	}
	moved := make(map[string]bool)
	for _, ch := range alone {
		f := File{Path: ch.path, State: "M", Binary: true}
		switch {
		case ch.old.Mode == 0:
			f.State = "A"
			if from, ok := gone[ch.now]; ok {
				f.State, f.Old = "R100", from
				delete(gone, ch.now)
				moved[from] = true
			}
		case ch.now.Mode == 0:
			f.State = "D"
		case ch.old.Mode != ch.now.Mode && !(regular(ch.old) && regular(ch.now)):
			f.State = "T"
		}
		if f.Bytes, err = c.size(ctx, ch); err != nil {
			return nil, nil, err
		}
		apart = append(apart, f)
	}
	apart = slices.DeleteFunc(apart, func(f File) bool { return f.State == "D" && moved[f.Path] })
	return given, apart, nil
}

func regular(s Side) bool {
	return s.Mode == object.ModeRegular || s.Mode == object.ModeExecutable
}

// size returns the larger one of the sizes that a file had and has, in bytes.
func (c *Comparison) size(ctx context.Context, ch change) (int64, error) {
	var most int64
	for _, id := range []object.ID{ch.old.blob(), ch.now.blob()} {
		if id.IsZero() {
			continue
		}
		n, err := c.DB.Size(ctx, id)
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// run has git compare.
func (c *Comparison) run(ctx context.Context, list []change, in scope) ([]*entry, error) {
	t, err := task.New(c.DB, c.Room, task.Limits{Bytes: maxGiven})
	if err != nil {
		return nil, err
	}
	defer t.Close() // what remains, the next start removes
	var trees [2]sparse
	for _, ch := range list {
		for i, s := range []Side{ch.old, ch.now} {
			if s.Mode == 0 {
				continue
			}
			trees[i].put(ch.path, s)
			if id := s.blob(); !id.IsZero() {
				if err := t.Add(id); err != nil {
					return nil, err
				}
			}
		}
	}
	args := []string{trees[0].write(t.Make).String(), trees[1].write(t.Make).String()}
	entries, err := c.git(ctx, t, args, in)
	if err == nil && c.Exact && belowLink(entries) {
		c.whole = true
		entries, err = c.git(ctx, t, args, in)
	}
	for _, everything := range []bool{false, true} {
		if err != nil || !c.Exact {
			break
		}
		// JSON cannot hold texts in other encodings; as binary files they are exact.
		// That may undo renames, and with them more texts come to light.
		odd := attributes(entries, everything)
		if odd == nil {
			break
		}
		if err := t.Attributes(odd); err != nil {
			return nil, err
		}
		entries, err = c.git(ctx, t, args, in)
	}
	return entries, err
}

// git runs git once.
func (c *Comparison) git(ctx context.Context, t *task.Task, trees []string, in scope) ([]*entry, error) {
	options := []string{"-r", "-z", "--raw", "--numstat", "-p", "--full-index", "--no-ext-diff", "--no-textconv"}
	if c.Exact || in != nil {
		options = append(options, "--binary")
	}
	if !c.Exact {
		options = append(options, "-b")
	}
	if !c.whole {
		options = append(options, "-C")
	}
	out := &splitter{named: func(path string) bool { return c.Exact || in.named(path) }}
	err := t.Run(ctx, c.Git, task.Command{
		Name: gitcmd.DiffTree, Options: options, Args: trees, Timeout: timeout, MaxOutput: maxOutput,
	}, out)
	listed := out.stage == inPatches
	switch {
	case errors.Is(err, errFull), errors.Is(err, gitcmd.ErrOutput) && listed:
		return out.finish(true)
	case errors.Is(err, gitcmd.ErrOutput):
		return nil, &task.LimitError{What: "bytes of names", Limit: maxOutput}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, &task.LimitError{What: "seconds of work for git", Limit: int64(timeout / time.Second)}
	case err != nil:
		return nil, fmt.Errorf("compare trees: %w", err)
	}
	return out.finish(false)
}

// belowLink reports whether a symbolic link was renamed and something lies below
// its old path: git does not apply that, because the patch does not say that a
// link goes away.
func belowLink(entries []*entry) bool {
	links := make(scope)
	for _, e := range entries {
		if e.state[0] == 'R' && e.modes[0] == object.ModeSymlink.String() {
			links[e.old] = struct{}{}
		}
	}
	for _, e := range entries {
		if len(links) > 0 && links.covers(e.path) && !links.named(e.path) {
			return true
		}
	}
	return false
}

// attributes says of the texts that are not UTF-8, or of everything, that they are
// binary; it returns nil if there are none.
func attributes(entries []*entry, everything bool) []byte {
	const maxLine = 2000 // git passes over longer ones
	var lines []byte
	for _, e := range entries {
		if e.binary || utf8.Valid(e.patch) || utf8.Valid(cleanHunks(e.patch)) {
			continue
		}
		for _, path := range []string{e.path, e.old} {
			if path == "" {
				continue
			}
			line := quote("/"+escapeGlob(path), true) + " -diff\n"
			if everything || len(line) > maxLine {
				return []byte("* -diff\n")
			}
			lines = append(lines, line...)
		}
	}
	return lines
}

// cleanHunks replaces what is not UTF-8 in the headings of hunks, which git cuts
// off without regard to characters, and which mean nothing to whoever applies
// them.
func cleanHunks(patch []byte) []byte {
	var out []byte
	for line := range bytes.Lines(patch) {
		if bytes.HasPrefix(line, []byte("@@ -")) {
			line = bytes.ToValidUTF8(line, []byte("\ufffd"))
		}
		out = append(out, line...)
	}
	return out
}

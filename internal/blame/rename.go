package blame

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/task"
)

// source is a file that a commit removed.
type source struct {
	path string
	mode object.Mode
	id   object.ID
}

// renamed returns the version of a parent that became mine under another path; it does
// not exist where none did.
func (f *follower) renamed(mine *version, parent graph.Node) (version, error) {
	var nothing version
	sources, err := f.removed(mine.node, parent)
	if err != nil || len(sources) == 0 {
		return nothing, err
	}
	from, ok := exact(mine, sources)
	if !ok && regular(mine.mode) {
		if from, ok, err = f.similar(mine, sources); err != nil {
			return nothing, err
		}
	}
	if !ok {
		return nothing, nil
	}
	return f.find(parent, from, strings.Split(from, "/"), nil)
}

// removed returns the files of a parent that a commit does not have, in order.
func (f *follower) removed(n, parent graph.Node) ([]source, error) {
	var sources []source
	err := task.Walk(f.ctx, f.g.DB().Tree, []object.ID{f.g.Tree(parent), f.g.Tree(n)}, func(path []byte, at []object.Entry) (bool, error) {
		if at[0].Name == nil || at[0].Mode.IsDir() {
			return at[0].Name != nil, nil
		}
		if mode := at[0].Mode.Canonical(); at[1].Name == nil && mode != object.ModeSubmodule {
			sources = append(sources, source{string(path), mode, at[0].ID})
		}
		return false, nil
	})
	return sources, err
}

func regular(m object.Mode) bool { return m == object.ModeRegular || m == object.ModeExecutable }

// maxExact is how many files with the same content git looks at.
const maxExact = 100

// exact returns the file with the same content that git takes: the first that keeps
// its name, else the first.
func exact(mine *version, sources []source) (from string, ok bool) {
	seen := 0
	for _, s := range sources {
		if s.id != mine.blob || s.mode != mine.mode && !(regular(s.mode) && regular(mine.mode)) {
			continue
		}
		if path.Base(s.path) == path.Base(mine.path) {
			return s.path, true
		}
		if !ok {
			from, ok = s.path, true
		}
		if seen++; seen > maxExact+1 {
			break
		}
	}
	return from, ok
}

// similar has git find the file that is most like mine, if one is enough. git is
// given trees in which nothing else differs. A file of another name that is less than
// half as large, or more than twice, is none for git.
func (f *follower) similar(mine *version, sources []source) (from string, ok bool, err error) {
	size, err := f.g.DB().Size(f.ctx, mine.blob)
	if err != nil {
		return "", false, err
	}
	name := path.Base(mine.path)
	var likely []source
	for _, s := range sources {
		if !regular(s.mode) {
			continue
		}
		other, err := f.g.DB().Size(f.ctx, s.id)
		if err != nil {
			return "", false, err
		}
		if path.Base(s.path) == name || 2*min(size, other) >= max(size, other) {
			likely = append(likely, s)
		}
	}
	if len(likely) == 0 {
		return "", false, nil
	}
	before, after, err := f.contrast(mine, likely)
	if err != nil {
		return "", false, err
	}
	var out bytes.Buffer
	err = f.k.Run(f.ctx, f.git, task.Command{
		Name: gitcmd.DiffTree, Options: []string{"-r", "-z", "--raw", "-M", "--diff-filter=R", "--no-ext-diff", "--no-textconv"},
		Args: []string{before.String(), after.String()}, Timeout: timeout, MaxOutput: maxOutput,
	}, &out)
	if err != nil || out.Len() == 0 {
		return "", false, err
	}
	// ":mode mode id id R100", the old path and the new one.
	fields := strings.Split(out.String(), "\x00")
	if len(fields) < 3 {
		return "", false, fmt.Errorf("git diff-tree writes %q: %w", out.String(), errGit)
	}
	digits, _, _ := strings.Cut(fields[1], "/")
	n, err := strconv.Atoi(digits)
	if err != nil || n >= len(likely) {
		return "", false, fmt.Errorf("git diff-tree names %q: %w", fields[1], errGit)
	}
	return likely[n].path, true, nil
}

// contrast gives git a tree of files, each in a directory that has its number, and
// one of mine alone.
func (f *follower) contrast(mine *version, sources []source) (before, after object.ID, err error) {
	dir := func(number string, mode object.Mode, path string, id object.ID) object.Entry {
		name := path[strings.LastIndexByte(path, '/')+1:]
		tree := f.k.Make(object.Tree, object.EncodeTree([]object.Entry{{Mode: mode, Name: []byte(name), ID: id}}))
		return object.Entry{Mode: object.ModeDir, Name: []byte(number), ID: tree}
	}
	entries := make([]object.Entry, len(sources))
	for i, s := range sources {
		entries[i] = dir(fmt.Sprintf("%08d", i), s.mode, s.path, s.id)
		if err := f.k.Add(s.id); err != nil {
			return before, after, err
		}
	}
	if err := f.k.Add(mine.blob); err != nil {
		return before, after, err
	}
	before = f.k.Make(object.Tree, object.EncodeTree(entries))
	after = f.k.Make(object.Tree, object.EncodeTree([]object.Entry{dir("new", mine.mode, mine.path, mine.blob)}))
	return before, after, nil
}

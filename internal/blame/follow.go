package blame

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/task"
)

// place is a path in a commit.
type place struct {
	node graph.Node
	path string
}

// none stands for no version.
const none int32 = -1

// version is what a commit has at a path.
type version struct {
	place
	names []string // the path's
	trail trail    // until its parents were looked at
	blob  object.ID
	mode  object.Mode

	same     int32   // the version of a parent with the same content, which takes all lines
	from     []int32 // else the versions that take lines, in order
	previous int32   // the first of those, in a parent
	standIn  object.ID
}

// follower follows a file through history as git blame does: a version with the
// content of a parent's is that one; else each parent's version takes its lines in
// turn. Where a parent lacks the path, its version is what was renamed to it.
type follower struct {
	ctx context.Context
	git *gitcmd.Git
	g   *graph.Graph
	k   *task.Task

	versions []version
	known    map[place]int32
	open     []int32 // whose parents are not looked at yet
	made     map[object.ID]int32
}

func newFollower(ctx context.Context, git *gitcmd.Git, g *graph.Graph, k *task.Task) *follower {
	return &follower{ctx: ctx, git: git, g: g, k: k, known: make(map[place]int32), made: make(map[object.ID]int32)}
}

// begin returns the version that is asked about.
func (f *follower) begin(q Query) (int32, error) {
	n, ok := f.g.Node(q.Commit)
	if !ok {
		return none, fmt.Errorf("commit %s is not in the graph", q.Commit)
	}
	found, err := f.find(n, q.Path, strings.Split(q.Path, "/"), nil)
	if err == nil && (!found.exists() || found.mode == object.ModeSubmodule) {
		err = &NotFoundError{q.Path}
	}
	if err != nil {
		return none, err
	}
	return f.add(found), nil
}

// exists reports whether there is a version and not a directory.
func (v *version) exists() bool { return v.mode != 0 && !v.mode.IsDir() }

// kind is what must be the same for a file to be a version of another.
func (v *version) kind() object.Mode { return v.mode &^ 0o777 }

// add returns the number of a version.
func (f *follower) add(v version) int32 {
	i, ok := f.known[v.place]
	if !ok {
		i = int32(len(f.versions))
		f.known[v.place] = i
		v.same, v.previous = none, none
		f.versions = append(f.versions, v)
		f.open = append(f.open, i)
	}
	return i
}

// follow finds the versions that lines may come from.
func (f *follower) follow() error {
	for len(f.open) > 0 {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		if len(f.versions) > maxVersions {
			return &LimitError{fmt.Sprintf("the history has more than %d commits to look at", maxVersions)}
		}
		i := f.open[len(f.open)-1]
		f.open = f.open[:len(f.open)-1]
		if err := f.step(i); err != nil {
			return err
		}
		f.versions[i].trail = nil
	}
	return nil
}

// step finds what the parents of a version's commit have of it. The rules are those
// of git: the path itself in all of them, then renames; a parent with the content
// that one before it has is passed over.
func (f *follower) step(i int32) error {
	mine := f.versions[i]
	parents := f.g.Parents(mine.node)
	theirs := make([]version, len(parents))
	lacking := make([]bool, len(parents))
	take := func(n int, v version) bool {
		if v.blob == mine.blob {
			f.versions[i].same = f.add(v)
			return true
		}
		if !slices.ContainsFunc(theirs[:n], func(o version) bool { return o.exists() && o.blob == v.blob }) {
			theirs[n] = v
		}
		return false
	}
	for n, p := range parents {
		v, err := f.find(p, mine.path, mine.names, mine.trail)
		if err != nil {
			return err
		}
		lacking[n] = !v.exists()
		if v.exists() && v.kind() == mine.kind() && take(n, v) {
			return nil
		}
	}
	for n, p := range parents {
		if !lacking[n] {
			continue
		}
		v, err := f.renamed(&mine, p)
		if err != nil {
			return err
		}
		if v.exists() && take(n, v) {
			return nil
		}
	}
	var from []int32
	for _, v := range theirs {
		if v.exists() {
			from = append(from, f.add(v))
		}
	}
	if f.versions[i].from = from; len(from) > 0 {
		f.versions[i].previous = from[0]
	}
	return nil
}

// trail is what a commit has at each step of a path, the root tree first. It ends
// with the last that exists.
type trail []entry

type entry struct {
	mode object.Mode
	id   object.ID
}

// find returns what a commit has at a path; its mode is 0 where nothing is there.
// From where the trail meets near, that of a commit close by, the two are the same
// and nothing is read.
func (f *follower) find(n graph.Node, path string, names []string, near trail) (version, error) {
	v := version{place: place{n, path}, names: names}
	at := entry{object.ModeDir, f.g.Tree(n)}
	t := make(trail, 0, len(names)+1)
	for i := 0; ; i++ {
		if i < len(near) && near[i] == at {
			t = append(t, near[i:]...)
			break
		}
		t = append(t, at)
		if i == len(names) || !at.mode.IsDir() {
			break
		}
		data, err := f.g.DB().Tree(f.ctx, at.id)
		if err != nil {
			return v, err
		}
		e, ok, err := object.Find(data, names[i])
		if err != nil {
			return v, err
		}
		if !ok {
			break
		}
		at = entry{e.Mode.Canonical(), e.ID}
	}
	v.trail = t
	if len(t) == len(names)+1 {
		v.mode, v.blob = t[len(names)].mode, t[len(names)].id
	}
	return v, nil
}

// final returns the version that all lines of a version come to.
func (f *follower) final(i int32) int32 {
	end := i
	for f.versions[end].same != none {
		end = f.versions[end].same
	}
	for i != end {
		next := f.versions[i].same
		f.versions[i].same = end
		i = next
	}
	return end
}

// standInName is what git knows the file as.
const standInName = "f"

// standIn gives git a history of the versions alone, and returns its newest commit.
func (f *follower) standIn(tip int32) (object.ID, error) {
	var finals []int32
	for i := range f.versions {
		if f.versions[i].same == none {
			finals = append(finals, int32(i))
		}
	}
	slices.SortFunc(finals, func(a, b int32) int {
		return cmp.Compare(f.g.Generation(f.versions[a].node), f.g.Generation(f.versions[b].node))
	})
	for _, i := range finals {
		v := &f.versions[i]
		size, err := f.g.DB().Size(f.ctx, v.blob)
		if err != nil {
			return object.Zero, err
		}
		if size > maxVersion {
			return object.Zero, &LimitError{fmt.Sprintf("an earlier version of the file has %d bytes: more than %d are not blamed", size, maxVersion)}
		}
		if err := f.k.Add(v.blob); err != nil {
			return object.Zero, err
		}
		var parents []object.ID
		for _, p := range v.from {
			if id := f.versions[f.final(p)].standIn; !slices.Contains(parents, id) {
				parents = append(parents, id)
			}
		}
		tree := f.k.Make(object.Tree, object.EncodeTree([]object.Entry{{Mode: object.ModeRegular, Name: []byte(standInName), ID: v.blob}}))
		// Two paths of one commit are two commits here.
		id := f.g.ID(v.node)
		mark := object.Hash(object.Blob, append(id[:], v.path...))
		v.standIn = f.k.StandIn(mark, tree, parents, f.g.Time(v.node))
		f.made[v.standIn] = i
	}
	return f.versions[f.final(tip)].standIn, nil
}

// translate replaces stand-ins by what they stand for.
func (f *follower) translate(lines []Line) {
	for i := range lines {
		l := &lines[i]
		v := &f.versions[f.made[l.Commit]]
		l.Commit, l.Path, l.Previous = f.g.ID(v.node), v.path, object.Zero
		if v.previous != none {
			l.Previous = f.g.ID(f.versions[v.previous].node)
		}
	}
}

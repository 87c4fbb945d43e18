package workspace

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
)

// group is a file with several names.
type group struct {
	paths []string
	renew bool // not all of its names are that one file now

	mu    sync.Mutex
	first *stagedFile
}

// loadLinks reads the table of hard links.
func (r *restore) loadLinks(t *tree.Tree) error {
	if t.Links.Size == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := tree.Copy(r.ctx, r.src.src, t.Links, &b); err != nil {
		return err
	}
	groups, err := tree.DecodeLinks(b.Bytes())
	if err != nil {
		return err
	}
	for _, paths := range groups {
		g := &group{}
		for _, p := range paths {
			root, rel, _ := strings.Cut(p, "/")
			if slices.ContainsFunc(r.roots, func(l *liveRoot) bool { return l.Name == root }) && !r.spared(rel) {
				g.paths = append(g.paths, p)
			}
		}
		if len(g.paths) > 1 {
			for _, p := range g.paths {
				r.groups[p] = g
			}
		}
	}
	return nil
}

// spared reports whether a policy leaves out the file at rel or a parent of it.
func (r *restore) spared(rel string) bool {
	for i := range len(rel) {
		if rel[i] == '/' && r.verdict(rel[:i], true) == ignore.Skip {
			return true
		}
	}
	return r.verdict(rel, false) == ignore.Skip
}

// settleLinks decides on equal files with several names: they stay if their
// names are exactly those of one file of the checkpoint.
func (r *restore) settleLinks() {
	for _, ops := range r.inodes {
		g := ops[0].group
		ok := g == nil && len(ops) == 1 && !ops[0].meta
		if g != nil && len(ops) == len(g.paths) {
			ok = !slices.ContainsFunc(ops, func(o *placing) bool { return o.group != g || o.meta })
		}
		for _, o := range ops {
			if !ok && o.group != nil {
				o.group.renew = true
			}
			o.keep = ok
		}
	}
	for _, ops := range r.inodes {
		for _, o := range ops {
			if o.keep && (o.group == nil || !o.group.renew) {
				continue
			}
			r.need(o.target, &o.entry)
			r.ops = append(r.ops, o)
			r.out.Changed.Add(o.path, "")
			r.list(o.dir)
		}
	}
	r.inodes = nil
}

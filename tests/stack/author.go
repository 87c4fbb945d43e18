package stack

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

// Line is a line of development: where it has come to, and the files there.
type Line struct {
	Tip   object.ID
	Files map[string]object.ID
}

// With returns the line after a commit that put a file.
func (l Line) With(commit object.ID, path, text string) Line {
	files := maps.Clone(l.Files)
	if files == nil {
		files = make(map[string]object.ID)
	}
	files[path] = object.Hash(object.Blob, []byte(text))
	return Line{Tip: commit, Files: files}
}

// Author makes commits, the same ones from the same rng.
type Author struct {
	Rand *rand.Rand
	made int
}

// Text returns size bytes that no other call returned.
func (a *Author) Text(size int) string {
	a.made++
	var b bytes.Buffer
	fmt.Fprintf(&b, "text %d %x\n", a.made, a.Rand.Uint64())
	for b.Len() < size {
		fmt.Fprintf(&b, "%x\n", a.Rand.Uint64())
	}
	return b.String()[:max(size, 1)]
}

// Grow puts n commits upon a line, each with one file of size bytes, and returns
// it with the pack of what is new.
func (a *Author) Grow(l Line, n, size int) (Line, []byte) {
	var b bytes.Buffer
	w := pack.NewWriter(&b, uint32(3*n))
	add := func(t object.Type, data []byte) object.ID {
		if _, err := w.Add(t, data); err != nil {
			panic(err) // memory takes everything
		}
		return object.Hash(t, data)
	}
	for range n {
		text := a.Text(size)
		l = l.With(l.Tip, fmt.Sprintf("file%d", a.Rand.IntN(6)), text)
		add(object.Blob, []byte(text))
		c := &object.CommitData{Tree: add(object.Tree, l.tree()), Author: Someone, Committer: Someone, Message: a.Text(40)}
		if !l.Tip.IsZero() {
			c.Parents = []object.ID{l.Tip}
		}
		data, err := object.EncodeCommit(c)
		if err != nil {
			panic(err)
		}
		l.Tip = add(object.Commit, data)
	}
	if _, err := w.Close(); err != nil {
		panic(err)
	}
	return l, b.Bytes()
}

// Saved returns the line after the commit that Stack.Commit makes.
func (l Line) Saved(path, text string) Line {
	next := l.With(object.Zero, path, text)
	c := &object.CommitData{Tree: object.Hash(object.Tree, next.tree()), Author: Someone, Committer: Someone, Message: "Save " + path}
	if !l.Tip.IsZero() {
		c.Parents = []object.ID{l.Tip}
	}
	data, err := object.EncodeCommit(c)
	if err != nil {
		panic(err)
	}
	next.Tip = object.Hash(object.Commit, data)
	return next
}

// tree is the tree of the line's files.
func (l Line) tree() []byte {
	var entries []object.Entry
	for _, path := range slices.Sorted(maps.Keys(l.Files)) {
		entries = append(entries, object.Entry{Mode: object.ModeRegular, Name: []byte(path), ID: l.Files[path]})
	}
	return object.EncodeTree(entries)
}

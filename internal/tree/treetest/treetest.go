// Package treetest makes trees of objects for tests, as captures make them.
package treetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/tree"
)

// Workspace makes a tree with one root, called "w", of files by path. It returns the
// digest of the root object and all objects, each after those that it names.
func Workspace(files map[string]string) (tree.Digest, []tree.Object) {
	m := maker{files: files}
	top := m.dir("")
	top.Name = "w"
	data, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}})
	must(err)
	return m.put(tree.Root, data), m.objects
}

type maker struct {
	files   map[string]string
	objects []tree.Object
}

func (m *maker) put(kind tree.Kind, data []byte) tree.Digest {
	o := tree.Object{Kind: kind, Digest: tree.Sum(data), Bytes: bytes.Clone(data)}
	m.objects = append(m.objects, o)
	return o.Digest
}

// dir makes the directory of the paths that begin with a prefix.
func (m *maker) dir(prefix string) tree.Entry {
	names := make(map[string]bool)
	for path := range m.files {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	b := tree.Builder{Emit: func(o tree.Object) error {
		m.put(o.Kind, o.Bytes)
		return nil
	}}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e := tree.Entry{Type: tree.File, Mode: 0o644}
		if text, ok := m.files[prefix+name]; ok {
			e.Content = m.file(text)
		} else {
			e = m.dir(prefix + name + "/")
		}
		e.Name = name
		must(b.Add(&e))
	}
	d, paged, sum, err := b.Finish()
	must(err)
	return tree.Entry{Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}
}

// file makes the chunks, and the recipe, of a file.
func (m *maker) file(text string) tree.Content {
	c := tree.Content{Size: uint64(len(text))}
	if text == "" {
		return c
	}
	c.Sum = sha256.Sum256([]byte(text))
	var parts []tree.Part
	must(chunk.Split(strings.NewReader(text), func(b []byte) error {
		parts = append(parts, tree.Part{Length: uint64(len(b)), Digest: m.put(tree.Chunk, b)})
		return nil
	}))
	if c.Digest = parts[0].Digest; len(parts) == 1 {
		return c
	}
	recipe, err := tree.EncodeRecipe(parts)
	must(err)
	c.Digest, c.Chunked = m.put(tree.Recipe, recipe), true
	return c
}

// must panics where a test asks for a tree that nobody can make.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("make a tree: %v", err))
	}
}

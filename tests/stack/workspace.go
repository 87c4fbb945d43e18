package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
)

// rootName is the name that checkpoints know a Workspace by.
const rootName = "w"

// Workspace is what a checkpoint holds: the content of each file, by its path.
type Workspace map[string]string

// Objects returns the root object's digest, and the objects of the checkpoint that
// a capture of the workspace makes.
func (w Workspace) Objects() (root tree.Digest, objects []tree.Object, err error) {
	emit := func(o tree.Object) error {
		o.Bytes = bytes.Clone(o.Bytes)
		objects = append(objects, o)
		return nil
	}
	top, err := w.directory("", emit)
	if err != nil {
		return root, nil, err
	}
	top.Name = rootName
	data, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}})
	if err != nil {
		return root, nil, err
	}
	root = tree.Sum(data)
	return root, objects, emit(tree.Object{Kind: tree.Root, Digest: root, Bytes: data})
}

// directory makes the entry of what lies beneath a prefix.
func (w Workspace) directory(prefix string, emit func(tree.Object) error) (tree.Entry, error) {
	names := make(map[string]bool)
	for path := range w {
		if rest, ok := strings.CutPrefix(path, prefix); ok {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	b := tree.Builder{Emit: emit}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e := tree.Entry{Type: tree.File, Mode: 0o644}
		var err error
		if text, ok := w[prefix+name]; ok {
			e.Content, err = contentOf(text, emit)
		} else {
			e, err = w.directory(prefix+name+"/", emit)
		}
		e.Name = name
		if err = errors.Join(err, b.Add(&e)); err != nil {
			return e, err
		}
	}
	d, paged, sum, err := b.Finish()
	return tree.Entry{Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}, err
}

func contentOf(text string, emit func(tree.Object) error) (tree.Content, error) {
	c := tree.Content{Size: uint64(len(text))}
	if text == "" {
		return c, nil
	}
	c.Sum = tree.Sum([]byte(text))
	c.Digest = c.Sum
	var parts []tree.Part
	err := chunk.Split(strings.NewReader(text), func(b []byte) error {
		o := tree.Object{Kind: tree.Chunk, Digest: tree.Sum(b), Bytes: b}
		parts = append(parts, tree.Part{Length: uint64(len(b)), Digest: o.Digest})
		return emit(o)
	})
	if err != nil || len(parts) < 2 {
		return c, err
	}
	recipe, err := tree.EncodeRecipe(parts)
	if err != nil {
		return c, err
	}
	c.Digest, c.Chunked = tree.Sum(recipe), true
	return c, emit(tree.Object{Kind: tree.Recipe, Digest: c.Digest, Bytes: recipe})
}

// ReadWorkspace reads all of what a root object names, each object against its
// digest and each file against its sum.
func ReadWorkspace(ctx context.Context, src tree.Source, root tree.Digest) (Workspace, error) {
	b, err := tree.FetchOne(ctx, src, root)
	if err != nil {
		return nil, err
	}
	t, err := tree.DecodeRoot(b)
	if err != nil {
		return nil, err
	}
	w := make(Workspace)
	files := make(map[string]tree.Content)
	var nodes []tree.Node
	for i := range t.Roots {
		nodes = append(nodes, tree.NodeOf("", &t.Roots[i]))
	}
	err = tree.Walk(ctx, src, nodes, func(dir tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
		for i := range entries {
			e := &entries[i]
			switch e.Type {
			case tree.File:
				files[strings.TrimPrefix(dir.Path+"/"+e.Name, "/")] = e.Content
			case tree.Directory:
				descend(e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for path, c := range files {
		var text bytes.Buffer
		if err := tree.Copy(ctx, src, c, &text); err != nil {
			return nil, fmt.Errorf("file %q: %w", path, err)
		}
		w[path] = text.String()
	}
	return w, nil
}

// Caller is who asks for changes of threads.
var Caller = checkpoint.Caller{Org: Org, AllThreads: true, Subject: "tester", Route: "test"}

// Send sends those of objects that a thread misses, as a client does before an
// append, in an upload of its own.
func (s *Stack) Send(ctx context.Context, thread, upload string, objects []tree.Object) error {
	digests := make([]tree.Digest, len(objects))
	for i := range objects {
		digests[i] = objects[i].Digest
	}
	missing, err := s.Checkpoints.Missing(ctx, Org, thread, upload, digests)
	if err != nil || len(missing) == 0 {
		return err
	}
	want := make(map[tree.Digest]bool, len(missing))
	for _, d := range missing {
		want[d] = true
	}
	var stream []byte
	for _, o := range objects {
		if want[o.Digest] {
			want[o.Digest] = false
			stream = frame.Append(stream, o)
		}
	}
	_, err = s.Checkpoints.Receive(ctx, Caller, thread, upload, bytes.NewReader(stream))
	return err
}

// Capture sends a workspace and appends it. What a sweep has taken meanwhile is sent
// again.
func (s *Stack) Capture(ctx context.Context, w Workspace, n checkpoint.NewCheckpoint) (checkpoint.Appended, error) {
	root, objects, err := w.Objects()
	if err != nil {
		return checkpoint.Appended{}, err
	}
	n.Root, n.Always = root, true
	if n.Upload == "" {
		n.Upload = checkpoint.NewID()
	}
	for try := 0; ; try++ {
		done, err := checkpoint.Appended{}, s.Send(ctx, n.Thread, n.Upload, objects)
		if err == nil {
			done, err = s.Checkpoints.Append(ctx, Caller, n)
		}
		if try == tries || !Again(err) {
			return done, err
		}
	}
}

// tries is how often a client sends again what sweeps took.
const tries = 50

// Again reports whether an error asks to send objects again.
func Again(err error) bool {
	var gone *tree.MissingError
	refused, ok := errors.AsType[*checkpoint.Error](err)
	return ok && refused.Code == checkpoint.MissingObjects || errors.As(err, &gone) || errors.Is(err, content.ErrAgain)
}

// Files reads all of a checkpoint.
func (s *Stack) Files(ctx context.Context, id string) (Workspace, error) {
	c, err := s.Checkpoints.Checkpoint(ctx, Org, id)
	if err != nil {
		return nil, err
	}
	root, ok := c.RootDigest()
	if !ok {
		return nil, fmt.Errorf("checkpoint %q has no root", id)
	}
	w, err := ReadWorkspace(ctx, s.Checkpoints.Source(Org), root)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", id, err)
	}
	return w, nil
}

package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/tree/treetest"
)

// Workspace is what a checkpoint holds: the content of each file, by its path.
type Workspace map[string]string

// Objects returns the root object's digest, and the objects of the checkpoint that
// a capture of the workspace makes.
func (w Workspace) Objects() (root tree.Digest, objects []tree.Object) { return treetest.Workspace(w) }

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
	root, objects := w.Objects()
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

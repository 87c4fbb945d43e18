package service

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/tree"
)

// FromCommit stores the files of a commit of a repository as objects of a thread,
// under an upload, and returns the root object and where it comes from. A submodule
// becomes an empty directory, as in a checkout; times are those of the commit.
func (s *Service) FromCommit(ctx context.Context, in *Access, thread *Access, rev string, ephemeral bool, root, upload string) (tree.Digest, *checkpoint.Git, error) {
	if tree.CheckName(root) != nil {
		return tree.Digest{}, nil, Refuse(Invalid, "a checkpoint can have no root named %.200q", root)
	}
	v, err := s.View(ctx, in)
	if err != nil {
		return tree.Digest{}, nil, err
	}
	at, err := v.Resolve(ctx, rev, ephemeral)
	if err != nil {
		return tree.Digest{}, nil, err
	}
	data, err := v.Commit(ctx, at.ID)
	if err != nil {
		return tree.Digest{}, nil, err
	}
	git := &checkpoint.Git{Repo: in.Repo.Name, Commit: at.ID.String()}
	if name, ok := refname.SplitEphemeral(at.Ref); ok {
		git.Branch, _ = strings.CutPrefix(name, refname.Branch(""))
	} else if name, ok := strings.CutPrefix(at.Ref, refname.Branch("")); ok {
		git.Branch = name
	}
	var d tree.Digest
	err = s.Checkpoints.Store(ctx, thread.Org.ID, thread.Thread, upload, func(put func(tree.Object) error) (err error) {
		i := importing{ctx: ctx, view: v, put: put, when: tree.Time{Sec: data.Committer.When}}
		d, err = i.root(root, data.Tree)
		return err
	})
	return d, git, ThreadError(err)
}

// importing makes a tree of objects of a tree of Git.
type importing struct {
	ctx     context.Context
	view    *repo.View
	put     func(tree.Object) error
	when    tree.Time
	modules bool // it has a path named node_modules
	env     bool // it has a path that begins with .env
}

func (i *importing) root(name string, id object.ID) (tree.Digest, error) {
	top, err := i.dir(id, 0)
	if err != nil {
		return tree.Digest{}, err
	}
	top.Name = name
	// The policy spares what the default one does, but for what the commit has.
	rules := ".git\n"
	if !i.modules {
		rules += "node_modules\n"
	}
	if !i.env {
		rules += ".env*\n"
	}
	p, err := ignore.Policy{Base: ignore.Rules, Rules: rules}.Encode()
	if err != nil {
		return tree.Digest{}, err
	}
	b, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}, Policy: p})
	if err != nil {
		return tree.Digest{}, err
	}
	o := tree.Object{Kind: tree.Root, Digest: tree.Sum(b), Bytes: b}
	return o.Digest, i.put(o)
}

// dir makes the objects of a directory and returns its entry, without a name.
func (i *importing) dir(id object.ID, depth int) (tree.Entry, error) {
	if depth >= graph.MaxTreeDepth {
		return tree.Entry{}, Refuse(Invalid, "the commit has more than %d directories within each other", graph.MaxTreeDepth)
	}
	var list []object.Entry
	if !id.IsZero() {
		var err error
		if list, err = i.view.Tree(i.ctx, id); err != nil {
			return tree.Entry{}, err
		}
	}
	entries := make([]tree.Entry, 0, len(list))
	for _, at := range list {
		name := string(at.Name)
		i.modules = i.modules || name == "node_modules"
		i.env = i.env || strings.HasPrefix(name, ".env")
		e, err := i.entry(&at, depth)
		if err != nil {
			return tree.Entry{}, err
		}
		e.Name = name
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b tree.Entry) int { return strings.Compare(a.Name, b.Name) })
	b := tree.Builder{Emit: i.put}
	for n := range entries {
		if err := b.Add(&entries[n]); err != nil {
			return tree.Entry{}, err
		}
	}
	d, paged, sum, err := b.Finish()
	return tree.Entry{Type: tree.Directory, Mode: 0o755, Mtime: i.when, Dir: d, Paged: paged, Summary: sum}, err
}

func (i *importing) entry(at *object.Entry, depth int) (tree.Entry, error) {
	switch mode := at.Mode.Canonical(); mode {
	case object.ModeSubmodule:
		return i.dir(object.Zero, depth+1)
	case object.ModeSymlink:
		target, err := i.link(at.ID)
		return tree.Entry{Type: tree.Symlink, Mode: 0o777, Mtime: i.when, Target: target}, err
	default:
		if mode.IsDir() {
			return i.dir(at.ID, depth+1)
		}
		e := tree.Entry{Type: tree.File, Mode: 0o644, Mtime: i.when}
		if mode == object.ModeExecutable {
			e.Mode = 0o755
		}
		var err error
		e.Content, err = i.file(at.ID)
		return e, err
	}
}

func (i *importing) link(id object.ID) (string, error) {
	_, r, err := i.view.Blob(i.ctx, id)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, tree.MaxTarget+1))
	return string(b), err
}

// file makes the chunks, and the recipe, of a blob.
func (i *importing) file(id object.ID) (tree.Content, error) {
	size, r, err := i.view.Blob(i.ctx, id)
	if err != nil || size == 0 {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
		return tree.Content{}, err
	}
	defer r.Close()
	whole := sha256.New()
	var parts []tree.Part
	err = chunk.Split(io.TeeReader(r, whole), func(b []byte) error {
		o := tree.Object{Kind: tree.Chunk, Digest: tree.Sum(b), Bytes: b}
		parts = append(parts, tree.Part{Length: uint64(len(b)), Digest: o.Digest})
		return i.put(o)
	})
	if err != nil {
		return tree.Content{}, err
	}
	c := tree.Content{Size: uint64(size), Sum: tree.Digest(whole.Sum(nil))}
	if len(parts) == 1 {
		c.Digest = parts[0].Digest
		return c, nil
	}
	b, err := tree.EncodeRecipe(parts)
	if err != nil {
		return tree.Content{}, err
	}
	o := tree.Object{Kind: tree.Recipe, Digest: tree.Sum(b), Bytes: b}
	c.Digest, c.Chunked = o.Digest, true
	return c, i.put(o)
}

package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/tree"
)

// Bounds of the files that a promotion looks at, and of the bytes of their paths.
const (
	maxPromoted      = 150_000
	maxPromotedPaths = 64 << 20
)

// Promotion asks for a commit of the files of a checkpoint.
type Promotion struct {
	Root   string // the name of the root; "" where there is one
	Commit repo.CommitRequest
	// Record makes the row that is kept for the request's idempotency key; nil keeps
	// none.
	Record func(Promoted) *meta.Idempotency
}

// Promoted is a promotion that was done.
type Promoted struct {
	repo.CommitResult
	// Skipped are paths of the checkpoint that the commit does not have: files with
	// the zeros of a secret, what lies in a submodule, names that Git does not allow,
	// directories whose paths are too long for what lies in them.
	Skipped []string
}

// Promote makes a commit whose tree is that of a checkpoint, on a branch of the
// repository of an Access. What the checkpoint's policy left out of the capture
// stays as the branch has it. Without an expected commit it is made anew when the
// branch moves meanwhile.
func (s *Service) Promote(ctx context.Context, a *Access, c *checkpoint.Checkpoint, p Promotion) (Promoted, error) {
	const attempts = 5
	for n := 1; ; n++ {
		v, err := s.View(ctx, a)
		if err != nil {
			return Promoted{}, err
		}
		done, err := s.promote(ctx, a, v, c, p)
		if stale := is[*repo.StaleError](err); !stale || p.Commit.Expected != nil || n == attempts {
			return done, err
		}
		if a.Repo, err = s.Meta.Repo(ctx, a.Repo.ID); err != nil {
			return Promoted{}, fmt.Errorf("read repository: %w", err)
		}
	}
}

// promotion is one attempt.
type promotion struct {
	ctx      context.Context
	src      tree.Source
	contents *repo.Contents
	base     map[string]repo.Entry // files of the branch, by path
	edits    []repo.FileEdit
	paths    []string        // the keys of base, in order
	module   string          // the submodule of the branch that the walk is in, and a slash
	there    map[string]bool // paths that the checkpoint has
	skipped  []string
	count    int // entries that were walked
}

func (s *Service) promote(ctx context.Context, a *Access, v *repo.View, c *checkpoint.Checkpoint, p Promotion) (Promoted, error) {
	root, prefix, match, err := s.promotedRoot(ctx, a, c, p.Root)
	if err != nil {
		return Promoted{}, err
	}
	req := p.Commit
	pr := promotion{ctx: ctx, src: s.Checkpoints.Source(a.Org.ID), base: make(map[string]repo.Entry), there: make(map[string]bool)}
	if err := pr.readBase(v, &req); err != nil {
		return Promoted{}, err
	}
	pr.contents = s.Engine.NewContents(ctx, a.Writer("POST promote"), a.Repo)
	defer pr.contents.Close()
	err = s.Checkpoints.Walk(ctx, a.Org.ID, c, root, "", func(path string, e *tree.Entry) error {
		return pr.add(strings.TrimPrefix(path, prefix), e)
	})
	if err != nil {
		return Promoted{}, ThreadError(err)
	}
	left := leftOut{match: match}
	for _, path := range pr.paths {
		if !pr.there[path] && pr.base[path].Mode != object.ModeSubmodule && !left.out(path) {
			pr.edits = append(pr.edits, repo.FileEdit{Path: path, Delete: true})
		}
	}
	// What makes way for something else goes first.
	slices.SortStableFunc(pr.edits, func(x, y repo.FileEdit) int {
		switch {
		case x.Delete == y.Delete:
			return 0
		case x.Delete:
			return -1
		}
		return 1
	})
	req.Files, req.Contents = pr.edits, pr.contents
	if p.Record != nil {
		req.Record = func(res repo.CommitResult) *meta.Idempotency {
			return p.Record(Promoted{CommitResult: res, Skipped: pr.skipped})
		}
	}
	res, err := s.Engine.Commit(ctx, a.Writer("POST promote"), v, req)
	return Promoted{CommitResult: res, Skipped: pr.skipped}, err
}

// promotedRoot returns the path of the root to commit, what its paths begin with,
// and the policy that chose them.
func (s *Service) promotedRoot(ctx context.Context, a *Access, c *checkpoint.Checkpoint, name string) (root, prefix string, match *ignore.Matcher, err error) {
	if c.Kind == checkpoint.Manifest {
		if c.External {
			return "", "", nil, Refuse(Conflict, "the bytes of the checkpoint's files are kept by the application: they cannot be committed here")
		}
		match, err = ignore.Compile(ignore.Policy{Base: ignore.Default})
		return "", "", match, err
	}
	t, err := s.Checkpoints.Tree(ctx, a.Org.ID, c)
	if err != nil {
		return "", "", nil, err
	}
	if name == "" && len(t.Roots) > 1 {
		return "", "", nil, Refuse(Invalid, "the checkpoint has %d roots: name the one to commit", len(t.Roots))
	}
	if name == "" {
		name = t.Roots[0].Name
	}
	if !slices.ContainsFunc(t.Roots, func(e tree.Entry) bool { return e.Name == name }) {
		return "", "", nil, Refuse(NotFound, "the checkpoint has no root %.200q", name)
	}
	p := ignore.Policy{Base: ignore.Default}
	if stored, err := ignore.Decode(t.Policy); err == nil {
		p = stored // one that is not understood here spares what the default one does
	}
	match, err = ignore.Compile(p)
	return name, name + "/", match, err
}

// leftOut tells which files a policy leaves out, asking once for each directory where
// paths come in order.
type leftOut struct {
	match *ignore.Matcher
	dirs  []leftOutDir // of the last path, down to the first that is left out
}

type leftOutDir struct {
	path string // with a slash
	out  bool
}

func (l *leftOut) out(path string) bool {
	n := 0
	for n < len(l.dirs) && strings.HasPrefix(path, l.dirs[n].path) {
		n++
	}
	at := 0
	if l.dirs = l.dirs[:n]; n > 0 {
		if l.dirs[n-1].out {
			return true
		}
		at = len(l.dirs[n-1].path)
	}
	for {
		i := strings.IndexByte(path[at:], '/')
		if i < 0 {
			return l.match.Verdict(path, false) == ignore.Skip
		}
		at += i + 1
		d := leftOutDir{path[:at], l.match.Verdict(path[:at-1], true) == ignore.Skip}
		if l.dirs = append(l.dirs, d); d.out {
			return true
		}
	}
}

// readBase reads the files that the branch has, and expects it to stay there.
func (p *promotion) readBase(v *repo.View, req *repo.CommitRequest) error {
	tip, ok, err := v.Ref(p.ctx, StoredBranch(req.TargetBranch, req.TargetEphemeral))
	if err != nil {
		return err
	}
	if ok {
		req.BaseBranch = ""
	} else {
		if req.BaseBranch == "" {
			req.BaseBranch = v.Repo().DefaultBranch
		}
		if tip, ok, err = v.Ref(p.ctx, StoredBranch(req.BaseBranch, req.BaseEphemeral)); err != nil {
			return err
		}
	}
	if !ok {
		req.BaseBranch = "" // the first commit, or a base that is not there: Commit says so
		return nil
	}
	if req.Expected == nil {
		req.Expected = &tip.ID
	}
	page, err := v.Files(p.ctx, repo.FilesQuery{Commit: tip.ID, Recursive: true, Limit: maxPromoted, Bytes: maxPromotedPaths})
	if err != nil {
		return err
	}
	if page.Next != "" {
		return Refuse(TooLarge, "the branch has more than %d files, or paths of more than %d bytes", maxPromoted, maxPromotedPaths)
	}
	for _, e := range page.Entries {
		p.base[e.Path] = e
		p.paths = append(p.paths, e.Path)
	}
	return nil
}

// add takes an entry of the checkpoint.
func (p *promotion) add(path string, e *tree.Entry) error {
	if p.count++; p.count > 2*maxPromoted {
		return Refuse(TooLarge, "the checkpoint has more than %d files and directories", 2*maxPromoted)
	}
	if e.Type == tree.Directory {
		return p.directory(path, e)
	}
	if p.module != "" && strings.HasPrefix(path, p.module) || object.CheckPath(path) != nil {
		p.skip(path)
		return nil
	}
	if len(e.Redactions) > 0 {
		// What was there stays: zeros are not what the file holds.
		p.there[path] = true
		p.skip(path)
		return nil
	}
	p.there[path] = true
	mode := object.ModeRegular
	switch {
	case e.Type == tree.Symlink:
		mode = object.ModeSymlink
	case e.Mode&0o100 != 0:
		mode = object.ModeExecutable
	}
	if had, ok := p.base[path]; ok && had.Mode == mode {
		size := int64(e.Content.Size)
		if mode == object.ModeSymlink {
			size = int64(len(e.Target))
		}
		h := object.NewHasher(object.Blob, size)
		if err := p.copy(e, h); err != nil {
			return err
		}
		if id, err := h.Sum(); err != nil || id == had.ID {
			return err
		}
	}
	content := p.contents.New()
	if err := p.copy(e, content); err != nil {
		return err
	}
	if err := content.Close(); err != nil {
		return err
	}
	p.edits = append(p.edits, repo.FileEdit{Path: path, Mode: mode, Content: content})
	return nil
}

const maxSkipped = 1000

func (p *promotion) skip(path string) {
	if len(p.skipped) < maxSkipped {
		p.skipped = append(p.skipped, strings.ToValidUTF8(path, "\ufffd"))
	}
}

// directory notes where the walk goes: what Git has no paths for is not walked.
func (p *promotion) directory(path string, e *tree.Entry) error {
	if p.base[path].Mode == object.ModeSubmodule {
		p.module = path + "/"
	}
	if len(path)+2 <= object.MaxPath || e.Summary.Entries == 0 {
		return nil
	}
	p.skip(path)
	return tree.ErrSkip
}

func (p *promotion) copy(e *tree.Entry, w io.Writer) error {
	if e.Type == tree.Symlink {
		_, err := io.WriteString(w, e.Target)
		return err
	}
	if e.Content.Size == 0 {
		return nil
	}
	err := tree.Copy(p.ctx, p.src, e.Content, w)
	if missing := is[*tree.MissingError](err); missing {
		return errors.New("a chunk of a promoted file is missing")
	}
	return err
}

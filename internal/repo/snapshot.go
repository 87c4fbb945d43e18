package repo

import (
	"context"
	"errors"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// SnapshotRequest asks for a repository with one commit that holds the tree of a
// commit of another repository, and none of its history.
type SnapshotRequest struct {
	CreateRequest
	Revision string // of the source
	Author   object.Signature
	Message  string
}

// Snapshot makes a repository, of the source's org, with one root commit. It
// lists the source's packs, so that nothing is copied; what they hold besides the
// tree is reached by no ref, so nobody can read it there. Refusals are those of
// Fork and *InvalidError.
func (e *Engine) Snapshot(ctx context.Context, w Writer, source *View, req SnapshotRequest) (meta.Repo, error) {
	if strings.TrimSpace(req.Message) == "" {
		return meta.Repo{}, invalid("the commit message is empty")
	}
	if req.Revision == "" {
		return meta.Repo{}, invalid("a snapshot needs the revision to take")
	}
	for range maxAttempts {
		s, err := e.row(ctx, source.Repo().ID)
		if err != nil {
			return meta.Repo{}, err
		}
		if source, err = e.View(ctx, s); err != nil {
			return meta.Repo{}, err
		}
		r, err := e.snapshot(ctx, w, source, s, req)
		if !errors.Is(err, errSourceMoved) {
			return r, err
		}
	}
	return meta.Repo{}, &ConflictError{Ref: "HEAD"}
}

// snapshot makes the repository upon one version of the source.
func (e *Engine) snapshot(ctx context.Context, w Writer, source *View, s meta.Repo, req SnapshotRequest) (meta.Repo, error) {
	r, err := e.newRepo(w, req.CreateRequest, DefaultBranch)
	if err != nil {
		return meta.Repo{}, err
	}
	branch := refname.Branch(r.DefaultBranch)
	if err := policy.Decide(w.Policies, nil, policy.Update{Ref: branch, Kind: policy.Create}); err != nil {
		return meta.Repo{}, err
	}
	from, err := source.Resolve(ctx, req.Revision, false)
	if err != nil {
		return meta.Repo{}, err
	}
	db, err := source.DB(ctx)
	if err != nil {
		return meta.Repo{}, err
	}
	tree, err := treeOf(ctx, db, from.ID)
	if err != nil {
		return meta.Repo{}, err
	}
	b := &built{tree: tree}
	if err := e.encode(ctx, w, b, object.CommitData{Author: req.Author, Committer: req.Author, Message: req.Message}); err != nil {
		return meta.Repo{}, err
	}
	if err := e.checkSnapshot(ctx, w, branch, b); err != nil {
		return meta.Repo{}, err
	}
	f, err := (&commit{engine: e, space: e.space(w, 0)}).pack(db, true, b)
	defer f.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	if err != nil {
		return meta.Repo{}, err
	}
	f.exact = false // the tree is not in it
	row, err := f.finish(ctx, source, b.commit())
	if err != nil {
		return meta.Repo{}, err
	}
	r.Source, r.PackSet = s.ID, s.PackSet
	made, err := e.create(ctx, w, req.CreateRequest, meta.Change{
		CreateRepo: &r, SourcePackSet: s.PackSet, AddPack: row, Reservation: f.file.Reservation(), Refs: []meta.RefWrite{{Name: branch, New: b.id}},
	})
	if !errors.Is(err, errSourceMoved) {
		f.file.Leave() // its bytes may be visible; if not, they are swept
	}
	return made, err
}

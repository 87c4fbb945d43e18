package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// DefaultBranch is the default branch of a repository for which none is named.
const DefaultBranch = "main"

// CreateRequest asks for a new repository.
type CreateRequest struct {
	Name string // checked by the caller
	// DefaultBranch is a short name; "" means DefaultBranch, or the source's for
	// a fork.
	DefaultBranch string
	// Upstream, when set, is what the repository follows from its first sync on,
	// which is asked for with it.
	Upstream *meta.Upstream
	Sync     *meta.Sync
}

// Create makes an empty repository. Refusals are *ExistsError, *InvalidError,
// *SupersededError, *GoneError (of the org) and *ReplayError.
func (e *Engine) Create(ctx context.Context, w Writer, req CreateRequest) (meta.Repo, error) {
	r, err := e.newRepo(w, req, DefaultBranch)
	if err != nil {
		return meta.Repo{}, err
	}
	r.Tidy = true
	c := meta.Change{CreateRepo: &r}
	if req.Upstream != nil {
		r.Following = meta.Importing
		c.Follow = &meta.FollowChange{PutUpstream: req.Upstream, AddSync: req.Sync}
	}
	return e.create(ctx, w, req, c)
}

// newRepo returns the row of a new repository.
func (e *Engine) newRepo(w Writer, req CreateRequest, branch string) (meta.Repo, error) {
	if req.DefaultBranch != "" {
		branch = req.DefaultBranch
	}
	if _, err := branchName(branch, false); err != nil {
		return meta.Repo{}, err
	}
	now := e.cfg.Clock()
	return meta.Repo{ID: meta.RepoID(meta.NewID(now)), Org: w.Org, Name: req.Name, DefaultBranch: branch, CreatedAt: now}, nil
}

// create applies a Change that makes a repository.
func (e *Engine) create(ctx context.Context, w Writer, req CreateRequest, c meta.Change) (meta.Repo, error) {
	c.Org, c.Repo, c.Token, c.Route, c.Subject, c.Agent = w.Org, c.CreateRepo.ID, w.Token, w.Route, w.Subject, w.Agent
	c.Idempotency = w.Idempotency
	if w.Created != nil {
		c.Idempotency = w.Created(*c.CreateRepo)
	}
	verdict, err := e.cfg.Meta.Apply(ctx, c)
	if err != nil {
		return meta.Repo{}, fmt.Errorf("create repository: %w", err)
	}
	if verdict.Applied {
		r := *c.CreateRepo
		r.Version = verdict.Version
		return r, nil
	}
	switch verdict.Conflict.Kind {
	case meta.ConflictName:
		return meta.Repo{}, &ExistsError{What: "repository", Name: req.Name}
	case meta.ConflictDeleted:
		return meta.Repo{}, &ExistsError{What: "repository", Name: req.Name, Deleted: true}
	case meta.ConflictSource:
		return meta.Repo{}, errSourceMoved
	}
	return meta.Repo{}, refusal(c, verdict.Conflict)
}

// errSourceMoved says that a fork's source got other packs meanwhile.
var errSourceMoved = errors.New("source of the fork moved")

// ForkRequest asks for a repository that begins as a copy of another.
type ForkRequest struct {
	CreateRequest
	// Revision, when set, is the one commit that the fork gets, as its default
	// branch. Otherwise it gets all branches and tags.
	Revision string
}

// Fork makes a repository that shares the packs of a source, of the same org,
// and has its branches and tags, or one branch. Ephemeral refs, notes and
// protection rules stay behind. Refusals are those of Create, *NotFoundError for
// the revision, *policy.DeniedError, and *GoneError when the source is deleted.
func (e *Engine) Fork(ctx context.Context, w Writer, source *View, req ForkRequest) (meta.Repo, error) {
	for n := range maxAttempts {
		r, err := e.newRepo(w, req.CreateRequest, source.Repo().DefaultBranch)
		if err != nil {
			return meta.Repo{}, err
		}
		s := source.Repo()
		if n > 0 || s.PackSet < 0 { // it moved, or its set was not read
			if s, err = e.row(ctx, s.ID); err != nil {
				return meta.Repo{}, err
			}
			if source, err = e.View(ctx, s); err != nil {
				return meta.Repo{}, err
			}
		}
		refs, all, err := forkRefs(ctx, source, r.DefaultBranch, req.Revision)
		if err != nil {
			return meta.Repo{}, err
		}
		for _, ref := range refs {
			if err := policy.Decide(w.Policies, nil, policy.Update{Ref: ref.Name, Kind: policy.Create}); err != nil {
				return meta.Repo{}, err
			}
		}
		if err := e.checkFork(ctx, w, source, refs); err != nil {
			return meta.Repo{}, err
		}
		r.Source, r.PackSet = s.ID, s.PackSet
		r.Tidy = s.PackSet == 0 || (all && s.Tidy)
		r, err = e.create(ctx, w, req.CreateRequest, meta.Change{CreateRepo: &r, SourcePackSet: s.PackSet, Refs: refs})
		if !errors.Is(err, errSourceMoved) {
			return r, err
		}
	}
	return meta.Repo{}, &ConflictError{Ref: "HEAD"}
}

// forkRefs returns the refs that a fork begins with, and whether they are all
// that the source has.
func forkRefs(ctx context.Context, source *View, branch, revision string) (refs []meta.RefWrite, all bool, err error) {
	if revision != "" {
		res, err := source.Resolve(ctx, revision, false)
		if err != nil {
			return nil, false, err
		}
		return []meta.RefWrite{{Name: refname.Branch(branch), New: res.ID}}, false, nil
	}
	all = true
	err = source.Refs(ctx, "", func(ref meta.Ref) error {
		if strings.HasPrefix(ref.Name, refname.HeadsPrefix) || strings.HasPrefix(ref.Name, refname.TagsPrefix) {
			refs = append(refs, meta.RefWrite{Name: ref.Name, New: ref.ID, Peeled: ref.Peeled})
		} else {
			all = false
		}
		return nil
	})
	return refs, all, err
}

// Delete makes a repository disappear at once; its name stays taken. Refusals
// are *DeletedError, *GoneError and *SupersededError.
func (e *Engine) Delete(ctx context.Context, w Writer, r meta.Repo) error {
	return e.change(ctx, w, r, meta.Change{DeleteRepo: true})
}

// Purge removes what is left of a deleted repository and frees its name; bytes
// that no fork uses go with the next sweeps.
func (e *Engine) Purge(ctx context.Context, w Writer, r meta.Repo) error {
	return e.change(ctx, w, r, meta.Change{PurgeRepo: true})
}

// SetDefaultBranch makes a branch the default one. It must exist, unless the
// repository has no branches: then *NotFoundError.
func (e *Engine) SetDefaultBranch(ctx context.Context, w Writer, v *View, short string) error {
	full, err := branchName(short, false)
	if err != nil {
		return err
	}
	for range maxAttempts {
		c := meta.Change{SetDefaultBranch: short}
		if tip := v.valueOf(full); !tip.IsZero() {
			c.Refs = []meta.RefWrite{{Name: full, Old: tip, VerifyOnly: true}}
		} else if v.hasBranches() {
			return &NotFoundError{What: "branch", Name: clip(short)}
		}
		err := e.change(ctx, w, v.Repo(), c)
		var stale *StaleError
		if !errors.As(err, &stale) {
			return err
		}
		// It moved, which is none of this change's business, or went.
		if v, err = e.renew(ctx, v); err != nil {
			return err
		}
	}
	return &ConflictError{Ref: full}
}

// SetProtections replaces the protection rules of a repository.
func (e *Engine) SetProtections(ctx context.Context, w Writer, r meta.Repo, rules []policy.Protection) error {
	rows := make([]meta.Protection, len(rules))
	for i, rule := range rules {
		rows[i].Pattern = rule.Pattern
		for _, op := range rule.Ops {
			rows[i].Ops = append(rows[i].Ops, string(op))
		}
	}
	return e.change(ctx, w, r, meta.Change{SetProtections: &rows})
}

// Protections returns the protection rules of a repository at its version.
func (e *Engine) Protections(ctx context.Context, r meta.Repo) ([]policy.Protection, error) {
	return e.rules.of(ctx, e.cfg.Meta, r)
}

// Follow changes a repository's upstream, credential or syncs. Refusals are
// *ExistsError and *NotFoundError for a credential, *NoUpstreamError,
// *SyncBusyError, ErrSyncLost, *GoneError and *SupersededError.
func (e *Engine) Follow(ctx context.Context, w Writer, r meta.Repo, f meta.FollowChange, events ...meta.Event) error {
	return e.change(ctx, w, r, meta.Change{Follow: &f, Events: events})
}

// change applies a Change of a repository as a whole.
func (e *Engine) change(ctx context.Context, w Writer, r meta.Repo, c meta.Change) error {
	c.Org, c.Repo, c.Token, c.Route, c.Subject, c.Agent, c.Idempotency = r.Org, r.ID, w.Token, w.Route, w.Subject, w.Agent, w.Idempotency
	verdict, err := e.cfg.Meta.Apply(ctx, c)
	if err != nil {
		return fmt.Errorf("change repository: %w", err)
	}
	if !verdict.Applied {
		switch verdict.Conflict.Kind {
		case meta.ConflictDeleted:
			return &DeletedError{Name: r.Name}
		case meta.ConflictNotDeleted:
			return &NotDeletedError{Name: r.Name}
		}
		return refusal(c, verdict.Conflict)
	}
	e.rules.applied(r.ID, verdict.Version, c.SetProtections != nil)
	return nil
}

// BranchRequest asks for a branch at a commit.
type BranchRequest struct {
	Target          string // short name
	TargetEphemeral bool
	Base            string // any revision
	BaseEphemeral   bool
	// Force moves a branch that exists already.
	Force bool
	// Record, when set, makes the row that is kept for the request's
	// idempotency key.
	Record func(commit object.ID) *meta.Idempotency
}

// CreateBranch makes a branch, in either namespace from either, and returns its
// commit. Refusals are those of Update, *NotFoundError for the base, and
// *ExistsError.
func (e *Engine) CreateBranch(ctx context.Context, w Writer, v *View, req BranchRequest) (object.ID, error) {
	full, err := branchName(req.Target, req.TargetEphemeral)
	if err != nil {
		return object.Zero, err
	}
	base, err := v.Resolve(ctx, req.Base, req.BaseEphemeral)
	if err != nil {
		return object.Zero, err
	}
	if !v.valueOf(full).IsZero() {
		switch {
		case !req.Force:
			return object.Zero, &ExistsError{What: "branch", Name: req.Target}
		case full == refname.Branch(v.Repo().DefaultBranch):
			return object.Zero, &DefaultBranchError{Branch: req.Target, Replaced: true}
		}
	}
	u := Update{Refs: []RefUpdate{{Name: full, AnyOld: req.Force, New: base.ID}}, toMove: !req.Force}
	if req.Record != nil {
		u.Idempotency = req.Record(base.ID)
	}
	out, err := e.Update(ctx, w, v, u)
	var stale *StaleError
	if errors.As(err, &stale) || (err == nil && len(out.Moved) == 0 && !req.Force) {
		return object.Zero, &ExistsError{What: "branch", Name: req.Target}
	}
	return base.ID, err
}

// DeleteBranch removes a branch and returns the commit that it was at. Refusals
// are those of Update, and *NotFoundError.
func (e *Engine) DeleteBranch(ctx context.Context, w Writer, v *View, short string, ephemeral bool) (object.ID, error) {
	full, err := branchName(short, ephemeral)
	if err != nil {
		return object.Zero, err
	}
	out, err := e.Update(ctx, w, v, Update{Refs: []RefUpdate{{Name: full, AnyOld: true}}, toMove: true})
	if err != nil {
		return object.Zero, err
	}
	if len(out.Moved) == 0 {
		return object.Zero, &NotFoundError{What: "branch", Name: short}
	}
	return out.Moved[0].Old, nil
}

package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

const (
	// expireEvery is how often a server looks for what has become too old.
	expireEvery = time.Hour
	// expirePage is how many repositories are read at a time.
	expirePage = 256
	// expireRefs is how many branches are deleted in one Change.
	expireRefs = 64
)

// NotDeletedError refuses to bring a repository back that lives.
type NotDeletedError struct{ Name string }

func (e *NotDeletedError) Error() string { return fmt.Sprintf("repository %q is not deleted", e.Name) }

// WindowError refuses to bring a repository back that was deleted too long ago.
type WindowError struct {
	Name   string
	Window time.Duration
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("repository %q was deleted more than %v ago and cannot come back: purge it to free its name", e.Name, e.Window)
}

// Undelete brings a deleted repository back as it was. Refusals are
// *NotDeletedError, *WindowError, *QuotaError, *GoneError and *SupersededError.
func (e *Engine) Undelete(ctx context.Context, w Writer, r meta.Repo) error {
	window := max(e.cfg.UndeleteWindow, 0)
	if r.Emptied || !r.Deleted.IsZero() && e.cfg.Clock().Sub(r.Deleted) > window {
		return &WindowError{Name: r.Name, Window: window}
	}
	return e.change(ctx, w, r, meta.Change{UndeleteRepo: true})
}

// ExpireResult counts what was removed because of its age.
type ExpireResult struct {
	Repositories int // deleted ones that were emptied
	Branches     int // ephemeral ones
}

// Expire empties repositories that were deleted longer ago than the window for
// bringing them back, and deletes ephemeral branches that nobody updated for the
// age that their repository or its org sets. It may run on any number of
// processes at once. Errors of single repositories do not keep it from the rest.
func (e *Engine) Expire(ctx context.Context) (ExpireResult, error) {
	var res ExpireResult
	err := errors.Join(e.emptyDeleted(ctx, &res), e.expireBranches(ctx, &res))
	return res, err
}

func (e *Engine) emptyDeleted(ctx context.Context, res *ExpireResult) error {
	before := e.cfg.Clock().Add(-max(e.cfg.UndeleteWindow, 0))
	var errs []error
	for after := meta.RepoID(0); ; {
		rows, err := e.cfg.Meta.DeletedRepos(ctx, before, after, expirePage)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list deleted repositories: %w", err))...)
		}
		for _, r := range rows {
			after = r.ID
			err := e.change(ctx, Writer{Subject: "system", Route: "retention"}, r, meta.Change{EmptyRepo: before})
			var back *NotDeletedError
			var gone *GoneError
			switch {
			case err == nil:
				res.Repositories++
			case !errors.As(err, &back) && !errors.As(err, &gone):
				errs = append(errs, fmt.Errorf("empty the deleted repository %d: %w", r.ID, err))
			}
		}
		if len(rows) < expirePage {
			return errors.Join(errs...)
		}
	}
}

func (e *Engine) expireBranches(ctx context.Context, res *ExpireResult) error {
	orgs := make(map[meta.OrgID]string)
	var errs []error
	for after := meta.RepoID(0); ; {
		rows, err := e.cfg.Meta.RetainedRepos(ctx, after, expirePage)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list repositories with an age of ephemeral branches: %w", err))...)
		}
		for _, r := range rows {
			after = r.ID
			n, err := e.expireIn(ctx, orgs, r)
			res.Branches += n
			if gone := (*GoneError)(nil); err != nil && !errors.As(err, &gone) {
				errs = append(errs, fmt.Errorf("ephemeral branches of repository %d: %w", r.ID, err))
			}
		}
		if len(rows) < expirePage {
			return errors.Join(errs...)
		}
	}
}

// expireIn deletes the ephemeral branches of one repository that are too old.
// Those that its rules protect stay.
func (e *Engine) expireIn(ctx context.Context, orgs map[meta.OrgID]string, r meta.RetainedRepo) (n int, err error) {
	q := meta.StaleQuery{
		Repo: r.ID, Prefix: refname.Ephemeral(refname.HeadsPrefix), Before: e.cfg.Clock().Add(-r.Age), Limit: expireRefs,
	}
	for {
		refs, err := e.cfg.Meta.StaleRefs(ctx, q)
		if err != nil || len(refs) == 0 {
			return n, err
		}
		q.After = refs[len(refs)-1].Name
		if _, known := orgs[r.Org]; !known {
			keys, err := e.cfg.Meta.Keys(ctx, r.Org)
			if err != nil {
				return n, fmt.Errorf("read org: %w", err)
			}
			orgs[r.Org] = keys.Org.Name
		}
		w := Writer{Org: r.Org, OrgName: orgs[r.Org], Subject: "system", Route: "retention"}
		deleted, err := e.deleteStale(ctx, w, r.ID, refs)
		n += deleted
		if err != nil || len(refs) < q.Limit {
			return n, err
		}
	}
}

// deleteStale deletes refs, but for those that have moved or may not go.
func (e *Engine) deleteStale(ctx context.Context, w Writer, id meta.RepoID, refs []meta.Ref) (int, error) {
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	for len(refs) > 0 {
		v, err := e.current(ctx, id)
		if err != nil {
			return 0, err
		}
		var u Update
		for _, r := range refs {
			u.Refs = append(u.Refs, RefUpdate{Name: r.Name, Old: r.ID})
		}
		u.toMove = true
		out, err := e.Update(ctx, w, v, u)
		var stale *StaleError
		var denied *policy.DeniedError
		spared := ""
		switch {
		case err == nil:
			return len(out.Moved), nil
		case errors.As(err, &stale):
			spared = stale.Ref
		case errors.As(err, &denied):
			spared = denied.Ref
		default:
			return 0, err
		}
		refs = slices.DeleteFunc(refs, func(r meta.Ref) bool { return r.Name == spared })
	}
	return 0, nil
}

// SetEphemeralAge says from which age ephemeral branches of a repository are
// deleted; 0 is what its org says, meta.NeverRetire never.
func (e *Engine) SetEphemeralAge(ctx context.Context, w Writer, r meta.Repo, age time.Duration) error {
	return e.change(ctx, w, r, meta.Change{SetRepoAge: &age})
}

package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
)

// DefaultLease is how long a process counts as alive after a heartbeat.
const DefaultLease = 30 * time.Second

// writing is the part of an Engine that writes need.
type writing struct {
	rules      ruleCache
	rings      rings
	signers    signers
	feed       feed
	lanes      lanes
	jobs       jobs
	figures    figures
	operations operations
	skew       time.Duration // see clockSkew
	reporter   atomic.Pointer[func(error)]
}

// report passes on an error that no request waits for, while Run runs.
func (e *Engine) report(err error) {
	if f := e.reporter.Load(); f != nil {
		(*f)(err)
	}
}

// renew returns a view of the repository as it is now.
func (e *Engine) renew(ctx context.Context, v *View) (*View, error) {
	r, err := e.row(ctx, v.repo.ID)
	if err != nil {
		return nil, err
	}
	return e.View(ctx, r)
}

// row reads the row of a live repository.
func (e *Engine) row(ctx context.Context, id meta.RepoID) (meta.Repo, error) {
	r, err := e.cfg.Meta.Repo(ctx, id)
	if errors.Is(err, meta.ErrNotFound) || err == nil && !r.Deleted.IsZero() {
		return r, &GoneError{Repo: id}
	}
	if err != nil {
		return r, fmt.Errorf("read repository: %w", err)
	}
	return r, nil
}

// newest returns the newest view of v's repository that is at hand.
func (e *Engine) newest(v *View) *View {
	if now, ok := e.views.get(v.repo.ID); ok && now.repo.Version > v.repo.Version {
		return now
	}
	return v
}

// valueOf returns the value of a ref, zero when it does not exist.
func (v *View) valueOf(name string) object.ID {
	ref, _ := v.refs.get(name)
	return ref.ID
}

// hasBranches reports whether the repository has a branch in either namespace.
func (v *View) hasBranches() bool {
	some := false
	for _, prefix := range []string{refname.HeadsPrefix, refname.Ephemeral(refname.HeadsPrefix)} {
		v.refs.each(prefix, "", func(meta.Ref) bool {
			some = true
			return false
		})
	}
	return some
}

// branchName returns the stored name of a branch. The error is an *InvalidError.
func branchName(short string, ephemeral bool) (string, error) {
	full := refname.Branch(short)
	if short == "" || strings.HasPrefix(short, "-") || strings.HasPrefix(short, "refs/") {
		return "", invalid("invalid branch name %q", short)
	}
	if ephemeral {
		full = refname.Ephemeral(full)
	}
	if err := CheckStoredName(full); err != nil {
		return "", invalid("invalid branch name %q: %v", short, err)
	}
	return full, nil
}

package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// RestoreRequest asks for a commit that brings back an earlier state of a branch.
type RestoreRequest struct {
	TargetBranch    string // short name
	TargetEphemeral bool
	// Base is a revision, of which HEAD is the branch's own tip. It names the commit
	// whose tree the new one gets, an ancestor of the tip.
	Base string
	// Expected is what the target must point to, nil anything.
	Expected *object.ID
	// Message is made of the base's subject when it is "".
	Message   string
	Author    object.Signature
	Committer object.Signature
	// Record, when set, makes the row that is kept for the request's
	// idempotency key; it is called before the commit is written.
	Record func(CommitResult) *meta.Idempotency
}

// NotRestorableError refuses to bring back a state that the branch never had.
type NotRestorableError struct{ Base string }

func (e *NotRestorableError) Error() string {
	return fmt.Sprintf("%q is not an ancestor of the branch: only an earlier state can be restored", e.Base)
}

// Restore makes a commit upon the tip of a branch with the tree of an earlier one.
// Without Expected it is made anew upon the new tip when the branch moves
// meanwhile. Refusals are those of Update, *NotFoundError, *NoChangesError,
// *NotRestorableError and *InvalidError.
func (e *Engine) Restore(ctx context.Context, w Writer, v *View, req RestoreRequest) (CommitResult, error) {
	target, err := branchName(req.TargetBranch, req.TargetEphemeral)
	if err != nil {
		return CommitResult{}, err
	}
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	defer done()
	r := restoring{engine: e, writer: w, req: req, target: target}
	return e.upon(ctx, v, target, req.Expected, r.attempt)
}

// upon makes a commit upon the tip of a branch, and again when the branch moved
// meanwhile and nothing else was expected of it. Only then does it take its turn
// among the writers of the branch: others do not wait for git.
func (e *Engine) upon(ctx context.Context, v *View, target string, expected *object.ID, attempt func(context.Context, *View) (CommitResult, error)) (CommitResult, error) {
	for i := range maxAttempts {
		v = e.newest(v)
		res, err := attempt(ctx, v)
		var stale *StaleError
		if !errors.As(err, &stale) {
			return res, err
		}
		if expected != nil && stale.Current != *expected {
			return CommitResult{}, err
		}
		if i == 0 {
			unlock, err := e.lanes.lock(ctx, v.Repo().ID, target)
			if err != nil {
				return CommitResult{}, err
			}
			defer unlock()
		}
		if v, err = e.renew(ctx, v); err != nil {
			return CommitResult{}, err
		}
	}
	return CommitResult{}, &ConflictError{Ref: target}
}

// restoring is one request while it is served.
type restoring struct {
	engine *Engine
	writer Writer
	req    RestoreRequest
	target string // full stored name
}

// attempt makes the commit upon one view.
func (r *restoring) attempt(ctx context.Context, v *View) (CommitResult, error) {
	tip := v.valueOf(r.target)
	switch expected := r.req.Expected; {
	case tip.IsZero():
		return CommitResult{}, &NotFoundError{What: "branch", Name: clip(r.req.TargetBranch)}
	case expected != nil && *expected != tip:
		return CommitResult{}, &StaleError{Ref: r.target, Current: tip}
	}
	if err := r.engine.permitted(ctx, r.writer, v, r.target, policy.FastForward); err != nil {
		return CommitResult{}, err
	}
	base, err := r.base(ctx, v, tip)
	if err != nil {
		return CommitResult{}, err
	}
	b, err := r.build(ctx, v, tip, base)
	if err != nil {
		return CommitResult{}, err
	}
	f, err := r.engine.packCommit(r.writer, v, b)
	defer f.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	if err != nil {
		return CommitResult{}, err
	}
	row, err := f.finish(ctx, v, b.commit())
	if err != nil {
		return CommitResult{}, err
	}
	res := CommitResult{Commit: b.id, Tree: b.tree, Old: tip, PackBytes: row.Bytes}
	u := Update{Refs: []RefUpdate{{Name: r.target, Old: tip, New: b.id, descends: true}}, Pack: row, made: b}
	if r.req.Record != nil {
		u.Idempotency = r.req.Record(res)
	}
	out, err := r.engine.publish(ctx, r.writer, v, u, f.file, f.index)
	res.Version = out.Version
	return res, err
}

// base finds the commit whose tree is restored. One that is not there and one
// that is no ancestor are refused alike.
func (r *restoring) base(ctx context.Context, v *View, tip object.ID) (object.ID, error) {
	rev, refusal := r.req.Base, &NotRestorableError{Base: clip(r.req.Base)}
	for _, own := range []string{"HEAD", "@"} {
		if steps, ok := strings.CutPrefix(rev, own); ok && (steps == "" || steps[0] == '~' || steps[0] == '^') {
			rev = r.target + steps
			break
		}
	}
	at, err := v.Resolve(ctx, rev, r.req.TargetEphemeral)
	if _, missing := errors.AsType[*NotFoundError](err); missing {
		return object.Zero, refusal
	}
	if err != nil {
		return object.Zero, err
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return object.Zero, err
	}
	ancestor, err := g.IsAncestor(ctx, at.ID, tip)
	if err == nil && !ancestor {
		err = refusal
	}
	return at.ID, err
}

// build makes the commit.
func (r *restoring) build(ctx context.Context, v *View, tip, base object.ID) (*built, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	now, ok := g.Commit(tip)
	then, known := g.Commit(base)
	if !ok || !known {
		return nil, fmt.Errorf("commit %s or %s is not in the graph that named it", tip, base)
	}
	if now.Tree == then.Tree {
		return nil, &NoChangesError{}
	}
	message := r.req.Message
	if message == "" {
		_, data, err := g.DB().Get(ctx, base)
		if err != nil {
			return nil, err
		}
		c, err := object.ParseCommit(data)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", base, err)
		}
		message = fmt.Sprintf("Reset %s to \"%s\"\n", r.req.TargetBranch, subject(c.Message))
	}
	b := &built{tree: then.Tree, parents: []object.ID{tip}}
	return b, r.engine.encode(ctx, r.writer, b, object.CommitData{Author: r.req.Author, Committer: r.req.Committer, Message: message})
}

// packCommit writes a commit, whose tree its parents reach, into a pack.
func (e *Engine) packCommit(writer Writer, v *View, b *built) (*freshPack, error) {
	f := &freshPack{file: e.newPack(writer, v.repo.ID, meta.PackInsert), exact: true}
	w := pack.NewWriter(f.file, 1)
	f.note(b.id)(w.Add(object.Commit, b.data))
	return f, f.close(w)
}

// subject returns the first paragraph of a message in one line, as git shows it.
func subject(message string) string {
	paragraph, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n\n")
	return strings.Join(strings.FieldsFunc(paragraph, func(r rune) bool { return r == '\n' }), " ")
}

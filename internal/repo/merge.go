package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/merge"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/task"
)

// Strategy says when a merge makes a commit.
type Strategy uint8

// The strategies.
const (
	// MergeAlways makes a commit, also where the target could move forward.
	MergeAlways Strategy = iota
	// ForwardOnly moves the target forward, or refuses.
	ForwardOnly
	// ForwardFirst moves the target forward if that can be, else makes a commit.
	ForwardFirst
)

// MergeRequest asks to merge a commit into a branch.
type MergeRequest struct {
	Source          string // a revision
	SourceEphemeral bool
	TargetBranch    string // short name
	TargetEphemeral bool
	Strategy        Strategy
	// Squash makes one commit with all changes, whose only parent is the target.
	Squash bool
	// Unrelated allows histories without a common commit.
	Unrelated bool
	// Expected is what the target must point to, nil anything.
	Expected  *object.ID
	Message   string
	Author    object.Signature
	Committer object.Signature
	// Record, when set, makes the row that is kept for the request's
	// idempotency key; it is called before the target moves.
	Record func(MergeResult) *meta.Idempotency
}

// MergeKind says what a merge did, or would do.
type MergeKind uint8

// The kinds.
const (
	NothingToMerge MergeKind = iota // the target has it all
	Forwarded                       // the target moved to the source
	MergeCommitted
	Squashed
)

// MergeResult describes a merge that was made.
type MergeResult struct {
	Kind         MergeKind
	Commit, Tree object.ID // of the target, after the merge
	Source       object.ID
	Old          object.ID // what the target pointed to
	// Base is the latest merge base, zero for unrelated histories.
	Base object.ID
	// Promoted is how many commits the target reaches that it did not.
	Promoted int
	Version  int64
}

// MergeConflictError refuses a merge whose sides disagree.
type MergeConflictError struct {
	Base  object.ID // zero for unrelated histories
	Paths []string  // sorted; the first maxConflictPaths
}

func (e *MergeConflictError) Error() string { return "merge conflict" }

// UnrelatedError refuses to merge histories without a common commit.
type UnrelatedError struct{}

func (e *UnrelatedError) Error() string {
	return "source and target have no commit in common: set allow_unrelated_histories to merge them"
}

// NotForwardError refuses a merge that may only move the target forward and
// cannot.
type NotForwardError struct{ Branch string }

func (e *NotForwardError) Error() string {
	return fmt.Sprintf("branch %q cannot be fast-forwarded: it has commits that the source lacks", e.Branch)
}

// LimitError refuses a merge that is too large.
type LimitError = task.LimitError

// CrashError refuses a merge at which git breaks.
type CrashError = merge.CrashError

// maxConflictPaths is how many paths in conflict are told.
const maxConflictPaths = 10_000

// Merge merges a commit into a branch. Without Expected it is made anew upon the
// new tip when the branch moves meanwhile; the source stays what it was. Refusals
// are those of Update, *NotFoundError, *InvalidError, *MergeConflictError,
// *UnrelatedError, *NotForwardError, *LimitError and *CrashError.
func (e *Engine) Merge(ctx context.Context, w Writer, v *View, req MergeRequest) (MergeResult, error) {
	m := merging{engine: e, writer: w, req: req}
	if req.Squash && req.Strategy == ForwardOnly {
		return MergeResult{}, invalid("squash makes a commit, which strategy ff_only does not allow")
	}
	var err error
	if m.target, err = branchName(req.TargetBranch, req.TargetEphemeral); err != nil {
		return MergeResult{}, err
	}
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return MergeResult{}, err
	}
	defer done()
	source, err := v.Resolve(ctx, req.Source, req.SourceEphemeral)
	if err != nil {
		return MergeResult{}, err
	}
	m.source = source.ID
	unlock := func() {}
	defer func() { unlock() }()
	for i := range maxAttempts {
		v = e.newest(v)
		res, err := m.attempt(ctx, v)
		var stale *StaleError
		if !errors.As(err, &stale) {
			return res, err
		}
		if req.Expected != nil && stale.Current != *req.Expected {
			return MergeResult{}, err
		}
		if i == 0 {
			// Only now: a merge takes its time, and others need not wait for it as
			// long as nobody is in its way.
			if unlock, err = e.lanes.lock(ctx, v.Repo().ID, m.target); err != nil {
				unlock = func() {}
				return MergeResult{}, err
			}
		}
		if v, err = e.renew(ctx, v); err != nil {
			return MergeResult{}, err
		}
	}
	return MergeResult{}, &ConflictError{Ref: m.target}
}

// merging is one request while it is served.
type merging struct {
	engine *Engine
	writer Writer
	req    MergeRequest

	target string // full stored name
	source object.ID
}

// situation is how source and target stand to each other in one view.
type situation struct {
	tip    object.ID
	graph  *graph.Graph
	bases  []object.ID
	merged bool // the target reaches the source
	behind bool // the source reaches the target
}

// stand finds out how source and target stand to each other. Histories that are
// unrelated have no bases.
func (e *Engine) stand(ctx context.Context, v *View, source, tip object.ID) (s situation, err error) {
	s.tip = tip
	if s.graph, err = v.Graph(ctx); err != nil {
		return s, err
	}
	if s.merged, err = s.graph.IsAncestor(ctx, source, tip); err != nil || s.merged {
		s.bases = []object.ID{source}
		return s, err
	}
	if s.behind, err = s.graph.IsAncestor(ctx, tip, source); err != nil || s.behind {
		s.bases = []object.ID{tip}
		return s, err
	}
	s.bases, err = s.graph.MergeBases(ctx, tip, source)
	return s, err
}

// base returns the merge base that is told.
func (s *situation) base() object.ID {
	if len(s.bases) == 0 {
		return object.Zero
	}
	return s.bases[0]
}

// attempt merges upon one view.
func (m *merging) attempt(ctx context.Context, v *View) (MergeResult, error) {
	tip := v.valueOf(m.target)
	if expected := m.req.Expected; expected != nil && *expected != tip && !tip.IsZero() {
		return MergeResult{}, &StaleError{Ref: m.target, Current: tip}
	}
	if tip.IsZero() {
		return MergeResult{}, &NotFoundError{What: "branch", Name: clip(m.req.TargetBranch)}
	}
	if err := m.engine.permitted(ctx, m.writer, v, m.target, policy.FastForward); err != nil {
		return MergeResult{}, err
	}
	s, err := m.engine.stand(ctx, v, m.source, tip)
	if err != nil {
		return MergeResult{}, err
	}
	res := MergeResult{Commit: tip, Source: m.source, Old: tip, Base: s.base()}
	if s.merged {
		return m.move(ctx, v, &s, res, nil)
	}
	switch {
	case s.behind && !m.req.Squash && m.req.Strategy != MergeAlways:
		res.Kind, res.Commit = Forwarded, m.source
		return m.move(ctx, v, &s, res, nil)
	case m.req.Strategy == ForwardOnly:
		return MergeResult{}, &NotForwardError{Branch: m.req.TargetBranch}
	case len(s.bases) == 0 && !m.req.Unrelated:
		return MergeResult{}, &UnrelatedError{}
	}
	return m.commit(ctx, v, &s, res)
}

// permitted refuses early what Update would refuse after the work is done: who may
// not move a branch learns nothing of what the work would lead to.
func (e *Engine) permitted(ctx context.Context, w Writer, v *View, ref string, kind policy.Kind) error {
	rules, err := e.rules.of(ctx, e.cfg.Meta, v.Repo())
	if err != nil {
		return err
	}
	return policy.Decide(w.Policies, rules, policy.Update{Ref: ref, Kind: kind})
}

// merge merges the trees.
func (e *Engine) merge(ctx context.Context, v *View, s *situation, source object.ID) (*merge.Merged, error) {
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	merged, err := merge.Merge(ctx, merge.Request{
		DB: db, Graph: s.graph, Ours: s.tip, Theirs: source, Bases: s.bases, Git: e.cfg.Tasks, Room: e.room,
	})
	if bad, ok := errors.AsType[*merge.PathError](err); ok {
		return nil, &InvalidError{Reason: bad.Error()}
	}
	return merged, err
}

// commit makes the commit of a merge and moves the target to it.
func (m *merging) commit(ctx context.Context, v *View, s *situation, res MergeResult) (MergeResult, error) {
	merged, err := m.engine.merge(ctx, v, s, m.source)
	if err != nil {
		return MergeResult{}, err
	}
	defer merged.Close() // what remains, the next start removes
	if len(merged.Conflicts) > 0 {
		return MergeResult{}, &MergeConflictError{Base: s.base(), Paths: conflictPaths(merged.Conflicts)}
	}
	b := &built{tree: merged.Tree, parents: []object.ID{s.tip, m.source}}
	res.Kind, res.Tree = MergeCommitted, merged.Tree
	if m.req.Squash {
		if merged.Tree == merged.Trees[0] {
			res.Kind = NothingToMerge
			return m.move(ctx, v, s, res, nil)
		}
		res.Kind, b.parents = Squashed, b.parents[:1]
	}
	data := object.CommitData{Author: m.req.Author, Committer: m.req.Committer, Message: m.req.Message}
	if err := m.engine.encode(ctx, m.writer, b, data); err != nil {
		return MergeResult{}, err
	}
	res.Commit = b.id
	f, err := m.pack(ctx, v, merged, b)
	defer f.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	if err != nil {
		return MergeResult{}, err
	}
	row, err := f.finish(ctx, v, b.commit())
	if err != nil {
		return MergeResult{}, err
	}
	return m.move(ctx, v, s, res, func(u Update) (Outcome, error) {
		u.Pack, u.made = row, b
		return m.engine.publish(ctx, m.writer, v, u, f.file, f.index)
	})
}

func conflictPaths(conflicts []merge.Conflict) []string {
	paths := make([]string, 0, len(conflicts))
	for _, c := range conflicts[:min(len(conflicts), maxConflictPaths)] {
		paths = append(paths, c.Path)
	}
	return paths
}

// move moves the target to the commit of res, with publish if that is not nil.
func (m *merging) move(ctx context.Context, v *View, s *situation, res MergeResult, publish func(Update) (Outcome, error)) (MergeResult, error) {
	if c, ok := s.graph.Commit(res.Commit); ok {
		res.Tree = c.Tree
	}
	switch res.Kind {
	case Forwarded, MergeCommitted:
		n, err := s.graph.Ahead(ctx, m.source, s.tip)
		if err != nil {
			return MergeResult{}, err
		}
		res.Promoted = n
		if res.Kind == MergeCommitted {
			res.Promoted++
		}
	case Squashed:
		res.Promoted = 1
	}
	u := Update{Refs: []RefUpdate{{Name: m.target, Old: s.tip, New: res.Commit, descends: true}}}
	if m.req.Record != nil {
		u.Idempotency = m.req.Record(res)
	}
	if publish == nil {
		publish = func(u Update) (Outcome, error) { return m.engine.Update(ctx, m.writer, v, u) }
	}
	out, err := publish(u)
	res.Version = out.Version
	return res, err
}

// MergeMessage is the message of a merge that was sent none.
func MergeMessage(source, target string) string {
	short := func(name string) string { return strings.TrimPrefix(name, refname.HeadsPrefix) }
	return fmt.Sprintf("Merge %s into %s\n", short(source), short(target))
}

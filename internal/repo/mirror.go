package repo

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// ErrSyncLost says that a sync was detached, or taken over by another process,
// before it ended.
var ErrSyncLost = errors.New("the sync was detached or taken over")

// MirroredRef is a branch or tag of an upstream.
type MirroredRef struct {
	Name string // full
	// Theirs is the value that it has there, zero when it is gone.
	Theirs object.ID
	// Seen is the value that the last sync saw there, zero when there was none.
	Seen object.ID
}

// KeptRef is a ref that a sync left as it is here although it has another value
// upstream.
type KeptRef struct {
	Name   string
	Reason string
}

// Mirror asks that branches and tags get the values that they have upstream. A
// ref that still has the value of the last sync follows, also when that forces
// or deletes it. A ref that was changed here is fast-forwarded when it can be,
// and otherwise kept; one that was deleted here comes back when it moves there.
type Mirror struct {
	Refs []MirroredRef
	// Pack streams the objects that are not reachable here; nil when there are
	// none.
	Pack io.Reader
	// DefaultBranch becomes the default branch, if it exists then; "" changes
	// nothing.
	DefaultBranch string
	// End makes the part of the Change that ends the sync and its events. It may
	// be called more than once.
	End func(kept []KeptRef) (*meta.FollowChange, []meta.Event)
}

// ending is what a sync adds to the Change that moves its refs.
type ending struct {
	follow        *meta.FollowChange
	events        []meta.Event
	defaultBranch string
}

// Mirror receives the pack, moves the refs and ends the sync in one Change.
// Each ref is judged as Update judges it; those that are refused are kept.
// Other refusals are *PackError for what the upstream sent, *QuotaError, *SupersededError,
// *GoneError, *ConflictError and ErrSyncLost.
func (e *Engine) Mirror(ctx context.Context, w Writer, v *View, m Mirror) (Outcome, error) {
	b := &mirroring{engine: e, writer: w, Mirror: m, refused: make(map[string]string)}
	if m.Pack != nil {
		in, err := e.receivePack(ctx, w, v, m.Pack)
		if full := (*QuotaError)(nil); errors.As(err, &full) {
			return Outcome{}, full
		}
		if err != nil {
			if why, ok := unpackRefusal(err); ok {
				return Outcome{}, &PackError{Reason: why, Err: err}
			}
			return Outcome{}, err
		}
		b.in = in
		defer in.file.Abort(context.WithoutCancel(ctx)) // does nothing once it is published
	}
	for range maxAttempts {
		v, err := e.renew(ctx, v)
		if err != nil {
			return Outcome{}, err
		}
		out, err := b.attempt(ctx, v)
		var stale *StaleError
		if !errors.As(err, &stale) && !b.refuse(err) {
			return out, err
		}
	}
	return Outcome{}, &ConflictError{Ref: "HEAD"}
}

// PackError refuses what an upstream sent.
type PackError struct {
	Reason string
	Err    error
}

func (e *PackError) Error() string { return "the upstream sent a pack that is refused: " + e.Reason }

// Unwrap returns the cause.
func (e *PackError) Unwrap() error { return e.Err }

// mirroring is a Mirror while it is made.
type mirroring struct {
	Mirror
	engine  *Engine
	writer  Writer
	in      *incoming         // nil when no pack came
	refused map[string]string // refs that may not move, and why
}

// attempt makes the Change upon one view.
func (b *mirroring) attempt(ctx context.Context, v *View) (Outcome, error) {
	u, kept, err := b.judge(ctx, v)
	if err != nil {
		return Outcome{}, err
	}
	end := ending{defaultBranch: b.head(v, u)}
	end.follow, end.events = b.End(kept)
	u.ending = &end
	if full := refname.Branch(end.defaultBranch); end.defaultBranch != "" && !names(u, full) {
		here := v.valueOf(full) // it must still be there then
		u.Refs = append(u.Refs, RefUpdate{Name: full, Old: here, New: here})
	}
	if b.in == nil || len(u.Refs) == 0 {
		return b.engine.Update(ctx, b.writer, v, u)
	}
	tips := make(map[object.ID]struct{})
	for _, ref := range u.Refs {
		tips[ref.New] = struct{}{}
	}
	contents, untidy, err := b.in.contents(ctx, tips)
	if err != nil {
		return Outcome{}, err
	}
	if u.Pack, err = b.in.row(ctx, contents); err != nil {
		return Outcome{}, err
	}
	u.Untidy = untidy
	return b.engine.publish(ctx, b.writer, v, u, b.in.file, b.in.index)
}

// judge returns the update of the refs that follow, and those that are kept.
func (b *mirroring) judge(ctx context.Context, v *View) (u Update, kept []KeptRef, err error) {
	if b.in != nil {
		u.pending = b.in.pending
	}
	objects, err := v.objects(ctx, u.pending)
	if err != nil {
		return u, nil, err
	}
	rules, err := b.engine.rules.of(ctx, b.engine.cfg.Meta, v.Repo())
	if err != nil {
		return u, nil, err
	}
	for _, ref := range b.Refs {
		here := v.valueOf(ref.Name)
		if here == ref.Theirs || here != ref.Seen && ref.Theirs == ref.Seen {
			continue // nothing new there
		}
		reason, refused := b.refused[ref.Name]
		if !refused {
			d := decision{engine: b.engine, writer: b.writer, view: v, rules: rules, objects: objects,
				ref: RefUpdate{Name: ref.Name, Old: here, New: ref.Theirs}}
			if reason, err = b.follows(ctx, &d, ref.Seen); err != nil {
				return u, nil, err
			}
			if reason == "" {
				u.Refs = append(u.Refs, d.ref)
				continue
			}
		}
		kept = append(kept, KeptRef{ref.Name, reason})
	}
	return u, kept, nil
}

// follows says why a ref cannot follow the upstream, "" when it can.
func (b *mirroring) follows(ctx context.Context, d *decision, seen object.ID) (string, error) {
	ref := d.ref
	if !ref.New.IsZero() && (b.in == nil || !b.in.holds(ref.New)) {
		missing, err := d.view.Reachable(ctx, ref.New)
		if err != nil {
			return "", err
		}
		if !missing.IsZero() {
			return "", &PackError{Reason: (&MissingError{ID: missing}).Error()}
		}
	}
	if ref.Old != seen && !ref.Old.IsZero() {
		forward := false
		if refname.IsBranch(ref.Name) && !ref.New.IsZero() {
			var err error
			if forward, err = d.forward(ctx, ref.Old, ref.New); err != nil {
				return "", err
			}
		}
		if !forward {
			return "it was changed here", nil
		}
	}
	_, err := d.decide(ctx)
	if reason, ok := keptBecause(err); ok {
		return reason, nil
	}
	return "", err
}

// keptBecause says why one ref may not move, and is false when err is no such
// refusal.
func keptBecause(err error) (string, bool) {
	var (
		denied *policy.DeniedError
		path   *RefPathError
		head   *DefaultBranchError
		bad    *InvalidError
	)
	switch {
	case errors.As(err, &denied):
		return denied.Reason, true
	case errors.As(err, &path):
		return "it cannot exist beside " + path.Other, true
	case errors.As(err, &head):
		return "it is the default branch", true
	case errors.As(err, &bad):
		return bad.Reason, true
	}
	return "", false
}

// refuse notes that a ref must be kept. It reports false when err says no such
// thing.
func (b *mirroring) refuse(err error) bool {
	reason, ok := keptBecause(err)
	name := ""
	var (
		denied *policy.DeniedError
		path   *RefPathError
		head   *DefaultBranchError
		named  *refError
	)
	switch {
	case errors.As(err, &denied):
		name = denied.Ref
	case errors.As(err, &path):
		name = path.Ref
	case errors.As(err, &head):
		name = refname.Branch(head.Branch)
	case errors.As(err, &named):
		name = named.ref
	}
	if !ok || name == "" {
		return false
	}
	_, again := b.refused[name]
	b.refused[name] = reason
	return !again
}

// head returns the default branch to set, "" for none.
func (b *mirroring) head(v *View, u Update) string {
	full := refname.Branch(b.DefaultBranch)
	if b.DefaultBranch == "" || b.DefaultBranch == v.Repo().DefaultBranch || strings.HasPrefix(b.DefaultBranch, "refs/") {
		return ""
	}
	exists := !v.valueOf(full).IsZero()
	for _, ref := range u.Refs {
		if ref.Name == full {
			exists = !ref.New.IsZero()
		}
	}
	if !exists {
		return ""
	}
	return b.DefaultBranch
}

// names reports whether an update names a ref.
func names(u Update, full string) bool {
	return slices.ContainsFunc(u.Refs, func(r RefUpdate) bool { return r.Name == full })
}

// MissingFrom returns the distinct ids that no ref of the repository reaches, in
// their order.
func (v *View) MissingFrom(ctx context.Context, ids []object.ID) ([]object.ID, error) {
	var missing []object.ID
	seen := make(map[object.ID]struct{}, len(ids))
	for _, id := range ids {
		if _, ok := seen[id]; ok {
			continue
		}
		seen[id] = struct{}{}
		lacks, err := v.Reachable(ctx, id)
		if err != nil {
			return nil, err
		}
		if !lacks.IsZero() {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

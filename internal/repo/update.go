package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/policy"
)

// maxAttempts bounds how often a change is tried again after it lost a race
// that the client need not know of.
const maxAttempts = 64

// maxUploads bounds how often a pack is uploaded for one change: a sweep of
// another process takes an upload only from a process that seems to be gone.
const maxUploads = 3

// Writer says who changes a repository and what that one may do.
type Writer struct {
	Org     meta.OrgID
	OrgName string
	Subject string
	// Token is compared with floors when the change is written; nil is an
	// operator, whom no floor stops.
	Token    *meta.TokenStamp
	Policies policy.List
	// Signer is the fingerprint of the key with which the server signs the commits
	// that it makes for the org, "" for none.
	Signer string
	// Route says what the change came through, for the ref log.
	Route string
	// Agent is what the client calls itself, for the audit log.
	Agent string
	// Metered says that the org has limits, so that room is reserved for large
	// packs while they arrive.
	Metered bool
	// Idempotency is the row that is kept for the request's idempotency key,
	// where the request itself makes none.
	Idempotency *meta.Idempotency
	// Created makes that row for a request that makes a repository.
	Created func(meta.Repo) *meta.Idempotency
}

// RefUpdate asks that one ref gets the value New (zero: none).
type RefUpdate struct {
	Name string // full stored name
	// Old is the value that the ref must have, zero for none; with AnyOld it may
	// have any.
	Old    object.ID
	AnyOld bool
	New    object.ID
	// descends says that New is a commit made upon Old.
	descends bool
}

// Update is a change of refs, all or none, with the objects they need.
// New values must be reachable in the repository or be in Pack.
type Update struct {
	Refs []RefUpdate
	Pack *meta.PackWrite
	// Untidy says that Pack holds objects that none of New reaches.
	Untidy      bool
	Idempotency *meta.Idempotency

	// toMove says that nothing is written, and nothing recorded, when every ref
	// has its new value already.
	toMove bool

	reservation string                       // that Pack uses up
	ending      *ending                      // of a sync, nil for none
	pending     *odb.Pack                    // Pack as it is read before it is visible
	made        *built                       // the commit of the server's own that Pack brings, nil for none
	commits     []graph.Commit               // all of Pack, nil when they are not known
	upon        *odb.DB                      // has no object of Pack, if that is exact; nil says nothing
	published   func(meta.Verdict) *odb.Pack // called once Pack is visible; returns it if it is open
	// again stores Pack under another key, which it returns, when its upload was
	// taken away.
	again func(context.Context) (string, error)
}

// Outcome is what an applied update did.
type Outcome struct {
	// Version is the repository's version after the update, or the one it was
	// read at when every ref had its new value already and nothing was written.
	Version int64
	// Moved are the refs that got another value, with the one they had.
	Moved []RefUpdate
}

// Update is the one function that changes refs. It decides names, the
// repository's rules and the token's policies, then writes the refs, the pack,
// the events and the log in one Change. A ref that has its new value already is
// left as it is.
//
// Refusals are *policy.DeniedError, *StaleError, *RefPathError,
// *DefaultBranchError, *InvalidError, *SupersededError, *GoneError,
// *QuotaError, *ConflictError and *ReplayError; nothing was written then. After any other
// error the update may have been written.
func (e *Engine) Update(ctx context.Context, w Writer, v *View, u Update) (Outcome, error) {
	uploads := 1
	for range maxAttempts {
		change, moved, err := e.plan(ctx, w, v, u)
		if err != nil {
			return Outcome{}, err
		}
		if len(moved) == 0 && (change.Idempotency == nil || u.toMove) && change.Follow == nil {
			return Outcome{Version: v.Repo().Version}, nil
		}
		if !e.holdsLease() {
			return Outcome{}, ErrLeaseLost
		}
		verdict, err := e.apply(ctx, v, &change, &u)
		if err != nil {
			return Outcome{}, err
		}
		if verdict.Applied {
			return Outcome{Version: verdict.Version, Moved: moved}, nil
		}
		if verdict.Conflict.Kind == meta.ConflictUpload && u.again != nil && uploads < maxUploads {
			uploads++
			if u.Pack.Key, err = u.again(ctx); err != nil {
				return Outcome{}, err
			}
			continue
		}
		if verdict.Conflict.Kind != meta.ConflictRef {
			return Outcome{}, refusal(change, verdict.Conflict)
		}
		// A ref moved since the view was made: look again. Whether that makes the
		// update stale is decided by plan.
		if v, err = e.renew(ctx, v); err != nil {
			return Outcome{}, err
		}
	}
	return Outcome{}, &ConflictError{Ref: u.Refs[0].Name}
}

// apply writes the Change of an update and lays it over the cached view.
func (e *Engine) apply(ctx context.Context, v *View, change *meta.Change, u *Update) (meta.Verdict, error) {
	defer e.feed.begin(change.Repo)()
	verdict, err := e.cfg.Meta.Apply(ctx, *change)
	if errors.Is(err, meta.ErrNotApplied) {
		return verdict, fmt.Errorf("write refs: %w", err)
	}
	if err != nil {
		return verdict, &unknownOutcomeError{err}
	}
	if !verdict.Applied {
		return verdict, nil
	}
	e.rules.applied(change.Repo, verdict.Version, false)
	var added *odb.Pack
	if change.AddPack != nil && u.published != nil {
		added = u.published(verdict)
	}
	if (added == nil) == (change.AddPack == nil) {
		did := appliedBy(change, verdict, added)
		did.upon = u.upon
		e.advance(v, verdict.Version, did)
	}
	return verdict, nil
}

// plan decides an update against one view and returns the Change that makes it.
func (e *Engine) plan(ctx context.Context, w Writer, v *View, u Update) (meta.Change, []RefUpdate, error) {
	r := v.Repo()
	c := meta.Change{Org: r.Org, Repo: r.ID, Token: w.Token, Route: w.Route, Subject: w.Subject, Agent: w.Agent, Untidy: u.Untidy, Idempotency: cmp.Or(u.Idempotency, w.Idempotency)}
	rules, err := e.rules.of(ctx, e.cfg.Meta, r)
	if err != nil {
		return c, nil, err
	}
	objects, err := v.objects(ctx, u.pending)
	if err != nil {
		return c, nil, err
	}
	var moved []RefUpdate
	var refused error // of the first ref, unless a policy refuses another
	for _, ref := range u.Refs {
		d := decision{engine: e, writer: w, view: v, rules: rules, objects: objects, ref: ref, made: u.made}
		current, err := d.decide(ctx)
		var denied *policy.DeniedError
		if errors.As(err, &denied) {
			return c, nil, err
		}
		var bad *InvalidError
		if errors.As(err, &bad) {
			err = &refError{ref: ref.Name, err: bad}
		}
		if err != nil && refused == nil {
			refused = err
		}
		if err != nil {
			continue
		}
		if current == ref.New {
			// It must still be so when the others move.
			c.Refs = append(c.Refs, meta.RefWrite{Name: ref.Name, Old: current, VerifyOnly: true})
			continue
		}
		c.Refs = append(c.Refs, meta.RefWrite{Name: ref.Name, Old: current, New: ref.New, Peeled: d.peeled})
		c.Untidy = c.Untidy || d.kind == policy.Force || d.kind == policy.Delete
		ref.Old = current
		moved = append(moved, ref)
	}
	if refused != nil {
		return c, nil, refused
	}
	if len(moved) > 0 {
		c.AddPack, c.Reservation = u.Pack, u.reservation
	}
	c.Events = pushEvents(w, r, moved, e.cfg.Clock())
	if end := u.ending; end != nil {
		c.Follow, c.SetDefaultBranch = end.follow, end.defaultBranch
		c.Events = append(c.Events, end.events...)
	}
	return c, moved, nil
}

// decision is the judgement of one ref of an update.
type decision struct {
	engine  *Engine
	writer  Writer
	view    *View
	rules   []policy.Protection
	objects *objects
	ref     RefUpdate
	made    *built

	kind   policy.Kind
	peeled object.ID
}

// decide returns the value that the ref has now, or why it may not move. A
// policy's refusal comes before that of a stale value.
func (d *decision) decide(ctx context.Context) (object.ID, error) {
	ref := d.ref
	if err := CheckStoredName(ref.Name); err != nil {
		return object.Zero, err
	}
	current := d.view.valueOf(ref.Name)
	old := ref.Old
	if ref.AnyOld {
		old = current
	}
	if current == ref.New {
		return current, nil
	}
	var err error
	if d.kind, err = d.kindOf(ctx, old); err != nil {
		return object.Zero, err
	}
	if err := policy.Decide(d.writer.Policies, d.rules, policy.Update{Ref: ref.Name, Kind: d.kind}); err != nil {
		return object.Zero, err
	}
	if err := d.checkSigned(ctx, current); err != nil {
		return object.Zero, err
	}
	if ref.New.IsZero() && ref.Name == refname.Branch(d.view.Repo().DefaultBranch) {
		return object.Zero, &DefaultBranchError{Branch: d.view.Repo().DefaultBranch}
	}
	if old != current {
		return object.Zero, &StaleError{Ref: ref.Name, Current: current}
	}
	return current, d.checkTarget(ctx)
}

// kindOf says how the update changes the ref from old.
func (d *decision) kindOf(ctx context.Context, old object.ID) (policy.Kind, error) {
	switch {
	case d.ref.New.IsZero():
		return policy.Delete, nil
	case old.IsZero():
		return policy.Create, nil
	case d.ref.descends:
		return policy.FastForward, nil
	}
	forward, err := d.forward(ctx, old, d.ref.New)
	if err != nil {
		return 0, err
	}
	if forward {
		return policy.FastForward, nil
	}
	return policy.Force, nil
}

// forward reports whether the commit that b points to descends from that of a.
func (d *decision) forward(ctx context.Context, a, b object.ID) (bool, error) {
	if !d.objects.db.Has(a) {
		return false, nil // a client's idea of a value that was never here
	}
	oldID, oldType, err := d.objects.peel(ctx, a)
	if err != nil {
		return false, err
	}
	newID, newType, err := d.objects.peel(ctx, b)
	if err != nil || oldType != object.Commit || newType != object.Commit {
		return false, err
	}
	return d.objects.isAncestor(ctx, oldID, newID)
}

// checkTarget checks what the ref would point to.
func (d *decision) checkTarget(ctx context.Context) error {
	ref := d.ref
	if ref.New.IsZero() || ref.descends {
		return nil
	}
	id, typ, err := d.objects.peel(ctx, ref.New)
	if err != nil {
		return err
	}
	if id != ref.New {
		d.peeled = id
	}
	inner, _ := refname.SplitEphemeral(ref.Name)
	if refname.IsBranch(inner) && (typ != object.Commit || id != ref.New) {
		return invalid("branch %q cannot point to %s, which is not a commit", refname.Short(inner), ref.New)
	}
	return nil
}

// CheckStoredName checks a full ref name as it is stored: "refs/…", or the same
// below the ephemeral namespace. The error is an *InvalidError.
func CheckStoredName(name string) error {
	inner, _ := refname.SplitEphemeral(name)
	for _, n := range []string{name, inner} {
		if err := refname.Check(n); err != nil {
			return &InvalidError{Reason: err.Error()}
		}
	}
	if !strings.HasPrefix(inner, "refs/") {
		return invalid("invalid ref name %q: it is outside refs/", name)
	}
	if len(name) > meta.MaxName {
		return invalid("invalid ref name %.64q: it is longer than %d bytes", name, meta.MaxName)
	}
	if strings.HasPrefix(inner, "refs/namespaces/") {
		return invalid("invalid ref name %q: refs/namespaces/ is reserved", name)
	}
	return nil
}

// refusal turns a conflict into the error that tells it.
func refusal(c meta.Change, conflict *meta.Conflict) error {
	switch conflict.Kind {
	case meta.ConflictRef:
		return &StaleError{Ref: conflict.Ref, Current: conflict.Current}
	case meta.ConflictRefPath:
		return &RefPathError{Ref: conflict.Ref, Other: conflict.Other}
	case meta.ConflictRepoGone, meta.ConflictOrgGone:
		return &GoneError{Repo: c.Repo}
	case meta.ConflictFloor:
		return &SupersededError{}
	case meta.ConflictSync:
		return ErrSyncLost
	case meta.ConflictCredential:
		return &ExistsError{What: "credential", Name: "a repository has one"}
	case meta.ConflictNoCredential:
		return &NotFoundError{What: "credential"}
	case meta.ConflictNoUpstream:
		return &NoUpstreamError{}
	case meta.ConflictBusy:
		return &SyncBusyError{}
	case meta.ConflictQuota:
		return &QuotaError{*conflict.Quota}
	case meta.ConflictReplay:
		return &ReplayError{Recorded: *conflict.Replay}
	}
	return fmt.Errorf("change of repository %d refused: %s", c.Repo, conflict.Kind)
}

// unknownOutcomeError is a fault after which a Change may have been applied.
type unknownOutcomeError struct{ err error }

func (e *unknownOutcomeError) Error() string { return "write refs: " + e.err.Error() }

// Unwrap returns the fault.
func (e *unknownOutcomeError) Unwrap() error { return e.err }

// refError is a refusal of one ref whose own error does not name it.
type refError struct {
	ref string
	err error
}

func (e *refError) Error() string { return fmt.Sprintf("ref %q: %v", e.ref, e.err) }

// Unwrap returns the refusal.
func (e *refError) Unwrap() error { return e.err }

// publish makes an update with the pack in file, which it ends unless the
// update certainly failed or needed no pack: then the caller aborts it.
func (e *Engine) publish(ctx context.Context, w Writer, v *View, u Update, file *odb.PackFile, idx *pack.Index) (Outcome, error) {
	id := v.Repo().ID
	u.reservation = file.Reservation()
	u.published = func(v meta.Verdict) *odb.Pack {
		p := file.Published(idx, id, v.At)
		if p != nil && u.commits != nil {
			graph.Know(p, u.commits)
		}
		return p
	}
	u.again = func(ctx context.Context) (string, error) { return file.Again(ctx, idx) }
	out, err := e.Update(ctx, w, v, u)
	var unknown *unknownOutcomeError
	if errors.As(err, &unknown) {
		file.Leave() // its bytes may be visible
	}
	if err == nil && len(out.Moved) > 0 {
		e.noteDue(ctx, e.newest(v))
	}
	return out, err
}

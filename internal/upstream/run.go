package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
)

// route is what syncs are called in the ref log.
const route = "upstream sync"

// run is one sync under way.
type run struct {
	*Syncer
	job      meta.Sync
	repo     meta.Repo
	upstream meta.Upstream // Runs counts this one
	started  time.Time
}

// writer is the form in which a sync keeps for whom it runs.
type writer struct {
	OrgName  string      `json:"org_name"`
	Subject  string      `json:"subject,omitempty"`
	Token    bool        `json:"token"` // false: an operator
	Thread   string      `json:"thread,omitempty"`
	Policies policy.List `json:"policies,omitempty"`
}

// NewSync returns a sync to be asked for, which moves refs as w may.
func NewSync(w repo.Writer) (*meta.Sync, error) {
	sync := &meta.Sync{ID: meta.SyncID(meta.NewID(time.Now()))}
	kept := writer{OrgName: w.OrgName, Subject: w.Subject, Policies: w.Policies}
	if w.Token != nil {
		kept.Token, kept.Thread, sync.IssuedAt = true, w.Token.Thread, w.Token.IssuedAt
	}
	var err error
	if sync.Writer, err = json.Marshal(kept); err != nil {
		return nil, fmt.Errorf("keep the writer of a sync: %w", err)
	}
	return sync, nil
}

func (r *run) writer() (repo.Writer, error) {
	var w writer
	if err := json.Unmarshal(r.job.Writer, &w); err != nil {
		return repo.Writer{}, fmt.Errorf("read the writer of a sync: %w", err)
	}
	out := repo.Writer{Org: r.repo.Org, OrgName: w.OrgName, Subject: w.Subject, Policies: w.Policies, Route: route, Metered: true}
	if w.Token {
		out.Token = &meta.TokenStamp{IssuedAt: r.job.IssuedAt, Subject: w.Subject, Thread: w.Thread}
	}
	return out, nil
}

// CredentialRow names the row that a credential's secret is bound to.
func CredentialRow(id meta.CredentialID) string { return fmt.Sprintf("credential/%d", int64(id)) }

// sync does the work. The Change that moves refs ends the sync.
func (r *run) sync(ctx context.Context) error {
	w, err := r.writer()
	if err != nil {
		return err
	}
	seen, err := decodeSeen(r.upstream.Seen)
	if err != nil {
		return err
	}
	from, err := r.remote(ctx)
	if err != nil {
		return err
	}
	theirs, head, err := from.refs(ctx)
	if err != nil {
		return err
	}
	ctx, done, err := r.Engine.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	v, err := r.Engine.View(ctx, r.repo)
	if err != nil {
		return err
	}
	m := repo.Mirror{Refs: differences(theirs, seen), DefaultBranch: r.head(head)}
	wants, err := wanted(ctx, v, m.Refs)
	if err != nil {
		return err
	}
	if len(wants) > 0 {
		here, err := v.Common(ctx, likely(seen))
		if err != nil {
			return err
		}
		pack, err := from.fetch(ctx, wants, here)
		if err != nil {
			return err
		}
		defer pack.Close()
		m.Pack = pack
	}
	m.End = func(kept []repo.KeptRef) (*meta.FollowChange, []meta.Event) {
		end := &meta.EndSync{ID: r.job.ID, Owner: r.Process, Head: refname.Short(head), Seen: encodeSeen(theirs, seen, kept)}
		return &meta.FollowChange{EndSync: end}, []meta.Event{r.event(events.TypeSyncSucceeded, nil, kept)}
	}
	_, err = r.Engine.Mirror(ctx, w, v, m)
	return err
}

// remote opens the upstream with the stored credential.
func (r *run) remote(ctx context.Context) (*remote, error) {
	u := r.upstream
	src, err := Source{Provider: u.Provider, Host: u.Host, Owner: u.Owner, Name: u.Name}.Normalize()
	if err != nil {
		return nil, err
	}
	from := &remote{
		base: src.url(r.Plain[src.Host]), transport: r.transport, guard: r.Hosts, idle: r.Idle, maxRefs: r.MaxRefs,
	}
	if u.Public {
		return from, nil
	}
	c, err := r.Meta.RepoCredential(ctx, r.repo.ID)
	if errors.Is(err, meta.ErrNotFound) {
		return from, nil
	} else if err != nil {
		return nil, err
	}
	password, err := r.Secrets.Open(CredentialRow(c.ID), c.Secret)
	if errors.Is(err, secret.ErrNoKey) || errors.Is(err, secret.ErrUnknownKey) || errors.Is(err, secret.ErrDamaged) {
		return nil, refused(err, "the stored credential cannot be read by this server: store it again")
	} else if err != nil {
		return nil, err
	}
	from.user, from.password = cmp.Or(c.Username, providers[src.Provider].user), string(password)
	return from, nil
}

// head returns the default branch to set: the upstream's, unless one was asked
// for at creation or chosen here since.
func (r *run) head(theirs string) string {
	if r.upstream.DefaultBranch != "" || theirs == "" {
		return ""
	}
	if !r.upstream.SyncedAt.IsZero() && r.repo.DefaultBranch != r.upstream.Head {
		return ""
	}
	return refname.Short(theirs)
}

// differences lists the refs that one side has, in order.
func differences(theirs, seen map[string]object.ID) []repo.MirroredRef {
	names := make(map[string]struct{}, len(theirs))
	for name := range theirs {
		names[name] = struct{}{}
	}
	for name := range seen {
		names[name] = struct{}{}
	}
	refs := make([]repo.MirroredRef, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		refs = append(refs, repo.MirroredRef{Name: name, Theirs: theirs[name], Seen: seen[name]})
	}
	return refs
}

// wanted returns the objects to ask for.
func wanted(ctx context.Context, v *repo.View, refs []repo.MirroredRef) ([]object.ID, error) {
	var ids []object.ID
	for _, ref := range refs {
		if !ref.Theirs.IsZero() && ref.Theirs != ref.Seen {
			ids = append(ids, ref.Theirs)
		}
	}
	return v.MissingFrom(ctx, ids)
}

// likely lists, in order of their names, what refs of the upstream were when they
// were seen last; not more than half of what a sync may tell.
func likely(seen map[string]object.ID) []object.ID {
	names := slices.Sorted(maps.Keys(seen))
	names = names[:min(len(names), maxHaves/2)]
	ids := make([]object.ID, 0, len(names))
	for _, name := range names {
		ids = append(ids, seen[name])
	}
	return ids
}

// encodeSeen keeps what a sync saw: a line with id and name for each ref. Those
// that were kept stay as they were seen before, so that they follow once nothing
// keeps them any more.
func encodeSeen(theirs, before map[string]object.ID, kept []repo.KeptRef) []byte {
	seen := maps.Clone(theirs)
	for _, k := range kept {
		delete(seen, k.Name)
		if id, ok := before[k.Name]; ok {
			seen[k.Name] = id
		}
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(&out, "%s %s\n", seen[name], name)
	}
	return out.Bytes()
}

func decodeSeen(text []byte) (map[string]object.ID, error) {
	seen := make(map[string]object.ID)
	for line := range strings.Lines(string(text)) {
		value, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, err := object.ParseID(value)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: the refs of an upstream as they were seen last", meta.ErrCorrupt)
		}
		seen[name] = id
	}
	return seen, nil
}

// fail records that a sync failed, and puts it off when it may work later.
func (r *run) fail(ctx context.Context, cause error) error {
	message, transient := explain(cause)
	end := &meta.EndSync{ID: r.job.ID, Owner: r.Process, Error: message}
	if transient && r.job.Attempts <= len(r.Pauses) {
		end.Again = r.Pauses[r.job.Attempts-1]
	}
	r.Log.Warn("sync failed", "repo", r.repo.Name, "attempt", r.job.Attempts, "again_in", end.Again.String(), "reason", message, "err", cause)
	err := r.Engine.Follow(ctx, repo.Writer{Route: route}, r.repo, meta.FollowChange{EndSync: end},
		r.event(events.TypeSyncFailed, errors.New(message), nil))
	if end.Again > 0 {
		time.AfterFunc(end.Again, r.Wake)
	}
	return err
}

// explain turns the failure of a sync into what the repository's owner is told,
// and whether it may pass by itself.
func explain(err error) (message string, transient bool) {
	var (
		known      *Error
		bad        *InvalidError
		pack       *repo.PackError
		superseded *repo.SupersededError
		gone       *repo.GoneError
		conflict   *repo.ConflictError
		full       *repo.QuotaError
	)
	switch {
	case errors.As(err, &known):
		return known.Message, known.Transient
	case errors.As(err, &bad):
		return bad.Reason, false
	case errors.As(err, &pack):
		return pack.Error(), false
	case errors.As(err, &full):
		return full.Error(), false
	case errors.As(err, &superseded):
		return "the token that asked for the sync was revoked", false
	case errors.As(err, &gone):
		return gone.Error(), false
	case errors.As(err, &conflict):
		return "the repository kept changing during the sync", true
	}
	return "internal error; the server's log has the cause", true
}

// maxKeptTold bounds the kept refs that an event names.
const maxKeptTold = 100

// event makes an event of this sync.
func (r *run) event(kind string, failure error, kept []repo.KeptRef) meta.Event {
	e := events.Sync{
		Type:       kind,
		Repository: events.Repository{ID: repo.PublicID(r.repo.ID), URL: r.repo.Name, RepoName: r.repo.Name},
		RunCount:   r.upstream.Runs, IsFirstSync: r.upstream.SyncedAt.IsZero(), StartedAt: events.Stamp(r.started), KeptCount: len(kept),
	}
	if kind != events.TypeSyncStarted {
		e.CompletedAt = events.Stamp(time.Now())
	}
	if failure != nil {
		e.Error = failure.Error()
	}
	for _, k := range kept[:min(len(kept), maxKeptTold)] {
		e.KeptRefs = append(e.KeptRefs, events.KeptRef{Ref: k.Name, Reason: k.Reason})
	}
	return e.Event()
}

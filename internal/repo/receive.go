package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// Bounds of what a client is told before it pushes.
const (
	maxHaves      = 64
	maxHaveSearch = 4096 // branches among which the newest are looked for
)

// staleView is the age from which a view is made anew before refs are moved:
// rules may have changed while a large pack arrived.
const staleView = time.Second

// receiver is one push to one remote of a repository.
type receiver struct {
	engine *Engine
	writer Writer
	view   *View
	ns     Namespace
	opened time.Time
}

var _ wire.Receiver = (*receiver)(nil)

// Receiver returns a repository, in one of its namespaces, as one push may
// write it.
func (e *Engine) Receiver(w Writer, v *View, ns Namespace) wire.Receiver {
	return &receiver{engine: e, writer: w, view: v, ns: ns, opened: e.cfg.Clock()}
}

// Advertise names the refs that the writer's policies let it write, and commits
// that spare it from sending what is here already.
func (r *receiver) Advertise(ctx context.Context) (wire.Advertisement, error) {
	var adv wire.Advertisement
	told := make(map[object.ID]struct{})
	r.writable(func(name string, id object.ID) {
		adv.Refs = append(adv.Refs, wire.Ref{Name: name, ID: id})
		told[id] = struct{}{}
	})
	slices.SortFunc(adv.Refs, func(a, b wire.Ref) int { return strings.Compare(a.Name, b.Name) })
	var err error
	adv.Haves, err = r.haves(ctx, told)
	return adv, err
}

// writable yields the refs of the namespace that the policies let be written,
// by the client's names and in no order. It does not look at all refs when the
// policies name the few.
func (r *receiver) writable(yield func(name string, id object.ID)) {
	refs, policies := r.view.refs, r.writer.Policies
	if !policies.DeniesAll() {
		r.view.each(r.ns, "", func(ref meta.Ref) bool {
			if stored, ok := r.ns.Stored(ref.Name); ok && policies.MayWrite(stored) {
				yield(ref.Name, ref.ID)
			}
			return true
		})
		return
	}
	seen := make(map[string]bool)
	take := func(ref meta.Ref) bool {
		if name, ok := r.ns.Client(ref.Name); ok && !seen[ref.Name] && policies.MayWrite(ref.Name) {
			yield(name, ref.ID)
		}
		seen[ref.Name] = true
		return true
	}
	for _, rule := range policies {
		prefix, glob := strings.CutSuffix(rule.Pattern, "*")
		switch {
		case prefix == "" || prefix == "refs/" && glob:
			return // the rest is denied
		case glob:
			refs.each(prefix, "", take)
		default:
			if ref, ok := refs.get(rule.Pattern); ok {
				take(ref)
			}
		}
	}
}

// haves returns the tip of the default branch, then the newest of the other
// branches, without those in told.
func (r *receiver) haves(ctx context.Context, told map[object.ID]struct{}) ([]object.ID, error) {
	type tip struct {
		id   object.ID
		time int64
	}
	g, err := r.view.Graph(ctx)
	if err != nil {
		return nil, err
	}
	var tips []tip
	add := func(ref meta.Ref, time func(graph.Node) int64) {
		if n, ok := g.Node(ref.ID); ok {
			tips = append(tips, tip{ref.ID, time(n)})
		}
	}
	if head, ok := r.view.refs.get(refname.Branch(r.view.Repo().DefaultBranch)); ok {
		add(head, func(graph.Node) int64 { return math.MaxInt64 })
	}
	r.view.refs.each(refname.HeadsPrefix, "", func(ref meta.Ref) bool {
		add(ref, g.Time)
		return len(tips) < maxHaveSearch
	})
	slices.SortStableFunc(tips, func(a, b tip) int { return cmp.Compare(b.time, a.time) })
	var haves []object.ID
	for _, t := range tips {
		if _, known := told[t.id]; known {
			continue
		}
		told[t.id] = struct{}{}
		if haves = append(haves, t.id); len(haves) == maxHaves {
			break
		}
	}
	return haves, nil
}

// Receive stores the pack and moves the refs.
func (r *receiver) Receive(ctx context.Context, p *wire.Push, src io.Reader) (wire.PushResult, error) {
	result, err := r.receive(ctx, p, src)
	if errors.Is(err, syscall.ENOSPC) {
		err = &wire.RefusalError{Reason: "the server has no space left: tell its operator", Err: err}
	}
	return result, err
}

func (r *receiver) receive(ctx context.Context, p *wire.Push, src io.Reader) (wire.PushResult, error) {
	ctx, done, err := r.engine.Begin(ctx)
	if err != nil {
		return wire.PushResult{}, err
	}
	defer done()
	b := &push{receiver: r, atomic: p.Atomic, status: make(map[string]string)}
	for _, c := range p.Commands {
		b.order = append(b.order, c.Ref)
		b.command(c)
	}
	if denied := b.deniedEarly(); denied {
		return b.drain(src)
	}
	if src != nil {
		in, err := r.engine.receivePack(ctx, r.writer, r.view, src)
		if err != nil {
			if why, ok := unpackRefusal(err); ok {
				return wire.PushResult{Unpack: why, Messages: []string{"the push was refused: " + why}}, nil
			}
			return wire.PushResult{}, err
		}
		b.in = in
		defer func() {
			objects := in.index.Count()
			in, b.in = nil, nil
			giveUpMemory(objects)
		}()
	}
	return b.run(ctx)
}

// push is one push while it is served.
type push struct {
	*receiver
	atomic bool
	in     *incoming // nil when no pack came

	order    []string          // refs as the client calls them
	status   map[string]string // refused refs and why
	todo     []pushed
	messages []string
}

// pushed is a command that nothing has refused yet.
type pushed struct {
	client string
	update RefUpdate
}

// command takes one command or refuses it.
func (b *push) command(c wire.Command) {
	name, ok := b.ns.Stored(c.Ref)
	if !ok {
		b.status[c.Ref] = "this ref cannot be pushed to here"
		return
	}
	if err := CheckStoredName(name); err != nil {
		b.status[c.Ref] = err.Error()
		return
	}
	b.todo = append(b.todo, pushed{c.Ref, RefUpdate{Name: name, Old: c.Old, New: c.New}})
}

// deniedEarly refuses, before a pack is stored, what the token's policies refuse
// whatever the pack holds.
func (b *push) deniedEarly() bool {
	for _, t := range b.todo {
		u := policy.Update{Ref: t.update.Name, Kind: policy.FastForward}
		switch {
		case t.update.Old == t.update.New:
			continue
		case t.update.New.IsZero():
			u.Kind = policy.Delete
		case t.update.Old.IsZero():
			u.Kind = policy.Create
		}
		var denied *policy.DeniedError
		if errors.As(policy.Decide(b.writer.Policies, nil, u), &denied) {
			b.deny(denied)
			return true
		}
	}
	return false
}

// drain reads what the client still sends, so that it comes to read the answer.
func (b *push) drain(src io.Reader) (wire.PushResult, error) {
	if src != nil {
		if _, err := io.Copy(io.Discard, src); err != nil {
			return wire.PushResult{}, fmt.Errorf("read pack: %w", err)
		}
	}
	return b.result(), nil
}

// deny refuses the whole push because of one ref.
func (b *push) deny(denied *policy.DeniedError) {
	for _, t := range b.todo {
		if t.update.Name == denied.Ref {
			b.status[t.client] = denied.Reason
			b.messages = append(b.messages, fmt.Sprintf("%s: %s", t.client, denied.Reason))
		} else {
			b.status[t.client] = "rejected because another ref was denied by policy"
		}
	}
	b.todo = nil
}

// refuse takes one ref out of the push, or all when they stand together.
// It reports false when err is no refusal of a ref.
func (b *push) refuse(err error) bool {
	var (
		denied *policy.DeniedError
		stale  *StaleError
		path   *RefPathError
		byHead *DefaultBranchError
		named  *refError
	)
	ref, why := "", ""
	switch {
	case errors.As(err, &denied):
		b.deny(denied)
		return true
	case errors.As(err, &stale):
		ref, why = stale.Ref, "fetch first: the ref is not where it was expected"
	case errors.As(err, &path):
		ref, why = path.Ref, b.told(path)
	case errors.As(err, &byHead):
		ref, why = refname.Branch(byHead.Branch), "deletion of the default branch is refused"
	case errors.As(err, &named):
		ref, why = named.ref, named.err.Error()
	default:
		return false
	}
	i := slices.IndexFunc(b.todo, func(t pushed) bool { return t.update.Name == ref })
	if i < 0 {
		return false
	}
	b.status[b.todo[i].client] = why
	b.todo = slices.Delete(b.todo, i, i+1)
	if b.atomic {
		b.dropAll()
	}
	return true
}

// told names a conflict in the client's words.
func (b *push) told(e *RefPathError) string {
	other, ok := b.ns.Client(e.Other)
	if !ok {
		other = e.Other
	}
	return fmt.Sprintf("cannot exist beside %q: delete or rename one of them", other)
}

// dropAll refuses what is left of an atomic push.
func (b *push) dropAll() {
	for _, t := range b.todo {
		b.status[t.client] = "atomic push failed: another ref was refused"
	}
	b.todo = nil
}

// run moves the refs that can be moved and publishes the pack with them.
func (b *push) run(ctx context.Context) (wire.PushResult, error) {
	if b.in != nil {
		defer b.in.file.Abort(context.WithoutCancel(ctx))
	}
	if b.atomic && len(b.status) > 0 {
		b.dropAll()
	}
	if b.engine.cfg.Clock().Sub(b.opened) > staleView {
		v, err := b.engine.renew(ctx, b.view)
		if err != nil {
			return b.fault(err)
		}
		b.view = v
	}
	// Judge first, so that a refused push uploads nothing; then write.
	for _, step := range []func(context.Context) error{b.judge, b.write} {
		for len(b.todo) > 0 {
			err := step(ctx)
			if err == nil {
				break
			}
			if !b.refuse(err) {
				return b.fault(err)
			}
		}
	}
	return b.result(), nil
}

// fault turns a refusal of the whole push into a result, and returns any other
// error.
func (b *push) fault(err error) (wire.PushResult, error) {
	var superseded *SupersededError
	var gone *GoneError
	var conflict *ConflictError
	var full *QuotaError
	switch {
	case errors.As(err, &full):
		b.messages = append(b.messages, "the push was refused: "+full.Error())
	case errors.As(err, &superseded), errors.As(err, &gone), errors.As(err, &conflict):
	default:
		return wire.PushResult{}, err
	}
	for _, t := range b.todo {
		b.status[t.client] = err.Error()
	}
	return b.result(), nil
}

// judge finds refusals without writing.
func (b *push) judge(ctx context.Context) error {
	for _, t := range b.todo {
		if err := b.checkTip(ctx, t.update); err != nil {
			return err
		}
	}
	_, _, err := b.engine.plan(ctx, b.writer, b.view, b.update())
	return err
}

// checkTip refuses a new value that the client has no right to point to.
func (b *push) checkTip(ctx context.Context, u RefUpdate) error {
	if u.New.IsZero() || b.in != nil && b.in.holds(u.New) {
		return nil
	}
	missing, err := b.view.Reachable(ctx, u.New)
	if err != nil {
		return err
	}
	if !missing.IsZero() {
		return &refError{ref: u.Name, err: &MissingError{ID: u.New}}
	}
	return nil
}

// update is what is left of the push.
func (b *push) update() Update {
	var u Update
	for _, t := range b.todo {
		u.Refs = append(u.Refs, t.update)
	}
	if b.in != nil {
		u.pending = b.in.pending
	}
	return u
}

// write makes the pack durable and moves the refs.
func (b *push) write(ctx context.Context) error {
	u := b.update()
	if b.in == nil {
		_, err := b.engine.Update(ctx, b.writer, b.view, u)
		return err
	}
	tips := make(map[object.ID]struct{})
	for _, ref := range u.Refs {
		tips[ref.New] = struct{}{}
	}
	contents, untidy, err := b.in.contents(ctx, tips)
	if err != nil {
		return err
	}
	if u.Pack, err = b.in.row(ctx, contents); err != nil {
		return err
	}
	u.Untidy = untidy
	_, err = b.engine.publish(ctx, b.writer, b.view, u, b.in.file, b.in.index)
	return err
}

// result tells the outcome of every command.
func (b *push) result() wire.PushResult {
	res := wire.PushResult{Messages: b.messages}
	for _, ref := range b.order {
		res.Refs = append(res.Refs, wire.RefStatus{Ref: ref, Error: b.status[ref]})
	}
	return res
}

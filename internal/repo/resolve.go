package repo

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
)

// Resolved is the commit that a revision names.
type Resolved struct {
	ID object.ID
	// Ref is the full stored name of the ref that was named, "" for none.
	Ref string
	// Echo is what an answer says that it resolved: what was asked, the default
	// branch's name for nothing, the full stored name of an ephemeral ref.
	Echo string
}

// maxRevision is the length in bytes of the longest revision.
const maxRevision = refname.MaxLen + 256

// Resolve finds the commit that rev names: "" (the default branch), a full ref
// name, a full object id that some ref reaches, a branch (of the ephemeral
// namespace if ephemeral is set), a tag, a full ref name without its "refs/", an
// unambiguous beginning of a commit's id, or one of these followed by ~N, ^N,
// ^{commit} or ^{}. A revision that names no commit is a *NotFoundError.
func (v *View) Resolve(ctx context.Context, rev string, ephemeral bool) (Resolved, error) {
	missing := &NotFoundError{What: "ref", Name: clip(rev)}
	if len(rev) > maxRevision {
		return Resolved{}, missing
	}
	ns := Normal
	if ephemeral {
		ns = EphemeralNS
	}
	out := Resolved{Echo: rev}
	name := rev
	if rev == "" {
		out.Echo, name = v.repo.DefaultBranch, refname.Branch(v.repo.DefaultBranch)
		missing.Name = v.repo.DefaultBranch
	}
	base, steps := name, ""
	if i := strings.IndexAny(name, "~^"); i >= 0 {
		base, steps = name[:i], name[i:]
	}
	id, ref, ok, err := v.find(ctx, base, ns)
	if err != nil {
		return Resolved{}, err
	}
	if ok {
		id, ok, err = v.follow(ctx, id, steps)
	}
	if err != nil {
		return Resolved{}, err
	}
	if !ok {
		return Resolved{}, missing
	}
	out.ID, out.Ref = id, ref
	if steps != "" {
		out.Ref = ""
	}
	if _, inner := refname.SplitEphemeral(out.Ref); inner {
		out.Echo = out.Ref
	}
	return out, nil
}

// find resolves a revision without steps, in the documented order.
func (v *View) find(ctx context.Context, base string, ns Namespace) (id object.ID, ref string, ok bool, err error) {
	if base == "HEAD" || base == "@" {
		base = refname.Branch(v.repo.DefaultBranch)
	}
	if strings.HasPrefix(base, "refs/") {
		stored, inside := ns.Stored(base)
		if !inside {
			stored = base
		}
		r, ok := v.refs.get(stored)
		return r.ID, stored, ok, nil
	}
	if id, err := object.ParseID(base); err == nil {
		missing, err := v.Reachable(ctx, id)
		return id, "", err == nil && missing.IsZero(), err
	}
	branch, _ := ns.Stored(refname.HeadsPrefix + base)
	tag, _ := ns.Stored(refname.TagsPrefix + base)
	below, _ := ns.Stored("refs/" + base)
	for _, stored := range []string{branch, tag, refname.TagsPrefix + base, below} {
		if r, ok := v.refs.get(stored); ok {
			return r.ID, stored, true, nil
		}
	}
	id, ok, err = v.abbreviated(ctx, base)
	return id, "", ok, err
}

// minAbbreviation is the least number of digits that may stand for an id.
const minAbbreviation = 4

// abbreviated finds the one reachable commit whose id begins with digits.
func (v *View) abbreviated(ctx context.Context, digits string) (object.ID, bool, error) {
	if len(digits) < minAbbreviation || len(digits) > 2*object.Size {
		return object.Zero, false, nil
	}
	var prefix object.ID
	if _, err := hex.Decode(prefix[:], []byte(digits+strings.Repeat("0", 2*object.Size-len(digits)))); err != nil {
		return object.Zero, false, nil
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return object.Zero, false, err
	}
	var found object.ID
	for _, p := range g.DB().Packs() {
		lo, hi := p.Index().Prefix(prefix, len(digits))
		for pos := lo; pos < hi; pos++ {
			id := p.Index().ID(pos)
			if _, ok := g.Node(id); !ok || id == found {
				continue
			}
			missing, err := v.Reachable(ctx, id)
			if err != nil {
				return object.Zero, false, err
			}
			if !missing.IsZero() {
				continue
			}
			if !found.IsZero() {
				return object.Zero, false, nil
			}
			found = id
		}
	}
	return found, !found.IsZero(), nil
}

// follow walks steps such as "~2^2^{commit}" from an object to a commit.
func (v *View) follow(ctx context.Context, id object.ID, steps string) (object.ID, bool, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return object.Zero, false, err
	}
	if id, err = g.Peel(ctx, id); err != nil {
		return object.Zero, false, err
	}
	n, ok := g.Node(id)
	if !ok {
		return object.Zero, false, nil
	}
	for steps != "" {
		kind := steps[0]
		steps = steps[1:]
		if kind == '^' && strings.HasPrefix(steps, "{") {
			what, rest, closed := strings.Cut(steps[1:], "}")
			if !closed || what != "" && what != "commit" && what != "object" {
				return object.Zero, false, nil
			}
			steps = rest
			continue
		}
		count, rest, ok := leadingNumber(steps)
		if !ok {
			return object.Zero, false, nil
		}
		steps = rest
		times, parent := count, 0
		if kind == '^' {
			times, parent = min(count, 1), count-1
		}
		for ; times > 0; times-- {
			parents := g.Parents(n)
			if parent >= len(parents) {
				return object.Zero, false, nil
			}
			n = parents[parent]
		}
	}
	return g.ID(n), true, nil
}

// leadingNumber reads the decimal number that text begins with; without digits
// it is 1.
func leadingNumber(text string) (n int, rest string, ok bool) {
	i := 0
	for i < len(text) && '0' <= text[i] && text[i] <= '9' {
		i++
	}
	if i == 0 {
		return 1, text, text == "" || text[0] == '~' || text[0] == '^'
	}
	n, err := strconv.Atoi(text[:i])
	return n, text[i:], err == nil
}

// clip shortens a name for an error.
func clip(name string) string {
	const most = 256
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

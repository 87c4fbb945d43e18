// Package policy decides which changes of a repository's refs are allowed: the ordered ref policies that a token carries
// and the protection rules that a repository keeps. Both are evaluated by one function, Decide; the stricter one wins.
// Policies restrict changes only, never reads.
package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Op is one restriction on changes of a ref. The set is open: an op that is not known refuses every change.
type Op string

// The ops of token policies and of protection rules.
const (
	// NoForcePush refuses updates whose new tip does not descend from the old one, and deletions, because a deletion
	// followed by a creation is a force push in two steps.
	NoForcePush Op = "no-force-push"
	// NoPush refuses every change.
	NoPush Op = "no-push"
	// VerifySig asks for signed commits; see Signed.
	VerifySig Op = "verify-sig"
)

// The ops that only protection rules know.
const (
	// NoCreate refuses the creation of the ref.
	NoCreate Op = "no-create"
	// NoUpdate refuses every update of an existing ref, and its deletion, for the reason given at NoForcePush.
	NoUpdate Op = "no-update"
	// NoDelete refuses the deletion of the ref.
	NoDelete Op = "no-delete"
)

// Kind says how an update changes its ref.
type Kind uint8

// The kinds of update.
const (
	// Create makes a ref that did not exist.
	Create Kind = iota
	// FastForward moves a ref to a descendant of its tip, or to the same tip.
	FastForward
	// Force moves a ref to an object that does not descend from its tip.
	Force
	// Delete removes a ref.
	Delete
)

// Update is one change of one ref. Ref is the stored full name: branch b of the ephemeral namespace is
// "refs/namespaces/ephemeral/refs/heads/b".
type Update struct {
	Ref  string
	Kind Kind
}

// Rule is one ref policy of a token. Its pattern is normalised (see NormalizePattern); a rule without ops allows every
// change of the refs that it matches.
type Rule struct {
	Pattern string
	Ops     []Op
}

// List is the ref policies of a token in claim order: the first rule that matches a ref decides, and a ref that no rule
// matches may be changed.
type List []Rule

// Confine returns the policies of a sandbox that may create and fast-forward one ephemeral branch and change nothing else.
// A branch that is not a plain short name is a *PatternError.
func Confine(branch string) (List, error) {
	// A "*" would make the exact name a pattern; a full name would be nested in another.
	if strings.Contains(branch, "*") || strings.HasPrefix(branch, "refs/") {
		return nil, &PatternError{branch, "is not a short branch name"}
	}
	session, err := NewRule("refs/namespaces/ephemeral/refs/heads/"+branch, []Op{NoForcePush})
	if err != nil {
		return nil, &PatternError{branch, "is not a short branch name"}
	}
	return List{session, {Pattern: "*", Ops: []Op{NoPush}}}, nil
}

// Protection is a protection rule of a repository. All rules that match a ref apply.
type Protection struct {
	Pattern string `json:"pattern"`
	Ops     []Op   `json:"ops"`
}

// DeniedError is a change that a policy refuses. Reason is one line that contains "denied by policy" and is safe to send to
// the client.
type DeniedError struct {
	Ref    string
	Reason string
}

// Error names the ref and the reason.
func (e *DeniedError) Error() string { return fmt.Sprintf("ref %q: %s", e.Ref, e.Reason) }

// Decide returns nil when both the token's policies and the repository's protection rules allow u, else a *DeniedError.
// It does not look at signatures: ask Signed as well.
func Decide(token List, protections []Protection, u Update) error {
	if rule, ok := token.Match(u.Ref); ok {
		if op, refused := refusing(tokenOps, rule.Ops, u.Kind); refused {
			return &DeniedError{Ref: u.Ref, Reason: reason(tokenOps, op, u.Kind)}
		}
	}
	for _, p := range protections {
		if !matches(p.Pattern, u.Ref) {
			continue
		}
		if op, refused := refusing(protectionOps, p.Ops, u.Kind); refused {
			why := fmt.Sprintf("%s: %s of protection rule %q", reason(protectionOps, op, u.Kind), op, p.Pattern)
			return &DeniedError{Ref: u.Ref, Reason: why}
		}
	}
	return nil
}

// Signed returns the rules that let only signed commits into ref, each as the set of the refs that are under it: commits that
// such a ref reaches have been judged by the rule already.
func Signed(token List, protections []Protection, ref string) []func(ref string) bool {
	var rules []func(string) bool
	if i := token.match(ref); i >= 0 && slices.Contains(token[i].Ops, VerifySig) {
		rules = append(rules, func(other string) bool { return token.match(other) == i })
	}
	for _, p := range protections {
		if matches(p.Pattern, ref) && slices.Contains(p.Ops, VerifySig) {
			rules = append(rules, func(other string) bool { return matches(p.Pattern, other) })
		}
	}
	return rules
}

// Match returns the first rule whose pattern matches the full ref name.
func (l List) Match(ref string) (Rule, bool) {
	if i := l.match(ref); i >= 0 {
		return l[i], true
	}
	return Rule{}, false
}

// match returns the place of the rule that decides on a ref, -1 when none does.
func (l List) match(ref string) int {
	return slices.IndexFunc(l, func(r Rule) bool { return matches(r.Pattern, ref) })
}

// MayWrite reports whether l allows some change of ref.
func (l List) MayWrite(ref string) bool {
	rule, ok := l.Match(ref)
	return !ok || !deniesEverything(rule.Ops)
}

// DeniesAll reports whether l refuses every ref that no earlier rule names. A token with such a list may not change
// anything else of the repository either, such as its default branch.
func (l List) DeniesAll() bool {
	for _, r := range l {
		if r.Pattern == "*" || r.Pattern == "refs/*" {
			return deniesEverything(r.Ops)
		}
	}
	return false
}

// FoldOps returns l with the deprecated repository-wide ops added: united with those of the first "*" rule, or as a last
// "*" rule where there is none. It leaves l alone.
func (l List) FoldOps(ops []Op) (List, error) {
	if len(ops) == 0 {
		return l, nil
	}
	if err := checkOps(ops); err != nil {
		return nil, err
	}
	folded := slices.Clone(l)
	i := slices.IndexFunc(folded, func(r Rule) bool { return r.Pattern == "*" })
	if i < 0 {
		return append(folded, Rule{Pattern: "*", Ops: slices.Clone(ops)}), nil
	}
	union := slices.Clone(folded[i].Ops)
	for _, op := range ops {
		if !slices.Contains(union, op) {
			union = append(union, op)
		}
	}
	folded[i].Ops = union
	return folded, nil
}

// kinds is a set of Kind, a bit each.
type kinds uint8

const (
	onCreate kinds = 1 << Create
	onUpdate kinds = 1 << FastForward
	onForce  kinds = 1 << Force
	onDelete kinds = 1 << Delete
	always         = ^kinds(0)
)

// vocabulary maps each known op to the kinds of update that it refuses.
type vocabulary map[Op]kinds

var (
	tokenOps = vocabulary{
		NoPush:      always,
		NoForcePush: onForce | onDelete,
		VerifySig:   0,
	}
	protectionOps = vocabulary{
		NoPush:      always,
		NoForcePush: onForce | onDelete,
		VerifySig:   0,
		NoCreate:    onCreate,
		NoUpdate:    onUpdate | onForce | onDelete,
		NoDelete:    onDelete,
	}
)

func (v vocabulary) refuses(op Op) kinds {
	if k, known := v[op]; known {
		return k
	}
	return always
}

// refusing returns the op that refuses an update of this kind; one that refuses everything comes first, because it
// explains most.
func refusing(v vocabulary, ops []Op, kind Kind) (Op, bool) {
	var found Op
	refused := false
	for _, op := range ops {
		k := v.refuses(op)
		if k == always {
			return op, true
		}
		if !refused && k&(1<<kind) != 0 {
			found, refused = op, true
		}
	}
	return found, refused
}

func deniesEverything(ops []Op) bool {
	return slices.ContainsFunc(ops, func(op Op) bool { return tokenOps.refuses(op) == always })
}

func reason(v vocabulary, op Op, kind Kind) string {
	if _, known := v[op]; !known {
		return fmt.Sprintf("push denied by policy (unknown op %q acts as %s)", op, NoPush)
	}
	if op == NoPush {
		return "push denied by policy"
	}
	switch kind {
	case Create:
		return "creation denied by policy"
	case Force:
		return "force push denied by policy"
	case Delete:
		return "deletion denied by policy"
	default:
		return "push denied by policy"
	}
}

// matches applies a normalised pattern to a full ref name.
func matches(pattern, ref string) bool {
	if pattern == "*" {
		return true
	}
	if prefix, glob := strings.CutSuffix(pattern, "*"); glob {
		return strings.HasPrefix(ref, prefix)
	}
	return pattern == ref
}

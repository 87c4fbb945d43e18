// Package auth verifies and mints the tokens of Cairn: JSON Web Tokens that an organisation signs with its own key and that
// say which repository, thread or session the bearer may use, how, and until when. The server keeps public keys only.
package auth

import (
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/policy"
)

// Scope is one permission of a token. The set is open; an unknown scope grants nothing.
type Scope string

// The known scopes, and the claim without which each of them grants nothing.
const (
	GitRead         Scope = "git:read"         // repo
	GitWrite        Scope = "git:write"        // repo; implies GitRead unless Principal.Strict
	RepoWrite       Scope = "repo:write"       // repo
	OrgRead         Scope = "org:read"         // none
	OrgAdmin        Scope = "org:admin"        // none; the org's signing keys and audit log
	CheckpointRead  Scope = "checkpoint:read"  // thread
	CheckpointWrite Scope = "checkpoint:write" // thread
	SessionWrite    Scope = "session:write"    // session, repo or thread
)

// AnyThread is the thread claim that covers every thread of the organisation.
const AnyThread = "*"

// Claims is what a token says. An empty string or a zero stands for an absent claim.
type Claims struct {
	Org      string // iss: the organisation, which is the tenant
	Subject  string // sub: who acts, for the audit log
	Repo     string // raw repository name; "org" or the organisation's name in organisation-level tokens
	Thread   string // a thread's name, or AnyThread
	Session  string
	Scopes   []Scope
	Policies policy.List // ref policies, legacy ops folded in
	IssuedAt int64       // Unix seconds
	Expires  int64       // Unix seconds
}

// Principal is the bearer of a verified token. It may be shared between requests: do not change it.
type Principal struct {
	Claims
	KeyID  string // the kid under which the verifying key is registered, often empty
	Strict bool   // git:write does not imply git:read
}

// Has reports whether the token lists scope, or another that implies it, whatever its other claims. It is enough only for
// what concerns the organisation as a whole; everything else asks Allows.
func (p *Principal) Has(scope Scope) bool {
	if slices.Contains(p.Scopes, scope) {
		return true
	}
	return scope == GitRead && !p.Strict && slices.Contains(p.Scopes, GitWrite)
}

// Allows reports whether the token grants scope: it has the scope and the claim that says on what. Whether that claim names
// the resource at hand is for CoversRepo and CoversThread.
func (p *Principal) Allows(scope Scope) bool {
	return p.Has(scope) && p.hasClaimFor(scope)
}

// CoversRepo reports whether the token was made for the repository called name.
func (p *Principal) CoversRepo(name string) bool { return name != "" && p.Repo == name }

// CoversThread reports whether the token was made for the thread called name, or for every thread.
func (p *Principal) CoversThread(name string) bool {
	return name != "" && (p.Thread == name || p.Thread == AnyThread)
}

func (p *Principal) hasClaimFor(scope Scope) bool {
	kind, _, _ := strings.Cut(string(scope), ":")
	switch kind {
	case "git", "repo":
		return p.Repo != ""
	case "checkpoint":
		return p.Thread != ""
	case "session":
		return p.Session != "" || p.Repo != "" || p.Thread != ""
	case "org":
		return true
	default:
		return false
	}
}

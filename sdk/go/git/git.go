// Package git makes remote URLs for stock git: each holds a token that says which repository it opens, how, and for how
// long. Making one asks nothing of the server.
package git

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/policy"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/option"
)

// Kind selects one of a repository's remotes.
type Kind string

// The remotes of a repository.
const (
	// KindNormal holds the branches and tags that everyone sees. It is the zero value.
	KindNormal Kind = ""
	// KindEphemeral holds branches apart from the normal ones, with the same objects.
	KindEphemeral Kind = "ephemeral"
	// KindImport takes bulk pushes into the normal branches; it cannot be read from.
	KindImport Kind = "import"
)

// RemoteURLParams says what a remote URL opens.
type RemoteURLParams struct {
	// RepoName is the repository. Required.
	RepoName string
	// Scopes is what the URL allows: "git:read", "git:write"; git:read when empty.
	Scopes []string
	// TTL is the lifetime, in whole seconds; 15 minutes when zero, one hour at most.
	TTL time.Duration
	// Kind is the remote; the normal one when empty.
	Kind Kind
	// RefPolicies restricts which refs can be pushed to, by stored full name: branch b of the ephemeral remote is
	// "refs/namespaces/ephemeral/refs/heads/b".
	RefPolicies []option.RefPolicy
}

// RemoteURL returns an authenticated URL for git clone, fetch and push. It is a secret until it expires. A client that was
// given a token puts that one in the URL, whatever the scopes and the lifetime asked for. Errors are those of
// cairn.Client.Token.
func RemoteURL(ctx context.Context, client *cairn.Client, params RemoteURLParams) (string, error) {
	if err := checkRepoName(params.RepoName); err != nil {
		return "", err
	}
	suffix := ".git"
	switch params.Kind {
	case KindNormal:
	case KindEphemeral, KindImport:
		suffix = "+" + string(params.Kind) + suffix
	default:
		return "", &cairn.ParamError{Param: "Kind", Problem: fmt.Sprintf("%q is not known", string(params.Kind))}
	}
	token, err := client.Token(ctx, cairn.TokenParams{
		RepoName: params.RepoName, Scopes: params.Scopes, TTL: params.TTL, RefPolicies: params.RefPolicies,
	})
	if err != nil {
		return "", err
	}
	u := client.BaseURL()
	u.RawPath = u.EscapedPath() + "/" + escapeSegments(params.RepoName) + suffix
	u.Path += "/" + params.RepoName + suffix
	u.User = url.UserPassword("t", token)
	return u.String(), nil
}

// SessionParams names the one branch of a sandbox.
type SessionParams struct {
	// RepoName is the repository. Required.
	RepoName string
	// Branch is the ephemeral branch that the sandbox may push to, without "refs/heads/". Required.
	Branch string
	// TTL is the lifetime of both URLs, in whole seconds; 15 minutes when zero, one hour at most.
	TTL time.Duration
}

// Remotes is the pair of URLs of a confined sandbox.
type Remotes struct {
	ReadURL  string // fetch URL: the normal remote, read only
	WriteURL string // push URL: the ephemeral remote, fast-forwards of the session branch only
}

// SessionRemotes returns the URLs that confine a sandbox to one branch: it reads the whole repository, and all it can change
// is the ephemeral branch, by creating or fast-forwarding it. Errors are those of RemoteURL; a client that was given a token
// gets cairn.ErrCannotConfine.
func SessionRemotes(ctx context.Context, client *cairn.Client, params SessionParams) (Remotes, error) {
	confined, err := policy.Confine(params.Branch)
	if err != nil {
		return Remotes{}, &cairn.ParamError{Param: "Branch", Problem: fmt.Sprintf("%q is not a short branch name", params.Branch)}
	}
	policies := make([]option.RefPolicy, len(confined))
	for i, rule := range confined {
		policies[i].Pattern = rule.Pattern
		for _, op := range rule.Ops {
			policies[i].Ops = append(policies[i].Ops, string(op))
		}
	}
	read, err := RemoteURL(ctx, client, RemoteURLParams{
		RepoName: params.RepoName, Scopes: []string{"git:read"}, TTL: params.TTL,
	})
	if err != nil {
		return Remotes{}, err
	}
	write, err := RemoteURL(ctx, client, RemoteURLParams{
		RepoName: params.RepoName, Scopes: []string{"git:read", "git:write"}, TTL: params.TTL, Kind: KindEphemeral,
		RefPolicies: policies,
	})
	if err != nil {
		return Remotes{}, err
	}
	return Remotes{ReadURL: read, WriteURL: write}, nil
}

// checkRepoName refuses names that would open another repository or remote than the token is for.
func checkRepoName(name string) error {
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return &cairn.ParamError{Param: "RepoName", Problem: fmt.Sprintf("%q has an empty or dot segment", name)}
		}
	}
	for _, suffix := range []string{".git", "+ephemeral", "+import"} {
		if strings.HasSuffix(name, suffix) {
			return &cairn.ParamError{Param: "RepoName",
				Problem: fmt.Sprintf("%q ends in %s: give the plain name, and the remote as Kind", name, suffix)}
		}
	}
	return nil
}

func escapeSegments(name string) string {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

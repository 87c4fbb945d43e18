package cli

import (
	"bytes"
	"context"
	"crypto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/git"
	"github.com/cairnstate/cairn/sdk/go/option"
)

// maxTTL is the longest lifetime that needs no --long-lived.
const maxTTL = time.Hour

// identity says who asks and for what: the flags of every command that mints a
// token.
type identity struct {
	org, key, kid, repo, thread, session, subject string

	scopes    []string
	policies  []string
	ttl       time.Duration
	longLived bool
}

func (id *identity) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&id.org, "org", "", "the `ORG` that issues the token (CAIRN_ORG)")
	f.StringVar(&id.key, "key", "", "sign with the private key in this PEM `FILE` (CAIRN_PRIVATE_KEY: PEM text or a path)")
	f.StringVar(&id.kid, "kid", "", "the key `ID` to name in the token's header")
	f.StringVar(&id.repo, "repo", "", "the `REPOSITORY` the token is for")
	f.StringVar(&id.thread, "thread", "", "the `THREAD` the token is for, or * for every thread")
	f.StringVar(&id.session, "session", "", "the `SESSION` the token is for")
	f.StringVar(&id.subject, "sub", "cairn-cli", "who acts, for the audit log and for revocation")
	f.StringSliceVar(&id.scopes, "scope", []string{string(auth.GitRead)}, "a `SCOPE` to grant: "+knownScopes)
	f.DurationVar(&id.ttl, "ttl", 15*time.Minute, "the token's lifetime; more than 1h needs --long-lived")
	f.BoolVar(&id.longLived, "long-lived", false, "allow a --ttl of more than one hour")
	f.StringArrayVar(&id.policies, "ref-policy", nil, "restrict changes of refs: `'PATTERN=op,op'` with no-force-push, no-push, verify-sig; the first pattern that matches decides")
}

// givenToken returns the token of the environment, "" when there is none. A file
// is read anew each time.
func givenToken(env Env) (string, error) {
	if t := env.Getenv("CAIRN_TOKEN"); t != "" {
		return t, nil
	}
	path := env.Getenv("CAIRN_TOKEN_FILE")
	if path == "" {
		return "", nil
	}
	b, err := env.ReadFile(path)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return "", usagef("CAIRN_TOKEN_FILE: the file cannot be read, or is empty")
	}
	return string(bytes.TrimSpace(b)), nil
}

// privateKey returns the private key that flags or the environment name: PEM
// text, or a path; "" when there is none.
func (id *identity) privateKey(env Env) string {
	return first(id.key, env.Getenv("CAIRN_PRIVATE_KEY"), env.Getenv("CAIRN_PRIVATE_KEY_FILE"), env.Getenv("PIERRE_PRIVATE_KEY"))
}

// signer loads the org and its private key from the flags and the environment.
func (id *identity) signer(env Env) (org string, key crypto.Signer, err error) {
	org = first(id.org, env.Getenv("CAIRN_ORG"), env.Getenv("PIERRE_ORG"))
	if org == "" {
		return "", nil, usagef("give the org with --org or CAIRN_ORG")
	}
	text := id.privateKey(env)
	if text == "" {
		return "", nil, usagef("give the org's private key with --key FILE or CAIRN_PRIVATE_KEY")
	}
	pem := []byte(text)
	if !strings.Contains(text, "-----BEGIN") {
		if pem, err = env.ReadFile(text); err != nil {
			return "", nil, usagef("cannot read the private key file") // the value may be a mangled key: not repeated
		}
	}
	key, err = auth.ParsePrivateKey(pem)
	if err != nil {
		return "", nil, usagef("the private key cannot be used: %v", err)
	}
	return org, key, nil
}

// mint signs a token for the given scopes and policies.
func (id *identity) mint(env Env, scopes []string, policies policy.List) (string, auth.Claims, error) {
	org, key, err := id.signer(env)
	if err != nil {
		return "", auth.Claims{}, err
	}
	switch {
	case id.ttl < time.Second:
		return "", auth.Claims{}, usagef("--ttl %s: want at least one second", id.ttl)
	case id.ttl > maxTTL && !id.longLived:
		return "", auth.Claims{}, usagef("--ttl %s: more than one hour needs --long-lived", id.ttl)
	}
	now := env.Now().Unix()
	claims := auth.Claims{
		Org: org, Subject: id.subject, Repo: id.repo, Thread: id.thread, Session: id.session,
		Policies: policies, IssuedAt: now, Expires: now + int64(id.ttl/time.Second),
	}
	for _, s := range scopes {
		claims.Scopes = append(claims.Scopes, auth.Scope(s))
		if !slices.Contains(strings.Split(knownScopes, ", "), s) {
			return "", auth.Claims{}, usagef("--scope %q is not known; the scopes are %s", s, knownScopes)
		}
		if p := (&auth.Principal{Claims: claims}); !p.Allows(auth.Scope(s)) {
			return "", auth.Claims{}, usagef("--scope %s grants nothing without %s", s, claimFor(s))
		}
	}
	token, err := auth.Mint(key, id.kid, claims)
	return token, claims, err
}

// knownScopes is what --scope takes. A token may hold others, which grant nothing.
const knownScopes = "git:read, git:write, repo:write, org:read, org:admin, checkpoint:read, checkpoint:write, session:write"

// claimFor names the flags that give a scope something to allow.
func claimFor(scope string) string {
	switch auth.Scope(scope) {
	case auth.CheckpointRead, auth.CheckpointWrite:
		return "--thread"
	case auth.SessionWrite:
		return "--session, --repo or --thread"
	}
	return "--repo"
}

func (id *identity) refPolicies() (policy.List, error) {
	var list policy.List
	for _, text := range id.policies {
		rule, err := policy.ParseRule(text)
		if err != nil {
			return nil, usagef("--ref-policy %q: %v", text, err)
		}
		list = append(list, rule)
	}
	return list, nil
}

// serverURL is the base URL of the server, without a slash at its end.
func serverURL(env Env) (*url.URL, error) {
	text := first(env.Getenv("CAIRN_URL"), "http://127.0.0.1:8080")
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, usagef("CAIRN_URL is not a URL such as https://git.example.com")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// remoteURL builds the URL of one remote of a repository, with the token in it.
func remoteURL(ctx context.Context, base *url.URL, repo string, kind git.Kind, token string) (string, error) {
	client, err := cairn.NewClient(option.WithBaseURL(base.String()), option.WithToken(token))
	if err == nil {
		var remote string
		remote, err = git.RemoteURL(ctx, client, git.RemoteURLParams{RepoName: repo, Kind: kind})
		if err == nil {
			return remote, nil
		}
	}
	return "", usageError{err}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

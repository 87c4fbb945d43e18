package cli

import (
	"crypto"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
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
	f.StringSliceVar(&id.scopes, "scope", []string{string(auth.GitRead)}, "a `SCOPE` to grant: git:read, git:write, repo:write, org:read, checkpoint:read, checkpoint:write, session:write")
	f.DurationVar(&id.ttl, "ttl", 15*time.Minute, "the token's lifetime; more than 1h needs --long-lived")
	f.BoolVar(&id.longLived, "long-lived", false, "allow a --ttl of more than one hour")
	f.StringArrayVar(&id.policies, "ref-policy", nil, "restrict changes of refs: `'PATTERN=op,op'` with no-force-push, no-push, verify-sig; the first pattern that matches decides")
}

// signer loads the org and its private key from the flags and the environment.
func (id *identity) signer(env Env) (org string, key crypto.Signer, err error) {
	org = first(id.org, env.Getenv("CAIRN_ORG"), env.Getenv("PIERRE_ORG"))
	if org == "" {
		return "", nil, usagef("give the org with --org or CAIRN_ORG")
	}
	text := first(id.key, env.Getenv("CAIRN_PRIVATE_KEY"))
	if text == "" {
		if path := env.Getenv("CAIRN_PRIVATE_KEY_FILE"); path != "" {
			text = path
		}
	}
	if text == "" {
		text = env.Getenv("PIERRE_PRIVATE_KEY")
	}
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
		if p := (&auth.Principal{Claims: claims}); !p.Allows(auth.Scope(s)) {
			return "", auth.Claims{}, usagef("--scope %s grants nothing without %s", s, claimFor(s))
		}
	}
	token, err := auth.Mint(key, id.kid, claims)
	return token, claims, err
}

func claimFor(scope string) string {
	switch kind, _, _ := strings.Cut(scope, ":"); kind {
	case "git", "repo":
		return "--repo"
	case "checkpoint":
		return "--thread"
	case "session":
		return "--session, --repo or --thread"
	}
	return "being one of the known scopes"
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
func remoteURL(base *url.URL, repo, suffix, token string) string {
	segments := strings.Split(repo, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	user := ""
	if token != "" {
		user = "t:" + token + "@"
	}
	return fmt.Sprintf("%s://%s%s%s/%s%s.git", base.Scheme, user, base.Host, base.EscapedPath(), strings.Join(segments, "/"), suffix)
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

package cairn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/sdk/go/option"
)

// Lifetimes of minted tokens.
const (
	DefaultTTL = 15 * time.Minute
	MaxTTL     = time.Hour
)

// ErrCannotConfine is returned when ref policies are asked of a client that uses a given token: it cannot change what that
// token allows.
var ErrCannotConfine = errors.New("a given token cannot be confined by ref policies: use a client with a private key")

// ParamError says which parameter of a call is wrong.
type ParamError struct {
	Param   string
	Problem string
}

// Error names the parameter and the problem.
func (e *ParamError) Error() string { return e.Param + " " + e.Problem }

// TokenParams says what a token allows.
type TokenParams struct {
	// RepoName is the repository the token is for. Required, unless Thread is given.
	RepoName string
	// Thread is the thread of checkpoints the token is for, "*" for every one.
	Thread string
	// Scopes is what the token allows there; git:read when empty. Those of checkpoints need Thread, those of Git RepoName.
	Scopes []string
	// TTL is the lifetime, in whole seconds; 15 minutes when zero, one hour at most.
	TTL time.Duration
	// RefPolicies restricts which refs the token may change, in order.
	RefPolicies []option.RefPolicy
}

// Token mints a token. A client that was given a token returns that one, whatever the scopes and the lifetime asked for,
// and ErrCannotConfine when there are ref policies. Other errors are *ParamError, or *ConfigError where a token file cannot
// be read.
func (c *Client) Token(ctx context.Context, p TokenParams) (string, error) {
	claims, err := c.claims(p)
	if err != nil {
		return "", err
	}
	if c.key == nil {
		if len(p.RefPolicies) > 0 {
			return "", ErrCannotConfine
		}
		return c.givenToken(ctx)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return auth.Mint(c.key, c.keyID, claims)
}

func (c *Client) claims(p TokenParams) (auth.Claims, error) {
	if p.RepoName == "" && p.Thread == "" {
		return auth.Claims{}, &ParamError{"RepoName", "is empty"}
	}
	ttl, err := checkTTL(p.TTL)
	if err != nil {
		return auth.Claims{}, err
	}
	now := time.Now().Unix()
	claims := auth.Claims{
		Org: c.org, Subject: c.subject, Repo: p.RepoName, Thread: p.Thread, IssuedAt: now, Expires: now + int64(ttl/time.Second),
	}
	for _, scope := range p.Scopes {
		if scope == "" {
			return auth.Claims{}, &ParamError{"Scopes", "holds an empty scope"}
		}
		claims.Scopes = append(claims.Scopes, auth.Scope(scope))
	}
	if len(p.Scopes) == 0 {
		claims.Scopes = []auth.Scope{auth.GitRead}
	}
	for _, rule := range p.RefPolicies {
		ops := make([]policy.Op, len(rule.Ops))
		for i, op := range rule.Ops {
			ops[i] = policy.Op(op)
		}
		r, err := policy.NewRule(rule.Pattern, ops)
		if err != nil {
			return auth.Claims{}, &ParamError{"RefPolicies", fmt.Sprintf("cannot be used: %v", err)}
		}
		claims.Policies = append(claims.Policies, r)
	}
	return claims, nil
}

func checkTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return DefaultTTL, nil
	case ttl < time.Second:
		return 0, &ParamError{"TTL", fmt.Sprintf("is %s: want at least one second", ttl)}
	case ttl > MaxTTL:
		return 0, &ParamError{"TTL", fmt.Sprintf("is %s: want %s at most", ttl, MaxTTL)}
	}
	return ttl, nil
}

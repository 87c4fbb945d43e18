package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/policy"
)

// MaxTokenSize is the size in bytes above which a token is refused unread.
const MaxTokenSize = 16 << 10

// header is the JOSE header. A typ is ignored; a crit names extensions that must be understood, and none is.
type header struct {
	Algorithm string          `json:"alg"`
	Type      json.RawMessage `json:"typ,omitempty"`
	KeyID     string          `json:"kid,omitempty"`
	Critical  json.RawMessage `json:"crit,omitempty"`
}

// payload is the wire form of Claims.
type payload struct {
	Issuer    string      `json:"iss"`
	Subject   string      `json:"sub,omitempty"`
	Repo      string      `json:"repo,omitempty"`
	Thread    string      `json:"thread,omitempty"`
	Session   string      `json:"session,omitempty"`
	Scopes    []Scope     `json:"scopes"`
	IssuedAt  seconds     `json:"iat,omitempty"`
	NotBefore seconds     `json:"nbf,omitempty"`
	Expires   *seconds    `json:"exp"`
	Refs      policy.List `json:"refs,omitempty"`
	Ops       []policy.Op `json:"ops,omitempty"`
}

// seconds is a NumericDate in whole Unix seconds. Fractions are dropped, so that a token never lives longer than it says.
type seconds int64

// UnmarshalJSON accepts any non-negative number below 2^53.
func (s *seconds) UnmarshalJSON(data []byte) error {
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f < 0 || f >= 1<<53 {
		return errors.New("time out of range")
	}
	*s = seconds(math.Floor(f))
	return nil
}

// token is a token taken apart, nothing of it verified.
type token struct {
	header    header
	payload   payload
	signed    string // what the signature covers
	signature []byte
}

func parse(raw string) (*token, *TokenError) {
	if err := checkSize(raw); err != nil {
		return nil, err
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, malformed("want 3 parts separated by dots, got %d", len(parts))
	}
	t := &token{signed: raw[:len(raw)-len(parts[2])-1]}
	if err := decodePart(parts[0], &t.header); err != nil {
		return nil, malformed("header: %s", err)
	}
	if err := decodePart(parts[1], &t.payload); err != nil {
		return nil, malformed("claims: %s", err)
	}
	var err error
	if t.signature, err = encoding.DecodeString(parts[2]); err != nil {
		return nil, malformed("signature is not base64url")
	}
	if t.payload.Issuer == "" {
		return nil, malformed("no iss claim: it names the organisation")
	}
	if t.header.Critical != nil {
		return nil, malformed("header has crit, and no extension is supported")
	}
	return t, nil
}

// claims returns what the token says, legacy ops folded into the policies.
func (t *token) claims() (Claims, *TokenError) {
	p := &t.payload
	policies, err := p.Refs.FoldOps(p.Ops)
	if err != nil {
		return Claims{}, malformed("ops: %s", err)
	}
	c := Claims{
		Org: p.Issuer, Subject: p.Subject, Repo: p.Repo, Thread: p.Thread, Session: p.Session,
		Scopes: p.Scopes, Policies: policies, IssuedAt: int64(p.IssuedAt),
	}
	if p.Expires == nil {
		return Claims{}, malformed("no exp claim: every token ends")
	}
	c.Expires = int64(*p.Expires)
	return c, nil
}

// Expires returns when a token says that it ends. Nothing of it is verified: it is for the token's holder.
func Expires(raw string) (time.Time, error) {
	t, bad := parse(raw)
	if bad != nil {
		return time.Time{}, bad
	}
	c, bad := t.claims()
	if bad != nil {
		return time.Time{}, bad
	}
	return time.Unix(c.Expires, 0), nil
}

// Issuer returns the org that a token says it is of. Nothing of it is verified: it is for the token's holder.
func Issuer(raw string) (string, error) {
	t, bad := parse(raw)
	if bad != nil {
		return "", bad
	}
	c, bad := t.claims()
	if bad != nil {
		return "", bad
	}
	return c.Org, nil
}

var encoding = base64.RawURLEncoding.Strict()

func checkSize(raw string) *TokenError {
	if raw == "" {
		return &TokenError{TokenMissing, "no token: send it as a Bearer token or as the password of Basic credentials"}
	}
	if len(raw) > MaxTokenSize {
		return malformed("longer than %d bytes", MaxTokenSize)
	}
	return nil
}

// decodePart reads one base64url part. Its errors name fields and types, never content.
func decodePart(part string, into any) error {
	data, err := encoding.DecodeString(part)
	if err != nil {
		return errors.New("not base64url")
	}
	err = json.Unmarshal(data, into)
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return fmt.Errorf("unexpected %s in %q", wrongType.Value, wrongType.Field)
	case errors.As(err, &syntax):
		return errors.New("not JSON")
	}
	return err
}

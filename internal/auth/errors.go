package auth

import (
	"fmt"
	"time"
)

// Code is the machine-readable kind of a TokenError, as REST answers carry it.
type Code string

// The codes of TokenError. All of them mean 401.
const (
	TokenMissing     Code = "token_missing"
	TokenMalformed   Code = "token_malformed"
	TokenExpired     Code = "token_expired"
	TokenNotYetValid Code = "token_not_yet_valid"
	TokenSignature   Code = "token_signature"
	TokenAlgorithm   Code = "token_algorithm"
	TokenSuperseded  Code = "token_superseded"
	TokenLifetime    Code = "token_lifetime"
)

// TokenError says why a token is refused. Message is one sentence for the client; it never contains the token.
type TokenError struct {
	Code    Code
	Message string
}

// Error returns the message.
func (e *TokenError) Error() string { return e.Message }

// Superseded is the error for a token that a floor refuses: it was revoked, or its session was handed off.
func Superseded() *TokenError {
	return &TokenError{TokenSuperseded, "token was revoked or replaced by a newer one: get a new token"}
}

// Floor returns a TokenSuperseded error when p's token was issued at or before notBefore, or does not say when. Both are in
// Unix seconds; a notBefore of zero is no floor. A token minted in the very second of the floor is refused.
func Floor(notBefore int64, p *Principal) error {
	if notBefore > 0 && p.IssuedAt <= notBefore {
		return Superseded()
	}
	return nil
}

func malformed(format string, args ...any) *TokenError {
	return &TokenError{TokenMalformed, "token is malformed: " + fmt.Sprintf(format, args...)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

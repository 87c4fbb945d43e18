package githttp

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"strings"
)

// Credential is the token of a request. Printing or logging it shows no secret.
type Credential struct {
	Token string
	// Agent is what the client calls itself, for the audit log; it proves nothing.
	Agent string
}

var _ slog.LogValuer = Credential{}

// String hides the token.
func (Credential) String() string { return "[credential]" }

// GoString hides the token from %#v.
func (c Credential) GoString() string { return c.String() }

// LogValue hides the token.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// credential reads the token of a Basic (any user, the password) or Bearer
// Authorization header. It reports false when there is none.
func credential(r *http.Request) (Credential, bool) {
	scheme, value, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	value = strings.TrimSpace(value)
	switch strings.ToLower(scheme) {
	case "bearer":
		return Credential{value, r.UserAgent()}, value != ""
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return Credential{}, false
		}
		_, password, _ := strings.Cut(string(plain), ":")
		return Credential{password, r.UserAgent()}, password != ""
	}
	return Credential{}, false
}

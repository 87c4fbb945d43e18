// Package upstream lets repositories follow ones on other hosts. It is a Git
// client over HTTPS, of protocol version 2 and for fetching only, and the work
// that runs syncs: each is a row with a lease, taken by one process at a time
// and begun anew by another when that one dies.
package upstream

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/cairnstate/cairn/internal/netguard"
)

// Source names a repository on another host.
type Source struct {
	Provider string
	Host     string // host or host:port; "" means the provider's own
	Owner    string
	Name     string
}

// InvalidError refuses a Source or what it would lead to.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) *InvalidError {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// provider is a kind of host.
type provider struct {
	host   string // "" must be named
	fixed  bool   // no other host is possible
	user   string // with which a token is sent when the credential names none
	nested bool   // owners may be groups in groups
	home   bool   // owners begin with "~" and URLs do not end in ".git"
}

var providers = map[string]provider{
	"github":    {host: "github.com", fixed: true, user: "x-access-token"},
	"gitlab":    {host: "gitlab.com", user: "oauth2", nested: true},
	"bitbucket": {host: "bitbucket.org", user: "x-token-auth"},
	"gitea":     {user: "git"},
	"forgejo":   {user: "git"},
	"codeberg":  {host: "codeberg.org", user: "git"},
	"sr.ht":     {host: "git.sr.ht", user: "git", home: true},
}

// Bounds of names, in bytes.
const (
	maxOwner = 255
	maxName  = 255
)

var segment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// Normalize checks a source as far as that can be done without a network, and
// fills in the provider's host. The error is an *InvalidError.
func (s Source) Normalize() (Source, error) {
	p, ok := providers[s.Provider]
	if !ok {
		return s, invalid("provider %.40q is not known: use github, gitlab, bitbucket, gitea, forgejo, codeberg or sr.ht", s.Provider)
	}
	s.Host = strings.ToLower(s.Host)
	switch {
	case s.Host == "" && p.host == "":
		return s, invalid("upstream_host is missing: provider %s has no host of its own", s.Provider)
	case s.Host == "":
		s.Host = p.host
	case p.fixed && s.Host != p.host:
		return s, invalid("upstream_host cannot be given for provider %s", s.Provider)
	}
	host, port, err := net.SplitHostPort(s.Host)
	if err != nil {
		host, port = s.Host, "443"
	}
	if !netguard.IsHostName(host) && net.ParseIP(host) == nil || strings.Trim(port, "0123456789") != "" || port == "" || len(port) > 5 {
		return s, invalid("upstream_host %.100q is not a host name", s.Host)
	}
	if err := checkOwner(s.Owner, p); err != nil {
		return s, err
	}
	s.Name = strings.TrimSuffix(s.Name, ".git")
	if len(s.Name) > maxName || !segment.MatchString(strings.TrimLeft(s.Name, ".")) || strings.Contains(s.Name, "..") || strings.HasSuffix(s.Name, ".lock") {
		return s, invalid("the name %.80q of the upstream is not one that provider %s has", s.Name, s.Provider)
	}
	return s, nil
}

func checkOwner(owner string, p provider) error {
	plain := owner
	if p.home {
		plain = strings.TrimPrefix(owner, "~")
	}
	bad := plain == "" || len(owner) > maxOwner || (!p.nested && strings.Contains(plain, "/"))
	for s := range strings.SplitSeq(plain, "/") {
		bad = bad || !segment.MatchString(s) || strings.Contains(s, "..")
	}
	if bad {
		return invalid("the owner %.80q of the upstream is not a name that can be used", owner)
	}
	return nil
}

// url is where a normalized source is asked. plain says that its host is asked
// without TLS.
func (s Source) url(plain bool) *url.URL {
	u := &url.URL{Scheme: "https", Host: s.Host, Path: "/" + s.Owner + "/" + s.Name + ".git"}
	if plain {
		u.Scheme = "http"
	}
	if providers[s.Provider].home {
		u.Path = "/~" + strings.TrimPrefix(s.Owner, "~") + "/" + s.Name
	}
	return u
}

// DefaultHost is the host that a provider has of its own, "" for none.
func DefaultHost(name string) string { return providers[name].host }

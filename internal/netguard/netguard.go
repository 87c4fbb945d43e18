// Package netguard keeps requests that others ask the server to make away from
// the server's own networks. Which address is dialled is checked after the name
// was resolved, at each connection, so that neither a redirect nor a name that
// resolves to something else the second time gets around it.
package netguard

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// RefusedError says which host may not be connected to and why. It holds no
// address that a name resolved to.
type RefusedError struct {
	Host   string
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("host %.200q is refused: %s", e.Host, e.Reason)
}

// Guard decides which hosts may be connected to: those with a public address,
// and those that the operator allowed. It is safe for concurrent use.
type Guard struct {
	// Resolver looks names up; nil means the system's. Set it before use.
	Resolver *net.Resolver

	hosts    map[string]bool // "host" or "host:port", lower case
	prefixes []netip.Prefix
}

// New makes a Guard that allows, beside public addresses, what the entries name:
// HOST, HOST:PORT, an address, [ADDRESS]:PORT, or a range such as 10.1.0.0/16.
// A host may then be asked by plain http too, and whatever it resolves to.
func New(allow []string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}}
	for _, entry := range allow {
		if err := g.add(strings.ToLower(strings.TrimSpace(entry))); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *Guard) add(entry string) error {
	if p, err := netip.ParsePrefix(entry); err == nil {
		g.prefixes = append(g.prefixes, p.Masked())
		return nil
	}
	if a, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		g.hosts[a.String()] = true
		return nil
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = entry, ""
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	} else if !IsHostName(host) {
		return fmt.Errorf("%q is not a host, HOST:PORT, an address or a range of addresses", entry)
	}
	if port == "" {
		g.hosts[host] = true
		return nil
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q does not end in a port number", entry)
	}
	g.hosts[net.JoinHostPort(host, port)] = true
	return nil
}

// IsHostName reports whether text is a host name of letters, digits, hyphens and
// dots as DNS has it, of at most 253 bytes, and no address.
func IsHostName(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
		last = label
	}
	// A last label of digits, or 0x and digits, is an old form of an address.
	return (last[0] < '0' || last[0] > '9')
}

// Allows reports whether the operator allowed this host and port by name or
// address.
func (g *Guard) Allows(host, port string) bool {
	host = strings.ToLower(host)
	a, err := netip.ParseAddr(host)
	if err == nil {
		host = a.String()
	}
	return g.hosts[host] || g.hosts[net.JoinHostPort(host, port)] || err == nil && g.inAllowedRange(a)
}

func (g *Guard) inAllowedRange(a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range g.prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckURL refuses, before anything is resolved, a URL that certainly may not be
// asked: of another scheme than https (http too for an allowed host), with a
// user, without a host, or with an address that is not public.
func (g *Guard) CheckURL(u *url.URL) error {
	host, port := u.Hostname(), Port(u)
	allowed := g.Allows(host, port)
	switch {
	case host == "":
		return &RefusedError{Host: u.Host, Reason: "the URL names no host"}
	case u.User != nil:
		return &RefusedError{Host: host, Reason: "the URL holds a user name"}
	case u.Scheme != "https" && (u.Scheme != "http" || !allowed):
		return &RefusedError{Host: host, Reason: "only https is allowed"}
	case allowed:
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return g.check(host, a)
	}
	if !IsHostName(strings.TrimSuffix(host, ".")) {
		return &RefusedError{Host: host, Reason: "this is not a host name"}
	}
	return nil
}

// Port is the port that a URL is asked at.
func Port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

func (g *Guard) check(host string, a netip.Addr) error {
	if g.inAllowedRange(a) || IsPublic(a) {
		return nil
	}
	return &RefusedError{Host: host, Reason: "it is not on the public network; the operator can allow it"}
}

// DialContext connects to host:port over TCP. Every address that the name
// resolves to is checked just before it is connected to.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Resolver: g.Resolver}
	if !g.Allows(host, port) {
		d.Control = func(_, resolved string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return &RefusedError{Host: host, Reason: "it resolves to nothing that can be checked"}
			}
			return g.check(host, ap.Addr())
		}
	}
	return d.DialContext(ctx, network, address)
}

// Transport returns an HTTP transport that connects through the guard and uses
// no proxy. conf may be nil.
func (g *Guard) Transport(conf *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext:            g.DialContext,
		TLSClientConfig:        conf,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    15 * time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    2,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

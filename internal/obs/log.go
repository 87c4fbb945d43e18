// Package obs is what an operator sees of a running server: structured logs that
// never hold a credential, and Prometheus metrics.
package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"unicode/utf8"
)

// NewLogger returns a logger that writes one line per record to w, as JSON or
// text, from the given level (debug, info, warn, error) on. Whatever looks like
// a token, a Basic credential or a password in a URL is replaced in messages and
// in every attribute, so that no careless caller can leak one.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is not debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: redactAttr}
	switch format {
	case "json":
		return slog.New(redactor{slog.NewJSONHandler(w, opts)}), nil
	case "text":
		return slog.New(redactor{slog.NewTextHandler(w, opts)}), nil
	}
	return nil, fmt.Errorf("log format %q is not json or text", format)
}

const hidden = "[hidden]"

// secrets matches what must not be logged: compact JWTs (and the Base64 of
// "t:<jwt>" that Basic sends), passwords in URLs, and private keys.
var secrets = regexp.MustCompile(
	`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*` +
		`|(?i:\b(?:basic|bearer)\s+)[A-Za-z0-9+/_=.-]{16,}` +
		`|://[^/@\s"]+@` +
		`|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`)

// plain reports that no part of s can match secrets. It is much faster, and
// true of nearly all that is logged.
func plain(s string) bool {
	for i := range len(s) {
		begins := func(word string) bool {
			return len(s)-i >= len(word) && strings.EqualFold(s[i:i+len(word)], word)
		}
		switch c := s[i]; {
		case c == 'e' && begins("eyJ"),
			(c == 'b' || c == 'B') && (begins("basic") || begins("bearer")),
			c == ':' && begins("://"),
			c == '-' && begins("-----BEGIN"),
			c >= utf8.RuneSelf: // letters that fold to those above
			return false
		}
	}
	return true
}

// Redact returns s without anything that looks like a credential.
func Redact(s string) string {
	if plain(s) {
		return s
	}
	return secrets.ReplaceAllStringFunc(s, func(m string) string {
		if len(m) > 3 && m[:3] == "://" {
			return "://" + hidden + "@"
		}
		return hidden
	})
}

func redactAttr(_ []string, a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, Redact(v.String()))
	case slog.KindAny:
		if _, ok := v.Any().(*slog.Source); ok {
			return a
		}
		return slog.String(a.Key, Redact(fmt.Sprint(v.Any())))
	}
	return a
}

// redactor cleans the message, which ReplaceAttr may not see as a string of its
// own.
type redactor struct{ slog.Handler }

func (h redactor) Handle(ctx context.Context, r slog.Record) error {
	r.Message = Redact(r.Message)
	return h.Handler.Handle(ctx, r)
}

func (h redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	return redactor{h.Handler.WithAttrs(attrs)}
}

func (h redactor) WithGroup(name string) slog.Handler { return redactor{h.Handler.WithGroup(name)} }

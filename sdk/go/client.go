// Package cairn is the Go SDK of Cairn. A client mints tokens with an organisation's private key, without asking the server;
// or, inside a sandbox, it uses the token it was given.
package cairn

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/sdk/go/option"
)

const (
	defaultBaseURL = "http://127.0.0.1:8080"
	defaultSubject = "cairn-sdk-go"

	maxSecretFile = 64 << 10 // bytes
)

// ConfigError says which setting of a client is missing or wrong. It never contains a secret.
type ConfigError struct {
	Setting string
	Problem string
	Err     error // the cause, or nil
}

// Error names the setting and what to do about it.
func (e *ConfigError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s %s: %v", e.Setting, e.Problem, e.Err)
	}
	return e.Setting + " " + e.Problem
}

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Client is one organisation's access to one server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	org     string
	subject string

	key   crypto.Signer // nil when a given token is used
	keyID string

	token     string
	tokenFile string
}

// NewClient makes a client from the environment and opts, opts first:
//
//   - CAIRN_URL is the server; http://127.0.0.1:8080 when unset.
//   - CAIRN_ORG and CAIRN_PRIVATE_KEY (PEM text, also with \n escapes, or a path) mint tokens. PIERRE_ORG and
//     PIERRE_PRIVATE_KEY serve where those are unset.
//   - CAIRN_TOKEN, or CAIRN_TOKEN_FILE, is a token that is used as it is.
//
// Exactly one of key, token and token file must be given. Errors are *ConfigError.
func NewClient(opts ...option.ClientOption) (*Client, error) {
	var o option.Client
	for _, opt := range opts {
		opt(&o)
	}
	if err := fillFromEnvironment(&o); err != nil {
		return nil, err
	}
	base, err := parseBaseURL(o.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base: base, org: o.Org, subject: o.Subject, keyID: o.KeyID, token: o.Token, tokenFile: o.TokenFile,
	}
	if o.PrivateKey == "" {
		return c, nil
	}
	if c.org == "" {
		return nil, &ConfigError{Setting: "CAIRN_ORG", Problem: "is not set: a private key needs the name of its organisation"}
	}
	if c.key, err = loadKey(o.PrivateKey); errors.Is(err, fs.ErrNotExist) {
		return nil, &ConfigError{Setting: "CAIRN_PRIVATE_KEY", Problem: "is neither a key in PEM nor the path of a file"}
	} else if err != nil {
		return nil, &ConfigError{Setting: "CAIRN_PRIVATE_KEY", Problem: "cannot be used", Err: err}
	}
	return c, nil
}

// BaseURL returns the address of the server, without a slash at its end.
func (c *Client) BaseURL() *url.URL {
	u := *c.base
	return &u
}

// Org returns the organisation whose access this is: of a given token the one that it names, "" where it cannot be read.
func (c *Client) Org() string {
	if c.key != nil {
		return c.org
	}
	token, err := c.givenToken(context.Background())
	if err != nil {
		return ""
	}
	org, err := auth.Issuer(token)
	if err != nil {
		return ""
	}
	return org
}

func fillFromEnvironment(o *option.Client) error {
	set := func(field *string, names ...string) {
		for _, name := range names {
			if *field == "" {
				*field = os.Getenv(name)
			}
		}
	}
	set(&o.BaseURL, "CAIRN_URL")
	set(&o.Org, "CAIRN_ORG", "PIERRE_ORG")
	if credentials(o) == 0 {
		set(&o.Token, "CAIRN_TOKEN")
		set(&o.TokenFile, "CAIRN_TOKEN_FILE")
		set(&o.PrivateKey, "CAIRN_PRIVATE_KEY")
	}
	if credentials(o) == 0 {
		set(&o.PrivateKey, "PIERRE_PRIVATE_KEY")
	}
	switch credentials(o) {
	case 0:
		return &ConfigError{Setting: "CAIRN_PRIVATE_KEY", Problem: "is not set, nor CAIRN_TOKEN or CAIRN_TOKEN_FILE: set one"}
	case 1:
	default:
		return &ConfigError{Setting: "CAIRN_PRIVATE_KEY, CAIRN_TOKEN or CAIRN_TOKEN_FILE",
			Problem: "is one too many: keep one, so that it is clear what a URL allows"}
	}
	if o.BaseURL == "" {
		o.BaseURL = defaultBaseURL
	}
	if o.Subject == "" {
		o.Subject = defaultSubject
	}
	return nil
}

func credentials(o *option.Client) int {
	n := 0
	for _, s := range []string{o.PrivateKey, o.Token, o.TokenFile} {
		if s != "" {
			n++
		}
	}
	return n
}

func parseBaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The cause quotes the URL, which may hold a password.
		return nil, &ConfigError{Setting: "CAIRN_URL", Problem: "is not a URL"}
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, &ConfigError{Setting: "CAIRN_URL", Problem: "must begin with http:// or https://"}
	case u.Host == "":
		return nil, &ConfigError{Setting: "CAIRN_URL", Problem: "names no host"}
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, &ConfigError{Setting: "CAIRN_URL", Problem: "must be scheme, host and path only"}
	}
	u.RawPath = strings.TrimRight(u.EscapedPath(), "/")
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func loadKey(pemOrPath string) (crypto.Signer, error) {
	text := []byte(pemOrPath)
	if !strings.Contains(pemOrPath, "-----BEGIN") {
		var err error
		if text, err = readSecret(pemOrPath); err != nil {
			return nil, err
		}
	}
	return auth.ParsePrivateKey(text)
}

// readSecret reads a small file. What looks like a path may be a mangled key, so errors do not repeat it.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		var withPath *os.PathError
		if errors.As(err, &withPath) {
			err = withPath.Err
		}
		return nil, fmt.Errorf("open file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return nil, errors.New("read file: it cannot be read")
	}
	if len(text) > maxSecretFile {
		return nil, fmt.Errorf("read file: it is longer than %d bytes", maxSecretFile)
	}
	return text, nil
}

// givenToken returns the token that the client was made with.
func (c *Client) givenToken(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	token, setting := c.token, "CAIRN_TOKEN"
	if c.tokenFile != "" {
		setting = "CAIRN_TOKEN_FILE"
		text, err := readSecret(c.tokenFile)
		if err != nil {
			return "", &ConfigError{Setting: setting, Problem: "cannot be read", Err: err}
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	if !looksLikeToken(token) {
		return "", &ConfigError{Setting: setting, Problem: "does not hold a token: want three base64url parts joined by dots"}
	}
	return token, nil
}

func looksLikeToken(s string) bool {
	if len(s) > auth.MaxTokenSize || strings.Count(s, ".") != 2 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) < 0
}

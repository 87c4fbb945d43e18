package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
)

func newCredential(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "credential get|store|erase", Short: "Give git the token of the environment", Args: cobra.ExactArgs(1),
		Long: `Give git the token of CAIRN_TOKEN or CAIRN_TOKEN_FILE, as a Git credential helper: then
no URL needs to hold a token, and a token that is replaced in the file serves the next
request. Only the server that CAIRN_URL names is given it. In a sandbox:

  export CAIRN_URL=https://git.example.com CAIRN_TOKEN_FILE=/run/cairn/token
  git config --global credential.$CAIRN_URL.helper '!cairn credential'
  git clone $CAIRN_URL/my-project.git

git calls it with get, store or erase, and the attributes of git-credential(1) on
standard input. It stores and erases nothing.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] != "get" {
				return nil // nothing is kept; and what git may ask one day is passed over, as its documentation wants
			}
			return giveCredential(env)
		},
	}
}

// giveCredential answers one question of git. What is not for this helper it
// leaves to the next; a token that cannot serve ends git's search, for nobody can
// type a better one.
func giveCredential(env Env) error {
	asked, err := readAttributes(env.Stdin)
	if err != nil {
		return err
	}
	base, err := serverURL(env)
	if err != nil {
		return err
	}
	if !covers(base, asked) {
		return nil
	}
	token, ends, err := usableToken(env)
	if err != nil {
		fmt.Fprintln(env.Stdout, "quit=1")
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "username=t\npassword=%s\npassword_expiry_utc=%d\n", token, ends.Unix())
	return err
}

// usableToken returns the token of the environment and when it ends.
func usableToken(env Env) (string, time.Time, error) {
	token, err := givenToken(env)
	if err != nil {
		return "", time.Time{}, err
	}
	if token == "" {
		return "", time.Time{}, usagef("no token for git: set CAIRN_TOKEN, or CAIRN_TOKEN_FILE to the file that holds it")
	}
	if strings.ContainsAny(token, "\r\n\x00") {
		return "", time.Time{}, usagef("no token for git: what CAIRN_TOKEN or its file holds is not one line")
	}
	ends, err := auth.Expires(token)
	if err != nil {
		return "", time.Time{}, usagef("no token for git: what CAIRN_TOKEN or its file holds is not a token")
	}
	if !env.Now().Before(ends.Add(maxSkew)) {
		return "", time.Time{}, &auth.TokenError{Code: auth.TokenExpired, Message: fmt.Sprintf("the token for git expired at %s: write a new one to the file that CAIRN_TOKEN_FILE names", stamp(ends))}
	}
	return token, ends, nil
}

// maxAttributes bounds what git may say about one credential, in bytes.
const maxAttributes = 64 << 10

// readAttributes reads git's description of a credential: key=value lines to the
// first empty one.
func readAttributes(r io.Reader) (map[string]string, error) {
	attributes := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(r, maxAttributes))
	lines.Buffer(nil, maxAttributes)
	for lines.Scan() && lines.Text() != "" {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok {
			return nil, usagef("standard input is not a credential as git describes it: want lines of the form key=value")
		}
		attributes[key] = value
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, usagef("standard input is not a credential as git describes it: a line is too long")
	} else if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return attributes, nil
}

// covers says whether git asks for a credential of the server at base. A path is
// compared where git names it (credential.useHttpPath).
func covers(base *url.URL, asked map[string]string) bool {
	if asked["protocol"] != base.Scheme || !strings.EqualFold(withPort(asked["host"], base.Scheme), withPort(base.Host, base.Scheme)) {
		return false
	}
	prefix, path := strings.Trim(base.Path, "/"), strings.TrimPrefix(asked["path"], "/")
	return path == "" || prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// withPort adds the scheme's port to a host without one.
func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), map[string]string{"http": "80", "https": "443"}[scheme])
}

package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/sdk/go/git"
)

type urlOptions struct {
	identity
	ephemeral, asImport bool
	confine, sha        string
	format              string
}

func newURL(env Env) *cobra.Command {
	var o urlOptions
	cmd := &cobra.Command{
		Use: "url --repo R", Short: "Print a remote URL for git, with a token in it", Args: cobra.NoArgs,
		Long: `Print a URL for git clone, fetch and push. It is a secret until its token expires.
Without a private key the token of CAIRN_TOKEN or CAIRN_TOKEN_FILE is put into it as it is.

With --confine BRANCH two URLs are made for a sandbox: READ_URL reads the whole
repository, WRITE_URL can do nothing but create or fast-forward the ephemeral branch
BRANCH. As --format sh the git lines that set a sandbox up follow.`,
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.ephemeral, "ephemeral", false, "the remote of the ephemeral branches")
	f.BoolVar(&o.asImport, "import", false, "the remote for bulk pushes")
	f.StringVar(&o.confine, "confine", "", "confine a sandbox to this ephemeral `BRANCH`")
	f.StringVar(&o.sha, "sha", "", "the commit that the sandbox starts from, 40 hexadecimal digits (BASE_SHA)")
	f.StringVar(&o.format, "format", "env", "with --confine: env, sh or json")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if o.repo == "" {
			return usagef("give the repository with --repo")
		}
		if o.ephemeral && o.asImport {
			return usagef("give either --ephemeral or --import")
		}
		if o.confine != "" {
			return o.printConfined(c.Context(), env, c.Flags().Changed("scope"))
		}
		if c.Flags().Changed("format") || o.sha != "" {
			return usagef("--format and --sha go with --confine")
		}
		return o.print(c, env)
	}
	return cmd
}

func (o *urlOptions) kind() git.Kind {
	switch {
	case o.ephemeral:
		return git.KindEphemeral
	case o.asImport:
		return git.KindImport
	}
	return git.KindNormal
}

func (o *urlOptions) print(cmd *cobra.Command, env Env) error {
	base, err := serverURL(env)
	if err != nil {
		return err
	}
	token, err := o.token(cmd, env)
	if err != nil {
		return err
	}
	text, err := remoteURL(cmd.Context(), base, o.repo, o.kind(), token)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, text)
	return err
}

// token mints a token, or without a private key returns the given one.
func (o *urlOptions) token(cmd *cobra.Command, env Env) (string, error) {
	if o.privateKey(env) == "" {
		given, err := givenToken(env)
		if err != nil {
			return "", err
		}
		if given != "" {
			for _, name := range []string{"org", "kid", "thread", "session", "sub", "scope", "ttl", "ref-policy"} {
				if cmd.Flags().Changed(name) {
					return "", usagef("--%s needs the org's private key: the given token is used as it is", name)
				}
			}
			return given, nil
		}
	}
	policies, err := o.refPolicies()
	if err != nil {
		return "", err
	}
	token, _, err := o.mint(env, o.scopes, policies)
	return token, err
}

// confinement is what a confined sandbox is given.
type confinement struct {
	ReadURL       string `json:"READ_URL"`
	WriteURL      string `json:"WRITE_URL"`
	SessionBranch string `json:"SESSION_BRANCH"`
	BaseSHA       string `json:"BASE_SHA,omitempty"`
	ExpiresAt     string `json:"EXPIRES_AT"`
}

func (o *urlOptions) printConfined(ctx context.Context, env Env, scopesGiven bool) error {
	write, ok := map[string]func(io.Writer, confinement) error{"env": writeEnvironment, "sh": writeShell, "json": writeDocument}[o.format]
	switch {
	case !ok:
		return usagef("--format %q: want env, sh or json", o.format)
	case o.ephemeral || o.asImport || scopesGiven || len(o.policies) > 0:
		return usagef("--confine decides the remotes, scopes and policies itself; leave out --ephemeral, --import, --scope and --ref-policy")
	case o.sha != "" && (len(o.sha) != 40 || strings.Trim(o.sha, "0123456789abcdef") != ""):
		return usagef("--sha %q: want the full commit id, 40 lowercase hexadecimal digits", o.sha)
	}
	c, err := o.confined(ctx, env)
	if err != nil {
		return err
	}
	return write(env.Stdout, c)
}

// confined makes the pair of URLs.
func (o *urlOptions) confined(ctx context.Context, env Env) (confinement, error) {
	c := confinement{SessionBranch: o.confine, BaseSHA: o.sha}
	policies, err := policy.Confine(o.confine)
	if err != nil {
		return c, usagef("--confine %q: want a short branch name", o.confine)
	}
	base, err := serverURL(env)
	if err != nil {
		return c, err
	}
	read, claims, err := o.mint(env, []string{string(auth.GitRead)}, nil)
	if err != nil {
		return c, err
	}
	c.ExpiresAt = stamp(time.Unix(claims.Expires, 0))
	write, _, err := o.mint(env, []string{string(auth.GitRead), string(auth.GitWrite)}, policies)
	if err != nil {
		return c, err
	}
	if c.ReadURL, err = remoteURL(ctx, base, o.repo, git.KindNormal, read); err != nil {
		return c, err
	}
	c.WriteURL, err = remoteURL(ctx, base, o.repo, git.KindEphemeral, write)
	return c, err
}

func (c confinement) variables() [][2]string {
	vars := [][2]string{{"READ_URL", c.ReadURL}, {"WRITE_URL", c.WriteURL}, {"SESSION_BRANCH", c.SessionBranch}}
	if c.BaseSHA != "" {
		vars = append(vars, [2]string{"BASE_SHA", c.BaseSHA})
	}
	return vars
}

func writeDocument(w io.Writer, c confinement) error { return printJSON(w, c) }

// writeEnvironment writes NAME=value lines, which a shell can read as well.
func writeEnvironment(w io.Writer, c confinement) error {
	for _, v := range c.variables() {
		if !plainWord.MatchString(v[1]) {
			v[1] = quoted(v[1])
		}
		if _, err := fmt.Fprintf(w, "%s=%s\n", v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

func writeShell(w io.Writer, c confinement) error {
	for _, v := range c.variables() {
		if _, err := fmt.Fprintf(w, "export %s=%s\n", v[0], quoted(v[1])); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, c.gitLines())
	return err
}

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:@%+=,-]+$`)

// quoted returns text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// gitLines are the commands that set the sandbox up.
func (c confinement) gitLines() string {
	start := `git switch -c "$SESSION_BRANCH"` + "\n"
	fetch := ""
	if c.BaseSHA != "" {
		fetch = `git fetch origin "$BASE_SHA"` + "\n"
		start = `git switch -c "$SESSION_BRANCH" "$BASE_SHA"` + "\n"
	}
	return `git clone --depth 1 --single-branch --no-checkout "$READ_URL" work
cd work
` + fetch + `git remote set-url --push origin "$WRITE_URL"
` + start
}

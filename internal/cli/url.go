package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/policy"
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
			return o.printConfined(env, c.Flags().Changed("scope"))
		}
		if c.Flags().Changed("format") || o.sha != "" {
			return usagef("--format and --sha go with --confine")
		}
		return o.print(env)
	}
	return cmd
}

func (o *urlOptions) suffix() string {
	switch {
	case o.ephemeral:
		return "+ephemeral"
	case o.asImport:
		return "+import"
	}
	return ""
}

func (o *urlOptions) print(env Env) error {
	base, err := serverURL(env)
	if err != nil {
		return err
	}
	policies, err := o.refPolicies()
	if err != nil {
		return err
	}
	token, _, err := o.mint(env, o.scopes, policies)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, remoteURL(base, o.repo, o.suffix(), token))
	return err
}

// confinement is what a confined sandbox is given.
type confinement struct {
	ReadURL       string `json:"READ_URL"`
	WriteURL      string `json:"WRITE_URL"`
	SessionBranch string `json:"SESSION_BRANCH"`
	BaseSHA       string `json:"BASE_SHA,omitempty"`
	ExpiresAt     string `json:"EXPIRES_AT"`
}

func (o *urlOptions) printConfined(env Env, scopesGiven bool) error {
	switch {
	case o.ephemeral || o.asImport || scopesGiven || len(o.policies) > 0:
		return usagef("--confine decides the remotes, scopes and policies itself; leave out --ephemeral, --import, --scope and --ref-policy")
	case strings.HasPrefix(o.confine, "refs/") || strings.ContainsAny(o.confine, "*'\"\\ \n"):
		return usagef("--confine %q: want a short branch name", o.confine)
	case o.sha != "" && (len(o.sha) != 40 || strings.Trim(o.sha, "0123456789abcdef") != ""):
		return usagef("--sha %q: want the full commit id, 40 lowercase hexadecimal digits", o.sha)
	}
	base, err := serverURL(env)
	if err != nil {
		return err
	}
	read, claims, err := o.mint(env, []string{"git:read"}, nil)
	if err != nil {
		return err
	}
	write, _, err := o.mint(env, []string{"git:read", "git:write"}, policy.List{
		{Pattern: "refs/namespaces/ephemeral/refs/heads/" + o.confine, Ops: []policy.Op{policy.NoForcePush}},
		{Pattern: "*", Ops: []policy.Op{policy.NoPush}},
	})
	if err != nil {
		return err
	}
	c := confinement{
		ReadURL:       remoteURL(base, o.repo, "", read),
		WriteURL:      remoteURL(base, o.repo, "+ephemeral", write),
		SessionBranch: o.confine,
		BaseSHA:       o.sha,
		ExpiresAt:     stamp(time.Unix(claims.Expires, 0)),
	}
	switch o.format {
	case "json":
		return printJSON(env.Stdout, c)
	case "env":
		return c.write(env.Stdout, "%s=%s\n")
	case "sh":
		if err := c.write(env.Stdout, "export %s='%s'\n"); err != nil {
			return err
		}
		_, err := io.WriteString(env.Stdout, c.gitLines())
		return err
	}
	return usagef("--format %q: want env, sh or json", o.format)
}

func (c confinement) write(w io.Writer, line string) error {
	for _, v := range [][2]string{{"READ_URL", c.ReadURL}, {"WRITE_URL", c.WriteURL}, {"SESSION_BRANCH", c.SessionBranch}, {"BASE_SHA", c.BaseSHA}} {
		if v[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, line, v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

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

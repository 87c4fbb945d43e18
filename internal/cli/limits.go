package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
)

func newOrgQuota(env Env) *cobra.Command {
	var bytes, repoBytes, threadBytes string
	var repos int64
	cmd := &cobra.Command{
		Use: "quota NAME [--bytes SIZE] [--repo-bytes SIZE] [--repos N] [--thread-bytes SIZE]", Short: "Limit what an org stores", Args: cobra.ExactArgs(1),
		Long: `Limit what an org stores: the bytes of all its packs, those of each repository that has
no limit of its own, the number of its repositories, and the bytes of the objects that
each thread of checkpoints knows. 0 is no limit; what is not
given stays as it is. A pack counts once for the org, however many forks list it; for a
repository, those count that it made and still lists. Deleted repositories and garbage
count until they are gone. What is there already stays, also above a new limit.`,
	}
	load := settings(cmd, env, true)
	f := cmd.Flags()
	f.StringVar(&bytes, "bytes", "", "the `SIZE` that all packs of the org may have, such as 10GiB")
	f.StringVar(&repoBytes, "repo-bytes", "", "the `SIZE` that each repository may have")
	f.StringVar(&threadBytes, "thread-bytes", "", "the `SIZE` of the objects that each thread may know")
	f.Int64Var(&repos, "repos", 0, "the `NUMBER` of repositories")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if bytes == "" && repoBytes == "" && threadBytes == "" && !f.Changed("repos") {
			return usagef("give --bytes, --repo-bytes, --repos or --thread-bytes; `cairn usage` shows the limits")
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			org, err := operator(st, env).Org(c.Context(), args[0])
			if err != nil {
				return err
			}
			q := org.Quota
			for _, part := range []struct {
				flag, text string
				into       *int64
			}{{"--bytes", bytes, &q.Bytes}, {"--repo-bytes", repoBytes, &q.RepoBytes}, {"--thread-bytes", threadBytes, &q.ThreadBytes}} {
				if part.text == "" {
					continue
				}
				if *part.into, err = config.ParseSize(part.text); err != nil {
					return usagef("%s: %v", part.flag, err)
				}
			}
			if f.Changed("repos") {
				q.Repos = repos
			}
			return operator(st, env).SetQuota(c.Context(), args[0], q)
		})
	}
	return cmd
}

func newOrgRetention(env Env) *cobra.Command {
	age := ""
	cmd := &cobra.Command{
		Use: "retention NAME --ephemeral AGE|never", Short: "Delete ephemeral branches of an org that nobody updates", Args: cobra.ExactArgs(1),
		Long: `Delete ephemeral branches that nobody has updated for an age, in repositories of an org
that say nothing themselves. Branches that a protection rule keeps from deletion stay.`,
	}
	load := settings(cmd, env, true)
	cmd.Flags().StringVar(&age, "ephemeral", "", "the `AGE`, such as 30d or 12h; never (the default of a new org) keeps them")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		d, err := parseAge(age, false)
		if err != nil {
			return err
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).SetEphemeralAge(c.Context(), args[0], max(d, 0))
		})
	}
	return cmd
}

// parseAge reads the age of ephemeral branches; meta.NeverRetire is never, and 0
// the org's.
func parseAge(text string, ofRepo bool) (time.Duration, error) {
	days, isDays := strings.CutSuffix(text, "d")
	n, err := strconv.ParseInt(days, 10, 32)
	switch {
	case text == "never":
		return meta.NeverRetire, nil
	case text == "org" && ofRepo:
		return 0, nil
	case isDays && err == nil && n > 0 && n <= 36500:
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Minute {
		return 0, usagef("--ephemeral %q: give an age of a minute or more, such as 30d or 12h, or never", text)
	}
	return d, nil
}

// operatorRepo makes a command of an operator on one repository.
func operatorRepo(env Env, cmd *cobra.Command, run func(ctx context.Context, d *directRepos, name string) error) *cobra.Command {
	org := ""
	cmd.Args = cobra.ExactArgs(1)
	load := settings(cmd, env, true)
	cmd.Flags().StringVar(&org, "org", "", "the `ORG` that owns the repository (CAIRN_ORG)")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return asOperator(c.Context(), env, load, org, func(r repoAdmin) error {
			return run(c.Context(), r.(*directRepos), args[0])
		})
	}
	return cmd
}

func newRepoQuota(env Env) *cobra.Command {
	text := ""
	cmd := &cobra.Command{
		Use: "quota NAME --bytes SIZE|none|org", Short: "Limit what a repository stores",
		Long: "Limit the bytes of the packs that a repository makes and lists. It needs the storage: only the operator may.",
	}
	cmd.Flags().StringVar(&text, "bytes", "", "the `SIZE`, such as 1GiB; none is no limit, org (the default) that of the org's --repo-bytes")
	return operatorRepo(env, cmd, func(ctx context.Context, d *directRepos, name string) error {
		var bytes int64
		var err error
		switch text {
		case "org":
		case "none":
			bytes = meta.NoLimit
		default:
			if bytes, err = config.ParseSize(text); err != nil || bytes == 0 {
				return usagef("--bytes %q: give a size such as 512MiB, none, or org", text)
			}
		}
		row, err := d.live(ctx, name)
		if err != nil {
			return err
		}
		return d.st.Engine.SetQuota(ctx, d.writer("cairn repo quota"), row, bytes)
	})
}

func newRepoRetention(env Env) *cobra.Command {
	text := ""
	cmd := &cobra.Command{
		Use: "retention NAME --ephemeral AGE|never|org", Short: "Delete ephemeral branches of a repository that nobody updates",
		Long: `Delete ephemeral branches of a repository that nobody has updated for an age. Branches
that a protection rule keeps from deletion stay. It needs the storage: only the operator may.`,
	}
	cmd.Flags().StringVar(&text, "ephemeral", "", "the `AGE`, such as 30d or 12h; never keeps them, org (the default) is the age of the org")
	return operatorRepo(env, cmd, func(ctx context.Context, d *directRepos, name string) error {
		age, err := parseAge(text, true)
		if err != nil {
			return err
		}
		row, err := d.live(ctx, name)
		if err != nil {
			return err
		}
		return d.st.Engine.SetEphemeralAge(ctx, d.writer("cairn repo retention"), row, age)
	})
}

func newRepoUndelete(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "undelete NAME", Short: "Bring a deleted repository back", Args: cobra.ExactArgs(1),
		Long: `Bring a deleted repository back as it was: its refs, rules and objects. That is possible
for --undelete-window after its deletion, and unless it was purged.`,
	}
	with := repoFlags(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return with(cmd.Context(), func(r repoAdmin) error { return r.undelete(cmd.Context(), args[0]) })
	}
	return cmd
}

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/server"
)

// repoRow is a repository as printed.
type repoRow struct {
	Name          string `json:"repo_name"`
	ID            string `json:"repo_id"`
	DefaultBranch string `json:"default_branch,omitempty"`
	CreatedAt     string `json:"created_at,omitempty"`
}

// protection is a protection rule as printed and sent.
type protection struct {
	Pattern string   `json:"pattern"`
	Ops     []string `json:"ops"`
}

// creation asks for a new repository, a fork where Source is set.
type creation struct {
	Name, DefaultBranch string
	Source, Ref, SHA    string
}

// repoAdmin manages repositories: over REST with the org's key, or straight on
// the storage as the operator.
type repoAdmin interface {
	create(ctx context.Context, c creation) (repoRow, error)
	list(ctx context.Context, query string, yield func(repoRow) error) error
	remove(ctx context.Context, name string) error
	undelete(ctx context.Context, name string) error
	protections(ctx context.Context, name string) ([]protection, error)
	protect(ctx context.Context, name string, rules []protection) error
}

func newRepo(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "repo", Short: "Manage repositories",
		Long: `Manage repositories: of the server at CAIRN_URL with the org's private key or a token,
or, with storage flags, straight on the storage as the operator.`,
	}
	cmd.AddCommand(newRepoCreate(env), newRepoList(env), newRepoFork(env), newRepoDelete(env), newRepoPurge(env), newRepoUndelete(env),
		newRepoQuota(env), newRepoRetention(env), newRepoProtect(env))
	return cmd
}

// repoFlags adds the flags that say where a repository is, and returns how to
// run a function on it.
func repoFlags(cmd *cobra.Command, env Env) func(ctx context.Context, run func(repoAdmin) error) error {
	load := settings(cmd, env, true)
	var id identity
	f := cmd.Flags()
	f.StringVar(&id.org, "org", "", "the `ORG` that owns the repository (CAIRN_ORG)")
	f.StringVar(&id.key, "key", "", "sign with the private key in this PEM `FILE` (CAIRN_PRIVATE_KEY)")
	f.StringVar(&id.kid, "kid", "", "the key `ID` to name in the token's header")
	id.subject = "cairn-cli"
	return func(ctx context.Context, run func(repoAdmin) error) error {
		direct := storageFlagged(cmd) || (env.Getenv("CAIRN_URL") == "" && storageNamed(cmd, env))
		if !direct {
			base, err := serverURL(env)
			if err != nil {
				return err
			}
			return run(&remoteRepos{remote{base: base, env: env, id: id}})
		}
		return asOperator(ctx, env, load, id.org, run)
	}
}

func asOperator(ctx context.Context, env Env, load func() (config.Config, error), org string, run func(repoAdmin) error) error {
	name := first(org, env.Getenv("CAIRN_ORG"), env.Getenv("PIERRE_ORG"))
	if name == "" {
		return usagef("give the org with --org or CAIRN_ORG")
	}
	return withStorage(ctx, env, load, func(st *server.Storage) error {
		row, err := operator(st, env).Org(ctx, name)
		if err != nil {
			return err
		}
		return run(&directRepos{st: st, env: env, org: row})
	})
}

func newRepoCreate(env Env) *cobra.Command {
	var c creation
	asJSON := false
	cmd := &cobra.Command{Use: "create NAME", Short: "Create an empty repository", Args: cobra.ExactArgs(1)}
	with := repoFlags(cmd, env)
	cmd.Flags().StringVar(&c.DefaultBranch, "default-branch", "", "the short name of the default `BRANCH` (default main)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Name = args[0]
		return with(cmd.Context(), func(r repoAdmin) error { return created(cmd.Context(), env, r, c, asJSON) })
	}
	return cmd
}

func created(ctx context.Context, env Env, r repoAdmin, c creation, asJSON bool) error {
	row, err := r.create(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(env.Stdout, repoRow{Name: row.Name, ID: row.ID})
	}
	_, err = fmt.Fprintf(env.Stdout, "created repository %s\n", row.Name)
	return err
}

func newRepoFork(env Env) *cobra.Command {
	var c creation
	asJSON := false
	cmd := &cobra.Command{
		Use: "fork SOURCE NAME", Short: "Create a repository from another, sharing its objects", Args: cobra.ExactArgs(2),
		Long: `Create a repository from another of the same org, sharing its objects. It gets all
branches and tags, or with --ref or --sha one branch; never ephemeral branches, notes or
protections. Deleting the source does not harm it.`,
	}
	with := repoFlags(cmd, env)
	f := cmd.Flags()
	f.StringVar(&c.DefaultBranch, "default-branch", "", "the short name of the default `BRANCH` (default the source's)")
	f.StringVar(&c.Ref, "ref", "", "only the commit this `REF` of the source names")
	f.StringVar(&c.SHA, "sha", "", "only this commit, 40 hexadecimal digits; wins over --ref")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Source, c.Name = args[0], args[1]
		return with(cmd.Context(), func(r repoAdmin) error { return created(cmd.Context(), env, r, c, asJSON) })
	}
	return cmd
}

func newRepoList(env Env) *cobra.Command {
	query, asJSON := "", false
	cmd := &cobra.Command{Use: "list", Short: "List repositories, newest first", Args: cobra.NoArgs}
	with := repoFlags(cmd, env)
	cmd.Flags().StringVar(&query, "q", "", "only names that contain this `TEXT`, ignoring case")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return with(cmd.Context(), func(r repoAdmin) error {
			rows := []repoRow{}
			err := r.list(cmd.Context(), query, func(row repoRow) error {
				if asJSON {
					rows = append(rows, row)
					return nil
				}
				_, err := fmt.Fprintf(env.Stdout, "%s\t%s\t%s\n", row.Name, row.DefaultBranch, row.CreatedAt)
				return err
			})
			if err != nil || !asJSON {
				return err
			}
			return printJSON(env.Stdout, map[string]any{"repos": rows})
		})
	}
	return cmd
}

func newRepoDelete(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a repository; its name stays taken until a purge", Args: cobra.ExactArgs(1),
	}
	with := repoFlags(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return with(cmd.Context(), func(r repoAdmin) error { return r.remove(cmd.Context(), args[0]) })
	}
	return cmd
}

func newRepoPurge(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "purge NAME", Short: "Remove a deleted repository for good and free its name",
		Long: "Remove a deleted repository for good and free its name. It needs the storage: only the operator may.",
	}
	return operatorRepo(env, cmd, func(ctx context.Context, d *directRepos, name string) error { return d.purge(ctx, name) })
}

func newRepoProtect(env Env) *cobra.Command {
	var rules []string
	clear, asJSON := false, false
	cmd := &cobra.Command{
		Use: "protect NAME", Short: "Show or replace a repository's protection rules", Args: cobra.ExactArgs(1),
		Long: `Show the protection rules of a repository, or replace them with those given. A rule
holds for everyone, whatever a token allows; all rules whose pattern matches a ref apply.
Ops: no-create, no-update, no-force-push, no-delete, no-push, verify-sig.`,
	}
	with := repoFlags(cmd, env)
	cmd.Flags().StringArrayVar(&rules, "rule", nil, "a rule `'PATTERN=op,op'`; may be given more than once")
	cmd.Flags().BoolVar(&clear, "clear", false, "remove all rules")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if clear && len(rules) > 0 {
			return usagef("give either --rule or --clear")
		}
		list, err := parseProtections(rules)
		if err != nil {
			return err
		}
		return with(cmd.Context(), func(r repoAdmin) error {
			if clear || len(list) > 0 {
				if err := r.protect(cmd.Context(), args[0], list); err != nil {
					return err
				}
			}
			return showProtections(cmd.Context(), env, r, args[0], asJSON)
		})
	}
	return cmd
}

func parseProtections(rules []string) ([]protection, error) {
	list := []protection{}
	for _, text := range rules {
		pattern, ops, ok := strings.Cut(text, "=")
		if !ok || pattern == "" || ops == "" {
			return nil, usagef("--rule %q: want PATTERN=op,op", text)
		}
		list = append(list, protection{Pattern: pattern, Ops: strings.Split(ops, ",")})
	}
	return list, nil
}

func showProtections(ctx context.Context, env Env, r repoAdmin, name string, asJSON bool) error {
	list, err := r.protections(ctx, name)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(env.Stdout, map[string]any{"protections": list})
	}
	for _, p := range list {
		if _, err := fmt.Fprintf(env.Stdout, "%s\t%s\n", p.Pattern, strings.Join(p.Ops, ",")); err != nil {
			return err
		}
	}
	return nil
}

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/rest"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

// usageRow is what an org or a repository has stored, as printed.
type usageRow struct {
	Org  string `json:"org"`
	Repo string `json:"repo,omitempty"`
	api.Usage
}

func newUsage(env Env) *cobra.Command {
	org, repo, asJSON := "", "", false
	cmd := &cobra.Command{
		Use: "usage", Short: "Show what orgs have stored, and their limits", Args: cobra.NoArgs,
		Long: `Show what each org, one org, or one repository has stored: bytes of packs, what requests
under way have reserved, limits, objects, repositories, threads, checkpoints, refs by
namespace, events and idempotency keys. It reads a part at a time and works while the server runs.`,
	}
	load := settings(cmd, env, true)
	cmd.Flags().StringVar(&org, "org", "", "only this `ORG`")
	cmd.Flags().StringVar(&repo, "repo", "", "only this `REPOSITORY` (needs --org)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if repo != "" && org == "" {
			return usagef("--repo needs --org")
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			rows := []usageRow{}
			err := eachUsage(c, st, env, org, repo, func(row usageRow) error {
				if asJSON {
					rows = append(rows, row)
					return nil
				}
				return printUsage(env, row)
			})
			if err != nil || !asJSON {
				return err
			}
			return printJSON(env.Stdout, map[string]any{"usage": rows})
		})
	}
	return cmd
}

func eachUsage(c *cobra.Command, st *server.Storage, env Env, org, repo string, do func(usageRow) error) error {
	ctx := c.Context()
	one := func(o meta.Org, r meta.Repo) error {
		u, err := st.Meta.Usage(ctx, o.ID, r.ID)
		if err != nil {
			return err
		}
		return do(usageRow{o.Name, r.Name, rest.UsageOf(u, service.LimitsOf(o, r))})
	}
	if repo != "" {
		o, r, err := operator(st, env).Repo(ctx, org, repo)
		if err != nil {
			return err
		}
		return one(o, r)
	}
	return eachOrg(ctx, st, env, org, func(o meta.Org) error { return one(o, meta.Repo{}) })
}

// printUsage prints what was stored in one line.
func printUsage(env Env, u usageRow) error {
	name := u.Org
	if u.Repo != "" {
		name += "/" + u.Repo
	}
	limit := func(n int64) string {
		if n == 0 {
			return "no limit"
		}
		return fmt.Sprintf("limit %d", n)
	}
	_, err := fmt.Fprintf(env.Stdout, "%s: %d bytes (%s), %d of checkpoints, %d reserved, %d shared, %d garbage; %d objects in %d packs; %d repositories (%s), %d deleted; %d threads with %d checkpoints; %d branches, %d tags, %d ephemeral, %d other refs; %d events, %d idempotency keys\n",
		name, u.Bytes, limit(u.LimitBytes), u.CheckpointBytes, u.ReservedBytes, u.SharedBytes, u.GarbageBytes, u.Objects, u.Packs,
		u.Repositories, limit(u.LimitRepositories), u.DeletedRepositories, u.Threads, u.Checkpoints,
		u.Refs.Branches, u.Refs.Tags, u.Refs.Ephemeral, u.Refs.Other, u.Events, u.IdempotencyKeys)
	return err
}

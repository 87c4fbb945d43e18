package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

func newAudit(env Env) *cobra.Command {
	var org, repo, sub, since string
	limit, asJSON := 0, false
	cmd := &cobra.Command{
		Use: "audit --org NAME", Short: "Show what was done to an org, newest first", Args: cobra.NoArgs,
		Long: `Show the audit log of an org, newest first: every change of a ref, and every other
change of the org and its repositories, with the token's subject ("-" for the
operator), the route, and what the client called itself. With --json one document a
line.`,
	}
	load := settings(cmd, env, true)
	f := cmd.Flags()
	f.StringVar(&org, "org", "", "the org")
	f.StringVar(&repo, "repo", "", "only this repository")
	f.StringVar(&sub, "sub", "", "only what tokens of this subject did")
	f.StringVar(&since, "since", "", "only since this `TIME` (2006-01-02T15:04:05Z), or this long ago (24h)")
	f.IntVar(&limit, "limit", 0, "at most this many entries; 0 for all")
	f.BoolVar(&asJSON, "json", false, "print one JSON document a line")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if org == "" {
			return usagef("--org is missing: it names the org")
		}
		filter := service.AuditFilter{Repo: repo, Subject: sub}
		if ago, err := time.ParseDuration(since); err == nil {
			filter.Since = time.Now().Add(-ago)
		} else if filter.Since, err = timeFlag("since", since); err != nil {
			return err
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			var before *meta.AuditEntry
			for shown := 0; ; {
				size := 500
				if limit > 0 {
					size = min(size, limit-shown)
				}
				page, err := operator(st, env).Audit(c.Context(), org, filter, before, size)
				if err != nil {
					return err
				}
				for i := range page {
					if err := printAudit(env, page[i], asJSON); err != nil {
						return err
					}
				}
				if shown += len(page); len(page) < size || shown == limit {
					return nil
				}
				before = &page[len(page)-1]
			}
		})
	}
	return cmd
}

func printAudit(env Env, e meta.AuditEntry, asJSON bool) error {
	if !asJSON {
		what := e.Detail
		if e.Ref != "" {
			what = fmt.Sprintf("%s %s..%s", e.Ref, e.Old, e.New)
		}
		by := e.Subject
		if by == "" {
			by = "-"
		}
		_, err := fmt.Fprintf(env.Stdout, "%s\t%s\t%s\t%s\t%q\t%s\t%q\n", stamp(e.At), e.Action, e.RepoName, what, by, e.Route, e.Agent)
		return err
	}
	row := map[string]any{"at": stamp(e.At), "action": e.Action, "sub": e.Subject, "route": e.Route, "agent": e.Agent}
	for name, value := range map[string]string{"repo_name": e.RepoName, "detail": e.Detail, "ref": e.Ref} {
		if value != "" {
			row[name] = value
		}
	}
	if e.Ref != "" {
		row["old_sha"], row["new_sha"] = e.Old.String(), e.New.String()
	}
	return json.NewEncoder(env.Stdout).Encode(row)
}

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

func newToken(env Env) *cobra.Command {
	var id identity
	asJSON := false
	cmd := &cobra.Command{
		Use: "token", Short: "Mint a token, or revoke tokens", Args: cobra.NoArgs,
		Long: `Mint a token with the org's private key, without asking the server. The token is a
secret until it expires.`,
	}
	id.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(*cobra.Command, []string) error {
		policies, err := id.refPolicies()
		if err != nil {
			return err
		}
		token, claims, err := id.mint(env, id.scopes, policies)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(env.Stdout, map[string]any{"token": token, "expires_at": stamp(time.Unix(claims.Expires, 0))})
		}
		_, err = fmt.Fprintln(env.Stdout, token)
		return err
	}
	cmd.AddCommand(newTokenRevoke(env))
	return cmd
}

func newTokenRevoke(env Env) *cobra.Command {
	var org, before string
	var r service.Revocation
	cmd := &cobra.Command{
		Use: "revoke --org O [--repo R] [--thread T] [--sub S] [--before TIME]", Short: "Refuse tokens that were issued until now", Args: cobra.NoArgs,
		Long: `Refuse every token of the org that was issued at or before TIME, whoever minted it; with
--repo, --thread or --sub those that any of them covers. It works from the next request on.
Tokens without an issue time are refused too. Issue times are whole seconds: without
--before the command returns when the second is over, so that tokens minted after it are
accepted.`,
	}
	load := settings(cmd, env, true)
	f := cmd.Flags()
	f.StringVar(&org, "org", "", "the `ORG` that issued the tokens (CAIRN_ORG)")
	f.StringVar(&r.Repo, "repo", "", "only tokens for this `REPOSITORY`")
	f.StringVar(&r.Thread, "thread", "", "only tokens for this `THREAD`")
	f.StringVar(&r.Subject, "sub", "", "only tokens of this `SUBJECT`")
	f.StringVar(&before, "before", "", "tokens issued at or before this RFC 3339 `TIME` (default now)")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		name := first(org, env.Getenv("CAIRN_ORG"))
		if name == "" {
			return usagef("give the org with --org or CAIRN_ORG")
		}
		r.Before = env.Now()
		if before != "" {
			t, err := time.Parse(time.RFC3339, before)
			if err != nil {
				return usagef("--before %q: want a time such as 2026-01-31T12:00:00Z", before)
			}
			if t.After(r.Before.Add(maxSkew)) {
				return usagef("--before %q is in the future: it would refuse tokens yet to be minted, and cannot be taken back", before)
			}
			r.Before = t
		}
		err := withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).Revoke(c.Context(), name, r)
		})
		if err == nil && before == "" {
			time.Sleep(r.Before.Truncate(time.Second).Add(time.Second).Sub(env.Now()))
		}
		return err
	}
	return cmd
}

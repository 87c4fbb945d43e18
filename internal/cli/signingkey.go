package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

func newOrgSigningKey(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "signing-key", Short: "Manage the keys that sign an org's commits",
		Long: `Manage the public keys that commits and tags must be signed with where a ref policy
or a protection has verify-sig, and the key with which the server signs the commits that
it makes over REST. Changes need no restart.`,
	}
	cmd.AddCommand(newSigningKeyAdd(env), newSigningKeyList(env), newSigningKeyRemove(env),
		newSigningKeyGenerate(env), newSigningKeyImport(env), newSigningKeyStop(env))
	return cmd
}

func newSigningKeyAdd(env Env) *cobra.Command {
	var file, title, notBefore, notAfter string
	asJSON := false
	cmd := &cobra.Command{
		Use: "add NAME --public-key FILE", Short: "Register an OpenPGP or SSH public key", Args: cobra.ExactArgs(1),
		Long: `Register a public key: an armoured OpenPGP one (gpg --armor --export), or an SSH one (a
.pub file). A key that is registered already gets the new title and bounds.`,
	}
	load := settings(cmd, env, true)
	cmd.Flags().StringVar(&file, "public-key", "", "the `FILE` with the public key")
	cmd.Flags().StringVar(&title, "title", "", "whose key it is; what the key says when absent")
	cmd.Flags().StringVar(&notBefore, "not-before", "", "refuse what is dated before this `TIME` (2006-01-02T15:04:05Z)")
	cmd.Flags().StringVar(&notAfter, "not-after", "", "refuse what is dated after this `TIME`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if file == "" {
			return usagef("--public-key is missing: it names the file with the public key")
		}
		text, err := env.ReadFile(file)
		if err != nil {
			return usagef("--public-key: cannot read %q", file)
		}
		req := service.SigningKeyRequest{Text: string(text), Title: title}
		if req.NotBefore, err = timeFlag("not-before", notBefore); err != nil {
			return err
		}
		if req.NotAfter, err = timeFlag("not-after", notAfter); err != nil {
			return err
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			key, err := operator(st, env).AddSigningKey(c.Context(), args[0], req)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(env.Stdout, signingKeyRow(key, ""))
			}
			_, err = fmt.Fprintf(env.Stdout, "added signing key %s\n", key.Fingerprint)
			return err
		})
	}
	return cmd
}

// timeFlag reads the value of a flag that is a time, zero when it is absent.
func timeFlag(name, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, usagef("--%s: %q is not a time such as 2006-01-02T15:04:05Z", name, value)
	}
	return t, nil
}

func newSigningKeyList(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: "list NAME", Short: "List an org's signing keys", Args: cobra.ExactArgs(1)}
	load := settings(cmd, env, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			o := operator(st, env)
			org, err := o.Org(c.Context(), args[0])
			if err != nil {
				return err
			}
			keys, err := o.SigningKeys(c.Context(), args[0])
			if err != nil {
				return err
			}
			rows := make([]map[string]any, len(keys))
			for i, k := range keys {
				rows[i] = signingKeyRow(k, org.Signer)
				rows[i]["created_at"] = stamp(k.CreatedAt)
				if asJSON {
					continue
				}
				signs := ""
				if k.Fingerprint == org.Signer {
					signs = "\tthe server signs with it"
				}
				fmt.Fprintf(env.Stdout, "%s\t%s\t%s%s\n", k.Fingerprint, k.Kind, k.Title, signs)
			}
			if asJSON {
				return printJSON(env.Stdout, map[string]any{"signing_keys": rows})
			}
			return nil
		})
	}
	return cmd
}

// signingKeyRow prints a key; signer is the fingerprint of the server's.
func signingKeyRow(k meta.SigningKey, signer string) map[string]any {
	row := map[string]any{"fingerprint": k.Fingerprint, "kind": k.Kind, "title": k.Title, "public_key": k.Text, "server": k.Fingerprint == signer}
	for name, t := range map[string]time.Time{"not_before": k.NotBefore, "not_after": k.NotAfter} {
		if !t.IsZero() {
			row[name] = stamp(t)
		}
	}
	return row
}

func newSigningKeyRemove(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove NAME FINGERPRINT", Short: "Remove a signing key", Args: cobra.ExactArgs(2),
		Long: "Remove a signing key. Nothing that it signed counts from the next change of a ref on;\ncommits that were let in stay.",
	}
	load := settings(cmd, env, true)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).RemoveSigningKey(c.Context(), args[0], args[1])
		})
	}
	return cmd
}

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
)

type orgOptions struct {
	keyOut, publicKey, kid string
	json                   bool
}

func newOrg(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "org", Short: "Manage orgs: the tenants that own repositories and sign tokens"}
	cmd.AddCommand(newOrgCreate(env), newOrgList(env), newOrgDelete(env), newOrgLimit(env), newOrgQuota(env), newOrgRetention(env), newOrgKey(env), newOrgSigningKey(env))
	return cmd
}

func newOrgCreate(env Env) *cobra.Command {
	var o orgOptions
	cmd := &cobra.Command{
		Use: "create NAME (--key-out FILE | --public-key FILE [--kid K])", Short: "Create an org with a key", Args: cobra.ExactArgs(1),
		Long: `Create an org. With --key-out a new private key is written to FILE (readable by its
owner only) and its public half is registered; with --public-key the org keeps its
private key and only the public one is registered.`,
	}
	load := settings(cmd, env, true)
	keyFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		public, err := o.public(env)
		if err != nil {
			return err
		}
		return withNewStorage(c.Context(), env, load, func(st *server.Storage) error {
			org, err := operator(st, env).CreateOrg(c.Context(), args[0], o.kid, public)
			if err != nil {
				o.discard()
				return err
			}
			if o.json {
				return printJSON(env.Stdout, map[string]any{"name": org.Name, "created_at": stamp(org.CreatedAt), "key_file": o.keyOut})
			}
			_, err = fmt.Fprintf(env.Stdout, "created org %s\n", org.Name)
			return err
		})
	}
	return cmd
}

func keyFlags(cmd *cobra.Command, o *orgOptions) {
	cmd.Flags().StringVar(&o.keyOut, "key-out", "", "write a new private key to this `FILE`")
	cmd.Flags().StringVar(&o.publicKey, "public-key", "", "register the public key in this PEM `FILE` (RSA, EC or Ed25519)")
	cmd.Flags().StringVar(&o.kid, "kid", "", "the key `ID` that token headers name; without one the key serves any token")
}

// public returns the public key to register, after writing a new private key
// when one is wanted.
func (o *orgOptions) public(env Env) ([]byte, error) {
	switch {
	case (o.keyOut == "") == (o.publicKey == ""):
		return nil, usagef("give either --key-out FILE or --public-key FILE")
	case o.publicKey != "":
		pem, err := env.ReadFile(o.publicKey)
		if err != nil {
			return nil, usagef("--public-key: cannot read %q", o.publicKey)
		}
		return pem, nil
	}
	private, err := auth.GenerateKey()
	if err != nil {
		return nil, err
	}
	if err := writeNew(o.keyOut, private); err != nil {
		return nil, err
	}
	key, err := auth.ParsePublicKey("", private)
	return []byte(key.PublicPEM), err
}

// discard removes a private key that was written for an org that was not made.
func (o *orgOptions) discard() {
	if o.keyOut != "" {
		os.Remove(o.keyOut)
	}
}

// writeNew writes a secret file that must not exist yet.
func writeNew(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the directory of %q: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return usagef("%q exists already and is not overwritten", path)
	} else if err != nil {
		return fmt.Errorf("write the key file: %w", err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write the key file: %w", err)
	}
	return nil
}

func newOrgList(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: "list", Short: "List orgs", Args: cobra.NoArgs}
	load := settings(cmd, env, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			rows := []map[string]any{}
			for org, err := range meta.AllOrgs(c.Context(), st.Meta) {
				if err != nil {
					return err
				}
				if asJSON {
					rows = append(rows, map[string]any{"name": org.Name, "created_at": stamp(org.CreatedAt), "max_ttl_seconds": int64(org.MaxTTL.Seconds())})
				} else {
					fmt.Fprintf(env.Stdout, "%s\t%s\n", org.Name, stamp(org.CreatedAt))
				}
			}
			if asJSON {
				return printJSON(env.Stdout, map[string]any{"orgs": rows})
			}
			return nil
		})
	}
	return cmd
}

func newOrgDelete(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete an org that has no repositories", Args: cobra.ExactArgs(1)}
	load := settings(cmd, env, true)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).DeleteOrg(c.Context(), args[0])
		})
	}
	return cmd
}

func newOrgLimit(env Env) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{Use: "limit NAME --max-ttl DURATION", Short: "Cap the lifetime of an org's tokens", Args: cobra.ExactArgs(1)}
	load := settings(cmd, env, true)
	cmd.Flags().DurationVar(&ttl, "max-ttl", 0, "refuse tokens whose exp is more than this `DURATION` after their iat; 0 removes the cap")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if !c.Flags().Changed("max-ttl") {
			return usagef("give the cap with --max-ttl, 0 for none")
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).SetMaxTTL(c.Context(), args[0], ttl)
		})
	}
	return cmd
}

func newOrgKey(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Manage an org's keys; changes need no restart"}
	cmd.AddCommand(newOrgKeyAdd(env), newOrgKeyList(env), newOrgKeyRemove(env))
	return cmd
}

func newOrgKeyAdd(env Env) *cobra.Command {
	var o orgOptions
	cmd := &cobra.Command{Use: "add NAME (--key-out FILE | --public-key FILE [--kid K])", Short: "Add a key to an org", Args: cobra.ExactArgs(1)}
	load := settings(cmd, env, true)
	keyFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		public, err := o.public(env)
		if err != nil {
			return err
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			key, err := operator(st, env).AddKey(c.Context(), args[0], o.kid, public)
			if err != nil {
				o.discard()
				return err
			}
			if o.json {
				return printJSON(env.Stdout, map[string]any{"fingerprint": key.Fingerprint, "kid": key.KID, "key_file": o.keyOut})
			}
			_, err = fmt.Fprintf(env.Stdout, "added key %s\n", key.Fingerprint)
			return err
		})
	}
	return cmd
}

func newOrgKeyList(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: "list NAME", Short: "List an org's public keys", Args: cobra.ExactArgs(1)}
	load := settings(cmd, env, true)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			keys, err := operator(st, env).Keys(c.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(env.Stdout, map[string]any{"keys": keyRows(keys)})
			}
			for _, k := range keys {
				fmt.Fprintf(env.Stdout, "%s\t%s\t%s\n", k.Fingerprint, k.KID, stamp(k.CreatedAt))
			}
			return nil
		})
	}
	return cmd
}

func keyRows(keys []meta.OrgKey) []map[string]any {
	rows := make([]map[string]any, len(keys))
	for i, k := range keys {
		rows[i] = map[string]any{"fingerprint": k.Fingerprint, "kid": k.KID, "public_key": k.PEM, "created_at": stamp(k.CreatedAt)}
	}
	return rows
}

func newOrgKeyRemove(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove NAME KEY", Short: "Remove a key, by fingerprint or kid", Args: cobra.ExactArgs(2),
		Long: "Remove a key. Tokens signed with it are refused from the next request on.",
	}
	load := settings(cmd, env, true)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).RemoveKey(c.Context(), args[0], args[1])
		})
	}
	return cmd
}

// stamp formats a time as REST does: RFC 3339 UTC, whole seconds.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

func newSigningKeyGenerate(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "generate NAME", Short: "Make a key with which the server signs commits", Args: cobra.ExactArgs(1),
		Long: `Make an SSH key of the type ed25519 with which the server signs every commit that it makes
for the org over REST, from the next request on, and register its public half, which is
printed. The private half is stored encrypted (--secret-key-file) and never shown. Where
the server signs with a key already, the new one takes its place; what the old one signed
still counts until that is removed.`,
	}
	return serverKeyCommand(env, cmd, func(ctx context.Context, o *service.Operator, org, title string) (meta.SigningKey, error) {
		return o.GenerateServerKey(ctx, org, title)
	})
}

func newSigningKeyImport(env Env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "import NAME --private-key FILE", Short: "Let the server sign commits with a key that exists", Args: cobra.ExactArgs(1),
		Long: `Let the server sign with a private key that exists: as generate, with an SSH key as
ssh-keygen writes it or an armoured OpenPGP one (gpg --armor --export-secret-keys), either
without a passphrase. Remove the file afterwards: the server has its own copy, encrypted.`,
	}
	cmd.Flags().StringVar(&file, "private-key", "", "the `FILE` with the private key")
	return serverKeyCommand(env, cmd, func(ctx context.Context, o *service.Operator, org, title string) (meta.SigningKey, error) {
		if file == "" {
			return meta.SigningKey{}, usagef("--private-key is missing: it names the file with the private key")
		}
		text, err := env.ReadFile(file)
		if err != nil {
			return meta.SigningKey{}, usagef("--private-key: cannot read %q", file)
		}
		return o.ImportServerKey(ctx, org, title, text)
	})
}

// serverKeyCommand gives cmd what the commands that set a server key share.
func serverKeyCommand(env Env, cmd *cobra.Command, set func(context.Context, *service.Operator, string, string) (meta.SigningKey, error)) *cobra.Command {
	title, asJSON := "", false
	load := settings(cmd, env, true)
	cmd.Flags().StringVar(&title, "title", "", "whose key it is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			key, err := set(c.Context(), operator(st, env), args[0], title)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(env.Stdout, signingKeyRow(key, key.Fingerprint))
			}
			_, err = fmt.Fprintf(env.Stdout, "the server signs with %s\n%s\n", key.Fingerprint, key.Text)
			return err
		})
	}
	return cmd
}

func newSigningKeyStop(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop NAME", Short: "Let the server sign no more", Args: cobra.ExactArgs(1),
		Long: `Forget the private key with which the server signs for the org. What it signed still
counts: remove the key to distrust that too. Removing the key that the server signs with
forgets its private half as well.`,
	}
	load := settings(cmd, env, true)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			return operator(st, env).RemoveServerKey(c.Context(), args[0])
		})
	}
	return cmd
}

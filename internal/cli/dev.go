package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

// devOrg is the org of a development server.
const devOrg = "local"

func newDev(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev [-- CMD…]", Short: "Run a development server without any configuration",
		Long: `Run a server for development: an org "local" with a generated key, TLS and plain
HTTP on one port, everything in one directory. DATA/env holds the variables for
clients; source it. With CMD, run it in that environment and stop after it, with its
exit status.`,
	}
	data := cmd.Flags().String("data", "./.cairn", "keep everything in this `DIR`")
	listen := cmd.Flags().String("listen", "127.0.0.1:8080", "answer on this `ADDR`; port 0 takes a free one")
	level := cmd.Flags().String("log-level", "warn", "debug, info, warn or error")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if dash := c.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
			return usagef("unknown argument %q; a command to run follows --", args[0])
		}
		dir, err := filepath.Abs(*data)
		if err != nil {
			return err
		}
		cfg, err := config.Load(config.Source{Flags: map[string]string{
			"allow-host": "127.0.0.1,::1,localhost",
			"data":       dir, "listen": *listen, "dev-tls": "true", "log-level": *level, "log-format": "text",
		}})
		if err != nil {
			return err
		}
		return dev(c.Context(), env, cfg, args)
	}
	return cmd
}

func dev(ctx context.Context, env Env, cfg config.Config, command []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keyFile := filepath.Join(cfg.Data, "local.key")
	var run error
	err := serve(ctx, env, cfg, func(s *server.Server) error {
		if err := ensureDevOrg(ctx, s, env, keyFile); err != nil {
			return err
		}
		// A repository that the directory is in must not take up its key.
		if err := os.WriteFile(filepath.Join(cfg.Data, ".gitignore"), []byte("*\n"), 0o600); err != nil {
			return fmt.Errorf("write in the data directory: %w", err)
		}
		vars := devVariables(s, cfg, keyFile)
		if err := writeEnv(filepath.Join(cfg.Data, "env"), vars); err != nil {
			return err
		}
		if len(command) == 0 {
			_, err := fmt.Fprintf(env.Stdout, "listening on %s and %s\nfor clients: . %s\n", s.URL(), s.TLSURL(), filepath.Join(cfg.Data, "env"))
			return err
		}
		go func() {
			run = runIn(ctx, env, vars, command)
			cancel()
		}()
		return nil
	}, server.BothProtocols())
	return errors.Join(run, err)
}

// ensureDevOrg makes the org and its key at the first start.
func ensureDevOrg(ctx context.Context, s *server.Server, env Env, keyFile string) error {
	op := operator(s.Storage(), env)
	_, err := op.Org(ctx, devOrg)
	if err == nil && fileExists(keyFile) {
		return nil
	}
	if err != nil && service.Public(err).Code != service.NotFound {
		return err
	}
	known := err == nil
	if !fileExists(keyFile) {
		private, err := auth.GenerateKey()
		if err != nil {
			return err
		}
		if err := writeNew(keyFile, private); err != nil {
			return err
		}
	}
	private, err := os.ReadFile(keyFile)
	if err != nil {
		return fmt.Errorf("read the development key: %w", err)
	}
	key, err := auth.ParsePublicKey("", private)
	if err != nil {
		return err
	}
	if known {
		_, err = op.AddKey(ctx, devOrg, "", []byte(key.PublicPEM))
	} else {
		_, err = op.CreateOrg(ctx, devOrg, "", []byte(key.PublicPEM))
	}
	return err
}

func devVariables(s *server.Server, cfg config.Config, keyFile string) [][2]string {
	return [][2]string{
		{"CAIRN_URL", s.URL()},
		{"CAIRN_TLS_URL", s.TLSURL()},
		{"CAIRN_ORG", devOrg},
		{"CAIRN_PRIVATE_KEY", keyFile},
		{"CAIRN_DATA", cfg.Data},
		{"CAIRN_CA_BUNDLE", s.DevTLS().BundleFile},
	}
}

// writeEnv writes the variables as a file to source.
func writeEnv(path string, vars [][2]string) error {
	var b strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s=%s\n", v[0], quoted(v[1]))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the environment file: %w", err)
	}
	return nil
}

// runIn runs a command in the environment of the development server.
func runIn(ctx context.Context, env Env, vars [][2]string, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = env.Stdin, env.Stdout, env.Stderr
	cmd.Env = os.Environ()
	for _, v := range vars {
		cmd.Env = append(cmd.Env, v[0]+"="+v[1])
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitError{max(exit.ExitCode(), exitFailed)}
	}
	if err != nil {
		return usagef("cannot run %q: %v", command[0], err)
	}
	return nil
}

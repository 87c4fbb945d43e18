package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/server"
)

func newServe(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: cobra.NoArgs,
		Long: `Run the server. It prints one line "listening on URL" when it is ready. SIGTERM
and SIGINT end it after the requests under way; SIGHUP reads the certificate again.
Every flag has a CAIRN_ variable and a key of the same name in the file of --config.`,
	}
	load := settings(cmd, env, false)
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return serve(c.Context(), env, cfg, func(s *server.Server) error {
			_, err := fmt.Fprintln(env.Stdout, "listening on", s.LocalURL())
			return err
		})
	}
	return cmd
}

// serve runs a server until ctx ends; ready is called when it listens.
func serve(ctx context.Context, env Env, cfg config.Config, ready func(*server.Server) error, opts ...server.Option) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	log, err := logger(env, cfg)
	if err != nil {
		return err
	}
	s, err := server.New(ctx, cfg, log, version, opts...)
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		s.Close()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	if err := ready(s); err != nil {
		s.Close()
		<-served
		return err
	}
	for {
		select {
		case <-hup:
			if err := s.ReloadTLS(); err != nil {
				log.Error("certificate not reloaded", "err", err)
			} else {
				log.Info("certificate reloaded")
			}
			continue
		case err := <-served:
			s.Close()
			return err
		case <-ctx.Done():
		}
		wait, cancel := context.WithTimeout(context.Background(), cfg.ShutdownWait)
		defer cancel()
		err := s.Shutdown(wait)
		<-served
		return err
	}
}

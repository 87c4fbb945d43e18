package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/obs"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

// settings adds the flags of the configuration table to a command: all of them
// for serve, those of the storage for operator commands. The returned function
// loads the configuration once the flags are parsed.
func settings(cmd *cobra.Command, env Env, storageOnly bool) func() (config.Config, error) {
	return settingsInto(cmd.Flags(), env, storageOnly)
}

func settingsInto(flags *pflag.FlagSet, env Env, storageOnly bool) func() (config.Config, error) {
	for _, s := range config.Settings {
		if storageOnly && !s.Storage {
			continue
		}
		help := fmt.Sprintf("%s (%s)", s.Help, s.Variable())
		switch {
		case s.Value == "":
			flags.Bool(s.Name, false, help)
		case s.Repeats:
			flags.StringSlice(s.Name, nil, help)
		default:
			flags.String(s.Name, s.Default, help)
		}
		if f := flags.Lookup(s.Name); s.Repeats {
			f.Value, f.DefValue = namedList{f.Value, f.Value.(pflag.SliceValue), s.Value}, ""
		} else if s.Value != "" {
			f.Value = named{f.Value, s.Value}
		}
	}
	return func() (config.Config, error) {
		return config.Load(config.Source{Flags: given(flags), Getenv: env.Getenv, Environ: env.Environ, ReadFile: env.ReadFile})
	}
}

// named is the value of a flag that help shows as a placeholder; namedList is that of
// one that may be given more than once.
type (
	named struct {
		pflag.Value
		placeholder string
	}
	namedList struct {
		pflag.Value
		pflag.SliceValue
		placeholder string
	}
)

func (n named) Type() string     { return n.placeholder }
func (n namedList) Type() string { return n.placeholder }

// given returns the flags of the table that are on the command line.
func given(flags *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	for _, s := range config.Settings {
		f := flags.Lookup(s.Name)
		if f == nil || !f.Changed {
			continue
		}
		out[s.Name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			out[s.Name] = strings.Join(list.GetSlice(), ",")
		}
	}
	return out
}

// withStorage opens the storage for one operator command and closes it after. A
// directory that holds nothing is refused: its name is wrong.
func withStorage(ctx context.Context, env Env, load func() (config.Config, error), run func(*server.Storage) error) error {
	return withNewStorage(ctx, env, func() (config.Config, error) {
		cfg, err := load()
		if err == nil && !server.HasData(cfg) {
			err = service.Refuse(service.NotFound, "there is no Cairn data in %q; `cairn serve` and `cairn org create` make it", cfg.Data)
		}
		return cfg, err
	}, run)
}

// withNewStorage is withStorage for commands that may be the first.
func withNewStorage(ctx context.Context, env Env, load func() (config.Config, error), run func(*server.Storage) error) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	st, err := server.OpenStorage(ctx, cfg, server.NoCache)
	if err != nil {
		return err
	}
	err = run(st)
	if cerr := st.Close(); err == nil {
		err = cerr
	}
	return err
}

func operator(st *server.Storage, env Env) *service.Operator {
	return &service.Operator{Meta: st.Meta, Secrets: st.Secrets, Now: env.Now}
}

func logger(env Env, cfg config.Config) (*slog.Logger, error) {
	return obs.NewLogger(env.Stderr, cfg.LogLevel, cfg.LogFormat)
}

// Package cli is the command line of Cairn: one file for each command, which
// turns flags into one call and its result into text or JSON.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

// version is stamped at build time with -ldflags; else it is the module's.
var version = "unknown"

func init() {
	if info, ok := debug.ReadBuildInfo(); ok && version == "unknown" && info.Main.Version != "" {
		version = info.Main.Version
	}
}

// Env is everything outside that a command may touch.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Environ        func() []string // names of the variables; nil for none
	ReadFile       func(string) ([]byte, error)
	Now            func() time.Time
}

// System is the Env of the running process.
func System() Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Environ: variables, ReadFile: os.ReadFile, Now: time.Now}
}

// variables lists the names of the process's variables.
func variables() []string {
	list := os.Environ()
	for i, v := range list {
		list[i], _, _ = strings.Cut(v, "=")
	}
	return list
}

// Exit codes, for every command.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitStale    = 3
	exitNotFound = 4
	exitDenied   = 5
	exitBusy     = 6
	exitPartial  = 7
)

// usageError marks an error of the command line itself.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError carries the exit code of a command that was run and ended.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("command ended with status %d", e.code) }

// Main runs one command line and returns its exit code. Errors are printed as
// one line on standard error.
func Main(ctx context.Context, args []string, env Env) int {
	root := newRoot(env)
	root.SetArgs(append([]string{}, args...)) // never nil, which stands for those of the process
	err := root.ExecuteContext(ctx)
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "cairn: %s\n", message(err))
	}
	return exitCode(err)
}

// message is what the person at the terminal reads. Whoever runs a command on the
// storage may know the cause, which a client of the server may not.
func message(err error) string {
	if p := service.Public(err); p.Code != service.Internal && !errors.Is(err, meta.ErrUnavailable) {
		return p.Message
	}
	return err.Error()
}

// exitCode maps errors to exit codes, in one place.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.UsageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*cairn.ConfigError](err); ok {
		return exitUsage
	}
	if code, ok := errors.AsType[checkpoint.Code](err); ok {
		return checkpointExit(code)
	}
	switch p := service.Public(err); p.Status() {
	case 400:
		return exitUsage
	case 401, 403:
		return exitDenied
	case 404:
		return exitNotFound
	case 409, 412:
		if p.Code == service.Stale {
			return exitStale
		}
		return exitFailed
	case 429, 503:
		return exitBusy
	}
	return exitFailed
}

// checkpointExit is exitCode for errors of checkpoints.
func checkpointExit(code checkpoint.Code) int {
	switch code {
	case checkpoint.ErrHeadConflict, checkpoint.ErrParentMismatch, checkpoint.ErrWriterLost, checkpoint.ErrNotHead:
		return exitStale
	case checkpoint.ErrMissingCheckpoint, checkpoint.ErrNotFound, checkpoint.ErrForkSourceNotFound, checkpoint.ErrThreadNotFound:
		return exitNotFound
	case checkpoint.ErrDenied:
		return exitDenied
	case checkpoint.ErrWriterConflict, checkpoint.ErrLimited, checkpoint.ErrUnavailable:
		return exitBusy
	case checkpoint.ErrInvalid, checkpoint.ErrInvalidID, checkpoint.ErrForeignFolder:
		return exitUsage
	}
	return exitFailed
}

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "cairn",
		Short: "Cairn keeps the state of AI-agent sandboxes",
		Long: `Cairn keeps the state of AI-agent sandboxes, so that work continues in the next
sandbox exactly where the last one stopped: a Git server made for machines and a store
for checkpoints of workspaces, in one program.

Exit codes: 0 done; 1 failed; 2 usage; 3 stale (something moved: stop); 4 not
found; 5 denied; 6 busy (try later); 7 done, with paths left out.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("cairn {{.Version}}\n")
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetIn(env.Stdin)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newDev(env), newServe(env), newOrg(env), newRepo(env), newWebhook(env), newToken(env), newURL(env), newCredential(env),
		newCapture(env), newRestore(env), newWatch(env), newCheckpoint(env), newThread(env),
		newFsck(env), newAudit(env), newGC(env), newUsage(env), newDoctor(env), newVersion(env),
	)
	root.SetHelpCommand(newHelp(root))
	markUsage(root)
	return root
}

// newHelp is the help command, which knows when there is no such command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND…]", Short: "Show what a command does", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q; see cairn --help", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// counted is a number of things, of which one has the name that is given.
func counted[N int | uint64](n N, name string) string {
	if n == 1 {
		return "1 " + name
	}
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, name)
}

// markUsage makes wrong flags and arguments of every command usage errors.
func markUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usagef("%v; see %s --help", err, c.CommandPath()) })
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			switch err := check(c, args); {
			case err == nil:
				return nil
			case c.HasSubCommands():
				return usagef("unknown command %q for %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
			}
			return usagef("%d arguments do not fit; usage: %s", len(args), c.UseLine())
		}
	}
	if cmd.HasSubCommands() && cmd.Run == nil && cmd.RunE == nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q for %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
			}
			return nil
		}
		cmd.RunE = func(c *cobra.Command, _ []string) error {
			if !c.HasParent() {
				return c.Help()
			}
			return usagef("%s needs a command; see %s --help", c.CommandPath(), c.CommandPath())
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// printJSON writes one JSON document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func newVersion(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(env.Stdout, map[string]string{"version": version})
			}
			_, err := fmt.Fprintln(env.Stdout, "cairn", version)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

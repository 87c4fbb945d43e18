package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/api"
)

func newThread(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List and delete threads of checkpoints"}
	cmd.AddCommand(newThreadList(env), newThreadDelete(env))
	return cmd
}

func newThreadList(env Env) *cobra.Command {
	prefix := ""
	cmd := &cobra.Command{Use: "list", Short: "List the threads that the token covers", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&prefix, "prefix", "", "only those whose names begin with this `TEXT`")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		rows := []api.Thread{}
		for t, err := range remote.Threads(c.Context(), prefix) {
			if err != nil {
				return err
			}
			if *asJSON {
				rows = append(rows, t)
				continue
			}
			busy := ""
			if t.Busy {
				busy = ", busy"
			}
			if _, err := fmt.Fprintf(env.Stdout, "%s  %d checkpoints, %d bytes, head %s%s\n", visible(t.Name), t.Checkpoints, t.Bytes, first(t.Head, "none"), busy); err != nil {
				return err
			}
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"threads": rows})
		}
		return nil
	}
	return cmd
}

func newThreadDelete(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "delete THREAD", Short: "Delete a thread with all its checkpoints", Args: cobra.ExactArgs(1)}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		n, err := remote.DeleteThread(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"thread": args[0], "checkpoints": n})
		}
		_, err = fmt.Fprintf(env.Stdout, "%q is deleted with %d checkpoints\n", args[0], n)
		return err
	}
	return cmd
}

package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/api"
)

func newThread(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List and delete threads of checkpoints, and begin them with a commit"}
	cmd.AddCommand(newThreadList(env), newThreadDelete(env), newThreadFromCommit(env))
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

func newThreadFromCommit(env Env) *cobra.Command {
	var q api.ThreadFromCommit
	onto := ""
	cmd := &cobra.Command{Use: "from-commit THREAD --repo R", Short: "Make a checkpoint of the files of a commit", Args: cobra.ExactArgs(1),
		Long: `Make a checkpoint of the files of a commit, on the server: nothing is checked out. A given
token has to grant git:read on the repository, and checkpoint:write on the thread.`}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&q.Repo, "repo", "", "the `REPOSITORY`")
	f.StringVar(&q.Ref, "ref", "", "a `REF`: a branch, tag, commit or revision; the default branch when left out")
	f.BoolVar(&q.Ephemeral, "ephemeral", false, "the branch is an ephemeral one")
	f.StringVar(&q.Root, "root", "", "the `NAME` of the root that gets the files; workspace when left out")
	f.StringVar(&q.Label, "label", "", "a `LABEL` for the checkpoint")
	f.StringVar(&onto, "onto", "none", "the head of the thread: a checkpoint's `ID`, none, or head for whatever it is")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if q.Repo == "" {
			return usagef("give the repository with --repo")
		}
		switch onto {
		case "none":
		case "head":
			q.Onto = onto
		default:
			q.ExpectedHead, _ = json.Marshal(onto) // any string can be
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		done, err := remote.FromCommit(c.Context(), args[0], q)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, done)
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is the head of %s, with %s\n", done.Head, visible(args[0]), counted(int(done.Checkpoint.Stats.Files), "file"))
		return err
	}
	return cmd
}

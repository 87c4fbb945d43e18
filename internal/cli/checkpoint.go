package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

func newCheckpoint(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "checkpoint", Short: "Look at and manage the checkpoints of threads"}
	cmd.AddCommand(
		newCheckpointList(env), newCheckpointShow(env), newCheckpointDiff(env), newCheckpointFiles(env), newCheckpointArchive(env),
		newCheckpointFork(env), newCheckpointPin(env), newCheckpointPromote(env), newCheckpointDelete(env), newCheckpointPrune(env),
	)
	return cmd
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print one JSON document")
}

func newCheckpointList(env Env) *cobra.Command {
	var w workspaceFlags
	var o checkpoint.ListOptions
	oldest := false
	cmd := &cobra.Command{Use: "list --thread T", Short: "List the checkpoints of a thread, the newest first", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&w.thread, "thread", "", "the `THREAD` (CAIRN_THREAD)")
	f.StringVar(&o.Label, "label", "", "only those with this `LABEL`")
	f.IntVar(&o.Limit, "limit", 0, "at most so many; 0 for all")
	f.BoolVar(&oldest, "oldest-first", false, "list the oldest first")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		thread, err := w.threadName(env)
		if err != nil {
			return err
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		head, err := remote.Head(c.Context(), thread)
		if err != nil {
			return err
		}
		o.Newest = !oldest
		rows := []map[string]any{}
		for cp, err := range remote.List(c.Context(), thread, o) {
			if err != nil {
				return err
			}
			if *asJSON {
				rows = append(rows, checkpointRow(cp))
				continue
			}
			marks := ""
			if cp.ID == head {
				marks += " head"
			}
			if cp.Pinned {
				marks += " pinned"
			}
			if cp.Label != "" {
				marks += fmt.Sprintf(" %q", cp.Label)
			}
			fmt.Fprintf(env.Stdout, "%s  %s  %s, %s%s\n", cp.ID, cp.CreatedAt.UTC().Format(time.RFC3339), counted(cp.Stats.Files, "file"), counted(cp.Stats.Bytes, "byte"), marks)
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"thread": thread, "head": orNull(head), "checkpoints": rows})
		}
		return nil
	}
	return cmd
}

// orNull returns nil for no text.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func newCheckpointShow(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show a checkpoint with its conversation", Args: cobra.ExactArgs(1)}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		cp, err := remote.Get(c.Context(), args[0])
		if err != nil {
			return err
		}
		row := checkpointRow(cp)
		if *asJSON {
			row["conversation"] = nonNil(cp.Conversation)
			row["artifacts"] = nonNil(cp.Artifacts)
			return printJSON(env.Stdout, row)
		}
		for _, name := range []string{"id", "thread", "parent", "created_at", "reason", "label", "run", "kind", "root", "pinned"} {
			if row[name] != nil {
				fmt.Fprintf(env.Stdout, "%-11s %v\n", name, row[name])
			}
		}
		fmt.Fprintf(env.Stdout, "%-11s %s in %s, %s\n", "holds", counted(cp.Stats.Files, "file"), counted(cp.Stats.Entries, "entry"), counted(cp.Stats.Bytes, "byte"))
		if cp.Git != nil {
			fmt.Fprintf(env.Stdout, "%-11s %s %s %s\n", "git", cp.Git.Repo, cp.Git.Branch, cp.Git.Commit)
		}
		if cp.From != nil {
			fmt.Fprintf(env.Stdout, "%-11s %s of %s\n", "forked from", cp.From.Checkpoint, cp.From.Thread)
		}
		_, err = fmt.Fprintf(env.Stdout, "%-11s %d messages\n", "with", len(cp.Conversation))
		return err
	}
	return cmd
}

// nonNil makes an empty list of none, for JSON.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func newCheckpointFork(env Env) *cobra.Command {
	var p checkpoint.ForkParams
	cmd := &cobra.Command{Use: "fork ID --thread NEW", Short: "Begin a thread with the files of a checkpoint", Args: cobra.ExactArgs(1),
		Long: `Begin a thread with the files and the conversation of a checkpoint. Nothing is copied,
and the source stays as it is.`}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&p.Thread, "thread", "", "the new `THREAD`, which must be without checkpoints")
	f.StringVar(&p.ID, "id", "", "the `ID` of its first checkpoint; chosen when left out")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if p.Thread == "" {
			return usagef("give the new thread with --thread")
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		p.Checkpoint = args[0]
		cp, err := remote.ForkFrom(c.Context(), p)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, checkpointRow(cp))
		}
		_, err = fmt.Fprintf(env.Stdout, "%s begins thread %q\n", cp.ID, cp.Thread)
		return err
	}
	return cmd
}

func newCheckpointPin(env Env) *cobra.Command {
	off := false
	cmd := &cobra.Command{Use: "pin ID", Short: "Keep a checkpoint from pruning and deletion", Args: cobra.ExactArgs(1)}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVar(&off, "off", false, "end that")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		if err := remote.Pin(c.Context(), args[0], !off); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"id": args[0], "pinned": !off})
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is %s\n", args[0], map[bool]string{true: "no longer pinned", false: "pinned"}[off])
		return err
	}
	return cmd
}

func newCheckpointDelete(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "delete ID", Short: "Delete a checkpoint", Args: cobra.ExactArgs(1),
		Long: `Delete a checkpoint, in whichever place of its thread it is. When it was the head, the
newest one that is left becomes the head. A pinned one is not deleted.`}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		head, err := remote.Delete(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"id": args[0], "head": orNull(head)})
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is deleted\n", args[0])
		return err
	}
	return cmd
}

func newCheckpointPrune(env Env) *cobra.Command {
	var w workspaceFlags
	keep, older, label := int64(0), time.Duration(0), ""
	var p api.PruneThread
	cmd := &cobra.Command{Use: "prune --thread T", Short: "Delete old checkpoints of a thread", Args: cobra.NoArgs,
		Long: `Delete the checkpoints of a thread that are not among the --keep-last newest, and older
than --older-than, and named --label, as far as those are given. The head and pinned
ones always stay.`}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&w.thread, "thread", "", "the `THREAD` (CAIRN_THREAD)")
	f.Int64Var(&keep, "keep-last", 0, "keep the `N` newest")
	f.DurationVar(&older, "older-than", 0, "delete only what is older than this `TIME`, such as 720h")
	f.StringVar(&label, "label", "", "delete only those with this `LABEL`")
	f.BoolVar(&p.DryRun, "dry-run", false, "tell what would be deleted, and delete nothing")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		thread, err := w.threadName(env)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("keep-last") && !c.Flags().Changed("older-than") && label == "" {
			return usagef("give --keep-last, --older-than or --label")
		}
		if keep < 0 || older < 0 {
			return usagef("--keep-last and --older-than are not below zero")
		}
		if c.Flags().Changed("keep-last") {
			p.KeepLast = &keep
		}
		if c.Flags().Changed("older-than") {
			seconds := int64((older + time.Second - 1) / time.Second)
			p.OlderThanSeconds = &seconds
		}
		if c.Flags().Changed("label") {
			p.Label = &label
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		pruned, err := remote.Prune(c.Context(), thread, p)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(env.Stdout, map[string]any{"deleted": nonNil(pruned.Deleted), "kept": pruned.Kept, "dry_run": pruned.DryRun, "has_more": pruned.HasMore})
		}
		for _, id := range pruned.Deleted {
			fmt.Fprintln(env.Stdout, id)
		}
		_, err = fmt.Fprintf(env.Stdout, "%d %s, %d kept\n", len(pruned.Deleted), map[bool]string{true: "would be deleted", false: "deleted"}[p.DryRun], pruned.Kept)
		return err
	}
	return cmd
}

func newCheckpointPromote(env Env) *cobra.Command {
	var p api.PromoteCheckpoint
	author := ""
	cmd := &cobra.Command{Use: "promote ID --repo R --branch B", Short: "Make a commit of the files of a checkpoint", Args: cobra.ExactArgs(1),
		Long: `Make a commit of the files of a checkpoint on a branch of a repository. A given token
has to grant git:write on the repository, and checkpoint:read on the thread.`}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&p.Repo, "repo", "", "the `REPOSITORY`")
	f.StringVar(&p.Branch, "branch", "", "the `BRANCH`")
	f.BoolVar(&p.Ephemeral, "ephemeral", false, "the branch is an ephemeral one")
	f.StringVar(&p.Base, "base", "", "where a `BRANCH` begins that does not exist; the default branch when left out")
	f.StringVar(&p.Root, "root", "", "the `NAME` of the root to commit, of a checkpoint with several")
	f.StringVar(&p.Message, "message", "", "the commit's message")
	f.StringVar(&author, "author", "", "the commit's author, `'Name <address>'`")
	f.StringVar(&p.ExpectedHead, "expected-head", "", "the `COMMIT` that the branch has to be at; forty zeros: it must not exist")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if p.Repo == "" || p.Branch == "" {
			return usagef("give the repository and the branch with --repo and --branch")
		}
		if author != "" {
			name, rest, ok := strings.Cut(author, " <")
			address, closed := strings.CutSuffix(rest, ">")
			if !ok || !closed || name == "" || address == "" {
				return usagef("--author %q: want 'Name <address>'", author)
			}
			p.Author = &api.Identity{Name: name, Email: address}
		}
		remote, err := checkpoints(env)
		if err != nil {
			return err
		}
		made, err := remote.Promote(c.Context(), args[0], p)
		if err != nil {
			return err
		}
		for _, path := range made.Skipped {
			fmt.Fprintf(env.Stderr, "left out: %q: Git cannot hold it\n", path)
		}
		if *asJSON {
			err = printJSON(env.Stdout, made)
		} else {
			_, err = fmt.Fprintf(env.Stdout, "%s is the head of %s in %s\n", made.Commit, made.Branch, made.Repo)
		}
		if err == nil && len(made.Skipped) > 0 {
			err = exitError{exitPartial}
		}
		return err
	}
	return cmd
}

// output opens the file that a command writes to, or standard output for "" and
// "-". done puts the file in its place if ok, and else removes it.
func output(env Env, path string) (w io.Writer, done func(ok bool) error, err error) {
	if path == "" || path == "-" {
		b := bufio.NewWriterSize(env.Stdout, 64<<10)
		return b, func(bool) error { return b.Flush() }, nil
	}
	part := path + ".part"
	f, err := os.Create(part)
	if err != nil {
		return nil, nil, err
	}
	return f, func(ok bool) error {
		err := f.Close()
		if ok && err == nil {
			return os.Rename(part, path)
		}
		os.Remove(part)
		return err
	}, nil
}

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

type restoreFlags struct {
	workspaceFlags
	checkpoint                              string
	owner, setID, undo, dryRun, yes, noUndo bool
}

func newRestore(env Env) *cobra.Command {
	var o restoreFlags
	cmd := &cobra.Command{
		Use: "restore --thread T", Short: "Make a workspace equal to a checkpoint", Args: cobra.NoArgs,
		Long: `Make directories equal to a checkpoint of a thread, the newest one if none is named:
what differs is replaced, what the checkpoint does not have is removed, what its
policy excludes stays. Everything is fetched and verified before the first change;
after a crash each file is the old or the new one, and another restore completes it.
Nothing else may write there meanwhile.

A thread without checkpoints leaves the directories as they are, with exit code 0 and
{"checkpoint":null}. /, $HOME, and a folder with files in it that this thread never
captured or restored are refused without --yes. What was left out makes the exit code
7. A restore is alone with its directories: while a capture or another restore is at
work in them the exit code is 6. SIGINT or SIGTERM before the first change ends it
with exit code 1 and nothing changed; after that it completes. A second signal ends
it at once, as a crash does.

--undo makes the directories what they were before the last restore, and what is
remembered of their head with them. For that a restore first saves what it replaces
beside that memory (CAIRN_STATE_DIR): what a capture would send, so nothing of what the
thread has already. The next restore replaces it, --undo removes it, --no-undo does
without.`,
	}
	o.flags(cmd)
	o.policyFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.checkpoint, "checkpoint", "", "the `ID` of the checkpoint; the newest one when left out")
	f.BoolVar(&o.owner, "owner", false, "restore owners and groups")
	f.BoolVar(&o.setID, "set-id", false, "restore set-user-id and set-group-id bits")
	f.BoolVar(&o.undo, "undo", false, "undo the last restore instead")
	f.BoolVar(&o.noUndo, "no-undo", false, "keep nothing for --undo")
	f.BoolVar(&o.dryRun, "dry-run", false, "tell what would change, and change nothing")
	f.BoolVar(&o.yes, "yes", false, "restore into any folder")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		p, err := o.params(env)
		if err != nil {
			return err
		}
		run := checkpoint.Restore
		if o.undo {
			if o.checkpoint != "" {
				return usagef("give either --undo or --checkpoint")
			}
			run = checkpoint.Undo
		}
		shown := newMeter(env)
		p.Progress = func(f checkpoint.Fetched) { shown.show("fetched", f.Objects, f.Bytes) }
		restored, err := run(c.Context(), p)
		shown.end()
		if errors.Is(err, checkpoint.ErrForeignFolder) {
			return fmt.Errorf("%w; name another directory, or give --yes", err)
		}
		if err != nil {
			return interrupted(c.Context(), err, "nothing was changed; run it again")
		}
		if restored != nil && restored.Forgotten && !o.dryRun {
			forgotten(env.Stderr, restored.Checkpoint.ID)
		}
		return o.print(env, p.Thread, restored)
	}
	return cmd
}

func (o *restoreFlags) params(env Env) (p checkpoint.RestoreParams, err error) {
	if p.Thread, err = o.threadName(env); err != nil {
		return p, err
	}
	if p.Roots, err = o.rootList(); err != nil {
		return p, err
	}
	if p.Policy, err = o.policyOf(env, p.Roots); err != nil {
		return p, err
	}
	if p.Policy != nil && o.policy == "" {
		p.Policy.Base = "full" // only what --include and --exclude say is spared
	}
	if p.Secrets, err = o.secretList(env); err != nil {
		return p, err
	}
	p.Checkpoint, p.Owner, p.SetID, p.DryRun, p.NoUndo, p.Careful = o.checkpoint, o.owner, o.setID, o.dryRun, o.noUndo, !o.yes
	p.StateDir = env.Getenv("CAIRN_STATE_DIR")
	remote, err := checkpoints(env)
	p.Store, p.Blobs = remote, remote
	return p, err
}

// print tells what a restore did; nil is a thread without checkpoints.
func (o *restoreFlags) print(env Env, thread string, r *checkpoint.Restored) error {
	if r == nil {
		if o.asJSON {
			_, err := fmt.Fprintln(env.Stdout, `{"checkpoint":null}`)
			return err
		}
		_, err := fmt.Fprintf(env.Stdout, "thread %q has no checkpoint: nothing to restore\n", thread)
		return err
	}
	partial := leftOut(env.Stderr, r.LeftOut)
	var err error
	if o.asJSON {
		err = printJSON(env.Stdout, map[string]any{
			"checkpoint": checkpointRow(r.Checkpoint), "dry_run": o.dryRun, "undo": o.undo,
			"written": map[string]uint64{"files": r.Written.Files, "bytes": r.Written.Bytes},
			"changed": pathNames(r.Changed), "changed_total": r.Changed.Total,
			"removed": pathNames(r.Removed), "removed_total": r.Removed.Total,
			"left_out": pathRows(r.LeftOut), "left_out_total": r.LeftOut.Total,
		})
	} else {
		err = o.tell(env, r)
	}
	if err == nil && partial {
		err = exitError{exitPartial}
	}
	return err
}

func (o *restoreFlags) tell(env Env, r *checkpoint.Restored) error {
	if o.dryRun {
		// What would be lost comes first.
		for _, p := range r.Removed.Paths {
			fmt.Fprintf(env.Stdout, "would remove %q\n", p.Path)
		}
		for _, p := range r.Changed.Paths {
			fmt.Fprintf(env.Stdout, "would change %q\n", p.Path)
		}
	}
	what := "the state before the last restore"
	if r.Checkpoint != nil {
		what = r.Checkpoint.ID
	}
	verb := map[bool]string{false: "restored", true: "would be restored"}[o.dryRun]
	_, err := fmt.Fprintf(env.Stdout, "%s: %s; %s changed, %d removed; %s with %s written\n", what, verb,
		counted(r.Changed.Total, "path"), r.Removed.Total, counted(r.Written.Files, "file"), counted(r.Written.Bytes, "byte"))
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

// captureFlags are those of capture and watch.
type captureFlags struct {
	workspaceFlags
	onto         string
	label        string
	links        string
	conversation string
	onChanged    string
	ifBusy       string
	always       bool
	git          checkpoint.Git
}

func (o *captureFlags) flags(cmd *cobra.Command) {
	o.workspaceFlags.flags(cmd)
	o.policyFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.onto, "onto", "", "the head that the files came from: a checkpoint's `ID`, none, or head for whatever it is; what was last restored or captured when left out")
	f.StringVar(&o.label, "label", "", "a `NAME` for the checkpoint")
	f.StringVar(&o.links, "outside-links", "refuse", "links that leave their root: refuse, skip, or keep their text")
	f.StringVar(&o.conversation, "conversation", "", "keep the JSON list of messages in this `FILE` with the files")
	f.StringVar(&o.onChanged, "on-changed", "retry", "a file that changes while it is read: retry some times, fail, or mark it")
	f.StringVar(&o.ifBusy, "if-busy", o.ifBusy, "`WHAT` to do while another writer, or a restore, is at work: fail, skip, or wait=TIME")
	f.BoolVar(&o.always, "always", false, "make a checkpoint also when nothing changed")
	f.StringVar(&o.git.Repo, "git-repo", "", "record that the files belong to this `REPOSITORY`")
	f.StringVar(&o.git.Branch, "git-branch", "", "record this `BRANCH` of it")
	f.StringVar(&o.git.Commit, "git-commit", "", "record this `COMMIT` of it")
}

// params turns flags into those of the library. skip says what to do when busy.
func (o *captureFlags) params(env Env) (p checkpoint.CaptureParams, skip bool, err error) {
	if p.Thread, err = o.threadName(env); err != nil {
		return p, false, err
	}
	if p.Roots, err = o.rootList(); err != nil {
		return p, false, err
	}
	if p.Policy, err = o.policyOf(env, p.Roots); err != nil {
		return p, false, err
	}
	if p.Secrets, err = o.secretList(env); err != nil {
		return p, false, err
	}
	if p.Conversation, err = conversation(env, o.conversation); err != nil {
		return p, false, err
	}
	if skip, err = o.choices(&p); err != nil {
		return p, false, err
	}
	if o.git != (checkpoint.Git{}) {
		if o.git.Repo == "" {
			return p, false, usagef("--git-branch and --git-commit go with --git-repo")
		}
		p.Git = &o.git
	}
	p.Label, p.Always, p.StateDir = o.label, o.always, env.Getenv("CAIRN_STATE_DIR")
	remote, err := checkpoints(env)
	p.Store, p.Blobs = remote, remote
	return p, skip, err
}

// choices reads the flags with a choice of words.
func (o *captureFlags) choices(p *checkpoint.CaptureParams) (skip bool, err error) {
	switch o.onto {
	case "":
	case "head":
		p.AnyHead = true
	case "none":
		p.ExpectedHead = new(string)
	default:
		p.ExpectedHead = &o.onto
	}
	switch o.links {
	case "refuse":
	case "skip":
		p.Links = checkpoint.SkipOutside
	case "keep":
		p.Links = checkpoint.KeepOutside
	default:
		return false, usagef("--outside-links %q: want refuse, skip or keep", o.links)
	}
	switch o.onChanged {
	case "retry":
	case "fail":
		p.ReadOnce = true
	case "mark":
		p.MarkChanged = true
	default:
		return false, usagef("--on-changed %q: want retry, fail or mark", o.onChanged)
	}
	wait, waits := strings.CutPrefix(o.ifBusy, "wait=")
	switch {
	case o.ifBusy == "skip":
		return true, nil
	case waits:
		if p.WaitBusy, err = time.ParseDuration(wait); err != nil || p.WaitBusy <= 0 {
			return false, usagef("--if-busy %q: want a time such as wait=30s", o.ifBusy)
		}
	case o.ifBusy != "fail":
		return false, usagef("--if-busy %q: want fail, skip or wait=30s", o.ifBusy)
	}
	return false, nil
}

func newCapture(env Env) *cobra.Command {
	o := captureFlags{ifBusy: "fail"}
	cmd := &cobra.Command{
		Use: "capture --thread T", Short: "Save the files of a workspace as a checkpoint", Args: cobra.NoArgs,
		Long: `Save the files of one or more directories as a checkpoint, which becomes the head of
its thread. Nothing is written into the directories, and a second capture reads
only what changed; nothing is saved when nothing did, unless --label or --git-commit
say more than the head does. In a sandbox it needs CAIRN_URL and CAIRN_TOKEN, nothing else.

The files must have come from the head of the thread, as was remembered when they
were last captured or restored (in CAIRN_STATE_DIR, or the user's state directory).
If another checkpoint is the head, somebody else saved since: nothing is appended,
and the exit code is 3. --onto head appends all the same.

Paths that cannot be kept (links that leave the directory, fifos, sockets, devices)
are listed all at once, with the --exclude that leaves them out. What was left out
for another reason than the policy makes the exit code 7.

Captures of one directory for different threads may run at the same time. During a
restore into it, or another capture of it for the same thread, the exit code is 6.
An interrupted capture (SIGINT, SIGTERM) ends with exit code 1.`,
	}
	o.flags(cmd)
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		p, skip, err := o.params(env)
		if err != nil {
			return err
		}
		shown := newMeter(env)
		p.Progress = func(s checkpoint.Sent) { shown.show("sent", s.Objects, s.Bytes) }
		captured, err := checkpoint.Capture(c.Context(), p)
		shown.end()
		if skip && errors.Is(err, checkpoint.ErrWriterConflict) {
			return o.skipped(env, err)
		}
		if refused, ok := errors.AsType[*checkpoint.UnsupportedEntryError](err); ok {
			offenders(env.Stderr, refused)
			return fmt.Errorf("%s cannot be captured; nothing was saved", counted(refused.Total, "path"))
		}
		if err != nil {
			return interrupted(c.Context(), err, "the capture did not end; run it again, which goes on from whatever was saved")
		}
		if captured.Forgotten {
			forgotten(env.Stderr, captured.Checkpoint.ID)
		}
		return o.print(env, captured)
	}
	return cmd
}

func (o *captureFlags) skipped(env Env, busy error) error {
	if o.asJSON {
		return printJSON(env.Stdout, map[string]any{"checkpoint": nil, "skipped": busy.Error()})
	}
	_, err := fmt.Fprintf(env.Stdout, "skipped: %v\n", busy)
	return err
}

// print tells what a capture did.
func (o *captureFlags) print(env Env, c *checkpoint.Captured) error {
	partial := leftOut(env.Stderr, c.LeftOut, c.Mixed)
	var err error
	switch {
	case o.asJSON:
		err = printJSON(env.Stdout, map[string]any{
			"checkpoint": checkpointRow(c.Checkpoint), "unchanged": c.Unchanged,
			"left_out": pathRows(c.LeftOut), "left_out_total": c.LeftOut.Total, "changed_while_read": pathRows(c.Mixed),
			"read": map[string]uint64{"files": c.Read.Files, "bytes": c.Read.Bytes},
			"sent": map[string]uint64{"objects": c.Sent.Objects, "bytes": c.Sent.Bytes},
		})
	case c.Unchanged:
		_, err = fmt.Fprintf(env.Stdout, "%s: nothing changed since\n", c.Checkpoint.ID)
	default:
		_, err = fmt.Fprintf(env.Stdout, "%s: %s, %s; %s sent\n", c.Checkpoint.ID,
			counted(c.Checkpoint.Stats.Files, "file"), counted(c.Checkpoint.Stats.Bytes, "byte"), counted(c.Sent.Bytes, "byte"))
	}
	if err == nil && partial {
		err = exitError{exitPartial}
	}
	return err
}

func newWatch(env Env) *cobra.Command {
	var o captureFlags
	interval, grace := time.Minute, 8*time.Second
	o.ifBusy = "skip"
	cmd := &cobra.Command{
		Use: "watch --thread T", Short: "Capture a workspace now and then", Args: cobra.NoArgs,
		Long: `Capture at once and then every --every, until SIGTERM or SIGINT, and once more then.
The exit code is that of the last capture: 0 says that nothing is lost. A second
signal ends it at once. A capture that finds another writer at work is skipped; one
that fails, as while the server restarts, is logged and tried again after a second,
then after twice that, up to --every. It ends with exit code 3 when somebody else
saved: the files are stale. --onto is for the first capture.`,
	}
	o.flags(cmd)
	cmd.Flags().DurationVar(&interval, "every", interval, "how often to capture")
	cmd.Flags().DurationVar(&grace, "grace", grace, "how long the last capture may take")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		p, _, err := o.params(env)
		if err != nil {
			return err
		}
		return o.watch(c.Context(), env, p, interval, grace)
	}
	return cmd
}

// watch logs to standard error. With --json it prints the last checkpoint when it
// ends.
func (o *captureFlags) watch(ctx context.Context, env Env, p checkpoint.CaptureParams, interval, grace time.Duration) error {
	if interval <= 0 || grace < 0 {
		return usagef("--every has to be above zero, --grace not below")
	}
	if o.ifBusy == "fail" {
		return usagef("--if-busy fail is for cairn capture: give skip, or a time such as wait=30s")
	}
	var last *checkpoint.Captured
	err := checkpoint.Every(ctx, interval, p, checkpoint.EveryOptions{
		Log: slog.New(slog.NewTextHandler(env.Stderr, nil)), Grace: grace, Captured: func(c *checkpoint.Captured) {
			if last == nil || !slices.Equal(last.LeftOut.Paths, c.LeftOut.Paths) || !slices.Equal(last.Mixed.Paths, c.Mixed.Paths) {
				leftOut(env.Stderr, c.LeftOut, c.Mixed) // once, not with each capture
			}
			last = c
		},
	})
	if err == nil && o.asJSON {
		row := map[string]any{"checkpoint": nil}
		if last != nil {
			row["checkpoint"] = checkpointRow(last.Checkpoint)
		}
		err = printJSON(env.Stdout, row)
	}
	return err
}

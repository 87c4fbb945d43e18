package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/server"
)

type gcOptions struct {
	org, repo          string
	full, dryRun, json bool
}

// gcRow is what was found in one repository and done to it, as printed.
type gcRow struct {
	Org              string `json:"org"`
	Repo             string `json:"repo"`
	Did              string `json:"did"`
	PacksBefore      int    `json:"packs_before"`
	PacksAfter       int    `json:"packs_after"`
	BytesBefore      int64  `json:"bytes_before"`
	BytesAfter       int64  `json:"bytes_after"`
	SharedPacks      int    `json:"shared_packs"`
	SharedBytes      int64  `json:"shared_bytes"`
	Objects          int64  `json:"objects"`
	UniqueBytes      int64  `json:"unique_bytes"`
	GarbageObjects   int64  `json:"garbage_objects"`
	GarbageBytes     int64  `json:"garbage_bytes"`
	ReclaimableBytes int64  `json:"reclaimable_bytes"`
	Tidy             bool   `json:"tidy"`
}

// gcTotal sums up a run.
type gcTotal struct {
	Repositories     int   `json:"repositories"`
	Changed          int   `json:"changed"`
	PacksBefore      int   `json:"packs_before"`
	PacksAfter       int   `json:"packs_after"`
	BytesBefore      int64 `json:"bytes_before"`
	BytesAfter       int64 `json:"bytes_after"`
	GarbageBytes     int64 `json:"garbage_bytes"`
	ReclaimableBytes int64 `json:"reclaimable_bytes"`
	// SweptPacks are replaced packs, of this run or before, whose bytes are gone.
	SweptPacks int `json:"swept_packs"`
	// EmptiedRepositories were deleted longer ago than --undelete-window,
	// EphemeralBranches not updated for the age that is set for them.
	EmptiedRepositories int `json:"emptied_repositories"`
	EphemeralBranches   int `json:"ephemeral_branches"`
	// Objects of checkpoints before, and the bytes of those that nothing referred
	// to; FreedObjectBytes are those of packs that were removed.
	Objects          int64 `json:"checkpoint_objects"`
	ObjectBytes      int64 `json:"checkpoint_object_bytes"`
	DeadObjectBytes  int64 `json:"dead_checkpoint_object_bytes"`
	FreedObjectBytes int64 `json:"freed_checkpoint_pack_bytes"`
}

type gcRun struct {
	env   Env
	o     gcOptions
	st    *server.Storage
	rows  []gcRow
	total gcTotal
}

func newGC(env Env) *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use: "gc", Short: "Compact repositories and collect what nothing reaches", Args: cobra.NoArgs,
		Long: `Compact the repositories for which it is due: put their last packs together, or make one
pack with deltas of all that is reachable and part the rest from it. What is not
reachable is kept for --garbage-grace, then dropped. It works while the server runs,
which does the same by itself for repositories that are written to. Then empty
repositories that were deleted longer ago than --undelete-window, and delete ephemeral
branches of the age that their repository or org sets. Unless --repo is given, sweep the
objects of checkpoints too. The bytes of
replaced packs are freed once no running operation can be reading them. Give
--unseen-grace as the server has it. A full repack needs the git program.`,
	}
	load := settings(cmd, env, true)
	f := cmd.Flags()
	f.StringVar(&o.org, "org", "", "only the repositories of this `ORG`")
	f.StringVar(&o.repo, "repo", "", "only this `REPOSITORY` (needs --org)")
	f.BoolVar(&o.full, "full", false, "repack even where it is not due")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done; change nothing")
	f.BoolVar(&o.json, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if o.repo != "" && o.org == "" {
			return usagef("--repo needs --org")
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			run := &gcRun{env: env, o: o, st: st, rows: []gcRow{}}
			if err := whileRunning(c.Context(), st, env, run.all); err != nil {
				return err
			}
			return run.summary()
		})
	}
	return cmd
}

func (r *gcRun) all(ctx context.Context) error {
	err := eachRepo(ctx, r.st, r.env, r.o.org, r.o.repo, func(org meta.Org, row meta.Repo) error { return r.one(ctx, org, row) })
	if err == nil && r.o.repo == "" {
		err = eachContent(ctx, r.st, r.env, r.o.org, func(org meta.Org) error { return r.objects(ctx, org) })
	}
	if err != nil || r.o.dryRun {
		return err
	}
	if err := r.st.Engine.Heartbeat(ctx); err != nil {
		return err
	}
	expired, err := r.st.Engine.Expire(ctx)
	r.total.EmptiedRepositories, r.total.EphemeralBranches = expired.Repositories, expired.Branches
	if err != nil {
		return err
	}
	swept, err := r.st.Engine.Sweep(ctx)
	r.total.SweptPacks = swept.Retired
	return err
}

// objects sweeps the objects of an org's checkpoints: what the first sweep condemns
// the second removes.
func (r *gcRun) objects(ctx context.Context, org meta.Org) error {
	sweep := r.st.Content.Survey
	if !r.o.dryRun {
		if _, err := r.st.Content.Tidy(ctx, org.ID); err != nil {
			return fmt.Errorf("objects of org %q: %w", org.Name, err)
		}
		sweep = r.st.Content.Sweep
	}
	res, err := sweep(ctx, org.ID, r.st.Checkpoints.Live)
	if err == nil && res.Condemned > 0 && !r.o.dryRun {
		var again content.Swept
		again, err = sweep(ctx, org.ID, r.st.Checkpoints.Live)
		res.Removed, res.Freed = res.Removed+again.Removed, res.Freed+again.Freed
	}
	if err == nil && res.Hidden {
		err = fmt.Errorf("%d objects that checkpoints refer to are missing, so that nothing is removed: cairn fsck names them: %w", res.Missing, errDamage)
	}
	if err == nil && !r.o.dryRun {
		err = r.st.Checkpoints.ForgetBlobs(ctx, org.ID)
	}
	if err != nil {
		return fmt.Errorf("objects of org %q: %w", org.Name, err)
	}
	t := &r.total
	t.Objects, t.ObjectBytes = t.Objects+res.Objects, t.ObjectBytes+res.Bytes
	t.DeadObjectBytes, t.FreedObjectBytes = t.DeadObjectBytes+res.DeadBytes, t.FreedObjectBytes+res.Freed
	return nil
}

func (r *gcRun) one(ctx context.Context, org meta.Org, row meta.Repo) error {
	line := progressLine(r.env)
	res, err := r.st.Engine.Collect(ctx, row.ID, repo.CollectOptions{
		Full: r.o.full, DryRun: r.o.dryRun,
		Progress: func(step string) { line(fmt.Sprintf("%s/%s: %s", org.Name, row.Name, step)) },
	})
	line("")
	if gone, ok := errors.AsType[*repo.GoneError](err); ok && gone != nil && r.o.repo == "" {
		return nil // deleted since it was listed
	}
	if err != nil {
		return fmt.Errorf("repository %q of org %q: %w", row.Name, org.Name, err)
	}
	t := &r.total
	t.Repositories++
	t.PacksBefore, t.PacksAfter = t.PacksBefore+res.PacksBefore, t.PacksAfter+res.PacksAfter
	t.BytesBefore, t.BytesAfter = t.BytesBefore+res.BytesBefore, t.BytesAfter+res.BytesAfter
	t.GarbageBytes += res.GarbageBytes
	t.ReclaimableBytes += res.ReclaimableBytes
	if res.Did == repo.DidNothing && r.o.repo == "" {
		return nil
	}
	if res.Did != repo.DidNothing {
		t.Changed++
	}
	found := gcRow{
		Org: org.Name, Repo: row.Name, Did: res.Did, PacksBefore: res.PacksBefore, PacksAfter: res.PacksAfter,
		BytesBefore: res.BytesBefore, BytesAfter: res.BytesAfter, SharedPacks: res.SharedPacks, SharedBytes: res.SharedBytes,
		Objects: res.Objects, UniqueBytes: res.UniqueBytes, GarbageObjects: res.GarbageObjects, GarbageBytes: res.GarbageBytes,
		ReclaimableBytes: res.ReclaimableBytes, Tidy: res.Tidy,
	}
	if r.o.json {
		r.rows = append(r.rows, found)
		return nil
	}
	fmt.Fprintf(r.env.Stdout, "%s/%s: %s: %d packs, %d bytes before; %d packs, %d bytes after; %d bytes unique, %d garbage, %d reclaimable\n",
		found.Org, found.Repo, found.Did, found.PacksBefore, found.BytesBefore, found.PacksAfter, found.BytesAfter,
		found.UniqueBytes, found.GarbageBytes, found.ReclaimableBytes)
	return nil
}

func (r *gcRun) summary() error {
	if r.o.json {
		return printJSON(r.env.Stdout, map[string]any{"dry_run": r.o.dryRun, "repositories": r.rows, "total": r.total})
	}
	t := r.total
	verb := "changed"
	if r.o.dryRun {
		verb = "would change"
	}
	fmt.Fprintf(r.env.Stdout, "%d repositories, %d %s: %d packs, %d bytes before; %d packs, %d bytes after; bytes of %d packs freed; %d deleted repositories emptied, %d ephemeral branches deleted\n",
		t.Repositories, t.Changed, verb, t.PacksBefore, t.BytesBefore, t.PacksAfter, t.BytesAfter, t.SweptPacks, t.EmptiedRepositories, t.EphemeralBranches)
	if t.Objects > 0 {
		fmt.Fprintf(r.env.Stdout, "%d objects of checkpoints, %d bytes: %d bytes that nothing refers to, packs of %d bytes freed\n",
			t.Objects, t.ObjectBytes, t.DeadObjectBytes, t.FreedObjectBytes)
	}
	return nil
}

// progressLine returns what shows a line on a terminal in place of the one
// before, "" to take it away; elsewhere it shows nothing.
func progressLine(env Env) func(string) {
	f, ok := env.Stderr.(*os.File)
	if !ok {
		return func(string) {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}
	}
	return func(text string) { fmt.Fprintf(f, "\r\x1b[K%s", text) }
}

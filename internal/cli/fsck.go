package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/server"
)

// errDamage is what fsck ends with when an invariant is broken.
var errDamage = errors.New("damage was found")

type fsckOptions struct {
	org, repo string
	json      bool
}

// fsckRow is one broken invariant as printed.
type fsckRow struct {
	Org    string `json:"org,omitempty"`
	Repo   string `json:"repo,omitempty"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// fsckRun collects what one check found.
type fsckRun struct {
	env     Env
	o       fsckOptions
	st      *server.Storage
	rows    []fsckRow
	repos   int
	orgs    int // with objects of checkpoints
	damaged bool
}

func newFsck(env Env) *cobra.Command {
	var o fsckOptions
	cmd := &cobra.Command{
		Use: "fsck", Short: "Check that everything is there and whole", Args: cobra.NoArgs,
		Long: `Read every pack of every repository and check it: checksums, indexes, that every ref
resolves and that everything it reaches is there. Then the objects of checkpoints, unless
--repo is given: packs, index files, and that all that a checkpoint refers to is there.
Bytes that nothing names are listed and are no damage. It works while the server runs. Exit code 1 when damage was found.`,
	}
	load := settings(cmd, env, true)
	f := cmd.Flags()
	f.StringVar(&o.org, "org", "", "only the repositories and checkpoints of this `ORG`")
	f.StringVar(&o.repo, "repo", "", "only this `REPOSITORY` (needs --org)")
	f.BoolVar(&o.json, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if o.repo != "" && o.org == "" {
			return usagef("--repo needs --org")
		}
		return withStorage(c.Context(), env, load, func(st *server.Storage) error {
			run := &fsckRun{env: env, o: o, st: st, rows: []fsckRow{}}
			if err := whileRunning(c.Context(), st, env, run.all); err != nil {
				return err
			}
			return run.summary()
		})
	}
	return cmd
}

func (r *fsckRun) all(ctx context.Context) error {
	err := eachRepo(ctx, r.st, r.env, r.o.org, r.o.repo, func(org meta.Org, row meta.Repo) error { return r.one(ctx, org, row) })
	if err != nil || r.o.repo != "" {
		return err
	}
	err = eachContent(ctx, r.st, r.env, r.o.org, func(org meta.Org) error {
		r.orgs++
		return r.st.Content.Fsck(ctx, org.ID, r.st.Checkpoints.Live, func(f content.Finding) { r.object(org, f) })
	})
	if err != nil || r.o.org != "" {
		return err
	}
	return errors.Join(
		r.st.Engine.FsckBlobs(ctx, func(f repo.Finding) { r.found(meta.Org{}, meta.Repo{}, f) }),
		r.st.Content.FsckBlobs(ctx, func(f content.Finding) { r.object(meta.Org{}, f) }))
}

// object prints a fault of an org's objects of checkpoints.
func (r *fsckRun) object(org meta.Org, f content.Finding) {
	r.row(fsckRow{Org: org.Name, Kind: string(f.Kind), Detail: f.Detail}, f.Kind != content.FindUnreferenced)
}

func (r *fsckRun) one(ctx context.Context, org meta.Org, row meta.Repo) error {
	r.repos++
	return r.st.Engine.Fsck(ctx, row, func(f repo.Finding) { r.found(org, row, f) })
}

func (r *fsckRun) found(org meta.Org, row meta.Repo, f repo.Finding) {
	r.row(fsckRow{Org: org.Name, Repo: row.Name, Kind: string(f.Kind), Detail: f.Detail}, f.Kind != repo.FindUnreferenced)
}

func (r *fsckRun) row(found fsckRow, damage bool) {
	r.damaged = r.damaged || damage
	if r.o.json {
		r.rows = append(r.rows, found)
		return
	}
	where := ""
	switch {
	case found.Repo != "":
		where = found.Org + "/" + found.Repo + ": "
	case found.Org != "":
		where = found.Org + ": "
	}
	fmt.Fprintf(r.env.Stdout, "%s: %s%s\n", found.Kind, where, found.Detail)
}

func (r *fsckRun) summary() error {
	if r.o.json {
		if err := printJSON(r.env.Stdout, map[string]any{"repositories": r.repos, "checkpoint_orgs": r.orgs, "ok": !r.damaged, "findings": r.rows}); err != nil {
			return err
		}
	} else if !r.damaged {
		checkpoints := ""
		if r.orgs > 0 {
			checkpoints = fmt.Sprintf(", and the checkpoints of %d orgs", r.orgs)
		}
		fmt.Fprintf(r.env.Stdout, "%d repositories checked%s: all there and whole\n", r.repos, checkpoints)
	}
	if r.damaged {
		return errDamage
	}
	return nil
}

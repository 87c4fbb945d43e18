package cli

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
)

// eachRepo calls do for one repository, or for all of an org, or of all orgs when
// org is "".
func eachRepo(ctx context.Context, st *server.Storage, env Env, org, repo string, do func(meta.Org, meta.Repo) error) error {
	if repo != "" {
		o, r, err := operator(st, env).Repo(ctx, org, repo)
		if err != nil {
			return err
		}
		return do(o, r)
	}
	return eachOrg(ctx, st, env, org, func(o meta.Org) error { return eachRepoOf(ctx, st, o, do) })
}

// eachOrg calls do for one org, or for all when org is "".
func eachOrg(ctx context.Context, st *server.Storage, env Env, org string, do func(meta.Org) error) error {
	if org != "" {
		o, err := operator(st, env).Org(ctx, org)
		if err != nil {
			return err
		}
		return do(o)
	}
	for o, err := range meta.AllOrgs(ctx, st.Meta) {
		if err != nil {
			return err
		}
		if err := do(o); err != nil {
			return err
		}
	}
	return nil
}

func eachRepoOf(ctx context.Context, st *server.Storage, org meta.Org, do func(meta.Org, meta.Repo) error) error {
	q := meta.RepoQuery{Org: org.ID, Limit: 1000}
	for {
		repos, err := st.Meta.ListRepos(ctx, q)
		if err != nil || len(repos) == 0 {
			return err
		}
		for _, r := range repos {
			q.BeforeCreated, q.BeforeID = r.CreatedAt, r.ID
			if err := do(org, r); err != nil {
				return err
			}
		}
	}
}

// whileRunning does work while the engine renews the heartbeat that keeps bytes
// in use from being swept.
func whileRunning(ctx context.Context, st *server.Storage, env Env, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		st.Engine.Run(ctx, func(err error) { fmt.Fprintf(env.Stderr, "cairn: %s\n", message(err)) })
	}()
	err := work(ctx)
	stop()
	<-ended
	return err
}

// eachContent calls do for one org, or for each that has objects of checkpoints.
func eachContent(ctx context.Context, st *server.Storage, env Env, org string, do func(meta.Org) error) error {
	if org != "" {
		return eachOrg(ctx, st, env, org, do)
	}
	has := make(map[meta.OrgID]bool)
	for after := meta.OrgID(0); ; {
		ids, err := st.Meta.ContentOrgs(ctx, after, 1000)
		if err != nil {
			return err
		}
		for _, id := range ids {
			after = id
			has[id] = true
		}
		if len(ids) < 1000 {
			break
		}
	}
	if len(has) == 0 {
		return nil
	}
	return eachOrg(ctx, st, env, "", func(o meta.Org) error {
		if !has[o.ID] {
			return nil
		}
		return do(o)
	})
}

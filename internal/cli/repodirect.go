package cli

import (
	"context"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
)

// directRepos manages the repositories of one org on the storage, as the
// operator.
type directRepos struct {
	st  *server.Storage
	env Env
	org meta.Org
}

var _ repoAdmin = (*directRepos)(nil)

func (d *directRepos) writer(route string) repo.Writer {
	return repo.Writer{Org: d.org.ID, OrgName: d.org.Name, Subject: "operator", Route: route, Signer: d.org.Signer}
}

func rowOf(r meta.Repo) repoRow {
	return repoRow{Name: r.Name, ID: service.RepoID(r.ID), DefaultBranch: r.DefaultBranch, CreatedAt: stamp(r.CreatedAt)}
}

func (d *directRepos) live(ctx context.Context, name string) (meta.Repo, error) {
	_, row, err := operator(d.st, d.env).Repo(ctx, d.org.Name, name)
	if err == nil && !row.Deleted.IsZero() {
		err = &service.Error{Code: service.RepositoryDeleted, Message: "the repository is deleted"}
	}
	return row, err
}

func (d *directRepos) create(ctx context.Context, c creation) (repoRow, error) {
	if err := service.CheckRepoName(c.Name, false); err != nil {
		return repoRow{}, err
	}
	req := repo.CreateRequest{Name: c.Name, DefaultBranch: c.DefaultBranch}
	if c.Source == "" {
		row, err := d.st.Engine.Create(ctx, d.writer("cairn repo create"), req)
		return rowOf(row), err
	}
	source, err := d.live(ctx, c.Source)
	if err != nil {
		return repoRow{}, err
	}
	v, err := d.st.Engine.View(ctx, source)
	if err != nil {
		return repoRow{}, err
	}
	row, err := d.st.Engine.Fork(ctx, d.writer("cairn repo fork"), v, repo.ForkRequest{CreateRequest: req, Revision: first(c.SHA, c.Ref)})
	return rowOf(row), err
}

func (d *directRepos) list(ctx context.Context, query string, yield func(repoRow) error) error {
	q := meta.RepoQuery{Org: d.org.ID, Contains: query, Limit: 1000}
	for {
		rows, err := d.st.Meta.ListRepos(ctx, q)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, r := range rows {
			q.BeforeCreated, q.BeforeID = r.CreatedAt, r.ID
			if err := yield(rowOf(r)); err != nil {
				return err
			}
		}
	}
}

func (d *directRepos) remove(ctx context.Context, name string) error {
	row, err := d.live(ctx, name)
	if err != nil {
		return err
	}
	return d.st.Engine.Delete(ctx, d.writer("cairn repo delete"), row)
}

func (d *directRepos) undelete(ctx context.Context, name string) error {
	_, row, err := operator(d.st, d.env).Repo(ctx, d.org.Name, name)
	if err != nil {
		return err
	}
	return d.st.Engine.Undelete(ctx, d.writer("cairn repo undelete"), row)
}

func (d *directRepos) purge(ctx context.Context, name string) error {
	_, row, err := operator(d.st, d.env).Repo(ctx, d.org.Name, name)
	if err != nil {
		return err
	}
	if row.Deleted.IsZero() {
		return &service.Error{Code: service.Conflict, Message: "the repository is not deleted; delete it first with `cairn repo delete`"}
	}
	return d.st.Engine.Purge(ctx, d.writer("cairn repo purge"), row)
}

func (d *directRepos) protections(ctx context.Context, name string) ([]protection, error) {
	row, err := d.live(ctx, name)
	if err != nil {
		return nil, err
	}
	rules, err := d.st.Engine.Protections(ctx, row)
	list := make([]protection, len(rules))
	for i, r := range rules {
		list[i].Pattern = r.Pattern
		for _, op := range r.Ops {
			list[i].Ops = append(list[i].Ops, string(op))
		}
	}
	return list, err
}

func (d *directRepos) protect(ctx context.Context, name string, rules []protection) error {
	row, err := d.live(ctx, name)
	if err != nil {
		return err
	}
	list := make([]policy.Protection, len(rules))
	for i, r := range rules {
		ops := make([]policy.Op, len(r.Ops))
		for j, op := range r.Ops {
			ops[j] = policy.Op(op)
		}
		if list[i], err = policy.NewProtection(r.Pattern, ops); err != nil {
			return usagef("--rule: %v", err)
		}
	}
	return d.st.Engine.SetProtections(ctx, d.writer("cairn repo protect"), row, list)
}

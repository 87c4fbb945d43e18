package rest

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/service"
)

// stamp is a time as all answers spell it.
func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }

// cloneURL is the URL of the normal remote, without credentials.
func (h *Handler) cloneURL(name string) string {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.TrimRight(h.PublicURL(), "/") + "/" + strings.Join(segments, "/") + ".git"
}

func (c *call) createRepo(q api.CreateRepo) (api.CreatedRepo, error) {
	if q.RepoName != nil && *q.RepoName != c.access.Principal.Repo {
		return api.CreatedRepo{}, invalid("repo_name is %.80q and the token is for %.80q: they must be equal", *q.RepoName, c.access.Principal.Repo)
	}
	created := func(r meta.Repo) api.CreatedRepo {
		return api.CreatedRepo{RepoID: service.RepoID(r.ID), RepoName: r.Name, HTTPURL: c.cloneURL(r.Name), Message: "repository created"}
	}
	c.access.Created = record(c, created)
	var r meta.Repo
	var err error
	if b := q.BaseRepo; b != nil {
		r, err = c.createFrom(b, first(b.DefaultBranch, q.DefaultBranch), q.InitialCommit)
	} else if q.InitialCommit != nil {
		err = invalid("initial_commit goes with a snapshot only")
	} else {
		r, err = c.Service.CreateRepo(c.ctx, c.access, q.DefaultBranch, nil)
	}
	if err != nil {
		return api.CreatedRepo{}, err
	}
	return created(r), nil
}

func describe(r meta.Repo) api.Repo {
	return api.Repo{RepoID: service.RepoID(r.ID), URL: r.Name, RepoName: r.Name, DefaultBranch: r.DefaultBranch, CreatedAt: stamp(r.CreatedAt)}
}

func (c *call) getRepo(api.None) (api.Repo, error) { return c.describe(c.access.Repo) }

// describe describes a repository with its upstream.
func (c *call) describe(r meta.Repo) (api.Repo, error) {
	list, err := c.describeAll(r)
	if err != nil {
		return api.Repo{}, err
	}
	return list[0], nil
}

func (c *call) describeAll(rows ...meta.Repo) ([]api.Repo, error) {
	upstreams, err := c.Service.UpstreamsOf(c.ctx, rows...)
	if err != nil {
		return nil, err
	}
	list := make([]api.Repo, len(rows))
	for i, r := range rows {
		list[i] = describe(r)
		if u, ok := upstreams[r.ID]; ok {
			list[i].BaseRepo = origin(r, u)
		}
	}
	return list, nil
}

func (c *call) updateRepo(q api.UpdateRepo) (api.UpdatedRepo, error) {
	if q.Deployment != nil {
		return api.UpdatedRepo{}, service.Refuse(service.Unsupported, "this server has no deployments: send default_branch only")
	}
	branch := shortBranch(q.DefaultBranch)
	r := c.access.Repo
	updated := api.UpdatedRepo{RepoID: service.RepoID(r.ID), RepoName: r.Name, DefaultBranch: first(branch, r.DefaultBranch)}
	if branch != r.DefaultBranch && branch != "" {
		c.keep(updated)
	}
	_, err := c.Service.UpdateRepo(c.ctx, c.access, branch)
	return updated, err
}

func (c *call) lookUpRepo(q api.LookUpRepo) (api.RepoURL, error) {
	r, err := c.Service.RepoByID(c.ctx, c.access, q.RepoID)
	if err != nil {
		return api.RepoURL{}, err
	}
	d, err := c.describe(r)
	return api.RepoURL{Repo: d, HTTPURL: c.cloneURL(r.Name)}, err
}

// Sizes of pages of repositories and branches.
const (
	listDefault = 20
	listMax     = 100
)

func (c *call) listRepos(q api.ListRepos) (api.RepoList, error) {
	after, err := resumed(c, q.Cursor, repoPosition)
	if err != nil {
		return api.RepoList{}, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	rows, err := c.Service.Repos(c.ctx, c.access, strings.TrimSpace(q.Q), after.CreatedAt, after.ID, limit+1)
	if err != nil {
		return api.RepoList{}, err
	}
	var list api.RepoList
	if len(rows) > limit {
		rows = rows[:limit]
		list.HasMore, list.NextCursor = true, c.issue(afterRepo(rows[limit-1]))
	}
	list.Repos, err = c.describeAll(rows...)
	return list, err
}

func (c *call) deleteRepo(api.None) (api.DeletedRepo, error) {
	r := c.access.Repo
	deleted := api.DeletedRepo{
		RepoID: service.RepoID(r.ID), RepoName: r.Name,
		Message: fmt.Sprintf("deletion of repository %s initiated; its storage is freed in the background", r.Name),
	}
	c.keep(deleted)
	return deleted, c.Service.DeleteRepo(c.ctx, c.access)
}

func (c *call) getProtections(api.None) (api.Protections, error) {
	rules, err := c.Service.Protections(c.ctx, c.access)
	return protections(rules), err
}

func (c *call) setProtections(q api.Protections) (api.Protections, error) {
	if q.Protections == nil {
		return api.Protections{}, invalid("protections is missing: send a list, an empty one to remove all rules")
	}
	rules := make([]policy.Protection, 0, len(q.Protections))
	for _, p := range q.Protections {
		ops := make([]policy.Op, len(p.Ops))
		for i, op := range p.Ops {
			ops[i] = policy.Op(op)
		}
		rule, err := policy.NewProtection(p.Pattern, ops)
		if err != nil {
			return api.Protections{}, err
		}
		rules = append(rules, rule)
	}
	set := protections(rules)
	c.keep(set)
	return set, c.Service.SetProtections(c.ctx, c.access, rules)
}

func protections(rules []policy.Protection) api.Protections {
	list := api.Protections{Protections: []api.Protection{}}
	for _, r := range rules {
		ops := make([]string, len(r.Ops))
		for i, op := range r.Ops {
			ops[i] = string(op)
		}
		list.Protections = append(list.Protections, api.Protection{Pattern: r.Pattern, Ops: ops})
	}
	return list
}

package rest

import (
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

func describeBranch(b service.Branch) api.Branch {
	return api.Branch{Name: b.Name, HeadSHA: b.ID.String(), CreatedAt: stamp(b.CreatedAt)}
}

func (c *call) listBranches(q api.ListBranches) (api.BranchList, error) {
	after, err := resumed(c, q.Cursor, branchPosition)
	if err != nil {
		return api.BranchList{}, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	branches, err := c.Service.Branches(c.ctx, c.access, q.Ephemeral, after, limit+1)
	if err != nil {
		return api.BranchList{}, err
	}
	list := api.BranchList{Branches: []api.BranchItem{}}
	if len(branches) > limit {
		branches = branches[:limit]
		list.HasMore, list.NextCursor = true, c.issue(afterBranch(branches[limit-1]))
	}
	for _, b := range branches {
		list.Branches = append(list.Branches, api.BranchItem{Cursor: c.issue(afterBranch(b)), Branch: describeBranch(b)})
	}
	return list, nil
}

func (c *call) getBranch(q api.GetBranch) (api.BranchInfo, error) {
	if q.Name == "" {
		return api.BranchInfo{}, invalid("query parameter %q is missing", "name")
	}
	b, err := c.Service.Branch(c.ctx, c.access, q.Ephemeral, shortBranch(q.Name))
	if err != nil {
		return api.BranchInfo{}, err
	}
	return api.BranchInfo{Branch: describeBranch(b)}, nil
}

// shortBranch accepts full names of branches for short ones.
func shortBranch(name string) string { return strings.TrimPrefix(name, refname.HeadsPrefix) }

func (c *call) createBranch(q api.CreateBranch) (api.CreatedBranch, error) {
	base := first(q.BaseRef, q.BaseBranch)
	switch {
	case q.TargetBranch == "":
		return api.CreatedBranch{}, invalid("target_branch is missing: it names the branch to create")
	case base == "":
		return api.CreatedBranch{}, invalid("base_ref is missing: it says where the branch starts")
	}
	name := shortBranch(q.TargetBranch)
	created := func(tip object.ID) api.CreatedBranch {
		return api.CreatedBranch{Message: "branch created", TargetBranch: name, TargetIsEphemeral: q.TargetIsEphemeral, CommitSHA: tip.String()}
	}
	tip, err := c.Service.CreateBranch(c.ctx, c.access, repo.BranchRequest{
		Target: name, TargetEphemeral: q.TargetIsEphemeral, Base: base, BaseEphemeral: q.BaseIsEphemeral, Force: q.Force,
		Record: record(c, created),
	})
	if err != nil {
		return api.CreatedBranch{}, err
	}
	return created(tip), nil
}

func (c *call) deleteBranch(q api.DeleteBranch) (api.DeletedBranch, error) {
	name := shortBranch(first(q.TargetBranch, q.Name))
	if name == "" {
		return api.DeletedBranch{}, invalid("target_branch is missing: it names the branch to delete")
	}
	deleted := api.DeletedBranch{Name: name, TargetBranch: name, Message: "branch deleted", Ephemeral: q.Ephemeral}
	c.keep(deleted)
	return deleted, c.Service.DeleteBranch(c.ctx, c.access, name, q.Ephemeral)
}

package rest

import (
	"fmt"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

func (c *call) getUsage(api.None) (api.Usage, error) {
	u, limits, err := c.Service.Usage(c.ctx, c.access)
	return UsageOf(u, limits), err
}

// UsageOf says what is stored, and its limits, as the API does.
func UsageOf(u meta.Usage, limits service.Limits) api.Usage {
	return api.Usage{
		Bytes: u.Bytes, Objects: u.Objects, Packs: u.Packs, SharedBytes: u.SharedBytes, GarbageBytes: u.GarbageBytes, CheckpointBytes: u.CheckpointBytes,
		ReservedBytes: u.Reserved, LimitBytes: limits.Bytes,
		Repositories: u.Repos, DeletedRepositories: u.DeletedRepos, LimitRepositories: limits.Repos,
		Refs:    api.RefCounts{Branches: u.Refs.Branches, Tags: u.Refs.Tags, Ephemeral: u.Refs.Ephemeral, Other: u.Refs.Other},
		Threads: u.Threads, Checkpoints: u.Checkpoints,
		Events: u.Events, IdempotencyKeys: u.Idempotency,
	}
}

func (c *call) undeleteRepo(api.None) (api.UndeletedRepo, error) {
	r := c.access.Repo
	back := api.UndeletedRepo{
		RepoID: service.RepoID(r.ID), RepoName: r.Name, Message: fmt.Sprintf("repository %s is back", r.Name),
	}
	c.keep(back)
	return back, c.Service.UndeleteRepo(c.ctx, c.access)
}

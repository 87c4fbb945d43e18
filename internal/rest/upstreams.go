package rest

import (
	"cmp"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/upstream"
)

// createFrom makes a repository from another one.
func (c *call) createFrom(b *api.BaseRepo, branch string, initial *api.InitialCommit) (meta.Repo, error) {
	local := b.Provider == "code" || b.Provider == "code.storage"
	if initial != nil && (!local || b.Operation != "snapshot") {
		return meta.Repo{}, invalid("initial_commit goes with a snapshot only")
	}
	if !local {
		return c.follow(b, branch)
	}
	if b.Operation != "fork" && b.Operation != "snapshot" {
		return meta.Repo{}, invalid("base_repo.operation %.40q is not known for a repository of this server: use fork or snapshot", b.Operation)
	}
	if b.Name == "" {
		return meta.Repo{}, invalid("base_repo.name is missing: it names the repository to %s", b.Operation)
	}
	if b.Auth == nil || b.Auth.Token == "" {
		return meta.Repo{}, invalid("base_repo.auth.token is missing: it grants git:read on the repository to %s", b.Operation)
	}
	source := service.Source{Name: b.Name, Token: b.Auth.Token, Ref: b.Ref, SHA: b.SHA}
	if b.Operation == "fork" {
		return c.Service.CreateRepo(c.ctx, c.access, branch, &source)
	}
	if b.Ref == "" {
		return meta.Repo{}, invalid("base_repo.ref is missing: it names the revision to take the snapshot of")
	}
	var commit service.Snapshot
	if initial != nil {
		commit.Message = initial.Message
		if initial.Author != nil {
			commit.Name, commit.Email = initial.Author.Name, initial.Author.Email
		}
	}
	return c.Service.SnapshotRepo(c.ctx, c.access, branch, source, commit)
}

// follow makes a repository that follows one on another host.
func (c *call) follow(b *api.BaseRepo, branch string) (meta.Repo, error) {
	if b.Operation != "" && b.Operation != "sync" {
		return meta.Repo{}, invalid("base_repo.operation %.40q is not known for a repository of another host: use sync", b.Operation)
	}
	if b.Ref != "" || b.SHA != "" {
		return meta.Repo{}, invalid("base_repo.ref and base_repo.sha go with a fork or snapshot: a sync takes all branches and tags")
	}
	u := service.Upstream{Source: upstream.Source{
		Provider: cmp.Or(b.Provider, "github"), Host: b.UpstreamHost, Owner: b.Owner, Name: b.Name,
	}}
	if b.Auth != nil {
		if b.Auth.AuthType != "" && b.Auth.AuthType != "public" {
			return meta.Repo{}, invalid("base_repo.auth.auth_type %.40q is not known: use public, or store a credential", b.Auth.AuthType)
		}
		u.Public = b.Auth.AuthType == "public"
	}
	return c.Service.FollowRepo(c.ctx, c.access, branch, u)
}

// origin describes the upstream of a repository.
func origin(r meta.Repo, u meta.Upstream) *api.Origin {
	o := &api.Origin{Provider: u.Provider, Owner: u.Owner, Name: u.Name, SyncStatus: "synced", SyncError: u.LastError}
	if u.Host != upstream.DefaultHost(u.Provider) {
		o.UpstreamHost = u.Host
	}
	if !u.SyncedAt.IsZero() {
		o.SyncedAt = stamp(u.SyncedAt)
	}
	switch {
	case r.Following == meta.Importing:
		o.SyncStatus = "importing"
	case u.LastError != "":
		o.SyncStatus = "failed"
	}
	return o
}

func (c *call) createCredential(q api.CreateCredential) (api.Credential, error) {
	if q.RepoID != "" && q.RepoID != c.access.Principal.Repo {
		return api.Credential{}, &service.Error{Code: service.RepositoryMissing, Message: "repository not found"}
	}
	k, err := c.Service.CreateCredential(c.ctx, c.access, q.Username, q.Password, record(c, describeCredential))
	return describeCredential(k), err
}

func (c *call) updateCredential(q api.UpdateCredential) (api.Credential, error) {
	if q.ID == "" {
		return api.Credential{}, invalid("id is missing: it names the credential to update")
	}
	k, err := c.Service.UpdateCredential(c.ctx, c.access, q.ID, q.Username, q.Password, record(c, describeCredential))
	return describeCredential(k), err
}

func describeCredential(k meta.Credential) api.Credential {
	return api.Credential{ID: service.CredentialID(k.ID), CreatedAt: stamp(k.CreatedAt)}
}

func (c *call) deleteCredential(q api.DeleteCredential) (api.Done, error) {
	if q.ID == "" {
		return api.Done{}, invalid("id is missing: it names the credential to delete")
	}
	c.keep(api.Done{})
	return api.Done{}, c.Service.DeleteCredential(c.ctx, c.access, q.ID)
}

func (c *call) pullUpstream(api.PullUpstream) (api.Done, error) {
	done := api.Done{Message: "Repository sync initiated successfully"}
	c.keep(done)
	return done, c.Service.PullUpstream(c.ctx, c.access)
}

func (c *call) detachUpstream(api.None) (api.Done, error) {
	done := api.Done{Message: "repository detached"}
	if c.access.Repo.Following != meta.NotFollowing {
		c.keep(done)
	}
	return done, c.Service.DetachUpstream(c.ctx, c.access)
}

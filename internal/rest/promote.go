package rest

import (
	"net/http"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

// inRepository opens the repository that a request about a thread names: the token
// has to cover both.
func (c *call) inRepository(name string, scope auth.Scope) (*service.Access, error) {
	if name == "" {
		return nil, invalid("repo is missing: it names a repository")
	}
	a, err := c.Service.Open(c.ctx, token(c.r), name, scope)
	if err == nil {
		a.Agent = c.access.Agent
	}
	return a, err
}

func (c *call) promoteCheckpoint(q api.PromoteCheckpoint) error {
	a, err := c.inRepository(q.Repo, auth.GitWrite)
	if err != nil {
		return err
	}
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return err
	}
	p := service.Promotion{Root: q.Root, Commit: repo.CommitRequest{
		TargetBranch: q.Branch, TargetEphemeral: q.Ephemeral, BaseBranch: q.Base, Message: first(q.Message, cp.Label, "Checkpoint "+cp.ID),
	}}
	c.branch = q.Branch
	if p.Commit.Expected, err = expectedSHA(q.ExpectedHead); err != nil {
		return err
	}
	if q.Author == nil {
		name, email := a.Identity()
		q.Author = &api.Identity{Name: name, Email: email}
	}
	if p.Commit.Author, p.Commit.Committer, err = signatures(q.Author, nil); err != nil {
		return err
	}
	c.once.status = http.StatusCreated
	answer := func(done service.Promoted) api.PromotedCheckpoint {
		out := api.PromotedCheckpoint{Repo: a.Repo.Name, Branch: q.Branch, Commit: done.Commit.String(), Tree: done.Tree.String(), Skipped: done.Skipped}
		if out.Skipped == nil {
			out.Skipped = []string{}
		}
		return out
	}
	p.Record = record(c, answer)
	done, err := c.Service.Promote(c.ctx, a, &cp, p)
	if err != nil {
		return err
	}
	return c.concludeAs(http.StatusCreated, answer(done))
}

func (c *call) threadFromCommit(q api.ThreadFromCommit) error {
	if err := exact(q.ID); err != nil {
		return err
	}
	n := checkpoint.NewCheckpoint{
		Thread: q.Thread, ID: q.ID, Upload: checkpoint.NewID(), Lease: lease(q.Lease), Label: q.Label, Reason: "automatic",
	}
	if q.Label != "" {
		n.Reason = "named"
	}
	var err error
	if q.ExpectedHead == nil && q.Onto == "" {
		q.ExpectedHead = []byte("null") // a thread that begins
	}
	if n.Expected, err = expectedHead(q.ExpectedHead, q.Onto); err != nil {
		return err
	}
	a, err := c.inRepository(q.Repo, auth.GitRead)
	if err != nil {
		return err
	}
	n.Root, n.Git, err = c.Service.FromCommit(c.ctx, a, c.access, q.Ref, q.Ephemeral, first(q.Root, "workspace"), n.Upload)
	if err != nil {
		return err
	}
	return c.append(n)
}

package rest

import (
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

func (c *call) restoreCommit(q api.RestoreCommit) (api.CommitAck, error) {
	m := q.Metadata
	if m == nil {
		return api.CommitAck{}, invalid("metadata is missing")
	}
	c.branch = shortBranch(m.TargetBranch)
	req := repo.RestoreRequest{
		TargetBranch: c.branch, TargetEphemeral: firstFlag(m.TargetIsEphemeral, m.Ephemeral),
		Base: strings.TrimSpace(first(m.BaseRef, m.TargetCommitSHA)),
	}
	switch {
	case req.TargetBranch == "":
		return api.CommitAck{}, invalid("target_branch is missing: it names the branch to restore")
	case req.Base == "":
		return api.CommitAck{}, invalid("base_ref is missing: it says which state to restore")
	}
	if text := strings.TrimSpace(m.CommitMessage); text != "" {
		req.Message = text + "\n"
	}
	var err error
	if req.Author, req.Committer, err = signatures(m.Author, m.Committer); err != nil {
		return api.CommitAck{}, err
	}
	if req.Expected, err = expectedSHA(m.ExpectedTargetSHA, m.ExpectedHeadSHA); err != nil {
		return api.CommitAck{}, err
	}
	req.Record = record(c, c.acknowledge)
	res, err := c.Service.Restore(c.ctx, c.access, req)
	if err != nil {
		return api.CommitAck{}, err
	}
	return c.acknowledge(res), nil
}

// signatures translates the author and the committer, whose default is the
// author.
func signatures(author, committer *api.Identity) (a, c object.Signature, err error) {
	now := time.Now()
	if a, err = signature("author", author, now); err != nil {
		return a, c, err
	}
	if committer == nil {
		return a, a, nil
	}
	c, err = signature("committer", committer, now)
	return a, c, err
}

// expectedSHA reads what a branch is expected to be at, nil for anything.
func expectedSHA(names ...string) (*object.ID, error) {
	text := first(names...)
	if text == "" {
		return nil, nil
	}
	id, err := object.ParseID(text)
	if err != nil {
		return nil, invalid("expected_target_sha %.80q is not a full commit id of 40 hexadecimal digits", text)
	}
	return &id, nil
}

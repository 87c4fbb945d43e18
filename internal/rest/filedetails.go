package rest

import (
	"errors"
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

// Sizes of pages of files with their commits.
const (
	detailsDefault = 200
	detailsMax     = 1000
)

func (c *call) listFileDetails(q api.ListFileDetails) (api.FileDetailList, error) {
	list := api.FileDetailList{Files: []api.FileDetail{}, Commits: map[string]api.FileCommit{}}
	fq := repo.FilesQuery{Limit: pageSize(q.Limit, detailsDefault, detailsMax)}
	var err error
	if fq.Path, err = filterPath(q.Path); err != nil {
		return list, err
	}
	if fq.After, err = pathPosition(q.Cursor); err != nil {
		return list, err
	}
	v, at, err := c.detailsAt(q)
	if err != nil {
		return list, err
	}
	fq.Commit, list.Ref = at.ID, at.Echo
	page, err := v.FileDetails(c.ctx, fq)
	if err != nil {
		return list, err
	}
	for _, f := range page.Files {
		list.Files = append(list.Files, api.FileDetail{
			Path: f.Path, Type: kindOf(f.Mode), Mode: f.Mode.String(), Size: f.Size, LastCommitSHA: f.Last.String(),
		})
		if err := c.noteCommit(v, f.Last, list.Commits); err != nil {
			return list, err
		}
	}
	if page.Next != "" {
		list.HasMore, list.NextCursor = true, afterPath(page.Next)
	}
	return list, nil
}

// noteCommit describes a commit among those of a list of files.
func (c *call) noteCommit(v *repo.View, id object.ID, commits map[string]api.FileCommit) error {
	if _, known := commits[id.String()]; known {
		return nil
	}
	d, err := v.Commit(c.ctx, id)
	if err != nil {
		return err
	}
	commits[id.String()] = api.FileCommit{
		Author: utf8Text(d.Author.Name, d.Encoding), Date: gitStamp(d.Committer.When), Message: strings.TrimSpace(utf8Text(d.Message, d.Encoding)),
	}
	return nil
}

// detailsAt finds the commit to list.
func (c *call) detailsAt(q api.ListFileDetails) (*repo.View, repo.Resolved, error) {
	v, at, err := c.at(q.Ref, q.Ephemeral)
	if _, missing := errors.AsType[*repo.NotFoundError](err); !missing || q.Ref != "" {
		return v, at, err
	}
	if q.Ephemeral {
		return v, at, invalid("ref is missing: there is no ephemeral branch of the default branch's name")
	}
	if other, found := v.Resolve(c.ctx, repo.DefaultBranch, false); found == nil {
		return v, other, nil
	}
	return v, at, err
}

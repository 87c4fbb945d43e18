package rest

import (
	"errors"
	"strings"

	"github.com/cairnstate/cairn/api"
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
	}
	for id, about := range page.Commits {
		list.Commits[id.String()] = api.FileCommit{
			Author: utf8Text(about.Author, about.Encoding), Date: gitStamp(about.When), Message: strings.TrimSpace(utf8Text(about.Message, about.Encoding)),
		}
	}
	if page.Next != "" {
		list.HasMore, list.NextCursor = true, afterPath(page.Next)
	}
	return list, nil
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

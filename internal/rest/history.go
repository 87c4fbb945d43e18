package rest

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

// gitStamp spells a time of Git, which may lie beyond what RFC 3339 can tell:
// the last time that it can tell stands for it.
func gitStamp(seconds int64) string {
	const last = 253402300799 // the end of the year 9999
	return stamp(time.Unix(min(max(seconds, 0), last), 0))
}

// utf8Text returns text that a commit has in some encoding. Bytes that are not
// text in it are replaced.
func utf8Text(text, encoding string) string {
	if utf8.ValidString(text) {
		return text
	}
	switch strings.ToLower(encoding) {
	case "iso-8859-1", "iso8859-1", "latin1", "latin-1":
		out := make([]rune, 0, len(text))
		for _, b := range []byte(text) {
			out = append(out, rune(b))
		}
		return string(out)
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

func describeCommit(id object.ID, d *object.CommitData) api.Commit {
	text := func(s string) string { return utf8Text(s, d.Encoding) }
	c := api.Commit{
		SHA: id.String(), ParentSHAs: make([]string, len(d.Parents)), Message: strings.TrimRight(text(d.Message), "\n"),
		AuthorName: text(d.Author.Name), AuthorEmail: text(d.Author.Email),
		CommitterName: text(d.Committer.Name), CommitterEmail: text(d.Committer.Email), Date: gitStamp(d.Committer.When),
	}
	for i, p := range d.Parents {
		c.ParentSHAs[i] = p.String()
	}
	return c
}

func (c *call) listCommits(q api.ListCommits) (api.CommitList, error) {
	list := api.CommitList{Commits: []api.Commit{}}
	path, err := filterPath(q.Path)
	if err != nil {
		return list, err
	}
	v, at, err := c.historyAt(q, path)
	if err != nil || at.tip.IsZero() {
		return list, err
	}
	limit := pageSize(q.Limit, listDefault, listMax)
	ids, more, err := v.Commits(c.ctx, repo.CommitsQuery{Tip: at.tip, Path: path, Skip: at.skip, Limit: limit})
	if err != nil {
		return list, err
	}
	for _, id := range ids {
		d, err := v.Commit(c.ctx, id)
		if err != nil {
			return list, err
		}
		list.Commits = append(list.Commits, describeCommit(id, d))
	}
	if more {
		list.HasMore, list.NextCursor = true, c.issue(afterCommit(historyPosition{at.tip, at.skip + len(ids)}, path))
	}
	return list, nil
}

// filterPath is checkPath for a path that may be absent or end in a slash.
func filterPath(path string) (string, error) {
	if path = strings.Trim(path, "/"); path == "" {
		return "", nil
	}
	return checkPath(path)
}

// historyAt finds where a page of commits begins. The tip is zero where there are
// no branches and none was asked for by name.
func (c *call) historyAt(q api.ListCommits, path string) (*repo.View, historyPosition, error) {
	rev := first(q.Ref, q.Branch)
	if q.Cursor == "" {
		v, at, err := c.at(rev, q.Ephemeral)
		_, missing := errors.AsType[*repo.NotFoundError](err)
		if missing && rev == "" && len(v.RefsAfter(service.StoredBranch("", q.Ephemeral), "", 1)) == 0 {
			err = nil
		}
		return v, historyPosition{tip: at.ID}, err
	}
	at, err := resumed(c, q.Cursor, func(cursor string) (historyPosition, error) { return commitPosition(cursor, path) })
	if err != nil {
		return nil, at, err
	}
	v, err := c.Service.View(c.ctx, c.access)
	if err != nil {
		return nil, at, err
	}
	missing, err := v.Reachable(c.ctx, at.tip)
	if err == nil && !missing.IsZero() {
		err = invalid("the history that the cursor continues is gone: start again without it")
	}
	return v, at, err
}

func (c *call) getCommit(q api.GetCommit) (api.CommitDetails, error) {
	rev := first(q.Ref, q.SHA)
	if strings.TrimSpace(rev) == "" {
		return api.CommitDetails{}, invalid("query parameter %q is missing: it names a commit", "ref")
	}
	v, at, err := c.at(rev, q.Ephemeral)
	if err != nil {
		return api.CommitDetails{}, err
	}
	d, err := v.Commit(c.ctx, at.ID)
	if err != nil {
		return api.CommitDetails{}, err
	}
	return api.CommitDetails{Commit: describeSigned(at.ID, d)}, nil
}

// describeSigned describes a commit with its signature, where text can hold both
// that and what it signs.
func describeSigned(id object.ID, d *object.CommitData) api.SignedCommit {
	out := api.SignedCommit{Commit: describeCommit(id, d)}
	if d.Signature != "" && utf8.Valid(d.Payload) && utf8.ValidString(d.Signature) {
		out.Signature, out.Payload = d.Signature, string(d.Payload)
	}
	return out
}

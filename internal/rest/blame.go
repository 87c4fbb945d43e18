package rest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

func (c *call) blame(q api.GetBlame) error {
	if q.Path == "" {
		return invalid("query parameter %q is missing", "path")
	}
	path, err := checkPath(q.Path)
	if err != nil {
		return err
	}
	v, at, err := c.at(q.Ref, q.Ephemeral)
	if err != nil {
		return err
	}
	lines, err := v.Blame(c.ctx, repo.BlameQuery{Commit: at.ID, Path: path, Ranges: q.Ranges, Moves: q.DetectMoves})
	if err != nil {
		return err
	}
	head, err := json.Marshal(struct {
		Ref       string `json:"ref"`
		Path      string `json:"path"`
		CommitSHA string `json:"commit_sha"`
	}{at.Echo, path, at.ID.String()})
	if err != nil {
		return err
	}
	// Lines are many and alike: they are written one by one.
	w := bufio.NewWriterSize(&started{c: c, start: func() {
		c.header().Set("Content-Type", "application/json")
		c.header().Set("Cache-Control", "no-store")
	}}, 64<<10)
	fmt.Fprintf(w, `%s,"lines":[`, head[:len(head)-1])
	known := make(map[object.ID]api.BlameLine)
	for i, l := range lines {
		line, ok := known[l.Commit]
		if !ok {
			d, err := v.Commit(c.ctx, l.Commit)
			if err != nil {
				return err
			}
			line = describeLine(l.Commit, d)
			known[l.Commit] = line
		}
		line.LineNumber, line.OriginalLineNumber, line.OriginalPath = l.Number, l.Original, l.Path
		if !l.Previous.IsZero() {
			line.PreviousCommitSHA = l.Previous.String()
		}
		data, err := json.Marshal(line)
		if err != nil {
			return err
		}
		if i > 0 {
			w.WriteByte(',')
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	w.WriteString("]}\n")
	return w.Flush()
}

// describeLine tells what all lines of a commit have in common.
func describeLine(id object.ID, d *object.CommitData) api.BlameLine {
	c := describeCommit(id, d)
	summary, _, _ := strings.Cut(strings.TrimLeft(c.Message, " \t\r\n"), "\n")
	if summary == "" {
		summary = "(" + c.SHA + ")" // as git has it
	}
	return api.BlameLine{
		CommitSHA: c.SHA, AuthorName: c.AuthorName, AuthorEmail: c.AuthorEmail, AuthorTime: gitStamp(d.Author.When),
		CommitterName: c.CommitterName, CommitterEmail: c.CommitterEmail, CommitterTime: c.Date, Summary: summary,
	}
}

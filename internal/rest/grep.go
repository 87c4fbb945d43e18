package rest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

// Sizes of answers to a search.
const (
	grepDefault        = 200 // matches on a page
	grepPerFileDefault = 200
)

func (c *call) grep(q api.Grep) (api.GrepResult, error) {
	out := api.GrepResult{Matches: []api.GrepMatch{}}
	gq, cursor, err := grepQuery(q)
	if err != nil {
		return out, err
	}
	v, at, after, err := c.grepAt(first(q.Ref, q.Rev), q.Ephemeral, cursor, gq)
	if err != nil {
		return out, err
	}
	gq.Commit = at.ID
	page, cached, err := v.Grep(c.ctx, gq, after)
	if err != nil {
		return out, err
	}
	out.Query = api.GrepQuery{Pattern: gq.Pattern, CaseSensitive: gq.CaseSensitive}
	out.Repo = api.GrepRepo{Ref: at.Echo, Commit: at.ID.String()}
	for _, f := range page.Files {
		m := api.GrepMatch{Path: f.Path, Lines: make([]api.GrepLine, len(f.Lines))}
		for i, l := range f.Lines {
			m.Lines[i] = api.GrepLine{LineNumber: l.Number, Text: l.Text, Type: "context"}
			if l.Match {
				m.Lines[i].Type = "match"
			}
		}
		out.Matches = append(out.Matches, m)
	}
	if page.Next != nil {
		out.HasMore, out.NextCursor = true, c.issue(afterMatch(at.ID, gq, *page.Next))
	}
	c.header().Set("X-Cache", map[bool]string{true: "HIT", false: "MISS"}[cached])
	return out, nil
}

// grepQuery reads what is asked for, apart from the commit.
func grepQuery(q api.Grep) (out repo.GrepQuery, cursor string, err error) {
	if q.Query.Pattern == "" {
		return out, "", invalid("query.pattern is missing: it is a regular expression")
	}
	out = repo.GrepQuery{
		Pattern: q.Query.Pattern, CaseSensitive: q.Query.CaseSensitive == nil || *q.Query.CaseSensitive, Paths: q.Paths,
		PerFile: grepPerFileDefault, Limit: grepDefault, Lines: repo.GrepMaxLines,
	}
	if f := q.FileFilters; f != nil {
		out.Include, out.Exclude, out.Extensions = f.IncludeGlobs, f.ExcludeGlobs, f.ExtensionFilters
	}
	if x := q.Context; x != nil {
		if x.Before < 0 || x.After < 0 {
			return out, "", invalid("context.before and context.after are numbers of lines: %d and %d are not", x.Before, x.After)
		}
		out.Before, out.Behind = min(x.Before, repo.GrepMaxContext), min(x.After, repo.GrepMaxContext)
	}
	limit := func(name string, asked *int, into *int, most int) {
		switch {
		case asked == nil:
		case *asked < 1:
			err = invalid("%s is %d: use a number of at least 1", name, *asked)
		default:
			*into = min(*asked, most)
		}
	}
	if l := q.Limits; l != nil {
		limit("limits.max_lines", l.MaxLines, &out.Lines, repo.GrepMaxLines)
		limit("limits.max_matches_per_file", l.MaxMatchesPerFile, &out.PerFile, repo.GrepMaxPerFile)
	}
	if p := q.Pagination; p != nil {
		limit("pagination.limit", p.Limit, &out.Limit, repo.GrepMaxLines)
		cursor = p.Cursor
	}
	return out, cursor, err
}

// grepAt finds the commit to search: that of the cursor, if there is one.
func (c *call) grepAt(rev string, ephemeral bool, cursor string, q repo.GrepQuery) (*repo.View, repo.Resolved, repo.GrepPosition, error) {
	if cursor == "" {
		v, at, err := c.at(rev, ephemeral)
		return v, at, repo.GrepPosition{}, err
	}
	cursor, err := c.resume(cursor)
	if err != nil {
		return nil, repo.Resolved{}, repo.GrepPosition{}, err
	}
	commit, after, err := matchPosition(cursor, q)
	if err != nil {
		return nil, repo.Resolved{}, after, err
	}
	v, err := c.Service.View(c.ctx, c.access)
	if err != nil {
		return nil, repo.Resolved{}, after, err
	}
	missing, err := v.Reachable(c.ctx, commit)
	if err == nil && !missing.IsZero() {
		err = invalid("the commit that the cursor continues in is gone: start again without it")
	}
	at := repo.Resolved{ID: commit, Echo: first(rev, v.Repo().DefaultBranch)}
	return v, at, after, err
}

// grepMark tells whether a cursor was made for another query; pages may be of any
// size.
func grepMark(q repo.GrepQuery) uint32 {
	q.Commit, q.Limit, q.Lines = object.Zero, 0, 0
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%#v", q))
}

// afterMatch is the cursor that continues a search after a place.
func afterMatch(commit object.ID, q repo.GrepQuery, at repo.GrepPosition) string {
	data := append([]byte{grepCursor}, commit[:]...)
	data = binary.BigEndian.AppendUint32(data, grepMark(q))
	data = binary.AppendUvarint(data, uint64(at.Line))
	data = binary.AppendUvarint(data, uint64(at.Matches))
	return cursorEncoding.EncodeToString(append(data, at.Path...))
}

// matchPosition reads a cursor of a search, which must not be empty.
func matchPosition(cursor string, q repo.GrepQuery) (commit object.ID, at repo.GrepPosition, err error) {
	if len(cursor) > maxPathCursor {
		return commit, at, badCursor()
	}
	data, err := decodeCursor(cursor, grepCursor)
	if err != nil {
		return commit, at, err
	}
	if len(data) < object.Size+4 || binary.BigEndian.Uint32(data[object.Size:]) != grepMark(q) {
		return commit, at, badCursor()
	}
	commit = object.ID(data[:object.Size])
	data = data[object.Size+4:]
	for _, n := range []*int{&at.Line, &at.Matches} {
		value, size := binary.Uvarint(data)
		if size <= 0 || value > maxSkip {
			return commit, at, badCursor()
		}
		*n, data = int(value), data[size:]
	}
	if at.Path = string(data); at.Path == "" {
		return commit, at, badCursor()
	}
	return commit, at, nil
}

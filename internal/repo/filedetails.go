package repo

import (
	"context"

	"github.com/cairnstate/cairn/internal/git/object"
)

// FileDetail is a file, link or submodule of a commit with the commit that last
// touched it.
type FileDetail struct {
	Entry
	Size int64 // in bytes; 0 of a submodule
	Last object.ID
}

// FileDetails is a page of details; it is shared and must not be modified.
type FileDetails struct {
	Files []FileDetail
	// Commits are those that Files name.
	Commits map[object.ID]CommitBrief
	Next    string // the position to go on from, "" at the end
}

// CommitBrief is the little of a commit that lists of files tell.
type CommitBrief struct {
	Author   string // name
	When     int64  // committer date, Unix seconds
	Encoding string // of the texts; "" is UTF-8
	Message  string
}

// bytes estimates the memory of the page.
func (d *FileDetails) bytes() int64 {
	n := int64(256)
	for i := range d.Files {
		n += 80 + int64(len(d.Files[i].Path))
	}
	for _, c := range d.Commits {
		n += 160 + int64(len(c.Author)+len(c.Encoding)+len(c.Message))
	}
	return n
}

// pagesAhead and most bound for how many files one walk through history looks,
// so that the pages after the one that was asked for need none.
const (
	pagesAhead = 16
	mostAhead  = 16_000 // files
)

// FileDetails lists files as Files does, always recursively and without
// directories.
func (v *View) FileDetails(ctx context.Context, q FilesQuery) (*FileDetails, error) {
	q.Recursive, q.Trees = true, false
	cache := v.engine.details
	if page, ok := cache.Get(q); ok {
		return page, nil
	}
	page, err := v.fileDetails(ctx, q)
	if err == nil {
		cache.Put(q, page, page.bytes()+int64(len(q.Path)+len(q.After)))
	}
	return page, err
}

func (v *View) fileDetails(ctx context.Context, q FilesQuery) (*FileDetails, error) {
	page, err := v.Files(ctx, q)
	if err != nil {
		return nil, err
	}
	last, err := v.lastOf(ctx, q, page.Entries)
	if err != nil {
		return nil, err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	out := &FileDetails{Files: make([]FileDetail, len(page.Entries)), Commits: map[object.ID]CommitBrief{}, Next: page.Next}
	for i, e := range page.Entries {
		d := FileDetail{Entry: e, Last: last[e.Path]}
		if e.Mode != object.ModeSubmodule {
			if d.Size, err = db.Size(ctx, e.ID); err != nil {
				return nil, err
			}
		}
		out.Files[i] = d
		if _, known := out.Commits[d.Last]; known {
			continue
		}
		c, err := v.Commit(ctx, d.Last)
		if err != nil {
			return nil, err
		}
		out.Commits[d.Last] = CommitBrief{Author: c.Author.Name, When: c.Committer.When, Encoding: c.Encoding, Message: c.Message}
	}
	return out, nil
}

// lastOf returns the commits that last touched the files of a page. Where the
// cache does not know all, it looks for those of the following pages too.
func (v *View) lastOf(ctx context.Context, q FilesQuery, page []Entry) (map[string]object.ID, error) {
	known := make(map[string]object.ID, len(page))
	for _, e := range page {
		id, ok := v.engine.last.Get(lastKey{q.Commit, e.Path})
		if !ok {
			break
		}
		known[e.Path] = id
	}
	if len(known) == len(page) {
		return known, nil
	}
	if q.Limit > 0 {
		q.Limit = max(q.Limit, min(pagesAhead*q.Limit, mostAhead))
		wide, err := v.Files(ctx, q)
		if err != nil {
			return nil, err
		}
		page = wide.Entries
	}
	paths := make([]string, len(page))
	for i, e := range page {
		paths[i] = e.Path
	}
	return v.LastCommits(ctx, q.Commit, paths)
}

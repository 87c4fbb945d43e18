package rest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/repo"
)

// at opens the repository and finds the commit that a revision names in the
// first of some namespaces that has it.
func (c *call) at(rev string, ephemeral ...bool) (*repo.View, repo.Resolved, error) {
	v, err := c.Service.View(c.ctx, c.access)
	if err != nil {
		return nil, repo.Resolved{}, err
	}
	var found repo.Resolved
	for _, e := range ephemeral {
		found, err = v.Resolve(c.ctx, rev, e)
		if _, missing := errors.AsType[*repo.NotFoundError](err); !missing {
			break
		}
	}
	return v, found, err
}

// checkPath returns a path of the repository without slashes at its beginning.
func checkPath(path string) (string, error) {
	path = strings.TrimLeft(path, "/")
	if strings.IndexByte(path, 0) >= 0 {
		return "", invalid("the path contains NUL")
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", invalid(`the path %.200q has a segment that is empty, "." or ".."`, path)
		}
	}
	return path, nil
}

func (c *call) getFile(q api.GetFile) error {
	if q.Path == "" {
		return invalid("query parameter %q is missing", "path")
	}
	path, err := checkPath(q.Path)
	if err != nil {
		return err
	}
	namespaces := []bool{firstFlag(q.Ephemeral, &q.EphemeralBase)}
	if q.Ephemeral != nil && q.EphemeralBase {
		namespaces = []bool{true, false}
	}
	v, at, err := c.at(q.Ref, namespaces...)
	if err != nil {
		return err
	}
	ctx := c.ctx
	entry, err := v.Entry(ctx, at.ID, path)
	if err != nil {
		return err
	}
	if entry.Mode.Type() != object.Blob {
		return &repo.NotFoundError{What: "file", Name: path}
	}
	size, err := v.BlobSize(ctx, entry.ID)
	if err != nil {
		return err
	}
	last, when, err := lastChange(c, v, at.ID, path)
	if err != nil {
		return err
	}
	h := c.header()
	h.Set("X-Blob-Sha", entry.ID.String())
	h.Set("X-Last-Commit-Sha", last.String())
	return c.send(content{
		etag: `"` + entry.ID.String() + `"`, modified: when, size: size,
		open: func(from, n int64) (io.ReadCloser, error) { return v.BlobRange(ctx, entry.ID, from, n) },
	})
}

// lastChange returns the commit that last touched a path and its time, zero
// where that is no date which HTTP can tell.
func lastChange(c *call, v *repo.View, commit object.ID, path string) (object.ID, time.Time, error) {
	last, err := v.LastCommit(c.ctx, commit, path)
	if err != nil {
		return object.Zero, time.Time{}, err
	}
	g, err := v.Graph(c.ctx)
	if err != nil {
		return object.Zero, time.Time{}, err
	}
	info, ok := g.Commit(last)
	if !ok {
		return object.Zero, time.Time{}, fmt.Errorf("commit %s is not in the graph that named it", last)
	}
	when := time.Unix(info.Time, 0)
	if y := when.UTC().Year(); info.Time <= 0 || y > 9999 {
		when = time.Time{}
	}
	return last, when, nil
}

// Sizes of pages of files.
const (
	filesDefault = 1000
	filesMax     = 5000
)

func (c *call) listFiles(q api.ListFiles) error {
	fq := repo.FilesQuery{Recursive: q.Recursive == nil || *q.Recursive, Trees: true, Limit: pageSize(q.Limit, filesDefault, filesMax)}
	var err error
	if path := strings.TrimRight(q.Path, "/"); path != "" {
		if fq.Path, err = checkPath(path); err != nil {
			return err
		}
	}
	if q.Cursor != nil {
		if fq.After, err = pathPosition(*q.Cursor); err != nil {
			return err
		}
	}
	v, at, err := c.at(q.Ref, q.Ephemeral)
	if err != nil {
		return err
	}
	fq.Commit = at.ID
	page, err := v.Files(c.ctx, fq)
	if err != nil {
		return err
	}
	if q.Cursor == nil && q.Limit == 0 && page.Next != "" {
		return c.listAll(v, fq, at.Echo)
	}
	list := api.FileList{Paths: []string{}, Ref: at.Echo, Entries: make([]api.FileEntry, 0, len(page.Entries))}
	for _, e := range page.Entries {
		entry := describeEntry(e)
		list.Entries = append(list.Entries, entry)
		if isFile(entry) {
			list.Paths = append(list.Paths, entry.Path)
		}
	}
	if page.Next != "" {
		list.HasMore, list.NextCursor = true, afterPath(page.Next)
	}
	return c.answer(http.StatusOK, list)
}

// listAll writes an api.FileList of any length, page by page: memory does not
// grow with it.
func (c *call) listAll(v *repo.View, q repo.FilesQuery, ref string) error {
	head, err := json.Marshal(ref)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(&started{c: c, start: func() {
		c.header().Set("Content-Type", "application/json")
		c.header().Set("Cache-Control", "no-store")
	}}, 64<<10)
	q.Limit = filesMax
	fmt.Fprintf(w, `{"ref":%s,"entries":[`, head)
	err = c.eachFile(v, q, w, func(e api.FileEntry) any { return e })
	if err != nil {
		return err
	}
	w.WriteString(`],"paths":[`)
	err = c.eachFile(v, q, w, func(e api.FileEntry) any {
		if !isFile(e) {
			return nil
		}
		return e.Path
	})
	if err != nil {
		return err
	}
	w.WriteString("],\"has_more\":false}\n")
	return w.Flush()
}

// eachFile writes what is picked of every entry, nil for nothing, as the
// elements of a JSON array.
func (c *call) eachFile(v *repo.View, q repo.FilesQuery, w *bufio.Writer, pick func(api.FileEntry) any) error {
	comma := false
	for {
		page, err := v.Files(c.ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			element := pick(describeEntry(e))
			if element == nil {
				continue
			}
			data, err := json.Marshal(element)
			if err != nil {
				return err
			}
			if comma {
				w.WriteByte(',')
			}
			comma = true
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

func describeEntry(e repo.Entry) api.FileEntry {
	return api.FileEntry{Path: e.Path, Type: kindOf(e.Mode), Mode: e.Mode.Canonical().String()}
}

// isFile reports whether an entry is among the paths of a list.
func isFile(e api.FileEntry) bool { return e.Type == "blob" || e.Type == "symlink" }

func kindOf(m object.Mode) string {
	switch m.Canonical() {
	case object.ModeDir:
		return "tree"
	case object.ModeSymlink:
		return "symlink"
	case object.ModeSubmodule:
		return "submodule"
	}
	return "blob"
}

func (c *call) archive(q api.Archive) error {
	if q.MaxBlobSize != nil && *q.MaxBlobSize < 0 {
		return invalid("max_blob_size is %d: use a number of bytes", *q.MaxBlobSize)
	}
	prefix := q.Prefix
	if q.Archive != nil {
		prefix = q.Archive.Prefix
	}
	v, at, err := c.at(q.Ref, q.Ephemeral)
	if err != nil {
		return err
	}
	w := &started{c: c, start: func() {
		h := c.header()
		h.Set("Content-Type", "application/gzip")
		h.Set("Content-Disposition", `attachment; filename="`+archiveName(v.Repo().Name, at)+`"`)
		h.Set("Cache-Control", "no-store")
	}}
	return v.Archive(c.ctx, w, repo.ArchiveQuery{
		Commit: at.ID, Include: q.IncludeGlobs, Exclude: q.ExcludeGlobs, MaxBlob: q.MaxBlobSize, Prefix: prefix,
	})
}

// archiveName is what a browser calls an archive.
func archiveName(name string, at repo.Resolved) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	rev, _ := refname.SplitEphemeral(at.Echo)
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, name+"-"+refname.Short(rev)) + ".tar.gz"
}

// started is a response whose header is written with its first byte, so that
// what fails before gets a status of its own.
type started struct {
	c     *call
	start func()
}

// Write writes to the response.
func (s *started) Write(p []byte) (int, error) {
	if !s.c.begun {
		s.c.body.drain()
		s.start()
	}
	return s.c.Write(p)
}

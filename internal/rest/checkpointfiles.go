package rest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/tree"
)

// fileError names what a checkpoint does not have as such. What is missing of one that
// was deleted while it was read is no damage.
func (c *call) fileError(err error, ids ...string) error {
	for _, id := range ids {
		if id == "" || !errors.Is(err, meta.ErrCorrupt) {
			continue
		}
		if _, gone := c.Service.Checkpoint(c.ctx, c.access, id); gone != nil {
			return gone
		}
	}
	if at, ok := errors.AsType[*checkpoint.PathError](err); ok {
		return &service.Error{Code: service.NotFound, Message: at.Error(), Err: at}
	}
	if at, ok := errors.AsType[*checkpoint.DepthError](err); ok {
		return &service.Error{Code: service.TooLarge, Message: at.Error(), Err: at}
	}
	return service.ThreadError(err)
}

var entryTypes = map[tree.Type]string{tree.File: "file", tree.Directory: "directory", tree.Symlink: "symlink"}

// maxEntryPage is after how many bytes of entries a page ends.
const maxEntryPage = 4 << 20

// entry turns an entry into its form in answers. What the entry was read from is not
// held by it.
func entry(path string, from *tree.Entry) api.Entry {
	e := from.Clone()
	out := api.Entry{
		Path: path, Type: entryTypes[e.Type], Mode: int(e.Mode), UID: int64(e.UID), GID: int64(e.GID),
		Target: e.Target, Sparse: len(e.Holes) > 0, Mixed: e.Mixed,
	}
	if !utf8.ValidString(path) {
		out.Path, out.RawPath = strings.ToValidUTF8(path, "\ufffd"), []byte(path)
	}
	if !utf8.ValidString(e.Target) {
		out.Target, out.RawTarget = strings.ToValidUTF8(e.Target, "\ufffd"), []byte(e.Target)
	}
	if t := time.Unix(e.Mtime.Sec, int64(e.Mtime.Nsec)).UTC(); e.Mtime != (tree.Time{}) && t.Year() >= 1 && t.Year() <= 9999 {
		out.Mtime = t.Format(time.RFC3339Nano)
	}
	switch e.Type {
	case tree.File:
		if out.Size = int64(e.Content.Size); e.Content.Size > 0 {
			out.Digest, out.SHA256, out.Chunked = e.Content.Digest.String(), e.Content.Sum.String(), e.Content.Chunked
		}
	case tree.Directory:
		out.Size = int64(min(e.Summary.Bytes, math.MaxInt64))
		out.Deep = checkpoint.Deep(path, from)
		if e.Dir != (tree.Digest{}) {
			out.Digest, out.Chunked = e.Dir.String(), e.Paged
		}
	}
	for _, r := range e.Redactions {
		out.Redacted = append(out.Redacted, r.Name)
	}
	for _, x := range e.Xattrs {
		if out.Xattrs == nil {
			out.Xattrs = make(map[string][]byte)
		}
		out.Xattrs[x.Name] = []byte(x.Value)
	}
	return out
}

func (c *call) listEntries(q api.ListEntries) (api.EntryPage, error) {
	page := api.EntryPage{Roots: []string{}, Entries: []api.Entry{}}
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return page, err
	}
	after, err := textPosition(q.Cursor, entryCursor)
	if err != nil {
		return page, err
	}
	e, org := c.Service.Checkpoints, c.access.Org.ID
	if cp.Kind == checkpoint.Native {
		t, err := e.Tree(c.ctx, org, &cp)
		if err != nil {
			return page, c.fileError(err, q.ID)
		}
		for i := range t.Roots {
			page.Roots = append(page.Roots, strings.ToValidUTF8(t.Roots[i].Name, "\ufffd"))
		}
	}
	limit := pageSize(q.Limit, entriesDefault, entriesMax)
	last, size := "", 0
	err = e.Walk(c.ctx, org, &cp, q.Path, after, func(path string, at *tree.Entry) error {
		if len(page.Entries) == limit || size > maxEntryPage {
			page.HasMore, page.NextCursor = true, afterName(entryCursor, last)
			return checkpoint.ErrStop
		}
		last = path
		size += len(path) + at.Room()
		page.Entries = append(page.Entries, entry(path, at))
		return nil
	})
	return page, c.fileError(err, q.ID)
}

func (c *call) getCheckpointFile(q api.GetCheckpointFile) error {
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return err
	}
	at, err := c.Service.Checkpoints.Lookup(c.ctx, c.access.Org.ID, &cp, q.Path)
	if err != nil {
		return c.fileError(err, q.ID)
	}
	if at.Type != tree.File {
		return c.fileError(&checkpoint.PathError{Path: q.Path})
	}
	return c.fileError(c.sendContent(at.Content), q.ID)
}

func (c *call) diffCheckpoint(q api.DiffCheckpoint) (api.CheckpointDiff, error) {
	out := api.CheckpointDiff{Changes: []api.CheckpointChange{}}
	to, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return out, err
	}
	var from *checkpoint.Checkpoint
	if base := first(q.Base, to.Parent); base != "" {
		cp, err := c.Service.Checkpoint(c.ctx, c.access, base)
		if q.Base == "" && (err == nil && cp.Thread != to.Thread || err != nil && service.Public(err).Status() == http.StatusNotFound) {
			return out, service.ThreadError(&checkpoint.Error{
				Code: checkpoint.MissingCheckpoint, What: fmt.Sprintf("checkpoint %q, which came before, was deleted: name another one as base", base),
			})
		}
		if err != nil {
			return out, err
		}
		from, out.Base = &cp, cp.ID
	}
	d := checkpoint.Comparison{From: from, To: &to, Root: q.Root}
	if d.After, err = textPosition(q.Cursor, changeCursor); err != nil {
		return out, err
	}
	limit := pageSize(q.Limit, entriesDefault, entriesMax)
	last, size := "", 0
	err = c.Service.Checkpoints.Diff(c.ctx, c.access.Org.ID, d, func(change tree.Change) error {
		if len(out.Changes) == limit || size > maxEntryPage {
			out.HasMore, out.NextCursor = true, afterName(changeCursor, last)
			return checkpoint.ErrStop
		}
		last = change.Path
		for _, e := range []*tree.Entry{change.Old, change.New} {
			if e != nil {
				size += len(last) + e.Room()
			}
		}
		out.Changes = append(out.Changes, changed(change))
		return nil
	})
	return out, c.fileError(err, q.ID, out.Base)
}

func changed(change tree.Change) api.CheckpointChange {
	out := api.CheckpointChange{Path: strings.ToValidUTF8(change.Path, "\ufffd"), Change: "modified"}
	if change.Old != nil {
		old := entry(change.Path, change.Old)
		out.Old = &old
	} else {
		out.Change = "added"
	}
	if change.New != nil {
		now := entry(change.Path, change.New)
		out.New = &now
	} else {
		out.Change = "removed"
	}
	return out
}

var archiveTypes = map[checkpoint.Format]string{
	checkpoint.Tar: "application/x-tar", checkpoint.TarGzip: "application/gzip", checkpoint.TarZstd: "application/zstd",
}

func (c *call) archiveCheckpoint(q api.ArchiveCheckpoint) error {
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return err
	}
	f := checkpoint.Format(first(q.Format, string(checkpoint.TarGzip)))
	if !slices.Contains([]checkpoint.Format{checkpoint.Tar, checkpoint.TarGzip, checkpoint.TarZstd}, f) {
		return invalid("format is %.40q: use tar, tar.gz or tar.zst", q.Format)
	}
	c.body.drain()
	h := c.header()
	h.Set("Content-Type", archiveTypes[f])
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Disposition", `attachment; filename="checkpoint.`+string(f)+`"`)
	err = c.Service.Checkpoints.Archive(c.ctx, c.access.Org.ID, &cp, q.Path, f, c)
	if err != nil && !c.begun {
		for _, name := range []string{"Content-Type", "Content-Disposition", "Cache-Control"} {
			h.Del(name)
		}
	}
	if err == nil && !c.begun {
		c.w.WriteHeader(http.StatusOK)
	}
	return c.fileError(err, q.ID)
}

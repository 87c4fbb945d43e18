package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/tree"
)

// digests reads a list of digests.
func digests(list []string) ([]tree.Digest, error) {
	if len(list) > checkpoint.MaxDigests {
		return nil, invalid("%d digests are too many at once: send at most %d", len(list), checkpoint.MaxDigests)
	}
	out := make([]tree.Digest, len(list))
	for i, text := range list {
		var err error
		if out[i], err = tree.ParseDigest(text); err != nil {
			return nil, invalid("digest %d is not 64 lower-case hexadecimal digits", i)
		}
	}
	return out, nil
}

// checkUpload reads the id of an upload that may be absent.
func checkUpload(id string) error {
	if id == "" {
		return nil
	}
	return service.ThreadError(checkpoint.CheckUpload(id))
}

func (c *call) missingObjects(q api.MissingObjects) (api.MissingList, error) {
	list, err := digests(q.Digests)
	if err == nil {
		err = checkUpload(q.Upload)
	}
	if err != nil {
		return api.MissingList{}, err
	}
	missing, err := c.Service.Checkpoints.Missing(c.ctx, c.access.Org.ID, q.Thread, q.Upload, list)
	return api.MissingList{Missing: hexes(missing)}, service.ThreadError(err)
}

func (c *call) putObjects(q api.PutObjects) (api.StoredObjects, error) {
	stored, err := c.Service.Checkpoints.Receive(c.ctx, c.access.Caller("POST blobs"), q.Thread, q.Upload, c.body)
	return api.StoredObjects{Objects: stored.Objects, Bytes: stored.Bytes}, service.ThreadError(err)
}

// sendFrom is after how many bytes a part of a download is sent.
const sendFrom = 1 << 20

// getObjects streams objects in groups. What comes back depends on what was asked for
// and on nothing else: not on who sent an object first, how it was compressed, or what
// it is stored with.
func (c *call) getObjects(q api.GetObjects) error {
	list, err := digests(q.Digests)
	if err == nil {
		err = checkUpload(q.Upload)
	}
	if err != nil {
		return err
	}
	e, org := c.Service.Checkpoints, c.access.Org.ID
	if err := e.CheckKnown(c.ctx, org, q.Thread, q.Upload, list); err != nil {
		return service.ThreadError(err)
	}
	list = distinct(list)
	c.body.drain()
	c.header().Set("Content-Type", api.ObjectsType)
	c.header().Set("Cache-Control", "no-store")
	w := frame.NewWriter(nil, !q.Compress)
	err = e.Ordered(c.ctx, org, list, q.Check, func(d tree.Digest, b []byte) error {
		// The kind is of no use to the receiver, who knows what it asked for.
		w.Add(tree.Object{Kind: sizeKind(len(b)), Digest: d, Bytes: b})
		if w.Len() < sendFrom {
			return nil
		}
		_, err := c.Write(w.Bytes())
		w.Reset()
		return err
	})
	if missing, ok := errors.AsType[*tree.MissingError](err); ok {
		// Unless the thread has lost it meanwhile, it should be there.
		if err = e.CheckKnown(c.ctx, org, q.Thread, q.Upload, list); err == nil {
			err = checkpoint.Damage(missing)
		}
	}
	if err != nil {
		return service.ThreadError(err)
	}
	if rest := w.Finish(); len(rest) > 0 {
		_, err = c.Write(rest)
	}
	if !c.begun {
		c.w.WriteHeader(http.StatusOK)
	}
	return err
}

// distinct returns digests without those that come again, in their place.
func distinct(list []tree.Digest) []tree.Digest {
	seen := make(map[tree.Digest]struct{}, len(list))
	return slices.DeleteFunc(list, func(d tree.Digest) bool {
		_, again := seen[d]
		seen[d] = struct{}{}
		return again
	})
}

// sizeKind is a kind under which bytes of some length can be sent.
func sizeKind(n int) tree.Kind {
	if n > tree.MaxChunk {
		return tree.Recipe
	}
	return tree.Chunk
}

// blobThread returns the thread whose blobs a request may see: that of the token
// or, with a token for every thread, the named one or all.
func (c *call) blobThread(named string) (string, error) {
	if own := c.access.Principal.Thread; own != auth.AnyThread {
		if named != "" && named != own {
			return "", service.ThreadError(&checkpoint.Error{Code: checkpoint.MissingObject})
		}
		return own, service.ThreadError(checkpoint.CheckThread(own))
	}
	if named == "" {
		return checkpoint.AllThreads, nil
	}
	if err := checkpoint.CheckThread(named); err != nil {
		return "", service.ThreadError(err)
	}
	return named, c.Service.Enter(c.ctx, c.access, named)
}

func (c *call) getBlob(q api.Blob) error {
	thread, err := c.blobThread(q.Thread)
	if err == nil {
		err = checkUpload(q.Upload)
	}
	if err != nil {
		return err
	}
	sum, err := tree.ParseDigest(q.Digest)
	if err != nil {
		return service.ThreadError(&checkpoint.Error{Code: checkpoint.MissingObject})
	}
	b, err := c.Service.Checkpoints.FindBlob(c.ctx, c.access.Caller("GET blob"), thread, q.Upload, sum)
	if err != nil {
		return service.ThreadError(err)
	}
	return c.sendContent(b.Content)
}

// sendContent answers with the content of a file of a checkpoint, or a range.
func (c *call) sendContent(of tree.Content) error {
	src := c.Service.Checkpoints.Source(c.access.Org.ID)
	return service.ThreadError(c.send(content{
		etag: `"` + of.Sum.String() + `"`, size: int64(of.Size),
		open: func(from, n int64) (io.ReadCloser, error) { return newContentReader(c.ctx, src, of, from, n) },
	}))
}

// contentReader reads a range of a file, one chunk at a time.
type contentReader struct {
	ctx   context.Context
	src   tree.Source
	parts []tree.Part
	skip  uint64 // of the first part
	left  uint64
	chunk []byte
	of    tree.Digest // the file's
}

func newContentReader(ctx context.Context, src tree.Source, of tree.Content, from, n int64) (*contentReader, error) {
	parts, err := tree.Parts(ctx, src, of)
	if err != nil {
		return nil, service.ThreadError(checkpoint.Damage(err))
	}
	r := &contentReader{of: of.Digest, ctx: ctx, src: src, parts: parts, skip: uint64(from), left: uint64(n)}
	for len(r.parts) > 0 && r.parts[0].Length <= r.skip {
		r.skip -= r.parts[0].Length
		r.parts = r.parts[1:]
	}
	// What cannot be read at all is told before the answer begins.
	return r, r.next()
}

func (r *contentReader) next() error {
	if len(r.parts) == 0 {
		return &tree.CorruptError{Digest: r.of}
	}
	p := r.parts[0]
	b, err := tree.FetchOne(r.ctx, r.src, p.Digest)
	if err != nil {
		return service.ThreadError(checkpoint.Damage(err))
	}
	if uint64(len(b)) != p.Length {
		return &tree.CorruptError{Digest: p.Digest}
	}
	r.chunk, r.parts, r.skip = b[r.skip:], r.parts[1:], 0
	return nil
}

// Read implements io.Reader.
func (r *contentReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if len(r.chunk) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p[:min(uint64(len(p)), r.left)], r.chunk)
	r.chunk, r.left = r.chunk[n:], r.left-uint64(n)
	return n, nil
}

// Close implements io.Closer.
func (r *contentReader) Close() error { return nil }

func (c *call) putFile(q api.Blob) (api.StoredBlob, error) { return c.putBlob(q, checkpoint.Files) }

func (c *call) putArtifact(q api.Blob) (api.StoredBlob, error) {
	return c.putBlob(q, checkpoint.Artifacts)
}

func (c *call) putBlob(q api.Blob, space checkpoint.Space) (api.StoredBlob, error) {
	thread, err := c.blobThread(q.Thread)
	if err == nil {
		err = checkUpload(q.Upload)
	}
	if err != nil {
		return api.StoredBlob{}, err
	}
	sum, err := tree.ParseDigest(q.Digest)
	if err != nil {
		return api.StoredBlob{}, service.ThreadError(&checkpoint.Error{Code: checkpoint.InvalidObject})
	}
	size, err := c.Service.Checkpoints.PutBlob(c.ctx, c.access.Caller("PUT blob"), thread, q.Upload, sum, c.body)
	return api.StoredBlob{Key: checkpoint.Key{Space: space, Sum: sum}.String(), Size: size}, service.ThreadError(err)
}

func (c *call) listReferences(q api.ListReferences) (api.ReferencePage, error) {
	page := api.ReferencePage{References: []api.BlobReference{}}
	thread, err := c.blobThread(q.Thread)
	if err != nil {
		return page, err
	}
	var after *checkpoint.Key
	if q.Cursor != "" {
		text, err := textPosition(q.Cursor, keyCursor)
		if err != nil {
			return page, err
		}
		k, ok := checkpoint.ParseKey(text)
		if !ok {
			return page, badCursor()
		}
		after = &k
	}
	limit := pageSize(q.Limit, entriesDefault, entriesMax)
	list, err := c.Service.Checkpoints.References(c.ctx, c.access.Org.ID, thread, after, limit+1)
	if err != nil {
		return page, service.ThreadError(err)
	}
	if len(list) > limit {
		list = list[:limit]
		page.HasMore, page.NextCursor = true, afterName(keyCursor, list[limit-1].Key.String())
	}
	for _, r := range list {
		page.References = append(page.References, api.BlobReference{Key: r.Key.String(), References: r.Count})
	}
	return page, nil
}

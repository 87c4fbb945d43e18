package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// emptySum is the digest of no bytes, which everybody has.
var emptySum = tree.Sum(nil)

// blobUpload is the upload of a thread that keeps blobs which are put one by one,
// where none is named: no client can choose it. It ends with its time.
const blobUpload = "blobs put one by one"

// PutBlob stores the bytes with a SHA-256, for a thread or, with AllThreads, for
// callers that see every thread. Other bytes are refused with InvalidObject. upload
// "" is one of the thread's own.
func (e *Engine) PutBlob(ctx context.Context, c Caller, thread, upload string, sum tree.Digest, r io.Reader) (size int64, err error) {
	if upload == "" {
		upload = blobUpload
	}
	if err := e.hasRoom(ctx, c, thread); err != nil {
		return 0, err
	}
	up, err := e.begin(ctx, c.Org, thread, upload)
	if err != nil {
		return 0, err
	}
	defer up.Close()
	r, end := e.within(ctx, c, up, r)
	defer end()
	whole := sha256.New()
	var parts []tree.Part
	err = chunk.Split(io.TeeReader(r, whole), func(b []byte) error {
		o := tree.Object{Kind: tree.Chunk, Digest: tree.Sum(b), Bytes: b}
		parts = append(parts, tree.Part{Length: uint64(len(b)), Digest: o.Digest})
		size += int64(len(b))
		return up.Write(ctx, o)
	})
	if err != nil {
		return 0, err
	}
	if tree.Digest(whole.Sum(nil)) != sum {
		return 0, &Error{Code: InvalidObject}
	}
	if len(parts) == 0 {
		return 0, nil
	}
	if len(parts) == 1 {
		_, err = up.Flush(ctx)
		return size, full(err)
	}
	recipe, err := tree.EncodeRecipe(parts)
	if err != nil {
		return 0, err
	}
	large := meta.LargeBlob{Sum: sum, Recipe: tree.Sum(recipe), Size: size}
	if err := up.Write(ctx, tree.Object{Kind: tree.Recipe, Digest: large.Recipe, Bytes: recipe}); err != nil {
		return 0, err
	}
	if _, err := up.Flush(ctx); err != nil {
		return 0, full(err)
	}
	v, err := e.cfg.Meta.Apply(ctx, meta.Change{Org: c.Org, Token: c.Token, PutBlob: &large})
	if err == nil && !v.Applied {
		err = refusal(v.Conflict)
	}
	return size, err
}

// Blob is the bytes with a SHA-256, as an org has them.
type Blob struct {
	Content tree.Content
	// Size is less than zero until the blob is read, for one that is an object of its
	// own.
	Size int64
}

// blobs finds those of an org's blobs that have the given sums: as objects of their
// own or, if large, by their recipes. Those that it does not have, or that are
// condemned, are left out.
func (e *Engine) blobs(ctx context.Context, org meta.OrgID, sums []tree.Digest) (map[tree.Digest]Blob, error) {
	absent, _, err := e.cfg.Content.Missing(ctx, org, sums)
	if err != nil {
		return nil, err
	}
	found := make(map[tree.Digest]Blob, len(sums))
	for _, d := range sums {
		found[d] = Blob{tree.Content{Digest: d, Sum: d}, -1}
	}
	asked := make([][32]byte, 0, len(absent))
	for _, d := range absent {
		delete(found, d)
		asked = append(asked, d)
	}
	large, err := e.cfg.Meta.LargeBlobs(ctx, org, asked)
	if err != nil {
		return nil, fmt.Errorf("find large blobs: %w", err)
	}
	recipes := make([]tree.Digest, len(large))
	for i := range large {
		recipes[i] = large[i].Recipe
	}
	gone, _, err := e.cfg.Content.Missing(ctx, org, recipes)
	if err != nil {
		return nil, err
	}
	lost := make(map[tree.Digest]bool, len(gone))
	for _, d := range gone {
		lost[d] = true
	}
	for _, l := range large {
		if !lost[l.Recipe] {
			found[l.Sum] = Blob{tree.Content{Digest: l.Recipe, Sum: l.Sum, Chunked: true, Size: uint64(l.Size)}, l.Size}
		}
	}
	found[emptySum] = Blob{}
	return found, nil
}

// receipts are what the uploads that an append may use have received.
type receipts []*content.Received

func (e *Engine) receipts(ctx context.Context, org meta.OrgID, thread string, uploads ...string) (receipts, error) {
	var all receipts
	for _, id := range uploads {
		if id == "" {
			continue
		}
		r, err := e.cfg.Content.Received(ctx, org, thread, uploadID(thread, id))
		switch {
		case err == nil:
			all = append(all, r)
		case !errors.Is(err, content.ErrUpload):
			return nil, err
		}
	}
	return all, nil
}

// has reports whether one of the uploads has received an object.
func (r receipts) has(ctx context.Context, d tree.Digest) (bool, error) {
	for _, one := range r {
		if ok, err := one.Has(ctx, d); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// FindBlob returns a blob that a caller may see: that the thread knows or one of
// its uploads has received; with AllThreads as the thread any of the org's. The
// code MissingObject says that there is none.
func (e *Engine) FindBlob(ctx context.Context, c Caller, thread, upload string, sum tree.Digest) (Blob, error) {
	none := &Error{Code: MissingObject}
	if sum == emptySum {
		return Blob{}, nil
	}
	sums := []tree.Digest{sum}
	var found map[tree.Digest]Blob
	var err error
	if thread == AllThreads {
		found, err = e.blobs(ctx, c.Org, sums)
	} else {
		found, err = e.threadBlobs(ctx, c.Org, thread, upload, sums)
	}
	b, ok := found[sum]
	if err != nil || !ok {
		return Blob{}, errors.Join(err, none)
	}
	if b.Size < 0 {
		data, err := tree.FetchOne(ctx, e.cfg.Content.Source(c.Org), sum)
		if err != nil {
			return Blob{}, err
		}
		b.Size = int64(len(data))
		b.Content.Size = uint64(b.Size)
	}
	return b, nil
}

func (e *Engine) threadBlobs(ctx context.Context, org meta.OrgID, thread, upload string, sums []tree.Digest) (map[tree.Digest]Blob, error) {
	k, err := e.known(ctx, org, thread)
	if err != nil {
		return nil, err
	}
	r, err := e.receipts(ctx, org, thread, upload, blobUpload)
	if err != nil {
		return nil, err
	}
	return e.nameable(ctx, org, k, r, sums)
}

// nameable is blobs for a thread: it finds those that the thread knows or r has. What
// others have is looked for as little as what nobody has.
func (e *Engine) nameable(ctx context.Context, org meta.OrgID, k *known, r receipts, sums []tree.Digest) (map[tree.Digest]Blob, error) {
	var whole []tree.Digest
	var rest [][32]byte
	for _, sum := range sums {
		switch ok, err := k.allows(ctx, r, sum); {
		case err != nil:
			return nil, err
		case ok:
			whole = append(whole, sum)
		default:
			rest = append(rest, sum)
		}
	}
	// Of a large blob that was put just now only the objects are known.
	large, err := e.cfg.Meta.LargeBlobs(ctx, org, rest)
	if err != nil {
		return nil, fmt.Errorf("find large blobs: %w", err)
	}
	for _, l := range large {
		ok, err := e.hasParts(ctx, org, k, r, l.Recipe)
		if err != nil {
			return nil, err
		}
		if ok {
			whole = append(whole, l.Sum)
		}
	}
	return e.blobs(ctx, org, whole)
}

// allows reports whether a thread may name the bytes of an object.
func (k *known) allows(ctx context.Context, r receipts, d tree.Digest) (bool, error) {
	if k.has(bytesKey(d)) {
		return true, nil
	}
	return r.has(ctx, d)
}

// hasParts reports whether a thread may name a recipe and each chunk that it names.
// Whoever knows the digests of the chunks can make the recipe, without having them.
func (e *Engine) hasParts(ctx context.Context, org meta.OrgID, k *known, r receipts, recipe tree.Digest) (bool, error) {
	if ok, err := k.allows(ctx, r, recipe); err != nil || !ok {
		return false, err
	}
	b, err := tree.FetchOne(ctx, e.cfg.Content.Source(org), recipe)
	if _, gone := errors.AsType[*tree.MissingError](err); gone {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	parts, err := tree.DecodeRecipe(b)
	if err != nil {
		return false, err
	}
	for i := range parts {
		if ok, err := k.allows(ctx, r, parts[i].Digest); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

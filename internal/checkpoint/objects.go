package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// MaxDigests bounds how many objects one request names.
const MaxDigests = 100_000

// uploadID is the id under which an upload of a thread is kept: threads that take
// the same id have nothing to do with each other.
func uploadID(thread, id string) string {
	d := tree.Sum([]byte(thread + "\x00" + id))
	return d.String()[:40]
}

// begin begins an upload of a thread.
func (e *Engine) begin(ctx context.Context, org meta.OrgID, thread, id string) (*content.Upload, error) {
	return e.cfg.Content.Begin(ctx, org, thread, uploadID(thread, id))
}

// CheckUpload reports whether an upload can have an id.
func CheckUpload(id string) error {
	ok := len(id) >= 1 && len(id) <= 64
	for i := range len(id) {
		c := id[i]
		ok = ok && (c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return refuse(InvalidID, "the id of an upload has 1 to 64 letters, digits, '-' and '_'")
	}
	return nil
}

// Missing returns those of digests that have to be sent before a checkpoint of the
// thread can name them, in the order asked: what the thread does not know and the
// upload has not received, whoever else has it.
func (e *Engine) Missing(ctx context.Context, org meta.OrgID, thread, upload string, digests []tree.Digest) ([]tree.Digest, error) {
	if err := CheckThread(thread); err != nil {
		return nil, err
	}
	k, err := e.known(ctx, org, thread)
	if err != nil {
		return nil, err
	}
	r, err := e.receipts(ctx, org, thread, upload)
	if err != nil {
		return nil, err
	}
	missing := make(map[tree.Digest]bool)
	var may []tree.Digest
	for _, d := range digests {
		ok := k.has(bytesKey(d))
		if !ok {
			if ok, err = r.has(ctx, d); err != nil {
				return nil, err
			}
		}
		if ok {
			may = append(may, d)
		} else {
			missing[d] = true
		}
	}
	gone, _, err := e.cfg.Content.Missing(ctx, org, may)
	if err != nil {
		return nil, err
	}
	for _, d := range gone {
		missing[d] = true
	}
	list := make([]tree.Digest, 0, len(missing))
	for _, d := range digests {
		if missing[d] {
			list = append(list, d)
		}
	}
	return list, nil
}

// Receive stores a stream of objects in an upload of the thread. They are durable
// when it returns. A stream that no client makes is frame.ErrInvalid, an object with
// other bytes the code InvalidObject; then nothing of it is kept.
func (e *Engine) Receive(ctx context.Context, c Caller, thread, upload string, r io.Reader) (content.Stored, error) {
	if err := errors.Join(CheckThread(thread), CheckUpload(upload)); err != nil {
		return content.Stored{}, err
	}
	if err := e.hasRoom(ctx, c, thread); err != nil {
		return content.Stored{}, err
	}
	up, err := e.begin(ctx, c.Org, thread, upload)
	if err != nil {
		return content.Stored{}, err
	}
	defer up.Close()
	r, end := e.within(ctx, c, up, r)
	defer end()
	for frames := frame.NewReader(r); ; {
		g, err := frames.Group()
		if err == io.EOF {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return content.Stored{}, fmt.Errorf("%w: it ends within an object", frame.ErrInvalid)
		}
		if err == nil {
			err = up.WriteGroup(ctx, g)
		}
		if err != nil {
			up.Forget(context.WithoutCancel(ctx))
			return content.Stored{}, full(badObject(err))
		}
	}
	stored, err := up.Flush(ctx)
	if err != nil {
		up.Forget(context.WithoutCancel(ctx))
	}
	return stored, full(badObject(err))
}

// badObject says that an object's bytes are not what its digest names.
func badObject(err error) error {
	if corrupt, ok := errors.AsType[*tree.CorruptError](err); ok {
		return refuse(InvalidObject, "the bytes of object %s are not those that its digest names", corrupt.Digest)
	}
	return err
}

// CheckKnown refuses, with MissingObject, digests that the thread does not know and
// that the upload has not received.
func (e *Engine) CheckKnown(ctx context.Context, org meta.OrgID, thread, upload string, digests []tree.Digest) error {
	if err := CheckThread(thread); err != nil {
		return err
	}
	k, err := e.known(ctx, org, thread)
	if err != nil {
		return err
	}
	r, err := e.receipts(ctx, org, thread, upload)
	if err != nil {
		return err
	}
	for _, d := range digests {
		ok := k.has(bytesKey(d))
		if !ok {
			if ok, err = r.has(ctx, d); err != nil {
				return err
			}
		}
		if !ok {
			return refuse(MissingObject, "object %s not found in this thread", d)
		}
	}
	return nil
}

// Source returns the objects of an org. Who asks must have found out what the
// caller may see.
func (e *Engine) Source(org meta.OrgID) tree.Source { return e.cfg.Content.Source(org) }

// Store keeps what fn puts in an upload of the thread. The objects are durable when
// it returns.
func (e *Engine) Store(ctx context.Context, org meta.OrgID, thread, upload string, fn func(put func(tree.Object) error) error) error {
	if err := CheckThread(thread); err != nil {
		return err
	}
	up, err := e.begin(ctx, org, thread, upload)
	if err != nil {
		return err
	}
	defer up.Close()
	if err := fn(func(o tree.Object) error { return up.Write(ctx, o) }); err != nil {
		return err
	}
	_, err = up.Flush(ctx)
	return err
}

// Ordered gives objects of an org in the order of digests, compared with them if check
// is set. Who asks must have found out what the caller may see; neither the order nor
// the bytes tell who sent them first.
func (e *Engine) Ordered(ctx context.Context, org meta.OrgID, digests []tree.Digest, check bool, fn func(d tree.Digest, b []byte) error) error {
	return e.cfg.Content.Ordered(ctx, org, digests, check, fn)
}

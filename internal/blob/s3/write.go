package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cairnstate/cairn/internal/blob"
)

const (
	maxParts = 10_000 // by the rules of S3

	// partsInFlight is how many parts of one object are uploaded at a time.
	partsInFlight = 2

	// cleanUpTime bounds the removal of an upload that failed.
	cleanUpTime = 30 * time.Second

	// uploadMeta is the metadata entry that holds the upload's random id.
	uploadMeta = "Cairn-Upload"
)

// writer collects one part in memory. What fits into it becomes a single
// PutObject, anything larger a multipart upload.
type writer struct {
	store *Store
	ctx   context.Context
	key   blob.Key
	id    string // of this upload, in the object's metadata
	part  []byte // collects; its capacity grows up to the size of a part
	size  int64  // written so far
	ended bool

	// Set when there is more than one part.
	uploadID string
	sent     int // parts handed to group
	group    *errgroup.Group
	groupCtx context.Context
	cancel   context.CancelFunc

	mu   sync.Mutex
	done []minio.CompletePart // in any order
}

// Create implements blob.Store.
func (s *Store) Create(ctx context.Context, key blob.Key) (blob.Writer, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	return &writer{store: s, ctx: ctx, key: key, id: rand.Text()}, nil
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, fmt.Errorf("write %q: %w", string(w.key), blob.ErrEnded)
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	written := 0
	for len(p) > 0 {
		if len(w.part) == w.store.config.PartSize {
			if err := w.sendPart(); err != nil {
				return written, fmt.Errorf("write %q: %w", string(w.key), err)
			}
		}
		n := min(len(p), w.store.config.PartSize-len(w.part))
		w.part = append(w.part, p[:n]...)
		w.size += int64(n)
		p = p[n:]
		written += n
	}
	return written, nil
}

// sendPart uploads the collected part in the background and starts the next. It
// waits while enough parts are under way.
func (w *writer) sendPart() error {
	if w.uploadID == "" {
		if err := w.start(); err != nil {
			return err
		}
	}
	if w.groupCtx.Err() != nil {
		return context.Cause(w.groupCtx) // why a part failed
	}
	if w.sent == maxParts {
		return fmt.Errorf("object is larger than %d parts of %d bytes; raise the part size", maxParts, w.store.config.PartSize)
	}
	w.sent++
	number, data := w.sent, w.part
	w.part = (*w.store.parts.Get().(*[]byte))[:0]
	w.group.Go(func() error { return w.uploadPart(number, data) })
	return nil
}

// start begins the multipart upload. A lost answer leaves an empty upload
// behind, which SweepUploads removes.
func (w *writer) start() error {
	s := w.store
	err := s.retry(w.ctx, 0, func(ctx context.Context) (err error) {
		w.uploadID, err = s.core.NewMultipartUpload(ctx, s.config.Bucket, s.name(w.key), w.options())
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.cancel = cancel
	w.group, w.groupCtx = errgroup.WithContext(ctx)
	w.group.SetLimit(partsInFlight)
	return nil
}

func (w *writer) uploadPart(number int, data []byte) error {
	s := w.store
	sum := sha256.Sum256(data)
	opts := minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum[:])}
	var part minio.ObjectPart
	err := s.retry(w.groupCtx, int64(len(data)), func(ctx context.Context) (err error) {
		part, err = s.core.PutObjectPart(ctx, s.config.Bucket, s.name(w.key), w.uploadID, number, bytes.NewReader(data), int64(len(data)), opts)
		return err
	})
	if err != nil {
		return err
	}
	if cap(data) == s.config.PartSize {
		s.parts.Put(&data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	return nil
}

// Finish makes the object visible unless the key is taken.
func (w *writer) Finish(ctx context.Context) error {
	if w.ended {
		return fmt.Errorf("finish %q: %w", string(w.key), blob.ErrEnded)
	}
	if err := errors.Join(w.ctx.Err(), ctx.Err()); err != nil {
		w.Abort()
		return err
	}
	if w.uploadID == "" {
		w.ended = true
		return w.conditional(ctx, w.size, w.putSingle)
	}
	defer w.Abort()
	if err := w.sendPart(); err != nil {
		return fmt.Errorf("finish %q: %w", string(w.key), err)
	}
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	if err := w.group.Wait(); err != nil {
		return fmt.Errorf("finish %q: %w", string(w.key), err)
	}
	slices.SortFunc(w.done, func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	if err := w.conditional(ctx, w.size, w.complete); err != nil {
		return err
	}
	w.cancel()
	w.ended = true // the upload is the object now: there is nothing to abort
	return nil
}

// options are those of all writes: the upload's id.
func (w *writer) options() minio.PutObjectOptions {
	return minio.PutObjectOptions{
		UserMetadata: map[string]string{uploadMeta: w.id},
		ContentType:  "application/octet-stream",
	}
}

func (w *writer) putSingle(ctx context.Context) error {
	sum := sha256.Sum256(w.part)
	opts := w.options()
	opts.SetMatchETagExcept("*")
	_, err := w.store.core.PutObject(ctx, w.store.config.Bucket, w.store.name(w.key), bytes.NewReader(w.part), w.size, "", hex.EncodeToString(sum[:]), opts)
	return err
}

func (w *writer) complete(ctx context.Context) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	_, err := w.store.core.CompleteMultipartUpload(ctx, w.store.config.Bucket, w.store.name(w.key), w.uploadID, w.done, opts)
	return err
}

// conditional does a write that the service refuses when the key is taken, and
// finds out what happened when the answer does not say. Whatever the answer was,
// an object with this upload's id is this upload.
func (w *writer) conditional(ctx context.Context, size int64, write func(ctx context.Context) error) error {
	err := w.store.retry(ctx, size, write)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("create %q: %w", string(w.key), ctx.Err())
	}
	info, headErr := w.store.head(ctx, w.key)
	switch {
	case headErr == nil && info.UserMetadata[uploadMeta] == w.id && info.Size == size:
		return nil
	case isPreconditionFailed(err) && (headErr == nil || isNotFound(headErr)):
		return fmt.Errorf("create %q: %w", string(w.key), blob.ErrExists)
	case isPreconditionFailed(err):
		err = headErr // it may be ours or not: nobody knows
	}
	return fmt.Errorf("create %q: %w", string(w.key), err)
}

// Abort drops the parts uploaded so far. What it cannot remove SweepUploads does.
func (w *writer) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	w.part = nil
	if w.uploadID == "" {
		return
	}
	w.cancel()
	w.group.Wait() // a part that arrives after the abort would stay
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanUpTime)
	defer cancel()
	w.store.abortUpload(ctx, w.store.name(w.key), w.uploadID)
}

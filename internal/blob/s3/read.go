package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cairnstate/cairn/internal/blob"
)

// blockSize is what one request fetches at least, so that a reader who moves on
// a little finds the bytes there.
const blockSize = 1 << 20

// blockID names a block of an object. Keys are never reused, so that its bytes
// never change.
type blockID struct {
	key    blob.Key
	number int64
}

// object reads by ranges. Small reads go through the store's block cache.
type object struct {
	store *Store
	ctx   context.Context
	key   blob.Key
	size  int64
}

// Open implements blob.Store.
func (s *Store) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	info, err := s.head(ctx, key)
	if err != nil {
		return nil, opError("open", key, err)
	}
	return &object{store: s, ctx: ctx, key: key, size: info.Size}, nil
}

func (o *object) Size() int64 { return o.size }

func (o *object) Close() error { return nil }

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %q: negative offset %d", string(o.key), off)
	}
	if off >= o.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.size-off)]
	n, err := o.readFull(want, off)
	if err != nil {
		return n, opError("read", o.key, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readFull reads all of p, which lies within the object.
func (o *object) readFull(p []byte, off int64) (int, error) {
	if len(p) >= blockSize {
		w := &sliceWriter{p: p}
		err := o.store.copyRange(o.ctx, w, o.key, off, int64(len(p)))
		return w.n, err
	}
	n := 0
	for n < len(p) {
		at := off + int64(n)
		block, err := o.block(at / blockSize)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], block[at%blockSize:])
	}
	return n, nil
}

// block returns the numbered block from the cache or the service. Readers who
// want the same one at the same time share one request.
func (o *object) block(number int64) ([]byte, error) {
	id := blockID{key: o.key, number: number}
	for {
		if block, ok := o.store.blocks.Get(id); ok {
			return block, nil
		}
		result, err, _ := o.store.flight.Do(fmt.Sprint(id.number, id.key), func() (any, error) {
			off := number * blockSize
			w := &sliceWriter{p: make([]byte, min(blockSize, o.size-off))}
			if err := o.store.copyRange(o.ctx, w, o.key, off, int64(len(w.p))); err != nil {
				return nil, err
			}
			o.store.blocks.Put(id, w.p, int64(len(w.p)))
			return w.p, nil
		})
		if err == nil {
			return result.([]byte), nil
		}
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !ended || o.ctx.Err() != nil {
			return nil, err
		}
		// The request was another reader's, whose context ended: ask again.
	}
}

// WriteTo implements io.WriterTo with one request for the whole object.
func (o *object) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{w: w}
	if err := o.store.copyRange(o.ctx, counted, o.key, 0, o.size); err != nil {
		return counted.n, opError("read", o.key, err)
	}
	return counted.n, nil
}

// copyRange copies n bytes of an object to w. A transfer that breaks off is
// continued where it stopped, as long as each attempt makes progress.
func (s *Store) copyRange(ctx context.Context, w io.Writer, key blob.Key, off, n int64) error {
	for attempt := 1; n > 0; attempt++ {
		got, err := s.getRange(ctx, w, key, off, n)
		off += got
		n -= got
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if got > 0 {
			attempt = 1
		}
		var sink *sinkError
		if errors.As(err, &sink) || !transient(err) || attempt >= attempts {
			return err
		}
		if err := s.wait(ctx, attempt); err != nil {
			return err
		}
	}
	return nil
}

// getRange makes one request and returns how many bytes reached w.
func (s *Store) getRange(ctx context.Context, w io.Writer, key blob.Key, off, n int64) (got int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errStalled // or the caller's context ended, which the caller sees
		}
	}()
	watch := newWatch(s.config.Stall, cancel)
	defer watch.stop()
	var opts minio.GetObjectOptions
	if err := opts.SetRange(off, off+n-1); err != nil {
		return 0, err
	}
	body, _, header, err := s.core.GetObject(ctx, s.config.Bucket, s.name(key), opts)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if got := header.Get("Content-Range"); off > 0 && !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", off)) {
		return 0, fmt.Errorf("the service answers a request for bytes from %d with range %q", off, got)
	}
	got, err = io.Copy(&sinkWriter{w: w, watch: watch}, io.LimitReader(body, n))
	if err == nil && got < n {
		err = io.ErrUnexpectedEOF
	}
	return got, err
}

// sinkError is a failure of the writer that a range is copied to; asking the
// service again does not help.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

// sinkWriter marks the errors of w. The watch rests while w writes.
type sinkWriter struct {
	w     io.Writer
	watch *watch
}

func (s *sinkWriter) Write(p []byte) (int, error) {
	s.watch.stop()
	defer s.watch.restart()
	n, err := s.w.Write(p)
	if err != nil {
		err = &sinkError{err}
	}
	return n, err
}

// sliceWriter fills p.
type sliceWriter struct {
	p []byte
	n int
}

func (s *sliceWriter) Write(p []byte) (int, error) {
	n := copy(s.p[s.n:], p)
	s.n += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

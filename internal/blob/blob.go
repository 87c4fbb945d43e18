// Package blob is the contract for immutable bytes: packs, indexes and other
// objects that meta names. What a store must guarantee is written here once and
// proven for each by blobtest.
//
//   - Durable: when Put or Finish returns nil the object survives a crash and a
//     loss of power.
//   - Atomic: an object is seen whole or not at all. A failed or aborted write
//     leaves nothing that Open, Stat or List shows, with one exception: a write
//     that failed with something else than ErrExists may have landed whole. Its
//     key must not be tried again; Delete it or leave it to a sweep.
//   - Immutable: an object is never overwritten. Of any number of concurrent
//     writers of one key one wins and the others get ErrExists.
//   - Read after write: once a write returned nil every process sees the object,
//     in Open, Stat and List alike.
//   - Concurrent: all methods may be called by any number of goroutines.
//
// Callers make objects visible by naming them in meta, after the write returned
// nil. Absence of what meta names is therefore corruption: see MustOpen.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
)

// Errors that stores wrap.
var (
	// ErrNotFound says that the store holds no object under the key.
	ErrNotFound = errors.New("object not found")
	// ErrExists says that an object which another upload wrote has the key. It is
	// a verdict: nothing was written.
	ErrExists = errors.New("object exists")
	// ErrCorrupt says that what meta names is absent or has another size.
	// Every CorruptError matches it.
	ErrCorrupt = errors.New("stored object is corrupt")
	// ErrSize says that a reader held fewer or more bytes than announced.
	ErrSize = errors.New("size differs from the announced one")
	// ErrEnded says that a Writer was used after Finish or Abort.
	ErrEnded = errors.New("writer has ended")
)

// Info describes a stored object.
type Info struct {
	Key     Key
	Size    int64     // bytes
	ModTime time.Time // when it was written, by the store's clock
}

// Store keeps immutable objects. The package comment states what holds for all.
type Store interface {
	// Put stores all of r under key. size is the number of bytes in r, or -1 when
	// unknown; a wrong size is ErrSize and stores nothing.
	Put(ctx context.Context, key Key, r io.Reader, size int64) error

	// Create starts an object of unknown size. It appears with Finish. ctx covers
	// the writer's Write calls.
	Create(ctx context.Context, key Key) (Writer, error)

	// Open returns the object for random reads, or ErrNotFound. ctx covers the
	// reads as well: when it ends they may fail.
	Open(ctx context.Context, key Key) (Object, error)

	// Stat describes the object, or returns ErrNotFound.
	Stat(ctx context.Context, key Key) (Info, error)

	// List yields the objects whose key starts with prefix, in the byte order of
	// keys; an error is the last thing yielded. It may read the whole store: it is
	// for sweeps and checks, never for a request. Objects that come or go while it
	// runs may or may not be yielded.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes the object, durably. An absent object is not an error.
	// Objects already open may stay readable.
	Delete(ctx context.Context, key Key) error
}

// Writer receives one object's bytes, in order, from one goroutine.
// Either Finish or Abort must be called; `defer w.Abort()` does for all paths.
type Writer interface {
	io.Writer
	// Finish makes the object durable and visible, or returns an error (ErrExists
	// when the key is taken). Nothing may be written afterwards.
	Finish(ctx context.Context) error
	// Abort drops what was written. It cannot fail and does nothing after Finish.
	Abort()
}

// Object is an open object. ReadAt may be called concurrently. After Close
// nothing else may be called.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size is the object's length in bytes.
	Size() int64
}

// FileObject is an Object that is a file of this machine.
type FileObject interface {
	Object
	// File returns the file, which Close closes. Its offset is the caller's to move,
	// so that io.Copy from it to a socket is a sendfile.
	File() *os.File
}

// CorruptError reports that meta names an object which the store does not have
// as named. It matches ErrCorrupt and never ErrNotFound: it is not a 404.
type CorruptError struct {
	Key    Key
	Reason string
}

// Error says which object is corrupt and why.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("stored object %q is corrupt: %s", string(e.Key), e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// MustOpen opens an object that meta names. Absence, or another size than meta
// says (-1 when it says none), is a *CorruptError.
func MustOpen(ctx context.Context, s Store, key Key, size int64) (Object, error) {
	o, err := s.Open(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil, &CorruptError{Key: key, Reason: "it is named by meta and absent"}
	}
	if err != nil {
		return nil, err
	}
	if got := o.Size(); size >= 0 && got != size {
		o.Close()
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it has %d bytes where meta says %d", got, size)}
	}
	return o, nil
}

// WriteTo copies all of o to w, by the object's own io.WriterTo when it has one
// (a store that can stream), else by ReadAt.
func WriteTo(w io.Writer, o Object) (int64, error) {
	if s, ok := o.(io.WriterTo); ok {
		return s.WriteTo(w)
	}
	return io.Copy(w, io.NewSectionReader(o, 0, o.Size()))
}

// Fill copies r to w and finishes it, or aborts it on any error. size is the
// expected number of bytes or -1. It is how stores write Put upon Create.
func Fill(ctx context.Context, w Writer, r io.Reader, size int64) error {
	defer w.Abort()
	r = &contextReader{ctx: ctx, r: r}
	if size >= 0 {
		r = io.LimitReader(r, size+1) // one more shows that r is too long
	}
	n, err := io.Copy(w, r)
	if err != nil {
		return err
	}
	if size >= 0 && n != size {
		return fmt.Errorf("write object of %d announced bytes, got %d: %w", size, n, ErrSize)
	}
	return w.Finish(ctx)
}

// contextReader ends with the context's error once it is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

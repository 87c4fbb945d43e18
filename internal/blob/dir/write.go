package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/fsx"
)

type writer struct {
	fsys  fsx.FS
	ctx   context.Context
	key   blob.Key
	temp  string
	f     fsx.File
	size  int64
	err   error // the first failure; Finish returns it too
	ended bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, fmt.Errorf("write %q: %w", string(w.key), blob.ErrEnded)
	}
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.f.Write(p)
	w.size += int64(n)
	if err != nil {
		w.err = fmt.Errorf("write %q: %w", string(w.key), err)
	}
	return n, w.err
}

// Finish makes the file durable first and gives it its name after that, so that
// no reader ever sees bytes that a crash could take away.
func (w *writer) Finish(ctx context.Context) error {
	if w.ended {
		return fmt.Errorf("finish %q: %w", string(w.key), blob.ErrEnded)
	}
	w.ended = true
	err := w.commit(ctx)
	// A failure to remove harms nothing: the next Open sweeps.
	w.fsys.Remove(w.temp)
	if err != nil {
		return fmt.Errorf("create %q: %w", string(w.key), err)
	}
	return nil
}

func (w *writer) commit(ctx context.Context) error {
	if err := w.seal(ctx); err != nil {
		return errors.Join(err, w.f.Close())
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	name := file(w.key)
	if err := w.fsys.Link(w.temp, name); errors.Is(err, fs.ErrExist) {
		return blob.ErrExists
	} else if err != nil {
		return err
	}
	if err := w.fsys.SyncDir(path.Dir(name)); err != nil {
		// Whether the name is durable is unknown: take it back, so that what failed
		// is not seen. If that fails too the object stays, whole and unnamed by meta.
		w.fsys.Remove(name)
		return err
	}
	return nil
}

// seal syncs the file and checks that it holds all that was written.
func (w *writer) seal(ctx context.Context) error {
	if err := errors.Join(w.err, ctx.Err()); err != nil {
		return err
	}
	info, err := w.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != w.size {
		return fmt.Errorf("file has %d bytes after writing %d: %w", info.Size(), w.size, blob.ErrSize)
	}
	return w.f.Sync()
}

func (w *writer) Abort() {
	if w.ended {
		return
	}
	w.ended = true
	// Neither failure matters: the next Open sweeps what is left.
	w.f.Close()
	w.fsys.Remove(w.temp)
}

package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/internal/workspace"
)

// place is where roots are.
type place interface {
	scan(ctx context.Context, o workspace.ScanOptions, sink workspace.Sink) (*scanned, error)
	restore(ctx context.Context, o workspace.RestoreOptions, src tree.Source, root tree.Digest) (*workspace.Restored, error)
	// look reports whether there is a directory at path, and whether it has no entries.
	look(ctx context.Context, path string) (exists, empty bool, err error)
}

// scanned is a finished walk. Once the store has confirmed its objects, saveCache keeps what it learned for the next one.
type scanned struct {
	*workspace.Result
	saveCache func() error
}

// here is this machine.
type here struct{}

func (here) scan(ctx context.Context, o workspace.ScanOptions, sink workspace.Sink) (*scanned, error) {
	r, err := workspace.Scan(ctx, o, sink)
	if err != nil {
		return nil, err
	}
	return &scanned{r, r.SaveCache}, nil
}

func (here) restore(ctx context.Context, o workspace.RestoreOptions, src tree.Source, root tree.Digest) (*workspace.Restored, error) {
	return workspace.Restore(ctx, o, src, root)
}

// placeOf returns where the files of a handle are, and its id: "" for this machine.
func placeOf(h Handle) (place, string, error) {
	if h == nil {
		return here{}, "", nil
	}
	if h.ID() == "" {
		return nil, "", errorf(ErrInvalid, "the handle has no id")
	}
	return &away{shell{h}}, h.ID(), nil
}

// placeError says which errors are about a root itself.
func placeError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Code: ErrInvalidWorkspace, Message: err.Error() + "; make the directory, or name another root", Err: err}
	}
	return err
}

func (here) look(_ context.Context, path string) (exists, empty bool, err error) {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, true, nil
	}
	if err != nil {
		return false, false, err
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, true, nil
	}
	return true, false, err
}

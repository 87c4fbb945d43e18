package repo

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"strings"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// knownModulesBytes bounds the memory of which .gitmodules files are known to be
// good.
const knownModulesBytes = 256 << 10

// checkModules refuses .gitmodules files of a pack that Git would refuse, and such
// of the repository that a tree of the pack newly calls so.
func (in *incoming) checkModules(ctx context.Context, e *Engine) error {
	db := in.conn.db.With(in.pending)
	for word, marks := range in.conn.modules {
		for ; marks != 0; marks &= marks - 1 {
			if err := e.checkModules(ctx, db, in.index.ID(word*64+bits.TrailingZeros64(marks))); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkModules refuses a .gitmodules file with a *BadObjectError.
func (e *Engine) checkModules(ctx context.Context, db *odb.DB, id object.ID) error {
	if _, ok := e.modules.Get(id); ok {
		return nil
	}
	_, size, src, err := db.Stream(ctx, id)
	if err != nil {
		return err
	}
	defer src.Close() // what matters of it was read
	bad, err := checkModules(size, src)
	if err != nil {
		return err
	}
	if bad != nil {
		return &BadObjectError{ID: id, Err: bad}
	}
	e.modules.Put(id, struct{}{}, object.Size)
	return nil
}

// checkModules returns what Git would refuse in a .gitmodules file.
func checkModules(size int64, src io.Reader) (bad, err error) {
	if size > object.MaxGitmodules {
		return &object.CheckError{Type: object.Blob, ID: "gitmodulesLarge", Detail: fmt.Sprintf("a .gitmodules file has more than %d bytes", object.MaxGitmodules)}, nil
	}
	data, err := io.ReadAll(io.LimitReader(src, size))
	if err != nil {
		return nil, fmt.Errorf("read a .gitmodules file: %w", err)
	}
	return object.CheckGitmodules(data), nil
}

// checkModulesAt refuses a file of a commit that Git would not take for the
// .gitmodules file that its path makes it. Contents that are not so called are not
// opened. The error is an *InvalidError.
func checkModulesAt(path string, mode object.Mode, open func() (int64, io.ReadCloser, error)) error {
	for rest, deeper := path, true; deeper; {
		var name string
		name, rest, deeper = strings.Cut(rest, "/")
		if !object.IsGitmodules([]byte(name)) {
			continue
		}
		if deeper || mode != 0 && mode.Type() != object.Blob || mode == object.ModeSymlink {
			return invalid("path %q: what is called .gitmodules has to be a file", path)
		}
		size, src, err := open()
		if err != nil {
			return err
		}
		defer src.Close() // what matters of it was read
		bad, err := checkModules(size, src)
		if bad != nil {
			err = invalid("path %q: %v", path, bad)
		}
		return err
	}
	return nil
}

// open returns the bytes of a closed content.
func (b *Content) open() (int64, io.ReadCloser, error) {
	z, err := zlib.NewReader(b.stream())
	if err != nil {
		return 0, nil, fmt.Errorf("read a content: %w", err)
	}
	return b.size, z, nil
}

// Package dir is a blob.Store in a directory.
//
// An object with key "a/b" is the file objects/XX/a~b, XX being two digits of a
// hash of the key, so that no directory holds more than about one in 256 of all
// objects. It is written as tmp/RANDOM, synced, linked to its name (which fails
// when the name is taken), and the directory is synced. A file below objects is
// therefore always whole; what a crash leaves in tmp goes when the store is
// opened later.
package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/fsx"
)

const (
	objectsDir = "objects"
	tmpDir     = "tmp"
	shards     = 256

	// staleAfter is how long an unfinished upload may rest before Open removes it.
	// Another process may be writing it: an upload that pauses longer has died.
	staleAfter = time.Hour
)

// Store keeps objects in a directory. Several processes may use one.
type Store struct{ fsys fsx.FS }

var _ blob.Store = (*Store)(nil)

// Open returns the store at the root of fsys, making its directories durably,
// and removes the remains of uploads that died.
func Open(fsys fsx.FS) (*Store, error) {
	s := &Store{fsys: fsys}
	for _, dir := range []string{tmpDir, objectsDir} {
		if err := fsx.MkdirAllSync(fsys, dir); err != nil {
			return nil, fmt.Errorf("open blob directory: %w", err)
		}
	}
	for i := range shards {
		if err := fsys.MkdirAll(shardDir(i)); err != nil {
			return nil, fmt.Errorf("open blob directory: %w", err)
		}
	}
	if err := fsys.SyncDir(objectsDir); err != nil {
		return nil, fmt.Errorf("open blob directory: %w", err)
	}
	if err := s.sweep(time.Now().Add(-staleAfter)); err != nil {
		return nil, fmt.Errorf("sweep unfinished uploads: %w", err)
	}
	return s, nil
}

// sweep removes uploads last written to before the given time.
func (s *Store) sweep(before time.Time) error {
	entries, err := s.fsys.ReadDir(tmpDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = s.fsys.Remove(path.Join(tmpDir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func shardDir(i int) string { return fmt.Sprintf("%s/%02x", objectsDir, i) }

// file returns the name of the file that holds the object.
func file(key blob.Key) string {
	h := fnv.New32a()
	io.WriteString(h, string(key))
	return path.Join(shardDir(int(h.Sum32()%shards)), strings.ReplaceAll(string(key), "/", "~"))
}

// keyOf is the inverse of file, for a base name.
func keyOf(base string) (blob.Key, error) {
	return blob.ParseKey(strings.ReplaceAll(base, "~", "/"))
}

func check(ctx context.Context, key blob.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return ctx.Err()
}

// opError wraps an error of an operation on a key in the contract's terms.
func opError(op string, key blob.Key, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %q: %w", op, string(key), blob.ErrNotFound)
	}
	return fmt.Errorf("%s %q: %w", op, string(key), err)
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key blob.Key, r io.Reader, size int64) error {
	w, err := s.Create(ctx, key)
	if err != nil {
		return err
	}
	return blob.Fill(ctx, w, r, size)
}

// Create implements blob.Store.
func (s *Store) Create(ctx context.Context, key blob.Key) (blob.Writer, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	temp := fmt.Sprintf("%s/%016x%016x", tmpDir, rand.Uint64(), rand.Uint64())
	f, err := s.fsys.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("create %q: %w", string(key), err)
	}
	return &writer{fsys: s.fsys, ctx: ctx, key: key, temp: temp, f: f}, nil
}

// Open implements blob.Store. On a real file system the object is a
// blob.FileObject.
func (s *Store) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	f, err := s.fsys.Open(file(key))
	if err != nil {
		return nil, opError("open", key, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(opError("open", key, err), f.Close())
	}
	o := object{File: f, size: info.Size()}
	if osFile, ok := f.(*os.File); ok {
		return fileObject{object: o, file: osFile}, nil
	}
	return o, nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	if err := check(ctx, key); err != nil {
		return blob.Info{}, err
	}
	info, err := s.fsys.Stat(file(key))
	if err != nil {
		return blob.Info{}, opError("stat", key, err)
	}
	return blob.Info{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key blob.Key) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	name := file(key)
	if err := s.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %q: %w", string(key), err)
	}
	// Also when the file was absent: an earlier Delete may have failed in between.
	if err := s.fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("delete %q: %w", string(key), err)
	}
	return nil
}

type object struct {
	fsx.File
	size int64
}

func (o object) Size() int64 { return o.size }

type fileObject struct {
	object
	file *os.File
}

var _ blob.FileObject = fileObject{}

func (o fileObject) File() *os.File { return o.file }

// Package fsx is the one seam between Cairn and a disk. FS is the little of a
// file system that durable storage needs; OS is the real one, Mem a memory one
// that can lose power, and Fault wraps either to make operations fail.
package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
)

// FS is a directory tree. Names are slash-separated paths relative to its root,
// valid by fs.ValidPath. Errors match fs.ErrNotExist and fs.ErrExist. All
// methods may be called concurrently.
//
// What survives a loss of power: a file's bytes after File.Sync, an entry of a
// directory (a file's name, its absence, a subdirectory) after SyncDir of that
// directory. Both are needed for a new file.
type FS interface {
	// Create makes a new file and opens it for writing and reading; a name in use is
	// fs.ErrExist.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Edit opens a file for reading and for writing at any place, making it when it
	// is missing.
	Edit(name string) (RandomFile, error)
	// Link gives the file oldname a second name; a newname in use is fs.ErrExist.
	// It is the exclusive form of Rename.
	Link(oldname, newname string) error
	// Rename moves a file, replacing newname when that exists.
	Rename(oldname, newname string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// MkdirAll makes a directory and its parents; one that exists is not an error.
	MkdirAll(name string) error
	// ReadDir lists a directory in the order of names.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
}

// File is an open file. *os.File is one.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	// Sync makes the bytes durable. After it failed once the file cannot be trusted:
	// later calls may report success for bytes that are lost.
	Sync() error
}

// RandomFile is a file that is written in place, as a database is: a loss of
// power may leave any parts of what was written or truncated since the last Sync.
type RandomFile interface {
	File
	io.WriterAt
	// Truncate gives the file another size; new bytes are zero.
	Truncate(size int64) error
}

// TempSuffix ends the names of files that WriteFile has not finished. A crash
// can leave some; they may be removed when no WriteFile runs in the directory.
const TempSuffix = ".tmp~"

// WriteFile puts size bytes of r durably in the file name, replacing it in one
// step: after a crash, and for every reader, the file is the old one or the new
// one whole. size is -1 when unknown; r of another length is an error. The
// directory must exist. When WriteFile fails the file is one of the two as well.
func WriteFile(fsys FS, name string, r io.Reader, size int64) (err error) {
	temp := fmt.Sprintf("%s.%016x%s", name, rand.Uint64(), TempSuffix)
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreNotExist(fsys.Remove(temp)))
		}
	}()
	if err := fill(f, r, size); err != nil {
		return errors.Join(fmt.Errorf("write %q: %w", name, err), f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

func fill(f File, r io.Reader, size int64) error {
	if size >= 0 {
		r = io.LimitReader(r, size+1) // one more shows that r is too long
	}
	n, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	if size >= 0 && n != size {
		return fmt.Errorf("got %d bytes, want %d", n, size)
	}
	return f.Sync()
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MkdirAllSync makes a directory and its parents durably.
func MkdirAllSync(fsys FS, name string) error {
	if err := fsys.MkdirAll(name); err != nil {
		return err
	}
	for name != "." {
		name = path.Dir(name)
		if err := fsys.SyncDir(name); err != nil {
			return err
		}
	}
	return nil
}

// invalid returns the error for a name that leaves the root or is not clean.
func invalid(op, name string) error {
	if fs.ValidPath(name) {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
}

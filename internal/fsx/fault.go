package fsx

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// Op names an operation of FS or File.
type Op string

// The operations that a Hook sees.
const (
	OpCreate   Op = "create"
	OpOpen     Op = "open"
	OpEdit     Op = "edit"
	OpLink     Op = "link"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdirAll Op = "mkdir"
	OpReadDir  Op = "readdir"
	OpStat     Op = "stat"
	OpSyncDir  Op = "syncdir"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpClose    Op = "close"
)

// Errors that faults give.
var (
	// ErrInjected is a failing disk.
	ErrInjected = errors.New("injected fault")
	// ErrNoSpace is a full one; it is the system's ENOSPC.
	ErrNoSpace error = syscall.ENOSPC
)

// Hook sees an operation on a name (the new name of Link and Rename) before it
// runs. An error makes the operation fail: nothing is done, except that a write
// puts half of its bytes first, a close still closes, and what a Sync of a Mem's
// file was to make durable never becomes so, though it can be read. Hooks are
// called concurrently.
type Hook func(op Op, name string) error

// FailNth returns a Hook that fails the nth operation (from 1) that match picks
// with err. A nil match picks all. Hit tells whether it has failed one.
func FailNth(n int64, match func(Op, string) bool, err error) (hook Hook, hit func() bool) {
	var count atomic.Int64
	hook = func(op Op, name string) error {
		if match != nil && !match(op, name) {
			return nil
		}
		if count.Add(1) == n {
			return err
		}
		return nil
	}
	return hook, func() bool { return count.Load() >= n }
}

// FailFrom returns a Hook that fails every operation that match picks from the
// nth on, as a disk does that is full or gone. A nil match picks all.
func FailFrom(n int64, match func(Op, string) bool, err error) Hook {
	var count atomic.Int64
	return func(op Op, name string) error {
		if match != nil && !match(op, name) || count.Add(1) < n {
			return nil
		}
		return err
	}
}

// Fault is an FS whose operations pass a Hook first.
type Fault struct {
	fsys FS
	hook Hook
}

var _ FS = (*Fault)(nil)

// NewFault returns fsys with hook before each operation.
func NewFault(fsys FS, hook Hook) *Fault { return &Fault{fsys: fsys, hook: hook} }

func (f *Fault) check(op Op, name string) error {
	if err := f.hook(op, name); err != nil {
		return &fs.PathError{Op: string(op), Path: name, Err: err}
	}
	return nil
}

func (f *Fault) file(file File, name string, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fault: f, name: name}, nil
}

// Create implements FS.
func (f *Fault) Create(name string) (File, error) {
	if err := f.check(OpCreate, name); err != nil {
		return nil, err
	}
	file, err := f.fsys.Create(name)
	return f.file(file, name, err)
}

// Open implements FS.
func (f *Fault) Open(name string) (File, error) {
	if err := f.check(OpOpen, name); err != nil {
		return nil, err
	}
	file, err := f.fsys.Open(name)
	return f.file(file, name, err)
}

// Edit implements FS.
func (f *Fault) Edit(name string) (RandomFile, error) {
	if err := f.check(OpEdit, name); err != nil {
		return nil, err
	}
	file, err := f.fsys.Edit(name)
	if err != nil {
		return nil, err
	}
	return &faultRandomFile{faultFile{File: file, fault: f, name: name}, file}, nil
}

// Link implements FS.
func (f *Fault) Link(oldname, newname string) error {
	if err := f.check(OpLink, newname); err != nil {
		return err
	}
	return f.fsys.Link(oldname, newname)
}

// Rename implements FS.
func (f *Fault) Rename(oldname, newname string) error {
	if err := f.check(OpRename, newname); err != nil {
		return err
	}
	return f.fsys.Rename(oldname, newname)
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	if err := f.check(OpRemove, name); err != nil {
		return err
	}
	return f.fsys.Remove(name)
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(name string) error {
	if err := f.check(OpMkdirAll, name); err != nil {
		return err
	}
	return f.fsys.MkdirAll(name)
}

// ReadDir implements FS.
func (f *Fault) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.check(OpReadDir, name); err != nil {
		return nil, err
	}
	return f.fsys.ReadDir(name)
}

// Stat implements FS.
func (f *Fault) Stat(name string) (fs.FileInfo, error) {
	if err := f.check(OpStat, name); err != nil {
		return nil, err
	}
	return f.fsys.Stat(name)
}

// SyncDir implements FS.
func (f *Fault) SyncDir(name string) error {
	if err := f.check(OpSyncDir, name); err != nil {
		return err
	}
	return f.fsys.SyncDir(name)
}

type faultFile struct {
	File
	fault *Fault
	name  string
}

func (f *faultFile) Read(p []byte) (int, error) {
	if err := f.fault.check(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fault.check(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) Write(p []byte) (int, error) {
	if err := f.fault.check(OpWrite, f.name); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		return n, errors.Join(err, werr)
	}
	return f.File.Write(p)
}

func (f *faultFile) Sync() error {
	if err := f.fault.check(OpSync, f.name); err != nil {
		if m, ok := f.File.(*memFile); ok {
			m.forsake()
		}
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Close() error {
	return errors.Join(f.fault.check(OpClose, f.name), f.File.Close())
}

type faultRandomFile struct {
	faultFile
	random RandomFile
}

func (f *faultRandomFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fault.check(OpWrite, f.name); err != nil {
		n, werr := f.random.WriteAt(p[:len(p)/2], off)
		return n, errors.Join(err, werr)
	}
	return f.random.WriteAt(p, off)
}

func (f *faultRandomFile) Truncate(size int64) error {
	if err := f.fault.check(OpTruncate, f.name); err != nil {
		return err
	}
	return f.random.Truncate(size)
}

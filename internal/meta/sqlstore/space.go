package sqlstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// spaceSystem is a VFS that remembers whether its disk was full: by the time that
// SQLite reports an I/O error, what the system said is lost more often than not.
type spaceSystem struct {
	vfs.VFS
	full *atomic.Bool
}

var _ vfs.VFSFilename = spaceSystem{}

var spaceSystems atomic.Int64

// watchSpace registers a file system that works as the one that is called base
// and sets full when that has no space left.
func watchSpace(base string, full *atomic.Bool) (name string, unregister func(), err error) {
	below := vfs.Find(base)
	if below == nil {
		return "", nil, fmt.Errorf("SQLite has no file system %q", base)
	}
	name = fmt.Sprintf("cairn-%d", spaceSystems.Add(1))
	vfs.Register(name, spaceSystem{below, full})
	return name, func() { vfs.Unregister(name) }, nil
}

// note passes an error on.
func (s spaceSystem) note(err error) error {
	// The system's word comes wrapped in an error that does not unwrap.
	if err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		s.full.Store(true)
	}
	return err
}

// Open implements vfs.VFS.
func (s spaceSystem) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpen(s.VFS, name, flags)
	return s.file(f, flags, err)
}

// OpenFilename implements vfs.VFSFilename.
func (s spaceSystem) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(s.VFS, name, flags)
	return s.file(f, flags, err)
}

func (s spaceSystem) file(f vfs.File, flags vfs.OpenFlag, err error) (vfs.File, vfs.OpenFlag, error) {
	if err != nil {
		return nil, flags, s.note(err)
	}
	return &spaceFile{f, s}, flags, nil
}

// Delete implements vfs.VFS.
func (s spaceSystem) Delete(name string, syncDir bool) error {
	return s.note(s.VFS.Delete(name, syncDir))
}

// spaceFile is a file of a spaceSystem.
type spaceFile struct {
	vfs.File
	system spaceSystem
}

var (
	_ vfs.FileUnwrap             = (*spaceFile)(nil)
	_ vfs.FileLockState          = (*spaceFile)(nil)
	_ vfs.FileHasMoved           = (*spaceFile)(nil)
	_ vfs.FileSizeHint           = (*spaceFile)(nil)
	_ vfs.FilePersistWAL         = (*spaceFile)(nil)
	_ vfs.FilePowersafeOverwrite = (*spaceFile)(nil)
	_ vfs.FileSharedMemory       = (*spaceFile)(nil)
)

// WriteAt implements vfs.File.
func (f *spaceFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, f.system.note(err)
}

// Truncate implements vfs.File.
func (f *spaceFile) Truncate(size int64) error { return f.system.note(f.File.Truncate(size)) }

// Sync implements vfs.File.
func (f *spaceFile) Sync(flags vfs.SyncFlag) error { return f.system.note(f.File.Sync(flags)) }

// SizeHint implements vfs.FileSizeHint.
func (f *spaceFile) SizeHint(size int64) error {
	return f.system.note(vfsutil.WrapSizeHint(f.File, size))
}

// Unwrap implements vfs.FileUnwrap.
func (f *spaceFile) Unwrap() vfs.File { return f.File }

// LockState implements vfs.FileLockState.
func (f *spaceFile) LockState() vfs.LockLevel { return vfsutil.WrapLockState(f.File) }

// HasMoved implements vfs.FileHasMoved.
func (f *spaceFile) HasMoved() (bool, error) { return vfsutil.WrapHasMoved(f.File) }

// PersistWAL implements vfs.FilePersistWAL.
func (f *spaceFile) PersistWAL() bool { return vfsutil.WrapPersistWAL(f.File) }

// SetPersistWAL implements vfs.FilePersistWAL.
func (f *spaceFile) SetPersistWAL(keep bool) { vfsutil.WrapSetPersistWAL(f.File, keep) }

// PowersafeOverwrite implements vfs.FilePowersafeOverwrite.
func (f *spaceFile) PowersafeOverwrite() bool { return vfsutil.WrapPowersafeOverwrite(f.File) }

// SetPowersafeOverwrite implements vfs.FilePowersafeOverwrite.
func (f *spaceFile) SetPowersafeOverwrite(safe bool) {
	vfsutil.WrapSetPowersafeOverwrite(f.File, safe)
}

// SharedMemory implements vfs.FileSharedMemory.
func (f *spaceFile) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

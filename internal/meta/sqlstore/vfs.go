package sqlstore

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/cairnstate/cairn/internal/fsx"
)

// RegisterVFS makes fsys a file system of SQLite, for SQLiteOptions.VFS: the
// database "/meta.db" is the file "meta.db" of it. index is a directory of this
// machine for what connections share while they are open, of which nothing has
// to last; it must be fresh for each file system. Only one process may use
// fsys. unregister ends the name, once all stores on it are closed.
func RegisterVFS(name string, fsys fsx.FS, index string) (unregister func()) {
	vfs.Register(name, &fileSystem{fsys: fsys, index: index, locks: make(map[string]*fileLock)})
	return func() { vfs.Unregister(name) }
}

// fileSystem is a VFS on an fsx.FS. It does what SQLite's own one for Unix does,
// call by call.
type fileSystem struct {
	fsys  fsx.FS
	index string

	mu    sync.Mutex
	locks map[string]*fileLock
}

var _ vfs.VFSFilename = (*fileSystem)(nil)

func (s *fileSystem) name(full string) string { return strings.TrimPrefix(full, "/") }

// FullPathname implements vfs.VFS.
func (s *fileSystem) FullPathname(name string) (string, error) { return path.Join("/", name), nil }

// Delete implements vfs.VFS.
func (s *fileSystem) Delete(full string, syncDir bool) error {
	name := s.name(full)
	if err := s.fsys.Remove(name); errors.Is(err, fs.ErrNotExist) {
		return vfs.SystemError(err, sqlite3.IOERR_DELETE_NOENT)
	} else if err != nil {
		return err
	}
	if !syncDir {
		return nil
	}
	return s.fsys.SyncDir(path.Dir(name))
}

// Access implements vfs.VFS.
func (s *fileSystem) Access(full string, _ vfs.AccessFlag) (bool, error) {
	_, err := s.fsys.Stat(s.name(full))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Open implements vfs.VFS for temporary files, which are the system's.
func (s *fileSystem) Open(_ string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return vfs.Find("").(vfs.VFSFilename).OpenFilename(nil, flags)
}

// OpenFilename implements vfs.VFSFilename.
func (s *fileSystem) OpenFilename(full *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if full.String() == "" {
		return s.Open("", flags)
	}
	name := s.name(full.String())
	if flags&vfs.OPEN_CREATE == 0 {
		if _, err := s.fsys.Stat(name); err != nil {
			return nil, flags, err
		}
	}
	f, err := s.fsys.Edit(name)
	if err != nil {
		return nil, flags, err
	}
	const journals = vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_SUPER_JOURNAL | vfs.OPEN_WAL
	return &file{
		RandomFile: f,
		system:     s,
		name:       name,
		syncDir:    flags&vfs.OPEN_CREATE != 0 && flags&journals != 0,
		shared:     vfs.NewSharedMemory(filepath.Join(s.index, filepath.FromSlash(name)+"-shm"), flags),
		lock:       s.lock(name),
	}, flags, nil
}

// lock returns the lock that all connections to a file have.
func (s *fileSystem) lock(name string) *fileLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	if l == nil {
		l = &fileLock{}
		s.locks[name] = l
	}
	return l
}

// file is one connection's use of a file.
type file struct {
	fsx.RandomFile
	system  *fileSystem
	name    string
	syncDir bool // the directory too, once, since the file may be new in it
	shared  vfs.SharedMemory
	lock    *fileLock
	level   vfs.LockLevel
}

var (
	_ vfs.FileSharedMemory = (*file)(nil)
	_ vfs.FileSizeHint     = (*file)(nil)
	_ vfs.FileLockState    = (*file)(nil)
)

// Close implements vfs.File.
func (f *file) Close() error {
	if f.shared != nil {
		f.shared.Close()
	}
	f.Unlock(vfs.LOCK_NONE)
	return f.RandomFile.Close()
}

// SharedMemory implements vfs.FileSharedMemory.
func (f *file) SharedMemory() vfs.SharedMemory { return f.shared }

// Sync implements vfs.File.
func (f *file) Sync(vfs.SyncFlag) error {
	if err := f.RandomFile.Sync(); err != nil {
		return err
	}
	if !f.syncDir {
		return nil
	}
	f.syncDir = false
	return f.system.fsys.SyncDir(path.Dir(f.name))
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// SizeHint implements vfs.FileSizeHint: it takes room before it is written to.
func (f *file) SizeHint(size int64) error {
	if now, err := f.Size(); err != nil || size <= now {
		return err
	}
	return f.Truncate(size)
}

// SectorSize implements vfs.File.
func (f *file) SectorSize() int { return 4096 }

// DeviceCharacteristics implements vfs.File: a write that loses power harms no
// bytes beside it.
func (f *file) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE | vfs.IOCAP_SUBPAGE_READ
}

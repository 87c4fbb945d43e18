package sqlstore

import (
	"sync"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// fileLock is who holds a database file, among the connections of this process.
type fileLock struct {
	mu       sync.Mutex
	shared   int
	reserved bool
	pending  bool
}

// LockState implements vfs.FileLockState.
func (f *file) LockState() vfs.LockLevel { return f.level }

// Lock implements vfs.File. It never waits: SQLite has a busy handler.
func (f *file) Lock(level vfs.LockLevel) error {
	if f.level >= level {
		return nil
	}
	l := f.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	switch level {
	case vfs.LOCK_SHARED:
		if l.pending {
			return sqlite3.BUSY
		}
		l.shared++
	case vfs.LOCK_RESERVED:
		if l.reserved {
			return sqlite3.BUSY
		}
		l.reserved = true
	case vfs.LOCK_EXCLUSIVE:
		if f.level < vfs.LOCK_PENDING {
			if l.pending || l.reserved && f.level < vfs.LOCK_RESERVED {
				return sqlite3.BUSY
			}
			l.reserved, l.pending, f.level = true, true, vfs.LOCK_PENDING
		}
		if l.shared > 1 {
			return sqlite3.BUSY
		}
	}
	f.level = level
	return nil
}

// Unlock implements vfs.File.
func (f *file) Unlock(level vfs.LockLevel) error {
	if f.level <= level {
		return nil
	}
	l := f.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.level >= vfs.LOCK_RESERVED {
		l.reserved = false
	}
	if f.level >= vfs.LOCK_PENDING {
		l.pending = false
	}
	if level < vfs.LOCK_SHARED {
		l.shared--
	}
	f.level = level
	return nil
}

// CheckReservedLock implements vfs.File.
func (f *file) CheckReservedLock() (bool, error) {
	f.lock.mu.Lock()
	defer f.lock.mu.Unlock()
	return f.lock.reserved, nil
}

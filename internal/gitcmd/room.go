package gitcmd

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// maxRemovals bounds the views that are removed while nobody waits. Beyond it,
// whoever gives up a view removes it.
const maxRemovals = 16

// Room is where views are made: a directory with the few files that git asks a
// repository for, which all views share. It is made when it is first needed.
// Close must be called. A Room is safe for concurrent use.
type Room struct {
	scratch  string
	made     atomic.Int64
	places   chan struct{}
	removing sync.WaitGroup

	mu     sync.Mutex
	path   string // "" while there is none
	failed error  // views that could not be removed
}

// NewRoom returns a room in a scratch directory.
func NewRoom(scratch string) *Room {
	return &Room{scratch: scratch, places: make(chan struct{}, maxRemovals)}
}

// open returns the directory, and makes it when there is none.
func (r *Room) open() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path != "" {
		return r.path, nil
	}
	path, err := os.MkdirTemp(r.scratch, "git-*")
	if err != nil {
		return "", err
	}
	err = errors.Join(
		os.Mkdir(filepath.Join(path, "refs"), 0o700),
		os.WriteFile(filepath.Join(path, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600),
		os.WriteFile(filepath.Join(path, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"), 0o600),
	)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(path))
	}
	r.path = path
	return path, nil
}

// discard removes a view, beside the caller if not too many are being removed.
func (r *Room) discard(path string) error {
	select {
	case r.places <- struct{}{}:
	default:
		return os.RemoveAll(path)
	}
	r.removing.Go(func() {
		defer func() { <-r.places }()
		if err := os.RemoveAll(path); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = errors.Join(r.failed, err)
		}
	})
	return nil
}

// Close removes what is left; no view may be in use. A room that is used again is
// made anew.
func (r *Room) Close() error {
	r.removing.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		return nil
	}
	if err := os.RemoveAll(r.path); err != nil {
		return errors.Join(r.failed, err)
	}
	r.path, r.failed = "", nil // what could not be removed before is gone now
	return nil
}

package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SpaceError reports that a file system has no room for what must be written.
type SpaceError struct {
	Path       string
	What       string // "bytes" or "entries"
	Need, Free uint64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("the restore into %q needs %d %s and its file system has %d free; make room, or restore elsewhere", e.Path, e.Need, e.What, e.Free)
}

// space is what a file system has left for this user.
type space struct {
	device  uint64
	bytes   uint64
	entries uint64
	counted bool // whether it has a limit of entries
}

// room tells of the file system that has path, or would have it: that of the
// nearest directory above it that exists.
func room(path string) (space, error) {
	for {
		var st unix.Statfs_t
		at, err := again(func() (at stat, err error) { return at, errors.Join(unix.Stat(path, &at), unix.Statfs(path, &st)) })
		up := filepath.Dir(path)
		if errors.Is(err, unix.ENOENT) && up != path {
			path = up
			continue
		}
		if err != nil {
			return space{}, &os.PathError{Op: "ask for the free space of", Path: path, Err: err}
		}
		return space{at.Dev, st.Bavail * uint64(st.Bsize), st.Ffree, st.Files > 0}, nil
	}
}

// checkSpace compares what is to be written with what the file systems have.
func (r *restore) checkSpace() error {
	left := map[uint64]space{}
	for _, root := range r.roots {
		if root.entries == 0 {
			continue
		}
		here, err := r.opts.room(root.Path)
		if err != nil {
			return err
		}
		if before, ok := left[here.device]; ok { // another root has taken some of it
			here = before
		}
		if here.bytes < root.bytes {
			return &SpaceError{root.Path, "bytes", root.bytes, here.bytes}
		}
		if here.counted && here.entries < root.entries {
			return &SpaceError{root.Path, "entries", root.entries, here.entries}
		}
		here.bytes -= root.bytes
		here.entries -= min(root.entries, here.entries)
		left[here.device] = here
	}
	return nil
}

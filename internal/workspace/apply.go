package workspace

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// apply changes the directories: removals, renames, metadata, directories last,
// those within before those around them.
func (r *restore) apply() error {
	if r.replaces && r.out.Written.Files > syncedFiles {
		// What replaces a file must not be lost with the power once the file is.
		for _, root := range r.roots {
			if root.staging != "" {
				if err := r.do("sync", root.Path, func() error { return unix.Syncfs(root.stageFD) }); err != nil {
					return err
				}
			}
		}
	}
	r.leaveTrails()
	for _, t := range r.removes {
		if err := r.inParent(t, func(fd int, name string) error { return r.removeAll(fd, name, t.path) }); err != nil {
			return err
		}
	}
	r.leaveTrails()
	for _, op := range r.ops {
		if err := r.inParent(op.target, func(fd int, name string) error { return r.put(op, fd, name) }); err != nil {
			return err
		}
	}
	r.leaveTrails()
	for _, m := range r.fileMetas {
		if err := r.inParent(m.target, func(fd int, name string) error { return r.setMetaOf(fd, name, m) }); err != nil {
			return err
		}
	}
	if err := r.unstage(); err != nil {
		return err
	}
	slices.SortFunc(r.metas, func(a, b dirMeta) int { return strings.Compare(b.path, a.path) })
	for _, m := range r.metas {
		if err := r.inParent(m.target, func(fd int, name string) error { return r.setMetaOf(fd, name, m) }); err != nil {
			return err
		}
	}
	return nil
}

// inParent runs fn with the directory that holds t. The root lies in itself.
func (r *restore) inParent(t target, fn func(fd int, name string) error) error {
	dir, name := split(t.rel())
	if name == "" {
		name = "."
	}
	fd, err := t.root.trail.to(dir)
	if err != nil {
		return &os.PathError{Op: "open the directory of", Path: t.path, Err: err}
	}
	return fn(fd, name)
}

// leaveTrails forgets directories that may have been replaced.
func (r *restore) leaveTrails() {
	for _, root := range r.roots {
		root.trail.close()
	}
}

// writable lets the owner change the directory fd; its mode is set at the end.
func (r *restore) writable(fd int) error {
	st, err := fstat(fd)
	if err != nil || st.Mode&0o300 == 0o300 {
		return err
	}
	return r.do("change the mode of", "a directory", func() error { return unix.Fchmod(fd, st.Mode&0o7777|0o700) })
}

// put renames a staged entry to its place.
func (r *restore) put(op *placing, fd int, name string) error {
	if err := r.writable(fd); err != nil {
		return err
	}
	move := func() error {
		return r.do("rename", op.path, func() error { return unix.Renameat(op.root.stageFD, op.staged, fd, name) })
	}
	err := move()
	switch {
	case errors.Is(err, unix.ENOTDIR): // a file is where a directory goes
		if err := r.do("remove", op.path, func() error { return unix.Unlinkat(fd, name, 0) }); err != nil {
			return err
		}
		err = move()
	case errors.Is(err, unix.ENOENT) && op.entry.Type == tree.Symlink && len(op.entry.Redactions) > 0:
		return nil // it was not staged, since a secret in it was not given
	}
	if err == nil && op.group != nil {
		// Renaming one name of a file to another of it does nothing.
		err = unix.Unlinkat(op.root.stageFD, op.staged, 0)
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	return err
}

// removeAll removes name and what lies beneath it, without following links.
func (r *restore) removeAll(parent int, name, path string) error {
	return r.removeIn(&parent, name, path, 0)
}

func (r *restore) removeIn(parent *int, name, path string, level int) error {
	if err := r.writable(*parent); err != nil {
		return err
	}
	err := r.do("remove", path, func() error { return unix.Unlinkat(*parent, name, 0) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	fd, openErr := openDir(*parent, name)
	if openErr != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	err = eachName(parent, &fd, level, func(n string) error { return r.removeIn(&fd, n, path+"/"+n, level+1) })
	if err != nil {
		return err
	}
	return r.do("remove", path, func() error { return unix.Unlinkat(*parent, name, unix.AT_REMOVEDIR) })
}

// setMetaOf sets the metadata of an entry in its place.
func (r *restore) setMetaOf(parent int, name string, m dirMeta) error {
	fd := -1
	var err error
	switch m.entry.Type {
	case tree.Directory:
		fd, err = openDir(parent, name)
	case tree.File:
		fd, err = openFile(parent, name)
	}
	if err != nil && !errors.Is(err, unix.EACCES) {
		return &os.PathError{Op: "open", Path: m.path, Err: err}
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	_, err = r.setMeta(parent, name, fd, m.path, &m.entry, false, func(path, reason string) { r.out.LeftOut.Add(path, reason) })
	return err
}

// setMeta gives name, which fd has open unless it is -1, the metadata of e, and
// returns what it is then. made says that it was made just now.
func (r *restore) setMeta(parent int, name string, fd int, path string, e *tree.Entry, made bool, leave func(path, reason string)) (st stat, err error) {
	look := func() (stat, error) {
		if fd >= 0 {
			return fstat(fd)
		}
		return lstat(parent, name)
	}
	times := func() error {
		ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: e.Mtime.Sec, Nsec: int64(e.Mtime.Nsec)}}
		return r.do("set the times of", path, func() error { return unix.UtimesNanoAt(parent, name, ts, unix.AT_SYMLINK_NOFOLLOW) })
	}
	if fd >= 0 {
		if err := r.setXattrs(fd, path, e, made, leave); err != nil {
			return st, err
		}
	}
	if made {
		if err := times(); err != nil {
			return st, err
		}
	}
	if st, err = look(); err != nil {
		return st, err
	}
	owned := r.opts.Owner && (st.Uid != e.UID || st.Gid != e.GID)
	if owned {
		err := r.do("change the owner of", path, func() error {
			return unix.Fchownat(parent, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW)
		})
		if errors.Is(err, unix.EPERM) {
			leave(path, ReasonOwner)
		} else if err != nil {
			return st, err
		}
	}
	mode := r.modeOf(e.Mode)
	if e.Type != tree.Symlink && mode != uint32(e.Mode) {
		leave(path, ReasonSetID)
	}
	moded := e.Type != tree.Symlink && (owned || st.Mode&0o7777 != mode) // a new owner drops set-id bits
	if moded {
		err := r.do("change the mode of", path, func() error {
			if fd >= 0 {
				return unix.Fchmod(fd, mode)
			}
			return unix.Fchmodat(parent, name, mode, unix.AT_SYMLINK_NOFOLLOW)
		})
		if err != nil {
			return st, err
		}
	}
	timed := mtimeOf(&st) != e.Mtime
	if timed {
		if err := times(); err != nil {
			return st, err
		}
	}
	if owned || moded || timed {
		return look()
	}
	return st, nil
}

// setXattrs makes the attributes of fd those of e. made says that it was made
// just now.
func (r *restore) setXattrs(fd int, path string, e *tree.Entry, made bool, leave func(path, reason string)) error {
	var have []tree.Xattr
	if !made || len(e.Xattrs) > 0 {
		var err error
		if have, err = xattrs(fd); err != nil {
			return err
		}
	}
	for _, x := range have {
		if !slices.ContainsFunc(e.Xattrs, func(w tree.Xattr) bool { return w.Name == x.Name }) {
			if err := r.do("change an attribute of", path, func() error { return unix.Fremovexattr(fd, x.Name) }); err != nil {
				return err
			}
		}
	}
	for _, x := range e.Xattrs {
		value, filled := fillString(x.Value, x.Redactions, r.opts.Secrets)
		i := slices.IndexFunc(have, func(h tree.Xattr) bool { return h.Name == x.Name })
		if !filled {
			if i < 0 {
				leave(path, ReasonRedacted)
			}
			if i >= 0 {
				continue
			}
		}
		if i >= 0 && have[i].Value == value {
			continue
		}
		err := r.do("change an attribute of", path, func() error { return unix.Fsetxattr(fd, x.Name, []byte(value), 0) })
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) {
			leave(path, ReasonUnsupported)
		} else if err != nil {
			return err
		}
	}
	return nil
}

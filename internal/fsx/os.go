package fsx

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// OS is the FS below a directory of this machine. Its files are *os.File.
type OS struct{ root string }

var _ FS = (*OS)(nil)

// NewOS returns the FS below root, making root durably when it does not exist.
func NewOS(root string) (*OS, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		if err := makeRoot(root); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return &OS{root: root}, nil
}

// makeRoot makes dir and syncs every directory that got an entry.
func makeRoot(dir string) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := makeRoot(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// Root is the absolute path of the directory.
func (o *OS) Root() string { return o.root }

func (o *OS) path(name string) string { return filepath.Join(o.root, filepath.FromSlash(name)) }

// Create implements FS. The file is readable and writable by its owner only.
func (o *OS) Create(name string) (File, error) {
	if err := invalid("create", name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements FS.
func (o *OS) Open(name string) (File, error) {
	if err := invalid("open", name); err != nil {
		return nil, err
	}
	f, err := os.Open(o.path(name))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Edit implements FS. A new file is readable and writable by its owner only.
func (o *OS) Edit(name string) (RandomFile, error) {
	if err := invalid("edit", name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Link implements FS.
func (o *OS) Link(oldname, newname string) error {
	if err := errors.Join(invalid("link", oldname), invalid("link", newname)); err != nil {
		return err
	}
	return os.Link(o.path(oldname), o.path(newname))
}

// Rename implements FS.
func (o *OS) Rename(oldname, newname string) error {
	if err := errors.Join(invalid("rename", oldname), invalid("rename", newname)); err != nil {
		return err
	}
	return os.Rename(o.path(oldname), o.path(newname))
}

// Remove implements FS.
func (o *OS) Remove(name string) error {
	if err := invalid("remove", name); err != nil {
		return err
	}
	return os.Remove(o.path(name))
}

// MkdirAll implements FS.
func (o *OS) MkdirAll(name string) error {
	if err := invalid("mkdir", name); err != nil {
		return err
	}
	return os.MkdirAll(o.path(name), 0o700)
}

// ReadDir implements FS.
func (o *OS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := invalid("readdir", name); err != nil {
		return nil, err
	}
	return os.ReadDir(o.path(name))
}

// Stat implements FS.
func (o *OS) Stat(name string) (fs.FileInfo, error) {
	if err := invalid("stat", name); err != nil {
		return nil, err
	}
	return os.Stat(o.path(name))
}

// SyncDir implements FS.
func (o *OS) SyncDir(name string) error {
	if err := invalid("syncdir", name); err != nil {
		return err
	}
	return syncDir(o.path(name))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

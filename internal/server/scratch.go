package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// scratchDir is the directory of one process for what it writes and nobody else
// reads.
type scratchDir struct {
	path string
	held *os.File // locked while the process lives
}

// openScratch makes a directory of this process in parent, and removes those that
// processes left which ended without doing so. Where directories cannot be locked,
// nothing is removed.
func openScratch(parent string) (*scratchDir, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	// Whoever holds parent may take a new directory for an abandoned one.
	all, err := os.Open(parent)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sweep := lock(all, true) == nil
	if sweep {
		if err := removeAbandoned(parent); err != nil {
			return nil, err
		}
	}
	path, err := os.MkdirTemp(parent, "process-*")
	if err != nil {
		return nil, err
	}
	held, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	if err := lock(held, false); err != nil && sweep {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), held.Close(), os.Remove(path))
	}
	return &scratchDir{path: path, held: held}, nil
}

// removeAbandoned removes what lies in parent and no process holds.
func removeAbandoned(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if held, err := os.Open(path); err == nil {
			err = lock(held, false)
			held.Close()
			if err != nil {
				continue
			}
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the directory.
func (d *scratchDir) Close() error { return errors.Join(os.RemoveAll(d.path), d.held.Close()) }

package repo

import (
	"errors"
	"fmt"
	"os"

	"github.com/cairnstate/cairn/internal/git/pack"
)

// scratch is a temporary file that grows at its end and disappears when it is
// closed.
type scratch struct {
	file *os.File
	size int64
}

var _ pack.Scratch = (*scratch)(nil)

func newScratch(dir string) (*scratch, error) {
	f, err := os.CreateTemp(dir, "scratch-*")
	if err != nil {
		return nil, fmt.Errorf("create scratch file: %w", err)
	}
	return &scratch{file: f}, nil
}

// Write appends p.
func (s *scratch) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write scratch file: %w", err)
	}
	return n, nil
}

// ReadAt reads what was written.
func (s *scratch) ReadAt(p []byte, off int64) (int, error) { return s.file.ReadAt(p, off) }

// Close removes the file.
func (s *scratch) Close() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

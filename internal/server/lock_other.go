//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package server

import (
	"errors"
	"os"
)

// lock fails: files cannot be locked here.
func lock(*os.File, bool) error { return errors.ErrUnsupported }

package object

import (
	"fmt"
	"strings"
)

// MaxPath is the length in bytes of the longest path that CheckPath accepts.
const MaxPath = 4096

// PathError says why CheckPath refuses a path.
type PathError struct {
	Path   string
	Reason string
}

// Error quotes the path, shortened when it is very long.
func (e *PathError) Error() string {
	return fmt.Sprintf("path %.200q refused: %s", e.Path, e.Reason)
}

// CheckPath refuses, with a *PathError, a path at which nothing may be
// committed: one that is empty, absolute, or longer than MaxPath, contains NUL
// or a backslash, or has a segment that is empty, ".", "..", or ".git" in any of
// the disguises that Check refuses in trees.
func CheckPath(path string) error {
	reason := ""
	switch {
	case path == "":
		reason = "it is empty"
	case len(path) > MaxPath:
		reason = fmt.Sprintf("it is longer than %d bytes", MaxPath)
	case path[0] == '/':
		reason = "it begins with a slash; paths are relative to the root of the repository"
	case strings.IndexByte(path, 0) >= 0:
		reason = "it contains NUL"
	case strings.IndexByte(path, '\\') >= 0:
		reason = "it contains a backslash; separate segments with slashes"
	}
	if reason != "" {
		return &PathError{path, reason}
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "":
			reason = "it has an empty segment"
		case segment == ".", segment == "..":
			reason = fmt.Sprintf("it has the segment %q", segment)
		case isDotGit([]byte(segment)):
			reason = fmt.Sprintf("the segment %q is taken for .git on some systems", segment)
		}
		if reason != "" {
			return &PathError{path, reason}
		}
	}
	return nil
}

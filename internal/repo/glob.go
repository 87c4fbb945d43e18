package repo

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of the globs of one request: ** crosses slashes, * does not, and a glob
// without a slash also matches the last part of a path.
const (
	maxGlobs        = 1000
	maxGlobLen      = 4096
	maxGlobBytes    = 64 << 10 // of all of them
	maxAlternatives = 256      // that braces of one glob stand for
)

// checkGlobs refuses globs that are malformed or too large.
func checkGlobs(lists ...[]string) error {
	count, bytes := 0, 0
	for _, globs := range lists {
		count += len(globs)
		if count > maxGlobs {
			return invalid("there are more globs than the limit of %d", maxGlobs)
		}
		for _, glob := range globs {
			if glob == "" || len(glob) > maxGlobLen || !doublestar.ValidatePattern(glob) {
				return invalid("glob %q is malformed", clip(glob))
			}
			if alternatives(glob) > maxAlternatives {
				return invalid("glob %q stands for more than %d patterns", clip(glob), maxAlternatives)
			}
			if bytes += len(glob); bytes > maxGlobBytes {
				return invalid("the globs together are longer than %d bytes", maxGlobBytes)
			}
		}
	}
	return nil
}

// alternatives returns how many patterns the braces of a glob stand for, at
// most; it stops counting beyond maxAlternatives.
func alternatives(glob string) int {
	product, choices := 1, 1
	for i := range len(glob) {
		switch glob[i] {
		case ',':
			choices++
		case '{', '}':
			product, choices = product*choices, 1
		}
		if product*choices > maxAlternatives {
			break
		}
	}
	return product * choices
}

// matchesAny reports whether one of some checked globs matches a path.
func matchesAny(globs []string, name string) bool {
	for _, glob := range globs {
		if doublestar.MatchUnvalidated(glob, name) {
			return true
		}
		if !strings.Contains(glob, "/") && doublestar.MatchUnvalidated(glob, path.Base(name)) {
			return true
		}
	}
	return false
}

// Package refname knows which names Git allows for refs, and the two
// namespaces that Cairn keeps them in: the repository's own refs, and the
// ephemeral ones, stored under EphemeralPrefix.
package refname

import (
	"errors"
	"fmt"
	"strings"
)

// Prefixes of full ref names.
const (
	HeadsPrefix     = "refs/heads/"
	TagsPrefix      = "refs/tags/"
	EphemeralPrefix = "refs/namespaces/ephemeral/"
)

// MaxLen is the length in bytes of the longest name that Check accepts. Git
// itself is limited by the paths of its file system.
const MaxLen = 4096

// ErrInvalid is the error that Check wraps.
var ErrInvalid = errors.New("invalid ref name")

// Check reports whether name is a well-formed full ref name, by the rules of
// git check-ref-format (at least two components, no wildcard) and MaxLen.
// The error wraps ErrInvalid and says what is wrong.
func Check(name string) error {
	if len(name) > MaxLen {
		return fmt.Errorf("%w: %d bytes is longer than %d", ErrInvalid, len(name), MaxLen)
	}
	if reason := fault(name); reason != "" {
		return fmt.Errorf("%w %q: %s", ErrInvalid, name, reason)
	}
	return nil
}

// fault says what is wrong with name, or nothing.
func fault(name string) string {
	if strings.IndexByte(name, '/') < 0 {
		return `it needs at least two components, such as "refs/heads/main"`
	}
	if strings.HasSuffix(name, ".") {
		return "it ends in a dot"
	}
	start := 0
	for i := range len(name) {
		switch c := name[i]; c {
		case ' ', '~', '^', ':', '?', '*', '[', '\\', 0x7f:
			return fmt.Sprintf("it contains %q", c)
		case '.':
			if i > start && name[i-1] == '.' {
				return `it contains ".."`
			}
		case '{':
			if i > 0 && name[i-1] == '@' {
				return `it contains "@{"`
			}
		case '/':
			if reason := componentFault(name[start:i]); reason != "" {
				return reason
			}
			start = i + 1
		default:
			if c < ' ' {
				return fmt.Sprintf("it contains the control character %q", c)
			}
		}
	}
	return componentFault(name[start:])
}

// componentFault says what is wrong with one part between slashes, or nothing.
func componentFault(part string) string {
	switch {
	case part == "":
		return "it has an empty component"
	case part[0] == '.':
		return "a component starts with a dot"
	case strings.HasSuffix(part, ".lock"):
		return `a component ends in ".lock"`
	}
	return ""
}

// Branch returns the full name of the branch with the given short name.
func Branch(short string) string { return HeadsPrefix + short }

// IsBranch reports whether full names a branch outside the ephemeral
// namespace.
func IsBranch(full string) bool {
	return len(full) > len(HeadsPrefix) && strings.HasPrefix(full, HeadsPrefix)
}

// Short returns the short name of a branch, and any other name unchanged.
// An ephemeral name goes through SplitEphemeral first.
func Short(full string) string {
	if IsBranch(full) {
		return full[len(HeadsPrefix):]
	}
	return full
}

// Ephemeral returns the stored name of the ref that is called full inside the
// ephemeral namespace.
func Ephemeral(full string) string { return EphemeralPrefix + full }

// SplitEphemeral returns the name that a stored ref has inside the ephemeral
// namespace. ok is false, and inner is full, when it is not stored there.
func SplitEphemeral(full string) (inner string, ok bool) {
	if len(full) == len(EphemeralPrefix) {
		return full, false
	}
	inner, ok = strings.CutPrefix(full, EphemeralPrefix)
	return inner, ok
}

// Under reports whether a is a directory prefix of b ("refs/heads/dev" of
// "refs/heads/dev/x"): Git does not let both exist in one repository.
func Under(a, b string) bool {
	return len(b) > len(a) && b[len(a)] == '/' && strings.HasPrefix(b, a)
}

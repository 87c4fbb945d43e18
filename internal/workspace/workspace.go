// Package workspace captures directories into the objects of package tree and
// makes directories equal to them. It reads and writes the local file system
// through directories it holds open and never follows a link beneath a root.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
)

// Sink takes the objects of a capture.
type Sink interface {
	// Put takes o, whose bytes are valid during the call only. It is called by
	// several goroutines, after the objects that o names, and more than once for
	// equal objects. An error ends the capture.
	Put(ctx context.Context, o tree.Object) error
}

// Root is a directory with the name that a checkpoint knows it by.
type Root struct{ Name, Path string }

// Secret is a value that no object may hold, and the name it is recorded under.
type Secret struct{ Name, Value string }

// LinkRule says what a capture does with symbolic links that leave their root.
type LinkRule int

// Rules for links.
const (
	RefuseOutside LinkRule = iota // end in a RefusedError
	SkipOutside                   // leave them out
	KeepOutside                   // keep their text
)

// Paths leaves out of a capture or a restore for these reasons.
const (
	ReasonExcluded    = "excluded by the policy"
	ReasonOutside     = "a link that leaves the root"
	ReasonSpecial     = "a fifo, socket or device"
	ReasonUnreadable  = "cannot be read"
	ReasonSecretName  = "its name holds a secret"
	ReasonName        = "its name is too long"
	ReasonDepth       = "it lies too deep"
	ReasonAttributes  = "its attributes are too large"
	ReasonRedactions  = "a secret is there too often"
	ReasonChanged     = "it kept changing while it was read"
	ReasonLog         = "the log of a database without a part: a secret in it is zeroed, or a policy leaves it out"
	ReasonRedacted    = "a secret in it was not given"
	ReasonOwner       = "its owner was not restored"
	ReasonSetID       = "its set-id bits were dropped"
	ReasonUnsupported = "the file system does not keep its attributes"
)

// PathReason is a path, which begins with the name of its root, and what became
// of it.
type PathReason struct{ Path, Reason string }

// List holds paths and how many there were: it keeps 10,000 of them, and of those
// that a policy leaves out only while it has less than half, so that the others are
// seen.
type List struct {
	Paths    []PathReason
	Total    int
	Excluded int // how many of Total a policy leaves out
}

const listMax = 10_000

// Add adds a path with what became of it.
func (l *List) Add(path, reason string) {
	room := listMax
	if reason == ReasonExcluded {
		l.Excluded++
		room /= 2
	}
	if l.Total++; len(l.Paths) < room {
		l.Paths = append(l.Paths, PathReason{path, reason})
	}
}

// AddAll adds what another list holds.
func (l *List) AddAll(o List) {
	total, excluded := l.Total+o.Total, l.Excluded+o.Excluded
	for _, p := range o.Paths {
		l.Add(p.Path, p.Reason)
	}
	l.Total, l.Excluded = total, excluded
}

// sort orders what is kept by path.
func (l *List) sort() {
	slices.SortFunc(l.Paths, func(a, b PathReason) int { return strings.Compare(a.Path, b.Path) })
}

// ErrInvalid is matched by errors about options.
var ErrInvalid = errors.New("invalid option")

// RefusedError lists every path for which a capture was refused.
type RefusedError struct{ List List }

// Excludes returns a pattern for each path that leaves it out.
func (e *RefusedError) Excludes() []string {
	var all []string
	for _, p := range e.List.Paths {
		_, rel, _ := strings.Cut(p.Path, "/")
		all = append(all, ignore.Quote(rel))
	}
	return all
}

// Error names the paths and how to leave them out.
func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d paths cannot be captured", e.List.Total)
	for i, p := range e.List.Paths {
		if i == 20 {
			fmt.Fprintf(&b, "; and %d more", e.List.Total-i)
			break
		}
		fmt.Fprintf(&b, "; %q: %s", p.Path, p.Reason)
	}
	b.WriteString("; leave them out with:")
	for i, x := range e.Excludes() {
		if i == 20 {
			break
		}
		b.WriteString(" --exclude '" + strings.ReplaceAll(x, "'", `'\''`) + "'")
	}
	return b.String()
}

// checkRoots reports whether roots can be walked: named as entries are, apart
// from each other, and with none of keep beneath them.
func checkRoots(roots []Root, keep ...string) error {
	if len(roots) == 0 || len(roots) > tree.MaxRoots {
		return fmt.Errorf("%w: %d roots, want 1 to %d", ErrInvalid, len(roots), tree.MaxRoots)
	}
	for i, r := range roots {
		if err := tree.CheckName(r.Name); err != nil {
			return fmt.Errorf("%w: the name of root %q: %w", ErrInvalid, r.Path, err)
		}
		for _, o := range roots[:i] {
			if o.Name == r.Name || beneath(o.Path, r.Path) || beneath(r.Path, o.Path) {
				return fmt.Errorf("%w: roots %q and %q have one name or lie within each other", ErrInvalid, o.Path, r.Path)
			}
		}
		for _, k := range keep {
			if k != "" && beneath(r.Path, k) {
				return fmt.Errorf("%w: %q lies in the root %q; keep it elsewhere", ErrInvalid, k, r.Path)
			}
		}
	}
	return nil
}

// beneath reports whether path is dir or lies in it. Both are clean and absolute.
func beneath(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/tree"
)

// Statuses of the listing script.
const (
	statusMissing = 44
	statusNoDir   = 45
)

// listScript lists a directory: its real path and the time, then three strings for each entry, all ended by NUL. Where find
// prints no details, stat does for each file.
const listScript = `LC_ALL=C TZ=UTC; export LC_ALL TZ
[ -e %[1]s ] || [ -L %[1]s ] || exit 44
[ -d %[1]s ] && cd %[1]s || exit 45
printf '%%s\0%%s\0' "$(pwd -P)" "$(date +%%s)"
if find . -maxdepth 0 -printf '' 2>/dev/null; then
	exec find . -printf '%%y %%m %%s %%U %%G %%D %%i %%n %%T@ %%C@\0./%%P\0%%l\0'
fi
find . -exec sh -c 'for f do
	s=$(stat -c "%%f %%s %%u %%g %%d %%i %%h %%Y %%y / %%Z %%z" "$f") || exit
	printf "s %%s\0%%s\0" "$s" "$f"
	if [ -L "$f" ]; then readlink -n "$f" || exit; fi
	printf "\0"
done' sh {} +`

// maxField bounds one string of a listing.
const maxField = 1 << 20

// node is a file, directory or link of a sandbox.
type node struct {
	tree.Entry        // as far as a listing tells: no contents
	path       string // beneath the root, "" for the root
	inode      string // device and number
	links      int
	ctime      tree.Time
	special    bool
	kids       []*node // by name

	keep bool // it is captured
}

// listing is a directory of a sandbox with everything beneath it.
type listing struct {
	root  *node
	real  string // its path without links
	now   int64  // seconds, by the clock of the sandbox
	nodes map[string]*node
}

// list reads a directory. It returns nil if there is none.
func (s *shell) list(ctx context.Context, dir string) (*listing, error) {
	for try := 1; ; try++ {
		l := &listing{nodes: map[string]*node{}}
		err := s.run(ctx, fmt.Sprintf(listScript, quoted(dir)), nil, l.read)
		status, ok := errors.AsType[*statusError](err)
		switch {
		case err == nil && l.root == nil:
			return nil, errorf(ErrInvalidWorkspace, "the listing of %q is empty", dir)
		case err == nil:
			for _, n := range l.nodes {
				slices.SortFunc(n.kids, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
			}
			return l, nil
		case ok && status.status == statusMissing:
			return nil, nil
		case ok && status.status == statusNoDir:
			return nil, errorf(ErrInvalidWorkspace, "%q is no directory that can be entered", dir)
		case !ok || try == attempts: // something may have gone while it was listed
			return nil, fmt.Errorf("list %q: %w", dir, err)
		}
	}
}

func (l *listing) read(r io.Reader) error {
	fields := bufio.NewReaderSize(r, 64<<10)
	real, err := field(fields)
	if err != nil {
		return notList(err)
	}
	now, err := field(fields)
	if err != nil {
		return notList(err)
	}
	l.real = real
	if l.now, err = strconv.ParseInt(now, 10, 64); err != nil {
		return notList(err)
	}
	for {
		facts, err := field(fields)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var name, target string
		if err == nil {
			name, err = field(fields)
		}
		if err == nil {
			target, err = field(fields)
		}
		if err == nil {
			err = l.add(facts, name, target)
		}
		if err != nil {
			return notList(err)
		}
	}
}

func notList(err error) error {
	return errorf(ErrInvalidWorkspace, "the listing of the sandbox cannot be read: %v", err)
}

// field reads up to the next NUL.
func field(r *bufio.Reader) (string, error) {
	var b []byte
	for {
		part, err := r.ReadSlice(0)
		if b = append(b, part...); len(b) > maxField {
			return "", errors.New("a field is too long")
		}
		switch {
		case err == nil:
			return string(b[:len(b)-1]), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(b) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// add takes one entry, whose parent was added before.
func (l *listing) add(facts, name, target string) error {
	n := &node{path: strings.TrimPrefix(strings.TrimPrefix(name, "."), "/")}
	n.Name = path.Base(n.path)
	if err := n.facts(facts); err != nil {
		return fmt.Errorf("%q: %w", facts, err)
	}
	n.special = n.Type == 0
	if n.Type == tree.Symlink {
		n.Target = target
	}
	l.nodes[n.path] = n
	if n.path == "" {
		l.root = n
		return nil
	}
	if n.Name == "." || n.Name == ".." || path.Clean(n.path) != n.path {
		return fmt.Errorf("the path %q", n.path)
	}
	up := parentOf(n.path)
	parent := l.nodes[up]
	if parent == nil {
		return fmt.Errorf("%q comes before its directory", n.path)
	}
	parent.kids = append(parent.kids, n)
	return nil
}

// facts reads what find or stat says of an entry.
func (n *node) facts(text string) error {
	f := strings.Fields(text)
	byStat := len(f) > 0 && f[0] == "s"
	if byStat && len(f) < 13 || !byStat && len(f) != 10 {
		return errors.New("other fields than were asked for")
	}
	var errs []error
	number := func(s string, base, bits int) uint64 {
		v, err := strconv.ParseUint(s, base, bits)
		errs = append(errs, err)
		return v
	}
	size := uint64(0)
	if byStat {
		mode := number(f[1], 16, 32)
		n.Mode = uint16(mode & 0o7777)
		n.Type = map[uint64]tree.Type{0o100000: tree.File, 0o040000: tree.Directory, 0o120000: tree.Symlink}[mode&0o170000]
		size = number(f[2], 10, 63)
		n.UID, n.GID = uint32(number(f[3], 10, 32)), uint32(number(f[4], 10, 32))
		n.inode, n.links = f[5]+":"+f[6], int(number(f[7], 10, 32))
		mtime, ctime, ok := strings.Cut(strings.Join(f[8:], " "), " / ")
		if !ok {
			return errors.New("no times")
		}
		errs = append(errs, statTime(&n.Mtime, mtime), statTime(&n.ctime, ctime))
	} else {
		n.Type = map[string]tree.Type{"f": tree.File, "d": tree.Directory, "l": tree.Symlink}[f[0]]
		n.Mode = uint16(number(f[1], 8, 12))
		size = number(f[2], 10, 63)
		n.UID, n.GID = uint32(number(f[3], 10, 32)), uint32(number(f[4], 10, 32))
		n.inode, n.links = f[5]+":"+f[6], int(number(f[7], 10, 32))
		errs = append(errs, findTime(&n.Mtime, f[8]), findTime(&n.ctime, f[9]))
	}
	if n.Type == tree.Symlink {
		n.Mode = 0o777
	}
	if n.Type == tree.File {
		n.Content.Size = size
	}
	return errors.Join(errs...)
}

// findTime reads seconds with a fraction.
func findTime(t *tree.Time, text string) (err error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if t.Sec, err = strconv.ParseInt(whole, 10, 64); err != nil {
		return err
	}
	if t.Nsec, err = nanos(fraction); err == nil && strings.HasPrefix(text, "-") && t.Nsec > 0 {
		t.Sec, t.Nsec = t.Sec-1, 1_000_000_000-t.Nsec
	}
	return err
}

// statTime reads seconds, and the fraction from the same time as people read it.
func statTime(t *tree.Time, text string) (err error) {
	seconds, long, _ := strings.Cut(text, " ")
	if t.Sec, err = strconv.ParseInt(seconds, 10, 64); err != nil {
		return err
	}
	_, fraction, _ := strings.Cut(long, ".")
	fraction, _, _ = strings.Cut(fraction, " ")
	t.Nsec, err = nanos(fraction)
	return err
}

func nanos(fraction string) (uint32, error) {
	n, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
	return uint32(n), err
}

package workspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// stat is what the file system says of a file without following links.
type stat = unix.Stat_t

func again[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// openDir opens a directory that is no link. An empty name is parent itself.
func openDir(parent int, name string) (int, error) {
	return again(func() (int, error) {
		return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// maxLevel is how many directories are held open within each other.
const maxLevel = 64

// errMoved reports a directory that is not any more where it was.
var errMoved = errors.New("a directory was moved while it was walked")

// without runs fn while the directory dir is closed, and opens it again as the
// parent of child, which lies in it and stays open.
func without(dir, child *int, fn func() error) error {
	was, err := fstat(*dir)
	if err != nil {
		return err
	}
	unix.Close(*dir)
	*dir = -1
	if err := fn(); err != nil {
		return err
	}
	if *dir, err = openDir(*child, ".."); err != nil {
		return err
	}
	st, err := fstat(*dir)
	if err == nil && (st.Dev != was.Dev || st.Ino != was.Ino) {
		err = errMoved
	}
	return err
}

// eachName calls fn with the names in the directory that is open at dir and lies in
// parent, level directories down. So deep that too many would be open, parent is
// closed meanwhile.
func eachName(parent, dir *int, level int, fn func(name string) error) error {
	all := func() error {
		names, err := list(*dir)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := fn(n); err != nil {
				return err
			}
		}
		return nil
	}
	if level < maxLevel {
		return all()
	}
	return without(parent, dir, all)
}

// openFile opens a file for reading that is no link. A fifo does not block it.
func openFile(parent int, name string) (int, error) {
	return again(func() (int, error) {
		return unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	})
}

func lstat(parent int, name string) (st stat, err error) {
	_, err = again(func() (int, error) { return 0, unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func fstat(fd int) (st stat, err error) {
	_, err = again(func() (int, error) { return 0, unix.Fstat(fd, &st) })
	return st, err
}

func readlink(parent int, name string) (string, error) {
	buf := make([]byte, tree.MaxTarget+2)
	n, err := again(func() (int, error) { return unix.Readlinkat(parent, name, buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

var direntBufs = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// list returns the names in the directory fd in order of their bytes.
func list(fd int) ([]string, error) {
	buf := direntBufs.Get().(*[]byte)
	defer direntBufs.Put(buf)
	var names []string
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		return nil, err
	}
	for {
		n, err := again(func() (int, error) { return unix.ReadDirent(fd, *buf) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		const nameAt = int(unsafe.Offsetof(unix.Dirent{}.Name))
		for b := (*buf)[:n]; len(b) > nameAt; {
			size := int(binary.NativeEndian.Uint16(b[unsafe.Offsetof(unix.Dirent{}.Reclen):]))
			if size < nameAt || size > len(b) {
				return nil, unix.EIO
			}
			name := b[nameAt:size]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if s := string(name); s != "." && s != ".." {
				names = append(names, s)
			}
			b = b[size:]
		}
	}
	slices.Sort(names)
	return names, nil
}

// xattrs returns the attributes of the user namespace of fd by name.
func xattrs(fd int) ([]tree.Xattr, error) {
	var small [256]byte
	n, err := unix.Flistxattr(fd, small[:])
	names := small[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		names = make([]byte, 64<<10)
		n, err = unix.Flistxattr(fd, names)
		names = names[:max(n, 0)]
	}
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var xs []tree.Xattr
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		buf := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, buf)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		xs = append(xs, tree.Xattr{Name: name, Value: string(buf[:n])})
	}
	slices.SortFunc(xs, func(a, b tree.Xattr) int { return strings.Compare(a.Name, b.Name) })
	return xs, nil
}

// holes returns where the file fd of a size has no data, holes of at least a
// page; of too many the largest.
func holes(fd int, size int64) ([]tree.Range, error) {
	var hs []tree.Range
	for at := int64(0); at < size; {
		hole, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		if hole >= size {
			break
		}
		data, err := unix.Seek(fd, hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = size, nil
		}
		if err != nil {
			return nil, err
		}
		if at = min(data, size); at-hole >= 4096 {
			hs = append(hs, tree.Range{Offset: uint64(hole), Length: uint64(at - hole)})
		}
	}
	if len(hs) > tree.MaxHoles {
		slices.SortFunc(hs, func(a, b tree.Range) int { return int(int64(b.Length) - int64(a.Length)) })
		hs = hs[:tree.MaxHoles]
		slices.SortFunc(hs, func(a, b tree.Range) int { return int(int64(a.Offset) - int64(b.Offset)) })
	}
	return hs, nil
}

// fileReader reads a file from its beginning, whatever else moves its position.
type fileReader struct {
	fd int
	at int64
}

// Read fills p.
func (r *fileReader) Read(p []byte) (int, error) {
	n, err := again(func() (int, error) { return unix.Pread(r.fd, p, r.at) })
	if err != nil {
		return 0, err
	}
	r.at += int64(n)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func mtimeOf(st *stat) tree.Time { return tree.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)} }
func ctimeOf(st *stat) tree.Time { return tree.Time{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)} }

// same reports whether two stats are of a file that was not touched in between.
func same(a, b *stat) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Mode == b.Mode && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// typeOf returns the type of a file, 0 for one that no tree holds.
func typeOf(st *stat) tree.Type {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return tree.File
	case unix.S_IFDIR:
		return tree.Directory
	case unix.S_IFLNK:
		return tree.Symlink
	}
	return 0
}

// entryOf returns an entry with what st says.
func entryOf(name string, st *stat) tree.Entry {
	return tree.Entry{Name: name, Type: typeOf(st), Mode: uint16(st.Mode & 0o7777), Mtime: mtimeOf(st), UID: st.Uid, GID: st.Gid}
}

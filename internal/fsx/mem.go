package fsx

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"time"
)

// Mem is an FS in memory that knows what has been synced, so that CrashClone
// can show what a loss of power would leave.
type Mem struct {
	mu   sync.Mutex
	root *memNode
}

var _ FS = (*Mem)(nil)

// memNode is a file (dir is nil) or a directory.
type memNode struct {
	data    []byte
	modTime time.Time
	// durable is data as it was synced; unsynced is what happened to it since.
	durable  []byte
	unsynced []memWrite

	dir       map[string]*memNode
	syncedDir map[string]*memNode
}

func newMemDir() *memNode {
	return &memNode{dir: map[string]*memNode{}, syncedDir: map[string]*memNode{}, modTime: time.Now()}
}

// NewMem returns an empty Mem.
func NewMem() *Mem { return &Mem{root: newMemDir()} }

// CrashClone returns the file system as it could be after a loss of power now:
// what was synced is there; unsynced directory entries are as before or as after
// by rng's choice, and unsynced bytes are cut off, torn or kept. A nil rng
// chooses the loss of all that was not synced. The Mem itself is untouched.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: m.root.crash(rng, map[*memNode]*memNode{})}
}

// crash clones n; seen keeps hard links together.
func (n *memNode) crash(rng *rand.Rand, seen map[*memNode]*memNode) *memNode {
	if c := seen[n]; c != nil {
		return c
	}
	c := &memNode{modTime: n.modTime}
	seen[n] = c
	if n.dir == nil {
		c.durable = n.crashData(rng)
		c.data = slices.Clone(c.durable)
		return c
	}
	names := maps.Clone(n.syncedDir)
	maps.Copy(names, n.dir)
	c.dir = map[string]*memNode{}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted: one seed, one result
		entry := n.syncedDir[name]
		if now := n.dir[name]; now != entry && rng != nil && rng.IntN(2) == 0 {
			entry = now
		}
		if entry != nil {
			c.dir[name] = entry.crash(rng, seen)
		}
	}
	c.syncedDir = maps.Clone(c.dir)
	return c
}

// lookup returns the node of a name. The caller holds mu.
func (m *Mem) lookup(op, name string) (*memNode, error) {
	if err := invalid(op, name); err != nil {
		return nil, err
	}
	node := m.root
	if name == "." {
		return node, nil
	}
	dir, base := path.Split(name)
	if dir != "" {
		parent, err := m.lookup(op, path.Clean(dir))
		if err != nil {
			return nil, err
		}
		node = parent
	}
	child := node.dir[base]
	if child == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return child, nil
}

// parent returns the directory that holds or would hold a name. The caller
// holds mu.
func (m *Mem) parent(op, name string) (dir *memNode, base string, err error) {
	if err := invalid(op, name); err != nil {
		return nil, "", err
	}
	dir, err = m.lookup(op, path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	if dir.dir == nil || name == "." {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return dir, path.Base(name), nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.dir[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	node := &memNode{modTime: time.Now()}
	dir.dir[base] = node
	return &memFile{mem: m, node: node, name: name, writable: true}, nil
}

// Edit implements FS.
func (m *Mem) Edit(name string) (RandomFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("edit", name)
	if err != nil {
		return nil, err
	}
	node := dir.dir[base]
	if node == nil {
		node = &memNode{modTime: time.Now()}
		dir.dir[base] = node
	}
	if node.dir != nil {
		return nil, &fs.PathError{Op: "edit", Path: name, Err: fs.ErrInvalid}
	}
	return &memFile{mem: m, node: node, name: name, writable: true}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if node.dir != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return &memFile{mem: m, node: node, name: name}, nil
}

// Link implements FS.
func (m *Mem) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("link", oldname)
	if err != nil {
		return err
	}
	dir, base, err := m.parent("link", newname)
	if err != nil {
		return err
	}
	if dir.dir[base] != nil {
		return &fs.PathError{Op: "link", Path: newname, Err: fs.ErrExist}
	}
	dir.dir[base] = node
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("rename", oldname)
	if err != nil {
		return err
	}
	from, oldbase, err := m.parent("rename", oldname)
	if err != nil {
		return err
	}
	to, newbase, err := m.parent("rename", newname)
	if err != nil {
		return err
	}
	if target := to.dir[newbase]; target != nil && (target.dir != nil || node.dir != nil) {
		return &fs.PathError{Op: "rename", Path: newname, Err: fs.ErrExist}
	}
	delete(from.dir, oldbase)
	to.dir[newbase] = node
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("remove", name)
	if err != nil {
		return err
	}
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	if len(node.dir) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrExist}
	}
	delete(dir.dir, base)
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mkdirAll(name)
}

func (m *Mem) mkdirAll(name string) error {
	if err := invalid("mkdir", name); err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	if err := m.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	dir, base, err := m.parent("mkdir", name)
	if err != nil {
		return err
	}
	if node := dir.dir[base]; node == nil {
		dir.dir[base] = newMemDir()
	} else if node.dir == nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("readdir", name)
	if err != nil {
		return nil, err
	}
	if node.dir == nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	var entries []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(node.dir)) {
		entries = append(entries, fs.FileInfoToDirEntry(node.dir[base].info(base)))
	}
	return entries, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("stat", name)
	if err != nil {
		return nil, err
	}
	return node.info(path.Base(name)), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, err := m.lookup("syncdir", name)
	if err != nil {
		return err
	}
	if node.dir == nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: fs.ErrInvalid}
	}
	node.syncedDir = maps.Clone(node.dir)
	return nil
}

func (n *memNode) info(name string) memInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir != nil, modTime: n.modTime}
}

type memInfo struct {
	name    string
	size    int64
	dir     bool
	modTime time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.modTime }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

type memFile struct {
	mem      *Mem
	node     *memNode
	name     string
	writable bool
	offset   int64
	closed   bool
}

// use locks the file system for one operation, or fails when f is closed.
func (f *memFile) use(op string) (unlock func(), err error) {
	f.mem.mu.Lock()
	if f.closed {
		f.mem.mu.Unlock()
		return nil, &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return f.mem.mu.Unlock, nil
}

func (f *memFile) readAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	return copy(p, f.node.data[off:]), nil
}

func (f *memFile) Read(p []byte) (int, error) {
	unlock, err := f.use("read")
	if err != nil {
		return 0, err
	}
	defer unlock()
	n, err := f.readAt(p, f.offset)
	f.offset += int64(n)
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	unlock, err := f.use("read")
	if err != nil {
		return 0, err
	}
	defer unlock()
	n, err := f.readAt(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Write appends, whatever was read.
func (f *memFile) Write(p []byte) (int, error) {
	unlock, err := f.change("write")
	if err != nil {
		return 0, err
	}
	defer unlock()
	f.node.write(int64(len(f.node.data)), p)
	return len(p), nil
}

// WriteAt implements io.WriterAt.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	unlock, err := f.change("write")
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	f.node.write(off, p)
	return len(p), nil
}

// Truncate implements RandomFile.
func (f *memFile) Truncate(size int64) error {
	unlock, err := f.change("truncate")
	if err != nil {
		return err
	}
	defer unlock()
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fs.ErrInvalid}
	}
	f.node.resize(size)
	return nil
}

// change is use for an operation that changes the file.
func (f *memFile) change(op string) (unlock func(), err error) {
	if unlock, err = f.use(op); err != nil {
		return nil, err
	}
	if !f.writable {
		unlock()
		return nil, &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	return unlock, nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	unlock, err := f.use("stat")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return f.node.info(path.Base(f.name)), nil
}

func (f *memFile) Sync() error {
	unlock, err := f.use("sync")
	if err != nil {
		return err
	}
	defer unlock()
	f.node.sync()
	return nil
}

func (f *memFile) Close() error {
	unlock, err := f.use("close")
	if err != nil {
		return err
	}
	defer unlock()
	f.closed = true
	return nil
}

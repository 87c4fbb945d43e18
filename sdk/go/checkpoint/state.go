package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// memory is what is remembered of one root, outside of it: which checkpoint of a thread its files came from.
type memory struct {
	Version int    `json:"version"`
	Store   string `json:"store"`
	Thread  string `json:"thread"`
	Root    string `json:"root"` // its path
	Head    string `json:"head"` // the checkpoint that the files came from; "" for none
	// Pending are ids of checkpoints that were sent and not answered: the head may be one of them, and is ours then.
	Pending []string `json:"pending,omitempty"`
	// Restoring is the checkpoint that is being restored: until that is done the files are a mixture.
	Restoring string `json:"restoring,omitempty"`
}

const memoryVersion = 1

// maxPending bounds how many appends without an answer are remembered.
const maxPending = 16

// stateDir returns a directory of the user's own that lies in none of roots, or "" where none can be had: then what is
// remembered is forgotten when the process ends.
func stateDir(given string, roots []Root) (string, error) {
	own := "cairn-state-" + strconv.Itoa(os.Getuid())
	for _, dir := range []string{given, userStateDir(), filepath.Join(os.TempDir(), own), filepath.Join("/dev/shm", own), filepath.Join("/var/tmp", own)} {
		if dir == "" || !filepath.IsAbs(dir) && given == "" {
			continue
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if within(roots, resolve(dir)) {
			if given != "" {
				return "", errorf(ErrInvalid, "the state directory %q lies in a root; choose another", given)
			}
			continue
		}
		if err := private(dir); err == nil || given != "" {
			return dir, err
		}
	}
	return "", nil
}

// userStateDir is where programs of this user keep what they remember.
func userStateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cairn")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "cairn")
	}
	return ""
}

// within reports whether path lies in one of roots.
func within(roots []Root, path string) bool {
	return slices.ContainsFunc(roots, func(r Root) bool {
		dir := strings.TrimSuffix(resolve(r.Path), "/")
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}

// resolve follows the links of as much of path as exists.
func resolve(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	rest := ""
	for at := path; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(at)
		if up == at {
			return path
		}
		rest, at = filepath.Join(filepath.Base(at), rest), up
	}
}

// private makes a directory that only this user can read, or checks that it is one.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys := unix.Stat_t{}
	if err := unix.Lstat(dir, &sys); err != nil {
		return err
	}
	if !st.IsDir() || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return errorf(ErrInvalid, "the state directory %q is not this user's alone", dir)
	}
	return nil
}

// state is what is remembered of some roots and one thread.
type state struct {
	dir    string // "" where there is none
	store  string
	thread string
	handle string // of roots that are not on this machine
	roots  []Root
	locks  []*os.File
	mem    []memory // of each root
	known  []bool   // whether it was remembered
}

// openState loads what is remembered and, until it is closed, keeps others out: use says what for.
// handle is the id of the sandbox that they are in, "" for this machine.
func openState(given, store, thread, handle string, roots []Root, use use) (*state, error) {
	local := roots
	if handle != "" {
		local = nil
	}
	dir, err := stateDir(given, local)
	if err != nil {
		return nil, err
	}
	s := &state{dir: dir, store: store, thread: thread, handle: handle, roots: slices.Clone(roots)}
	slices.SortFunc(s.roots, func(a, b Root) int { return strings.Compare(s.place(a.Path), s.place(b.Path)) })
	for _, r := range s.roots {
		err := s.lock(r, use)
		if err == nil {
			err = s.load(r)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// place says where a root is, whatever links lead to it.
func (s *state) place(path string) string {
	if s.handle != "" {
		return s.handle + ":" + filepath.Clean(path)
	}
	return resolve(path)
}

// path returns a file of the state that belongs to parts.
func (s *state) path(suffix string, parts ...string) string {
	h := sha256.New()
	for _, p := range append([]string{s.store, s.thread}, parts...) {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return filepath.Join(s.dir, hex.EncodeToString(h.Sum(nil)[:16])+suffix)
}

// load reads what is remembered of a root.
func (s *state) load(r Root) error {
	real := s.place(r.Path)
	m := memory{Version: memoryVersion, Store: s.store, Thread: s.thread, Root: real}
	b, err := s.read(s.path(".json", real))
	known := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the state of root %q: %w", r.Path, err)
	default:
		var got memory
		if err := json.Unmarshal(b, &got); err != nil || got.Version != memoryVersion || got.Store != s.store || got.Thread != s.thread || got.Root != real {
			return errorf(ErrInvalid, "the state of root %q in %q is not what a version of this program writes; remove %q", r.Path, s.dir, s.path(".json", real))
		}
		m = got
	}
	s.mem, s.known = append(s.mem, m), append(s.known, known)
	return nil
}

// forgetful keeps what is remembered of roots while no directory can: by path, as files of the state directory.
var forgetful sync.Map

func (s *state) read(path string) ([]byte, error) {
	if s.dir != "" {
		return os.ReadFile(path)
	}
	if b, ok := forgetful.Load(path); ok {
		return b.([]byte), nil
	}
	return nil, fs.ErrNotExist
}

func (s *state) write(path string, b []byte) error {
	if s.dir != "" {
		return writeFile(path, b)
	}
	forgetful.Store(path, b)
	return nil
}

func (s *state) remove(path string) error {
	if s.dir != "" {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	forgetful.Delete(path)
	return nil
}

// cache is where the stat cache of these roots together is, "" for none.
func (s *state) cache() string {
	if s.dir == "" {
		return ""
	}
	var parts []string
	for _, r := range s.roots {
		parts = append(parts, r.Name, s.place(r.Path))
	}
	return s.path(".stat", parts...)
}

// remembered reports whether the thread ever captured or restored one of the roots.
func (s *state) remembered(path string) bool {
	for i, m := range s.mem {
		if s.known[i] && m.Root == s.place(path) {
			return true
		}
	}
	return false
}

// head returns the checkpoint that the files came from, "" for none. Roots that are new follow those that are known.
func (s *state) head() (string, error) {
	head, found := "", ""
	for i, m := range s.mem {
		switch {
		case !s.known[i]:
		case m.Restoring != "":
			return "", errorf(ErrIncomplete, "a restore of %q into %q was interrupted; run it again before a capture, or capture onto a head on purpose", m.Restoring, m.Root)
		case found != "" && m.Head != head:
			return "", errorf(ErrHeadConflict, "%q came from %q and %q from %q; restore both, or capture onto a head on purpose", found, head, m.Root, m.Head)
		default:
			head, found = m.Head, m.Root
		}
	}
	return head, nil
}

// pending returns the ids that were sent and not answered.
func (s *state) pending() (ids []string) {
	for _, m := range s.mem {
		ids = append(ids, m.Pending...)
	}
	return ids
}

// update changes what is remembered of each root, durably.
func (s *state) update(change func(m *memory)) error {
	for i := range s.mem {
		change(&s.mem[i])
		b, err := json.Marshal(s.mem[i])
		if err != nil {
			return err
		}
		if err := s.write(s.path(".json", s.mem[i].Root), b); err != nil {
			return fmt.Errorf("remember where %q came from: %w", s.mem[i].Root, err)
		}
		s.known[i] = true
	}
	return nil
}

// reset makes what is remembered what it was.
func (s *state) reset(mem []memory, known []bool) error {
	var errs []error
	for i, m := range mem {
		s.mem[i], s.known[i] = m, known[i]
		path := s.path(".json", m.Root)
		if known[i] {
			b, err := json.Marshal(m)
			errs = append(errs, err, s.write(path, b))
		} else {
			errs = append(errs, s.remove(path))
		}
	}
	return errors.Join(errs...)
}

// writeFile replaces a file whole: after a crash it is the old or the new one.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// TestHostileDepth nests directories with long names until no path is short
// enough for the file system, and deeper than a tree may be.
func TestHostileDepth(t *testing.T) {
	dir, m := t.TempDir(), &tree.Memory{}
	fd, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		name := strings.Repeat(string(rune('a'+i%26)), tree.MaxName)
		err := unix.Mkdirat(fd, name, 0o755)
		next, openErr := openDir(fd, name)
		unix.Close(fd)
		if err := errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := errors.Join(unix.Symlinkat("nowhere", fd, "link"), unix.Mkdirat(fd, "empty", 0o711)); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	o := options(dir)
	o.Cache = filepath.Join(t.TempDir(), "cache")
	root := capture(t, o, m).Root
	to := filepath.Join(t.TempDir(), "to")
	restored(t, to, m, root, func(o *RestoreOptions) { o.Cache = filepath.Join(t.TempDir(), "cache") })
	if again := capture(t, options(to), m).Root; again != root {
		t.Error("paths of 10,000 bytes do not come back as they were")
	}

	deep := t.TempDir()
	path := deep
	for range 1900 {
		path += "/d"
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	root = capture(t, options(deep), m).Root
	to = filepath.Join(t.TempDir(), "deep")
	restored(t, to, m, root, nil)
	if again := capture(t, options(to), m).Root; again != root {
		t.Error("1,900 directories within each other do not come back as they were")
	}
	if err := os.Chdir(path); err != nil {
		t.Fatal(err)
	}
	defer os.Chdir("/")
	if err := os.MkdirAll(strings.Repeat("e/", 200), 0o755); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := Scan(t.Context(), options(deep), m); !errors.As(err, &refused) || refused.List.Paths[0].Reason != ReasonDepth {
		t.Errorf("2,100 directories within each other: %v", err)
	}
}

// sizes counts the bytes that are put.
type sizes struct {
	tree.Memory
	bytes atomic.Int64
}

func (s *sizes) Put(ctx context.Context, o tree.Object) error {
	s.bytes.Add(int64(len(o.Bytes)))
	return s.Memory.Put(ctx, o)
}

// TestRandomLargeFileCostsWhatChanged captures a file of 1 GiB in its long form,
// inserts some bytes, and restores both.
func TestRandomLargeFileCostsWhatChanged(t *testing.T) {
	size := 32 << 20
	if testkit.Soaking() {
		size = 1 << 30
	}
	random := rand.NewChaCha8([32]byte{byte(testkit.Seed(t))})
	dir := t.TempDir()
	b := make([]byte, size)
	_, _ = random.Read(b)
	write(t, dir+"/large", string(b))
	first := &sizes{}
	old := capture(t, options(dir), first)
	fresh := &sizes{}
	b = slices.Insert(b, size/2, []byte("in the middle")...)
	if err := os.WriteFile(dir+"/large", b, 0o600); err != nil {
		t.Fatal(err)
	}
	res := capture(t, options(dir), fresh)
	known := map[tree.Digest]bool{}
	first.Each(func(d tree.Digest, _ []byte) { known[d] = true })
	added := 0
	fresh.Each(func(d tree.Digest, b []byte) {
		if !known[d] {
			added += len(b)
		}
		if err := first.Put(t.Context(), tree.Object{Digest: d, Bytes: b}); err != nil {
			t.Error(err)
		}
	})
	if added > 3*4<<20 {
		t.Errorf("13 bytes inserted into %d added %d bytes", size, added)
	}
	to := filepath.Join(t.TempDir(), "to")
	for _, root := range []tree.Digest{old.Root, res.Root} {
		restored(t, to, first, root, nil)
		got, err := os.ReadFile(to + "/large")
		if err != nil {
			t.Fatal(err)
		}
		if root == old.Root {
			got = slices.Insert(got, size/2, []byte("in the middle")...)
		}
		if !bytes.Equal(got, b) {
			t.Fatal("the file is another one")
		}
	}
}

// TestEveryByteInNames has a name of each byte that a name may have, alone, at the
// beginning and at the end of others.
func TestEveryByteInNames(t *testing.T) {
	dir, m := t.TempDir(), &tree.Memory{}
	for c := 1; c < 256; c++ {
		if c == '/' {
			continue
		}
		s := string([]byte{byte(c)})
		for i, name := range []string{s, s + "end", "begin" + s, s + s + s} {
			if name == "." || name == ".." {
				continue
			}
			path := dir + "/" + name
			var err error
			switch i {
			case 0:
				err = os.Mkdir(path, 0o750)
			case 1:
				err = os.Symlink(s, path)
			default:
				err = os.WriteFile(path, []byte(name), 0o640)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	o := options(dir)
	o.Links = KeepOutside
	root := capture(t, o, m).Root
	to := filepath.Join(t.TempDir(), "to")
	restored(t, to, m, root, nil)
	compare(t, "restored", snapshot(t, to), snapshot(t, dir))
}

const userEnv = "CAIRN_TEST_AS_USER"

// TestWithoutPrivileges runs TestAsUser as a user that is not root.
func TestWithoutPrivileges(t *testing.T) {
	if os.Getuid() != 0 {
		asUser(t, t.TempDir())
		return
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "cairn-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	binary := dir + "/test"
	if err := errors.Join(os.WriteFile(binary, self, 0o755), os.Chmod(binary, 0o755), os.Mkdir(dir+"/w", 0o755), os.Chown(dir+"/w", nobody, nobody), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run", "^TestAsUser$", "-test.v")
	cmd.Dir = dir + "/w"
	cmd.Env = append(os.Environ(), userEnv+"="+dir+"/w", "TMPDIR="+dir+"/w", "HOME="+dir+"/w")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAsUser") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// TestAsUser is the other half of TestWithoutPrivileges.
func TestAsUser(t *testing.T) {
	if dir := os.Getenv(userEnv); dir != "" {
		asUser(t, dir)
	}
}

func asUser(t *testing.T, base string) {
	a, to, m := base+"/a", base+"/to", &tree.Memory{}
	for i := range 6 {
		write(t, fmt.Sprintf("%s/d%d/e/f", a, i), fmt.Sprint(i))
	}
	modes := func(dir string, ms ...os.FileMode) {
		t.Helper()
		for i, mode := range ms {
			if err := os.Chmod(fmt.Sprintf("%s/d%d/e", dir, i), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	modes(a, 0o555, 0o500, 0o700)
	if err := errors.Join(os.Chmod(a+"/d3/e/f", 0o400), os.Chmod(a+"/d4", 0o555), os.Chmod(a+"/d5/e/f", 0o666)); err != nil {
		t.Fatal(err)
	}
	root := capture(t, options(a), m).Root
	want := snapshot(t, a)
	cached := func(o *RestoreOptions) { o.Cache = base + "/cache" }
	out := restored(t, to, m, root, cached)
	compare(t, "restored", snapshot(t, to), want)
	if out.LeftOut.Total > 0 {
		t.Errorf("left out %+v", out.LeftOut)
	}
	modes(to, 0o700, 0o700, 0o700)
	for i := range 6 {
		if err := os.Remove(fmt.Sprintf("%s/d%d/e/f", to, i)); err != nil && i != 4 {
			t.Fatal(err)
		}
		write(t, fmt.Sprintf("%s/d%d/e/other/f", to, i), "other")
	}
	modes(to, 0o500, 0o555)
	restored(t, to, m, root, cached)
	compare(t, "restored over what may not be written", snapshot(t, to), want)

	if err := os.Chmod(a+"/d5/e/f", 0); err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := Scan(t.Context(), options(a), m); !errors.As(err, &refused) || refused.List.Paths[0] != (PathReason{"r/d5/e/f", ReasonUnreadable}) {
		t.Errorf("a file that may not be read: %v", err)
	}

	// What another owner had is restored as one's own, and said to be.
	text := []byte("theirs")
	e := tree.Entry{Name: "f", Type: tree.File, Mode: 0o644, UID: 12345, GID: 12345, Content: tree.Content{Size: 6, Digest: tree.Sum(text), Sum: tree.Sum(text)}}
	theirs := bad(t, m, options(a).Policy, e)
	if err := m.Put(t.Context(), tree.Object{Kind: tree.Chunk, Digest: tree.Sum(text), Bytes: text}); err != nil {
		t.Fatal(err)
	}
	out = restored(t, base+"/theirs", m, theirs, nil)
	if !slices.Contains(out.LeftOut.Paths, PathReason{"r/f", ReasonOwner}) {
		t.Errorf("left out %+v", out.LeftOut)
	}
	if _, err := os.Stat(base + "/theirs/f"); errors.Is(err, fs.ErrNotExist) {
		t.Error("what another owner had was not restored")
	}
}

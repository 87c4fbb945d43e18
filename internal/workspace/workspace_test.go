package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
	"golang.org/x/sys/unix"
)

// snapshot is everything that a tree is to have in common with its restored
// form: one line for each path, relative to dir.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names := map[inode][]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, dir)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%o %d.%09d %d:%d", st.Mode, st.Mtim.Sec, st.Mtim.Nsec, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(b), sha256.Sum256(b))
			fd, err := openFile(unix.AT_FDCWD, path)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			xs, err := xattrs(fd)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %v", xs)
			names[inode{st.Dev, st.Ino}] = append(names[inode{st.Dev, st.Ino}], rel)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		all[rel] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, paths := range names {
		slices.Sort(paths)
		for _, p := range paths {
			all[p] += " = " + paths[0]
		}
	}
	return all
}

func compare(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	wrong := 0
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] {
			if wrong++; wrong < 10 {
				t.Errorf("%s: %q is\n%s\nwant\n%s", what, p, got[p], want[p])
			}
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s: %q is there", what, p)
		}
	}
}

// edit makes n random changes beneath dir.
func edit(t testing.TB, rng *rand.Rand, dir string, n int) {
	t.Helper()
	must := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ELOOP) {
			t.Fatal(err)
		}
	}
	for range n {
		var dirs, files []string
		must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			} else if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return nil
		}))
		parent := dirs[rng.IntN(len(dirs))]
		name := make([]byte, 1+rng.IntN(3))
		for i := range name {
			for name[i] == 0 || name[i] == '/' {
				name[i] = byte([]int{rng.IntN(256), 'a' + rng.IntN(4)}[rng.IntN(2)])
			}
		}
		if string(name) == "." || string(name) == ".." {
			continue
		}
		path := parent + "/" + string(name)
		switch op := rng.IntN(12); {
		case op < 4:
			b := make([]byte, rng.IntN(2000))
			if rng.IntN(40) == 0 {
				b = make([]byte, 1<<20+rng.IntN(1<<20))
			}
			for i := range b {
				b[i] = byte(rng.UintN(256))
			}
			must(os.WriteFile(path, b, os.FileMode(0o400+rng.IntN(0o400))))
		case op < 6:
			must(os.Mkdir(path, 0o700+os.FileMode(rng.IntN(0o100))))
		case op == 6:
			must(os.Symlink([]string{"a", "./b", "a/../c", "none"}[rng.IntN(4)], path))
		case op == 7 && len(files) > 0:
			must(os.Link(files[rng.IntN(len(files))], path))
		case op == 8:
			f, err := os.Create(path)
			if must(err); err == nil {
				_, err = f.WriteAt([]byte("data in the middle"), int64(8192+rng.IntN(200<<10)))
				must(err)
				must(f.Truncate(int64(300<<10 + rng.IntN(2)<<20)))
				must(f.Close())
			}
		case op == 9 && len(dirs) > 1:
			must(os.Rename(dirs[1+rng.IntN(len(dirs)-1)], path))
		case op == 10:
			must(os.RemoveAll(dirs[rng.IntN(len(dirs))] + "/" + string(name)))
		case op == 11 && len(files) > 0:
			f := files[rng.IntN(len(files))]
			must(os.Chmod(f, os.FileMode(rng.IntN(0o1000))|0o400))
			must(unix.Setxattr(f, "user.test", []byte{byte(rng.UintN(3))}, 0))
			must(os.Chtimes(f, time.Time{}, time.Unix(rng.Int64N(1<<31), rng.Int64N(1e9))))
		}
	}
}

func options(dir string) ScanOptions {
	return ScanOptions{Roots: []Root{{"r", dir}}, Policy: ignore.Policy{Base: ignore.Full}}
}

func capture(t testing.TB, o ScanOptions, m Sink) *Result {
	t.Helper()
	res, err := Scan(t.Context(), o, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.SaveCache(); err != nil {
		t.Fatal(err)
	}
	return res
}

func restored(t testing.TB, dir string, src tree.Source, root tree.Digest, change func(*RestoreOptions)) *Restored {
	t.Helper()
	o := RestoreOptions{Roots: []Root{{"r", dir}}, Owner: true, SetID: true}
	if change != nil {
		change(&o)
	}
	out, err := Restore(t.Context(), o, src, root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRandomTreesSurvive captures random trees, restores them into an empty
// folder and over an earlier state of another tree, and compares everything.
func TestRandomTreesSurvive(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 3))
	m := &tree.Memory{}
	a, over := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "over")
	for _, d := range []string{a, over} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := options(a)
	o.Cache = filepath.Join(t.TempDir(), "cache")
	overCache := filepath.Join(t.TempDir(), "cache")
	rounds := 10
	if testkit.Soaking() {
		rounds = 1000
	}
	for round := range rounds {
		edit(t, rng, a, 1+rng.IntN(60))
		res := capture(t, o, m)
		plain := o
		plain.Cache = ""
		if again := capture(t, plain, m); again.Root != res.Root {
			t.Fatalf("round %d: with the cache the root is %s, without %s", round, res.Root, again.Root)
		}
		want := snapshot(t, a)
		empty := filepath.Join(t.TempDir(), "empty")
		restored(t, empty, m, res.Root, nil)
		compare(t, "restored into nothing", snapshot(t, empty), want)
		if round%3 == 0 {
			edit(t, rng, over, 20)
		}
		restored(t, over, m, res.Root, func(o *RestoreOptions) { o.Cache = overCache })
		compare(t, "restored over another tree", snapshot(t, over), want)
		third := options(over)
		third.Cache = overCache
		if again := capture(t, third, m); again.Root != res.Root {
			t.Errorf("round %d: captured from where it was restored it is another tree", round)
		}
		if out := restored(t, over, m, res.Root, nil); out.Changed.Total+out.Removed.Total > 0 {
			t.Errorf("round %d: restored again, %+v %+v changed", round, out.Changed, out.Removed)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

var errInjected = errors.New("injected")

// twoTrees captures two trees made at random, and returns what they are.
func twoTrees(t *testing.T, salt uint64) (m *tree.Memory, root, other tree.Digest, want, before map[string]string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(testkit.Seed(t), salt))
	m = &tree.Memory{}
	a, b := t.TempDir(), t.TempDir()
	edit(t, rng, a, 25)
	edit(t, rng, b, 25)
	return m, capture(t, options(a), m).Root, capture(t, options(b), m).Root, snapshot(t, a), snapshot(t, b)
}

// TestEveryFailureIsCompletedByASecondRun fails each change of the file system
// in turn: no file is ever anything but old or new, and a second run completes.
func TestEveryFailureIsCompletedByASecondRun(t *testing.T) {
	m, root, other, want, before := twoTrees(t, 4)
	contents := map[string]bool{}
	for _, s := range []map[string]string{want, before} {
		for p, line := range s {
			contents[p+" "+hashOf(line)] = true
		}
	}
	for n := int64(1); ; n += 1 + n/8 {
		dir := filepath.Join(t.TempDir(), "w")
		restored(t, dir, m, other, nil)
		var steps atomic.Int64
		o := RestoreOptions{Roots: []Root{{"r", dir}}, Owner: true, SetID: true, step: func(string, string) error {
			if steps.Add(1) >= n {
				return errInjected
			}
			return nil
		}}
		_, err := Restore(t.Context(), o, m, root)
		if err == nil {
			if n < 20 {
				t.Errorf("the restore took %d steps", steps.Load())
			}
			return
		}
		if !errors.Is(err, errInjected) {
			t.Fatalf("step %d: %v", n, err)
		}
		for p, line := range snapshot(t, dir) {
			if strings.HasPrefix(p, "/"+StagingName) || hashOf(line) == "" {
				continue
			}
			if !contents[p+" "+hashOf(line)] {
				t.Errorf("step %d: %q is neither old nor new: %s", n, p, line)
			}
		}
		restored(t, dir, m, root, nil)
		compare(t, fmt.Sprintf("completed after step %d", n), snapshot(t, dir), want)
		if t.Failed() {
			return
		}
	}
}

// TestARestoreThatBeganItsChangesCompletesThem ends the context at each change of
// the file system: the tree is the old one, or whole.
func TestARestoreThatBeganItsChangesCompletesThem(t *testing.T) {
	m, root, other, want, before := twoTrees(t, 6)
	dir := filepath.Join(t.TempDir(), "w")
	completed := 0
	for n := int64(1); ; n += 1 + n/8 {
		restored(t, dir, m, other, nil)
		ctx, stop := context.WithCancel(t.Context())
		var steps atomic.Int64
		_, err := Restore(ctx, RestoreOptions{Roots: []Root{{"r", dir}}, Owner: true, SetID: true, step: func(string, string) error {
			if steps.Add(1) == n {
				stop()
			}
			return nil
		}}, m, root)
		stop()
		if err == nil {
			compare(t, fmt.Sprintf("completed after step %d", n), snapshot(t, dir), want)
			if completed++; steps.Load() < n {
				break
			}
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("ended at step %d", n), snapshot(t, dir), before)
	}
	if completed < 2 {
		t.Error("none was ended in the middle of its changes")
	}
}

// hashOf is the size and hash in a line of a snapshot of a file.
func hashOf(line string) string {
	f := strings.Fields(line)
	if len(f) < 5 || f[3] == "->" {
		return ""
	}
	return f[3] + f[4]
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOffendersAreListedAtOnceWithExcludesThatWork(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/good", "x")
	for link, target := range map[string]string{"out": "/etc/passwd", "up": "../x", "sub/dots": "../../x", "sub/in": "../good", "self": dir + "/good", "d": "sub", "via": "d/../../y"} {
		if err := errors.Join(os.MkdirAll(dir+"/sub", 0o755), os.Symlink(target, dir+"/"+link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/fi fo's", 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(dir)
	_, err := Scan(t.Context(), o, &tree.Memory{})
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("no refusal: %v", err)
	}
	want := []string{"/fi fo's", "/out", "/sub/dots", "/up", "/via"}
	if got := refused.Excludes(); !slices.Equal(got, want) {
		t.Errorf("excludes %q, want %q", got, want)
	}
	if !strings.Contains(err.Error(), `--exclude '/fi fo'\''s'`) {
		t.Errorf("no pattern to paste in %q", err)
	}
	o.Policy.Exclude = refused.Excludes()
	if res := capture(t, o, &tree.Memory{}); res.LeftOut.Total != len(want) {
		t.Errorf("left out %+v", res.LeftOut)
	}
	o.Policy.Exclude = []string{"fi*"}
	o.Links = SkipOutside
	if res := capture(t, o, &tree.Memory{}); res.LeftOut.Total != len(want) || res.Tree.Roots[0].Summary.Entries != 5 {
		t.Errorf("skipped: %+v, %+v", res.LeftOut, res.Tree.Roots[0].Summary)
	}
	o.Links = KeepOutside
	m := &tree.Memory{}
	res := capture(t, o, m)
	to := t.TempDir() + "/to"
	restored(t, to, m, res.Root, nil)
	if target, err := os.Readlink(to + "/out"); err != nil || target != "/etc/passwd" {
		t.Errorf("a kept link: %q, %v", target, err)
	}
}

func TestSecretsAreNowhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 5))
	var secrets []Secret
	for i := range 20 {
		v := make([]byte, 6+rng.IntN(60))
		for j := range v {
			v[j] = "abAB01"[rng.IntN(6)]
		}
		secrets = append(secrets, Secret{fmt.Sprintf("S%02d", i), string(v)})
	}
	secrets = append(secrets, Secret{"LONG", strings.Repeat("0123456789", 9000)}, Secret{"OVERLAP", secrets[0].Value[3:] + secrets[1].Value})
	dir := t.TempDir()
	want := map[string][]byte{}
	for i := range 12 {
		b := make([]byte, rng.IntN(3000))
		if i < 4 {
			b = make([]byte, 5<<20)
		}
		for j := range b {
			b[j] = "abAB01"[rng.IntN(6)]
		}
		for range 30 {
			v := secrets[rng.IntN(len(secrets))].Value
			at := rng.IntN(len(b) + 1)
			if i < 4 && rng.IntN(2) == 0 {
				at = (1+rng.IntN(4))<<20 - rng.IntN(len(v))
			}
			copy(b[min(at, len(b)):], v)
		}
		b = append(b, secrets[0].Value+secrets[1].Value+secrets[i].Value...)
		name := fmt.Sprintf("f%02d", i)
		want[name] = b
		write(t, filepath.Join(dir, name), string(b))
	}
	err := errors.Join(os.Symlink("x/"+secrets[3].Value, dir+"/link"), unix.Setxattr(dir+"/f00", "user.s", []byte("v"+secrets[4].Value), 0))
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	o := options(dir)
	o.Secrets = secrets
	m := &tree.Memory{}
	res := capture(t, o, m)
	check := func(b []byte) {
		for _, s := range secrets {
			if bytes.Contains(b, []byte(s.Value)) {
				t.Errorf("the value of %s is in an object", s.Name)
			}
		}
	}
	m.Each(func(_ tree.Digest, b []byte) { check(b) })
	to := t.TempDir() + "/to"
	if out := restored(t, to, m, res.Root, nil); out.LeftOut.Total < 13 {
		t.Errorf("left out %+v", out.LeftOut)
	}
	for name := range want {
		b, err := os.ReadFile(to + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		check(b)
	}
	if out := restored(t, dir, m, res.Root, nil); out.Changed.Total > 0 {
		t.Errorf("over the live tree %+v changed", out.Changed)
	}
	compare(t, "the live tree", snapshot(t, dir), before)
	restored(t, to, m, res.Root, func(o *RestoreOptions) { o.Secrets = secrets })
	compare(t, "filled in", snapshot(t, to), before)

	for _, bad := range [][]Secret{{{"A", "short"}}, {{"", "long enough"}}, {{"A", ""}}, {{"A", "123456"}, {"A", "1234567"}}} {
		o.Secrets = bad
		if _, err := Scan(t.Context(), o, m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	o.Secrets = []Secret{{"NAME", "f00"}}
	o.AllowShort = true
	var refused *RefusedError
	if _, err := Scan(t.Context(), o, m); !errors.As(err, &refused) || strings.Contains(refused.List.Paths[0].Reason, "f00") {
		t.Errorf("a name that holds a secret: %v", err)
	}
}

func TestExcludedPathsAreSpared(t *testing.T) {
	dir, m := t.TempDir(), &tree.Memory{}
	write(t, dir+"/a/keep", "1")
	o := options(dir)
	o.Policy = ignore.Policy{Base: ignore.Default}
	root := capture(t, o, m).Root
	to := t.TempDir()
	for _, p := range []string{"/.git/config", "/old/node_modules/x", "/old/gone", "/gone/too", "/a/.env", "/a/gone", "/mine/x"} {
		write(t, to+p, p)
	}
	given := &ignore.Policy{Base: ignore.Full, Exclude: []string{"mine"}}
	restored(t, to, m, root, func(o *RestoreOptions) { o.Policy = given })
	got := slices.Sorted(maps.Keys(snapshot(t, to)))
	want := []string{"", "/.git", "/.git/config", "/a", "/a/.env", "/a/keep", "/mine", "/mine/x", "/old", "/old/node_modules", "/old/node_modules/x"}
	if !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	if err := errors.Join(os.RemoveAll(to+"/a/keep"), os.Mkdir(to+"/a/keep", 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, to+"/a/keep/.env", "spared")
	var spare *SpareError
	if _, err := Restore(t.Context(), RestoreOptions{Roots: []Root{{"r", to}}}, m, root); !errors.As(err, &spare) || spare.Path != "r/a/keep" {
		t.Errorf("a file over spared paths: %v", err)
	}
}

// counting counts what is put.
type counting struct {
	tree.Memory
	n atomic.Int64
}

func (c *counting) Put(ctx context.Context, o tree.Object) error {
	c.n.Add(1)
	return c.Memory.Put(ctx, o)
}

func TestTheCacheSparesWhatIsKnownAndTrustsNothingYoung(t *testing.T) {
	dir, m := t.TempDir(), &counting{}
	for i := range 30 {
		write(t, fmt.Sprintf("%s/d%d/f", dir, i%3)+fmt.Sprint(i), fmt.Sprint("contents ", i))
	}
	o := options(dir)
	o.Cache = t.TempDir() + "/cache"
	if res := capture(t, o, m); res.Read.Files != 30 {
		t.Errorf("read %+v", res.Read)
	}
	if res := capture(t, o, m); res.Read.Files != 30 {
		t.Errorf("young files were trusted: read %+v", res.Read)
	}
	time.Sleep(trustAge + 100*time.Millisecond)
	capture(t, o, m)
	put := m.n.Load()
	if res := capture(t, o, m); res.Read.Files != 0 || m.n.Load() != put+1 {
		t.Errorf("nothing changed: read %+v, put %d objects, want the root alone", res.Read, m.n.Load()-put)
	}
	st, err := os.Stat(dir + "/d1/f1")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/d1/f1", "CONTENTS 1")
	if err := os.Chtimes(dir+"/d1/f1", time.Time{}, st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if res := capture(t, o, m); res.Read.Files != 1 {
		t.Errorf("one file with its old size and time: read %+v", res.Read)
	}
	o.Secrets = []Secret{{"S", "contents"}}
	if res := capture(t, o, m); res.Read.Files != 30 {
		t.Errorf("other secrets: read %+v", res.Read)
	}
	b, err := os.ReadFile(o.Cache)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 1 + i/50 {
		broken := bytes.Clone(b)
		broken[i] ^= 0x40
		if err := os.WriteFile(o.Cache, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := Scan(t.Context(), o, m)
		if err != nil {
			t.Fatalf("byte %d of the cache: %v", i, err)
		}
		res.Close()
	}
	if left, err := filepath.Glob(filepath.Dir(o.Cache) + "/.scan-*"); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	o.Cache = dir + "/cache"
	if _, err := Scan(t.Context(), o, m); !errors.Is(err, ErrInvalid) {
		t.Errorf("a cache within the root: %v", err)
	}
}

// bad makes a root object over entries that no honest capture makes.
func bad(t *testing.T, m *tree.Memory, policy ignore.Policy, entries ...tree.Entry) tree.Digest {
	t.Helper()
	put := func(o tree.Object) error { return m.Put(t.Context(), o) }
	b := &tree.Builder{Emit: put}
	for i := range entries {
		if err := b.Add(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	d, paged, sum, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Encode()
	if err != nil {
		t.Fatal(err)
	}
	root, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{{Name: "r", Type: tree.Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: sum}}, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(tree.Object{Kind: tree.Root, Digest: tree.Sum(root), Bytes: root}); err != nil {
		t.Fatal(err)
	}
	return tree.Sum(root)
}

func TestHostileTreesChangeNothing(t *testing.T) {
	m := &tree.Memory{}
	text := []byte("text")
	if err := m.Put(t.Context(), tree.Object{Kind: tree.Chunk, Digest: tree.Sum(text), Bytes: text}); err != nil {
		t.Fatal(err)
	}
	c := tree.Content{Size: 4, Digest: tree.Sum(text), Sum: tree.Sum(text)}
	good := tree.Entry{Name: "a", Type: tree.File, Mode: 0o644, Content: c}
	with := func(change func(*tree.Entry)) tree.Entry { e := good; e.Name = "b"; change(&e); return e }
	absent := tree.Sum([]byte("absent"))
	full := ignore.Policy{Base: ignore.Full}
	for name, root := range map[string]tree.Digest{
		"another size":      bad(t, m, full, good, with(func(e *tree.Entry) { e.Content.Size = 5 })),
		"a bomb":            bad(t, m, full, good, with(func(e *tree.Entry) { e.Content.Size, e.Content.Chunked = 1<<62, true })),
		"a missing chunk":   bad(t, m, full, good, with(func(e *tree.Entry) { e.Content.Digest, e.Content.Sum = absent, absent })),
		"data in a hole":    bad(t, m, full, good, with(func(e *tree.Entry) { e.Holes = []tree.Range{{Offset: 1, Length: 2}} })),
		"a missing folder":  bad(t, m, full, good, tree.Entry{Name: "b", Type: tree.Directory, Dir: absent}),
		"a file as folder":  bad(t, m, full, good, tree.Entry{Name: "b", Type: tree.Directory, Dir: c.Digest}),
		"a lying summary":   bad(t, m, full, good, tree.Entry{Name: "b", Type: tree.Directory, Dir: c.Digest, Summary: tree.Summary{Entries: 9}}),
		"no such root":      absent,
		"a root of a chunk": c.Digest,
	} {
		dir := t.TempDir()
		write(t, dir+"/mine", "mine")
		before := snapshot(t, dir)
		if _, err := Restore(t.Context(), RestoreOptions{Roots: []Root{{"r", dir}}}, m, root); err == nil {
			t.Errorf("%s: restored", name)
		}
		compare(t, name, snapshot(t, dir), before)
	}
	dir := t.TempDir()
	out := restored(t, dir, m, bad(t, m, ignore.Policy{Base: ignore.Default}, tree.Entry{Name: ".env", Type: tree.File, Content: c}, with(func(e *tree.Entry) { e.Mode = 0o6755 })), func(o *RestoreOptions) { o.SetID = false })
	if _, err := os.Lstat(dir + "/.env"); !errors.Is(err, fs.ErrNotExist) || out.LeftOut.Total != 2 {
		t.Errorf("what its own policy excludes: %v, %+v", err, out.LeftOut)
	}
	if st, err := os.Stat(dir + "/b"); err != nil || st.Mode() != 0o755 {
		t.Errorf("set-id bits: %v, %v", st, err)
	}
}

// TestASwappedDirectoryCannotEscape swaps directories for links to a place
// outside at random steps of a restore.
func TestASwappedDirectoryCannotEscape(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 6))
	dir, m := t.TempDir(), &tree.Memory{}
	for i := range 20 {
		write(t, fmt.Sprintf("%s/d%d/e/f%d", dir, i%4, i), fmt.Sprint(i))
	}
	root := capture(t, options(dir), m).Root
	for round := range 60 {
		outside, to := t.TempDir(), t.TempDir()
		write(t, outside+"/e/precious", "precious")
		before := snapshot(t, outside)
		for i := range 20 {
			write(t, fmt.Sprintf("%s/d%d/e/old%d", to, i%4, i), "old")
		}
		var n atomic.Int64
		at := 1 + rng.Int64N(90)
		_, err := Restore(t.Context(), RestoreOptions{Roots: []Root{{"r", to}}, Workers: 1, step: func(string, string) error {
			if n.Add(1) == at {
				for i := range 4 {
					d := fmt.Sprintf("%s/d%d", to, i)
					if err := errors.Join(os.Rename(d, d+".away"), os.Symlink(outside, d)); err != nil {
						return err
					}
				}
			}
			return nil
		}}, m, root)
		if err == nil && n.Load() >= at+20 {
			t.Errorf("round %d: the swap at step %d was not noticed", round, at)
		}
		compare(t, "outside", snapshot(t, outside), before)
		if t.Failed() {
			return
		}
	}
}

// busy writes to a file whenever a chunk of it is put.
type busy struct{ path string }

func (b busy) Put(_ context.Context, o tree.Object) error {
	if o.Kind != tree.Chunk {
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("y"))
	return errors.Join(err, f.Close())
}

func TestAChangingFileFailsOrIsMarked(t *testing.T) {
	for _, size := range []int{100, 2 << 20} {
		dir := t.TempDir()
		write(t, dir+"/busy", strings.Repeat("x", size))
		o := options(dir)
		var changed *ChangedError
		if _, err := Scan(t.Context(), o, busy{dir + "/busy"}); !errors.As(err, &changed) || changed.Path != "r/busy" {
			t.Errorf("a busy file of %d bytes: %v", size, err)
		}
		o.MarkMixed = true
		if res, err := Scan(t.Context(), o, busy{dir + "/busy"}); err != nil || res.Mixed.Total != 1 {
			t.Errorf("marked: %+v, %v", res, err)
		}
	}
}

func TestOneChangeAmongManyIsOnePageAndTheIndex(t *testing.T) {
	n := 10_000
	if testkit.Soaking() {
		n = 100_000
	}
	dir, m := t.TempDir(), &counting{}
	for i := range n {
		if err := os.Symlink("to", fmt.Sprintf("%s/%06d", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	o := options(dir)
	o.Cache = t.TempDir() + "/cache"
	capture(t, o, m)
	put := m.n.Load()
	if err := errors.Join(os.Remove(dir+"/004321"), os.Symlink("elsewhere", dir+"/004321")); err != nil {
		t.Fatal(err)
	}
	capture(t, o, m)
	if fresh := m.n.Load() - put; fresh != 3 {
		t.Errorf("one change put %d objects, want a page, the index and the root", fresh)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte("abcabcabc"), "abc", "cab")
	f.Add([]byte("aaaaaa"), "aa", "a")
	f.Fuzz(func(t *testing.T, b []byte, x, y string) {
		if x == "" || y == "" || len(b) > 1<<16 || len(x) > 1000 || len(y) > 1000 {
			return
		}
		s, err := newSearcher([]Secret{{"X", x}, {"Y", y}}, true)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(b)
		total := 0
		for _, v := range []string{x, y} {
			for i := 0; i+len(v) <= len(b); i++ {
				if string(b[i:i+len(v)]) == v {
					clear(want[i : i+len(v)])
					total++
				}
			}
		}
		got := bytes.Clone(b)
		rs, err := s.redact(got)
		if total > tree.MaxRedacted {
			return
		}
		n := 0
		for _, r := range rs {
			n += len(r.Offsets)
		}
		if err != nil || !bytes.Equal(got, want) || n != total {
			t.Errorf("%q without %q and %q is %q with %d places, want %q with %d: %v", b, x, y, got, n, want, total, err)
		}
		if !fillIn(rs, []Secret{{"X", x}, {"Y", y}}, func(at uint64, v string) { copy(got[at:], v) }) || !bytes.Equal(got, b) {
			t.Errorf("%q is filled in as %q", b, got)
		}
	})
}

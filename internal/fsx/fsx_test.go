package fsx_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cairnstate/cairn/internal/fsx"
)

func each(t *testing.T, test func(t *testing.T, fsys fsx.FS)) {
	t.Run("os", func(t *testing.T) {
		fsys, err := fsx.NewOS(filepath.Join(t.TempDir(), "a", "b"))
		if err != nil {
			t.Fatal(err)
		}
		test(t, fsys)
	})
	t.Run("mem", func(t *testing.T) { test(t, fsx.NewMem()) })
	t.Run("fault", func(t *testing.T) {
		test(t, fsx.NewFault(fsx.NewMem(), func(fsx.Op, string) error { return nil }))
	})
}

func write(t *testing.T, fsys fsx.FS, name, data string) {
	t.Helper()
	if err := fsx.WriteFile(fsys, name, strings.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("write %q: %v", name, err)
	}
}

func read(t *testing.T, fsys fsx.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, fsys fsx.FS, dir string) string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestFS(t *testing.T) {
	each(t, func(t *testing.T, fsys fsx.FS) {
		if err := fsx.MkdirAllSync(fsys, "d/e"); err != nil {
			t.Fatal(err)
		}
		if err := fsys.MkdirAll("d/e"); err != nil {
			t.Fatalf("make existing directory: %v", err)
		}
		write(t, fsys, "d/one", "first")
		write(t, fsys, "d/one", "second")
		if got := read(t, fsys, "d/one"); got != "second" {
			t.Errorf("read %q, want second", got)
		}
		if _, err := fsys.Create("d/one"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create existing: %v", err)
		}
		if _, err := fsys.Open("d/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open absent: %v", err)
		}
		if _, err := fsys.Create("x/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create in absent directory: %v", err)
		}
		if err := fsys.Link("d/one", "d/two"); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Link("d/one", "d/two"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("link to existing: %v", err)
		}
		if err := fsys.Rename("d/one", "d/e/three"); err != nil {
			t.Fatal(err)
		}
		if got := names(t, fsys, "d"); got != "e two" {
			t.Errorf("names %q", got)
		}
		if err := fsys.Remove("d/e"); err == nil {
			t.Error("removed a directory that is not empty")
		}
		if info, err := fsys.Stat("d/e/three"); err != nil || info.Size() != 6 || info.IsDir() {
			t.Errorf("stat: %v, %v", info, err)
		}
		for _, err := range []error{fsys.Remove("d/e/three"), fsys.Remove("d/e"), fsys.Remove("d/two")} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := fsys.Remove("d/two"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("remove absent: %v", err)
		}
	})
}

func TestNamesStayBelowRoot(t *testing.T) {
	each(t, func(t *testing.T, fsys fsx.FS) {
		for _, name := range []string{"../x", "/x", "a/../../x", "a//b", ""} {
			if _, err := fsys.Create(name); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("create %q: %v", name, err)
			}
			if _, err := fsys.Open(name); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("open %q: %v", name, err)
			}
			for op, err := range map[string]error{
				"link": fsys.Link("a", name), "rename": fsys.Rename(name, "a"), "remove": fsys.Remove(name),
				"mkdir": fsys.MkdirAll(name), "syncdir": fsys.SyncDir(name),
			} {
				if err == nil {
					t.Errorf("%s %q succeeded", op, name)
				}
			}
		}
	})
}

func TestReadAt(t *testing.T) {
	each(t, func(t *testing.T, fsys fsx.FS) {
		write(t, fsys, "f", "0123456789")
		f, err := fsys.Open("f")
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 4)
		if n, err := f.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
			t.Errorf("ReadAt: %d, %v, %q", n, err, p)
		}
		if n, err := f.ReadAt(p, 8); n != 2 || err != io.EOF {
			t.Errorf("ReadAt across the end: %d, %v", n, err)
		}
		if n, err := f.ReadAt(p, 10); n != 0 || err != io.EOF {
			t.Errorf("ReadAt at the end: %d, %v", n, err)
		}
		if _, err := f.Write(p); err == nil {
			t.Error("wrote to a file opened for reading")
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(p, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
	})
}

func TestWriteFileRefusesOtherLengths(t *testing.T) {
	each(t, func(t *testing.T, fsys fsx.FS) {
		write(t, fsys, "f", "old")
		broken := errors.New("broken reader")
		for _, err := range []error{
			fsx.WriteFile(fsys, "f", strings.NewReader("12345"), 4),
			fsx.WriteFile(fsys, "f", strings.NewReader("12345"), 6),
			fsx.WriteFile(fsys, "f", io.MultiReader(strings.NewReader("12345"), iotest.ErrReader(broken)), -1),
		} {
			if err == nil {
				t.Error("wrote a file of the wrong length")
			}
		}
		if got := names(t, fsys, ".") + "=" + read(t, fsys, "f"); got != "f=old" {
			t.Errorf("directory holds %q", got)
		}
		if err := fsx.WriteFile(fsys, "f", strings.NewReader("of unknown length"), -1); err != nil {
			t.Error(err)
		}
	})
}

// TestWriteFileSurvivesCrash cuts the power before every operation: the file is
// the old or the new one, and the new one when WriteFile had returned.
func TestWriteFileSurvivesCrash(t *testing.T) {
	old, next := strings.Repeat("old ", 1000), strings.Repeat("new ", 2000)
	mem := fsx.NewMem()
	write(t, mem, "f", old)
	points := 0
	check := func(want ...string) {
		points++
		for seed := range uint64(50) {
			clone := mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(points))))
			if got := read(t, clone, "f"); got != want[0] && got != want[len(want)-1] {
				t.Fatalf("crash point %d, seed %d: %d bytes that are neither file", points, seed, len(got))
			}
		}
	}
	faulty := fsx.NewFault(mem, func(fsx.Op, string) error { check(old, next); return nil })
	write(t, faulty, "f", next)
	check(next)
	if got := read(t, mem.CrashClone(nil), "f"); got != next {
		t.Errorf("without unsynced state the file has %d bytes, want %d", len(got), len(next))
	}
	if points < 6 {
		t.Errorf("saw %d crash points, want at least 6", points)
	}
}

func TestWriteFileEveryFault(t *testing.T) {
	for _, fault := range []error{fsx.ErrInjected, fsx.ErrNoSpace} {
		for n := int64(1); ; n++ {
			mem := fsx.NewMem()
			write(t, mem, "f", "old")
			hook, hit := fsx.FailNth(n, nil, fault)
			err := fsx.WriteFile(fsx.NewFault(mem, hook), "f", strings.NewReader("new"), 3)
			got := read(t, mem, "f")
			if !hit() {
				if err != nil || got != "new" || n < 6 {
					t.Fatalf("without a fault (n=%d): %v, %q", n, err, got)
				}
				break
			}
			if !errors.Is(err, fault) {
				t.Errorf("fault %d: error %v, want %v", n, err, fault)
			}
			if got != "old" && got != "new" {
				t.Errorf("fault %d: file holds %q", n, got)
			}
			if list := names(t, mem, "."); list != "f" {
				t.Errorf("fault %d leaves %q", n, list)
			}
		}
	}
}

func TestFailFromKeepsFailing(t *testing.T) {
	mem := fsx.NewMem()
	full := fsx.NewFault(mem, fsx.FailFrom(2, func(op fsx.Op, _ string) bool { return op == fsx.OpWrite }, fsx.ErrNoSpace))
	write(t, full, "a", "fits")
	for i := range 3 {
		name := fmt.Sprint("b", i)
		if err := fsx.WriteFile(full, name, strings.NewReader("does not fit"), -1); !errors.Is(err, fsx.ErrNoSpace) {
			t.Errorf("write to a full disk: %v", err)
		}
	}
	if got := names(t, mem, "."); got != "a" {
		t.Errorf("directory holds %q", got)
	}
}

// TestCrashCloneLosesWhatWasNotSynced shows that the crash model is harsh: it
// must lose, tear and keep, or the tests that rely on it prove nothing.
func TestCrashCloneLosesWhatWasNotSynced(t *testing.T) {
	mem := fsx.NewMem()
	f, err := mem.Create("entry-unsynced")
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("x"), 4096)
	g, err := mem.Create("bytes-unsynced")
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	if err := mem.Rename("entry-unsynced", "renamed"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []fsx.File{f, g} {
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		clone := mem.CrashClone(rand.New(rand.NewPCG(seed, 0)))
		_, err := clone.Stat("renamed")
		seen["rename lost"] = seen["rename lost"] || err != nil
		seen["rename kept"] = seen["rename kept"] || err == nil
		got := read(t, clone, "bytes-unsynced")
		seen["cut"] = seen["cut"] || len(got) < len(data)
		seen["torn"] = seen["torn"] || strings.Contains(got, "\x00")
	}
	for _, what := range []string{"rename lost", "rename kept", "cut", "torn"} {
		if !seen[what] {
			t.Errorf("200 crashes never show: %s", what)
		}
	}
	if got := names(t, mem.CrashClone(nil), "."); got != "bytes-unsynced entry-unsynced" {
		t.Errorf("strict crash holds %q", got)
	}
}

func TestEdit(t *testing.T) {
	each(t, func(t *testing.T, fsys fsx.FS) {
		f, err := fsys.Edit("f")
		if err != nil {
			t.Fatal(err)
		}
		put := func(text string, at int64) {
			t.Helper()
			if n, err := f.WriteAt([]byte(text), at); n != len(text) || err != nil {
				t.Fatalf("write %q at %d: %d, %v", text, at, n, err)
			}
		}
		put("0123456789", 0)
		put("ab", 3)
		put("z", 12)
		if err := f.Truncate(14); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, "f"); got != "012ab56789\x00\x00z\x00" {
			t.Errorf("file holds %q", got)
		}
		if err := f.Truncate(4); err != nil {
			t.Fatal(err)
		}
		put("!", 5)
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if f, err = fsys.Edit("f"); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := read(t, fsys, "f"); got != "012a\x00!" {
			t.Errorf("file holds %q", got)
		}
		if _, err := fsys.Edit("none/f"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("edit in an absent directory: %v", err)
		}
	})
}

// TestCrashTearsEdits changes a synced file in place: what a crash leaves is, in
// each sector, a state that the sector had, and every such state can occur.
func TestCrashTearsEdits(t *testing.T) {
	const sectors, size = 8, 512
	mem := fsx.NewMem()
	write(t, mem, "f", strings.Repeat("a", sectors*size))
	f, err := mem.Edit("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, text := range []string{"b", "c"} {
		if _, err := f.WriteAt([]byte(strings.Repeat(text, (sectors-2*i)*size)), int64(i*size)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, mem.CrashClone(nil), "f"); got != strings.Repeat("a", sectors*size) {
		t.Error("changes survived that none had to")
	}
	allowed := map[int]string{0: "ab", sectors - 1: "ab"}
	seen := map[string]bool{}
	for seed := range uint64(500) {
		got := read(t, mem.CrashClone(rand.New(rand.NewPCG(seed, 1))), "f")
		if len(got) != sectors*size {
			t.Fatalf("seed %d: %d bytes", seed, len(got))
		}
		for i := range sectors {
			part := got[i*size : (i+1)*size]
			states := allowed[i]
			if states == "" {
				states = "abc"
			}
			if strings.Trim(part, part[:1]) != "" || !strings.Contains(states, part[:1]) {
				t.Fatalf("seed %d: sector %d is %.8q", seed, i, part)
			}
			seen[fmt.Sprint(i, part[:1])] = true
		}
	}
	if want := 2*2 + 3*(sectors-2); len(seen) != want {
		t.Errorf("%d states of sectors occurred, want %d", len(seen), want)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	want := read(t, mem, "f")
	for seed := range uint64(20) {
		if got := read(t, mem.CrashClone(rand.New(rand.NewPCG(seed, 2))), "f"); got != want {
			t.Fatalf("seed %d: synced changes were lost", seed)
		}
	}
}

func TestFaultsInEdits(t *testing.T) {
	for _, op := range []fsx.Op{fsx.OpEdit, fsx.OpWrite, fsx.OpTruncate, fsx.OpSync, fsx.OpRead} {
		fsys := fsx.NewFault(fsx.NewMem(), fsx.FailFrom(1, func(o fsx.Op, _ string) bool { return o == op }, fsx.ErrNoSpace))
		run := func() error {
			f, err := fsys.Edit("f")
			if err != nil {
				return err
			}
			defer f.Close()
			if n, err := f.WriteAt([]byte("1234"), 0); err != nil {
				if n != 2 {
					t.Errorf("a failed write put %d bytes", n)
				}
				return err
			}
			if err := errors.Join(f.Truncate(2), f.Sync()); err != nil {
				return err
			}
			_, err = f.ReadAt(make([]byte, 1), 0)
			return err
		}
		if err := run(); !errors.Is(err, fsx.ErrNoSpace) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestFailedSyncLoses: a Sync that works after one that failed does not make
// durable what the first one lost.
func TestFailedSyncLoses(t *testing.T) {
	mem := fsx.NewMem()
	write(t, mem, "f", "old ")
	hook, _ := fsx.FailNth(1, func(op fsx.Op, _ string) bool { return op == fsx.OpSync }, fsx.ErrInjected)
	f, err := fsx.NewFault(mem, hook).Edit("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("lost"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, fsx.ErrInjected) {
		t.Fatalf("sync: %v", err)
	}
	if _, err := f.WriteAt([]byte("kept"), 4); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if now, then := read(t, mem, "f"), read(t, mem.CrashClone(nil), "f"); now != "lostkept" || then != "old kept" {
		t.Errorf("the file holds %q, and %q after a loss of power", now, then)
	}
}

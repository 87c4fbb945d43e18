package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

// Peers of captures and restores.
const (
	restic  = "restic"
	tarZstd = "tar and zstd -1"
	gitAdd  = "git add and commit"
	walk    = "a walk with lstat"
)

// process is what a program that was run took.
type process struct {
	ms     float64
	peakMB float64
}

// take runs a program to its end.
func take(dir string, env []string, args ...string) (process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	p := process{ms: since(start)}
	if err != nil {
		return p, fmt.Errorf("%q: %w: %.500s", args, err, out)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.peakMB = float64(usage.Maxrss) * 1024 / 1e6
	}
	return p, nil
}

// workspaces is a project with what the programs beside each other keep of it.
type workspaces struct {
	b       *bench
	dir     string // of everything
	project string
	server  *harness.Server
	env     []string
	n       int // of directories restored into and repositories made
}

// files is how many a project has, and bytes how large it is.
func (b *bench) files() int { return b.size(60_000, 6_000) }
func (b *bench) bytes() int { return b.size(500, 50) << 20 }

// workspaces makes a project and a server; done removes them.
func (b *bench) workspaces() (w *workspaces, done func(), err error) {
	dir, err := os.MkdirTemp(b.dir, "workspace-")
	if err != nil {
		return nil, nil, err
	}
	w = &workspaces{b: b, dir: dir, project: filepath.Join(dir, "project")}
	if err := testkit.Project(w.project, b.files(), b.bytes()); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, stop, err := b.fresh()
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.server = s
	w.env = []string{"CAIRN_URL=" + s.URL, "CAIRN_TOKEN=" + s.Token(harness.Grant{Thread: "*"}), "SSL_CERT_FILE=" + s.Bundle(),
		"HOME=" + dir, "CAIRN_STATE_DIR=" + filepath.Join(dir, "state"),
		"RESTIC_PASSWORD=x", "RESTIC_CACHE_DIR=" + filepath.Join(dir, "cache")}
	// What was written just now is not to be written back while something is measured.
	syscall.Sync()
	return w, func() { stop(); os.RemoveAll(dir) }, nil
}

// fresh returns a path where nothing is.
func (w *workspaces) fresh(what string) string {
	w.n++
	return filepath.Join(w.dir, fmt.Sprintf("%s-%d", what, w.n))
}

func (w *workspaces) capture(thread string) (process, error) {
	return take(w.dir, w.env, w.b.binary, "capture", "--thread", thread, "--root", "w="+w.project, "--policy", "full", "--json")
}

func (w *workspaces) restore(thread, to string, flags ...string) (process, error) {
	return take(w.dir, w.env, append([]string{w.b.binary, "restore", "--thread", thread, "--root", "w=" + to, "--json"}, flags...)...)
}

// backup makes a restic repository if there is none, and saves the project.
func (w *workspaces) backup(repository string) (process, error) {
	if _, err := os.Stat(repository); errors.Is(err, fs.ErrNotExist) {
		if _, err := take(w.dir, w.env, "restic", "init", "-q", "-r", repository); err != nil {
			return process{}, err
		}
	}
	return take(w.dir, w.env, "restic", "backup", "-q", "-r", repository, w.project)
}

func (w *workspaces) pack() (process, error) {
	return take(w.project, nil, "sh", "-c", "tar -cf - . | zstd -q -1 -T0 -o "+w.fresh("archive")+".tar.zst")
}

// commit saves the project in a git directory outside it.
func (w *workspaces) commit(dir string) (process, error) {
	env := append(harness.GitEnv(w.dir), "GIT_DIR="+dir, "GIT_WORK_TREE="+w.project)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if _, err := take(w.dir, env, "git", "init", "-q"); err != nil {
			return process{}, err
		}
	}
	return take(w.project, env, "sh", "-c", "git add -A -f . && git -c user.name=b -c user.email=b@example.com commit -q -m b")
}

// walk looks at everything beneath a directory.
func (w *workspaces) walk(dir string) (float64, error) {
	start := time.Now()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			_, err = d.Info()
		}
		return err
	})
	return since(start), err
}

// seconds is the time of the quickest of some runs, in s: others use the machine too.
func seconds(rounds int, run func() (process, error)) (float64, process, error) {
	best := process{}
	for i := range rounds {
		p, err := run()
		if err != nil {
			return 0, p, err
		}
		if i == 0 || p.ms < best.ms {
			best.ms = p.ms
		}
		best.peakMB = max(best.peakMB, p.peakMB)
	}
	return best.ms / 1e3, best, nil
}

// installed reports whether a row has its peer, and notes where not.
func installed(r *row, program string) bool {
	if _, err := exec.LookPath(program); err != nil {
		r.Note = program + " is not installed"
		return false
	}
	return true
}

// captures measures the first capture of a project beside restic, tar with zstd,
// and git, what is stored of it, and the memory that the program takes.
func (b *bench) captures(rows []row) error {
	w, done, err := b.workspaces()
	if err != nil {
		return err
	}
	defer done()
	before, err := stored(filepath.Join(w.server.Dir, "data"))
	if err != nil {
		return err
	}
	ours, took, err := seconds(1, func() (process, error) { return w.capture("first") })
	if err != nil {
		return err
	}
	after, err := keptBytes(w.server)
	if err != nil {
		return err
	}
	rows[3].Cairn, rows[4].Cairn = float64(after-before)/1e6, took.peakMB
	for i, peer := range []func() (process, error){
		func() (process, error) { return w.backup(filepath.Join(w.dir, "restic")) }, w.pack,
		func() (process, error) { return w.commit(filepath.Join(w.dir, "git")) },
	} {
		rows[i].Cairn = ours
		if !installed(&rows[i], []string{"restic", "zstd", "git"}[i]) {
			continue
		}
		theirs, _, err := seconds(1, peer)
		if err != nil {
			return err
		}
		rows[i].compare(ours, theirs)
		if i == 0 {
			size, err := stored(filepath.Join(w.dir, "restic"))
			if err != nil {
				return err
			}
			rows[3].compare(rows[3].Cairn, float64(size)/1e6)
		}
	}
	return nil
}

// recaptures measures a capture after one file was changed.
func (b *bench) recaptures(rows []row) error {
	w, done, err := b.workspaces()
	if err != nil {
		return err
	}
	defer done()
	repositories := []func() (process, error){
		func() (process, error) { return w.backup(filepath.Join(w.dir, "restic")) },
		func() (process, error) { return w.commit(filepath.Join(w.dir, "git")) },
	}
	n := 0
	changed := func(run func() (process, error)) func() (process, error) {
		return func() (process, error) {
			n++
			err := os.WriteFile(filepath.Join(w.project, "src", "part-0000", "file00.js"), fmt.Appendf(nil, "changed %d\n", n), 0o644)
			if err != nil {
				return process{}, err
			}
			return run()
		}
	}
	capture := func() (process, error) { return w.capture("again") }
	for range 2 { // files younger than two seconds are read again
		if _, err := capture(); err != nil {
			return err
		}
		time.Sleep(2500 * time.Millisecond)
	}
	ours, _, err := seconds(b.rounds, changed(capture))
	if err != nil {
		return err
	}
	for i, peer := range repositories {
		rows[i].Cairn = ours
		if !installed(&rows[i], []string{"restic", "git"}[i]) {
			continue
		}
		if _, err := peer(); err != nil {
			return err
		}
		theirs, _, err := seconds(b.rounds, changed(peer))
		if err != nil {
			return err
		}
		rows[i].compare(ours, theirs)
	}
	theirs, _, err := seconds(b.rounds, func() (process, error) { ms, err := w.walk(w.project); return process{ms: ms}, err })
	if err == nil {
		rows[2].compare(ours, theirs)
	}
	return err
}

// restores measures a restore into an empty folder beside restic and tar, and one
// where a single file differs beside a walk. Each goes to a place of its own, and
// nothing is removed meanwhile: ext4 is slow to make files where many went.
func (b *bench) restores(rows []row) error {
	w, done, err := b.workspaces()
	if err != nil {
		return err
	}
	defer done()
	if _, err := w.capture("whole"); err != nil {
		return err
	}
	syscall.Sync()
	last := ""
	ours, took, err := seconds(2, func() (process, error) {
		last = w.fresh("restored")
		return w.restore("whole", last)
	})
	if err != nil {
		return err
	}
	rows[0].Cairn, rows[1].Cairn, rows[2].Cairn = ours, ours, took.peakMB
	if installed(&rows[0], "restic") {
		repository := filepath.Join(w.dir, "restic")
		if _, err := w.backup(repository); err != nil {
			return err
		}
		syscall.Sync()
		theirs, _, err := seconds(2, func() (process, error) {
			return take(w.dir, w.env, "restic", "restore", "-q", "-r", repository, "latest", "--target", w.fresh("restic"))
		})
		if err != nil {
			return err
		}
		rows[0].compare(ours, theirs)
	}
	if installed(&rows[1], "zstd") {
		if _, err := w.pack(); err != nil {
			return err
		}
		archive := filepath.Join(w.dir, fmt.Sprintf("archive-%d.tar.zst", w.n))
		syscall.Sync()
		theirs, _, err := seconds(2, func() (process, error) {
			to := w.fresh("tar")
			return take(w.dir, nil, "sh", "-c", "mkdir "+to+" && zstd -q -dc "+archive+" | tar -xf - -C "+to)
		})
		if err != nil {
			return err
		}
		rows[1].compare(ours, theirs)
	}
	one := func() (process, error) {
		if err := os.WriteFile(filepath.Join(last, "src", "part-0000", "file00.js"), []byte("another\n"), 0o644); err != nil {
			return process{}, err
		}
		return w.restore("whole", last, "--no-undo")
	}
	ours, _, err = seconds(b.rounds, one)
	if err != nil {
		return err
	}
	theirs, _, err := seconds(b.rounds, func() (process, error) { ms, err := w.walk(last); return process{ms: ms}, err })
	if err == nil {
		rows[3].compare(ours, theirs)
	}
	return err
}

// millions measures the memory of a first capture, and of one that finds everything
// unchanged, of a directory with so many entries.
func (b *bench) millions(rows []row, entries int) error {
	w, done, err := b.workspaces()
	if err != nil {
		return err
	}
	defer done()
	const perDir = 1000
	w.project = filepath.Join(w.dir, "entries")
	past := time.Now().Add(-time.Hour)
	for i := range entries / perDir {
		dir := filepath.Join(w.project, fmt.Sprintf("%02d", i%100), fmt.Sprintf("%05d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for j := range perDir - 1 {
			name := filepath.Join(dir, fmt.Sprintf("%04d.txt", j))
			if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Chtimes(name, past, past)); err != nil {
				return err
			}
		}
	}
	for i := range 2 {
		took, err := w.capture("entries")
		if err != nil {
			return err
		}
		rows[i].Cairn = took.peakMB
		rows[i].Note = fmt.Sprintf("%.1f s, %d processors", took.ms/1e3, runtime.GOMAXPROCS(0))
	}
	return nil
}

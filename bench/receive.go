package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// receive compares a push of a prepared pack with git index-pack of the same: the
// time, and in the second row the server's peak memory.
func (b *bench) receive(rows []row, blobs, size int, text bool) error {
	p, err := prepare(filepath.Join(b.dir, "prepared.pack"), blobs, size, text)
	if err != nil {
		return err
	}
	defer os.Remove(p.path)
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	defer func(rounds int) { b.rounds = rounds }(b.rounds)
	b.rounds = min(b.rounds, 3)
	round, first := 0, 0.0
	push := func() (float64, error) {
		round++
		name := fmt.Sprintf("pushed%d", round)
		if err := s.CreateRepo(name); err != nil {
			return 0, err
		}
		c, err := dial(s.URL)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		start := time.Now()
		err = c.pushFile(s.URL+"/"+name+".git", basic(s.Token(harness.Grant{Repo: name})), p)
		elapsed := since(start)
		if first == 0 {
			first = peakMemory(s.PID())
		}
		return elapsed / 1e3, err
	}
	if err := b.beside(&rows[0], push, func() (float64, error) { return b.indexPack(p) }); err != nil {
		return err
	}
	rows[1].Cairn = peakMemory(s.PID())
	rows[1].Note = fmt.Sprintf("%d pushes of %d objects, %d MB each; after the first %.0f MB", round, p.objects, p.size/1e6, first)
	return nil
}

// indexPack is the time that git takes to keep and index a pack that it reads, in
// seconds.
func (b *bench) indexPack(p prepared) (float64, error) {
	dir := filepath.Join(b.dir, "indexed.git")
	if _, err := git(b.dir, "", "init", "-q", "--bare", dir); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	f, err := os.Open(p.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	cmd := exec.Command("git", "index-pack", "--stdin")
	cmd.Dir, cmd.Env, cmd.Stdin = dir, harness.GitEnv(b.dir), f
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("git index-pack: %w: %s", err, out)
	}
	return since(start) / 1e3, nil
}

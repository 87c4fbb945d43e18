package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// familyCommits is how many commits each fork gets.
const familyCommits = 20

// family measures the bytes of a large repository with many forks that have
// commits of their own, as they are and after each kind of collection, beside the
// parent and what the forks added as git packs it.
func (b *bench) family(rows []row, mb, forks int) error {
	p, err := prepare(filepath.Join(b.dir, "parent.pack"), mb*4, 250_000, false)
	if err != nil {
		return err
	}
	defer os.Remove(p.path)
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	if err := s.CreateRepo("parent"); err != nil {
		return err
	}
	c, err := dial(s.URL)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.pushFile(s.URL+"/parent.git", basic(s.Token(harness.Grant{Repo: "parent"})), p); err != nil {
		return err
	}
	parent, err := keptBytes(s)
	if err != nil {
		return err
	}
	if _, err := together(s.URL, 8, spread(creations(s, "fork", 0, forks, "parent"), 8)); err != nil {
		return err
	}
	if err := commitInForks(s, forks); err != nil {
		return err
	}
	added, err := b.added(s, p)
	if err != nil {
		return err
	}
	ideal := float64(parent+int64(forks)*added) / 1e6
	rows[0].Note = fmt.Sprintf("parent %d bytes, new objects %d bytes for each fork", parent, added)
	for i, flags := range [][]string{nil, {}, {"--full"}} {
		if flags != nil {
			start := time.Now()
			if rows[i].Note, err = compact(s, flags...); err != nil || rows[i].Note != "" {
				return err
			}
			rows[3].Cairn += since(start) / 1e3
		}
		kept, err := keptBytes(s)
		if err != nil {
			return err
		}
		rows[i].compare(float64(kept)/1e6, ideal)
	}
	return b.orphan(&rows[4], s, forks, ideal)
}

// orphan purges the parent and clones forks.
func (b *bench) orphan(r *row, s *harness.Server, forks int, ideal float64) error {
	if _, err := s.Client("repo", "delete", "parent"); err != nil {
		return err
	}
	if _, err := s.Operate("repo", "purge", "parent", "--org", harness.Org); err != nil {
		return err
	}
	if _, err := compact(s, "--full"); err != nil {
		return err
	}
	kept, err := keptBytes(s)
	if err != nil {
		return err
	}
	r.compare(float64(kept)/1e6, ideal)
	for _, fork := range []int{0, forks / 2, forks - 1} {
		dir := filepath.Join(b.dir, "orphan.git")
		if _, err := git(b.dir, "", "clone", "-q", "--bare", s.Remote(harness.Grant{Repo: "fork" + strconv.Itoa(fork)}, ""), dir); err != nil {
			return err
		}
		n, err := git(dir, "", "rev-list", "--count", "main")
		if err == nil {
			_, err = git(dir, "", "fsck", "--full", "--strict")
		}
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
		if commits, _ := strconv.Atoi(n); commits <= familyCommits {
			return fmt.Errorf("fork %d has %q commits without its parent", fork, n)
		}
	}
	return nil
}

// keptBytes is all that a server keeps, its database and its packs, once it has
// removed what it retired.
func keptBytes(s *harness.Server) (int64, error) {
	last := int64(-1)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(3 * time.Second) {
		if err := restart(s); err != nil {
			return 0, err
		}
		now, err := stored(filepath.Join(s.Dir, "data"))
		if err != nil || now == last {
			return now, err
		}
		last = now
	}
	return last, nil
}

// commitInForks makes the commits of every fork over 8 connections.
func commitInForks(s *harness.Server, forks int) error {
	var wait sync.WaitGroup
	failures := make(chan error, 8)
	for i := range 8 {
		wait.Go(func() {
			for fork := i; fork < forks; fork += 8 {
				name := "fork" + strconv.Itoa(fork)
				token, n := s.Token(harness.Grant{Repo: name}), 0
				if _, err := alone(s.URL, familyCommits, func() []byte {
					n++
					return commitRequest(s, harness.Commit{Repo: name, Branch: "main", Message: "Save",
						Files: map[string]string{"work/state.txt": newWords(uint64(fork*familyCommits + n)).text(20)}}, token)
				}); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(failures)
	return <-failures
}

// added is the size of what one fork added, as one pack that git makes, in bytes.
func (b *bench) added(s *harness.Server, p prepared) (int64, error) {
	dir := filepath.Join(b.dir, "fork.git")
	defer os.RemoveAll(dir)
	if _, err := git(b.dir, "", "clone", "-q", "--bare", s.Remote(harness.Grant{Repo: "fork0"}, ""), dir); err != nil {
		return 0, err
	}
	if _, err := git(dir, "main\n^"+p.tip.String()+"\n", "pack-objects", "-q", "--revs", "added"); err != nil {
		return 0, err
	}
	packs, err := filepath.Glob(filepath.Join(dir, "added-*.pack"))
	if err != nil || len(packs) != 1 {
		return 0, fmt.Errorf("%d packs of what a fork added: %w", len(packs), err)
	}
	info, err := os.Stat(packs[0])
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

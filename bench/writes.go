package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// pushes compares whole `git push` processes of one small commit.
func (b *bench) pushes(r *row) error {
	h, err := b.tiny()
	if err != nil {
		return err
	}
	pushTo := func(name, remote string) (func() (float64, error), error) {
		dir, err := os.MkdirTemp(b.dir, "push-")
		if err != nil {
			return nil, err
		}
		if _, err := git(dir, "", "clone", "-q", h.dir, "work"); err != nil {
			return nil, err
		}
		work := filepath.Join(dir, "work")
		if _, err := git(work, "", "switch", "-q", "-c", "pushes"); err != nil {
			return nil, err
		}
		n := 0
		return func() (float64, error) {
			var times []float64
			for range 10 {
				n++
				if err := os.WriteFile(filepath.Join(work, "note.txt"), fmt.Appendf(nil, "%s %d\n", name, n), 0o644); err != nil {
					return 0, err
				}
				if _, err := git(work, "", "add", "note.txt"); err != nil {
					return 0, err
				}
				if _, err := git(work, "", "commit", "-q", "-m", "Save"); err != nil {
					return 0, err
				}
				cmd := exec.Command("git", "push", "-q", remote, "pushes")
				cmd.Dir, cmd.Env = work, harness.GitEnv(dir)
				start := time.Now()
				if out, err := cmd.CombinedOutput(); err != nil {
					return 0, fmt.Errorf("git push: %w: %s", err, out)
				}
				times = append(times, since(start))
			}
			return median(times), nil
		}, nil
	}
	ours, err := pushTo("cairn", b.shared.Remote(harness.Grant{Repo: h.name}, ""))
	if err != nil {
		return err
	}
	theirs, err := pushTo("peer", b.peer.URL+"/"+h.name+".git")
	if err != nil {
		return err
	}
	return b.beside(r, ours, theirs)
}

// commits gives each connection commits of three files on a branch of its own.
func commits(s *harness.Server, repo, run string) func(int) func() []byte {
	token := s.Token(harness.Grant{Repo: repo})
	return func(connection int) func() []byte {
		n := 0
		return func() []byte {
			n++
			c := harness.Commit{Repo: repo, Branch: fmt.Sprintf("agents/%s-%d", run, connection), Base: "main", Message: "Save", Files: map[string]string{}}
			for i := range 3 {
				c.Files[fmt.Sprintf("work/file%d.txt", i)] = fmt.Sprintf("%s %d %d %d\n%s", run, connection, n, i, strings.Repeat("state of the agent\n", 20))
			}
			return commitRequest(s, c, token)
		}
	}
}

// commitRequest makes a call of the commit API.
func commitRequest(s *harness.Server, c harness.Commit, token string) []byte {
	return request("POST", s.URL+harness.RepoPath(c.Repo)+"/commit-pack", c.Body(), "Content-Type: application/x-ndjson", "Authorization: Bearer "+token)
}

// commitsAlone measures the median time of a commit without company.
func (b *bench) commitsAlone(r *row) error {
	h, err := b.tiny()
	if err != nil {
		return err
	}
	round := 0
	return b.beside(r, func() (float64, error) {
		round++
		before, n := usedBy(b.shared), b.size(1000, 300)
		times, err := alone(b.shared.URL, n, commits(b.shared, h.name, fmt.Sprintf("alone%d", round))(0))
		r.each(b.shared, before, n)
		if err != nil {
			return 0, err
		}
		return median(times), nil
	}, nil)
}

// commitsTogether measures the commits a second of 8 writers on 8 branches.
func (b *bench) commitsTogether(r *row) error {
	h, err := b.tiny()
	if err != nil {
		return err
	}
	round := 0
	return b.beside(r, func() (float64, error) {
		round++
		before, start := usedBy(b.shared), time.Now()
		rate, err := b.rate(b.shared.URL, 8, commits(b.shared, h.name, fmt.Sprintf("together%d", round)))
		r.each(b.shared, before, max(1, int(rate*time.Since(start).Seconds())))
		return rate, err
	}, nil)
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/cairnstate/cairn/tests/harness"
)

// mergesEach is how many merges one figure is the median of.
const mergesEach = 12

// merging is a repository with pairs of branches that nobody has merged yet.
type merging struct {
	server *harness.Server
	repo   string
	token  string
	pairs  int // of branches that were made
}

// merges measures a merge of two branches, each with one change to a file of the
// same directory, in a repository of so many objects beside one ten times as large.
func (b *bench) merges(r *row, objects int) error {
	small, done, err := b.merging("merge", objects)
	if err != nil {
		return err
	}
	defer done()
	large, done, err := b.merging("merge10", 10*objects)
	if err != nil {
		return err
	}
	defer done()
	// the larger one counts as Cairn's, so that a ratio of 1 says that size costs nothing
	return b.beside(r, large.time, small.time)
}

func (b *bench) merging(name string, objects int) (*merging, func(), error) {
	p, err := prepare(filepath.Join(b.dir, name+".pack"), objects, 24, true)
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(p.path)
	s, done, err := b.fresh()
	if err != nil {
		return nil, nil, err
	}
	m := &merging{server: s, repo: name, token: s.Token(harness.Grant{Repo: name})}
	if err := m.fill(p); err != nil {
		done()
		return nil, nil, err
	}
	return m, done, nil
}

func (m *merging) fill(p prepared) error {
	if err := m.server.CreateRepo(m.repo); err != nil {
		return err
	}
	c, err := dial(m.server.URL)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.pushFile(m.server.URL+"/"+m.repo+".git", basic(m.token), p)
}

// time makes pairs of branches and returns the median time to merge one, in ms.
func (m *merging) time() (float64, error) {
	first := m.pairs
	for range mergesEach + 1 { // one more, for what is read once
		for _, side := range []string{"ours", "theirs"} {
			c := harness.Commit{Repo: m.repo, Branch: fmt.Sprintf("%s%d", side, m.pairs), Base: "main", Message: "Work", Token: m.token,
				Files: map[string]string{"d00000/" + side + ".txt": fmt.Sprintf("%s %d\n", side, m.pairs)}}
			a, err := m.server.Commit(http.DefaultClient, c)
			if err == nil && a.Status != http.StatusCreated {
				err = fmt.Errorf("%w: %d %s", errAnswer, a.Status, a.Body)
			}
			if err != nil {
				return 0, err
			}
		}
		m.pairs++
	}
	times, err := alone(m.server.URL, mergesEach+1, func() []byte {
		body := fmt.Sprintf(`{"source_ref":"theirs%d","target_branch":"ours%d","strategy":"merge"}`, first, first)
		first++
		return request("POST", m.server.URL+harness.RepoPath(m.repo)+"/merge", []byte(body), "Content-Type: application/json", "Authorization: Bearer "+m.token)
	})
	if err != nil {
		return 0, fmt.Errorf("merge: %w", err)
	}
	return median(times[1:]), nil
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// creations makes n requests that each create a repository, named by prefix and
// number, as a fork of source unless that is "". They are made, and their tokens
// signed, before anything is measured.
func creations(s *harness.Server, prefix string, from, n int, source string) [][]byte {
	document := map[string]any{"default_branch": "main"}
	if source != "" {
		document = map[string]any{"base_repo": map[string]any{
			"provider": "code", "owner": harness.Org, "name": source, "operation": "fork",
			"auth": map[string]string{"token": s.Token(harness.Grant{Repo: source, Scopes: []auth.Scope{auth.GitRead}})},
		}}
	}
	body, err := json.Marshal(document)
	if err != nil {
		panic(err) // the document is this program's
	}
	requests := make([][]byte, n)
	var wait sync.WaitGroup
	const signers = 4
	for i := range signers {
		wait.Go(func() {
			for j := i; j < n; j += signers {
				token := s.Token(harness.Grant{Repo: fmt.Sprintf("%s%d", prefix, from+j), Scopes: []auth.Scope{auth.RepoWrite}})
				requests[j] = request(http.MethodPost, s.URL+"/api/repos", body, "Content-Type: application/json", "Authorization: Bearer "+token)
			}
		})
	}
	wait.Wait()
	return requests
}

// spread deals requests out to connections.
func spread(requests [][]byte, connections int) func(int) func() []byte {
	return func(connection int) func() []byte {
		at := connection
		return func() []byte {
			if at >= len(requests) {
				return nil
			}
			r := requests[at]
			at += connections
			return r
		}
	}
}

// creating measures how many repositories a second are created over 8 connections
// (row 0), or forked from one with one branch when fork is set, and the growth of
// the database for each (row 1).
func (b *bench) creating(rows []row, fork bool) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	source := ""
	if fork {
		source = "source"
		if err := onePush(s, source, filepath.Join(b.dir, "source.pack")); err != nil {
			return err
		}
	}
	n, made := b.size(5000, 1000), 0
	more := func() (float64, error) {
		requests := creations(s, "made", made, n, source)
		made += n
		before := usedBy(s)
		rate, err := together(s.URL, 8, spread(requests, 8))
		rows[0].each(s, before, n)
		return rate, err
	}
	if _, err := more(); err != nil { // what the first ones cost is not theirs
		return err
	}
	before, err := databaseSize(s)
	if err != nil {
		return err
	}
	if err := b.beside(&rows[0], more, nil); err != nil {
		return err
	}
	after, err := databaseSize(s)
	rows[1].Cairn = float64(after-before) / float64(made-n)
	return err
}

// onePush makes a repository with one small commit on main.
func onePush(s *harness.Server, name, file string) error {
	p, err := prepare(file, 3, 100, true)
	if err != nil {
		return err
	}
	if err := s.CreateRepo(name); err != nil {
		return err
	}
	c, err := dial(s.URL)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.pushFile(s.URL+"/"+name+".git", basic(s.Token(harness.Grant{Repo: name})), p)
}

// databaseSize is how large the database is once all of it is in its one file.
func databaseSize(s *harness.Server) (int64, error) {
	if err := restart(s); err != nil {
		return 0, err
	}
	total := int64(0)
	files, err := filepath.Glob(filepath.Join(s.Dir, "data", "*.db*"))
	for _, f := range files {
		n, err := stored(f)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if total == 0 {
		return 0, fmt.Errorf("no database in %q", s.Dir)
	}
	return total, err
}

// million creates many repositories over 16 connections: the rate of the last
// twentieth beside that of the first, and the bytes for each.
func (b *bench) million(rows []row, n int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	if err := s.CreateRepo("first"); err != nil {
		return err
	}
	before, err := databaseSize(s)
	if err != nil {
		return err
	}
	var rates []float64
	const parts = 20
	for part := range parts {
		rate, err := together(s.URL, 16, spread(creations(s, "flat", part*n/parts, n/parts, ""), 16))
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	rows[0].compare(rates[parts-1], rates[0])
	rows[0].Note = fmt.Sprintf("rates of the twentieths: %.0f", rates)
	rows[2].Cairn = peakMemory(s.PID())
	after, err := databaseSize(s)
	rows[1].Cairn = float64(after-before) / float64(n)
	return err
}

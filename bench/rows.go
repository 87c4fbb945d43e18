package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// bench is what the measurements share.
type bench struct {
	root   string // the directory that git http-backend serves
	peer   *harness.Backend
	cairn  *harness.Server
	rounds int
	slice  time.Duration // of one measurement of a rate
	quick  bool
}

// row is one line of the result.
type row struct {
	Work   string  `json:"work"`
	Unit   string  `json:"unit"`
	Cairn  float64 `json:"cairn"`
	Peer   float64 `json:"peer,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // how many times better than the peer
	Goal   string  `json:"goal"`
	Target float64 `json:"target"` // what Ratio, or without a peer Cairn, is to reach
	Less   bool    `json:"less_is_better"`
}

// reached is the share of the goal that was reached: 1 or more is done.
func (r row) reached() float64 {
	switch {
	case r.Peer != 0:
		return r.Ratio / r.Target
	case r.Less:
		return r.Target / r.Cairn
	}
	return r.Cairn / r.Target
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// beside measures Cairn and the peer in turn and keeps the medians. Measurements
// are a rate, or a time when less is better.
func (b *bench) beside(r row, cairn, peer func() (float64, error)) (row, error) {
	var ours, theirs []float64
	for range b.rounds {
		v, err := cairn()
		if err != nil {
			return r, fmt.Errorf("%s: cairn: %w", r.Work, err)
		}
		ours = append(ours, v)
		if peer == nil {
			continue
		}
		if v, err = peer(); err != nil {
			return r, fmt.Errorf("%s: git http-backend: %w", r.Work, err)
		}
		theirs = append(theirs, v)
	}
	r.Cairn = median(ours)
	if peer != nil {
		r.Peer = median(theirs)
		r.Ratio = r.Cairn / r.Peer
		if r.Less {
			r.Ratio = r.Peer / r.Cairn
		}
	}
	return r, nil
}

// rate sends requests over connections until the slice is over and returns the
// number of answers a second. next gives each connection its requests.
func (b *bench) rate(base string, connections int, next func(connection int) func() []byte) (float64, error) {
	var done atomic.Int64
	var wait sync.WaitGroup
	failures := make(chan error, connections)
	start := time.Now()
	for i := range connections {
		wait.Go(func() {
			c, err := dial(base)
			if err != nil {
				failures <- err
				return
			}
			defer c.Close()
			request := next(i)
			for time.Since(start) < b.slice {
				if _, err := c.do(request()); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(start)
	close(failures)
	return float64(done.Load()) / elapsed.Seconds(), <-failures
}

func always(request []byte) func(int) func() []byte {
	return func(int) func() []byte { return func() []byte { return request } }
}

// requests makes the same upload-pack request for both servers.
func (b *bench) requests(f fixture, body []byte) (cairn, peer []byte) {
	token := b.cairn.Token(harness.Grant{Repo: f.name})
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token))
	return uploadPack(b.cairn.URL+"/"+f.name+".git", basic, body), uploadPack(b.peer.URL+"/"+f.name+".git", "", body)
}

// rates compares how many answers a second both give over 8 connections.
func (b *bench) rates(r row, f fixture, body []byte) (row, error) {
	ours, theirs := b.requests(f, body)
	r.Unit = "/s"
	return b.beside(r,
		func() (float64, error) { return b.rate(b.cairn.URL, 8, always(ours)) },
		func() (float64, error) { return b.rate(b.peer.URL, 8, always(theirs)) })
}

// answers compares the time and the bytes of one large answer to a client that
// throws it away. The bytes are a row of their own.
func (b *bench) answers(r row, f fixture, body []byte) ([]row, error) {
	ours, theirs := b.requests(f, body)
	size := row{Work: r.Work + ": bytes", Unit: "MB", Goal: "at most 1.1 x", Target: 1 / 1.1, Less: true}
	one := func(base string, request []byte, bytes *float64) func() (float64, error) {
		return func() (float64, error) {
			c, err := dial(base)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			start := time.Now()
			n, err := c.do(request)
			*bytes = float64(n) / 1e6
			return float64(time.Since(start)) / 1e6, err
		}
	}
	r.Unit, r.Less = "ms", true
	r, err := b.beside(r, one(b.cairn.URL, ours, &size.Cairn), one(b.peer.URL, theirs, &size.Peer))
	size.Ratio = size.Peer / size.Cairn
	return []row{r, size}, err
}

// pushes compares whole `git push` processes of one small commit.
func (b *bench) pushes(r row, f fixture) (row, error) {
	r.Unit, r.Less = "ms", true
	pushTo := func(name, remote string) (func() (float64, error), error) {
		dir, err := os.MkdirTemp(b.cairn.Dir, "push-")
		if err != nil {
			return nil, err
		}
		if _, err := git(dir, "", "clone", "-q", filepath.Join(b.root, f.name+".git"), "work"); err != nil {
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
				times = append(times, float64(time.Since(start))/1e6)
			}
			return median(times), nil
		}, nil
	}
	ours, err := pushTo("cairn", b.cairn.Remote(harness.Grant{Repo: f.name}, ""))
	if err != nil {
		return r, err
	}
	theirs, err := pushTo("peer", b.peer.URL+"/"+f.name+".git")
	if err != nil {
		return r, err
	}
	return b.beside(r, ours, theirs)
}

// commitRequests gives each connection commits of three files on a branch of its
// own.
func (b *bench) commitRequests(f fixture, run string) func(int) func() []byte {
	token := b.cairn.Token(harness.Grant{Repo: f.name})
	return func(connection int) func() []byte {
		n := 0
		return func() []byte {
			n++
			c := harness.Commit{Repo: f.name, Branch: fmt.Sprintf("agents/%s-%d", run, connection), Base: "main", Message: "Save", Files: map[string]string{}}
			for i := range 3 {
				c.Files[fmt.Sprintf("work/file%d.txt", i)] = fmt.Sprintf("%s %d %d %d\n%s", run, connection, n, i, strings.Repeat("state of the agent\n", 20))
			}
			return request("POST", b.cairn.URL+harness.RepoPath(f.name)+"/commit-pack", c.Body(),
				"Content-Type: application/x-ndjson", "Authorization: Bearer "+token)
		}
	}
}

// commitsAlone measures the median time of a commit without company.
func (b *bench) commitsAlone(r row, f fixture) (row, error) {
	r.Unit, r.Less = "ms", true
	round := 0
	return b.beside(r, func() (float64, error) {
		round++
		c, err := dial(b.cairn.URL)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		next := b.commitRequests(f, fmt.Sprintf("alone%d", round))(0)
		var times []float64
		for start := time.Now(); time.Since(start) < b.slice; {
			req := next()
			sent := time.Now()
			if _, err := c.do(req); err != nil {
				return 0, err
			}
			times = append(times, float64(time.Since(sent))/1e6)
		}
		if len(times) == 0 {
			return 0, errors.New("no commit in time")
		}
		return median(times), nil
	}, nil)
}

// commitsTogether measures the commits a second of 8 writers on 8 branches.
func (b *bench) commitsTogether(r row, f fixture) (row, error) {
	r.Unit = "/s"
	round := 0
	return b.beside(r, func() (float64, error) {
		round++
		return b.rate(b.cairn.URL, 8, b.commitRequests(f, fmt.Sprintf("together%d", round)))
	}, nil)
}

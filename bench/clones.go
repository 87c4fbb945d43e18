package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/tests/harness"
)

// serve makes a prepared pack the main branch of a repository on Cairn and, tidied,
// on the peer.
func (b *bench) serve(s *harness.Server, name string, p prepared) error {
	if err := s.CreateRepo(name); err != nil {
		return err
	}
	c, err := dial(s.URL)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.pushFile(s.URL+"/"+name+".git", basic(s.Token(harness.Grant{Repo: name})), p); err != nil {
		return err
	}
	dir := filepath.Join(b.root, name+".git")
	if _, err := git(b.root, "", "init", "-q", "--bare", dir); err != nil {
		return err
	}
	if err := os.Rename(p.path, filepath.Join(dir, "objects", "pack", "pack-prepared.pack")); err != nil {
		return err
	}
	if _, err := git(dir, "", "index-pack", filepath.Join("objects", "pack", "pack-prepared.pack")); err != nil {
		return err
	}
	if _, err := git(dir, "", "update-ref", "refs/heads/main", p.tip.String()); err != nil {
		return err
	}
	return tidy(dir)
}

// holding starts a server that holds one repository and was started anew since it
// was pushed, so that nothing of it is cached, and the same beside the peer.
func (b *bench) holding(name string, p prepared) (s *harness.Server, done func(), err error) {
	s, kill, err := b.fresh()
	if err != nil {
		return nil, nil, err
	}
	done = func() { kill(); os.RemoveAll(filepath.Join(b.root, name+".git")) }
	if err = b.serve(s, name, p); err == nil {
		err = restart(s)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

// clones measures many clones at once: the throughput beside that of the peer
// with a few at once, and the server's peak memory.
func (b *bench) clones(rows []row, mb, clients, peerClients int) error {
	p, err := prepare(filepath.Join(b.dir, "cloned.pack"), mb*4, 250_000, false)
	if err != nil {
		return err
	}
	s, done, err := b.holding("cloned", p)
	if err != nil {
		return err
	}
	defer done()
	ours, theirs := b.requests(s, "cloned", fetch(0, p.tip.String()))
	// bytes a second, when every client asks once
	throughput := func(base string, n int, req []byte) (float64, error) {
		start := time.Now()
		before := received.Load()
		if _, err := together(base, n, once(req)); err != nil {
			return 0, err
		}
		if got := received.Load() - before; got < int64(n)*p.size {
			return 0, fmt.Errorf("%w: %d bytes came in %d clones of %d", errAnswer, got, n, p.size)
		}
		return float64(n) * float64(p.size) / 1e6 / time.Since(start).Seconds(), nil
	}
	cairn, err := throughput(s.URL, clients, ours)
	if err != nil {
		return err
	}
	rows[1].Cairn = peakMemory(s.PID())
	peer, err := throughput(b.peer.URL, peerClients, theirs)
	rows[0].compare(cairn, peer)
	return err
}

// once gives every connection one request.
func once(request []byte) func(int) func() []byte {
	return func(int) func() []byte {
		next := request
		return func() []byte {
			r := next
			next = nil
			return r
		}
	}
}

// lazyWants is how many blobs a partial clone asks for at once.
const lazyWants = 10_000

// lazy measures the answer to many wanted blobs in a repository of so many
// objects.
func (b *bench) lazy(rows []row, objects int) error {
	p, err := prepare(filepath.Join(b.dir, "lazy.pack"), objects, 24, true)
	if err != nil {
		return err
	}
	s, done, err := b.holding("lazy", p)
	if err != nil {
		return err
	}
	defer done()
	// every round asks for others, so that no answer is at hand
	round := 0
	one := func(base string, pick func(ours, theirs []byte) []byte) func() (float64, error) {
		return func() (float64, error) {
			var wants []object.ID
			for i := range lazyWants {
				wants = append(wants, p.blobs[(i*(objects/lazyWants)+round)%objects])
			}
			round++
			c, err := dial(base)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			req := pick(b.requests(s, "lazy", lazyFetch(wants)))
			start := time.Now()
			if _, err := c.do(req); err != nil {
				return 0, err
			}
			elapsed := since(start)
			n, err := packed(c.head)
			if err == nil && n != lazyWants {
				err = fmt.Errorf("%w: %d objects came for %d wants", errAnswer, n, lazyWants)
			}
			return elapsed, err
		}
	}
	if err := b.beside(&rows[0], one(s.URL, func(ours, _ []byte) []byte { return ours }), one(b.peer.URL, func(_, theirs []byte) []byte { return theirs })); err != nil {
		return err
	}
	rows[1].Cairn, rows[2].Cairn = rows[0].Cairn, peakMemory(s.PID())
	return nil
}

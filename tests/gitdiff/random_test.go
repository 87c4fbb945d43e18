package gitdiff_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

// sequence makes random changes on both servers and compares what clients see.
type sequence struct {
	*testing.T
	*rand.Rand
	pair
	peerRepo harness.Git
	author   harness.Git
	branches []string
	tags     []string
	counter  int
	log      []string
	followed []follower
}

// follower is a client that fetches again and again from both servers.
type follower struct {
	name        string
	fetch       []string
	cairn, peer harness.Git
}

// TestRandomSequences lets two repositories, one on each server, go through the
// same random pushes, forced pushes, deletions and fetches. Set CAIRN_SEED to run
// one sequence again.
func TestRandomSequences(t *testing.T) {
	sequences, steps := 2, 30
	if testkit.Soaking() {
		sequences, steps = 20, 300
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CAIRN_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("CAIRN_SEED: %v", err)
		}
		seed, sequences = n, 1
	}
	s := serve(t)
	for i := range sequences {
		t.Run(fmt.Sprintf("CAIRN_SEED=%d", seed+uint64(i)), func(t *testing.T) { random(t, s, seed+uint64(i), steps) })
	}
}

func random(t *testing.T, s *servers, seed uint64, steps int) {
	name := fmt.Sprintf("random-%d", seed)
	if err := s.cairn.CreateRepo(name); err != nil {
		t.Fatal(err)
	}
	q := &sequence{T: t, Rand: rand.New(rand.NewPCG(seed, 2))}
	q.pair = pair{s.cairn.Remote(harness.Grant{Repo: name}, ""), s.peer.URL + "/" + name + ".git"}
	q.author = harness.NewGit(t)
	q.author.In(s.root).Run("init", "-q", "--bare", name+".git")
	q.peerRepo = q.author.In(s.root).In(name + ".git")
	q.author.Run("init", "-q")
	q.author.Save("start.txt", "start\n")
	q.branches = []string{"main"}
	q.push("refs/heads/main")
	for _, f := range []follower{
		{name: "full", fetch: []string{"fetch", "-q", "--prune", "--prune-tags", "--force", "origin"}},
		{name: "shallow", fetch: []string{"fetch", "-q", "--prune", "--force", "--depth", "2", "origin"}},
		{name: "partial", fetch: []string{"fetch", "-q", "--prune", "--force", "origin"}},
	} {
		clone := map[string][]string{"full": nil, "shallow": {"--depth", "2", "--no-single-branch"}, "partial": {"--filter=blob:none"}}[f.name]
		f.cairn, f.peer = harness.NewGit(t), harness.NewGit(t)
		f.cairn.Run(append(append([]string{"clone", "-q", "--no-checkout"}, clone...), q.cairn, "work")...)
		f.peer.Run(append(append([]string{"clone", "-q", "--no-checkout"}, clone...), q.peer, "work")...)
		f.cairn, f.peer = f.cairn.In("work"), f.peer.In("work")
		q.followed = append(q.followed, f)
	}
	for range steps {
		q.step()
		if t.Failed() {
			t.Fatalf("the sequence so far:\n%s", strings.Join(q.log, "\n"))
		}
	}
	for _, f := range q.followed {
		f.cairn.Fsck()
	}
	check := harness.NewGit(t)
	check.Run("clone", "-q", "--mirror", q.cairn, "mirror")
	check.In("mirror").Fsck()
	if ours, theirs := check.In("mirror").Refs(), q.peerRepo.Refs(); !slices.Equal(ours, theirs) {
		t.Errorf("a mirror of Cairn has %q, the peer %q", ours, theirs)
	}
}

func (q *sequence) note(format string, args ...any) {
	q.log = append(q.log, fmt.Sprintf(format, args...))
}

func (q *sequence) pick(from []string) string { return from[q.IntN(len(from))] }

// push pushes the same refspecs to both servers, which must agree.
func (q *sequence) push(specs ...string) {
	q.Helper()
	q.note("push %s", strings.Join(specs, " "))
	out, err := q.author.Try(append([]string{"push", "-q", q.cairn}, specs...)...)
	peerOut, peerErr := q.author.Try(append([]string{"push", "-q", q.peer}, specs...)...)
	if (err == nil) != (peerErr == nil) {
		q.Fatalf("push %q: Cairn %v %s; git http-backend %v %s\n%s", specs, err, out, peerErr, peerOut, strings.Join(q.log, "\n"))
	}
	q.agree()
}

// agree compares what both servers list.
func (q *sequence) agree() {
	q.Helper()
	ours, theirs := q.author.Run("ls-remote", q.cairn), q.author.Run("ls-remote", q.peer)
	if ours != theirs {
		q.Errorf("Cairn lists\n%s\ngit http-backend lists\n%s", ours, theirs)
	}
}

// grow adds commits to a branch of the author.
func (q *sequence) grow(branch string) {
	q.author.Run("checkout", "-q", branch)
	for range 1 + q.IntN(3) {
		q.counter++
		path := fmt.Sprintf("d%d/f%d.txt", q.IntN(4), q.IntN(12))
		q.author.Save(path, fmt.Sprintf("%d\n%s", q.counter, strings.Repeat("text\n", q.IntN(400))))
	}
	if q.IntN(4) == 0 {
		q.author.Try("merge", "-q", "-s", "ours", "-m", "Merge", q.pick(q.branches))
	}
}

func (q *sequence) step() {
	switch n := q.IntN(12); {
	case n < 3: // forward
		b := q.pick(q.branches)
		q.grow(b)
		q.push("refs/heads/" + b)
	case n < 4: // several at once
		var specs []string
		for _, b := range q.branches[:min(3, len(q.branches))] {
			q.grow(b)
			specs = append(specs, "refs/heads/"+b)
		}
		q.push(specs...)
	case n < 6: // a new branch
		q.counter++
		b := fmt.Sprintf("topic/%d", q.counter)
		q.author.Run("branch", b, q.pick(q.branches))
		q.grow(b)
		q.branches = append(q.branches, b)
		q.push("refs/heads/" + b)
	case n < 7: // rewritten
		b := q.pick(q.branches)
		q.author.Run("checkout", "-q", b)
		q.author.Try("reset", "-q", "--hard", "HEAD~1")
		q.grow(b)
		q.push("refs/heads/" + b) // refused by the client, or forward
		q.push("+refs/heads/" + b)
	case n < 8: // removed
		if len(q.branches) > 1 {
			i := 1 + q.IntN(len(q.branches)-1)
			b := q.branches[i]
			q.author.Run("checkout", "-q", "main")
			q.author.Run("branch", "-D", b)
			q.branches = slices.Delete(q.branches, i, i+1)
			q.push(":refs/heads/" + b)
		}
	case n < 9: // tags
		q.counter++
		tag := fmt.Sprintf("v%d", q.counter)
		q.author.Run("tag", "-a", "-m", "Tag", tag, q.pick(q.branches))
		q.tags = append(q.tags, tag)
		q.push("refs/tags/" + tag)
		if len(q.tags) > 3 {
			q.push(":refs/tags/" + q.tags[0])
			q.tags = q.tags[1:]
		}
	case n < 10: // from a shallow clone
		b := q.pick(q.branches)
		q.counter++
		dir := fmt.Sprintf("shallow%d", q.counter)
		q.note("push to %s from a shallow clone", b)
		q.author.Run("clone", "-q", "--depth", "1", "--branch", b, q.cairn, dir)
		clone := q.author.In(dir)
		clone.Save("shallow.txt", fmt.Sprintf("%d\n", q.counter))
		clone.Run("push", "-q", q.cairn, "HEAD:refs/heads/"+b)
		clone.Run("push", "-q", q.peer, "HEAD:refs/heads/"+b)
		q.author.Run("checkout", "-q", b)
		q.author.Run("pull", "-q", "--ff-only", "--no-tags", q.cairn, b)
		q.agree()
	default:
		q.fetch()
	}
}

// fetch lets every follower fetch from its server, and compares them.
func (q *sequence) fetch() {
	for _, f := range q.followed {
		protocol := q.IntN(3)
		q.note("%s fetches with protocol %d", f.name, protocol)
		_, err := f.cairn.Protocol(protocol).Try(f.fetch...)
		_, peerErr := f.peer.Protocol(protocol).Try(f.fetch...)
		q.Run(f.name, func(t *testing.T) {
			ours, theirs := read(f.cairn, err), read(f.peer, peerErr)
			same(t, ours, theirs)
		})
	}
}

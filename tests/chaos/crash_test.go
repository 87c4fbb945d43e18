package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// saved is one acknowledged commit of a writer.
type saved struct{ commit, path, content string }

// writer saves to one branch, one commit after another, until a save fails.
type writer struct {
	branch  string
	tip     string // the last commit known to be there
	pending string // what a save without an answer would make: its content, or its commit
	count   int
	done    []saved

	// save makes the next commit and returns it, or "" without an answer.
	save func(w *writer) string
}

func (w *writer) run(inFlight *atomic.Int64, stop *atomic.Bool) {
	for !stop.Load() {
		w.count++
		inFlight.Add(1)
		commit := w.save(w)
		if commit == "" {
			return // the kill comes between request and answer
		}
		inFlight.Add(-1)
		w.tip, w.pending = commit, ""
	}
}

// crashes is one run of the test.
type crashes struct {
	*testing.T
	server  *harness.Server
	mirror  harness.Git
	remote  string
	writers []*writer
}

// TestCrashesLoseNothing kills the server again and again while commits and pushes
// are under way: 200 times in all, and 200 times on each engine in a soak. Set
// CAIRN_SEED to choose when the kills come.
func TestCrashesLoseNothing(t *testing.T) {
	seed := testkit.Seed(t)
	kills := map[string]int{"sqlite": 170, "postgres": 30}
	for _, e := range engines {
		n := kills[e.name]
		if testkit.Soaking() {
			n = 200
		}
		t.Run(e.name, func(t *testing.T) { crash(t, e.options(t), rand.New(rand.NewPCG(seed, 3)), n) })
	}
}

func crash(t *testing.T, options harness.Options, random *rand.Rand, kills int) {
	c := newCrashes(t, options)
	between := 0
	for k := range kills {
		var inFlight atomic.Int64
		var stop atomic.Bool
		var wait sync.WaitGroup
		for _, w := range c.writers {
			wait.Go(func() { w.run(&inFlight, &stop) })
		}
		time.Sleep(time.Duration(5+random.IntN(250)) * time.Millisecond)
		stop.Store(random.IntN(4) == 0) // now and then the answers come first
		if stop.Load() {
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		c.server.Kill()
		wait.Wait()
		if inFlight.Load() > 0 {
			between++
		}
		if err := c.server.Restart(); err != nil {
			t.Fatalf("restart: %v", err)
		}
		c.check()
		if k%10 == 9 || testkit.Soaking() {
			c.fsck()
		}
	}
	total := c.finish()
	t.Logf("%d kills, %d (%d %%) between a request and its answer; %d acknowledged commits", kills, between, 100*between/kills, total)
	if 3*between < kills {
		t.Errorf("only %d of %d kills came between a request and its answer", between, kills)
	}
}

func newCrashes(t *testing.T, options harness.Options) *crashes {
	t.Helper()
	c := &crashes{T: t, server: harness.Serve(t, options)}
	const repo = "crash"
	if err := c.server.CreateRepo(repo); err != nil {
		t.Fatal(err)
	}
	c.remote = c.server.Remote(harness.Grant{Repo: repo}, "")
	first, err := c.server.Commit(nil, harness.Commit{Repo: repo, Branch: "main", Files: map[string]string{"start": "start\n"}})
	if err != nil || first.Status != http.StatusCreated {
		t.Fatalf("first commit: %v, %d %s", err, first.Status, first.Body)
	}
	main := first.Text("commit", "commit_sha")
	for i := range 4 {
		c.writers = append(c.writers, &writer{branch: fmt.Sprintf("api/%d", i), save: c.commit(repo)})
	}
	c.mirror = harness.NewGit(t)
	c.mirror.Run("clone", "-q", "--mirror", c.remote, "mirror.git")
	for i := range 2 {
		c.mirror.Run("clone", "-q", "mirror.git", fmt.Sprintf("work%d", i))
		c.writers = append(c.writers, &writer{branch: fmt.Sprintf("git/%d", i), save: c.push(c.mirror.In(fmt.Sprintf("work%d", i)), main)})
	}
	c.mirror = c.mirror.In("mirror.git")
	return c
}

// commit saves over the commit API.
func (c *crashes) commit(repo string) func(*writer) string {
	client := c.server.HTTP()
	token := c.server.Token(harness.Grant{Repo: repo})
	return func(w *writer) string {
		content := fmt.Sprintf("%s %d\n%s", w.branch, w.count, strings.Repeat("state\n", w.count%50*40))
		w.pending = content
		a, err := c.server.Commit(client, harness.Commit{Repo: repo, Branch: w.branch, Base: "main", Expected: w.tip, Token: token,
			Files: map[string]string{"state.txt": content, fmt.Sprintf("d%d/f%d", w.count%7, w.count): content}})
		if err != nil {
			client.CloseIdleConnections()
			return ""
		}
		if a.Status != http.StatusCreated {
			c.Errorf("commit to %s on %q: %d %s", w.branch, w.tip, a.Status, a.Body)
			return ""
		}
		commit := a.Text("commit", "commit_sha")
		w.done = append(w.done, saved{commit, "state.txt", content})
		return commit
	}
}

// push saves with git push, from commits that it makes without touching files.
func (c *crashes) push(g harness.Git, base string) func(*writer) string {
	last := base
	return func(w *writer) string {
		if w.pending == "" || w.pending == w.tip {
			content := fmt.Sprintf("%s %d\n", w.branch, w.count)
			blob := g.Input(content, "hash-object", "-w", "--stdin")
			tree := g.Input("100644 blob "+blob+"\tstate.txt\n", "mktree")
			w.pending = g.Run("commit-tree", "-p", last, "-m", "Save", tree)
			last = w.pending
		}
		if _, err := g.Try("push", "-q", c.remote, w.pending+":refs/heads/"+w.branch); err != nil {
			return ""
		}
		w.done = append(w.done, saved{w.pending, "state.txt", g.Run("cat-file", "blob", w.pending+":state.txt") + "\n"})
		return w.pending
	}
}

// check holds what is there after a crash against what was acknowledged: a branch
// is where its last answer left it, or one whole commit further.
func (c *crashes) check() {
	c.Helper()
	c.mirror.Run("fetch", "-q", "--prune", "origin")
	tips := map[string]string{}
	for _, ref := range c.mirror.Refs("refs/heads") {
		commit, name, _ := strings.Cut(ref, " ")
		tips[strings.TrimPrefix(name, "refs/heads/")] = commit
	}
	for _, w := range c.writers {
		got := tips[w.branch]
		if got == w.tip {
			if !strings.HasPrefix(w.branch, "git/") {
				w.pending = ""
			}
			continue
		}
		if got == "" {
			c.Fatalf("%s is gone; it was at %s", w.branch, w.tip)
		}
		if strings.HasPrefix(w.branch, "git/") {
			if got != w.pending {
				c.Fatalf("%s is at %s, want the acknowledged %s or the pushed %s", w.branch, got, w.tip, w.pending)
			}
		} else {
			parent := c.mirror.Run("rev-parse", got+"^")
			content := c.mirror.Run("cat-file", "blob", got+":state.txt")
			if (w.tip != "" && parent != w.tip) || content != strings.TrimSpace(w.pending) {
				c.Fatalf("%s is at %s, which is neither the acknowledged %s nor the commit that was asked for on top of it", w.branch, got, w.tip)
			}
		}
		w.tip, w.pending = got, ""
	}
}

// fsck has both programs check what is there.
func (c *crashes) fsck() {
	c.Helper()
	c.mirror.Fsck()
	if out, err := c.server.Operate("fsck"); err != nil {
		c.Errorf("cairn fsck: %v\n%s", err, out)
	}
}

// finish checks everything once more with both programs, and that every
// acknowledged commit is in the history with its content. It returns their number.
func (c *crashes) finish() int {
	c.Helper()
	fresh := harness.NewGit(c)
	fresh.Run("clone", "-q", "--mirror", c.remote, "fresh.git")
	fresh = fresh.In("fresh.git")
	fresh.Fsck()
	if out, err := c.server.Operate("fsck"); err != nil {
		c.Errorf("cairn fsck: %v\n%s", err, out)
	}
	reachable := map[string]bool{}
	for commit := range strings.FieldsSeq(fresh.Run("rev-list", "--all")) {
		reachable[commit] = true
	}
	total := 0
	for _, w := range c.writers {
		for i, s := range w.done {
			total++
			if !reachable[s.commit] {
				c.Errorf("acknowledged commit %s of %s is lost", s.commit, w.branch)
			} else if i%10 == 0 || i == len(w.done)-1 {
				if got := fresh.Run("cat-file", "blob", s.commit+":"+s.path); got != strings.TrimSpace(s.content) {
					c.Errorf("commit %s of %s has other content than was saved", s.commit, w.branch)
				}
			}
		}
	}
	return total
}

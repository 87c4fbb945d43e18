package chaos_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

// throttle is a TCP proxy that gives answers to its clients at a limited rate.
type throttle struct {
	net.Listener
	target  string
	rate    int           // bytes a second
	flowing chan struct{} // closed when one answer has given a tenth of a second's worth, but at least 64 KiB
	once    sync.Once
}

func newThrottle(t *testing.T, target string, rate int) *throttle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &throttle{Listener: l, target: target, rate: rate, flowing: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *throttle) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	// A small window, or the kernel would take most of the answer at once.
	if err := server.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		return
	}
	go func() {
		io.Copy(server, client)
		server.(*net.TCPConn).CloseWrite()
	}()
	const tick = 50 * time.Millisecond
	piece := make([]byte, max(1, p.rate/int(time.Second/tick)))
	start, sent := time.Now(), 0
	for {
		n, err := server.Read(piece)
		if _, werr := client.Write(piece[:n]); err != nil || werr != nil {
			return
		}
		sent += n
		if sent >= max(64<<10, p.rate/10) {
			p.once.Do(func() { close(p.flowing) })
		}
		time.Sleep(time.Until(start.Add(time.Duration(float64(sent) / float64(p.rate) * float64(time.Second)))))
	}
}

// through is a remote's URL by way of the proxy.
func (p *throttle) through(remote string) string {
	return strings.Replace(remote, p.target, p.Addr().String(), 1)
}

// collected is what `cairn gc --json` says about a run.
type collected struct {
	Total struct {
		Changed int `json:"changed"`
	} `json:"total"`
}

// churn writes to a repository and collects it.
type churn struct {
	*testing.T
	server *harness.Server
	repo   string
	remote string
	work   harness.Git
	data   string // the directory with the packs

	main    []string // commits of main, oldest first
	moving  string   // the commit of moving
	gone    string   // a branch that is deleted next
	forks   int
	peak    int64 // bytes below data
	changed int   // repositories that collections changed
}

// commit makes a commit on parents without touching files.
func (c *churn) commit(content string, parents ...string) string {
	c.Helper()
	blob := c.work.Input(content, "hash-object", "-w", "--stdin")
	tree := c.work.Input("100644 blob "+blob+"\tstate\n", "mktree")
	args := []string{"commit-tree", "-m", "Save"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return c.work.Run(append(args, tree)...)
}

// round pushes a commit to main and another branch, moves one by force, deletes
// one, and forks and checks the fork.
func (c *churn) round(n int) {
	c.Helper()
	tip := c.commit(fmt.Sprintf("main %d\n", n), c.main[len(c.main)-1])
	moving := c.commit(fmt.Sprintf("moving %d\n", n)+noise(uint64(n), 64<<10), c.main[0])
	branch := fmt.Sprintf("refs/heads/gone/%d", n)
	args := []string{"push", "-q", c.remote, tip + ":refs/heads/main", "+" + moving + ":refs/heads/moving", moving + ":" + branch}
	if c.gone != "" {
		args = append(args, ":"+c.gone)
	}
	c.work.Run(args...)
	c.main, c.moving, c.gone = append(c.main, tip), moving, branch
	if n%3 == 0 {
		c.fork(tip)
	}
}

// fork makes a fork, clones its main branch, which is at tip, and removes it.
func (c *churn) fork(tip string) {
	c.Helper()
	c.forks++
	name := fmt.Sprintf("fork-%d", c.forks)
	if err := c.server.Fork(name, c.repo); err != nil {
		c.Fatal(err)
	}
	g := harness.NewGit(c.T)
	g.Run("clone", "-q", "--depth", "1", "--branch", "main", c.server.Remote(harness.Grant{Repo: name}, ""), "fork")
	g.In("fork").Fsck()
	if got := g.In("fork").Run("rev-parse", "HEAD"); got != tip {
		c.Errorf("the fork's main is at %s, want %s", got, tip)
	}
	token := c.server.Token(harness.Grant{Repo: name, Scopes: []auth.Scope{auth.RepoWrite}})
	a, err := c.server.Do(nil, http.MethodDelete, harness.RepoPath(name), token, "", nil)
	if err != nil || a.Status != http.StatusOK {
		c.Fatalf("delete %s: %v, %d %s", name, err, a.Status, a.Body)
	}
}

// collect runs a collection that keeps no garbage. It may run beside round.
func (c *churn) collect(how ...string) {
	c.Helper()
	out, err := c.server.Operate(append([]string{"gc", "--json", "--unseen-grace", "0s", "--garbage-grace", "0s"}, how...)...)
	if err != nil {
		c.Error(err)
		return
	}
	var res collected
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		c.Errorf("cairn gc printed %q: %v", out, err)
	}
	c.changed += res.Total.Changed
	c.peak = max(c.peak, c.stored())
}

// stored is how many bytes of packs there are. What goes away meanwhile is not
// counted.
func (c *churn) stored() int64 {
	total := int64(0)
	filepath.WalkDir(c.data, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

// noise is content that does not compress, a function of seed.
func noise(seed uint64, size int) string {
	random := rand.New(rand.NewPCG(seed, 17))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return string(b)
}

// TestSoakThrottledClone clones slowly (20 minutes in a soak) while the
// repository is written to, forked, repacked and collected without grace.
func TestSoakThrottledClone(t *testing.T) {
	const piece = 1 << 20
	pieces, length, pause := 10, 8*time.Second, 500*time.Millisecond
	if testkit.Soaking() {
		pieces, length, pause = 24, 20*time.Minute, 10*time.Second
	}
	s := harness.Serve(t, harness.Options{Args: []string{"--log-level", "warn", "--memory-cache", "8MiB", "--unseen-grace", "0s", "--garbage-grace", "0s"}})
	c := &churn{T: t, server: s, repo: "slow", remote: s.Remote(harness.Grant{Repo: "slow", TTL: 2 * time.Hour}, ""), work: harness.NewGit(t), data: filepath.Join(s.Dir, "data", "blobs")}
	if err := s.CreateRepo(c.repo); err != nil {
		t.Fatal(err)
	}
	c.work.Run("init", "-q")
	for i := range pieces {
		c.work.Write(fmt.Sprint("noise", i), noise(uint64(i), piece))
	}
	c.work.Run("add", ".")
	c.work.Run("-c", "core.compression=0", "commit", "-q", "-m", "Start")
	c.main = []string{c.work.Run("rev-parse", "HEAD")}
	c.main = append(c.main, c.commit("main\n", c.main[0]))
	c.work.Run("push", "-q", c.remote, c.main[1]+":refs/heads/main", c.main[0]+":refs/heads/moving")
	began := c.stored()
	cloned := slices.Clone(c.main)

	proxy := newThrottle(t, strings.TrimPrefix(s.URL, "http://"), int(float64(pieces*piece)/length.Seconds()))
	slow := harness.NewGit(t)
	ended := make(chan struct{})
	var out string
	var err error
	go func() {
		defer close(ended)
		out, err = slow.Try("clone", "-q", "--mirror", proxy.through(c.remote), "slow.git")
	}()
	select {
	case <-proxy.flowing:
	case <-ended:
		t.Fatalf("the clone ended before the answer began: %v\n%s", err, out)
	}
	before := c.changed
	c.collect("--full") // before there are forks, which would keep the first pack as it is
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			c.collect("--full")
			select {
			case <-ended:
				return
			case <-time.After(pause):
			}
		}
	})
	rounds := 0
	for under := true; under; rounds++ {
		c.round(rounds)
		select {
		case <-ended:
			under = false
		case <-time.After(pause):
		}
	}
	collector.Wait()
	if err != nil {
		t.Fatalf("the slow clone: %v\n%s", err, out)
	}
	slow.In("slow.git").Fsck()
	if got := strings.Fields(slow.In("slow.git").Run("rev-list", "--reverse", "main")); !slices.Equal(got, cloned) {
		t.Errorf("the slow clone's main has %q, want %q", got, cloned)
	}
	t.Logf("%d rounds, %d forks, %d collections that changed a repository; packs of %d bytes grew to %d", rounds, c.forks, c.changed-before, began, c.peak)
	if c.changed == before {
		t.Error("no collection changed anything during the clone")
	}
	if c.peak < began+began/2 {
		t.Errorf("packs of %d bytes grew to %d only: nothing was replaced during the clone", began, c.peak)
	}
	c.verify()
	if testkit.Soaking() {
		c.shrink(began)
	}
}

// verify holds a fresh clone against what was acknowledged.
func (c *churn) verify() {
	c.Helper()
	g := harness.NewGit(c.T)
	g.Run("clone", "-q", "--mirror", c.remote, "fresh.git")
	g = g.In("fresh.git")
	g.Fsck()
	if got := strings.Fields(g.Run("rev-list", "--reverse", "refs/heads/main")); !slices.Equal(got, c.main) {
		c.Errorf("main has %d commits up to %s, want the %d acknowledged up to %s", len(got), got[len(got)-1], len(c.main), c.main[len(c.main)-1])
	}
	want := []string{c.moving + " " + c.gone, c.main[len(c.main)-1] + " refs/heads/main", c.moving + " refs/heads/moving"}
	if got := g.Refs(); !slices.Equal(got, want) {
		c.Errorf("refs are %q, want %q", got, want)
	}
	if out, err := c.server.Operate("fsck"); err != nil {
		c.Errorf("cairn fsck: %v\n%s", err, out)
	}
}

// shrink collects until the replaced packs are gone, whose bytes stay as long as an
// operation may be reading them and as clocks may differ.
func (c *churn) shrink(began int64) {
	c.Helper()
	for range 60 {
		c.collect()
		if c.stored() < began+began/2 {
			c.Logf("%d bytes of packs are left", c.stored())
			return
		}
		time.Sleep(5 * time.Second)
	}
	c.Errorf("%d bytes of packs are left of %d, and %d at the start", c.stored(), c.peak, began)
}

// TestCloneRacesForcePush clones in every way while the branches are pushed back
// and forth: the tip that a clone was told may leave before it asks.
func TestCloneRacesForcePush(t *testing.T) {
	times := 4
	if testkit.Soaking() {
		times = 100
	}
	s := harness.Serve(t, harness.Options{Args: []string{"--log-level", "warn"}})
	root := begun(t, s, "race")
	remote := s.Remote(harness.Grant{Repo: "race"}, "")
	work := harness.NewGit(t)
	work.Run("clone", "-q", remote, ".")
	var tips []string
	for side := range 2 {
		work.Run("checkout", "-q", "-B", fmt.Sprint("side", side), root)
		for n := range 10 {
			work.Save(fmt.Sprintf("d%d/f%d", n%3, n), fmt.Sprintf("side %d, %d\n", side, n))
		}
		tips = append(tips, work.Run("rev-parse", "HEAD"))
	}
	var stop atomic.Bool
	var moves atomic.Int64
	var pushers, cloners sync.WaitGroup
	for _, branch := range []string{"main", "other"} {
		pushers.Go(func() {
			for n := 0; !stop.Load(); n++ {
				if out, err := work.Try("push", "-q", remote, "+"+tips[n%2]+":refs/heads/"+branch); err != nil {
					t.Errorf("push to %s: %v\n%s", branch, err, out)
					return
				}
				moves.Add(1)
			}
		})
	}
	g := harness.NewGit(t)
	for _, version := range []int{0, 2} {
		for _, way := range [][]string{nil, {"--depth=1"}} {
			cloners.Go(func() {
				g := g.Protocol(version)
				for n := range times {
					dir := fmt.Sprintf("v%d-%d-%d", version, len(way), n)
					args := append([]string{"clone", "-q", "--branch", "main"}, way...)
					if out, err := g.Try(append(args, remote, dir)...); err != nil {
						t.Errorf("clone %s: %v\n%s", dir, err, out)
						continue
					}
					if out, err := g.In(dir).Try("fsck", "--full", "--strict"); err != nil {
						t.Errorf("fsck of %s: %v\n%s", dir, err, out)
					}
					head, err := g.In(dir).Try("rev-parse", "HEAD")
					if head = strings.TrimSpace(head); err != nil || head != root && !slices.Contains(tips, head) {
						t.Errorf("clone %s is at %q (%v), want one of %q", dir, head, err, append(tips, root))
					}
				}
			})
		}
	}
	cloners.Wait()
	stop.Store(true)
	pushers.Wait()
	t.Logf("%d clones during %d pushes", 4*times, moves.Load())
	if moves.Load() < 4 {
		t.Errorf("only %d pushes were made during the clones", moves.Load())
	}
}

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/stack"
)

// outage is a file system as a loss of power left it, and what must be found.
type outage struct {
	point int64
	how   string
	disk  *fsx.Mem
	marks []mark
}

// plant runs a workload and takes the power from copies of its disk at every
// sync.
type plant struct {
	disk    *fsx.Mem
	clock   *stack.Clock
	seed    uint64
	clones  int   // ways in which each loss of power goes
	least   int64 // sync points
	threads bool  // of checkpoints only
	wrap    func(fsx.FS) fsx.FS
	workers []*worker

	points  atomic.Int64
	off     atomic.Bool
	mu      sync.Mutex
	outages []outage
	room    *sync.Cond
}

func newPlant(seed uint64, clones int) *plant {
	p := &plant{disk: fsx.NewMem(), clock: &stack.Clock{}, seed: seed, clones: clones}
	p.room = sync.NewCond(&p.mu)
	return p
}

// fs is the disk as the stack gets it.
func (p *plant) fs() fsx.FS {
	var fsys fsx.FS = p.disk
	if p.wrap != nil {
		fsys = p.wrap(fsys)
	}
	return fsx.NewFault(fsys, func(op fsx.Op, name string) error {
		if (op == fsx.OpSync || op == fsx.OpSyncDir) && !p.off.Load() {
			p.lose()
		}
		return nil
	})
}

// lose takes copies of the disk at a sync point. What was acknowledged is noted
// before, what was begun after.
func (p *plant) lose() {
	point := p.points.Add(1)
	p.mu.Lock()
	workers := p.workers
	p.mu.Unlock()
	done := make(map[*track]int)
	for _, w := range workers {
		for _, t := range w.known() {
			done[t] = t.done()
		}
	}
	var lost []outage
	for i := range p.clones {
		// Every third loss is of all that was not synced.
		var rng *rand.Rand
		how := "with nothing kept"
		if n := uint64(point) + uint64(i); n%3 != 0 {
			how = fmt.Sprintf("with choices %d", n)
			rng = rand.New(rand.NewPCG(p.seed, n))
		}
		lost = append(lost, outage{point: point, how: how, disk: p.disk.CrashClone(rng)})
	}
	var marks []mark
	for _, w := range workers {
		for _, t := range w.known() {
			marks = append(marks, t.mark(done[t]))
		}
	}
	for i := range lost {
		lost[i].marks = marks
	}
	p.mu.Lock()
	p.outages = append(p.outages, lost...)
	p.mu.Unlock()
	p.room.Broadcast()
}

// take returns an outage to be checked, or false at the end.
func (p *plant) take() (outage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.outages) == 0 {
		if p.off.Load() {
			return outage{}, false
		}
		p.room.Wait()
	}
	o := p.outages[0]
	p.outages = p.outages[1:]
	p.room.Broadcast()
	return o, true
}

// pace waits until the checks have nearly kept up, so that the copies fit in
// memory.
func (p *plant) pace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.outages) > 64 && !p.off.Load() {
		p.room.Wait()
	}
}

func (p *plant) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off.Store(true)
	p.room.Broadcast()
}

// open opens the stack on the disk for all workers.
func (p *plant) open(ctx context.Context) (*stack.Stack, error) {
	s, err := stack.Open(ctx, stack.Options{FS: p.fs(), Inline: inlineLimit, Clock: p.clock, Background: true})
	for _, w := range p.workers {
		w.stack = s
	}
	return s, err
}

// run has n workers do steps each, in rounds between which the stack is opened
// anew, and gathers small packs until they are folded. There are more rounds
// than asked for until there are enough sync points.
func (p *plant) run(ctx context.Context, n, rounds, steps int) (err error) {
	defer p.end()
	var s *stack.Stack
	for i := range n {
		w := newWorker(fmt.Sprintf("w%d", i), nil, p.clock, p.seed+uint64(i))
		w.only = p.threads
		p.workers = append(p.workers, w)
	}
	for round := 0; round < rounds || p.points.Load() < p.least; round++ {
		if s, err = p.open(ctx); err != nil {
			return err
		}
		errs := make([]error, n)
		var all sync.WaitGroup
		for i, w := range p.workers[:n] {
			all.Go(func() {
				for range steps {
					p.pace()
					if errs[i] == nil {
						errs[i] = w.step(ctx)
					}
				}
			})
		}
		all.Wait()
		if err = errors.Join(errs...); err == nil && round == 0 && !p.threads {
			err = p.fold(ctx, s)
		}
		if err = errors.Join(append(s.Reported(), err, s.Close())...); err != nil {
			return err
		}
	}
	return nil
}

// fold pushes small packs to one repository until the background folds them.
func (p *plant) fold(ctx context.Context, s *stack.Stack) error {
	w := newWorker("folding", s, p.clock, p.seed)
	p.mu.Lock()
	p.workers = append(p.workers[:len(p.workers):len(p.workers)], w)
	p.mu.Unlock()
	if err := w.create(ctx); err != nil {
		return err
	}
	folds := s.Engine.Background().Folds
	for n := 0; s.Engine.Background().Folds == folds; n++ {
		if n == 300 {
			return errors.New("300 small packs were not folded")
		}
		p.pace()
		t := w.tracks[0]
		if err := w.push(ctx, t, mainRef, w.line(t, mainRef), 1, 80); err != nil {
			return err
		}
		if n > 60 {
			time.Sleep(10 * time.Millisecond) // the folding needs its turn
		}
	}
	return nil
}

// verify opens an outage anew and reports the first promise that is broken.
func (p *plant) verify(ctx context.Context, o outage, git string) (err error) {
	clock := p.clock.Copy()
	s, err := stack.Open(ctx, stack.Options{FS: o.disk, Inline: inlineLimit, Clock: clock})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var live []meta.RepoID
	for _, m := range o.marks {
		id, err := m.check(ctx, s)
		if err != nil {
			return err
		}
		if id != 0 {
			live = append(live, id)
		}
	}
	if err := errors.Join(s.Check(ctx, live...), s.Integrity()); err != nil {
		return err
	}
	if git != "" && p.threads {
		return goOn(ctx, s, clock)
	}
	if git == "" || len(live) == 0 {
		return nil
	}
	return verifyDeep(ctx, s, clock, live[int(o.point)%len(live)], git)
}

// verifyDeep has git check one repository, one sweep remove all that the outage
// left over, and a push succeed.
func verifyDeep(ctx context.Context, s *stack.Stack, clock *stack.Clock, id meta.RepoID, git string) error {
	if err := s.Export(ctx, id, git); err != nil {
		return err
	}
	clock.Pass(3 * stack.Lease) // by then the process that lost its power is given up
	if _, err := s.Engine.Sweep(ctx); err != nil {
		return err
	}
	left, err := s.Left(ctx, clock)
	if err != nil {
		return err
	}
	if left != (stack.Leftovers{}) {
		return fmt.Errorf("after one sweep %+v is left", left)
	}
	if _, err := s.Commit(ctx, id, "main", nil, "file", "on it goes"); err != nil {
		return err
	}
	return s.Check(ctx, id)
}

// findings are what the checks of outages came to.
type findings struct {
	checked, deeply int64
	broken          []error // a few of them
}

// check verifies outages, one of deep of them deeply, until the workload has
// ended and none is left.
func (p *plant) check(ctx context.Context, t *testing.T, deep int64) (f findings) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				o, ok := p.take()
				if !ok {
					return
				}
				mu.Lock()
				git, enough := "", len(f.broken) >= 3
				if f.checked++; deep > 0 && f.checked%deep == 0 {
					git = t.TempDir()
					f.deeply++
				}
				mu.Unlock()
				if enough {
					continue
				}
				if err := p.verify(ctx, o, git); err != nil {
					mu.Lock()
					f.broken = append(f.broken, fmt.Errorf("power lost at sync point %d %s: %w", o.point, o.how, err))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return f
}

// operate runs a workload and checks all outages of it.
func (p *plant) operate(t *testing.T, workers, rounds, steps int, deep int64) findings {
	t.Helper()
	var failure error
	done := make(chan struct{})
	go func() {
		defer close(done)
		failure = p.run(t.Context(), workers, rounds, steps)
	}()
	f := p.check(t.Context(), t, deep)
	<-done
	if failure != nil {
		t.Fatal(failure)
	}
	return f
}

// TestPowerLoss takes the power at every sync of a workload.
func TestPowerLoss(t *testing.T) { powerLoss(t, false) }

// TestPowerLossOfCheckpoints does so while checkpoints are saved, forked, deleted and
// swept.
func TestPowerLossOfCheckpoints(t *testing.T) { powerLoss(t, true) }

func powerLoss(t *testing.T, threads bool) {
	workers, rounds, steps, clones, deep := 2, 2, 25, 1, int64(50)
	if testkit.Soaking() {
		workers, rounds, steps, clones, deep = 3, 4, 50, 3, 20
	}
	p := newPlant(testkit.Seed(t), clones)
	p.least, p.threads = 510, threads
	f := p.operate(t, workers, rounds, steps, deep)
	for _, err := range f.broken {
		t.Error(err)
	}
	points := p.points.Load()
	t.Logf("%d sync points, %d outages checked, %d of them with a sweep and a write", points, f.checked, f.deeply)
	if points < 500 || f.checked < 500 {
		t.Errorf("%d sync points and %d outages: too few to prove anything", points, f.checked)
	}
}

// liar is a disk that says it has synced what it has not.
type liar struct {
	fsx.FS
	file, dir func(name string) bool // what it lies about
}

func (l liar) Create(name string) (fsx.File, error) {
	f, err := l.FS.Create(name)
	if err != nil || !l.file(name) {
		return f, err
	}
	return lyingFile{f}, nil
}

func (l liar) Edit(name string) (fsx.RandomFile, error) {
	f, err := l.FS.Edit(name)
	if err != nil || !l.file(name) {
		return f, err
	}
	return lyingRandomFile{f}, nil
}

func (l liar) SyncDir(name string) error {
	if l.dir(name) {
		return nil
	}
	return l.FS.SyncDir(name)
}

type lyingFile struct{ fsx.File }

func (lyingFile) Sync() error { return nil }

type lyingRandomFile struct{ fsx.RandomFile }

func (lyingRandomFile) Sync() error { return nil }

// TestPowerLossIsNoticed proves that the checks find what a disk loses that lies
// about one kind of sync only.
func TestPowerLossIsNoticed(t *testing.T) {
	never := func(string) bool { return false }
	under := func(prefix string) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, prefix) }
	}
	for name, lie := range map[string]struct {
		file, dir func(string) bool
		threads   bool
	}{
		"database log":              {file: under("meta.db-wal"), dir: never},
		"database":                  {file: func(name string) bool { return name == "meta.db" }, dir: never},
		"database names":            {file: never, dir: func(name string) bool { return name == "." }},
		"blobs":                     {file: under("tmp/"), dir: never},
		"blob names":                {file: never, dir: under("objects/")},
		"blobs of checkpoints":      {file: under("tmp/"), dir: never, threads: true},
		"blob names of checkpoints": {file: never, dir: under("objects/"), threads: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(1, 1)
			p.threads = lie.threads
			p.wrap = func(fsys fsx.FS) fsx.FS { return liar{fsys, lie.file, lie.dir} }
			f := p.operate(t, 1, 2, 25, 0)
			if len(f.broken) == 0 {
				t.Errorf("%d outages, and nothing is missed", f.checked)
				return
			}
			t.Log(f.broken[0])
		})
	}
}

package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
)

// complete reports whether the answer to a clone holds all that it names.
func complete(answer []byte) error {
	var mu sync.Mutex
	has := map[object.ID]bool{}
	var named []object.ID
	_, err := pack.Receive(context.Background(), bytes.NewReader(answer), new(pack.Buffer), pack.Options{Visit: func(o pack.Object) error {
		mu.Lock()
		defer mu.Unlock()
		has[o.ID] = true
		return eachLink(o.Type, o.Data, func(k link) error {
			named = append(named, k.id)
			return nil
		})
	}})
	for _, id := range named {
		if err == nil && !has[id] {
			err = fmt.Errorf("object %s is named and not sent", id)
		}
	}
	return err
}

// race is a repository that is written to, cloned, forked and collected at the
// same time, with no grace anywhere.
type race struct {
	*world
	id  meta.RepoID
	end context.Context

	mu     sync.Mutex
	counts map[string]int
}

func (r *race) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// operate runs one operation, as a request does.
func (r *race) operate(f func(ctx context.Context) error) error {
	ctx, done, err := r.engine.Begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	return f(ctx)
}

func (r *race) now(ctx context.Context, id meta.RepoID) (*View, error) {
	return r.engine.current(ctx, id)
}

// write moves one branch in all ways and returns where it is in the end.
func (r *race) write(branch string, seed uint64) (tip object.ID) {
	rng := rand.New(rand.NewPCG(seed, 7))
	full := "refs/heads/" + branch
	var past []object.ID
	for n := 0; r.end.Err() == nil; n++ {
		err := r.operate(func(ctx context.Context) error {
			v, err := r.now(ctx, r.id)
			if err != nil {
				return err
			}
			switch k := rng.IntN(10); {
			case tip.IsZero() || k < 6:
				req := CommitRequest{TargetBranch: branch, Author: someone, Committer: someone, Message: "m"}
				if tip.IsZero() {
					req.BaseBranch = "main"
				}
				c := r.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
				defer c.Close()
				// A few contents come again and again, after they were lost too.
				req.Files = []FileEdit{r.file(c, fmt.Sprint("f", rng.IntN(9)), fmt.Sprint(rng.IntN(5))), r.file(c, branch, fmt.Sprint(rng.IntN(3))), r.file(c, "n", fmt.Sprint(n))}
				res, err := r.engine.Commit(ctx, r.writer, v, req)
				if err != nil {
					return fmt.Errorf("commit: %w", err)
				}
				tip = res.Commit
				past = append(past, tip)
				r.count("commits")
			case k < 8:
				to := past[max(0, len(past)-1-rng.IntN(4))]
				if bad, err := v.Reachable(ctx, to); err != nil || !bad.IsZero() {
					return err // it was collected
				}
				if _, err := r.engine.Update(ctx, r.writer, v, Update{Refs: []RefUpdate{{Name: full, Old: tip, New: to}}}); err != nil {
					return fmt.Errorf("force: %w", err)
				}
				tip = to
				r.count("forced")
			default:
				if _, err := r.engine.DeleteBranch(ctx, r.writer, v, branch, false); err != nil {
					return fmt.Errorf("delete: %w", err)
				}
				tip = object.Zero
				r.count("deleted")
			}
			return nil
		})
		if err != nil {
			r.t.Errorf("%s: %v", branch, err)
			return tip
		}
	}
	return tip
}

// clone takes a view, waits, and sends what one of its refs reaches.
func (r *race) clones(id meta.RepoID, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 8))
	for r.end.Err() == nil {
		err := r.operate(func(ctx context.Context) error { return r.cloneOnce(ctx, id, rng) })
		if err != nil {
			r.t.Errorf("clone: %v", err)
			return
		}
		r.count("clones")
	}
}

func (r *race) cloneOnce(ctx context.Context, id meta.RepoID, rng *rand.Rand) error {
	v, err := r.now(ctx, id)
	if err != nil {
		return err
	}
	var tips []object.ID
	if err := v.Refs(ctx, "", func(ref meta.Ref) error { tips = append(tips, ref.ID); return nil }); err != nil {
		return err
	}
	tip := tips[rng.IntN(len(tips))]
	time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
	u := v.Uploader(Normal)
	if err := u.CheckWants(ctx, []object.ID{tip}); err != nil {
		return err
	}
	slow := &slowly{pause: time.Duration(rng.IntN(10)) * time.Millisecond}
	if err := u.Send(ctx, slow, &wire.Fetch{Wants: []object.ID{tip}, OfsDelta: true}, wire.ShallowUpdate{}, nil); err != nil {
		return err
	}
	return complete(slow.Bytes())
}

// slowly takes a long time for each piece.
type slowly struct {
	bytes.Buffer
	pause time.Duration
}

func (s *slowly) Write(b []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Buffer.Write(b)
}

// kept is a fork that lives for a while, with its branch and where that must be.
type kept struct {
	meta.Repo
	tip object.ID
}

// forks forks the repository and its forks, commits to them, collects and clones
// them, and removes them, the oldest or another. It returns those that are left.
func (r *race) forks() (alive []kept) {
	rng := rand.New(rand.NewPCG(1, 9))
	for n := 0; r.end.Err() == nil; n++ {
		err := r.operate(func(ctx context.Context) error {
			source := r.id
			if len(alive) > 0 && rng.IntN(2) == 0 {
				source = alive[rng.IntN(len(alive))].ID
			}
			v, err := r.now(ctx, source)
			if err != nil {
				return err
			}
			fork, err := r.engine.Fork(ctx, r.writer, v, ForkRequest{CreateRequest: CreateRequest{Name: fmt.Sprint("fork", n)}})
			if err != nil {
				return err
			}
			alive = append(alive, kept{Repo: fork})
			return nil
		})
		for range 1 + rng.IntN(3) {
			if err == nil {
				err = r.visit(&alive[rng.IntN(len(alive))], rng)
			}
		}
		if err == nil && len(alive) > 5 {
			i := rng.IntN(2) * rng.IntN(len(alive))
			err = r.operate(func(ctx context.Context) error {
				return errors.Join(r.engine.Delete(ctx, r.writer, alive[i].Repo), r.engine.Purge(ctx, r.writer, alive[i].Repo))
			})
			alive = slices.Delete(alive, i, i+1)
		}
		if err != nil {
			r.t.Errorf("fork: %v", err)
			return alive
		}
		r.count("forks")
	}
	return alive
}

// visit commits to a fork, collects and clones it.
func (r *race) visit(f *kept, rng *rand.Rand) error {
	return r.operate(func(ctx context.Context) error {
		v, err := r.now(ctx, f.ID)
		if err != nil {
			return err
		}
		req := CommitRequest{TargetBranch: "own", Author: someone, Committer: someone, Message: "m"}
		if v.valueOf("refs/heads/own").IsZero() {
			req.BaseBranch = "main"
		}
		c := r.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
		defer c.Close()
		req.Files = []FileEdit{r.file(c, fmt.Sprint("f", rng.IntN(9)), fmt.Sprint(rng.IntN(5))), r.file(c, "n", fmt.Sprint(rng.Uint64()))}
		res, err := r.engine.Commit(ctx, r.writer, v, req)
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		f.tip = res.Commit
		var moved *ConflictError
		if _, err := r.engine.Collect(ctx, f.ID, CollectOptions{Full: rng.IntN(2) == 0}); err != nil && !errors.As(err, &moved) {
			return err
		}
		return r.cloneOnce(ctx, f.ID, rng)
	})
}

// maintain collects, sweeps and renews the heartbeat without pause.
func (r *race) maintain() {
	ctx := context.Background()
	for r.end.Err() == nil {
		res, err := r.engine.Collect(ctx, r.id, CollectOptions{Full: true})
		var moved *ConflictError
		if err != nil && !errors.As(err, &moved) {
			r.t.Errorf("collect: %v", err)
			return
		}
		if err == nil {
			r.count("collections")
			if res.GarbageObjects > 0 {
				r.count("collections with garbage")
			}
		}
		if err := r.engine.Heartbeat(ctx); err != nil {
			r.t.Errorf("heartbeat: %v", err)
		}
		swept, err := r.engine.Sweep(ctx)
		if err != nil {
			r.t.Errorf("sweep: %v", err)
		}
		if swept.Retired > 0 {
			r.count("sweeps")
		}
	}
}

// TestSoakCollection lets writers, clones, forks, folds, collections and sweeps
// without grace run at once: no clone misses anything, and what was acknowledged
// last is there.
func TestSoakCollection(t *testing.T) {
	length := 3 * time.Second
	if testkit.Soaking() {
		length = 10 * time.Minute
	}
	w := newWorld(t, options{inlineLimit: 256, garbage: -1})
	repo := w.create("repo")
	w.commit(repo.ID, "first", map[string]string{"f0": "0"})
	end, stop := context.WithTimeout(context.Background(), length)
	defer stop()
	r := &race{world: w, id: repo.ID, end: end, counts: map[string]int{}}
	report := func(err error) { t.Errorf("background: %v", err) }
	w.engine.reporter.Store(&report)
	var all sync.WaitGroup
	all.Go(func() { w.engine.compact(end) })
	tips := make([]object.ID, 4)
	for i := range tips {
		all.Go(func() { tips[i] = r.write(fmt.Sprint("branch", i), uint64(i)) })
	}
	for i := range 3 {
		all.Go(func() { r.clones(repo.ID, uint64(i)) })
	}
	var forks []kept
	all.Go(func() { forks = r.forks() })
	all.Go(r.maintain)
	all.Wait()
	t.Logf("%v", r.counts)
	for _, what := range []string{"commits", "forced", "deleted", "clones", "forks", "collections", "collections with garbage", "sweeps"} {
		if r.counts[what] == 0 {
			t.Errorf("no %s", what)
		}
	}
	w.collect(repo.ID, CollectOptions{Full: true})
	w.engine.cfg.ODB = freshODB(w)
	for i, tip := range tips {
		if at := w.ref(repo.ID, fmt.Sprint("refs/heads/branch", i)); at != tip {
			t.Errorf("branch %d is at %s, %s was acknowledged", i, at, tip)
		}
		if !tip.IsZero() {
			w.clone(repo.ID, tip)
		}
	}
	w.export(repo.ID)
	w.exact(repo)
	w.purge(repo)
	w.forget()
	for _, f := range forks {
		if at := w.ref(f.ID, "refs/heads/own"); !f.tip.IsZero() && at != f.tip {
			t.Errorf("%s is at %s, %s was acknowledged", f.Name, at, f.tip)
		}
		w.exact(f.Repo)
		w.collect(f.ID, CollectOptions{Full: true})
		w.exact(f.Repo)
		w.clone(f.ID, w.ref(f.ID, "refs/heads/main"))
	}
}

package crash_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/tests/stack"
)

// point is a checkpoint: its id, and the digest of its root, or for a list of one
// file the SHA-256 of that.
type point struct {
	id   string
	root tree.Digest
}

// lookThread reads the checkpoints of a thread, the head at the end.
func lookThread(ctx context.Context, s *stack.Stack, name string) (state, error) {
	t, err := s.Checkpoints.Thread(ctx, stack.Org, name)
	if err != nil {
		return state{}, err
	}
	list, err := s.Checkpoints.List(ctx, meta.CheckpointQuery{Org: stack.Org, Thread: name, Limit: 1000})
	if err != nil {
		return state{}, err
	}
	slices.SortFunc(list, func(a, b checkpoint.Checkpoint) int { return cmp.Compare(a.Seq, b.Seq) })
	var got state
	for i := range list {
		p := point{id: list[i].ID}
		if root, ok := list[i].RootDigest(); ok {
			p.root = root
		} else if p.root, err = listed(ctx, s, &list[i]); err != nil {
			return state{}, err
		}
		got.chain = append(got.chain, p)
	}
	if n := len(got.chain); n == 0 && t.Head != "" || n > 0 && t.Head != got.chain[n-1].id || t.Checkpoints != int64(n) {
		return got, &lostError{fmt.Sprintf("thread %s has the head %q and counts %d checkpoints: %s", name, t.Head, t.Checkpoints, got)}
	}
	return got, nil
}

// listed returns the SHA-256 of the only file of a list.
func listed(ctx context.Context, s *stack.Stack, c *checkpoint.Checkpoint) (sum tree.Digest, err error) {
	err = s.Checkpoints.Walk(ctx, stack.Org, c, "", "", func(_ string, e *tree.Entry) error {
		if e.Type == tree.File {
			sum = e.Content.Sum
		}
		return nil
	})
	return sum, err
}

// readAll reads all files of checkpoints.
func readAll(ctx context.Context, s *stack.Stack, chain []point) error {
	for _, p := range chain {
		c, err := s.Checkpoints.Checkpoint(ctx, stack.Org, p.id)
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", p.id, err)
		}
		if _, native := c.RootDigest(); native {
			w, err := stack.ReadWorkspace(ctx, s.Checkpoints.Source(stack.Org), p.root)
			if err != nil || len(w) == 0 {
				return fmt.Errorf("checkpoint %s: %d files: %w", p.id, len(w), err)
			}
			continue
		}
		err = s.Checkpoints.Walk(ctx, stack.Org, &c, "", "", func(_ string, e *tree.Entry) error {
			if e.Type != tree.File {
				return nil
			}
			var text bytes.Buffer
			err := tree.Copy(ctx, s.Checkpoints.Source(stack.Org), e.Content, &text)
			if err == nil && tree.Sum(text.Bytes()) != p.root {
				err = errors.New("other bytes")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("checkpoint %s: %w", p.id, err)
		}
	}
	return nil
}

// thread returns a new one.
func (w *worker) thread() *track {
	t := newTrack(fmt.Sprintf("%s-t%d", w.name, len(w.threads)), true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.threads = append(w.threads, t)
	return t
}

// files makes a workspace: some files that others have too, and one of its own.
func (w *worker) files(size int) stack.Workspace {
	f := stack.Workspace{"d/own": w.author.Text(size)}
	for range 3 {
		n := w.rand.IntN(12)
		f[fmt.Sprintf("d%d/f%d", n%2, n)] = strings.Repeat(fmt.Sprintf("shared %d\n", n), 20*n)
	}
	return f
}

// head is the newest checkpoint of a thread, "" for none.
func (t *track) head() string {
	if chain := t.now().chain; len(chain) > 0 {
		return chain[len(chain)-1].id
	}
	return ""
}

func (w *worker) nextID() string { return w.author.Text(20)[5:20] }

// save captures a workspace onto the head.
func (w *worker) save(ctx context.Context, t *track, size int, conversation []byte) error {
	f := w.files(size)
	root, _ := f.Objects()
	id := strings.ReplaceAll(w.nextID(), "\n", " ")
	return w.operate(ctx, "save", t, func(meta.RepoID) (state, error) {
		next := state{chain: append(slices.Clone(t.now().chain), point{id, root})}
		_, err := w.stack.Capture(ctx, f, checkpoint.NewCheckpoint{
			Thread: t.name, ID: id, Expected: checkpoint.Head{ID: t.head()}, Conversation: conversation, Upload: checkpoint.NewID(),
		})
		return next, err
	})
}

// list puts a blob and appends a list with it.
func (w *worker) list(ctx context.Context, t *track, size int) error {
	text := w.author.Text(size)
	sum := tree.Sum([]byte(text))
	id := strings.ReplaceAll(w.nextID(), "\n", " ")
	return w.operate(ctx, "list", t, func(meta.RepoID) (state, error) {
		next := state{chain: append(slices.Clone(t.now().chain), point{id, sum})}
		var parent any
		if head := t.head(); head != "" {
			parent = head
		}
		body, err := json.Marshal(map[string]any{
			"id": id, "threadId": t.name, "parentCheckpointId": parent, "createdAt": 1700000000000, "reason": "automatic",
			"files":        []any{map[string]any{"path": "f", "kind": "file", "size": len(text), "blobKey": "sandbox-files/sha256/" + sum.String()}},
			"conversation": []any{}, "artifacts": []any{},
		})
		expected, parentErr := json.Marshal(parent)
		if err = errors.Join(err, parentErr); err != nil {
			return next, err
		}
		for {
			_, err = w.stack.Checkpoints.PutBlob(ctx, stack.Caller, t.name, "", sum, strings.NewReader(text))
			if err == nil {
				_, err = w.stack.Checkpoints.AppendManifest(ctx, stack.Caller, checkpoint.NewManifest{
					Thread: t.name, WriterThread: t.name, Checkpoint: body, Expected: expected,
				})
			}
			if !stack.Again(err) {
				return next, err
			}
		}
	})
}

// forkThread begins a thread from a checkpoint.
func (w *worker) forkThread(ctx context.Context, source *track) error {
	chain := source.now().chain
	if len(chain) == 0 {
		return nil
	}
	from := chain[w.rand.IntN(len(chain))]
	id := strings.ReplaceAll(w.nextID(), "\n", " ")
	return w.operate(ctx, "fork", w.thread(), func(meta.RepoID) (state, error) {
		_, err := w.stack.Checkpoints.Fork(ctx, stack.Caller, checkpoint.Fork{
			Source: from.id, Thread: w.threads[len(w.threads)-1].name, ID: id, MaySee: func(string) (bool, error) { return true, nil },
		})
		return state{chain: []point{{id, from.root}}}, err
	})
}

// forget deletes a checkpoint.
func (w *worker) forget(ctx context.Context, t *track) error {
	chain := t.now().chain
	if len(chain) == 0 {
		return nil
	}
	n := w.rand.IntN(len(chain))
	return w.operate(ctx, "forget", t, func(meta.RepoID) (state, error) {
		_, err := w.stack.Checkpoints.Delete(ctx, stack.Caller, t.name, chain[n].id, nil, nil)
		return state{chain: slices.Delete(slices.Clone(chain), n, n+1)}, err
	})
}

// retain keeps the newest checkpoints of a thread.
func (w *worker) retain(ctx context.Context, t *track, keep int) error {
	chain := t.now().chain
	return w.operate(ctx, "retain", t, func(meta.RepoID) (state, error) {
		_, err := w.stack.Checkpoints.Prune(ctx, stack.Caller, t.name, checkpoint.Rule{Keep: int64(keep)}, false, nil)
		return state{chain: slices.Clone(chain[max(0, len(chain)-keep):])}, err
	})
}

// drop deletes a thread.
func (w *worker) drop(ctx context.Context, t *track) error {
	if len(t.now().chain) == 0 {
		return nil
	}
	return w.operate(ctx, "drop", t, func(meta.RepoID) (state, error) {
		_, err := w.stack.Checkpoints.DeleteThread(ctx, stack.Caller, t.name, nil, nil)
		return state{}, err
	})
}

// abandon sends objects that no checkpoint names.
func (w *worker) abandon(ctx context.Context, t *track) error {
	_, objects := w.files(3 << 10).Objects()
	err := w.stack.Send(ctx, t.name, checkpoint.NewID(), objects)
	if stack.Again(err) {
		err = nil
	}
	return w.told("abandon", err)
}

// sweepObjects puts objects together and sweeps them twice: what the first condemns
// the second removes.
func (w *worker) sweepObjects(ctx context.Context) error {
	_, err := w.stack.Content.Tidy(ctx, stack.Org)
	if err := w.told("tidy", err); err != nil {
		return err
	}
	for range 2 {
		res, err := w.stack.Content.Sweep(ctx, stack.Org, w.stack.Checkpoints.Live)
		if err == nil && res.Missing > 0 && w.failed == nil {
			return &lostError{fmt.Sprintf("a sweep misses something: %+v", res)}
		}
		if err := w.told("sweep of objects", err); err != nil {
			return err
		}
	}
	return w.sweep(ctx)
}

// told takes the error of what changes nothing that can be seen.
func (w *worker) told(what string, err error) error {
	if err == nil || w.failed == nil {
		return err
	}
	w.failed(what, err)
	return nil
}

// threadStep does one thing of many to threads.
func (w *worker) threadStep(ctx context.Context) error {
	if len(w.threads) == 0 || w.rand.IntN(10) == 0 && len(w.threads) < 6 {
		return w.save(ctx, w.thread(), 100, nil)
	}
	t := w.threads[w.rand.IntN(len(w.threads))]
	switch n := w.rand.IntN(24); {
	case n < 6:
		return w.save(ctx, t, 100+w.rand.IntN(200), nil)
	case n < 10:
		return w.save(ctx, t, 12<<10, nil)
	case n < 12:
		return w.save(ctx, t, 100, []byte(`[{"role":"user","content":"go on"}]`))
	case n < 14:
		return w.list(ctx, t, 200+w.rand.IntN(9<<10))
	case n < 16 && len(w.threads) < 8:
		return w.forkThread(ctx, t)
	case n < 19:
		return w.forget(ctx, t)
	case n == 19:
		return w.retain(ctx, t, 2)
	case n == 20:
		return w.drop(ctx, t)
	case n == 21:
		return w.abandon(ctx, t)
	default:
		return w.sweepObjects(ctx)
	}
}

// goOn sweeps away all that an outage left over, and saves a checkpoint.
func goOn(ctx context.Context, s *stack.Stack, clock *stack.Clock) error {
	clock.Pass(3 * stack.Lease)
	w := newWorker("after", s, clock, 5)
	for range 2 {
		if err := w.sweepObjects(ctx); err != nil {
			return err
		}
	}
	clock.Pass(3 * stack.Lease)
	if err := w.sweep(ctx); err != nil {
		return err
	}
	left, err := s.Left(ctx, clock)
	if err != nil {
		return err
	}
	if left != (stack.Leftovers{}) {
		return fmt.Errorf("after sweeps %+v is left", left)
	}
	if err := w.save(ctx, w.thread(), 12<<10, nil); err != nil {
		return err
	}
	return errors.Join(readAll(ctx, s, w.threads[0].now().chain), s.Check(ctx))
}

// threadsBefore makes threads with some checkpoints, and what a sweep can take.
func (w *worker) threadsBefore(ctx context.Context) error {
	for range 2 {
		t := w.thread()
		for _, size := range []int{200, 12 << 10, 300} {
			if err := w.save(ctx, t, size, nil); err != nil {
				return err
			}
		}
	}
	return w.forget(ctx, w.threads[1])
}

// threadSteps is one of each kind of operation.
func (w *worker) threadSteps(ctx context.Context) []func() error {
	first, second := w.threads[0], w.threads[1]
	return []func() error{
		func() error { return w.save(ctx, first, 200, nil) },
		func() error { return w.save(ctx, first, 12<<10, []byte(`["go on"]`)) },
		func() error { return w.list(ctx, first, 9<<10) },
		func() error { return w.forkThread(ctx, first) },
		func() error { return w.save(ctx, w.threads[len(w.threads)-1], 500, nil) },
		func() error { return w.sweepObjects(ctx) },
		func() error { return w.abandon(ctx, second) },
		func() error { return w.forget(ctx, first) },
		func() error { return w.retain(ctx, second, 1) },
		func() error { return w.fold(ctx) },
		func() error { return w.sweepObjects(ctx) },
		func() error { return w.save(ctx, first, 12<<10, nil) },
		func() error { return w.drop(ctx, second) },
		func() error { return w.scrub(ctx) },
		func() error { return w.sweepObjects(ctx) },
	}
}

// fold makes so many small packs that they are put together.
func (w *worker) fold(ctx context.Context) error {
	for range 34 {
		if err := w.save(ctx, w.threads[0], 80, nil); err != nil {
			return err
		}
	}
	_, err := w.stack.Content.Tidy(ctx, stack.Org)
	return w.told("fold", err)
}

// scrub reads everything that is stored.
func (w *worker) scrub(ctx context.Context) error {
	var found []string
	err := w.stack.Content.Fsck(ctx, stack.Org, w.stack.Checkpoints.Live, func(f content.Finding) { found = append(found, f.Detail) })
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("found %q", found)
	}
	return w.told("scrub", err)
}

// threadsAfter does some things more.
func (w *worker) threadsAfter(ctx context.Context) error {
	return errors.Join(
		w.save(ctx, w.threads[0], 12<<10, nil), w.list(ctx, w.threads[0], 300), w.forkThread(ctx, w.threads[0]),
		w.forget(ctx, w.threads[0]), w.sweepObjects(ctx), w.scrub(ctx),
	)
}

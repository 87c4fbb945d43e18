package crash_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/stack"
)

// shop is a small workload on a disk with a fault.
type shop struct {
	disk   *fsx.Mem
	clock  *stack.Clock
	hook   atomic.Pointer[fsx.Hook]
	calls  atomic.Int64
	worker *worker
	errs   []error // of operations that failed
	// threads of checkpoints are worked on, in place of repositories.
	threads bool
}

func newShop(threads bool) *shop {
	s := &shop{disk: fsx.NewMem(), clock: &stack.Clock{}, threads: threads}
	s.worker = newWorker("w", nil, s.clock, 7)
	s.worker.failed = func(step string, err error) { s.errs = append(s.errs, fmt.Errorf("%s: %w", step, err)) }
	return s
}

func (s *shop) fs() fsx.FS {
	return fsx.NewFault(s.disk, func(op fsx.Op, name string) error {
		s.calls.Add(1)
		if hook := s.hook.Load(); hook != nil {
			return (*hook)(op, name)
		}
		return nil
	})
}

func (s *shop) open(ctx context.Context) error {
	st, err := stack.Open(ctx, stack.Options{FS: s.fs(), Inline: inlineLimit, Clock: s.clock})
	s.worker.stack = st
	return err
}

func (s *shop) close() error {
	st := s.worker.stack
	s.worker.stack = nil
	if st == nil {
		return nil
	}
	return st.Close()
}

// steps is one of each kind of operation, on the repositories of before and on a
// new one.
func (s *shop) steps(ctx context.Context) error {
	w := s.worker
	if s.threads {
		return w.through(w.threadSteps(ctx))
	}
	first := w.tracks[0]
	return w.through([]func() error{
		func() error { return w.push(ctx, first, mainRef, w.line(first, mainRef), 1, 200) },
		func() error { return w.push(ctx, first, mainRef, w.line(first, mainRef), 3, 2<<10) },
		func() error { return w.commit(ctx, first, 300) },
		func() error {
			return w.move(ctx, first, map[string]object.ID{"refs/heads/side": first.now().refs[mainRef], "refs/tags/v": first.now().refs[mainRef]})
		},
		func() error { return w.fork(ctx, first) },
		func() error { return w.push(ctx, first, mainRef, stack.Line{}, 2, 3<<10) },
		func() error { return w.move(ctx, first, map[string]object.ID{"refs/heads/side": object.Zero}) },
		func() error { return w.collect(ctx, first) },
		func() error { return w.remove(ctx, w.tracks[1]) },
		func() error { return w.remove(ctx, w.tracks[1]) },
		func() error { return w.push(ctx, first, mainRef, w.line(first, mainRef), 1, 200) },
		func() error { return w.sweep(ctx) },
	})
}

// through does one step after another, whether they succeed or fail.
func (w *worker) through(steps []func() error) error {
	for _, step := range steps {
		var lost *lostError
		if err := step(); errors.As(err, &lost) {
			return err
		} else if err != nil && !errors.Is(err, errUnreadable) {
			return fmt.Errorf("an error that no operation told: %w", err)
		}
	}
	return nil
}

// prepare makes two repositories with history, while nothing fails.
func (s *shop) prepare(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if s.threads {
		return errors.Join(s.worker.threadsBefore(ctx), s.close())
	}
	for range 2 {
		if err := s.worker.create(ctx); err != nil {
			return err
		}
		t := s.worker.tracks[len(s.worker.tracks)-1]
		for _, size := range []int{200, 4 << 10} {
			if err := s.worker.push(ctx, t, mainRef, s.worker.line(t, mainRef), 2, size); err != nil {
				return err
			}
		}
	}
	return s.close()
}

// verify checks that nothing is lost and that one sweep leaves nothing over.
func (s *shop) verify(ctx context.Context, st *stack.Stack) error {
	var live []meta.RepoID
	for _, t := range s.worker.known() {
		id, err := t.mark(t.done()).check(ctx, st)
		if err != nil {
			return err
		}
		if id != 0 {
			live = append(live, id)
		}
	}
	return errors.Join(st.Check(ctx, live...), st.Integrity())
}

// tidy sweeps once and looks for what is left.
func (s *shop) tidy(ctx context.Context, st *stack.Stack) error {
	s.clock.Pass(3 * stack.Lease)
	if err := st.Engine.Heartbeat(ctx); err != nil {
		return err
	}
	if _, err := st.Engine.Sweep(ctx); err != nil {
		return err
	}
	left, err := st.Left(ctx, s.clock)
	if err != nil {
		return err
	}
	if left != (stack.Leftovers{}) {
		return fmt.Errorf("after one sweep %+v is left", left)
	}
	scratch, err := st.Scratch()
	if err == nil && len(scratch) > 0 {
		err = fmt.Errorf("scratch files are left: %q", scratch)
	}
	return err
}

// run does the workload with a fault, which may strike while the stores are
// opened or only after. Then the fault is lifted, and the same engine goes on;
// the disk as a loss of power leaves it has lost nothing either.
func (s *shop) run(ctx context.Context, opening bool, hook fsx.Hook) error {
	err := s.prepare(ctx)
	if err == nil && !opening {
		err = s.open(ctx)
	}
	if err != nil {
		return err
	}
	s.hook.Store(&hook)
	if opening {
		err = s.open(ctx)
	}
	if err == nil && !opening {
		err = s.steps(ctx)
	} else if err != nil {
		s.errs, err = append(s.errs, err), nil
	}
	s.hook.Store(nil)
	if err != nil {
		return errors.Join(err, s.close())
	}
	if s.worker.stack == nil {
		if err := s.open(ctx); err != nil {
			return fmt.Errorf("open after the fault: %w", err)
		}
	}
	if err := s.after(ctx); err != nil {
		return errors.Join(fmt.Errorf("the same engine after the fault: %w", err), s.close())
	}
	disk := s.disk.CrashClone(nil)
	if err := s.close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	st, err := stack.Open(ctx, stack.Options{FS: disk, Inline: inlineLimit, Clock: s.clock})
	if err != nil {
		return fmt.Errorf("open after a loss of power: %w", err)
	}
	if err := s.verify(ctx, st); err != nil {
		err = fmt.Errorf("after a loss of power: %w", err)
		return errors.Join(err, st.Close())
	}
	return st.Close()
}

// after goes on with the engine that met the fault.
func (s *shop) after(ctx context.Context) error {
	st := s.worker.stack
	if err := s.verify(ctx, st); err != nil {
		return err
	}
	known := len(s.errs)
	if s.threads {
		if err := s.worker.threadsAfter(ctx); err != nil {
			return err
		}
	} else if err := s.reposAfter(ctx); err != nil {
		return err
	}
	if len(s.errs) > known {
		return fmt.Errorf("operations still fail: %w", s.errs[known])
	}
	return errors.Join(s.tidy(ctx, st), s.verify(ctx, st))
}

func (s *shop) reposAfter(ctx context.Context) error {
	first := s.worker.tracks[0]
	return errors.Join(
		s.worker.push(ctx, first, mainRef, s.worker.line(first, mainRef), 3, 2<<10),
		s.worker.commit(ctx, first, 100),
		s.worker.fork(ctx, first),
		s.worker.collect(ctx, first),
	)
}

// kind is a kind of fault: what match picks fails with err, once or from then on.
type kind struct {
	name  string
	match func(fsx.Op, string) bool
	err   error
	ever  bool
}

func (k kind) hook(n int64) fsx.Hook {
	if k.ever {
		return fsx.FailFrom(n, k.match, k.err)
	}
	hook, _ := fsx.FailNth(n, k.match, k.err)
	return hook
}

func kinds() []kind {
	all := func(fsx.Op, string) bool { return true }
	// A full disk takes no new bytes and names; it can be read and synced.
	grows := func(op fsx.Op, _ string) bool {
		switch op {
		case fsx.OpCreate, fsx.OpEdit, fsx.OpWrite, fsx.OpTruncate, fsx.OpLink, fsx.OpRename, fsx.OpMkdirAll:
			return true
		}
		return false
	}
	return []kind{
		{"one call fails", all, fsx.ErrInjected, false},
		{"all calls fail", all, fsx.ErrInjected, true},
		{"one call finds no space", grows, fsx.ErrNoSpace, false},
		{"the disk is full", grows, fsx.ErrNoSpace, true},
	}
}

// TestEveryFault fails each call of the file system in turn: every operation
// succeeds or says that it did not, nothing acknowledged is lost, and when the
// fault is lifted all goes on, with nothing left over after one sweep.
func TestEveryFault(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Run("opening", func(t *testing.T) { k.test(t, true, false, 6) })
			t.Run("working", func(t *testing.T) { k.test(t, false, false, 24) })
			t.Run("checkpoints", func(t *testing.T) { k.test(t, false, true, 12) })
		})
	}
}

// test tries the fault at every call, or in the short form at about so many.
func (k kind) test(t *testing.T, opening, threads bool, short int64) {
	var calls int64
	sound := newShop(threads)
	err := sound.run(t.Context(), opening, func(op fsx.Op, name string) error {
		if k.match(op, name) {
			calls++
		}
		return nil
	})
	if err = errors.Join(append(sound.errs, err)...); err != nil {
		t.Fatal(err)
	}
	stride := int64(1)
	if !testkit.Soaking() {
		stride = max(1, calls/short)
	}
	runs, told := 0, 0
	for n := int64(1); n <= calls; n += stride {
		s := newShop(threads)
		runs++
		if err := s.run(t.Context(), opening, k.hook(n)); err != nil {
			t.Fatalf("fault %d of %d: %v; the operations told %v", n, calls, err, errors.Join(s.errs...))
		}
		if len(s.errs) > 0 {
			told++
		}
	}
	t.Logf("%d faults in %d calls, %d of them told", runs, calls, told)
	if told == 0 {
		t.Error("no fault reached an operation")
	}
}

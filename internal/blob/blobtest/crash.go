package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/fsx"
)

// OpenOn opens the store that lies in a file system, new or after a crash.
type OpenOn func(fsys fsx.FS) (blob.Store, error)

// TestCrash cuts the power before every disk operation of a history of writes
// and deletions, and fails every one in turn: what was acknowledged is there and
// whatever else is seen is whole.
func TestCrash(t *testing.T, open OpenOn) {
	t.Run("PowerLoss", func(t *testing.T) { testPowerLoss(t, open) })
	for _, fault := range []error{fsx.ErrInjected, fsx.ErrNoSpace} {
		t.Run(fmt.Sprintf("EveryFault/%v", fault), func(t *testing.T) { testEveryFault(t, open, fault) })
		t.Run(fmt.Sprintf("StaysBroken/%v", fault), func(t *testing.T) { testStaysBroken(t, open, fault) })
	}
}

// history is what a client of a store tried and what was acknowledged.
type history struct {
	written map[blob.Key]bool // acknowledged by Put or Finish
	deleted map[blob.Key]bool // Delete was called: it may or may not be there
	gone    map[blob.Key]bool // Delete was acknowledged
	aborted map[blob.Key]bool
	failed  int
}

const historyLen = 12

func historyKey(i int) blob.Key { return blob.Key(fmt.Sprintf("h/%d", i)) }

func historyData(key blob.Key) []byte { return Data(string(key), len(key)*1000) }

// run drives the store. Errors are counted, not fatal.
func (h *history) run(s blob.Store) {
	h.written, h.deleted, h.gone, h.aborted = map[blob.Key]bool{}, map[blob.Key]bool{}, map[blob.Key]bool{}, map[blob.Key]bool{}
	ctx := context.Background()
	for i := range historyLen {
		key := historyKey(i)
		data := historyData(key)
		w, err := s.Create(ctx, key)
		if err != nil {
			h.failed++
			continue
		}
		_, err1 := w.Write(data[:len(data)/2])
		_, err2 := w.Write(data[len(data)/2:])
		if i%4 == 3 {
			w.Abort()
			h.aborted[key] = true
			continue
		}
		if err := errors.Join(err1, err2, w.Finish(ctx)); err != nil {
			h.failed++
			w.Abort()
		} else {
			h.written[key] = true
		}
		if i%3 == 2 {
			victim := historyKey(i - 2)
			h.deleted[victim] = true
			if err := s.Delete(ctx, victim); err != nil {
				h.failed++
			} else {
				h.gone[victim] = true
			}
		}
	}
}

// check compares what a store shows with the history so far.
func (h *history) check(s blob.Store) error {
	seen := map[blob.Key]bool{}
	for info, err := range s.List(context.Background(), "") {
		if err != nil {
			return err
		}
		seen[info.Key] = true
	}
	for i := range historyLen {
		key := historyKey(i)
		data, err := ReadAll(s, key)
		found := err == nil
		if err != nil && !errors.Is(err, blob.ErrNotFound) {
			return err
		}
		switch {
		case found != seen[key]:
			return fmt.Errorf("open and list differ on %q", key)
		case found && !bytes.Equal(data, historyData(key)):
			return fmt.Errorf("object %q is seen in part", key)
		case found && (h.gone[key] || h.aborted[key]):
			return fmt.Errorf("object %q is back", key)
		case !found && h.written[key] && !h.deleted[key]:
			return fmt.Errorf("acknowledged object %q is lost", key)
		}
	}
	return nil
}

func testPowerLoss(t *testing.T, open OpenOn) {
	mem := fsx.NewMem()
	if _, err := open(mem); err != nil {
		t.Fatal(err)
	}
	var h history
	points := 0
	hook := func(fsx.Op, string) error {
		points++
		for seed := range uint64(4) {
			var rng *rand.Rand // seed 0: all that was not synced is lost
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(points)))
			}
			s, err := open(mem.CrashClone(rng))
			if err == nil {
				err = h.check(s)
			}
			if err != nil {
				return fmt.Errorf("crash point %d, seed %d: %w", points, seed, err)
			}
		}
		return nil
	}
	var failure error
	s, err := open(fsx.NewFault(mem, func(op fsx.Op, name string) error {
		if failure == nil {
			failure = hook(op, name)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	h.run(s)
	if failure == nil {
		failure = hook(fsx.OpStat, "")
	}
	if failure != nil {
		t.Error(failure)
	}
	if h.failed > 0 || points < 5*historyLen {
		t.Errorf("history had %d failures and %d crash points", h.failed, points)
	}
	t.Logf("%d crash points", points)
}

func testEveryFault(t *testing.T, open OpenOn, fault error) {
	for n := int64(1); ; n++ {
		hook, hit := fsx.FailNth(n, nil, fault)
		h := runWithFault(t, open, hook, n)
		if !hit() {
			if h != nil && h.failed > 0 {
				t.Errorf("%d failures without a fault", h.failed)
			}
			if n < 5*historyLen {
				t.Errorf("history has only %d operations", n)
			}
			t.Logf("%d operations failed in turn", n-1)
			return
		}
	}
}

func testStaysBroken(t *testing.T, open OpenOn, fault error) {
	for n := int64(1); n < 400; n += 7 {
		writes := func(op fsx.Op, _ string) bool {
			return op == fsx.OpCreate || op == fsx.OpWrite || op == fsx.OpSync || op == fsx.OpLink || op == fsx.OpSyncDir || op == fsx.OpMkdirAll
		}
		runWithFault(t, open, fsx.FailFrom(n, writes, fault), n)
	}
}

// runWithFault runs the history on a faulty disk and checks what it holds, as it
// is and after a loss of power. It returns nil when the store did not open.
func runWithFault(t *testing.T, open OpenOn, hook fsx.Hook, n int64) *history {
	t.Helper()
	mem := fsx.NewMem()
	if _, err := open(mem); err != nil {
		t.Fatal(err)
	}
	s, err := open(fsx.NewFault(mem, hook))
	if err != nil {
		return nil
	}
	var h history
	h.run(s)
	for name, disk := range map[string]fsx.FS{"disk": mem, "disk after power loss": mem.CrashClone(nil)} {
		s, err := open(disk)
		if err == nil {
			err = h.check(s)
		}
		if err != nil {
			t.Errorf("fault %d: %s: %v", n, name, err)
		}
	}
	return &h
}

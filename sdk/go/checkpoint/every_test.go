package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// refusing refuses appends with what a function returns.
type refusing struct {
	*Memory
	with func() error
}

func (r *refusing) Append(ctx context.Context, a Append) (*Appended, error) {
	if err := r.with(); err != nil {
		return nil, err
	}
	return r.Memory.Append(ctx, a)
}

// TestEveryTriesAgain fails the first captures: they come again after a second,
// then after twice that, up to the interval, and then each interval.
func TestEveryTriesAgain(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var at []time.Duration
		p := w.capture(dir)
		p.Always = true
		p.Store = &refusing{w.Memory, func() error {
			if at = append(at, time.Since(began).Round(time.Second)); len(at) <= 5 {
				return errorf(ErrLimited, "too much")
			} else if len(at) == 8 {
				stop()
			}
			return nil
		}}
		if err := Every(ctx, 5*time.Second, p, EveryOptions{Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Error(err)
		}
		sec := time.Second
		if want := []time.Duration{0, sec, 3 * sec, 7 * sec, 12 * sec, 17 * sec, 22 * sec, 27 * sec}; !slices.Equal(at, want) {
			t.Errorf("captures at %v, want %v", at, want)
		}
	})
}

// TestEveryEndsWithWhatTheLastCaptureSays ends it while a last capture cannot be
// done, in the time that it has or at all.
func TestEveryEndsWithWhatTheLastCaptureSays(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	ctx, stop := context.WithCancel(t.Context())
	p := w.capture(dir)
	p.Always = true
	p.Store = &refusing{w.Memory, func() error {
		if ctx.Err() != nil {
			return errorf(ErrLimited, "too much")
		}
		stop()
		return nil
	}}
	o := EveryOptions{Log: slog.New(slog.DiscardHandler)}
	if err := Every(ctx, time.Hour, p, o); err != nil {
		t.Errorf("without a last capture: %v", err)
	}
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	o.Grace = time.Minute
	if err := Every(ctx, time.Hour, p, o); !errors.Is(err, ErrLimited) {
		t.Errorf("with one that is refused: %v", err)
	}
}

// TestEveryGoesOnFromItsOwnCaptures begins with a head that it is told, and with
// whatever it is: from then on the files come from its own checkpoints.
func TestEveryGoesOnFromItsOwnCaptures(t *testing.T) {
	for _, any := range []bool{false, true} {
		w, dir, other := newWorld(t), t.TempDir(), t.TempDir()
		write(t, other, map[string]string{"f": "0"})
		head := mustCapture(t, w.capture(other)).Checkpoint.ID
		write(t, dir, map[string]string{"f": "1"})
		p := w.capture(dir)
		p.Always = true
		if p.AnyHead = any; !any {
			p.ExpectedHead = &head
		}
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		err := Every(ctx, time.Millisecond, p, EveryOptions{Log: slog.New(slog.DiscardHandler), Captured: func(*Captured) {
			switch n++; {
			case n == 2:
				q := w.capture(other)
				q.AnyHead, q.Always = true, true
				mustCapture(t, q)
			case n > 2:
				stop()
			}
		}})
		stop()
		if !errors.Is(err, ErrHeadConflict) || n != 2 {
			t.Errorf("after %d captures, and one by somebody else: %v", n, err)
		}
	}
}

// TestEveryTellsWhyItEnds ends at once where a capture can never be done.
func TestEveryTellsWhyItEnds(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	var log bytes.Buffer
	o := EveryOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}
	p := w.capture(dir)
	p.Policy = &Policy{Base: "no such base"}
	if err := Every(t.Context(), time.Hour, p, o); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a policy that is none: %v", err)
	}
	p = w.capture(dir)
	p.Store = &refusing{w.Memory, func() error { return errorf(ErrDenied, "not for you") }}
	if err := Every(t.Context(), time.Hour, p, o); !errors.Is(err, ErrDenied) {
		t.Errorf("with a token that is none: %v", err)
	}
	if err := Every(t.Context(), 0, w.capture(dir), o); !errors.Is(err, ErrInvalid) {
		t.Errorf("without an interval: %v", err)
	}
	if got := strings.Count(log.String(), "capture failed"); got != 2 {
		t.Errorf("%d failures are logged: %s", got, &log)
	}
}

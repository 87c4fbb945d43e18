package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// EveryOptions say how Every goes about it.
type EveryOptions struct {
	// Log gets a line for each capture; slog.Default when nil.
	Log *slog.Logger
	// Grace is how long captures may take after the context has ended: the one at work, and a last one, which waits for other
	// writers. Without it nothing is captured any more.
	Grace time.Duration
	// Captured is called after each capture that succeeded.
	Captured func(*Captured)
}

// Every captures now and then once each interval until ctx ends. It returns nil then, or, where there is a Grace, what the
// last capture ended with: nil says that nothing is lost. A capture that finds another writer at
// work is skipped, since the next one saves the same files; after another error it goes on too, and tries again after a
// second, then after twice that, up to the interval. It ends with an error only where going on is of no use: the head moved
// (ErrHeadConflict), or the first capture says that it cannot be done (ErrInvalid, ErrDenied). ExpectedHead and AnyHead are
// for the first capture that succeeds: after it the files come from its checkpoint.
func Every(ctx context.Context, interval time.Duration, p CaptureParams, o EveryOptions) error {
	if interval <= 0 {
		return errorf(ErrInvalid, "the interval is %s: want a time above zero", interval)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &every{CaptureParams: p, EveryOptions: o, retry: firstRetry}
	e.Log = e.Log.With("thread", p.Thread)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(o.Grace, stop) })()
	for first := true; ; first = false {
		next := time.Now().Add(interval)
		err := e.capture(work)
		if errors.Is(err, ErrHeadConflict) || first && (errors.Is(err, ErrInvalid) || errors.Is(err, ErrDenied)) {
			return err
		}
		wait := time.Until(next)
		if err != nil && !errors.Is(err, ErrWriterConflict) {
			wait = min(e.retry, interval)
			e.retry = min(2*e.retry, max(interval, firstRetry))
		} else {
			e.retry = firstRetry
		}
		select {
		case <-time.After(wait):
			if ctx.Err() == nil {
				continue
			}
		case <-ctx.Done():
		}
		if o.Grace > 0 {
			e.WaitBusy = max(e.WaitBusy, o.Grace)
			return e.capture(work)
		}
		return nil
	}
}

// firstRetry is how soon a capture that failed is tried again.
const firstRetry = time.Second

type every struct {
	CaptureParams
	EveryOptions
	retry time.Duration
}

// capture captures once and logs what came of it.
func (e *every) capture(ctx context.Context) error {
	began := time.Now()
	c, err := Capture(ctx, e.CaptureParams)
	took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
	switch {
	case errors.Is(err, ErrWriterConflict):
		e.Log.Info("capture skipped: busy", "reason", err, took)
	case err != nil && ctx.Err() != nil:
		e.Log.Warn("capture ended with the time that it had", "error", err, took)
	case err != nil:
		e.Log.Error("capture failed", "error", err, took)
	case c.Unchanged:
		e.Log.Info("nothing to capture", "checkpoint", c.Checkpoint.ID, took)
	default:
		e.Log.Info("captured", "checkpoint", c.Checkpoint.ID, "files", c.Checkpoint.Stats.Files, "sent_bytes", c.Sent.Bytes,
			"left_out", c.LeftOut.Total, "changing", c.Mixed.Total, took)
	}
	if err != nil {
		return err
	}
	e.ExpectedHead, e.AnyHead = nil, false
	if e.Captured != nil {
		e.Captured(c)
	}
	return nil
}

// AfterRun returns a hook for the end of an agent's run. Called with the error that the run ended with, it captures if that is
// nil, under the name of the run; a run that failed leaves the head as it is. Of a run whose context has ended, pass one that
// has not.
func AfterRun(p CaptureParams) func(ctx context.Context, run string, failed error) (*Captured, error) {
	return func(ctx context.Context, run string, failed error) (*Captured, error) {
		if failed != nil {
			return nil, nil
		}
		p := p
		p.Run = run
		return Capture(ctx, p)
	}
}

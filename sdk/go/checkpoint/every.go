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
	// Grace is how long a capture may take after the context has ended: the one at work, or, if there is none, a last one.
	// Without it nothing is captured any more.
	Grace time.Duration
	// Captured is called after each capture that succeeded.
	Captured func(*Captured)
}

// Every captures now and then once each interval until ctx ends, and returns nil then. A capture that finds another writer at
// work is skipped, since the next one saves the same files; after other errors it goes on too. It ends with an error only
// where going on is of no use: the head moved (ErrHeadConflict), or the first capture says that it cannot be done
// (ErrInvalid, ErrDenied).
func Every(ctx context.Context, interval time.Duration, p CaptureParams, o EveryOptions) error {
	if interval <= 0 {
		return errorf(ErrInvalid, "the interval is %s: want a time above zero", interval)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &every{CaptureParams: p, EveryOptions: o}
	e.Log = e.Log.With("thread", p.Thread)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(o.Grace, stop) })()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for first := true; ; first = false {
		err := e.capture(work)
		if errors.Is(err, ErrHeadConflict) || first && (errors.Is(err, ErrInvalid) || errors.Is(err, ErrDenied)) {
			return err
		}
		select {
		case <-tick.C:
			if ctx.Err() == nil {
				continue
			}
		case <-ctx.Done():
		}
		if o.Grace > 0 {
			if err := e.capture(work); errors.Is(err, ErrHeadConflict) {
				return err
			}
		}
		return nil
	}
}

type every struct {
	CaptureParams
	EveryOptions
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
	if err == nil && e.Captured != nil {
		e.Captured(c)
	}
	return err
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

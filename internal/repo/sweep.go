package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

const (
	// sweepEvery is how often a server looks for bytes to remove.
	sweepEvery = 5 * time.Minute
	// clockSkew is by how much the clocks of processes and of the metadata store
	// may differ.
	clockSkew = time.Minute
	// sweepBatch is how many retired keys are removed at a time.
	sweepBatch = 256
)

// SweepResult counts what a sweep removed.
type SweepResult struct {
	Uploads int // never published
	Retired int // published once and used by nobody any more
}

// Sweep removes the bytes of uploads whose process is gone, bytes retired before
// the oldest operation of every live process began, reservations of operations that
// have ended, and events and answers
// to idempotency keys that have been kept long enough. It may run on any number of processes at
// once.
func (e *Engine) Sweep(ctx context.Context) (SweepResult, error) {
	var res SweepResult
	live, err := e.cfg.Meta.Processes(ctx)
	if err != nil {
		return res, fmt.Errorf("sweep: %w", err)
	}
	err = errors.Join(e.sweepUploads(ctx, live, &res), e.sweepRetired(ctx, live, &res), e.sweepReservations(ctx, live), e.pruneKeys(ctx), e.pruneEvents(ctx))
	e.figures.sweptUploads.Add(int64(res.Uploads))
	e.figures.sweptPacks.Add(int64(res.Retired))
	return res, err
}

// pruneKeys drops old answers to idempotency keys.
func (e *Engine) pruneKeys(ctx context.Context) error {
	before := e.cfg.Clock().Add(-e.cfg.KeyRetention)
	for {
		n, err := e.cfg.Meta.PruneIdempotency(ctx, before, sweepBatch)
		if err != nil {
			return fmt.Errorf("prune idempotency keys: %w", err)
		}
		if n < sweepBatch {
			return nil
		}
	}
}

// pruneEvents drops old events.
func (e *Engine) pruneEvents(ctx context.Context) error {
	if e.cfg.EventsKeep <= 0 {
		return nil
	}
	before := e.cfg.Clock().Add(-e.cfg.EventsKeep)
	for after := int64(0); ; {
		res, err := e.cfg.Meta.PruneEvents(ctx, before, after, sweepBatch)
		if err != nil {
			return fmt.Errorf("prune events: %w", err)
		}
		e.figures.prunedEvents.Add(int64(res.Events))
		if res.Done {
			return nil
		}
		after = res.Next
	}
}

// oldestOperation is a time before which no running operation of a process
// began.
func oldestOperation(p meta.Process) time.Time {
	if p.Oldest.IsZero() || p.Renewed.Before(p.Oldest) {
		return p.Renewed // one may have begun since
	}
	return p.Oldest
}

// oldestOperations says for each process before when none of its operations
// began, by any clock.
func oldestOperations(live []meta.Process, skew time.Duration) map[string]time.Time {
	since := make(map[string]time.Time, len(live))
	for _, p := range live {
		since[p.ID] = oldestOperation(p).Add(-skew)
	}
	return since
}

func (e *Engine) sweepUploads(ctx context.Context, live []meta.Process, res *SweepResult) error {
	since := oldestOperations(live, e.skew)
	uploads, err := e.cfg.Meta.Uploads(ctx)
	if err != nil {
		return fmt.Errorf("sweep uploads: %w", err)
	}
	for _, u := range uploads {
		oldest, alive := since[u.Process]
		if !alive {
			oldest = e.cfg.Clock().Add(-e.skew)
		}
		if !u.At.Before(oldest) {
			continue
		}
		// From then on no Change can publish it: the bytes may go at once.
		taken, err := e.cfg.Meta.RetireUpload(ctx, u.Key)
		if err != nil {
			return fmt.Errorf("retire upload %q: %w", u.Key, err)
		}
		if !taken {
			continue
		}
		if err := e.removeKey(ctx, u.Key); err != nil {
			return err
		}
		if err := e.cfg.Meta.ForgetRetired(ctx, []string{u.Key}); err != nil {
			return fmt.Errorf("forget upload %q: %w", u.Key, err)
		}
		res.Uploads++
	}
	return nil
}

func (e *Engine) sweepRetired(ctx context.Context, live []meta.Process, res *SweepResult) error {
	before := e.cfg.Clock()
	for _, p := range live {
		if oldest := oldestOperation(p); oldest.Before(before) {
			before = oldest
		}
	}
	before = before.Add(-e.skew)
	for {
		retired, err := e.cfg.Meta.Retired(ctx, before, sweepBatch)
		if err != nil {
			return fmt.Errorf("sweep retired bytes: %w", err)
		}
		keys := make([]string, len(retired))
		for i, r := range retired {
			keys[i] = r.Key
			if err := e.removeKey(ctx, r.Key); err != nil {
				return err
			}
		}
		if len(keys) > 0 {
			if err := e.cfg.Meta.ForgetRetired(ctx, keys); err != nil {
				return fmt.Errorf("forget retired bytes: %w", err)
			}
		}
		res.Retired += len(keys)
		if len(retired) < sweepBatch {
			return nil
		}
	}
}

// removeKey removes what a key names: the blobs of one pack, or one blob of
// another kind. The pack itself goes first: what is left without it is never
// mistaken for a pack.
func (e *Engine) removeKey(ctx context.Context, key string) error {
	if !strings.HasPrefix(key, odb.KeyPrefix) {
		if err := e.cfg.Blobs.Delete(ctx, blob.Key(key)); err != nil {
			return fmt.Errorf("remove %q: %w", key, err)
		}
		return nil
	}
	for _, suffix := range packSuffixes {
		if err := e.cfg.Blobs.Delete(ctx, blob.Key(key+suffix)); err != nil {
			return fmt.Errorf("remove %q: %w", key+suffix, err)
		}
	}
	return nil
}

var packSuffixes = [...]string{odb.PackSuffix, odb.IndexSuffix, odb.GraphSuffix}

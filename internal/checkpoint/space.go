package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/meta"
)

// Steps in which room is reserved while a stream comes in. What is smaller than the
// first is counted when it is stored.
const (
	firstStep = 1 << 20
	lastStep  = 64 << 20
)

// spaced reads a stream, and reserves room for it in the org before it hands it on.
type spaced struct {
	ctx     context.Context
	engine  *Engine
	src     io.Reader
	org     meta.OrgID
	id      string
	read    int64
	granted int64
}

// within returns r as it is read within the limits of the caller's org, for an
// upload. end gives back what was not used.
func (e *Engine) within(ctx context.Context, c Caller, up *content.Upload, r io.Reader) (limited io.Reader, end func()) {
	if !c.Metered {
		return r, func() {}
	}
	s := &spaced{ctx: ctx, engine: e, src: r, org: c.Org, id: rand.Text()}
	up.Within(s.id, s.stored)
	return s, s.end
}

// Read implements io.Reader. The error may be a *ConflictError for the limit.
func (s *spaced) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	s.read += int64(n)
	if s.read <= max(s.granted, firstStep) {
		return n, err
	}
	step := min(max(s.granted, firstStep), lastStep)
	v, full := s.engine.cfg.Meta.Apply(s.ctx, meta.Change{Org: s.org, Reserve: &meta.Reserve{
		ID: s.id, Process: s.engine.cfg.Process, Content: true, Bytes: s.read, Want: max(s.granted+step, s.read),
	}})
	if full != nil {
		return 0, fmt.Errorf("reserve space: %w", full)
	}
	if !v.Applied {
		return 0, refusal(v.Conflict)
	}
	s.granted = v.Granted
	return n, err
}

// stored says that what was read so far counts for the org by now, and that the
// reservation has ended.
func (s *spaced) stored() { s.read, s.granted = 0, 0 }

func (s *spaced) end() {
	if s.granted > 0 {
		// A reservation that stays ends with the process.
		_ = s.engine.cfg.Meta.EndReservations(context.WithoutCancel(s.ctx), []string{s.id})
	}
}

// full turns what content says of a limit into what a Change does.
func full(err error) error {
	if q, ok := errors.AsType[*content.QuotaError](err); ok {
		return &ConflictError{&meta.Conflict{Kind: meta.ConflictQuota, Quota: &q.QuotaConflict}}
	}
	return err
}

// hasRoom refuses to receive bytes for a thread that may know no more.
func (e *Engine) hasRoom(ctx context.Context, c Caller, thread string) error {
	if c.ThreadBytes <= 0 || thread == AllThreads {
		return nil
	}
	t, err := e.Thread(ctx, c.Org, thread)
	if err != nil {
		return err
	}
	if t.Bytes < c.ThreadBytes {
		return nil
	}
	if t, err = e.recount(ctx, c.Org, t); err != nil || t.Bytes < c.ThreadBytes {
		return err
	}
	return &ConflictError{&meta.Conflict{Kind: meta.ConflictQuota, Quota: &meta.QuotaConflict{
		OfThread: true, Limit: c.ThreadBytes, Used: t.Bytes, Needed: 1,
	}}}
}

// recount finds out what a thread knows after deletions, before it is told to be
// full.
func (e *Engine) recount(ctx context.Context, org meta.OrgID, t meta.Thread) (meta.Thread, error) {
	for n := 0; t.Dirty; n++ {
		if n == maxRetries {
			return t, errBusy
		}
		k, err := e.readKnown(ctx, org, t.Name)
		if err != nil {
			return t, err
		}
		if t = k.thread; !t.Dirty {
			return t, nil
		}
		if err := e.relearn(ctx, org, k); err != nil && !moved(err) {
			return t, err
		}
		if t, err = e.Thread(ctx, org, t.Name); err != nil {
			return t, err
		}
	}
	return t, nil
}

// recounted asks to decide an append again that found the thread full, when what
// was deleted may make room.
func (e *Engine) recounted(ctx context.Context, org meta.OrgID, k *known, err error) error {
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || c.Kind != meta.ConflictQuota || !c.Quota.OfThread || !k.thread.Dirty {
		return err
	}
	if _, err := e.recount(ctx, org, k.thread); err != nil {
		return err
	}
	return &movedError{meta.ConflictThreadMoved}
}

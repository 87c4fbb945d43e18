package repo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Steps in which room is reserved while a stream comes in.
const (
	firstStep = 1 << 20
	lastStep  = 64 << 20
)

// QuotaError refuses what a limit has no room for.
type QuotaError struct{ meta.QuotaConflict }

func (e *QuotaError) Error() string {
	of, unit := "org", "bytes"
	if e.OfRepo {
		of = "repository"
	}
	if e.OfThread {
		of = "thread"
	}
	if e.Repos {
		unit = "repositories"
	}
	if e.TooLarge() {
		return fmt.Sprintf("the %s may have %d %s and this request alone needs %d", of, e.Limit, unit, e.Needed)
	}
	text := fmt.Sprintf("the %s may have %d %s and has %d", of, e.Limit, unit, e.Used)
	if e.Reserved > 0 {
		text += fmt.Sprintf(", and %d reserved by requests under way", e.Reserved)
	}
	return text + fmt.Sprintf(": there is no room for %d more", e.Needed)
}

// TooLarge reports whether the request would not fit if nothing else was there.
func (e *QuotaError) TooLarge() bool { return e.Needed > e.Limit }

// space is the room that one request has reserved within the limits of its org.
type space struct {
	engine  *Engine
	org     meta.OrgID
	repo    meta.RepoID
	id      string
	granted int64
}

var _ odb.Space = (*space)(nil)

// space returns where a writer reserves room in a repository, 0 for one that is
// to be made; nil where there are no limits.
func (e *Engine) space(w Writer, repo meta.RepoID) odb.Space {
	if !w.Metered {
		return nil
	}
	return &space{engine: e, org: w.Org, repo: repo, id: rand.Text()}
}

// newPack begins a pack that a writer adds to a repository.
func (e *Engine) newPack(w Writer, repo meta.RepoID, class meta.PackClass) *odb.PackFile {
	return e.cfg.ODB.NewPack(class).Within(e.space(w, repo))
}

// Grow implements odb.Space. What the Change that adds a pack can count by itself
// is not reserved. The error may be a *QuotaError.
func (s *space) Grow(ctx context.Context, bytes int64) error {
	if bytes <= s.granted || bytes <= odb.DefaultInlineLimit {
		return nil
	}
	step := min(max(s.granted, firstStep), lastStep)
	c := meta.Change{Org: s.org, Reserve: &meta.Reserve{
		ID: s.id, Process: s.engine.cfg.Process, Repo: s.repo, Bytes: bytes, Want: max(s.granted+step, bytes),
	}}
	v, err := s.engine.cfg.Meta.Apply(ctx, c)
	if err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	if !v.Applied {
		c.Repo = s.repo
		return refusal(c, v.Conflict)
	}
	s.granted = v.Granted
	return nil
}

// Reservation implements odb.Space.
func (s *space) Reservation() string {
	if s.granted == 0 {
		return ""
	}
	return s.id
}

// Used implements odb.Space.
func (s *space) Used() { s.granted = 0 }

// End implements odb.Space.
func (s *space) End(ctx context.Context) error {
	if s.granted == 0 {
		return nil
	}
	s.granted = 0
	return s.engine.cfg.Meta.EndReservations(context.WithoutCancel(ctx), []string{s.id})
}

// spacedReader reserves room for what is read before it is handed on.
type spacedReader struct {
	ctx   context.Context
	src   io.Reader
	space odb.Space
	n     int64
}

// Read reads from the stream.
func (r *spacedReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.n += int64(n)
	if full := r.space.Grow(r.ctx, r.n); full != nil {
		return 0, full
	}
	return n, err
}

// sweepReservations ends those that no operation can be using any more.
func (e *Engine) sweepReservations(ctx context.Context, live []meta.Process) error {
	since := oldestOperations(live, e.skew)
	rows, err := e.cfg.Meta.Reservations(ctx)
	if err != nil {
		return fmt.Errorf("sweep reservations: %w", err)
	}
	var ended []string
	for _, r := range rows {
		oldest, alive := since[r.Process]
		if !alive {
			oldest = e.cfg.Clock().Add(-e.skew)
		}
		if r.At.Before(oldest) {
			ended = append(ended, r.ID)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	if err := e.cfg.Meta.EndReservations(ctx, ended); err != nil {
		return fmt.Errorf("end reservations: %w", err)
	}
	return nil
}

// SetQuota bounds the bytes of a repository; 0 is what its org says of every
// repository, meta.NoLimit no bound.
func (e *Engine) SetQuota(ctx context.Context, w Writer, r meta.Repo, bytes int64) error {
	return e.change(ctx, w, r, meta.Change{SetRepoQuota: &bytes})
}

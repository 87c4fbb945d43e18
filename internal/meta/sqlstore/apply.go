package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Bounds on running a transaction again after another one got in its way.
const (
	maxAttempts  = 50
	maxBackoff   = 50 * time.Millisecond
	batchTimeout = time.Minute
)

// Apply implements meta.Store.
func (s *Store) Apply(ctx context.Context, c meta.Change) (meta.Verdict, error) {
	if err := check(&c); err != nil {
		return meta.Verdict{}, fmt.Errorf("%w: %w", meta.ErrNotApplied, err)
	}
	j := &job{change: &c}
	err := s.lanes.do(ctx, s.engine.lane(&c), j)
	return j.verdict, err
}

// write runs statements in a write transaction.
func (s *Store) write(ctx context.Context, stmts func(now int64) []stmt) error {
	return s.lanes.do(ctx, s.engine.lane(nil), &job{stmts: stmts})
}

// runBatch applies jobs in one transaction and answers each. A batch that fails
// without effect is run again job by job, so that one job cannot fail others.
func (s *Store) runBatch(jobs []*job) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	sent, err := s.attempt(ctx, jobs)
	if err == nil {
		return
	}
	f := s.engine.sort(err)
	if !sent && len(jobs) > 1 && f != faultUnavailable {
		for i := range jobs {
			s.runBatch(jobs[i : i+1])
		}
		return
	}
	if err = f.place(err); !sent {
		err = fmt.Errorf("%w: %w", meta.ErrNotApplied, err)
	}
	for _, j := range jobs {
		j.verdict, j.err = meta.Verdict{}, err
	}
}

// attempt runs one transaction until no other one is in its way.
func (s *Store) attempt(ctx context.Context, jobs []*job) (sent bool, err error) {
	for n := range maxAttempts {
		if sent, err = s.try(ctx, jobs); err == nil || sent || s.engine.sort(err) != faultRetry {
			return sent, err
		}
		pause := min(time.Millisecond<<min(n, 6), maxBackoff)
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(pause)) + 1)):
		case <-ctx.Done():
			return false, errors.Join(err, ctx.Err())
		}
	}
	return sent, err
}

// try runs one transaction once.
func (s *Store) try(ctx context.Context, jobs []*job) (sent bool, err error) {
	tx, err := s.engine.begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.rollback()
	b := newBatch(s.engine.dialect(), tx)
	if err := b.load(ctx, jobs); err != nil {
		return false, err
	}
	for _, j := range jobs {
		if j.change == nil {
			b.write(j.stmts(b.now)...)
			continue
		}
		if j.verdict, err = b.decide(ctx, j.change); err != nil {
			return false, err
		}
	}
	b.flush()
	return tx.commit(ctx, b.out)
}

// check refuses what no state of the database could make right.
func check(c *meta.Change) error {
	if c.Org == 0 {
		return errors.New("a change must name its org")
	}
	if c.Repo == 0 && (c.CreateRepo != nil || c.DeleteRepo || c.PurgeRepo || c.SetDefaultBranch != "" ||
		c.SetProtections != nil || len(c.Refs) > 0 || c.Untidy || c.AddPack != nil || c.ReplacePacks != nil) {
		return errors.New("a change of a repository must name it")
	}
	if f := c.Follow; f != nil && (c.Repo == 0 || (f.PutUpstream != nil) != (c.CreateRepo != nil)) {
		return errors.New("an upstream is followed by a repository from its creation on")
	}
	if f := c.Follow; f != nil && f.PutCredential != nil && len(f.PutCredential.Username) > meta.MaxName {
		return fmt.Errorf("the user name of a credential must have at most %d bytes", meta.MaxName)
	}
	if n := c.Content; n != nil && n.PutUpload != nil && (n.PutUpload.ID == "" || max(len(n.PutUpload.ID), len(n.PutUpload.Thread)) > meta.MaxName) {
		return fmt.Errorf("an upload of objects must have a name of 1 to %d bytes, and a thread of no more", meta.MaxName)
	}
	if n := c.Content; n != nil && n.AddIndex != nil && len(n.AddPacks)+len(n.SetPacks)+len(n.RemovePacks) > 0 {
		return errors.New("an index file is not added together with changes of packs")
	}
	if err := checkLimits(c); err != nil {
		return err
	}
	if c.Thread != nil {
		if err := checkThread(c); err != nil {
			return err
		}
	}
	if c.CreateRepo != nil && (c.DeleteRepo || c.PurgeRepo || c.ReplacePacks != nil) {
		return errors.New("a repository cannot be made and changed away at once")
	}
	if c.CreateRepo != nil && c.CreateRepo.PackSet != 0 &&
		(c.CreateRepo.Source == 0 || c.CreateRepo.PackSet != c.SourcePackSet) {
		return fmt.Errorf("repository %q: only a fork starts with a pack set, that of its source", c.CreateRepo.Name)
	}
	if c.CreateOrg != nil && (c.CreateOrg.Name == "" || len(c.CreateOrg.Name) > meta.MaxName) {
		return fmt.Errorf("org %q: the name must have 1 to %d bytes", c.CreateOrg.Name, meta.MaxName)
	}
	if c.CreateRepo != nil && (c.CreateRepo.Name == "" || len(c.CreateRepo.Name) > meta.MaxName) {
		return fmt.Errorf("repository %q: the name must have 1 to %d bytes", c.CreateRepo.Name, meta.MaxName)
	}
	for i := range c.RaiseFloors {
		f := &c.RaiseFloors[i]
		if kindNumber[f.Kind] == 0 || (f.Kind == meta.FloorRef) != (f.Repo != 0) || len(f.Target) > meta.MaxName {
			return fmt.Errorf("floor on %q %q: unknown kind, or a repository that does not go with it", f.Kind, f.Target)
		}
	}
	seen := make(map[string]bool, len(c.Refs))
	for i := range c.Refs {
		w := &c.Refs[i]
		if w.Name == "" || len(w.Name) > meta.MaxName {
			return fmt.Errorf("ref %q: the name must have 1 to %d bytes", w.Name, meta.MaxName)
		}
		if seen[w.Name] {
			return fmt.Errorf("ref %q is named twice in one change", w.Name)
		}
		seen[w.Name] = true
	}
	if i := c.Idempotency; i != nil && (i.Key == "" || len(i.Key) > meta.MaxName) {
		return fmt.Errorf("idempotency key %q must have 1 to %d bytes", i.Key, meta.MaxName)
	}
	return nil
}

package content

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// Defaults of Background.
const (
	DefaultSweepEvery = time.Hour
	DefaultScrubAge   = 14 * 24 * time.Hour
	DefaultScrubRate  = 32 << 20
)

const (
	// lookEvery is how often the background looks at all orgs by itself, and
	// sweepAllEvery how often it sweeps those that nobody named.
	lookEvery     = 10 * time.Minute
	sweepAllEvery = 24 * time.Hour
	scrubEvery    = time.Minute
	scrubBatch    = 32
)

// Background is what Run does by itself.
type Background struct {
	// Roots says what is referred to; nil sweeps nothing.
	Roots Roots
	// Swept is called after a sweep of an org that found all that is referred to.
	Swept func(ctx context.Context, org meta.OrgID) error
	// Report gets errors that no request waits for.
	Report func(error)
	// SweepEvery is how often orgs are swept of which something was deleted. ScrubAge is
	// the age from which on a pack's bytes are read again, ScrubRate how many bytes of
	// them a second. 0 means the default.
	SweepEvery, ScrubAge time.Duration
	ScrubRate            int64
}

// Figures count what the background did, and corruption that anyone met, since the
// start.
type Figures struct {
	Folded, Indexed                 int64 // packs
	Swept, SweptBytes               int64 // packs that were removed
	Condemned, Rescued              int64 // packs
	Scrubbed, ScrubbedBytes, Broken int64 // packs, and objects that were not whole
	Missing                         int64 // objects that the last sweep of each org missed
	Failures                        int64
	Corrupt                         int64
}

// figures is what Figures is read from.
type figures struct {
	folded, indexed, swept, sweptBytes, condemned, rescued, scrubbed, scrubbedBytes, broken, failures, corrupt atomic.Int64

	mu      sync.Mutex
	missing map[meta.OrgID]int64
}

// Figures returns what happened since the start.
func (s *Store) Figures() Figures {
	g := &s.figures
	f := Figures{
		Folded: g.folded.Load(), Indexed: g.indexed.Load(), Swept: g.swept.Load(), SweptBytes: g.sweptBytes.Load(),
		Condemned: g.condemned.Load(), Rescued: g.rescued.Load(), Scrubbed: g.scrubbed.Load(), ScrubbedBytes: g.scrubbedBytes.Load(),
		Broken: g.broken.Load(), Failures: g.failures.Load(), Corrupt: g.corrupt.Load(),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.missing {
		f.Missing += n
	}
	return f
}

// count notes what a sweep of an org did.
func (g *figures) count(org meta.OrgID, res *Swept) {
	g.condemned.Add(int64(res.Condemned))
	g.rescued.Add(int64(res.Rescued))
	g.swept.Add(int64(res.Removed))
	g.sweptBytes.Add(res.Freed)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing == nil {
		g.missing = make(map[meta.OrgID]int64)
	}
	g.missing[org] = res.Missing
}

// CorruptCount returns how many corruptions were met since the start.
func (s *Store) CorruptCount() int64 { return s.figures.corrupt.Load() }

// wake tells the background that an org has new packs.
func (s *Store) wake(org meta.OrgID) {
	select {
	case s.due <- org:
	default: // all orgs are looked at by and by
	}
}

// suspect tells the background that a pack could not be read.
func (s *Store) suspect(org meta.OrgID, id meta.ContentID) {
	select {
	case s.suspects <- packKey{org, id}:
	default: // the scrubber comes by
	}
}

// distrust tells the background that an index file is damaged.
func (s *Store) distrust(org meta.OrgID, id meta.ContentID) {
	s.distrusted.Store(id, true)
	s.tables.Remove(id)
	s.wake(org)
}

// packKey names a pack.
type packKey struct {
	org meta.OrgID
	id  meta.ContentID
}

// Deleted tells the background that something that an org's objects were referred
// to from is gone, so that a sweep is worth its work.
func (s *Store) Deleted(org meta.OrgID) {
	s.deleted.Lock()
	defer s.deleted.Unlock()
	if s.deleted.orgs == nil {
		s.deleted.orgs = make(map[meta.OrgID]struct{})
	}
	s.deleted.orgs[org] = struct{}{}
}

// Run keeps packs and index files few, sweeps, and reads all packs by and by, until
// ctx ends.
func (s *Store) Run(ctx context.Context, b Background) {
	if b.SweepEvery == 0 {
		b.SweepEvery = DefaultSweepEvery
	}
	if b.ScrubAge == 0 {
		b.ScrubAge = DefaultScrubAge
	}
	if b.ScrubRate == 0 {
		b.ScrubRate = DefaultScrubRate
	}
	try := func(err error) {
		if err != nil && ctx.Err() == nil {
			s.figures.failures.Add(1)
			b.Report(err)
		}
	}
	var running sync.WaitGroup
	running.Go(func() { s.runTidy(ctx, try) })
	running.Go(func() { s.runSuspects(ctx, try) })
	running.Go(func() { s.runScrub(ctx, &b, try) })
	if b.Roots != nil {
		running.Go(func() { s.runSweep(ctx, &b, try) })
	}
	running.Wait()
}

// eachOrg calls fn for every org that has content.
func (s *Store) eachOrg(ctx context.Context, fn func(org meta.OrgID)) error {
	for after := meta.OrgID(-1 << 63); ctx.Err() == nil; {
		orgs, err := s.cfg.Meta.ContentOrgs(ctx, after, pageOfPacks)
		if err != nil {
			return fmt.Errorf("read orgs: %w", err)
		}
		for _, org := range orgs {
			fn(org)
			after = org
		}
		if len(orgs) < pageOfPacks {
			return nil
		}
	}
	return nil
}

func (s *Store) runTidy(ctx context.Context, try func(error)) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	tidy := func(org meta.OrgID) {
		t, err := s.Tidy(ctx, org)
		s.figures.folded.Add(int64(t.Folded))
		s.figures.indexed.Add(int64(t.Indexed))
		if err != nil {
			try(fmt.Errorf("put packs of org %d together: %w", org, err))
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case org := <-s.due:
			tidy(org)
		case <-look.C:
			try(s.eachOrg(ctx, tidy))
		}
	}
}

func (s *Store) runSuspects(ctx context.Context, try func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case k := <-s.suspects:
			try(s.scrubAndCount(ctx, k.org, k.id, &pace{}))
		}
	}
}

// scrubAndCount scrubs a pack; what is wrong with it is an error too.
func (s *Store) scrubAndCount(ctx context.Context, org meta.OrgID, id meta.ContentID, p *pace) error {
	res, err := s.scrub(ctx, org, id, p)
	s.figures.scrubbed.Add(1)
	s.figures.scrubbedBytes.Add(res.Bytes)
	s.figures.broken.Add(int64(res.Broken))
	if err != nil {
		return fmt.Errorf("read pack %s of org %d: %w", id, org, err)
	}
	if res.Err != nil {
		return fmt.Errorf("stored objects of org %d are damaged: %w", org, res.Err)
	}
	return nil
}

func (s *Store) runScrub(ctx context.Context, b *Background, try func(error)) {
	look := time.NewTicker(scrubEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		packs, err := s.cfg.Meta.UncheckedContentPacks(ctx, s.cfg.Clock().Add(-b.ScrubAge), scrubBatch)
		try(err)
		p := &pace{rate: b.ScrubRate}
		for i := range packs {
			try(s.scrubAndCount(ctx, packs[i].Org, packs[i].ID, p))
		}
	}
}

func (s *Store) runSweep(ctx context.Context, b *Background, try func(error)) {
	sweep := time.NewTicker(b.SweepEvery)
	defer sweep.Stop()
	all := time.NewTicker(sweepAllEvery)
	defer all.Stop()
	one := func(org meta.OrgID) {
		res, err := s.Sweep(ctx, org, b.Roots)
		s.figures.count(org, &res)
		if err != nil {
			try(fmt.Errorf("sweep the objects of org %d: %w", org, err))
		}
		if err == nil && !res.Hidden && b.Swept != nil {
			try(b.Swept(ctx, org))
		}
		if res.Hidden {
			try(fmt.Errorf("sweep the objects of org %d: %d that are referred to are missing, so that nothing is removed; cairn fsck names them", org, res.Missing))
		}
		if res.Condemned > 0 {
			s.Deleted(org) // the next sweep removes them
		}
	}
	try(s.eachOrg(ctx, s.Deleted)) // what was deleted before this process began
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			s.deleted.Lock()
			orgs := s.deleted.orgs
			s.deleted.orgs = nil
			s.deleted.Unlock()
			for org := range orgs {
				one(org)
			}
		case <-all.C:
			try(s.eachOrg(ctx, one))
		}
	}
}

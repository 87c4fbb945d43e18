package content

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// FindingKind is a kind of fault that fsck looks for.
type FindingKind string

// What Fsck and FsckBlobs check, by what breaks it.
const (
	FindPack         FindingKind = "pack"         // a pack cannot be read, or an object in it is not whole
	FindIndex        FindingKind = "index"        // an index file cannot be read, or says something else than its packs
	FindMissing      FindingKind = "missing"      // something that is referred to is in no pack
	FindBlob         FindingKind = "blob"         // a blob that meta names is absent
	FindUnreferenced FindingKind = "unreferenced" // a blob that meta does not name; harmless
)

// Finding is one fault.
type Finding struct {
	Kind   FindingKind
	Detail string // one sentence that names what it is about
}

// Fsck checks the objects of one org: that each pack holds what its table says,
// each object what its digest says, that the index files say what the packs do,
// and, unless roots is nil, that all that is referred to is there. The error is a
// fault of the check itself; damage is reported.
func (s *Store) Fsck(ctx context.Context, org meta.OrgID, roots Roots, report func(Finding)) error {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	v, err := s.view(ctx, org)
	if corrupt(err) {
		report(Finding{FindIndex, err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	c := &fsck{store: s, view: v, counts: make(map[meta.ContentID]int), report: report}
	if err := c.indexes(ctx); err != nil {
		return err
	}
	for after := (meta.ContentID{}); ; {
		packs, err := s.cfg.Meta.ContentPacks(ctx, org, after, pageOfPacks)
		if err != nil {
			return fmt.Errorf("read packs: %w", err)
		}
		for i := range packs {
			after = packs[i].ID
			if err := c.pack(ctx, &packs[i]); err != nil {
				return err
			}
		}
		if len(packs) < pageOfPacks {
			break
		}
	}
	if roots == nil {
		return nil
	}
	return c.references(ctx, roots)
}

// fsck is one check of one org.
type fsck struct {
	store  *Store
	view   *view
	counts map[meta.ContentID]int // objects that tables and index files have of a pack
	broken bool                   // an index file cannot be read: counts are not known
	report func(Finding)
}

func (c *fsck) found(kind FindingKind, format string, args ...any) {
	c.report(Finding{kind, fmt.Sprintf(format, args...)})
}

// indexes reads all tables of the view.
func (c *fsck) indexes(ctx context.Context) error {
	for i := range c.view.parts {
		p := &c.view.parts[i]
		err := p.each(ctx, func(_ int, r *record) error {
			if p.states[r.pack] != 0 {
				c.counts[p.ids[r.pack]]++
			}
			return nil
		})
		if corrupt(err) {
			c.broken = true
			c.found(FindIndex, "index file or table %s: %v", p.id, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// pack checks one pack. One that came after the view is checked by itself.
func (c *fsck) pack(ctx context.Context, row *meta.ContentPack) error {
	if row.State == meta.ContentDamaged {
		return nil // known; what it lacks shows as missing if anything refers to it
	}
	x, err := c.store.examine(ctx, row, &pace{})
	if err != nil {
		return err
	}
	if x.damage != nil {
		if _, there, err := c.store.row(ctx, row.Org, row.ID); err != nil || !there {
			return err // it was removed meanwhile
		}
		c.found(FindPack, "%v", x.damage)
	}
	if len(x.whole)+len(x.broken) == 0 {
		return nil
	}
	n, known := c.counts[row.ID]
	if !known || c.broken {
		if !c.broken && c.covered(row) {
			c.found(FindIndex, "pack %s is in no index file", row.ID)
		}
		return nil
	}
	if total := len(x.whole) + len(x.broken); n != total || int64(total) != row.Objects {
		c.found(FindIndex, "pack %s has %d objects where the index files have %d and its row says %d", row.ID, total, n, row.Objects)
	}
	for _, f := range x.whole {
		here := false
		err := c.view.find(ctx, f.digest, func(l *location) bool {
			here = l.id == row.ID && l.place.lies(&f.place)
			return !here
		})
		if err != nil {
			return err
		}
		if !here {
			c.found(FindIndex, "pack %s: the index files do not have object %s where it is", row.ID, f.digest)
		}
	}
	return nil
}

// covered reports whether an index file of the view should have a pack.
func (c *fsck) covered(row *meta.ContentPack) bool {
	for i := range c.view.parts {
		if c.view.parts[i].id == row.Index {
			return true
		}
	}
	return false
}

// references checks that everything that is referred to is there.
func (c *fsck) references(ctx context.Context, roots Roots) error {
	// What was packed before the roots are read is in this view.
	v, err := c.store.view(ctx, c.view.org)
	if err != nil {
		return err
	}
	m := c.store.newMarker(v)
	if err := m.markAll(ctx, roots); err != nil {
		if c.broken && corrupt(err) {
			return nil // an index file was found damaged already
		}
		return err
	}
	// What was appended meanwhile may be in packs that came later.
	for _, d := range m.missing {
		if err := c.readable(ctx, d); err != nil {
			return err
		}
	}
	if more := m.lost - int64(len(m.missing)); more > 0 {
		c.found(FindMissing, "%d further objects that are referred to are missing", more)
	}
	return nil
}

// readable reports an object that cannot be read.
func (c *fsck) readable(ctx context.Context, d tree.Digest) error {
	err := c.store.Source(c.view.org).Get(ctx, []tree.Digest{d}, func(tree.Digest, []byte) error { return nil })
	var missing *tree.MissingError
	var corrupted *tree.CorruptError
	switch {
	case errors.As(err, &missing):
		c.found(FindMissing, "object %s is referred to and in no pack", d)
	case errors.As(err, &corrupted):
		c.found(FindMissing, "object %s is referred to and in no pack whole", d)
	case err != nil:
		return err
	}
	return nil
}

// FsckBlobs checks that every blob which meta names for objects of checkpoints is
// there and as long as it says, and lists those that it does not name.
func (s *Store) FsckBlobs(ctx context.Context, report func(Finding)) error {
	named, _, err := s.blobKeys(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]int64, len(named))
	for info, err := range s.cfg.Blobs.List(ctx, KeyPrefix) {
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		there[string(info.Key)] = info.Size
	}
	// What came or went meanwhile is no fault.
	after, passing, err := s.blobKeys(ctx)
	if err != nil {
		return err
	}
	for key := range there {
		_, before := named[key]
		if _, now := after[key]; !before && !now && !passing[key] {
			report(Finding{FindUnreferenced, fmt.Sprintf("blob %q is named by nothing", key)})
		}
	}
	for key, size := range named {
		if _, still := after[key]; !still {
			continue
		}
		if got, ok := there[key]; !ok {
			report(Finding{FindBlob, fmt.Sprintf("blob %q is absent", key)})
		} else if got != size {
			report(Finding{FindBlob, fmt.Sprintf("blob %q has %d bytes where meta says %d", key, got, size)})
		}
	}
	return nil
}

// blobKeys returns the keys that rows name, with their sizes, and those that are
// being written or were retired.
func (s *Store) blobKeys(ctx context.Context) (named map[string]int64, passing map[string]bool, err error) {
	passing = make(map[string]bool)
	uploads, err := s.cfg.Meta.Uploads(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read uploads: %w", err)
	}
	for _, u := range uploads {
		passing[u.Key] = true
	}
	named = make(map[string]int64)
	err = s.cfg.Meta.LiveContentKeys(ctx, func(key string, size int64) error {
		named[key] = size
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the names of blobs: %w", err)
	}
	const all = 1 << 30
	retired, err := s.cfg.Meta.Retired(ctx, s.cfg.Clock().Add(time.Hour), all)
	if err != nil {
		return nil, nil, fmt.Errorf("read retired keys: %w", err)
	}
	for _, r := range retired {
		passing[r.Key] = true
	}
	return named, passing, nil
}

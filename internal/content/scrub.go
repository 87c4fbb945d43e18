package content

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// PackError says what is wrong with a pack.
type PackError struct {
	Pack    meta.ContentID
	Objects int // that are not whole; all of them are when the pack cannot be read
	What    string
}

func (e *PackError) Error() string { return fmt.Sprintf("pack %s: %s", e.Pack, e.What) }

// pace slows reading down to a number of bytes a second; 0 does not.
type pace struct {
	rate  int64
	began time.Time
	read  int64
}

func (p *pace) wait(ctx context.Context, n int64) error {
	if p.rate == 0 {
		return context.Cause(ctx)
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.read += n
	ahead := time.Duration(float64(p.read)/float64(p.rate)*float64(time.Second)) - time.Since(p.began)
	if ahead <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// examined is what was found in a pack.
type examined struct {
	whole, broken []found
	damage        *PackError // nil when all of it is whole
}

// examine reads all of a pack.
func (s *Store) examine(ctx context.Context, row *meta.ContentPack, p *pace) (x examined, err error) {
	all, err := s.contents(ctx, row)
	if corrupt(err) {
		x.damage = &PackError{row.ID, int(row.Objects), err.Error()}
		x.whole, err = s.recover(ctx, row)
		x.damage.Objects = max(0, x.damage.Objects-len(x.whole))
		return x, err
	}
	if err != nil {
		return x, err
	}
	for _, sp := range spans(all) {
		bad, err := s.copyObjects(ctx, nil, sp.objects)
		if err != nil {
			return x, err
		}
		ill := make(map[tree.Digest]bool, len(bad))
		for i := range bad {
			ill[bad[i].digest] = true
		}
		for _, f := range sp.objects {
			if !ill[f.digest] {
				x.whole = append(x.whole, f)
			}
		}
		x.broken = append(x.broken, bad...)
		if err := p.wait(ctx, sp.size); err != nil {
			return x, err
		}
	}
	if err := s.around(ctx, row); corrupt(err) {
		x.damage = &PackError{row.ID, 0, err.Error()}
	} else if err != nil {
		return x, err
	}
	if n := len(x.broken); n > 0 {
		x.damage = &PackError{row.ID, n, fmt.Sprintf("%d of its %d objects are not whole, %s is the first", n, len(all), x.broken[0].digest)}
	}
	return x, nil
}

// around checks what is around the objects of a pack: its header and its trailer.
func (s *Store) around(ctx context.Context, row *meta.ContentPack) error {
	first, last := make([]byte, packHeader), make([]byte, packTrailer)
	if row.Key == "" {
		data, err := s.cfg.Meta.ContentData(ctx, row.Org, row.ID)
		if err != nil {
			return fmt.Errorf("read small pack %s: %w", row.ID, err)
		}
		if int64(len(data)) != row.Bytes {
			return damaged("small pack %s has %d bytes", row.ID, len(data))
		}
		copy(first, data)
		copy(last, data[len(data)-packTrailer:])
	} else {
		o, err := blob.MustOpen(ctx, s.cfg.Packs, blob.Key(row.Key), row.Bytes)
		if err != nil {
			return err
		}
		defer o.Close()
		if err := readFull(o, first, 0); err != nil {
			return err
		}
		if err := readFull(o, last, row.Bytes-packTrailer); err != nil {
			return err
		}
	}
	if at, err := parseTrailer(last, row.Bytes); err != nil || at != row.TableAt || !bytes.Equal(first, header()) {
		return damaged("pack %s has another header or trailer", row.ID)
	}
	return nil
}

// Scrubbed says what was found when a pack was read.
type Scrubbed struct {
	Pack    meta.ContentID
	Objects int
	Bytes   int64
	// Broken counts objects that are not whole. Then the others were copied and the
	// pack is damaged: what was broken counts as missing, until it is sent again.
	Broken int
	Err    error // what is wrong, a *PackError
}

// scrub reads a pack and notes that it is whole. When it is not, twice, what is
// whole moves to another pack, and it becomes damaged.
func (s *Store) scrub(ctx context.Context, org meta.OrgID, id meta.ContentID, p *pace) (res Scrubbed, err error) {
	ctx, done, err := s.cfg.Begin(ctx)
	if err != nil {
		return res, err
	}
	defer done()
	res.Pack = id
	row, ok, err := s.row(ctx, org, id)
	if !ok || err != nil || row.State == meta.ContentDamaged {
		return res, err
	}
	x, err := s.examine(ctx, row, p)
	if err == nil && x.damage != nil {
		// What was wrong may have been the way here.
		s.tables.Remove(id)
		x, err = s.examine(ctx, row, p)
	}
	if err != nil {
		return res, err
	}
	// It may have been removed while it was read.
	if now, ok, err := s.row(ctx, org, id); !ok || err != nil || now.State != row.State {
		return res, err
	}
	res.Objects, res.Bytes = len(x.whole)+len(x.broken), row.Bytes
	if x.damage == nil {
		return res, s.apply(ctx, org, &meta.ContentChange{Checked: []meta.ContentID{id}})
	}
	res.Broken, res.Err = x.damage.Objects, x.damage
	s.figures.corrupt.Add(1)
	return res, s.setDamaged(ctx, row, x.whole)
}

// setDamaged copies what is whole and lets the pack count as damaged.
func (s *Store) setDamaged(ctx context.Context, row *meta.ContentPack, whole []found) error {
	to := &packer{store: s}
	defer to.abort(ctx)
	if _, err := s.copyObjects(ctx, to, whole); err != nil {
		return err
	}
	_, err := s.replace(ctx, row.Org, to, meta.ContentChange{
		SetPacks: []meta.ContentPackState{{ID: row.ID, From: row.State, To: meta.ContentDamaged}},
	})
	return err
}

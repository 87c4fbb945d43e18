package content

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// newID returns a random id.
func newID() (id meta.ContentID) {
	rand.Read(id[:])
	return id
}

// Suffixes of keys.
const (
	packSuffix  = ".pack"
	indexSuffix = ".index"
	listSuffix  = ".list"
)

func keyOf(id meta.ContentID, suffix string) string { return KeyPrefix + id.String() + suffix }

// packer puts objects into packs, one after the other. What it writes is named
// by nothing until a Change adds finished. One goroutine uses it.
type packer struct {
	store    *Store
	finished []meta.ContentPackWrite

	id      meta.ContentID
	buf     []byte // not written yet
	w       blob.Writer
	key     string // of w, which an upload row names
	size    int64
	raw     int64
	records []record
}

// bufferSize is how much is written to a blob at a time.
const bufferSize = 1 << 20

// add stores a group. Those of its objects that are not wanted have no digest: they
// are not in the table.
func (p *packer) add(ctx context.Context, g *frame.Group) error {
	if p.size == 0 {
		p.id = newID()
		p.buf = append(p.buf[:0], header()...)
		p.size = packHeader
	}
	before := len(p.buf)
	p.buf = appendGroup(p.buf, g)
	p.size += int64(len(p.buf) - before)
	at := place{offset: uint32(p.size - int64(len(g.Bytes))), length: uint32(len(g.Bytes)), total: uint32(g.Length), enc: g.Encoding}
	for i := range g.Members {
		m := &g.Members[i]
		at.raw, at.kind = uint32(m.Length), m.Kind
		if m.Digest != (tree.Digest{}) {
			p.raw += int64(m.Length)
			p.records = append(p.records, record{m.Digest, at})
		}
		at.at += at.raw
	}
	if len(p.buf) >= bufferSize {
		if err := p.write(ctx); err != nil {
			return err
		}
	}
	if p.size >= packTarget || len(p.records) >= packObjects {
		return p.finish(ctx)
	}
	return nil
}

// write writes what is buffered to the pack's blob.
func (p *packer) write(ctx context.Context) error {
	if p.w == nil {
		key := keyOf(p.id, packSuffix)
		if err := p.store.name(ctx, key); err != nil {
			return err
		}
		p.key = key
		w, err := p.store.cfg.Blobs.Create(ctx, blob.Key(key))
		if err != nil {
			return fmt.Errorf("store objects: %w", err)
		}
		p.w = w
	}
	if _, err := p.w.Write(p.buf); err != nil {
		return fmt.Errorf("store objects: %w", err)
	}
	p.buf = p.buf[:0]
	return nil
}

// name makes the upload row of a key.
func (s *Store) name(ctx context.Context, key string) error {
	if err := s.cfg.Meta.BeginUpload(ctx, meta.Upload{Key: key, Process: s.cfg.Process}); err != nil {
		return fmt.Errorf("name an upload of objects: %w", err)
	}
	return nil
}

// finish ends the pack that is being written, if there is one.
func (p *packer) finish(ctx context.Context) error {
	if p.size == 0 {
		return nil
	}
	slices.SortFunc(p.records, func(a, b record) int { return a.compare(&b) })
	tableAt := p.size
	var tail bytes.Buffer
	_, err := writeTable(&tail, []meta.ContentID{p.id}, func(fn func(*record) error) error {
		for i := range p.records {
			if err := fn(&p.records[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.buf = append(p.buf, tail.Bytes()...)
	p.buf = append(p.buf, trailer(tableAt)...)
	p.size += int64(tail.Len()) + packTrailer
	row := meta.ContentPackWrite{ContentPack: meta.ContentPack{
		ID: p.id, State: meta.ContentLive, Bytes: p.size, RawBytes: p.raw, TableAt: tableAt, Objects: int64(len(p.records)),
	}}
	if p.w == nil && p.size <= int64(p.store.cfg.InlineLimit) {
		row.Data = slices.Clone(p.buf)
	} else {
		if err := p.write(ctx); err != nil {
			return err
		}
		if err := p.w.Finish(ctx); err != nil {
			return fmt.Errorf("store objects: %w", err)
		}
		row.Key = p.key
	}
	p.finished = append(p.finished, row)
	p.w, p.key, p.buf, p.size, p.raw, p.records = nil, "", p.buf[:0], 0, 0, p.records[:0]
	return nil
}

// abort drops everything that no Change has added. What cannot be removed is left
// to the sweep.
func (p *packer) abort(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if p.w != nil {
		p.w.Abort()
		p.w = nil
	}
	keys := []string{p.key}
	for i := range p.finished {
		keys = append(keys, p.finished[i].Key)
	}
	p.store.drop(ctx, keys...)
	p.finished, p.key, p.size, p.buf, p.records = nil, "", 0, nil, nil
}

// drop removes blobs that were uploaded and are not named, and their upload rows.
// It leaves to the sweep what it cannot remove.
func (s *Store) drop(ctx context.Context, keys ...string) {
	for _, key := range keys {
		if key != "" && s.cfg.Blobs.Delete(ctx, blob.Key(key)) == nil {
			_ = s.cfg.Meta.EndUpload(ctx, key) // the sweep ends it too
		}
	}
}

// apply applies a Change of an org's content. A refusal is a *refusal.
func (s *Store) apply(ctx context.Context, org meta.OrgID, c *meta.ContentChange) error {
	verdict, err := s.cfg.Meta.Apply(ctx, meta.Change{Org: org, Content: c})
	if err != nil {
		return fmt.Errorf("change stored objects: %w", err)
	}
	if q := verdict.Conflict; q != nil && q.Kind == meta.ConflictQuota {
		return &QuotaError{*q.Quota}
	}
	if verdict.Conflict != nil {
		return &refusal{verdict.Conflict.Kind}
	}
	return nil
}

// QuotaError refuses what the limit of the org has no room for.
type QuotaError struct{ meta.QuotaConflict }

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%d bytes are needed, and of %d there are %d used and %d reserved: delete something or raise the limit",
		e.Needed, e.Limit, e.Used, e.Reserved)
}

// refusal is a Change that was not applied.
type refusal struct{ kind meta.ConflictKind }

func (r *refusal) Error() string { return fmt.Sprintf("stored objects have changed: %s", r.kind) }

// refused reports whether err is a refusal of one of some kinds.
func refused(err error, kinds ...meta.ConflictKind) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains(kinds, r.kind)
}

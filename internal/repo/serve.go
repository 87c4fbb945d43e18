package repo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
)

// Send implements wire.Uploader.
func (u *uploader) Send(ctx context.Context, w io.Writer, f *wire.Fetch, shallow wire.ShallowUpdate, progress func(string)) error {
	key, cacheable := u.answerKey(f, shallow)
	if cacheable {
		if answer, ok := u.v.engine.answers.Get(key); ok {
			_, err := w.Write(answer)
			return err
		}
	}
	g, err := u.v.Graph(ctx)
	if err != nil {
		return err
	}
	q, err := u.query(ctx, g, f, shallow)
	if err != nil {
		return err
	}
	sel, err := g.Select(ctx, q)
	if err != nil {
		return fmt.Errorf("select objects: %w", err)
	}
	if f.IncludeTag {
		if err := u.includeTags(ctx, g, sel.Objects); err != nil {
			return err
		}
	}
	if progress != nil {
		progress(fmt.Sprintf("Enumerating objects: %d, done.\n", sel.Objects.Len()))
	}
	keep := &answer{w: w}
	if cacheable {
		w = keep
	}
	out := &packer{ctx: ctx, db: g.DB(), set: sel.Objects, ofs: f.OfsDelta, joins: u.v.engine.answers}
	if f.ThinPack && f.Filter == (wire.Filter{}) {
		out.had = sel.Had
	}
	if _, err := out.write(w); err != nil {
		return err
	}
	if cacheable && !keep.over {
		u.v.engine.answers.Put(key, keep.buf.Bytes(), int64(keep.buf.Len()))
	}
	return nil
}

// query translates a request.
func (u *uploader) query(ctx context.Context, g *graph.Graph, f *wire.Fetch, shallow wire.ShallowUpdate) (graph.Query, error) {
	q := graph.Query{
		Wants: f.Wants, Haves: f.Haves, HaveCut: f.ClientShallow,
		Filter: graph.Filter{
			HasBlobLimit: f.Filter.HasBlobLimit, BlobLimit: f.Filter.BlobLimit,
			HasTreeDepth: f.Filter.HasTreeDepth, TreeDepth: f.Filter.TreeDepth, Type: f.Filter.Type,
		},
		Whole: f.OfsDelta,
	}
	q.WantCut = slices.Clone(shallow.Shallow)
	for _, id := range f.ClientShallow {
		if !slices.Contains(shallow.Unshallow, id) {
			q.WantCut = append(q.WantCut, id)
		}
	}
	// What lies below these will be sent: they must be the repository's to show.
	known, err := u.clientShallow(ctx, g, shallow.Unshallow)
	if err != nil {
		return q, err
	}
	for _, n := range known {
		q.Unshallow = append(q.Unshallow, g.ID(n))
	}
	return q, nil
}

// includeTags adds the annotated tags that the client sees and whose objects it
// gets.
func (u *uploader) includeTags(ctx context.Context, g *graph.Graph, set *graph.ObjectSet) error {
	if u.v.refs.annotated == 0 {
		return nil
	}
	db := g.DB()
	var err error
	u.v.each(u.ns, refname.TagsPrefix, func(r meta.Ref) bool {
		if r.Peeled.IsZero() {
			return true
		}
		loc, ok := db.Find(r.Peeled)
		if !ok || !set.Has(loc) {
			return true
		}
		for id := r.ID; id != r.Peeled; {
			loc, ok := db.Find(id)
			if ok {
				set.Add(loc)
			}
			var data []byte
			if _, data, err = db.Get(ctx, id); err != nil {
				return false
			}
			if id, _, err = object.TagTarget(data); err != nil {
				return false
			}
		}
		return true
	})
	return err
}

// answerKey identifies the whole answer to a request.
type answerKey [sha256.Size]byte

// maxAnswer is the size in bytes up to which an answer is kept.
const maxAnswer = 2 << 20

// answerKey returns the key of a request's answer. Requests of clients that have
// something are not kept.
func (u *uploader) answerKey(f *wire.Fetch, shallow wire.ShallowUpdate) (answerKey, bool) {
	if len(f.Haves)+len(f.ClientShallow)+len(shallow.Unshallow) > 0 || len(f.Wants) > 64 {
		return answerKey{}, false
	}
	h := sha256.New()
	number := func(v int64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
	flag := func(v bool) {
		if v {
			number(1)
		} else {
			number(0)
		}
	}
	number(int64(u.v.repo.ID))
	for _, ids := range [][]object.ID{f.Wants, shallow.Shallow} {
		ids = slices.Clone(ids)
		slices.SortFunc(ids, object.ID.Compare)
		number(int64(len(ids)))
		for _, id := range ids {
			h.Write(id[:])
		}
	}
	flag(f.Filter.HasBlobLimit)
	number(f.Filter.BlobLimit)
	flag(f.Filter.HasTreeDepth)
	number(int64(f.Filter.TreeDepth))
	number(int64(f.Filter.Type))
	flag(f.OfsDelta)
	// Which tags come along depends on the refs.
	if f.IncludeTag && u.v.refs.annotated > 0 {
		number(u.v.repo.Version)
		number(int64(u.ns))
	}
	return answerKey(h.Sum(nil)), true
}

// answer copies what is written, up to maxAnswer.
type answer struct {
	w    io.Writer
	buf  bytes.Buffer
	over bool
}

func (a *answer) Write(b []byte) (int, error) {
	if !a.over && a.buf.Len()+len(b) > maxAnswer {
		a.over, a.buf = true, bytes.Buffer{}
	}
	if !a.over {
		a.buf.Write(b)
	}
	return a.w.Write(b)
}

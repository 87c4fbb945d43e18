package repo

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// FindingKind is a kind of fault that fsck looks for.
type FindingKind string

// The invariants that Fsck and FsckBlobs check, by what breaks them.
const (
	FindPack         FindingKind = "pack"         // a pack cannot be read, or its bytes are not what they should be
	FindObject       FindingKind = "object"       // an object is malformed or not what its ID says
	FindMissing      FindingKind = "missing"      // something reachable is in no pack
	FindRef          FindingKind = "ref"          // a ref names nothing, or the wrong thing
	FindBlob         FindingKind = "blob"         // a blob that meta names is absent
	FindUnreferenced FindingKind = "unreferenced" // a blob that meta does not name; harmless
)

// Finding is one broken invariant.
type Finding struct {
	Kind   FindingKind
	Detail string // one sentence that names what it is about
}

// Fsck checks one repository at one version: that every pack's bytes match their
// checksum and index and hold well-formed objects, that every ref resolves and
// has the peeled value that is stored, and that what the refs reach is complete.
// The error is a fault of the check itself; damage is reported.
func (e *Engine) Fsck(ctx context.Context, r meta.Repo, report func(Finding)) error {
	v, err := e.View(ctx, r)
	if err != nil {
		return fmt.Errorf("check repository %q: %w", r.Name, err)
	}
	db, err := v.DB(ctx)
	if broken(err) {
		report(Finding{FindPack, err.Error()})
		return nil
	}
	if err != nil {
		return fmt.Errorf("check repository %q: %w", r.Name, err)
	}
	c := fsck{view: v, db: db, report: report}
	for _, p := range c.db.Packs() {
		if err := c.pack(ctx, p); err != nil {
			return err
		}
	}
	if err := c.refs(ctx); err != nil {
		return err
	}
	return c.closure(ctx)
}

// broken reports whether err is damage rather than a fault of reading it.
func broken(err error) bool {
	var corrupt *odb.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, meta.ErrCorrupt)
}

// fsck is one check of one repository.
type fsck struct {
	view   *View
	db     *odb.DB
	report func(Finding)
	roots  []link
}

func (c *fsck) found(kind FindingKind, format string, args ...any) {
	c.report(Finding{kind, fmt.Sprintf(format, args...)})
}

// pack checks one pack: trailer, index, and every object.
func (c *fsck) pack(ctx context.Context, p *odb.Pack) error {
	id, idx := p.Info().ID, p.Index()
	if err := idx.Verify(); err != nil {
		c.found(FindPack, "pack %d: index: %v", id, err)
	}
	sum := sha1.New()
	tail := &tailWriter{w: sum}
	if _, err := p.WriteTo(tail); err != nil {
		c.found(FindPack, "pack %d: it cannot be read: %v", id, err)
		return ctx.Err()
	}
	if got := object.ID(sum.Sum(nil)); got != tail.last() || got != idx.PackChecksum() {
		c.found(FindPack, "pack %d: its bytes have the checksum %s, the trailer says %s and the index %s", id, got, tail.last(), idx.PackChecksum())
	}
	if n := p.Info().Objects; n != int64(idx.Count()) {
		c.found(FindPack, "pack %d: it has %d objects where meta says %d", id, idx.Count(), n)
	}
	for pos := range idx.Count() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.object(p, pos); err != nil {
			c.found(FindObject, "pack %d: object %s: %v", id, idx.ID(pos), err)
		}
	}
	return nil
}

// object checks one object's form and ID.
func (c *fsck) object(p *odb.Pack, pos int) error {
	t, size, r, err := p.Stream(pos)
	if err != nil {
		return err
	}
	defer r.Close()
	h := object.NewHasher(t, size)
	var data strings.Builder
	w := io.Writer(h)
	if t != object.Blob {
		w = io.MultiWriter(h, &data)
	}
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	id, err := h.Sum()
	if err != nil {
		return err
	}
	if id != p.Index().ID(pos) {
		return fmt.Errorf("its content has the id %s", id)
	}
	return object.Check(t, []byte(data.String()))
}

// tailWriter passes on all but the last bytes, which are a pack's trailer.
type tailWriter struct {
	w    io.Writer
	tail []byte
}

// Write passes on what is certainly not the trailer.
func (t *tailWriter) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if n := len(t.tail) - object.Size; n > 0 {
		if _, err := t.w.Write(t.tail[:n]); err != nil {
			return 0, err
		}
		t.tail = append(t.tail[:0], t.tail[n:]...)
	}
	return len(p), nil
}

func (t *tailWriter) last() object.ID {
	if len(t.tail) < object.Size {
		return object.Zero
	}
	return object.ID(t.tail)
}

// refs checks that every ref resolves.
func (c *fsck) refs(ctx context.Context) error {
	objects := &objects{db: c.db}
	return c.view.Refs(ctx, "", func(ref meta.Ref) error {
		if err := CheckStoredName(ref.Name); err != nil {
			c.found(FindRef, "ref %q: %v", ref.Name, err)
		}
		if !c.db.Has(ref.ID) {
			c.found(FindMissing, "ref %q: object %s is in no pack", ref.Name, ref.ID)
			return nil
		}
		id, t, err := objects.peel(ctx, ref.ID)
		if err != nil {
			c.found(FindRef, "ref %q: %v", ref.Name, err)
			return ctx.Err()
		}
		if want := peeledOf(ref.ID, id); ref.Peeled != want {
			c.found(FindRef, "ref %q: its peeled value is stored as %s and is %s", ref.Name, ref.Peeled, want)
		}
		inner, _ := refname.SplitEphemeral(ref.Name)
		if refname.IsBranch(inner) && (t != object.Commit || id != ref.ID) {
			c.found(FindRef, "ref %q: a branch names %s, which is not a commit", ref.Name, ref.ID)
		}
		t, err = c.db.Type(ctx, ref.ID)
		if err == nil {
			c.roots = append(c.roots, link{id: ref.ID, typ: t})
		}
		return ctx.Err()
	})
}

// peeledOf is the stored peeled value of a ref at id that leads to target.
func peeledOf(id, target object.ID) object.ID {
	if id == target {
		return object.Zero
	}
	return target
}

// closure walks everything that the refs reach.
func (c *fsck) closure(ctx context.Context) error {
	seen := graph.NewObjectSet(c.db)
	todo := c.roots
	for len(todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		loc, ok := c.db.Find(k.id)
		if !ok {
			c.found(FindMissing, "%s %s is reachable and in no pack", k.typ, k.id)
			continue
		}
		if !seen.Add(loc) {
			continue
		}
		t, err := c.db.Type(ctx, k.id)
		if err == nil && t != k.typ {
			c.found(FindObject, "object %s is named as a %s and is a %s", k.id, k.typ, t)
			continue
		}
		if err != nil || t == object.Blob {
			continue // damage was found when the pack was checked
		}
		_, data, err := c.db.Get(ctx, k.id)
		if err != nil {
			continue
		}
		_ = eachLink(t, data, func(k link) error { // a malformed object was found too
			todo = append(todo, k)
			return nil
		})
	}
	return nil
}

// FsckBlobs checks that every blob which meta names exists, and lists those that
// it does not name.
func (e *Engine) FsckBlobs(ctx context.Context, report func(Finding)) error {
	before, err := e.packKeys(ctx)
	if err != nil {
		return err
	}
	parts := make(map[string]int, len(before))
	var unknown []string
	for info, err := range e.cfg.Blobs.List(ctx, odb.KeyPrefix) {
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		name := string(info.Key)
		key := packKey(name)
		parts[key]++
		if !before[key].named {
			unknown = append(unknown, name)
		}
	}
	// What came or went meanwhile is no fault.
	after, err := e.packKeys(ctx)
	if err != nil {
		return err
	}
	for _, name := range unknown {
		if !after[packKey(name)].named {
			report(Finding{FindUnreferenced, fmt.Sprintf("blob %q is named by nothing", name)})
		}
	}
	for key, k := range before {
		if k.needed && after[key].needed && parts[key] < len(packSuffixes) {
			report(Finding{FindBlob, fmt.Sprintf("pack %q has %d of its %d blobs", key, parts[key], len(packSuffixes))})
		}
	}
	return nil
}

// packKey is what a blob's name is without its suffix.
func packKey(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// keyState says what meta knows of a key: named by anything, needed by a pack.
type keyState struct{ named, needed bool }

// packKeys reads the keys of packs, uploads and retired packs.
func (e *Engine) packKeys(ctx context.Context) (map[string]keyState, error) {
	keys := make(map[string]keyState)
	err := e.cfg.Meta.LivePackKeys(ctx, func(key string) error {
		keys[key] = keyState{named: true, needed: true}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the names of blobs: %w", err)
	}
	uploads, err := e.cfg.Meta.Uploads(ctx)
	if err != nil {
		return nil, fmt.Errorf("read uploads: %w", err)
	}
	for _, u := range uploads {
		keys[u.Key] = keyState{named: true}
	}
	const all = 1 << 30
	retired, err := e.cfg.Meta.Retired(ctx, e.cfg.Clock().Add(e.skew+time.Hour), all)
	if err != nil {
		return nil, fmt.Errorf("read retired keys: %w", err)
	}
	for _, r := range retired {
		keys[r.Key] = keyState{named: true}
	}
	return keys, nil
}

package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// keySize is the length of a key: long enough that nobody finds two objects with
// one.
const keySize = 16

// key says that a thread knows an object: its bytes, or all that it reaches in a
// certain role. A directory whose bytes are known as those of a file is not known
// as a directory.
type key [keySize]byte

// bytesKey says that the bytes of an object are known.
func bytesKey(d tree.Digest) key { return key(d[:keySize]) }

// roleKey says that an object and all that it reaches is known, where what names
// it says what is in claims.
func roleKey(kind tree.Kind, d tree.Digest, claims ...any) key {
	h := sha256.New()
	h.Write([]byte{byte(kind)})
	h.Write(d[:])
	for _, c := range claims {
		switch c := c.(type) {
		case uint64:
			h.Write(binary.AppendUvarint(nil, c))
		case string:
			h.Write(binary.AppendUvarint(nil, uint64(len(c))))
			h.Write([]byte(c))
		case tree.Summary:
			b := binary.AppendUvarint(nil, c.Entries)
			b = binary.AppendUvarint(b, c.Files)
			h.Write(binary.AppendUvarint(b, c.Bytes))
		}
	}
	return key(h.Sum(nil)[:keySize])
}

// keys are sorted, without repetition, one after the other.
type keys []byte

func (k keys) len() int { return len(k) / keySize }

func (k keys) at(i int) []byte { return k[i*keySize : (i+1)*keySize] }

func (k keys) has(want key) bool {
	low, high := 0, k.len()
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch bytes.Compare(k.at(mid), want[:]) {
		case 0:
			return true
		case -1:
			low = mid + 1
		default:
			high = mid
		}
	}
	return false
}

// sortKeys makes keys of a list, which it reorders.
func sortKeys(list []key) keys {
	slices.SortFunc(list, func(a, b key) int { return bytes.Compare(a[:], b[:]) })
	list = slices.Compact(list)
	k := make(keys, 0, len(list)*keySize)
	for i := range list {
		k = append(k, list[i][:]...)
	}
	return k
}

// merge unites two sets.
func merge(a, b keys) keys {
	out := make(keys, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := bytes.Compare(a[:keySize], b[:keySize]); {
		case c < 0:
			out, a = append(out, a[:keySize]...), a[keySize:]
		case c > 0:
			out, b = append(out, b[:keySize]...), b[keySize:]
		default:
			out, a, b = append(out, a[:keySize]...), a[keySize:], b[keySize:]
		}
	}
	out = append(out, a...)
	return append(out, b...)
}

// known is what a thread knows, at a version of it. A set of keys is a segment;
// few are kept, each more than twice as large as the one after it.
type known struct {
	thread meta.Thread // its Version is 0 for one that has no row
	rows   []meta.Segment
	sets   []keys
	// generation is that of the content at which all of it was there.
	generation int64
}

func (k *known) has(want key) bool {
	return slices.ContainsFunc(k.sets, func(s keys) bool { return s.has(want) })
}

// known reads what a thread knows, and finds it out anew where objects of deleted
// checkpoints may be gone.
func (e *Engine) known(ctx context.Context, org meta.OrgID, thread string) (*known, error) {
	for range maxRetries {
		k, err := e.readKnown(ctx, org, thread)
		if err != nil || k.thread.Known >= 0 && (!k.thread.Dirty || k.thread.Known == k.generation) {
			return k, err
		}
		if err = e.relearn(ctx, org, k); err != nil && !moved(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("learn what thread %q knows: %w", thread, errBusy)
}

func (e *Engine) readKnown(ctx context.Context, org meta.OrgID, thread string) (*known, error) {
	generation, err := e.cfg.Content.Generation(ctx, org)
	if err != nil {
		return nil, err
	}
	k := &known{generation: generation}
	k.thread, k.rows, err = e.cfg.Meta.Segments(ctx, org, thread)
	if errors.Is(err, meta.ErrNotFound) {
		k.thread = meta.Thread{Org: org, Name: thread}
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what thread %q knows: %w", thread, err)
	}
	for i := range k.rows {
		set, err := e.segment(ctx, org, &k.rows[i])
		if err != nil {
			return nil, err
		}
		k.sets = append(k.sets, set)
	}
	return k, nil
}

// segment returns the keys of a segment.
func (e *Engine) segment(ctx context.Context, org meta.OrgID, row *meta.Segment) (keys, error) {
	set := keys(row.Data)
	if len(row.Ref) > 0 {
		if held, ok := e.segments.Get(row.ID); ok {
			return held, nil
		}
		d, err := segmentRef(row.Ref)
		if err != nil {
			return nil, err
		}
		if set, err = e.read(ctx, org, d); err != nil {
			return nil, fmt.Errorf("%w: %w", err, meta.ErrCorrupt)
		}
		e.segments.Put(row.ID, set, int64(len(set)))
	}
	if int64(len(set)) != row.Keys*keySize {
		return nil, fmt.Errorf("segment %d of a thread has %d bytes for %d keys: %w", row.ID, len(set), row.Keys, meta.ErrCorrupt)
	}
	return set, nil
}

func segmentRef(ref []byte) (*document, error) {
	d := new(document)
	if err := json.Unmarshal(ref, d); err != nil {
		return nil, fmt.Errorf("reference to a segment: %w: %w", err, meta.ErrCorrupt)
	}
	return d, nil
}

// inlineKeys is up to how many keys a segment is a row, and not an object.
const inlineKeys = 4096

// newSegments are segments that are to be stored: rows, and the documents that
// some of them are.
type newSegments struct {
	change    meta.SegmentChange
	documents []*object
}

// add makes the change that adds keys to what a thread knows.
func (e *Engine) add(k *known, list []key) (*newSegments, error) {
	n := &newSegments{change: meta.SegmentChange{AtVersion: k.thread.Version}}
	set := sortKeys(list)
	if len(set) == 0 {
		return n, nil
	}
	for i := len(k.sets) - 1; i >= 0 && k.sets[i].len() <= 2*set.len(); i-- {
		set = merge(k.sets[i], set)
		n.change.Remove = append(n.change.Remove, k.rows[i].ID)
	}
	return n, e.store(n, set)
}

// store adds one segment to n.
func (e *Engine) store(n *newSegments, set keys) error {
	row := meta.Segment{ID: meta.NewID(e.cfg.Clock()), Keys: int64(set.len())}
	if set.len() <= inlineKeys {
		row.Data = set
	} else {
		o, err := newDocument(set)
		if err != nil {
			return err
		}
		if row.Ref, err = json.Marshal(&o.document); err != nil {
			return err
		}
		n.documents = append(n.documents, o)
		e.segments.Put(row.ID, set, int64(len(set)))
	}
	n.change.Add = append(n.change.Add, row)
	return nil
}

// relearn finds out what the checkpoints of a thread reach, and stores that in
// place of its segments.
func (e *Engine) relearn(ctx context.Context, org meta.OrgID, k *known) error {
	v := e.newVerifier(org, nil, nil)
	for after, done := (meta.CheckpointQuery{Org: org, Thread: k.thread.Name, Limit: 256}), false; !done; {
		rows, err := e.cfg.Meta.Checkpoints(ctx, after)
		if err != nil {
			return fmt.Errorf("read the checkpoints of thread %q: %w", k.thread.Name, err)
		}
		for _, row := range rows {
			if err := e.relearnOne(ctx, v, row); err != nil {
				return err
			}
			after.Started, after.AfterCreated, after.AfterID = true, row.Created, row.ID
		}
		done = len(rows) < after.Limit
	}
	added, list := v.finish()
	n := &newSegments{change: meta.SegmentChange{AtVersion: k.thread.Version, Anew: true, Known: k.generation, Bytes: added}}
	if set := sortKeys(list); len(set) > 0 {
		if err := e.store(n, set); err != nil {
			return err
		}
	}
	end := ""
	if len(n.documents) > 0 {
		upload := NewID()
		if err := e.put(ctx, org, k.thread.Name, upload, n.documents...); err != nil {
			return err
		}
		end = uploadID(k.thread.Name, upload)
	}
	_, err := e.apply(ctx, meta.Change{
		Org: org, Thread: &meta.ThreadChange{Name: k.thread.Name, Segments: &n.change},
		Content: &meta.ContentChange{Generation: &k.generation, EndUpload: end},
	})
	return err
}

func (e *Engine) relearnOne(ctx context.Context, v *verifier, row meta.Checkpoint) error {
	c, err := checkpointOf(row)
	if err != nil {
		return err
	}
	if root, ok := c.RootDigest(); ok {
		if _, err := v.root(ctx, root); err != nil {
			return fmt.Errorf("checkpoint %q: %w", c.ID, err)
		}
	}
	if c.Keys == nil || c.External {
		return nil
	}
	list, err := e.readKeys(ctx, v.org, &c)
	if err != nil {
		return err
	}
	sums := make([]tree.Digest, len(list))
	for i := range list {
		sums[i] = list[i].Sum
	}
	found, err := e.blobs(ctx, v.org, sums)
	if err != nil {
		return err
	}
	for _, b := range found {
		v.blob(b)
	}
	return v.walk(ctx)
}

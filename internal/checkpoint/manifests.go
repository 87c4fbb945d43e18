package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// NewManifest is a checkpoint in the form of TanStack AI that is to be appended.
type NewManifest struct {
	Thread     string
	Checkpoint json.RawMessage
	Expected   json.RawMessage
	// WriterThread and Lease are the writer's. Without a lease it is taken and given
	// back.
	WriterThread string
	Lease        *Lease
	External     bool   // the application keeps the blobs
	Upload       string // that has blobs, beside the thread's own
	Record       func(Appended) *meta.Idempotency
}

// AppendManifest checks a manifest in the order of the store's rules and appends
// it as it was given.
func (e *Engine) AppendManifest(ctx context.Context, c Caller, n NewManifest) (Appended, error) {
	m, head, err := parseManifest(n.Checkpoint, n.Expected, n.WriterThread)
	if err != nil {
		return Appended{}, err
	}
	if m.thread != n.Thread {
		return Appended{}, refuse(InvalidID, "the checkpoint is of another thread than the request")
	}
	documents, cp, err := m.documents(n.External)
	if err != nil {
		return Appended{}, err
	}
	for range maxRetries {
		done, err := e.tryManifest(ctx, c, &n, m, head, *cp, documents)
		if !moved(err) {
			return done, err
		}
	}
	return Appended{}, errBusy
}

// documents makes what is stored of a manifest.
func (m *manifest) documents(external bool) (list []*object, cp *Checkpoint, err error) {
	cp = &Checkpoint{
		ID: m.id, Thread: m.thread, Parent: m.parent, Label: m.label, Created: m.created,
		Facts: Facts{Kind: Manifest, Reason: m.reason, Run: m.run, Stats: m.stats, External: external},
	}
	envelope, err := m.envelope()
	if err != nil {
		return nil, nil, err
	}
	for _, part := range []struct {
		data []byte
		into **document
	}{
		{envelope, &cp.Manifest}, {m.files, &cp.Files}, {m.conversation, &cp.Conversation}, {m.artifacts, &cp.Artifacts},
		{encodeKeys(m.keys), &cp.Keys},
	} {
		if len(part.data) == 0 {
			continue
		}
		o, err := newDocument(part.data)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, o)
		*part.into = &o.document
	}
	return list, cp, nil
}

func (e *Engine) tryManifest(ctx context.Context, c Caller, n *NewManifest, m *manifest, head Head, cp Checkpoint, documents []*object) (Appended, error) {
	k, err := e.known(ctx, c.Org, n.Thread)
	if err != nil {
		return Appended{}, err
	}
	change := &meta.ThreadChange{Name: n.Thread, Expected: head.ID, Writer: n.Lease.writer(), Unheld: n.Lease == nil}
	if head.ID != k.thread.Head {
		return Appended{}, e.refused(ctx, c, change, &cp, nil)
	}
	segments := new(newSegments)
	if !n.External && len(m.keys) > 0 {
		v := e.newVerifier(c.Org, k, nil)
		if err := e.verifyBlobs(ctx, c, n, m, v); err != nil {
			return Appended{}, e.refused(ctx, c, change, &cp, err)
		}
		var list []key
		cp.Added, list = v.finish()
		if segments, err = e.add(k, list); err != nil {
			return Appended{}, err
		}
	}
	done := Appended{Checkpoint: cp}
	err = e.append(ctx, c, appendChange{
		thread: change, checkpoint: &cp, known: k, segments: segments, documents: slices.Concat(documents, segments.documents), upload: n.Upload,
	}, func() *meta.Idempotency {
		if n.Record == nil {
			return nil
		}
		return n.Record(done)
	})
	return done, e.recounted(ctx, c.Org, k, err)
}

// verifyBlobs finds out whether the thread may name all blobs of a manifest.
func (e *Engine) verifyBlobs(ctx context.Context, c Caller, n *NewManifest, m *manifest, v *verifier) error {
	sums := make([]tree.Digest, 0, len(m.keys))
	for _, k := range m.keys {
		sums = append(sums, k.Sum)
	}
	var found map[tree.Digest]Blob
	r, err := e.receipts(ctx, c.Org, n.Thread, n.Upload, blobUpload)
	switch {
	case err != nil:
		return err
	case c.AllThreads:
		// Whoever may see every thread may name what any of them has.
		found, err = e.blobs(ctx, c.Org, sums)
	default:
		found, err = e.nameable(ctx, c.Org, v.known, r, sums)
	}
	if err != nil {
		return err
	}
	for _, sum := range sums {
		if b, ok := found[sum]; ok {
			v.blob(b)
		} else if len(v.missing) < maxMissing {
			v.missing[sum] = true
		}
	}
	if len(v.missing) > 0 {
		return v.refuse()
	}
	return v.walk(ctx)
}

// blob notes a blob of a manifest, and has the recipe of a large one walked.
func (v *verifier) blob(b Blob) {
	c := b.Content
	if c.Sum == (tree.Digest{}) {
		return // the empty one
	}
	size := uint64(max(b.Size, 0))
	if c.Chunked {
		size = 0 // its chunks count
	}
	v.learn(c.Sum, size)
	if n := (node{kind: tree.Recipe, digest: c.Digest, content: c}); c.Chunked && !v.walked[n.role()] {
		v.walked[n.role()] = true
		v.note(n.role(), 0)
		v.open = true
		v.todo = append(v.todo, n)
	}
}

// readKeys returns the keys that a manifest names, in order.
func (e *Engine) readKeys(ctx context.Context, org meta.OrgID, c *Checkpoint) ([]Key, error) {
	b, err := e.read(ctx, org, c.Keys)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", c.ID, err)
	}
	return decodeKeys(b), nil
}

// Document is JSON that is kept with a checkpoint.
type Document int

// The documents.
const (
	Conversation Document = iota
	ArtifactList
)

// Document returns JSON that was given with a checkpoint; nil for none.
func (e *Engine) Document(ctx context.Context, org meta.OrgID, c *Checkpoint, which Document) (json.RawMessage, error) {
	if which == Conversation {
		return e.read(ctx, org, c.Conversation)
	}
	return e.read(ctx, org, c.Artifacts)
}

// ManifestJSON returns a manifest as it was given, with its parent as null where
// there was none; nil for a native checkpoint.
func (e *Engine) ManifestJSON(ctx context.Context, org meta.OrgID, c *Checkpoint) (json.RawMessage, error) {
	if c.Kind != Manifest {
		return nil, nil
	}
	envelope, err := e.read(ctx, org, c.Manifest)
	if err != nil {
		return nil, err
	}
	fields, ok := members(envelope)
	if !ok {
		return nil, fmt.Errorf("manifest of checkpoint %q is no object: %w", c.ID, meta.ErrCorrupt)
	}
	for name, d := range map[string]*document{"files": c.Files, "conversation": c.Conversation, "artifacts": c.Artifacts} {
		if d == nil {
			continue
		}
		if fields[name], err = e.read(ctx, org, d); err != nil {
			return nil, err
		}
	}
	if isNull(fields["parentCheckpointId"]) {
		fields["parentCheckpointId"] = json.RawMessage("null")
	}
	if c.Source != nil {
		err = forked(fields, c)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// forked gives a manifest that was copied what its copy says of itself.
func forked(fields map[string]json.RawMessage, c *Checkpoint) error {
	delete(fields, "label")
	delete(fields, "sourceRunId")
	fields["parentCheckpointId"] = json.RawMessage("null")
	for name, value := range map[string]any{"id": c.ID, "threadId": c.Thread, "createdAt": c.Created, "reason": c.Reason} {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("manifest of checkpoint %q: %w", c.ID, err)
		}
		fields[name] = text
	}
	return nil
}

package checkpoint

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cairnstate/cairn/api"
)

// Get asks for a checkpoint. See Store.
func (r *Remote) Get(ctx context.Context, id string) (*Checkpoint, error) {
	if err := checkIDs(id); err != nil {
		return nil, err
	}
	var answer api.Checkpoint
	err := r.call(ctx, request{
		method: http.MethodGet, path: checkpointPath(id, ""), query: url.Values{"manifests": {"true"}}, thread: everything,
		scopes: []string{readScope}, again: true,
	}, &answer)
	if err != nil {
		return nil, err
	}
	return fromWire(&answer)
}

// List asks for the checkpoints of a thread, page by page. See Store.
func (r *Remote) List(ctx context.Context, thread string, o ListOptions) iter.Seq2[*Checkpoint, error] {
	return func(yield func(*Checkpoint, error) bool) {
		if err := checkIDs(thread); err != nil {
			yield(nil, err)
			return
		}
		query := url.Values{"order": {"asc"}, "limit": {"100"}}
		if o.Newest {
			query.Set("order", "desc")
		}
		if o.Label != "" {
			query.Set("label", o.Label)
		}
		if o.Whole {
			query.Set("manifests", "true")
		}
		if o.Limit > 0 && o.Limit < 100 {
			query.Set("limit", strconv.Itoa(o.Limit))
		}
		for given := 0; ; {
			var page api.CheckpointPage
			if err := r.call(ctx, r.reading(thread, "/checkpoints", query), &page); err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Checkpoints {
				c, err := fromWire(&page.Checkpoints[i])
				if !yield(c, err) || err != nil {
					return
				}
				if given++; o.Limit > 0 && given == o.Limit {
					return
				}
			}
			if !page.HasMore || page.NextCursor == "" {
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	}
}

// reading is a request that reads of a thread.
func (r *Remote) reading(thread, rest string, query url.Values) request {
	return request{
		method: http.MethodGet, path: threadPath(thread, rest), query: query, thread: thread, scopes: []string{readScope}, again: true,
	}
}

// Head asks for the newest checkpoint of a thread. See Store.
func (r *Remote) Head(ctx context.Context, thread string) (string, error) {
	if err := checkIDs(thread); err != nil {
		return "", err
	}
	var answer api.Thread
	err := r.call(ctx, r.reading(thread, "", nil), &answer)
	return answer.Head, err
}

// Append sends a checkpoint. See Store.
func (r *Remote) Append(ctx context.Context, a Append) (*Appended, error) {
	c := &a.Checkpoint
	if err := checkIDs(append([]string{c.Thread}, optional(c.ID, a.ExpectedHead, c.Parent)...)...); err != nil {
		return nil, err
	}
	if a.Writer != nil && a.Writer.Thread != c.Thread {
		return nil, errorf(ErrWriterLost, "the writer is that of thread %q, not of %q", a.Writer.Thread, c.Thread)
	}
	q := request{
		method: http.MethodPost, path: threadPath(c.Thread, "/checkpoints"), thread: c.Thread, scopes: []string{writeScope, readScope},
		key: a.Key, expected: a.ExpectedHead,
	}
	if !c.Native() {
		return r.appendManifest(ctx, q, a)
	}
	body := map[string]any{"id": c.ID, "root": c.Root.String(), "upload": a.Upload, "label": c.Label, "reason": c.Reason, "run": c.Run}
	for name, value := range body {
		if value == "" || value == Reason("") {
			delete(body, name)
		}
	}
	switch {
	case a.AnyHead:
		body["onto"] = "head"
	case a.ExpectedHead == "":
		body["expected_head"] = nil
	default:
		body["expected_head"] = a.ExpectedHead
	}
	if a.Always {
		body["always"] = true
	}
	if a.Writer != nil {
		body["lease"] = api.Writer{OwnerToken: a.Writer.OwnerToken, Fence: a.Writer.Fence}
	}
	if c.Git != nil {
		body["git"] = api.GitOrigin{Repo: c.Git.Repo, Branch: c.Git.Branch, Commit: c.Git.Commit}
	}
	if !c.CreatedAt.IsZero() {
		body["created_at"] = c.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	if len(c.Conversation) > 0 {
		body["conversation"] = c.Conversation
	}
	if len(c.Artifacts) > 0 {
		body["artifacts"] = toManifest(c).Artifacts
	}
	q.in = body
	return r.appended(ctx, q)
}

func (r *Remote) appended(ctx context.Context, q request) (*Appended, error) {
	var answer api.AppendedCheckpoint
	if err := r.call(ctx, q, &answer); err != nil {
		return nil, err
	}
	c, err := fromWire(&answer.Checkpoint)
	return &Appended{Checkpoint: c, Unchanged: answer.Unchanged}, err
}

// appendManifest sends a checkpoint with Files.
func (r *Remote) appendManifest(ctx context.Context, q request, a Append) (*Appended, error) {
	if a.AnyHead {
		head, err := r.Head(ctx, a.Checkpoint.Thread)
		if err != nil {
			return nil, err
		}
		a.ExpectedHead, a.Checkpoint.Parent = head, head
	}
	if a.Checkpoint.ID == "" {
		a.Checkpoint.ID = newID()
	}
	if a.Checkpoint.CreatedAt.IsZero() {
		a.Checkpoint.CreatedAt = time.Now()
	}
	body := map[string]any{"checkpoint": toManifest(&a.Checkpoint), "expectedHeadId": nil}
	if w := a.Writer; w != nil {
		body["writer"] = api.ManifestWriter{ThreadID: w.Thread, OwnerToken: w.OwnerToken, Fence: w.Fence}
	}
	if a.ExpectedHead != "" {
		body["expectedHeadId"] = a.ExpectedHead
	}
	if a.Upload != "" {
		body["upload"] = a.Upload
	}
	if a.Checkpoint.External {
		body["external_blobs"] = true
	}
	q.path, q.in = threadPath(a.Checkpoint.Thread, "/manifests"), body
	return r.appended(ctx, q)
}

// DeleteHead takes the head off a thread. See Store.
func (r *Remote) DeleteHead(ctx context.Context, thread, id string, w Writer) error {
	if err := checkIDs(thread, id, w.Thread); err != nil {
		return err
	}
	return r.call(ctx, request{
		method: http.MethodDelete, path: threadPath(thread, "/head"), thread: thread, scopes: []string{writeScope},
		in: map[string]any{
			"checkpointId": id, "writer": api.ManifestWriter{ThreadID: w.Thread, OwnerToken: w.OwnerToken, Fence: w.Fence},
		},
	}, nil)
}

// Acquire takes the lease of a thread. See Store.
func (r *Remote) Acquire(ctx context.Context, thread string) (*Lease, error) {
	if err := checkIDs(thread); err != nil {
		return nil, err
	}
	return r.lease(ctx, http.MethodPost, "/lease", thread, map[string]any{})
}

// Renew prolongs a lease. See Store.
func (r *Remote) Renew(ctx context.Context, w Writer) (*Lease, error) {
	if err := checkIDs(w.Thread); err != nil {
		return nil, err
	}
	return r.lease(ctx, http.MethodPost, "/lease/renew", w.Thread, api.Writer{OwnerToken: w.OwnerToken, Fence: w.Fence})
}

func (r *Remote) lease(ctx context.Context, method, rest, thread string, in any) (*Lease, error) {
	var answer api.Lease
	err := r.call(ctx, request{method: method, path: threadPath(thread, rest), thread: thread, scopes: []string{writeScope}, in: in}, &answer)
	if err != nil {
		return nil, err
	}
	return &Lease{
		Writer:     Writer{Thread: answer.ThreadID, OwnerToken: answer.OwnerToken, Fence: answer.Fence},
		ExpiresAt:  time.UnixMilli(answer.ExpiresAt),
		RenewAfter: time.Duration(answer.RenewAfterMS) * time.Millisecond,
	}, nil
}

// Release ends a lease. See Store.
func (r *Remote) Release(ctx context.Context, w Writer) error {
	if err := checkIDs(w.Thread); err != nil {
		return err
	}
	return r.call(ctx, request{
		method: http.MethodDelete, path: threadPath(w.Thread, "/lease"), thread: w.Thread, scopes: []string{writeScope}, again: true,
		in: api.Writer{OwnerToken: w.OwnerToken, Fence: w.Fence},
	}, nil)
}

// ForkFrom starts a thread from a checkpoint. See Forker.
func (r *Remote) ForkFrom(ctx context.Context, f ForkParams) (*Checkpoint, error) {
	ids := append([]string{f.Checkpoint, f.Thread}, optional(f.Source, f.ID)...)
	if f.Writer != nil {
		ids = append(ids, f.Writer.Thread)
	}
	if err := checkIDs(ids...); err != nil {
		return nil, err
	}
	body := map[string]any{"thread": f.Thread}
	if f.ID != "" {
		body["id"] = f.ID
	}
	if f.Source != "" {
		body["source_thread"] = f.Source
	}
	if !f.CreatedAt.IsZero() {
		body["created_at_ms"] = f.CreatedAt.UnixMilli()
	}
	if f.Writer != nil {
		body["writer"] = api.Writer{OwnerToken: f.Writer.OwnerToken, Fence: f.Writer.Fence}
		if f.Writer.Thread != f.Thread {
			body["writer"] = api.Writer{OwnerToken: "of another thread"} // the server checks it in its place
		}
	}
	var answer api.Checkpoint
	err := r.call(ctx, request{
		method: http.MethodPost, path: checkpointPath(f.Checkpoint, "/fork"), thread: everything, scopes: []string{readScope, writeScope}, in: body,
	}, &answer)
	if err != nil {
		return nil, err
	}
	return fromWire(&answer)
}

// References counts the uses of blobs in every thread that the token covers. See Counter.
func (r *Remote) References(ctx context.Context) iter.Seq2[Reference, error] {
	return func(yield func(Reference, error) bool) {
		for query := (url.Values{"limit": {"1000"}}); ; {
			var page api.ReferencePage
			err := r.call(ctx, request{
				method: http.MethodGet, path: "/api/blobs/references", query: query, thread: everything, scopes: []string{readScope}, again: true,
			}, &page)
			if err != nil {
				yield(Reference{}, err)
				return
			}
			for _, ref := range page.References {
				if !yield(Reference{ref.Key, int(ref.References)}, nil) {
					return
				}
			}
			if !page.HasMore || page.NextCursor == "" {
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	}
}

// manifest is a checkpoint in the form of TanStack AI.
type manifest struct {
	ID           string             `json:"id"`
	Thread       string             `json:"threadId"`
	Parent       *string            `json:"parentCheckpointId"`
	CreatedAt    float64            `json:"createdAt"`
	Reason       string             `json:"reason"`
	Label        string             `json:"label,omitempty"`
	Run          string             `json:"sourceRunId,omitempty"`
	Files        []manifestFile     `json:"files"`
	Conversation []json.RawMessage  `json:"conversation"`
	Artifacts    []manifestArtifact `json:"artifacts"`
}

type manifestFile struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	BlobKey string `json:"blobKey,omitempty"`
	Size    *int64 `json:"size,omitempty"`
}

type manifestArtifact struct {
	ID        string  `json:"artifactId"`
	Name      string  `json:"name"`
	MimeType  string  `json:"mimeType"`
	Size      int64   `json:"size"`
	BlobKey   string  `json:"blobKey"`
	CreatedAt float64 `json:"createdAt"`
}

func toManifest(c *Checkpoint) *manifest {
	m := &manifest{
		ID: c.ID, Thread: c.Thread, CreatedAt: float64(c.CreatedAt.UnixMilli()), Reason: string(c.Reason), Label: c.Label, Run: c.Run,
		Files: []manifestFile{}, Conversation: c.Conversation, Artifacts: []manifestArtifact{},
	}
	if m.Reason == "" {
		m.Reason = string(Automatic)
	}
	if c.Parent != "" {
		m.Parent = &c.Parent
	}
	if m.Conversation == nil {
		m.Conversation = []json.RawMessage{}
	}
	for _, f := range c.Files {
		file := manifestFile{Path: f.Path, Kind: f.Kind, BlobKey: f.BlobKey}
		if f.Kind != "dir" || f.Size != 0 {
			file.Size = &f.Size
		}
		m.Files = append(m.Files, file)
	}
	for _, a := range c.Artifacts {
		m.Artifacts = append(m.Artifacts, manifestArtifact{a.ID, a.Name, a.MimeType, a.Size, a.BlobKey, float64(a.CreatedAt.UnixMilli())})
	}
	return m
}

// fromWire decodes a checkpoint.
func fromWire(w *api.Checkpoint) (*Checkpoint, error) {
	c := &Checkpoint{
		ID: w.ID, Thread: w.Thread, Parent: w.Parent, CreatedAt: ofMillis(w.CreatedAtMS), Reason: Reason(w.Reason), Label: w.Label, Run: w.Run,
		Stats: Stats{Entries: uint64(w.Stats.Entries), Files: uint64(w.Stats.Files), Bytes: uint64(w.Stats.Bytes)}, Pinned: w.Pinned, External: w.ExternalBlobs,
	}
	bad := errorf(ErrUnavailable, "the answer of the server has a checkpoint %q that cannot be read", w.ID)
	if w.Root != "" {
		root, err := parseDigest(w.Root)
		if err != nil {
			return nil, bad
		}
		c.Root = root
	}
	if w.Git != nil {
		c.Git = &Git{Repo: w.Git.Repo, Branch: w.Git.Branch, Commit: w.Git.Commit}
	}
	if w.Source != nil {
		c.From = &Fork{Thread: w.Source.Thread, Checkpoint: w.Source.Checkpoint}
	}
	var m manifest
	for _, part := range []struct {
		from json.RawMessage
		to   any
	}{{w.Manifest, &m}, {w.Conversation, &m.Conversation}, {w.Artifacts, &m.Artifacts}} {
		if len(part.from) > 0 && json.Unmarshal(part.from, part.to) != nil {
			return nil, bad
		}
	}
	if len(m.Conversation) > 0 {
		c.Conversation = m.Conversation
	}
	for _, f := range m.Files {
		file := File{Path: f.Path, Kind: f.Kind, BlobKey: f.BlobKey}
		if f.Size != nil {
			file.Size = *f.Size
		}
		c.Files = append(c.Files, file)
	}
	for _, a := range m.Artifacts {
		c.Artifacts = append(c.Artifacts, Artifact{a.ID, a.Name, a.MimeType, a.Size, a.BlobKey, ofMillis(a.CreatedAt)})
	}
	return c, nil
}

// ofMillis converts a time of the wire. One beyond what a time can hold becomes the nearest.
func ofMillis(ms float64) time.Time {
	const most = float64(math.MaxInt64 / 1_000_000)
	return time.UnixMilli(int64(max(-most, min(most, ms)))).UTC()
}

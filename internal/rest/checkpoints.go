package rest

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/tree"
)

// refusedSnapshot says more of why a checkpoint was refused.
func refusedSnapshot(p *service.Error) *api.SnapshotRefusal {
	refused, ok := errors.AsType[*checkpoint.Error](p.Err)
	if !ok || refused.Head == "" && len(refused.Missing) == 0 {
		return nil
	}
	return &api.SnapshotRefusal{Head: refused.Head, Missing: hexes(refused.Missing)}
}

func hexes(digests []tree.Digest) []string {
	list := make([]string, len(digests))
	for i, d := range digests {
		list[i] = d.String()
	}
	return list
}

// describePoint turns a checkpoint into its form in answers.
func (c *call) describePoint(cp *checkpoint.Checkpoint) api.Checkpoint {
	out := api.Checkpoint{
		ID: cp.ID, Thread: cp.Thread, Parent: cp.Parent, CreatedAtMS: cp.Created, Reason: cp.Reason, Label: cp.Label, Run: cp.Run,
		Kind: cp.Kind, Pinned: cp.Pinned, ExternalBlobs: cp.External,
		Stats: api.CheckpointStats{
			Entries: int64(min(cp.Stats.Entries, math.MaxInt64)), Files: int64(min(cp.Stats.Files, math.MaxInt64)),
			Bytes: int64(min(cp.Stats.Bytes, math.MaxInt64)), Added: cp.Added,
		},
	}
	if t := time.UnixMilli(int64(cp.Created)).UTC(); math.Abs(cp.Created) < 1<<48 && t.Year() >= 1 && t.Year() <= 9999 {
		out.CreatedAt = t.Format(time.RFC3339Nano)
	}
	if root, ok := cp.RootDigest(); ok {
		out.Root = root.String()
	}
	if g := cp.Git; g != nil {
		out.Git = &api.GitOrigin{Repo: g.Repo, Branch: g.Branch, Commit: g.Commit}
	}
	if s := cp.Source; s != nil {
		out.Source = &api.ForkSource{Checkpoint: s.Checkpoint}
		if c.access.Principal.CoversThread(s.Thread) {
			out.Source.Thread = s.Thread
		}
	}
	return out
}

// describeFully adds what is only given when asked for.
func (c *call) describeFully(cp *checkpoint.Checkpoint) (api.Checkpoint, error) {
	out := c.describePoint(cp)
	e, org := c.Service.Checkpoints, c.access.Org.ID
	var err error
	if cp.Kind == checkpoint.Manifest {
		out.Manifest, err = e.ManifestJSON(c.ctx, org, cp)
		return out, err
	}
	if out.Conversation, err = e.Document(c.ctx, org, cp, checkpoint.Conversation); err != nil {
		return out, err
	}
	out.Artifacts, err = e.Document(c.ctx, org, cp, checkpoint.ArtifactList)
	return out, err
}

// expectedHead reads what an append is expected to be onto.
func expectedHead(expected json.RawMessage, onto string) (checkpoint.Head, error) {
	switch {
	case onto != "" && onto != "head":
		return checkpoint.Head{}, invalid("onto is %.40q: use \"head\", or say expected_head", onto)
	case onto == "head":
		return checkpoint.Head{Any: true}, nil
	case expected == nil:
		return checkpoint.Head{}, invalid("expected_head is missing: it is the id of the checkpoint that the workspace came from, or null")
	}
	head, err := checkpoint.ParseHead(expected)
	return head, service.ThreadError(err)
}

// jsonList checks that a member is a list, or absent.
func jsonList(name string, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] != '[' {
		return nil, invalid("%s has to be a list", name)
	}
	return raw, nil
}

func (c *call) appendCheckpoint(q api.AppendCheckpoint) error {
	n := checkpoint.NewCheckpoint{
		Thread: q.Thread, ID: q.ID, Upload: q.Upload, Lease: lease(q.Lease), Label: q.Label, Reason: q.Reason, Run: q.Run, Always: q.Always,
	}
	err := exact(q.ID)
	if err == nil {
		n.Root, err = tree.ParseDigest(q.Root)
		if err != nil {
			err = invalid("root has to be the digest of the root object: 64 lower-case hexadecimal digits")
		}
	}
	if err == nil {
		n.Expected, err = expectedHead(q.ExpectedHead, q.Onto)
	}
	if err == nil {
		n.Conversation, err = jsonList("conversation", q.Conversation)
	}
	if err == nil {
		n.Artifacts, err = jsonList("artifacts", q.Artifacts)
	}
	if err != nil {
		return err
	}
	switch {
	case q.Reason == "" && q.Label != "":
		n.Reason = "named"
	case q.Reason == "":
		n.Reason = "automatic"
	case q.Reason != "automatic" && q.Reason != "named":
		return invalid("reason is %.40q: use automatic or named", q.Reason)
	}
	if q.Upload != "" {
		if err := checkpoint.CheckUpload(q.Upload); err != nil {
			return service.ThreadError(err)
		}
	}
	if g := q.Git; g != nil {
		n.Git = &checkpoint.Git{Repo: g.Repo, Branch: g.Branch, Commit: g.Commit}
	}
	if q.CreatedAt != "" {
		t, err := time.Parse(time.RFC3339Nano, q.CreatedAt)
		if err != nil {
			return invalid("created_at %.40q is not RFC 3339", q.CreatedAt)
		}
		ms := float64(t.UnixMilli())
		n.Created = &ms
	}
	return c.append(n)
}

// append appends a native checkpoint and answers.
func (c *call) append(n checkpoint.NewCheckpoint) error {
	c.once.status = http.StatusCreated
	n.Record = record(c, c.appended)
	done, err := c.Service.Checkpoints.Append(c.ctx, c.access.Caller("POST checkpoints"), n)
	if err != nil {
		return service.ThreadError(err)
	}
	if done.Unchanged {
		return c.concludeAs(http.StatusOK, c.appended(done))
	}
	return c.concludeAs(http.StatusCreated, c.appended(done))
}

func (c *call) appended(a checkpoint.Appended) api.AppendedCheckpoint {
	return api.AppendedCheckpoint{Checkpoint: c.describePoint(&a.Checkpoint), Head: a.Checkpoint.ID, Unchanged: a.Unchanged}
}

func (c *call) appendManifest(q api.AppendManifest) (api.AppendedCheckpoint, error) {
	if q.Upload != "" {
		if err := checkpoint.CheckUpload(q.Upload); err != nil {
			return api.AppendedCheckpoint{}, service.ThreadError(err)
		}
	}
	if q.ExpectedHeadID == nil {
		return api.AppendedCheckpoint{}, invalid("expectedHeadId is missing: it is an id or null")
	}
	n := checkpoint.NewManifest{
		Thread: q.Thread, Checkpoint: q.Checkpoint, Expected: q.ExpectedHeadID, External: q.ExternalBlobs, Upload: q.Upload,
		WriterThread: q.Thread, Record: record(c, c.appended),
	}
	if w := q.Writer; w != nil {
		if err := exact(w.ThreadID); err != nil {
			return api.AppendedCheckpoint{}, err
		}
		n.WriterThread, n.Lease = w.ThreadID, &checkpoint.Lease{Token: w.OwnerToken, Fence: w.Fence}
	}
	done, err := c.Service.Checkpoints.AppendManifest(c.ctx, c.access.Caller("POST manifests"), n)
	return c.appended(done), service.ThreadError(err)
}

func (c *call) listCheckpoints(q api.ListCheckpoints) (api.CheckpointPage, error) {
	page := api.CheckpointPage{Checkpoints: []api.Checkpoint{}}
	if err := checkpoint.CheckThread(q.Thread); err != nil {
		return page, service.ThreadError(err)
	}
	if q.Order != "" && q.Order != "asc" && q.Order != "desc" {
		return page, invalid("order is %.40q: use asc or desc", q.Order)
	}
	limit := pageSize(q.Limit, threadsDefault, threadsMax)
	if q.Manifests {
		limit = pageSize(q.Limit, manifestsDefault, manifestsMax)
	}
	query := meta.CheckpointQuery{Org: c.access.Org.ID, Thread: q.Thread, Descending: q.Order != "asc", Limit: limit + 1}
	if q.Label != "" {
		query.Label = &q.Label
	}
	if q.Cursor != "" {
		var err error
		if query.AfterCreated, query.AfterID, err = checkpointPosition(q.Cursor); err != nil {
			return page, err
		}
		query.Started = true
	}
	t, err := c.Service.Checkpoints.Thread(c.ctx, query.Org, q.Thread)
	if err != nil {
		return page, err
	}
	page.Head = t.Head
	list, err := c.Service.Checkpoints.List(c.ctx, query)
	if err != nil {
		return page, err
	}
	size := 0
	for i := range list {
		// What is asked for in full fills a page by its size too.
		if i == limit || size > maxManifests {
			page.HasMore, page.NextCursor = true, afterCheckpoint(&list[i-1])
			break
		}
		out := c.describePoint(&list[i])
		if q.Manifests {
			if out, err = c.describeFully(&list[i]); err != nil {
				return page, err
			}
			size += len(out.Manifest) + len(out.Conversation) + len(out.Artifacts)
		}
		page.Checkpoints = append(page.Checkpoints, out)
	}
	return page, nil
}

// maxManifests is after how many bytes of manifests a page ends.
const maxManifests = 8 << 20

func (c *call) getCheckpoint(q api.GetCheckpoint) (api.Checkpoint, error) {
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return api.Checkpoint{}, err
	}
	if q.Manifests {
		return c.describeFully(&cp)
	}
	return c.describePoint(&cp), nil
}

func (c *call) deleteCheckpoint(q api.DeleteCheckpoint) (api.DeletedCheckpoint, error) {
	cp, err := c.Service.Checkpoint(c.ctx, c.access, q.ID)
	if err != nil {
		return api.DeletedCheckpoint{}, err
	}
	done, err := c.Service.Checkpoints.Delete(c.ctx, c.access.Caller("DELETE checkpoint"), cp.Thread, cp.ID, lease(q.Lease), record(c, deleted))
	return deleted(done), service.ThreadError(err)
}

func deleted(d checkpoint.Deleted) api.DeletedCheckpoint {
	return api.DeletedCheckpoint{ID: d.ID, Head: d.Head}
}

func (c *call) deleteHead(q api.DeleteHead) (api.DeletedCheckpoint, error) {
	none := api.DeletedCheckpoint{}
	err := errors.Join(checkpoint.CheckThread(q.Thread), checkpoint.CheckID(q.CheckpointID), checkpoint.CheckThread(q.Writer.ThreadID))
	if err != nil {
		return none, service.ThreadError(err)
	}
	if err := exact(q.CheckpointID, q.Writer.ThreadID); err != nil {
		return none, err
	}
	if q.Writer.ThreadID != q.Thread {
		return none, service.ThreadError(&checkpoint.Error{Code: checkpoint.WriterLost})
	}
	l := checkpoint.Lease{Token: q.Writer.OwnerToken, Fence: q.Writer.Fence}
	done, err := c.Service.Checkpoints.DeleteHead(c.ctx, c.access.Caller("DELETE head"), q.Thread, q.CheckpointID, l, record(c, deleted))
	return deleted(done), service.ThreadError(err)
}

func (c *call) pinCheckpoint(q api.PinCheckpoint) (api.Checkpoint, error) { return c.pin(q.ID, true) }

func (c *call) unpinCheckpoint(q api.PinCheckpoint) (api.Checkpoint, error) {
	return c.pin(q.ID, false)
}

func (c *call) pin(id string, pinned bool) (api.Checkpoint, error) {
	cp, err := c.Service.Checkpoint(c.ctx, c.access, id)
	if err != nil {
		return api.Checkpoint{}, err
	}
	cp.Pinned = pinned
	out := c.describePoint(&cp)
	c.keep(out)
	return out, service.ThreadError(c.Service.Checkpoints.Pin(c.ctx, c.access.Caller("pin"), cp.Thread, cp.ID, pinned))
}

func (c *call) forkCheckpoint(q api.ForkCheckpoint) (api.Checkpoint, error) {
	if err := exact(q.NewID, q.Thread, q.SourceThread); err != nil {
		return api.Checkpoint{}, err
	}
	f := checkpoint.Fork{Source: q.ID, SourceThread: q.SourceThread, Thread: q.Thread, ID: q.NewID, Lease: lease(q.Writer), Record: record(c, func(cp checkpoint.Checkpoint) api.Checkpoint { return c.describePoint(&cp) })}
	if q.CreatedAtMS != nil {
		ms := math.NaN()
		if json.Unmarshal(q.CreatedAtMS, &ms) != nil {
			ms = math.NaN()
		}
		f.Created = &ms
	}
	maySee, err := c.Service.MayFork(c.ctx, c.access, q.Thread, q.SourceToken)
	if err != nil {
		return api.Checkpoint{}, err
	}
	f.MaySee = maySee
	cp, err := c.Service.Checkpoints.Fork(c.ctx, c.access.Caller("POST fork"), f)
	return c.describePoint(&cp), service.ThreadError(err)
}

package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/workspace"
)

// List holds paths and how many there were: it keeps 10,000 of them, and of those that a policy leaves out, which Excluded
// counts, only while it has less than half.
type List = workspace.List

// CaptureParams say what is captured, and where it goes.
type CaptureParams struct {
	Store  Store  // required
	Blobs  Blobs  // required
	Thread string // required

	// Handle is the sandbox that has the files; nil for this machine.
	Handle Handle
	// Roots are the directories to capture; /workspace when empty. One without a name is called "workspace".
	Roots []Root
	// Policy chooses paths; nil is the default policy.
	Policy *Policy
	// Links is what becomes of links that leave their root.
	Links LinkRule
	// Secrets are zeroed in everything that is stored. Values below 6 bytes are refused unless AllowShortSecrets is set.
	Secrets           []Secret
	AllowShortSecrets bool
	// MarkChanged takes a file that keeps changing while it is read, and marks it; else the capture fails. A file is read
	// some times before that, or, with ReadOnce, once.
	MarkChanged bool
	ReadOnce    bool

	Label        string // names the checkpoint
	Run          string // what produced it
	Conversation []json.RawMessage
	Artifacts    []Artifact
	Git          *Git

	// ExpectedHead is the head that the files came from, "" for none; nil takes what was remembered when these roots were
	// last captured or restored. If another is the head, nothing is appended.
	ExpectedHead *string
	// AnyHead appends on whatever the head is.
	AnyHead bool
	// Writer is the lease under which to append; nil takes it for the moment of the append.
	Writer *Writer
	// WaitBusy is how long to wait while another writer has the thread, or a restore is at work in the roots; 0 fails at once.
	WaitBusy time.Duration
	// Always appends a checkpoint also when nothing changed since the head. A Label or Git that the head does not have is a
	// change.
	Always bool

	// StateDir keeps what is remembered of roots, and their stat caches; it must lie outside of them. When empty it is the
	// user's state directory, else one of the user's own in the directory for temporary files, /dev/shm or /var/tmp; where
	// none of them can be used, memory of this process.
	StateDir string
	// Progress is called from time to time, by one goroutine at a time.
	Progress func(Sent)
}

// Captured is what a capture did.
type Captured struct {
	Checkpoint *Checkpoint // the new one, or the head where nothing had changed
	Unchanged  bool        // nothing was appended: the head has the same files
	LeftOut    List        // what the policy and the options left out, and why
	Mixed      List        // files that changed while they were read
	Read       Stats       // what had to be read
	Sent       Sent        // what the store did not have
	// Forgotten says that no state directory can be used: another process knows nothing of this capture, and its own needs
	// an ExpectedHead.
	Forgotten bool
}

// Capture saves the files of the roots as a new checkpoint, which becomes the head of its thread. Nothing is written into the
// roots. It fails with *UnsupportedEntryError where something cannot be kept, with *HeadConflictError where the files did not
// come from the head, whoever has the lease, and else with ErrWriterConflict while another writer has the thread or another
// capture these roots. After an error nothing was appended, unless no answer came in time (ErrUnavailable); the next capture finds out.
func Capture(ctx context.Context, p CaptureParams) (*Captured, error) {
	c, err := newCapture(ctx, &p)
	if err != nil {
		return nil, err
	}
	defer c.state.close()
	result, err := c.scan(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { result.Close() }()
	appended, err := c.append(ctx, result)
	if errors.Is(err, ErrMissingBlob) {
		// What the stat cache knows of was deleted since: read and send all of it.
		result.Close()
		if err := os.Remove(c.state.cache()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if result, err = c.scan(ctx); err != nil {
			return nil, err
		}
		appended, err = c.append(ctx, result)
	}
	if err != nil {
		return nil, err
	}
	if err := c.remember(appended.Checkpoint.ID); err != nil {
		return nil, err
	}
	return &Captured{
		Checkpoint: appended.Checkpoint, Unchanged: appended.Unchanged, LeftOut: result.LeftOut, Mixed: result.Mixed,
		Read: Stats(result.Read), Sent: c.sent, Forgotten: c.state.dir == "",
	}, result.saveCache()
}

// capture is one run.
type capture struct {
	*CaptureParams
	state    *state
	place    place
	redact   *workspace.Redactor
	upload   string
	expected string
	sent     Sent
}

func newCapture(ctx context.Context, p *CaptureParams) (*capture, error) {
	if err := checkTarget(p.Store, p.Blobs, p.Thread); err != nil {
		return nil, err
	}
	if p.ExpectedHead != nil && p.AnyHead {
		return nil, errorf(ErrInvalid, "either a head is expected, or any will do")
	}
	p.Roots = withDefaults(p.Roots)
	c := &capture{CaptureParams: p, upload: rand.Text()}
	var err error
	if c.redact, err = workspace.NewRedactor(p.Secrets, p.AllowShortSecrets); err != nil {
		return nil, &Error{Code: ErrInvalid, Message: err.Error(), Err: err}
	}
	if err := c.checkNames(); err != nil {
		return nil, err
	}
	var id string
	if c.place, id, err = placeOf(p.Handle); err != nil {
		return nil, err
	}
	if c.state, err = openStateWithin(ctx, p.WaitBusy, p.StateDir, p.Store.Identity(), p.Thread, id, p.Roots); err != nil {
		return nil, err
	}
	switch {
	case p.AnyHead:
	case p.ExpectedHead != nil:
		c.expected = *p.ExpectedHead
	default:
		if c.expected, err = c.state.head(); err != nil {
			c.state.close()
			return nil, err
		}
	}
	return c, nil
}

// checkNames refuses what is stored as it is and holds a secret: zeros would make it
// mean something else.
func (c *capture) checkNames() error {
	names := []string{c.Thread}
	if p := c.Policy; p != nil {
		names = append(append(append(names, p.Rules), p.Include...), p.Exclude...)
	}
	for _, r := range c.Roots {
		names = append(names, r.Name)
	}
	for _, a := range c.Artifacts {
		names = append(names, a.ID)
	}
	if slices.ContainsFunc(names, c.redact.Finds) {
		return errorf(ErrInvalid, "the name of the thread, of a root or of an artifact, or the policy, holds the value of a secret; name it otherwise")
	}
	return nil
}

// checkTarget reports what no capture or restore can do without.
func checkTarget(store Store, blobs Blobs, thread string) error {
	if store == nil || blobs == nil {
		return errorf(ErrInvalid, "give a store, and blobs")
	}
	return checkIDs(thread)
}

// withDefaults names the roots.
func withDefaults(roots []Root) []Root {
	if len(roots) == 0 {
		return []Root{{Name: DefaultRootName, Path: DefaultRootPath}}
	}
	roots = slices.Clone(roots)
	for i := range roots {
		if roots[i].Name == "" {
			roots[i].Name = DefaultRootName
		}
	}
	return roots
}

// scan reads the roots and sends what is missing.
func (c *capture) scan(ctx context.Context) (*scanned, error) {
	policy := Policy{Base: ignore.Default}
	if c.Policy != nil {
		policy = *c.Policy
	}
	up := newUpload(ctx, c.Blobs, Scope{Thread: c.Thread, Upload: c.upload}, c.isFirst(ctx), c.Progress)
	result, err := c.place.scan(up.ctx, workspace.ScanOptions{
		Roots: c.Roots, Policy: policy, Links: c.Links, Secrets: c.Secrets, AllowShort: c.AllowShortSecrets,
		MarkMixed: c.MarkChanged, ReadOnce: c.ReadOnce, Cache: c.state.cache(),
	}, up)
	if err != nil {
		up.abort(err)
		return nil, scanError(err)
	}
	if c.sent, err = up.finish(); err != nil {
		result.Close()
		return nil, err
	}
	return result, nil
}

// isFirst reports whether the checkpoint can only become the first of its thread. A server then says of all objects that
// they are missing.
func (c *capture) isFirst(ctx context.Context) bool {
	if _, confined := c.Blobs.(*Remote); !confined || c.AnyHead || c.expected != "" {
		return false
	}
	head, err := c.Store.Head(ctx, c.Thread)
	return err == nil && head == ""
}

// scanError turns errors of a walk into those of this package.
func scanError(err error) error {
	if e, ok := errors.AsType[*workspace.RefusedError](err); ok {
		return &UnsupportedEntryError{Entries: e.List.Paths, Total: e.List.Total, Excludes: e.Excludes(), err: err}
	}
	if _, ok := errors.AsType[*workspace.ChangedError](err); ok {
		return &Error{Code: ErrInvalidWorkspace, Message: err.Error(), Err: err}
	}
	if errors.Is(err, workspace.ErrInvalid) || errors.Is(err, ignore.ErrInvalid) {
		return &Error{Code: ErrInvalid, Message: err.Error(), Err: err}
	}
	return placeError(err)
}

// origin is where the files come from, without secrets: addresses of repositories may
// have credentials in them.
func (c *capture) origin() *Git {
	if c.Git == nil {
		return nil
	}
	return &Git{Repo: c.redact.String(c.Git.Repo), Branch: c.redact.String(c.Git.Branch), Commit: c.redact.String(c.Git.Commit)}
}

// append makes what was read the head.
func (c *capture) append(ctx context.Context, result *scanned) (*Appended, error) {
	a := Append{
		Checkpoint: Checkpoint{
			ID: newID(), Thread: c.Thread, Label: c.redact.String(c.Label), Run: c.redact.String(c.Run), Root: result.Root,
			Git: c.origin(),
		},
		ExpectedHead: c.expected, AnyHead: c.AnyHead, Writer: c.Writer, Upload: c.upload, Key: rand.Text(), Always: c.Always,
	}
	for _, root := range result.Tree.Roots {
		a.Checkpoint.Stats = a.Checkpoint.Stats.plus(Stats(root.Summary))
	}
	for _, artifact := range c.Artifacts {
		artifact.Name, artifact.MimeType = c.redact.String(artifact.Name), c.redact.String(artifact.MimeType)
		a.Checkpoint.Artifacts = append(a.Checkpoint.Artifacts, artifact)
	}
	for _, message := range c.Conversation {
		clean, err := c.redact.JSON(message)
		if err != nil {
			return nil, errorf(ErrInvalid, "a message of the conversation is not JSON")
		}
		a.Checkpoint.Conversation = append(a.Checkpoint.Conversation, clean)
	}
	err := c.state.update(func(m *memory) {
		m.Pending = append(m.Pending[max(0, len(m.Pending)-maxPending+1):], a.Checkpoint.ID)
	})
	if err != nil {
		return nil, err
	}
	done, err := c.send(ctx, a)
	if conflict, ok := errors.AsType[*HeadConflictError](err); ok && c.ExpectedHead == nil && conflict.Head != "" && slices.Contains(c.state.pending(), conflict.Head) {
		// An earlier capture of these roots was appended, and its answer never came.
		a.ExpectedHead, a.Key = conflict.Head, rand.Text()
		done, err = c.send(ctx, a)
	}
	return done, err
}

// plus adds counts.
func (s Stats) plus(o Stats) Stats {
	return Stats{Entries: s.Entries + o.Entries, Files: s.Files + o.Files, Bytes: s.Bytes + o.Bytes}
}

// Waits between attempts.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
	// answerWait is how long an append without an answer is tried again.
	answerWait = 30 * time.Second
)

// send appends, again while no answer comes, and while another writer is at work as long as that may take.
func (c *capture) send(ctx context.Context, a Append) (*Appended, error) {
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		done, err := c.Store.Append(ctx, a)
		limit := time.Duration(-1)
		switch {
		case err == nil:
			return done, nil
		case errors.Is(err, ErrUnavailable):
			limit = answerWait
		case errors.Is(err, ErrWriterConflict) && c.Writer == nil:
			if stale := c.stale(ctx, a); stale != nil {
				return nil, stale
			}
			limit = c.WaitBusy
			a.Key = rand.Text() // a refusal may be remembered under the old one
		case errors.Is(err, ErrDuplicateID):
			return c.mine(ctx, a, err)
		}
		if limit <= 0 || time.Since(began)+wait > limit {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// stale looks whether the head is another than expected, while another writer is at work: then there is nothing to wait for.
func (c *capture) stale(ctx context.Context, a Append) error {
	if a.AnyHead {
		return nil
	}
	head, err := c.Store.Head(ctx, c.Thread)
	if err != nil || head == a.ExpectedHead {
		return nil // who is busy is told by the append
	}
	return &HeadConflictError{Thread: c.Thread, Expected: a.ExpectedHead, Head: head}
}

// mine looks whether the checkpoint that has the id is the one that was sent before: a store may not keep its answers.
func (c *capture) mine(ctx context.Context, a Append, refused error) (*Appended, error) {
	got, err := c.Store.Get(ctx, a.Checkpoint.ID)
	if err != nil || got.Thread != c.Thread || got.Root != a.Checkpoint.Root {
		return nil, refused
	}
	return &Appended{Checkpoint: got}, nil
}

// remember notes that the files are those of the head.
func (c *capture) remember(head string) error {
	err := c.state.update(func(m *memory) { m.Head, m.Pending, m.Restoring = head, nil, "" })
	if err != nil {
		return &Error{Code: ErrInvalid, Message: "the checkpoint " + head + " is saved, but " + err.Error(), Err: err}
	}
	return nil
}

// newID returns the id of a new checkpoint.
func newID() string { return "cp-" + rand.Text() }

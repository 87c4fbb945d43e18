package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// world is a store with a state directory.
type world struct {
	*Memory
	state string
}

func newWorld(t *testing.T) *world { return &world{&Memory{}, filepath.Join(t.TempDir(), "state")} }

func (w *world) capture(dir string) CaptureParams {
	return CaptureParams{Store: w, Blobs: w, Thread: "t", Roots: []Root{{Path: dir}}, StateDir: w.state}
}

func (w *world) restore(dir string) RestoreParams {
	return RestoreParams{Store: w, Blobs: w, Thread: "t", Roots: []Root{{Path: dir}}, StateDir: w.state}
}

func mustCapture(t *testing.T, p CaptureParams) *Captured {
	t.Helper()
	c, err := Capture(t.Context(), p)
	if err != nil {
		t.Fatalf("capture: %v", err)
	}
	return c
}

func mustRestore(t *testing.T, p RestoreParams) *Restored {
	t.Helper()
	r, err := Restore(t.Context(), p)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return r
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// files returns the contents of every file beneath dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestCaptureAndRestore(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), filepath.Join(t.TempDir(), "b")
	if r, err := Restore(t.Context(), w.restore(b)); r != nil || err != nil {
		t.Fatalf("a thread without checkpoints: %v, %v", r, err)
	}
	text := map[string]string{"a.txt": "one", "sub/b.txt": "two"}
	write(t, a, text)
	write(t, a, map[string]string{"node_modules/x.js": "left out"})
	p := w.capture(a)
	p.Label, p.Conversation = "first", []json.RawMessage{json.RawMessage(`{"role":"user"}`)}
	c := mustCapture(t, p)
	if c.Checkpoint.Reason != Named || c.Checkpoint.Stats.Files != 2 || c.LeftOut.Total != 1 || c.Sent.Objects == 0 {
		t.Errorf("captured %+v of %+v", c, c.Checkpoint)
	}
	got := mustRestore(t, w.restore(b))
	same(t, files(t, b), text)
	if got.Checkpoint.ID != c.Checkpoint.ID || string(got.Checkpoint.Conversation[0]) != `{"role":"user"}` {
		t.Errorf("restored %+v", got.Checkpoint)
	}
	write(t, b, map[string]string{"c.txt": "three"})
	second := mustCapture(t, w.capture(b))
	if second.Checkpoint.Parent != c.Checkpoint.ID {
		t.Errorf("the parent is %q", second.Checkpoint.Parent)
	}
	if again := mustCapture(t, w.capture(b)); !again.Unchanged || again.Checkpoint.ID != second.Checkpoint.ID {
		t.Errorf("a second capture: %+v", again)
	}
	always := w.capture(b)
	always.Always = true
	if again := mustCapture(t, always); again.Unchanged || again.Checkpoint.Parent != second.Checkpoint.ID {
		t.Errorf("a capture at any rate: %+v", again)
	}
	old := w.restore(b)
	old.Checkpoint = c.Checkpoint.ID
	if r := mustRestore(t, old); r.Removed.Total != 1 || r.Removed.Paths[0].Path != "workspace/c.txt" {
		t.Errorf("an older one: %+v", r.Removed)
	}
	same(t, files(t, b), text)
}

// TestStaleAppendsNothing restores at A, appends from B, and captures from A.
func TestStaleAppendsNothing(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "1"})
	first := mustCapture(t, w.capture(a)).Checkpoint.ID
	mustRestore(t, w.restore(b))
	write(t, b, map[string]string{"f": "B's work"})
	second := mustCapture(t, w.capture(b)).Checkpoint.ID
	write(t, a, map[string]string{"f": "A's late work"})
	var conflict *HeadConflictError
	_, err := Capture(t.Context(), w.capture(a))
	if !errors.Is(err, ErrHeadConflict) || !errors.As(err, &conflict) || conflict.Expected != first || conflict.Head != second {
		t.Fatalf("a stale capture: %v", err)
	}
	if err := Every(t.Context(), time.Hour, w.capture(a), EveryOptions{Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, ErrHeadConflict) {
		t.Errorf("a stale watch: %v", err)
	}
	other := t.TempDir()
	write(t, other, map[string]string{"f": "of a folder that never saw the thread"})
	if _, err := Capture(t.Context(), w.capture(other)); !errors.Is(err, ErrHeadConflict) {
		t.Errorf("a capture of an unknown folder: %v", err)
	}
	if head, _ := w.Head(t.Context(), "t"); head != second || len(w.records) != 2 {
		t.Errorf("the head is %q of %d checkpoints", head, len(w.records))
	}
	p := w.capture(a)
	p.AnyHead = true
	third := mustCapture(t, p).Checkpoint
	if third.Parent != second {
		t.Errorf("onto the head: the parent is %q", third.Parent)
	}
	mustCapture(t, w.capture(a))
	p = w.capture(b)
	p.ExpectedHead = &third.ID
	mustCapture(t, p)
}

// unanswered loses the answers of appends.
type unanswered struct {
	*Memory
	lose   int
	forget bool // keep no answers by key
}

func (u *unanswered) Append(ctx context.Context, a Append) (*Appended, error) {
	if u.forget {
		a.Key = ""
	}
	done, err := u.Memory.Append(ctx, a)
	if u.lose > 0 {
		u.lose--
		return nil, errorf(ErrUnavailable, "the answer is lost")
	}
	return done, err
}

func TestLostAnswerIsRetriedWithoutDuplicate(t *testing.T) {
	for _, forget := range []bool{false, true} {
		w, dir := newWorld(t), t.TempDir()
		write(t, dir, map[string]string{"f": "1"})
		p := w.capture(dir)
		p.Store = &unanswered{Memory: w.Memory, lose: 2, forget: forget}
		c := mustCapture(t, p)
		if len(w.records) != 1 || w.records[c.Checkpoint.ID] == nil {
			t.Errorf("%d checkpoints (forgetting %v)", len(w.records), forget)
		}
	}
}

// TestDeathBeforeTheAnswer ends a capture between its append and the answer, as a
// kill does, and captures again.
func TestDeathBeforeTheAnswer(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	ctx, die := context.WithCancel(t.Context())
	p := w.capture(dir)
	p.Store = &dying{w.Memory, die}
	if _, err := Capture(ctx, p); err == nil {
		t.Fatal("the capture survived")
	}
	write(t, dir, map[string]string{"f": "2"})
	c := mustCapture(t, w.capture(dir))
	if len(w.records) != 2 || c.Checkpoint.Parent == "" {
		t.Errorf("%d checkpoints, the parent is %q", len(w.records), c.Checkpoint.Parent)
	}
}

type dying struct {
	*Memory
	die func()
}

func (d *dying) Append(ctx context.Context, a Append) (*Appended, error) {
	if _, err := d.Memory.Append(ctx, a); err != nil {
		return nil, err
	}
	d.die()
	return nil, errorf(ErrUnavailable, "dead")
}

func TestBusy(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	lease, err := w.Acquire(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Capture(t.Context(), w.capture(dir)); !errors.Is(err, ErrWriterConflict) {
		t.Errorf("while another has the lease: %v", err)
	}
	p := w.capture(dir)
	p.Writer = &lease.Writer
	mustCapture(t, p)
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(300 * time.Millisecond)
		if err := w.Release(t.Context(), lease.Writer); err != nil {
			t.Error(err)
		}
	})
	p = w.capture(dir)
	p.Always, p.WaitBusy = true, time.Minute
	mustCapture(t, p)
	wg.Wait()
	s, err := openState(w.state, w.Identity(), "t", "", []Root{{Path: dir}}, capturing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := Capture(t.Context(), w.capture(dir)); !errors.Is(err, ErrWriterConflict) {
		t.Errorf("while another capture of the root runs: %v", err)
	}
}

func TestUnsupportedEntriesAreListedAll(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	for link, target := range map[string]string{"passwd": "/etc/passwd", "up": "../.."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Capture(t.Context(), w.capture(dir))
	var refused *UnsupportedEntryError
	var code Code
	if !errors.As(err, &refused) || refused.Total != 2 || len(refused.Excludes) != 2 || !errors.As(err, &code) || code != ErrUnsupportedEntry {
		t.Fatalf("links that leave the root: %v", err)
	}
	p := w.capture(dir)
	p.Policy = &Policy{Base: "default", Exclude: refused.Excludes}
	if c := mustCapture(t, p); c.Checkpoint.Stats.Files != 1 || c.LeftOut.Total != 2 {
		t.Errorf("with the excludes: %+v", c)
	}
}

func TestMissingCheckpoint(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	p := w.capture(dir)
	p.Thread = "other"
	other := mustCapture(t, p).Checkpoint.ID
	mustCapture(t, w.capture(dir))
	for _, id := range []string{"none", other} {
		r := w.restore(dir)
		r.Checkpoint = id
		if _, err := Restore(t.Context(), r); !errors.Is(err, ErrMissingCheckpoint) {
			t.Errorf("restore of %q: %v", id, err)
		}
	}
}

func TestBadObjectsChangeNothing(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "what is lost", "g": "what is there"})
	c := mustCapture(t, w.capture(a))
	write(t, b, map[string]string{"g": "as it was"})
	r := w.restore(b)
	lost := &loser{Memory: w.Memory, text: "what is lost"}
	r.Blobs = lost
	for _, corrupt := range []bool{false, true} {
		lost.corrupt = corrupt
		_, err := Restore(t.Context(), r)
		if want := map[bool]Code{false: ErrMissingBlob, true: ErrInvalidBlob}[corrupt]; !errors.Is(err, want) {
			t.Errorf("restore with %v: %v", want, err)
		}
		same(t, files(t, b), map[string]string{"g": "as it was"})
	}
	p := w.capture(b)
	if _, err := Capture(t.Context(), p); !errors.Is(err, ErrHeadConflict) {
		t.Errorf("a capture where nothing was restored: %v", err)
	}
	mustRestore(t, w.restore(b))
	if again := mustCapture(t, w.capture(b)); again.Checkpoint.ID != c.Checkpoint.ID {
		t.Errorf("after the restore: %+v", again.Checkpoint)
	}
}

// loser has lost one object, or other bytes in its place.
type loser struct {
	*Memory
	text    string
	corrupt bool
}

func (l *loser) Fetch(ctx context.Context, at Scope, digests []Digest, fn func(Digest, []byte) error) error {
	lost := &MissingBlobError{}
	err := l.Memory.Fetch(ctx, at, digests, func(d Digest, b []byte) error {
		switch {
		case string(b) != l.text:
			return fn(d, b)
		case l.corrupt:
			return fn(d, bytes.ToUpper(b))
		}
		lost.Digests = append(lost.Digests, d)
		return nil
	})
	if err == nil && lost.Digests != nil {
		return lost
	}
	return err
}

// TestDeletedObjectsAreSentAgain captures from a stat cache that knows objects
// which the store has lost.
func TestDeletedObjectsAreSentAgain(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "f"), past, past); err != nil {
		t.Fatal(err)
	}
	w.Memory = &Memory{identity: "fixed", records: map[string]*Checkpoint{}, threads: map[string]*memoryThread{}, done: map[string]Appended{}}
	mustCapture(t, w.capture(dir))
	w.Memory = &Memory{identity: "fixed", records: map[string]*Checkpoint{}, threads: map[string]*memoryThread{}, done: map[string]Appended{}}
	p := w.capture(dir)
	none := ""
	p.ExpectedHead, p.Store = &none, &strict{w.Memory}
	mustCapture(t, p)
	b := t.TempDir()
	mustRestore(t, w.restore(b))
	same(t, files(t, b), map[string]string{"f": "1"})
}

// strict refuses a root that it does not have.
type strict struct{ *Memory }

func (s *strict) Append(ctx context.Context, a Append) (*Appended, error) {
	err := s.Fetch(ctx, Scope{}, []Digest{a.Checkpoint.Root}, func(Digest, []byte) error { return nil })
	if err == nil {
		err = checkTree(ctx, s.Memory, a.Checkpoint.Root)
	}
	if err != nil {
		return nil, err
	}
	return s.Memory.Append(ctx, a)
}

func TestUndo(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "of the thread"})
	mustCapture(t, w.capture(a))
	before := map[string]string{"f": "mine", "g/h": "mine too"}
	write(t, b, before)
	careful := w.restore(b)
	careful.Careful = true
	if _, err := Restore(t.Context(), careful); !errors.Is(err, ErrForeignFolder) {
		t.Errorf("a careful restore over other files: %v", err)
	}
	dry := w.restore(b)
	dry.DryRun = true
	if r := mustRestore(t, dry); r.Removed.Total != 1 || r.Changed.Total == 0 {
		t.Errorf("a dry run: %+v", r)
	}
	same(t, files(t, b), before)
	mustRestore(t, w.restore(b))
	same(t, files(t, b), map[string]string{"f": "of the thread"})
	careful.Careful = true
	mustRestore(t, careful)
	if _, err := Undo(t.Context(), w.restore(b)); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, b), map[string]string{"f": "of the thread"})
	if _, err := Undo(t.Context(), w.restore(b)); !errors.Is(err, ErrNothingToUndo) {
		t.Errorf("a second undo: %v", err)
	}
	write(t, b, before)
	mustRestore(t, w.restore(b))
	if _, err := Undo(t.Context(), w.restore(b)); err != nil {
		t.Fatal(err)
	}
	same(t, files(t, b), before)
}

// TestInterruptedRestore leaves a root in the middle of a restore.
func TestInterruptedRestore(t *testing.T) {
	w, a, b := newWorld(t), t.TempDir(), t.TempDir()
	write(t, a, map[string]string{"f": "1"})
	c := mustCapture(t, w.capture(a))
	mustRestore(t, w.restore(b))
	s, err := openState(w.state, w.Identity(), "t", "", []Root{{Path: b}}, restoring)
	if err == nil {
		err = s.update(func(m *memory) { m.Restoring = c.Checkpoint.ID })
		s.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Capture(t.Context(), w.capture(b)); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a capture in the middle of a restore: %v", err)
	}
	mustRestore(t, w.restore(b))
	mustCapture(t, w.capture(b))
}

func TestSecretsAreNowhere(t *testing.T) {
	w, a := newWorld(t), t.TempDir()
	secret := `tok"en-1234567`
	write(t, a, map[string]string{".npmrc": "token=" + secret + "\n"})
	p := w.capture(a)
	p.Secrets = []Secret{{Name: "NPM_TOKEN", Value: secret}}
	p.Label, p.Run = "with "+secret, "run "+secret
	p.Git = &Git{Repo: "https://x:" + secret + "@host/r.git", Branch: "b-" + secret, Commit: secret}
	p.Artifacts = []Artifact{{
		ID: "a", Name: secret + ".txt", MimeType: "text/" + secret, BlobKey: "sandbox-artifacts/sha256/" + strings.Repeat("0", 64), CreatedAt: time.Now(),
	}}
	quoted, _ := json.Marshal(map[string]any{"text": "it is " + secret, secret: 1})
	p.Conversation = []json.RawMessage{quoted}
	c := mustCapture(t, p)
	whole, err := w.Get(t.Context(), c.Checkpoint.ID)
	if err != nil {
		t.Fatal(err)
	}
	var message map[string]any
	if err := json.Unmarshal(whole.Conversation[0], &message); err != nil {
		t.Fatal(err)
	}
	all := whole.Label + whole.Run + whole.Git.Repo + whole.Git.Branch + whole.Git.Commit + whole.Artifacts[0].Name + whole.Artifacts[0].MimeType + string(whole.Conversation[0])
	if p.Git.Commit != secret || p.Artifacts[0].Name != secret+".txt" {
		t.Error("what was given was changed")
	}
	for k, v := range message {
		all += k
		if s, ok := v.(string); ok {
			all += s
		}
	}
	w.objects.Each(func(_ Digest, b []byte) { all += string(b) })
	if strings.Contains(all, secret) || strings.Contains(all, `tok\"en`) {
		t.Error("the secret is stored")
	}
	for what, change := range map[string]func(*CaptureParams){
		"a root":         func(p *CaptureParams) { p.Roots[0].Name = "r" + secret },
		"a thread":       func(p *CaptureParams) { p.Thread = secret },
		"an artifact":    func(p *CaptureParams) { p.Artifacts = []Artifact{{ID: secret}} },
		"a rule":         func(p *CaptureParams) { p.Policy = &Policy{Base: "rules", Rules: secret} },
		"a path":         func(p *CaptureParams) { p.Policy = &Policy{Base: "default", Exclude: []string{secret}} },
		"a path to take": func(p *CaptureParams) { p.Policy = &Policy{Base: "default", Include: []string{"a/" + secret}} },
	} {
		bad := p
		bad.Roots = append([]Root{}, p.Roots...)
		change(&bad)
		if _, err := Capture(t.Context(), bad); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("a secret in the name of %s: %v", what, err)
		}
	}
	b := t.TempDir()
	r := w.restore(b)
	r.Secrets = p.Secrets
	mustRestore(t, r)
	same(t, files(t, b), map[string]string{".npmrc": "token=" + secret + "\n"})
	for _, path := range []string{w.state} {
		for name, text := range files(t, path) {
			if strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", name)
			}
		}
	}
}

func TestEvery(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	seen := make(chan *Captured, 100)
	done := make(chan error, 1)
	go func() {
		done <- Every(ctx, 10*time.Millisecond, w.capture(dir), EveryOptions{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Grace: time.Minute, Captured: func(c *Captured) { seen <- c },
		})
	}()
	<-seen
	lease, err := w.Acquire(ctx, "t")
	for err != nil { // its own append may be at work
		lease, err = w.Acquire(ctx, "t")
	}
	time.Sleep(50 * time.Millisecond)
	if err := w.Release(ctx, lease.Writer); err != nil {
		t.Fatal(err)
	}
	for c := <-seen; !c.Unchanged; c = <-seen {
	}
	write(t, dir, map[string]string{"last": "words"})
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b := t.TempDir()
	mustRestore(t, w.restore(b))
	same(t, files(t, b), map[string]string{"f": "1", "last": "words"})
	for _, want := range []string{"captured", "busy", "nothing to capture"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}

func TestAfterRun(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	hook := AfterRun(w.capture(dir))
	if c, err := hook(t.Context(), "run-1", errors.New("it failed")); c != nil || err != nil {
		t.Errorf("after a run that failed: %v, %v", c, err)
	}
	c, err := hook(t.Context(), "run-2", nil)
	if err != nil || c.Checkpoint.Run != "run-2" {
		t.Errorf("after a run: %+v, %v", c, err)
	}
}

func TestStateStaysOutsideAndPrivate(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string]string{"f": "1"})
	p := w.capture(dir)
	p.StateDir = filepath.Join(dir, "state")
	if _, err := Capture(t.Context(), p); !errors.Is(err, ErrInvalid) {
		t.Errorf("a state directory in the root: %v", err)
	}
	mustCapture(t, w.capture(dir))
	err := filepath.WalkDir(w.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoreOfAList restores a checkpoint that was written as a list of files.
func TestRestoreOfAList(t *testing.T) {
	w, b := newWorld(t), filepath.Join(t.TempDir(), "b")
	large := strings.Repeat("0123456789abcdef", 300_000)
	want := map[string]string{"a.txt": "one", "deep/er/b": "two", "deep/large": large, "dir./f": "3", "zero": ""}
	c := Checkpoint{ID: "c", Thread: "t", CreatedAt: time.UnixMilli(1_700_000_000_123), Files: []File{{Path: "none/in it", Kind: "dir"}}}
	for name, text := range want {
		o := Object{Kind: 1, Digest: sha256.Sum256([]byte(text)), Bytes: []byte(text)}
		if err := w.Put(t.Context(), Scope{}, []Object{o}); err != nil {
			t.Fatal(err)
		}
		c.Files = append(c.Files, File{Path: name, Kind: "file", BlobKey: keyPrefix + o.Digest.String(), Size: int64(len(text))})
	}
	if _, err := w.Append(t.Context(), Append{Checkpoint: c}); err != nil {
		t.Fatal(err)
	}
	mustRestore(t, w.restore(b))
	same(t, files(t, b), want)
	if st, err := os.Stat(filepath.Join(b, "none/in it")); err != nil || !st.IsDir() || !st.ModTime().Equal(c.CreatedAt) {
		t.Errorf("the empty directory: %v, %v", st, err)
	}
	if r := mustRestore(t, w.restore(b)); r.Changed.Total+r.Removed.Total > 0 {
		t.Errorf("with nothing to do: %+v", r)
	}
	write(t, b, map[string]string{"a.txt": "three"})
	mustRestore(t, w.restore(b))
	if _, err := Undo(t.Context(), w.restore(b)); err != nil {
		t.Fatal(err)
	}
	want["a.txt"] = "three"
	same(t, files(t, b), want)
	if next := mustCapture(t, w.capture(b)); next.Checkpoint.Parent != "c" || !next.Checkpoint.Native() {
		t.Errorf("the capture after it: %+v", next.Checkpoint)
	}
	c.ID, c.Parent, c.External = "d", c.ID, true
	p := w.restore(t.TempDir())
	p.Thread = "other"
	c.Thread, c.Parent = "other", ""
	if _, err := w.Append(t.Context(), Append{Checkpoint: c}); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), p); !errors.Is(err, ErrInvalid) {
		t.Errorf("one with its bytes elsewhere: %v", err)
	}
}

package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/blob/s3"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/testkit"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/stack"
	"github.com/cairnstate/cairn/tests/world"
)

// races are clients of one org, whose servers sweep all the time and wait for
// nothing.
type races struct {
	*testing.T
	nodes   []*world.World
	remotes []*checkpoint.Remote
	urls    []string
	pool    []string // contents that files have
	stop    atomic.Bool
	counts  [racers]atomic.Int64 // what was done
	refused atomic.Int64         // requests that lost a race, as they may

	mu    sync.Mutex
	live  map[string]stack.Workspace // acknowledged checkpoints that must be there
	of    map[string]string          // the threads of those
	doubt map[string]int             // of a thread: deletions that are under way or were, an odd way to count both
	names int
}

// What the clients do.
const (
	appends = iota
	forks
	deletions
	prunes
	drops
	reads
	lists     // of files, with a large blob
	abandoned // uploads
	racers
)

var racerNames = [racers]string{"appends", "forks", "deletions", "prunes", "threads deleted", "reads", "lists", "uploads abandoned"}

func newRaces(t *testing.T, database string, blobs blob.Store, servers int) *races {
	t.Helper()
	r := &races{T: t, live: map[string]stack.Workspace{}, of: map[string]string{}, doubt: map[string]int{}}
	first, err := world.OpenOn(t.Context(), t.TempDir(), database, blobs)
	if err != nil {
		t.Fatal(err)
	}
	r.nodes = []*world.World{first}
	for len(r.nodes) < servers {
		n, err := first.Beside(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		r.nodes = append(r.nodes, n)
	}
	for _, n := range r.nodes {
		server := httptest.NewServer(n.Handler)
		t.Cleanup(func() {
			server.Close()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		client, err := cairn.NewClient(option.WithBaseURL(server.URL), option.WithOrg(n.Org), option.WithPrivateKey(n.Key()))
		if err != nil {
			t.Fatal(err)
		}
		r.urls = append(r.urls, server.URL)
		remote := checkpoint.NewRemote(client)
		t.Cleanup(remote.Close)
		r.remotes = append(r.remotes, remote)
	}
	for i := range 40 {
		r.pool = append(r.pool, noise(uint64(i), 200+i*i*40))
	}
	return r
}

// workspace makes one of some files that others have too.
func (r *races) workspace(rng *rand.Rand) stack.Workspace {
	w := stack.Workspace{}
	for range 1 + rng.IntN(8) {
		w[fmt.Sprintf("d%d/f%d", rng.IntN(3), rng.IntN(5))] = r.pool[rng.IntN(len(r.pool))]
	}
	return w
}

// name is one of few threads.
func name(rng *rand.Rand) string { return fmt.Sprint("t", rng.IntN(6)) }

// expect notes an acknowledged checkpoint, unless a deletion may have taken it.
func (r *races) expect(id, thread string, doubt int, w stack.Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubt[thread] == doubt && doubt%2 == 0 {
		r.live[id], r.of[id] = w, thread
	}
}

func (r *races) doubts(thread string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doubt[thread]
}

// deleting takes the checkpoints of a thread out of what must be there. end puts
// those back that keep says are kept. One deletion of a thread runs at a time.
func (r *races) deleting(thread string) (end func(keep func(id string) bool), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubt[thread]%2 == 1 {
		return nil, false
	}
	r.doubt[thread]++
	taken := map[string]stack.Workspace{}
	for id, w := range r.live {
		if r.of[id] == thread {
			taken[id] = w
			delete(r.live, id)
		}
	}
	return func(keep func(id string) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.doubt[thread]++
		for id, w := range taken {
			if keep(id) {
				r.live[id] = w
			}
		}
	}, true
}

// any returns a checkpoint that must be there.
func (r *races) any(rng *rand.Rand) (id, thread string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) == 0 {
		return "", ""
	}
	ids := slices.Sorted(maps.Keys(r.live))
	id = ids[rng.IntN(len(ids))]
	return id, r.of[id]
}

// append sends a workspace and appends it, as a capture does, again when something
// that it named went meanwhile.
func (r *races) append(ctx context.Context, remote *checkpoint.Remote, rng *rand.Rand) error {
	thread := name(rng)
	w := r.workspace(rng)
	root, objects := w.Objects()
	digests := make([]checkpoint.Digest, len(objects))
	byDigest := map[checkpoint.Digest]checkpoint.Object{}
	for i, o := range objects {
		digests[i] = o.Digest
		byDigest[o.Digest] = o
	}
	scope := checkpoint.Scope{Thread: thread, Upload: fmt.Sprintf("u%x", rng.Uint64())}
	for range 200 {
		doubt := r.doubts(thread)
		missing, err := remote.Missing(ctx, scope, digests)
		if err != nil {
			return err
		}
		send := make([]checkpoint.Object, 0, len(missing))
		for _, d := range missing {
			send = append(send, byDigest[d])
		}
		if err := remote.Put(ctx, scope, send); err != nil {
			return err
		}
		if rng.IntN(10) == 0 {
			r.counts[abandoned].Add(1)
			return nil
		}
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
		done, err := remote.Append(ctx, checkpoint.Append{
			Checkpoint: checkpoint.Checkpoint{Thread: thread, Root: root}, AnyHead: true, Upload: scope.Upload, Always: true,
		})
		switch {
		case errors.Is(err, checkpoint.ErrMissingBlob), errors.Is(err, checkpoint.ErrWriterConflict), errors.Is(err, checkpoint.ErrUnavailable):
			r.refused.Add(1)
			continue
		case err != nil:
			return fmt.Errorf("append: %w", err)
		}
		r.expect(done.Checkpoint.ID, thread, doubt, w)
		r.counts[appends].Add(1)
		return nil
	}
	return errors.New("an append was refused two hundred times")
}

// list puts a blob of several chunks, which others put too, appends a list with it, and
// reads it again.
func (r *races) list(ctx context.Context, remote *checkpoint.Remote, rng *rand.Rand) error {
	text := noise(uint64(1000+rng.IntN(2)), 2_200_000)
	key := fmt.Sprintf("sandbox-files/sha256/%x", sha256.Sum256([]byte(text)))
	r.mu.Lock()
	r.names++
	thread := fmt.Sprint("list", r.names)
	r.mu.Unlock()
	server := r.urls[rng.IntN(len(r.urls))]
	token, err := r.nodes[0].Token("*")
	if err != nil {
		return err
	}
	do := func(method, path, body string) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	id := ""
	for try := 0; id == ""; try++ {
		status, answer, err := do(http.MethodPut, "/api/blobs/"+key+"?thread="+thread, text)
		if err != nil || status >= 300 && status != http.StatusServiceUnavailable || try == 100 {
			return fmt.Errorf("put of a blob: %d %.200s: %w", status, answer, err)
		}
		done, err := remote.Append(ctx, checkpoint.Append{AnyHead: true, Checkpoint: checkpoint.Checkpoint{
			Thread: thread, Files: []checkpoint.File{{Path: "f", Kind: "file", BlobKey: key, Size: int64(len(text))}},
		}})
		switch {
		case errors.Is(err, checkpoint.ErrMissingBlob), errors.Is(err, checkpoint.ErrUnavailable):
			r.refused.Add(1)
		case err != nil:
			return fmt.Errorf("append of a list: %w", err)
		default:
			id = done.Checkpoint.ID
		}
	}
	time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	status, answer, err := do(http.MethodGet, "/api/checkpoints/"+id+"/files/f", "")
	if err != nil || status != http.StatusOK || answer != text {
		return fmt.Errorf("file of list %s: %d, %d bytes: %w", id, status, len(answer), err)
	}
	_, err = remote.DeleteThread(ctx, thread)
	r.counts[lists].Add(1)
	return err
}

// fork begins a thread from a checkpoint that another client may be deleting.
func (r *races) fork(ctx context.Context, remote *checkpoint.Remote, rng *rand.Rand) error {
	id, _ := r.any(rng)
	r.mu.Lock()
	w := r.live[id]
	r.names++
	thread := fmt.Sprint("fork", r.names)
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	c, err := remote.ForkFrom(ctx, checkpoint.ForkParams{Checkpoint: id, Thread: thread})
	if errors.Is(err, checkpoint.ErrForkSourceNotFound) || errors.Is(err, checkpoint.ErrUnavailable) {
		r.refused.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	r.expect(c.ID, thread, 0, w)
	r.counts[forks].Add(1)
	return nil
}

// remove deletes a checkpoint, what retention does not keep of a thread, or a
// thread.
func (r *races) remove(ctx context.Context, remote *checkpoint.Remote, rng *rand.Rand) error {
	id, thread := r.any(rng)
	if id == "" {
		return nil
	}
	end, ok := r.deleting(thread)
	if !ok {
		return nil
	}
	var err error
	var gone []string
	all, what := false, deletions
	switch n := rng.IntN(10); {
	case n < 5:
		_, err = remote.Delete(ctx, id)
		gone = []string{id}
	case n < 8 && thread[0] == 't':
		what = prunes
		one := int64(1 + rng.IntN(4))
		var pruned *api.PrunedThread
		if pruned, err = remote.Prune(ctx, thread, api.PruneThread{KeepLast: &one}); err == nil {
			gone = pruned.Deleted
		}
	default:
		what, all = drops, true
		_, err = remote.DeleteThread(ctx, thread)
	}
	end(func(id string) bool { return err == nil && !all && !slices.Contains(gone, id) })
	for _, lost := range []error{checkpoint.ErrUnavailable, checkpoint.ErrWriterConflict, checkpoint.ErrMissingCheckpoint, checkpoint.ErrThreadNotFound} {
		if errors.Is(err, lost) {
			r.refused.Add(1)
			return nil // some of it may be gone
		}
	}
	if err == nil {
		r.counts[what].Add(1)
	}
	return err
}

// read reads all of a checkpoint.
func (r *races) read(ctx context.Context, remote *checkpoint.Remote, rng *rand.Rand) error {
	id, thread := r.any(rng)
	if id == "" {
		return nil
	}
	var err error
	switch rng.IntN(3) {
	case 0:
		err = r.verify(ctx, remote, id, thread)
	case 1:
		err = remote.Archive(ctx, id, "tar", "", io.Discard)
	default:
		for _, err = range remote.Entries(ctx, id, "") {
			if err != nil {
				break
			}
		}
	}
	if errors.Is(err, checkpoint.Code("internal")) {
		return fmt.Errorf("a read of checkpoint %s that a deletion may have beaten: %w", id, err)
	}
	r.counts[reads].Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, still := r.live[id]; !still {
		return nil
	}
	return err
}

func (r *races) verify(ctx context.Context, remote *checkpoint.Remote, id, thread string) error {
	r.mu.Lock()
	want := r.live[id]
	r.mu.Unlock()
	c, err := remote.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", id, err)
	}
	got, err := stack.ReadWorkspace(ctx, &source{remote, thread}, c.Root)
	if err != nil {
		return fmt.Errorf("checkpoint %s of %s: %w", id, thread, err)
	}
	if want != nil && !maps.Equal(got, want) {
		return fmt.Errorf("checkpoint %s of %s has other files", id, thread)
	}
	return nil
}

// collect tidies, sweeps, and removes what nobody can be reading any more. Time
// passes, so that nothing waits for clocks that differ.
func (r *races) collect(ctx context.Context, n *world.World, org meta.OrgID) error {
	_, err := n.Content.Tidy(ctx, org)
	if err != nil {
		return err
	}
	res, err := n.Content.Sweep(ctx, org, n.Checkpoints.Live)
	if err != nil {
		return err
	}
	if res.Missing > 0 {
		return fmt.Errorf("a sweep misses something: %+v", res)
	}
	n.Clock.Advance(2 * time.Minute)
	for _, n := range r.nodes {
		if err := n.Repos.Heartbeat(ctx); err != nil {
			return err
		}
	}
	_, err = n.Repos.Sweep(ctx)
	return err
}

// run lets clients and sweeps loose for some time.
func (r *races) run(d time.Duration, seed uint64) {
	r.Helper()
	ctx := r.Context()
	org := r.org()
	var all sync.WaitGroup
	loop := func(i int, do func(*rand.Rand) error) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for !r.stop.Load() {
				if err := do(rng); err != nil {
					r.Error(err)
					r.stop.Store(true)
				}
			}
		})
	}
	for i := range 6 {
		remote := r.remotes[i%len(r.remotes)]
		loop(i, func(rng *rand.Rand) error {
			switch n := rng.IntN(21); {
			case n == 20:
				return r.list(ctx, remote, rng)
			case n < 8:
				return r.append(ctx, remote, rng)
			case n < 11:
				return r.fork(ctx, remote, rng)
			case n < 16:
				return r.remove(ctx, remote, rng)
			default:
				return r.read(ctx, remote, rng)
			}
		})
	}
	for i, n := range r.nodes {
		loop(100+i, func(*rand.Rand) error { return r.collect(ctx, n, org) })
	}
	time.Sleep(d)
	for range 600 { // a machine that is busy has not come to everything yet
		if r.stop.Load() || r.everything() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.stop.Store(true)
	all.Wait()
}

// everything reports whether something of each kind was done.
func (r *races) everything() bool {
	for i := range r.counts {
		if r.counts[i].Load() == 0 {
			return false
		}
	}
	return true
}

func (r *races) org() meta.OrgID { return r.nodes[0].ID }

// finish checks all that is there, and compares what is stored with what one upload
// of it would take.
func (r *races) finish() {
	r.Helper()
	ctx, n, org := r.Context(), r.nodes[0], r.org()
	n.Clock.Advance(2 * content.DefaultUploadLease) // of uploads that were abandoned
	for range 4 {
		if err := r.collect(ctx, n, org); err != nil {
			r.Fatal(err)
		}
	}
	report := func(f content.Finding) { r.Errorf("fsck: %s: %s", f.Kind, f.Detail) }
	if err := errors.Join(n.Content.Fsck(ctx, org, n.Checkpoints.Live, report), n.Content.FsckBlobs(ctx, report)); err != nil {
		r.Fatal(err)
	}
	fresh := newRaces(r.T, "", mem.New(), 1)
	listed := 0
	for thread, err := range r.remotes[0].Threads(ctx, "") {
		if err != nil {
			r.Fatal(err)
		}
		for c, err := range r.remotes[len(r.remotes)-1].List(ctx, thread.Name, checkpoint.ListOptions{}) {
			if err == nil {
				err = r.verify(ctx, r.remotes[0], c.ID, thread.Name)
			}
			if err != nil {
				r.Fatal(err)
			}
			listed++
			fresh.copy(c, &source{r.remotes[0], thread.Name})
		}
	}
	for id, w := range r.live {
		if err := r.verify(ctx, r.remotes[0], id, r.of[id]); err != nil {
			r.Errorf("acknowledged with %d files: %v", len(w), err)
		}
	}
	got, need := r.stored(), fresh.stored()
	r.Logf("%d checkpoints are left, %d of them expected; %d bytes are stored where %d are needed; %d requests lost a race", listed, len(r.live), got, need, r.refused.Load())
	for i := range r.counts {
		r.Logf("%d %s", r.counts[i].Load(), racerNames[i])
		if r.counts[i].Load() == 0 {
			r.Errorf("no %s", racerNames[i])
		}
	}
	if float64(got) > 1.2*float64(need) {
		r.Errorf("%d bytes are stored where %d are needed", got, need)
	}
}

// copy appends a checkpoint of another org to the only thread of this one.
func (r *races) copy(c *checkpoint.Checkpoint, from *source) {
	r.Helper()
	ctx, remote := r.Context(), r.remotes[0]
	w, err := stack.ReadWorkspace(ctx, from, c.Root)
	if err != nil {
		r.Fatal(err)
	}
	root, objects := w.Objects()
	scope := checkpoint.Scope{Thread: "t", Upload: "u"}
	if err := remote.Put(ctx, scope, objects); err != nil {
		r.Fatal(err)
	}
	_, err = remote.Append(ctx, checkpoint.Append{
		Checkpoint: checkpoint.Checkpoint{Thread: "t", Root: root}, AnyHead: true, Upload: "u", Always: true,
	})
	if err != nil {
		r.Fatal(err)
	}
}

// stored counts the bytes of objects that are stored.
func (r *races) stored() (total int64) {
	r.Helper()
	ctx, n := r.Context(), r.nodes[0]
	packs, err := n.Meta.ContentPacks(ctx, r.org(), meta.ContentID{}, 1<<20)
	if err != nil {
		r.Fatal(err)
	}
	for _, p := range packs {
		if p.Key == "" {
			total += p.Bytes
		}
	}
	for info, err := range n.Blobs.List(ctx, content.KeyPrefix) {
		if err != nil {
			r.Fatal(err)
		}
		total += info.Size
	}
	return total
}

// TestSweepRaces has clients upload, append, fork, delete, prune and read at the
// same time, through servers that sweep all the time and keep nothing a moment longer
// than they must.
func TestSweepRaces(t *testing.T) {
	d := 4 * time.Second
	if testkit.Soaking() {
		d = 10 * time.Minute
	}
	for _, e := range []struct {
		name     string
		database func(testing.TB) string
		blobs    func(*testing.T) blob.Store
		servers  int
	}{
		{"SQLite", func(testing.TB) string { return "" }, directory, 1},
		{"Postgres", testkit.Postgres, bucket, 2},
	} {
		t.Run(e.name, func(t *testing.T) {
			r := newRaces(t, e.database(t), e.blobs(t), e.servers)
			r.run(d, testkit.Seed(t))
			r.finish()
		})
	}
}

func directory(t *testing.T) blob.Store {
	fsys, err := fsx.NewOS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bucket(t *testing.T) blob.Store {
	server := testkit.S3(t)
	c, err := s3.ParseURL(fmt.Sprintf("s3://%s?endpoint=%s&path_style=true", server.Bucket, server.Endpoint), s3.Env{
		AccessKeyID: server.AccessKey, SecretAccessKey: server.SecretKey, Region: server.Region,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

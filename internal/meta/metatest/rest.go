package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func testEvents(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	a, b := f.newRepo("a"), f.newRepo("b")
	other := f.newOrg("beta")
	f.apply(meta.Change{Repo: a, Events: []meta.Event{{Type: "push", Body: []byte(`{"n":1}`)}, {Type: "push", Body: []byte(`{"n":2}`)}}})
	f.apply(meta.Change{Org: other, Events: []meta.Event{{Type: "org"}}})
	f.apply(meta.Change{Repo: b, Events: []meta.Event{{Type: "push", Body: []byte(`{"n":3}`)}}})
	all := must(f.Events(f.ctx, 0, 0, 10))(t)
	if len(all) != 4 {
		t.Fatalf("events %+v", all)
	}
	for i, e := range all {
		if i > 0 && e.Position <= all[i-1].Position {
			t.Errorf("positions %d, %d", all[i-1].Position, e.Position)
		}
		if !e.At.Equal(clock.now()) {
			t.Errorf("event %d at %v", i, e.At)
		}
	}
	if e := all[1]; e.Org != f.org || e.Repo != a || e.Version != 2 || e.Type != "push" || string(e.Body) != `{"n":2}` {
		t.Errorf("event %+v", e)
	}
	if e := all[2]; e.Org != other || e.Repo != 0 || e.Version != 0 || len(e.Body) != 0 {
		t.Errorf("event %+v", e)
	}
	own := must(f.Events(f.ctx, f.org, all[0].Position, 10))(t)
	if len(own) != 2 || own[0].Position != all[1].Position || own[1].Position != all[3].Position {
		t.Errorf("events of one org %+v", own)
	}
	if one := must(f.Events(f.ctx, 0, all[1].Position, 1))(t); len(one) != 1 || one[0].Position != all[2].Position {
		t.Errorf("one event %+v", one)
	}
	if none := must(f.Events(f.ctx, 0, all[3].Position, 10))(t); len(none) != 0 {
		t.Errorf("events after the last %+v", none)
	}
}

// testEventsConcurrent: readers that follow the positions while many writers add
// events miss none, and see each repository's in order.
func testEventsConcurrent(t *testing.T, open Open) {
	f := setUp(t, open)
	const writers, each = 12, 15
	var writing sync.WaitGroup
	for w := range writers {
		id := f.newRepo(fmt.Sprintf("r%d", w))
		writing.Go(func() {
			for n := range each {
				v, err := f.try(meta.Change{Repo: id, Events: []meta.Event{{Type: "x", Body: fmt.Appendf(nil, "%d", n)}}})
				if err != nil || !v.Applied {
					t.Errorf("apply: %+v, %v", v, err)
				}
			}
		})
	}
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			seen := 0
			last := make(map[meta.RepoID]int64)
			deadline := time.Now().Add(30 * time.Second)
			for after := int64(0); seen < writers*each; {
				events, err := f.Events(f.ctx, f.org, after, 7)
				if err != nil {
					t.Errorf("events: %v", err)
					return
				}
				for _, e := range events {
					if e.Position <= after || e.Version <= last[e.Repo] {
						t.Errorf("event %+v after position %d, version %d", e, after, last[e.Repo])
					}
					after, last[e.Repo] = e.Position, e.Version
					seen++
				}
				if time.Now().After(deadline) {
					t.Errorf("a reader saw %d of %d events", seen, writers*each)
					return
				}
			}
		})
	}
	writing.Wait()
	reading.Wait()
}

func testIdempotency(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	row := meta.Idempotency{Key: "key", Request: [32]byte{1, 2, 3}, Status: 201, Body: []byte(`{"ok":true}`)}
	c := move(id, "refs/heads/main", noID, oid(1))
	c.Idempotency = &row
	f.apply(c)
	same := func(got meta.Idempotency) {
		t.Helper()
		if got.Key != row.Key || got.Request != row.Request || got.Status != 201 || !bytes.Equal(got.Body, row.Body) || !got.At.Equal(clock.now()) {
			t.Errorf("recorded %+v", got)
		}
	}
	same(must(f.Idempotency(f.ctx, f.org, "key"))(t))
	// The replay comes before every other precondition.
	again := c
	again.Idempotency = &meta.Idempotency{Key: "key", Request: [32]byte{9}, Status: 500}
	conflict := f.refuse(again, meta.ConflictReplay)
	if conflict.Replay == nil {
		t.Fatal("a replay without the recorded row")
	}
	same(*conflict.Replay)
	if v := f.repoRow(id).Version; v != 2 {
		t.Errorf("version %d after a replay", v)
	}
	_, err := f.Idempotency(f.ctx, f.org, "other")
	f.wantErr(err, meta.ErrNotFound)
	// Keys belong to an org.
	beta := f.newOrg("beta")
	f.apply(meta.Change{Org: beta, Idempotency: &meta.Idempotency{Key: "key"}})
	// The oldest go first.
	clock.advance(time.Hour)
	f.apply(meta.Change{Idempotency: &meta.Idempotency{Key: "late"}})
	for _, want := range []int{1, 1, 0} {
		if n := must(f.PruneIdempotency(f.ctx, clock.now(), 1))(t); n != want {
			t.Errorf("pruned %d keys, want %d", n, want)
		}
	}
	_, err = f.Idempotency(f.ctx, f.org, "key")
	f.wantErr(err, meta.ErrNotFound)
	if row := must(f.Idempotency(f.ctx, f.org, "late"))(t); row.Key != "late" {
		t.Errorf("kept %+v", row)
	}
	f.apply(meta.Change{Idempotency: &meta.Idempotency{Key: "key"}}) // free again
}

func testIdempotencyRace(t *testing.T, open Open) {
	f := setUp(t, open)
	// Several repositories, so that nothing but the key orders the Changes.
	repos := []meta.RepoID{f.newRepo("a"), f.newRepo("b"), f.newRepo("c"), f.newRepo("d")}
	for round := range 5 {
		key := fmt.Sprint("key ", round)
		applied := make(chan string, 16)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				body := fmt.Sprint(i)
				v, err := f.try(meta.Change{Repo: repos[i%len(repos)], Idempotency: &meta.Idempotency{Key: key, Body: []byte(body)}})
				if err != nil {
					t.Errorf("apply: %v", err)
				} else if v.Applied {
					applied <- body
				} else if v.Conflict.Kind != meta.ConflictReplay || v.Conflict.Replay.Key != key {
					t.Errorf("conflict %+v", v.Conflict)
				}
			})
		}
		all.Wait()
		close(applied)
		winner := <-applied
		if row := must(f.Idempotency(f.ctx, f.org, key))(t); string(row.Body) != winner || len(applied) != 0 {
			t.Errorf("recorded %q, won %q, and %d more won", row.Body, winner, len(applied))
		}
	}
}

func testUploads(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newRepo("r")
	for _, key := range []string{"u/1", "u/2", "u/3"} {
		if err := f.BeginUpload(f.ctx, meta.Upload{Key: key, Process: "p"}); err != nil {
			t.Fatal(err)
		}
		clock.advance(time.Second)
	}
	uploads := must(f.Uploads(f.ctx))(t)
	if len(uploads) != 3 || uploads[0].Key != "u/1" || uploads[0].Process != "p" || !uploads[2].At.Equal(clock.now().Add(-time.Second)) {
		t.Fatalf("uploads %+v", uploads)
	}
	// A refused Change leaves the upload; an applied one takes it.
	pack := f.bigPack("u/1")
	f.refuse(meta.Change{Repo: id, AddPack: pack, Refs: []meta.RefWrite{{Name: "refs/heads/x", Old: oid(1), New: oid(2)}}}, meta.ConflictRef)
	if n := len(must(f.Uploads(f.ctx))(t)); n != 3 {
		t.Errorf("%d uploads after a refusal", n)
	}
	f.apply(meta.Change{Repo: id, AddPack: pack})
	f.apply(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{Remove: []meta.PackID{pack.ID}, Add: []meta.PackWrite{*f.bigPack("u/2")}}})
	if err := f.EndUpload(f.ctx, "u/3"); err != nil {
		t.Fatal(err)
	}
	if err := f.EndUpload(f.ctx, "u/3"); err != nil {
		t.Errorf("ending an upload twice: %v", err)
	}
	if uploads := must(f.Uploads(f.ctx))(t); len(uploads) != 0 {
		t.Errorf("uploads %+v", uploads)
	}

	// u/1 was retired when its pack left the set.
	at := clock.now()
	if early := must(f.Retired(f.ctx, at.Add(-time.Microsecond), 10))(t); len(early) != 0 {
		t.Errorf("retired too early: %+v", early)
	}
	retired := must(f.Retired(f.ctx, at, 10))(t)
	if len(retired) != 1 || retired[0].Key != "u/1" || !retired[0].At.Equal(at) {
		t.Errorf("retired %+v", retired)
	}
	if none := must(f.Retired(f.ctx, at, 0))(t); len(none) != 0 {
		t.Errorf("a limit of 0 gave %+v", none)
	}
	if err := f.ForgetRetired(f.ctx, []string{"u/1", "absent"}); err != nil {
		t.Fatal(err)
	}
	if retired := must(f.Retired(f.ctx, at, 10))(t); len(retired) != 0 {
		t.Errorf("retired %+v after they were forgotten", retired)
	}
	if err := f.ForgetRetired(f.ctx, nil); err != nil {
		t.Errorf("forgetting nothing: %v", err)
	}
}

// testRetireUpload: a pack whose upload was retired, or never began, cannot be
// added; one that was added has no upload any more.
func testRetireUpload(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	lost, kept := f.bigPack("u/lost"), f.bigPack("u/kept")
	if !must(f.RetireUpload(f.ctx, "u/lost"))(t) || must(f.RetireUpload(f.ctx, "u/lost"))(t) || must(f.RetireUpload(f.ctx, "u/never"))(t) {
		t.Error("want an upload to be retired once, and none that never began")
	}
	future := time.Now().Add(time.Hour)
	if retired := must(f.Retired(f.ctx, future, 10))(t); len(retired) != 1 || retired[0].Key != "u/lost" {
		t.Errorf("retired %+v", retired)
	}
	f.refuse(meta.Change{Repo: id, AddPack: lost}, meta.ConflictUpload)
	never := *kept
	never.ID, never.Key = meta.PackID(newID()), "u/never"
	f.refuse(meta.Change{Repo: id, AddPack: &never}, meta.ConflictUpload)
	f.refuse(meta.Change{Repo: id, ReplacePacks: &meta.PackReplace{Add: []meta.PackWrite{*kept, *lost}}}, meta.ConflictUpload)
	twin := *kept
	twin.ID = meta.PackID(newID())
	f.refuse(meta.Change{Repo: id, AddPack: kept, ReplacePacks: &meta.PackReplace{Add: []meta.PackWrite{twin}}}, meta.ConflictID)
	f.apply(meta.Change{Repo: id, AddPack: kept})
	f.refuse(meta.Change{Repo: id, AddPack: &twin}, meta.ConflictUpload)
	if must(f.RetireUpload(f.ctx, "u/kept"))(t) {
		t.Error("the upload of a pack that was added is retired")
	}
	if retired := must(f.Retired(f.ctx, future, 10))(t); len(retired) != 1 {
		t.Errorf("retired %+v", retired)
	}
}

// testRetireUploadRace: of a Change and a sweep that want the same upload, one
// gets it.
func testRetireUploadRace(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	const rounds = 40
	applied := make([]bool, rounds)
	retired := make([]bool, rounds)
	for i := range rounds {
		p := f.bigPack(fmt.Sprint("u/", i))
		var both sync.WaitGroup
		both.Go(func() {
			v, err := f.try(meta.Change{Repo: id, AddPack: p})
			if err != nil || !v.Applied && v.Conflict.Kind != meta.ConflictUpload {
				t.Errorf("%+v, %v", v, err)
			}
			applied[i] = v.Applied
		})
		both.Go(func() {
			var err error
			if retired[i], err = f.RetireUpload(f.ctx, p.Key); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if applied[i] == retired[i] {
			t.Errorf("round %d: applied %v, retired %v", i, applied[i], retired[i])
		}
	}
	if rows := must(f.Retired(f.ctx, time.Now().Add(time.Hour), rounds+1))(t); len(rows)+len(f.packIDs(id)) != rounds {
		t.Errorf("%d retired, %d packs; want %d together", len(rows), len(f.packIDs(id)), rounds)
	}
	if left := must(f.Uploads(f.ctx))(t); len(left) > 0 {
		t.Errorf("uploads %+v", left)
	}
}

func testProcesses(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	oldest := clock.now().Add(-time.Minute)
	beat := func(id string, oldest time.Time) {
		t.Helper()
		if err := f.Heartbeat(f.ctx, meta.Process{ID: id, Oldest: oldest, Lease: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	beat("a", oldest)
	beat("b", time.Time{})
	want := meta.Process{ID: "a", Oldest: oldest, Lease: 10 * time.Second, Renewed: clock.now()}
	live := must(f.Processes(f.ctx))(t)
	if len(live) != 2 || live[0] != want || !live[1].Oldest.IsZero() {
		t.Fatalf("processes %+v", live)
	}
	clock.advance(9 * time.Second)
	beat("b", oldest)
	clock.advance(2 * time.Second)
	if live := must(f.Processes(f.ctx))(t); len(live) != 1 || live[0].ID != "b" || !live[0].Oldest.Equal(oldest) {
		t.Errorf("processes %+v after a's lease", live)
	}
}

// testClock: without a test's clock, times are those of now, to the microsecond.
func testClock(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	at := f.repoRow(id).CreatedAt
	if d := time.Since(at); d > time.Hour || d < -time.Hour {
		t.Errorf("created at %v", at)
	}
	if err := f.Heartbeat(f.ctx, meta.Process{ID: "p", Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if live := must(f.Processes(f.ctx))(t); len(live) != 1 {
		t.Errorf("processes %+v", live)
	}
	if err := f.Ping(f.ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// testCancelled: a Change that is cancelled has either certainly no effect, and
// says so, or its verdict.
func testCancelled(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	c := move(id, "refs/heads/main", noID, oid(1))
	c.Org = f.org
	if _, err := f.Apply(ctx, c); !errors.Is(err, meta.ErrNotApplied) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v for a cancelled context", err)
	}
	if _, err := f.Gate(ctx, meta.GateQuery{Org: "acme"}); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v for a cancelled context", err)
	}
	f.apply(c)

	applied := make([]bool, 200)
	var all sync.WaitGroup
	for i := range applied {
		c := move(id, fmt.Sprintf("refs/heads/c/%d", i), noID, oid(1))
		c.Org = f.org
		all.Go(func() {
			ctx, cancel := context.WithTimeout(f.ctx, time.Duration(i*20)*time.Microsecond)
			defer cancel()
			v, err := f.Apply(ctx, c)
			if err != nil && !errors.Is(err, meta.ErrNotApplied) {
				t.Errorf("apply: %v", err)
			}
			applied[i] = err == nil && v.Applied
		})
	}
	all.Wait()
	count := int64(0)
	for i, want := range applied {
		if got := !f.tip(id, fmt.Sprintf("refs/heads/c/%d", i)).IsZero(); got != want {
			t.Errorf("Change %d: applied %v, the caller was told %v", i, got, want)
		}
		if want {
			count++
		}
	}
	if v := f.repoRow(id).Version; v != count+2 {
		t.Errorf("version %d after %d applied Changes", v, count+2)
	}
}

// testMalformed: what no state could make right is refused before a transaction.
func testMalformed(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	long := string(bytes.Repeat([]byte("n"), meta.MaxName+1))
	for name, c := range map[string]meta.Change{
		"no repository":  {Refs: []meta.RefWrite{{Name: "refs/heads/x", New: oid(1)}}},
		"ref twice":      {Repo: id, Refs: []meta.RefWrite{{Name: "refs/heads/x", New: oid(1)}, {Name: "refs/heads/x", New: oid(2)}}},
		"ref no name":    {Repo: id, Refs: []meta.RefWrite{{New: oid(1)}}},
		"ref long name":  {Repo: id, Refs: []meta.RefWrite{{Name: long, New: oid(1)}}},
		"repo no name":   {Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{}},
		"repo long name": {Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: long}},
		"stolen set":     {Repo: meta.RepoID(newID()), CreateRepo: &meta.Repo{Name: "x", PackSet: 7}},
		"floor kind":     {RaiseFloors: []meta.Floor{{Kind: "moon", NotBefore: 1}}},
		"floor repo":     {RaiseFloors: []meta.Floor{{Kind: meta.FloorRef, Target: "refs/heads/x", NotBefore: 1}}},
		"empty key":      {Repo: id, Idempotency: &meta.Idempotency{}},
	} {
		v, err := f.try(c)
		if !errors.Is(err, meta.ErrNotApplied) || v.Applied {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	if _, err := f.Apply(f.ctx, meta.Change{}); !errors.Is(err, meta.ErrNotApplied) {
		t.Errorf("no org: %v", err)
	}
	if row := f.repoRow(id); row.Version != 1 {
		t.Errorf("version %d", row.Version)
	}
	f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorOrg, NotBefore: math.MaxInt64}}})
}

func testClosed(t *testing.T, open Open) {
	f := setUp(t, open)
	id := f.newRepo("r")
	results := make(chan error, 20)
	for i := range 20 {
		c := move(id, fmt.Sprintf("refs/heads/%d", i), noID, oid(1))
		c.Org = f.org
		go func() {
			v, err := f.Apply(f.ctx, c)
			if err == nil && !v.Applied {
				err = fmt.Errorf("conflict %+v", v.Conflict)
			}
			results <- err
		}()
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for range 20 {
		if err := <-results; err != nil && !errors.Is(err, meta.ErrNotApplied) {
			t.Errorf("a Change across Close: %v", err)
		}
	}
	if _, err := f.try(meta.Change{Repo: id}); !errors.Is(err, meta.ErrNotApplied) {
		t.Errorf("a Change after Close: %v", err)
	}
	if err := f.Ping(f.ctx); err == nil {
		t.Error("a closed store answers")
	}
}

package metatest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// thread is a Change of one thread.
func thread(c meta.ThreadChange) meta.Change { return meta.Change{Thread: &c} }

// appends is a Change that appends to a thread whose lease nobody holds.
func appends(name, id, expected string) meta.ThreadChange {
	return meta.ThreadChange{
		Name: name, Unheld: true, Expected: expected, Append: &meta.Checkpoint{ID: id, Parent: expected, Created: 1, Body: []byte("body of " + id)},
	}
}

func (f *fixture) threadRow(name string) meta.Thread {
	f.Helper()
	return must(f.Thread(f.ctx, f.org, name))(f)
}

func ids(list []meta.Checkpoint) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.ID)
	}
	return out
}

func testThreads(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	_, err := f.Thread(f.ctx, f.org, "t")
	f.wantErr(err, meta.ErrNotFound)
	first := appends("t", "a", "")
	first.Append.Label, first.Append.Added, first.Append.Manifest, first.Append.Created = "l", 7, true, -1.5
	v := f.apply(thread(first))
	if v.Thread.Seq != 1 || v.Thread.Parent != "" || v.Thread.Thread.Head != "a" || v.Thread.Thread.Bytes != 7 {
		t.Errorf("verdict %+v", v.Thread)
	}
	got := must(f.Checkpoint(f.ctx, f.org, "a"))(t)
	want := meta.Checkpoint{Org: f.org, ID: "a", Thread: "t", Seq: 1, Created: -1.5, Label: "l", Added: 7, Manifest: true, Body: []byte("body of a"), WrittenAt: clock.now()}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	clock.advance(time.Second)
	f.apply(thread(appends("t", "b", "a")))
	row := f.threadRow("t")
	if row.Head != "b" || row.Checkpoints != 2 || row.Name != "t" || row.Org != f.org || !row.UpdatedAt.Equal(clock.now()) || row.CreatedAt.Equal(row.UpdatedAt) {
		t.Errorf("%+v", row)
	}
	// Duplicate beats stale beats parent mismatch, and nothing is left behind.
	bad := appends("t", "a", "x")
	f.refuse(thread(bad), meta.ConflictCheckpointID)
	bad.Append.ID, bad.Append.Parent = "c", "y"
	if c := f.refuse(thread(bad), meta.ConflictHead); c.Other != "b" {
		t.Errorf("%+v", c)
	}
	bad.Expected = "b"
	f.refuse(thread(bad), meta.ConflictParent)
	f.refuse(thread(appends("new", "a", "")), meta.ConflictCheckpointID)
	f.refuse(thread(appends("new", "c", "b")), meta.ConflictHead)
	if again := f.threadRow("t"); again != row {
		t.Errorf("refusals made %+v of %+v", again, row)
	}
	onto := appends("t", "c", "")
	onto.AnyHead, onto.Append.Parent = true, "whatever"
	if v := f.apply(thread(onto)); v.Thread.Parent != "b" || v.Thread.Seq != 3 {
		t.Errorf("%+v", v.Thread)
	}
	other := f.newOrg("other")
	_, err = f.Checkpoint(f.ctx, other, "a")
	f.wantErr(err, meta.ErrNotFound)
	f.apply(meta.Change{Org: other, Thread: thread(appends("t", "a", "")).Thread})
	f.apply(meta.Change{Org: other, DeleteOrg: true})
	if n := len(must(f.ListThreads(f.ctx, meta.ThreadQuery{Org: other, Limit: 9}))(t)); n != 0 {
		t.Errorf("%d threads of a deleted org", n)
	}
	// A floor on the thread refuses whatever the token was made for.
	f.apply(meta.Change{RaiseFloors: []meta.Floor{{Kind: meta.FloorThread, Target: "t", NotBefore: 5}}})
	for iat, refused := range map[int64]bool{5: true, 6: false} {
		c := thread(appends("t", fmt.Sprint("f", iat), "c"))
		c.Token = &meta.TokenStamp{IssuedAt: iat, Thread: "*"}
		if refused {
			f.refuse(c, meta.ConflictFloor)
		} else {
			f.apply(c)
		}
	}
}

func testThreadLists(t *testing.T, open Open) {
	f := setUp(t, open)
	head := ""
	add := func(id string, created float64, label string) {
		c := appends("t", id, head)
		c.Append.Created, c.Append.Label = created, label
		f.apply(thread(c))
		head = id
	}
	for _, id := range []string{"😀", "é", "a", "B"} {
		add(id, 10, "same")
	}
	for i, created := range []float64{math.MaxFloat64, -math.MaxFloat64, 0, math.Copysign(0, -1), 0.5, -0.5, 1e-300} {
		add(fmt.Sprint("n", i), created, "")
	}
	want := []string{"n1", "n5", "n2", "n3", "n6", "n4", "B", "a", "é", "😀", "n0"}
	q := meta.CheckpointQuery{Org: f.org, Thread: "t", Limit: 100}
	all := must(f.Checkpoints(f.ctx, q))(t)
	if !slices.Equal(ids(all), want) {
		t.Errorf("%v, want %v", ids(all), want)
	}
	for _, descending := range []bool{false, true} {
		q.Descending, q.Started, q.Limit = descending, false, 3
		var got []string
		for {
			page := must(f.Checkpoints(f.ctx, q))(t)
			if len(page) == 0 {
				break
			}
			got = append(got, ids(page)...)
			last := page[len(page)-1]
			q.Started, q.AfterCreated, q.AfterID = true, last.Created, last.ID
		}
		if descending {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("descending %v: %v", descending, got)
		}
	}
	label := "same"
	if got := ids(must(f.Checkpoints(f.ctx, meta.CheckpointQuery{Org: f.org, Thread: "t", Label: &label, Limit: 3}))(t)); !slices.Equal(got, []string{"B", "a", "é"}) {
		t.Errorf("by label %v", got)
	}
	if got := must(f.AllCheckpoints(f.ctx, f.org, "a", 2))(t); !slices.Equal(ids(got), []string{"n0", "n1"}) {
		t.Errorf("by id %v", ids(got))
	}
	for _, name := range []string{"u", "t\x00", "s/1", "s/2", "s"} {
		f.apply(thread(appends(name, "of "+name, "")))
	}
	f.apply(thread(meta.ThreadChange{Name: "leased", Acquire: &meta.AcquireLease{Owner: []byte("o"), Duration: time.Hour}}))
	names := func(q meta.ThreadQuery) (out []string) {
		q.Org, q.Limit = f.org, 3
		for _, row := range must(f.ListThreads(f.ctx, q))(t) {
			out = append(out, row.Name)
		}
		return out
	}
	if got := names(meta.ThreadQuery{}); !slices.Equal(got, []string{"s", "s/1", "s/2"}) {
		t.Errorf("%q", got)
	}
	if got := names(meta.ThreadQuery{After: "s/2"}); !slices.Equal(got, []string{"t", "t\x00", "u"}) {
		t.Errorf("%q", got)
	}
	if got := names(meta.ThreadQuery{Prefix: "s/"}); !slices.Equal(got, []string{"s/1", "s/2"}) {
		t.Errorf("%q", got)
	}
}

func testLeases(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	acquire := func(owner string) meta.ThreadChange {
		return meta.ThreadChange{Name: "t", Acquire: &meta.AcquireLease{Owner: []byte(owner), Duration: time.Minute}}
	}
	by := func(owner string, fence int64, c meta.ThreadChange) meta.ThreadChange {
		c.Unheld, c.Writer = false, &meta.ThreadWriter{Owner: []byte(owner), Fence: fence}
		return c
	}
	renew := meta.ThreadChange{Name: "t", Renew: time.Minute}
	release := meta.ThreadChange{Name: "t", Release: true}
	f.refuse(thread(by("one", 0, renew)), meta.ConflictWriterLost)
	f.apply(thread(by("one", 0, release)))
	v := f.apply(thread(acquire("one")))
	if row := v.Thread.Thread; row.Fence != 1 || !row.LeaseUntil.Equal(clock.now().Add(time.Minute)) || row.Checkpoints != 0 {
		t.Errorf("%+v", row)
	}
	f.refuse(thread(acquire("two")), meta.ConflictWriterHeld)
	if v := f.apply(thread(acquire("one"))); v.Thread.Thread.Fence != 1 {
		t.Errorf("asked for again %+v", v.Thread)
	}
	f.refuse(thread(appends("t", "a", "")), meta.ConflictWriterHeld)
	f.refuse(thread(by("two", 1, appends("t", "a", ""))), meta.ConflictWriterLost)
	f.refuse(thread(by("one", 2, appends("t", "a", ""))), meta.ConflictWriterLost)
	f.apply(thread(by("one", 1, appends("t", "a", ""))))
	// A lost lease beats a duplicate.
	f.refuse(thread(by("two", 1, appends("t", "a", "x"))), meta.ConflictWriterLost)
	clock.advance(59 * time.Second)
	f.apply(thread(by("one", 1, renew)))
	clock.advance(59 * time.Second)
	f.apply(thread(by("one", 1, appends("t", "b", "a"))))
	clock.advance(time.Second) // exactly at its end it is dead
	f.refuse(thread(by("one", 1, renew)), meta.ConflictWriterLost)
	f.refuse(thread(by("one", 1, appends("t", "c", "b"))), meta.ConflictWriterLost)
	f.refuse(thread(by("one", 1, meta.ThreadChange{Name: "t", DeleteHead: "b"})), meta.ConflictWriterLost)
	if v := f.apply(thread(acquire("two"))); v.Thread.Thread.Fence != 2 {
		t.Errorf("%+v", v.Thread)
	}
	f.apply(thread(by("one", 1, release))) // does not free its successor
	f.refuse(thread(acquire("three")), meta.ConflictWriterHeld)
	f.apply(thread(by("two", 2, release)))
	f.refuse(thread(by("two", 2, renew)), meta.ConflictWriterLost)
	f.apply(thread(appends("t", "c", "b")))
	if row := f.threadRow("t"); row.Fence != 3 || !row.LeaseUntil.IsZero() {
		t.Errorf("an append of its own left %+v", row)
	}
	f.apply(thread(meta.ThreadChange{Name: "t", Unheld: true, DeleteThread: true}))
	if v := f.apply(thread(acquire("four"))); v.Thread.Thread.Fence != 4 {
		t.Errorf("after a deletion %+v", v.Thread)
	}
	f.refuse(thread(meta.ThreadChange{Name: "t", Unheld: true, DeleteThread: true}), meta.ConflictWriterHeld)
}

func testLeaseRace(t *testing.T, open Open) {
	f := setUp(t, open)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			v, err := f.try(thread(meta.ThreadChange{Name: "t", Acquire: &meta.AcquireLease{Owner: []byte{byte(i + 1)}, Duration: time.Hour}}))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if v.Applied {
				won++
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d hold the lease", won)
	}
	// Appends of one id to different threads, and of different ids to one head.
	count := func(change func(i int) meta.ThreadChange) (n int) {
		for i := range 8 {
			wg.Go(func() {
				v, err := f.try(thread(change(i)))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if v.Applied {
					n++
				}
			})
		}
		wg.Wait()
		return n
	}
	if n := count(func(i int) meta.ThreadChange { return appends(fmt.Sprint("x", i), "id", "") }); n != 1 {
		t.Errorf("%d checkpoints have one id", n)
	}
	if n := count(func(i int) meta.ThreadChange { return appends("y", fmt.Sprint("y", i), "") }); n != 1 {
		t.Errorf("%d checkpoints are first", n)
	}
}

func testDeleteCheckpoints(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	head := ""
	for i := range 8 {
		id := fmt.Sprint("c", i)
		c := appends("t", id, head)
		if i%2 == 0 {
			c.Append.Label = "even"
		}
		f.apply(thread(c))
		head = id
		clock.advance(time.Minute)
	}
	f.apply(thread(appends("u", "of u", "")))
	change := func(c meta.ThreadChange) meta.Change { c.Name = "t"; return thread(c) }
	f.refuse(change(meta.ThreadChange{DeleteHead: "c6"}), meta.ConflictNotHead)
	f.refuse(change(meta.ThreadChange{DeleteHead: "of u"}), meta.ConflictNotHead)
	f.refuse(change(meta.ThreadChange{Delete: "of u"}), meta.ConflictNoCheckpoint)
	f.refuse(change(meta.ThreadChange{SetPinned: &meta.PinChange{ID: "of u", Pinned: true}}), meta.ConflictNoCheckpoint)
	f.apply(change(meta.ThreadChange{SetPinned: &meta.PinChange{ID: "c6", Pinned: true}}))
	f.refuse(change(meta.ThreadChange{Delete: "c6"}), meta.ConflictPinned)
	f.apply(change(meta.ThreadChange{DeleteHead: "c7"}))
	f.refuse(change(meta.ThreadChange{DeleteHead: "c6"}), meta.ConflictPinned)
	f.apply(change(meta.ThreadChange{SetPinned: &meta.PinChange{ID: "c6"}}))
	f.apply(change(meta.ThreadChange{Delete: "c5"}))
	for except, want := range map[string]string{"": "c6", "c6": "c4", "of u": "c6"} {
		if got := must(f.NewestCheckpoint(f.ctx, f.org, "t", except))(t); got != want {
			t.Errorf("newest but %q is %q, want %q", except, got, want)
		}
	}
	if got := must(f.NewestCheckpoint(f.ctx, f.org, "u", "of u"))(t); got != "" {
		t.Errorf("newest of none is %q", got)
	}
	// The newest that is left becomes the head, and survivors keep their parents.
	if v := f.apply(change(meta.ThreadChange{DeleteHead: "c6"})); v.Thread.Thread.Head != "c4" || v.Thread.Thread.Checkpoints != 5 || !v.Thread.Thread.Dirty {
		t.Errorf("%+v", v.Thread)
	}
	f.apply(change(meta.ThreadChange{Delete: "c1"}))
	if c := must(f.Checkpoint(f.ctx, f.org, "c2"))(t); c.Parent != "c1" {
		t.Errorf("%+v", c)
	}
	f.apply(change(meta.ThreadChange{SetPinned: &meta.PinChange{ID: "c0", Pinned: true}}))
	prunable := func(q meta.PruneQuery) []string {
		q.Org, q.Thread, q.Limit = f.org, "t", 100
		return ids(must(f.Prunable(f.ctx, q))(t))
	}
	even, none := "even", ""
	for _, c := range []struct {
		q    meta.PruneQuery
		want []string
	}{
		{meta.PruneQuery{}, []string{"c2", "c3"}},
		{meta.PruneQuery{Keep: 1}, []string{"c2", "c3"}},
		{meta.PruneQuery{Keep: 2}, []string{"c2"}},
		{meta.PruneQuery{Keep: 9}, nil},
		{meta.PruneQuery{Label: &even}, []string{"c2"}},
		{meta.PruneQuery{Label: &none}, []string{"c3"}},
		{meta.PruneQuery{Before: clock.now().Add(-5 * time.Minute)}, []string{"c2"}},
		{meta.PruneQuery{Before: clock.now().Add(-6 * time.Minute)}, nil},
	} {
		if got := prunable(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.q, got, c.want)
		}
	}
	v := f.apply(change(meta.ThreadChange{Prune: []string{"c3", "c0", "c4", "of u", "gone", "c2"}}))
	if !slices.Equal(v.Thread.Deleted, []string{"c2", "c3"}) {
		t.Errorf("pruned %v", v.Thread.Deleted)
	}
	if v := f.apply(change(meta.ThreadChange{DeleteThread: true})); v.Thread.DeletedCount != 2 {
		t.Errorf("%+v", v.Thread)
	}
	f.refuse(change(meta.ThreadChange{DeleteThread: true}), meta.ConflictNoThread)
	_, err := f.Checkpoint(f.ctx, f.org, "c0")
	f.wantErr(err, meta.ErrNotFound)
	// Counting goes on where it was.
	if v := f.apply(thread(appends("t", "c0", ""))); v.Thread.Seq != 9 {
		t.Errorf("%+v", v.Thread)
	}
}

func testForkThreads(t *testing.T, open Open) {
	f := setUp(t, open)
	f.apply(thread(appends("s", "a", "")))
	f.apply(thread(appends("s", "b", "a")))
	fork := func(to, id, source, of string) meta.ThreadChange {
		c := appends(to, id, "")
		c.ForkOf = &meta.ForkSource{ID: source, Thread: of}
		return c
	}
	f.refuse(thread(fork("d", "d1", "x", "")), meta.ConflictForkSource)
	f.refuse(thread(fork("d", "d1", "a", "other")), meta.ConflictForkThread)
	f.refuse(thread(fork("d", "b", "a", "s")), meta.ConflictForkTarget)
	lost := fork("d", "d1", "a", "s")
	lost.Unheld, lost.Writer = false, &meta.ThreadWriter{Owner: []byte("o"), Fence: 1}
	f.refuse(thread(lost), meta.ConflictWriterLost)
	v := f.apply(thread(fork("d", "d1", "a", "s")))
	if v.Thread.Thread.Known >= 0 || v.Thread.Thread.Head != "d1" || v.Thread.Parent != "" {
		t.Errorf("%+v", v.Thread)
	}
	f.refuse(thread(fork("d", "d2", "a", "s")), meta.ConflictForkTarget)
	f.apply(thread(meta.ThreadChange{Name: "s", Delete: "a"}))
	f.refuse(thread(fork("e", "e1", "a", "s")), meta.ConflictForkSource)
}

func testSegments(t *testing.T, open Open) {
	f := setUp(t, open)
	_, _, err := f.Segments(f.ctx, f.org, "t")
	f.wantErr(err, meta.ErrNotFound)
	c := appends("t", "a", "")
	c.Append.Added = 5
	c.Segments = &meta.SegmentChange{Add: []meta.Segment{{ID: 1, Keys: 2, Data: []byte("two")}, {ID: 2, Keys: 9, Ref: []byte("elsewhere")}}}
	f.apply(thread(c))
	row, list := func() (meta.Thread, []meta.Segment) {
		row, list, err := f.Segments(f.ctx, f.org, "t")
		if err != nil {
			t.Fatal(err)
		}
		return row, list
	}()
	if len(list) != 2 || list[0].ID != 2 || string(list[0].Ref) != "elsewhere" || list[0].Keys != 9 || string(list[1].Data) != "two" || row.Head != "a" {
		t.Errorf("%+v %+v", row, list)
	}
	swap := appends("t", "b", "a")
	swap.Segments = &meta.SegmentChange{AtVersion: row.Version - 1, Remove: []int64{1}}
	f.refuse(thread(swap), meta.ConflictThreadMoved)
	swap.Segments.AtVersion = row.Version
	f.apply(thread(swap))
	anew := &meta.SegmentChange{AtVersion: f.threadRow("t").Version, Anew: true, Known: 4, Bytes: 3, Add: []meta.Segment{{ID: 7, Keys: 1, Ref: []byte("r")}}}
	f.apply(thread(meta.ThreadChange{Name: "t", Delete: "a"}))
	f.refuse(thread(meta.ThreadChange{Name: "t", Segments: anew}), meta.ConflictThreadMoved)
	anew.AtVersion++
	v := f.apply(thread(meta.ThreadChange{Name: "t", Segments: anew}))
	if row := v.Thread.Thread; row.Dirty || row.Known != 4 || row.Bytes != 3 {
		t.Errorf("%+v", row)
	}
	var refs []string
	if err := f.LiveCheckpoints(f.ctx, f.org, func(body, ref []byte) error { refs = append(refs, string(body)+string(ref)); return nil }); err != nil || !slices.Equal(refs, []string{"body of b", "r"}) {
		t.Errorf("%q, %v", refs, err)
	}
	f.apply(thread(meta.ThreadChange{Name: "t", DeleteThread: true}))
	if row, list, err := f.Segments(f.ctx, f.org, "t"); err != nil || len(list) != 0 || row.Bytes != 0 {
		t.Errorf("%+v %+v %v", row, list, err)
	}
}

func testMalformedThreads(t *testing.T, open Open) {
	f := setUp(t, open)
	nan := appends("t", "a", "")
	nan.Append.Created = math.NaN()
	both := appends("t", "a", "")
	both.DeleteThread = true
	for name, c := range map[string]meta.ThreadChange{
		"no name": appends("", "a", ""), "no id": appends("t", "", ""), "no time": nan, "both": both,
		"renew":       {Name: "t", Renew: time.Second},
		"release":     {Name: "t", Release: true},
		"no owner":    {Name: "t", Acquire: &meta.AcquireLease{Duration: time.Second}},
		"no duration": {Name: "t", Acquire: &meta.AcquireLease{Owner: []byte("o")}},
		"two":         {Name: "t", DeleteHead: "a", Delete: "b"},
		"fork":        {Name: "t", ForkOf: &meta.ForkSource{ID: "a"}},
	} {
		if _, err := f.try(thread(c)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func testLargeBlobs(t *testing.T, open Open) {
	f := setUp(t, open)
	put := meta.LargeBlob{Sum: [32]byte{1}, Recipe: [32]byte{2}, Size: 9}
	f.apply(meta.Change{PutBlob: &meta.LargeBlob{Sum: put.Sum, Recipe: [32]byte{3}, Size: 9}})
	first := must(f.LargeBlobs(f.ctx, f.org, [][32]byte{{1}, {2}}))(t)
	f.apply(meta.Change{PutBlob: &put})
	list := must(f.LargeBlobs(f.ctx, f.org, [][32]byte{{1}, {2}}))(t)
	if len(first) != 1 || len(list) != 1 || list[0].Recipe != put.Recipe || list[0].Size != 9 || !list[0].PutAt.After(first[0].PutAt) {
		t.Fatalf("%+v, then %+v", first, list)
	}
	other := f.newOrg("other")
	if list := must(f.LargeBlobs(f.ctx, other, [][32]byte{{1}}))(t); len(list) != 0 {
		t.Errorf("of another org %+v", list)
	}
	f.apply(meta.Change{PutBlob: &meta.LargeBlob{Sum: [32]byte{7}, Recipe: put.Recipe, Size: 9}})
	if all := must(f.ListLargeBlobs(f.ctx, f.org, [32]byte{}, 9))(t); len(all) != 2 || all[0] != list[0] || all[1].Sum != [32]byte{7} {
		t.Errorf("%+v", all)
	}
	if all := must(f.ListLargeBlobs(f.ctx, f.org, [32]byte{1}, 1))(t); len(all) != 1 || all[0].Sum != [32]byte{7} {
		t.Errorf("%+v", all)
	}
	// What was put again stays, and so does what another org has.
	f.apply(meta.Change{Org: other, PutBlob: &put})
	f.apply(meta.Change{ForgetBlobs: first})
	if all := must(f.ListLargeBlobs(f.ctx, f.org, [32]byte{}, 9))(t); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	f.apply(meta.Change{ForgetBlobs: list})
	if all := must(f.ListLargeBlobs(f.ctx, f.org, [32]byte{}, 9))(t); len(all) != 1 || all[0].Sum != [32]byte{7} {
		t.Errorf("%+v", all)
	}
	if all := must(f.ListLargeBlobs(f.ctx, other, [32]byte{}, 9))(t); len(all) != 1 {
		t.Errorf("of another org %+v", all)
	}
}

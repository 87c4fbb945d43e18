package metatest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func contentID(n byte) meta.ContentID { return meta.ContentID{0: 0xff - n, 15: n} }

// content applies a ContentChange that must be applied.
func (f *fixture) content(c meta.ContentChange) {
	f.Helper()
	f.apply(meta.Change{Content: &c})
}

func (f *fixture) refuseContent(kind meta.ConflictKind, c meta.ContentChange) {
	f.Helper()
	before := must(f.ContentView(f.ctx, f.org))(f)
	f.refuse(meta.Change{Content: &c}, kind)
	if after := must(f.ContentView(f.ctx, f.org))(f); after.ContentVersion != before.ContentVersion {
		f.Errorf("a refused change made version %+v of %+v", after.ContentVersion, before.ContentVersion)
	}
}

// contentPack is a small pack, or one with a blob whose upload has begun.
func (f *fixture) contentPack(n byte, key string) meta.ContentPackWrite {
	f.Helper()
	p := meta.ContentPackWrite{
		ContentPack: meta.ContentPack{ID: contentID(n), Key: key, Bytes: int64(n) * 100, RawBytes: int64(n) * 300, TableAt: 8, Objects: int64(n)},
	}
	if key == "" {
		p.Data = []byte{n, n}
		return p
	}
	f.begin(key)
	return p
}

func (f *fixture) begin(key string) {
	f.Helper()
	if err := f.BeginUpload(f.ctx, meta.Upload{Key: key, Process: "p"}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) retiredKeys() (keys []string) {
	f.Helper()
	for _, r := range must(f.Retired(f.ctx, time.Now().Add(20*365*24*time.Hour), 100))(f) {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return keys
}

func packNumbers(packs []meta.ContentPack) (numbers []byte) {
	for _, p := range packs {
		numbers = append(numbers, p.ID[15])
	}
	slices.Sort(numbers)
	return numbers
}

func testContentPacks(t *testing.T, open Open) {
	f := setUp(t, open)
	if v := must(f.ContentVersion(f.ctx, f.org))(t); v != (meta.ContentVersion{}) {
		t.Errorf("an org without content has version %+v", v)
	}
	f.content(meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(1, ""), f.contentPack(2, "content/two")}})
	other := f.newOrg("other")
	if v := must(f.ContentView(f.ctx, other))(t); len(v.Packs) > 0 || v.Version != 0 {
		t.Errorf("another org has %+v", v)
	}
	v := must(f.ContentView(f.ctx, f.org))(t)
	if v.Version != 1 || v.Generation != 0 || !slices.Equal(packNumbers(v.Packs), []byte{1, 2}) {
		t.Fatalf("view %+v", v)
	}
	p := must(f.ContentPack(f.ctx, f.org, contentID(2)))(t)
	want := meta.ContentPack{
		Org: f.org, ID: contentID(2), State: meta.ContentLive, Key: "content/two", Bytes: 200, RawBytes: 600, TableAt: 8, Objects: 2,
		CreatedAt: p.CreatedAt, ChangedAt: p.CreatedAt, CheckedAt: p.CreatedAt,
	}
	if p != want || p.CreatedAt.IsZero() {
		t.Errorf("pack %+v, want %+v", p, want)
	}
	if data := must(f.ContentData(f.ctx, f.org, contentID(1)))(t); string(data) != "\x01\x01" {
		t.Errorf("data %q", data)
	}
	_, err := f.ContentData(f.ctx, f.org, contentID(2))
	f.wantErr(err, meta.ErrNotFound)
	_, err = f.ContentPack(f.ctx, other, contentID(2))
	f.wantErr(err, meta.ErrNotFound)
	if left := must(f.Uploads(f.ctx))(t); len(left) > 0 {
		t.Errorf("uploads are left: %+v", left)
	}

	f.refuseContent(meta.ConflictID, meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(1, "")}})
	absent := f.contentPack(3, "")
	absent.Key = "content/three"
	f.refuseContent(meta.ConflictUpload, meta.ContentChange{AddPacks: []meta.ContentPackWrite{absent}})

	// Condemned packs stay in the view, and the generation rises.
	f.content(meta.ContentChange{SetPacks: []meta.ContentPackState{{ID: contentID(2), From: meta.ContentLive, To: meta.ContentCondemned}}})
	f.refuseContent(meta.ConflictContent, meta.ContentChange{SetPacks: []meta.ContentPackState{{ID: contentID(2), From: meta.ContentLive, To: meta.ContentDamaged}}})
	f.refuseContent(meta.ConflictContent, meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(9), From: meta.ContentLive}}})
	if v := must(f.ContentVersion(f.ctx, f.org))(t); v != (meta.ContentVersion{Version: 2, Generation: 1}) {
		t.Errorf("version %+v", v)
	}
	old, now := int64(0), int64(1)
	f.refuseContent(meta.ConflictGeneration, meta.ContentChange{Generation: &old})
	f.content(meta.ContentChange{Generation: &now})
	f.content(meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(2), From: meta.ContentCondemned}}})
	if keys := f.retiredKeys(); !slices.Equal(keys, []string{"content/two"}) {
		t.Errorf("retired %q", keys)
	}
	// A live pack that was moved raises nothing, one that is dropped does.
	f.content(meta.ContentChange{
		AddPacks: []meta.ContentPackWrite{f.contentPack(4, ""), f.contentPack(5, "")}, Moved: true,
		RemovePacks: []meta.ContentPackState{{ID: contentID(1), From: meta.ContentLive}},
	})
	if v := must(f.ContentVersion(f.ctx, f.org))(t); v.Generation != 1 {
		t.Errorf("moving raised the generation to %d", v.Generation)
	}
	f.content(meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(5), From: meta.ContentLive}}})
	if v := must(f.ContentVersion(f.ctx, f.org))(t); v.Generation != 2 {
		t.Errorf("dropping left the generation at %d", v.Generation)
	}
	_, err = f.ContentData(f.ctx, f.org, contentID(1))
	f.wantErr(err, meta.ErrNotFound)
	f.apply(meta.Change{DeleteOrg: true})
	if orgs := must(f.ContentOrgs(f.ctx, 0, 10))(t); len(orgs) > 0 {
		t.Errorf("content of orgs %v is left", orgs)
	}
}

func testContentQueries(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	for n := byte(1); n <= 5; n++ {
		f.content(meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(n, "")}})
		clock.advance(time.Minute)
	}
	var seen []byte
	for after := (meta.ContentID{}); ; {
		page := must(f.ContentPacks(f.ctx, f.org, after, 2))(t)
		for _, p := range page {
			seen = append(seen, p.ID[15])
			after = p.ID
		}
		if len(page) < 2 {
			break
		}
	}
	if !slices.Equal(seen, []byte{5, 4, 3, 2, 1}) {
		t.Errorf("by id: %v", seen)
	}
	f.content(meta.ContentChange{SetPacks: []meta.ContentPackState{{ID: contentID(2), From: meta.ContentLive, To: meta.ContentDamaged}}})
	if small := must(f.SmallContentPacks(f.ctx, f.org, 400, 10))(t); len(small) != 2 || small[0].ID != contentID(1) || small[1].ID != contentID(3) {
		t.Errorf("small packs %+v", small)
	}
	before := must(f.ContentVersion(f.ctx, f.org))(t)
	f.content(meta.ContentChange{Checked: []meta.ContentID{contentID(1)}})
	if after := must(f.ContentVersion(f.ctx, f.org))(t); after != before {
		t.Errorf("a check made version %+v of %+v", after, before)
	}
	due := must(f.UncheckedContentPacks(f.ctx, clock.now().Add(-time.Minute), 2))(t)
	if len(due) != 2 || due[0].ID != contentID(3) || due[1].ID != contentID(4) {
		t.Errorf("unchecked packs %+v", due)
	}
	if orgs := must(f.ContentOrgs(f.ctx, 0, 10))(t); !slices.Equal(orgs, []meta.OrgID{f.org}) {
		t.Errorf("orgs %v", orgs)
	}
}

func testContentIndexes(t *testing.T, open Open) {
	f := setUp(t, open)
	for n := byte(1); n <= 4; n++ {
		f.content(meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(n, "content/"+string('a'+n))}})
	}
	index := func(n byte, covers []byte, replaces ...meta.ContentIndexSeen) meta.ContentChange {
		key := "content/index" + string('a'+n)
		f.begin(key)
		x := &meta.ContentIndexWrite{ContentIndex: meta.ContentIndex{ID: contentID(n), Key: key, Bytes: 10, Objects: 20, Packs: 30}, Replaces: replaces}
		for _, c := range covers {
			x.Covers = append(x.Covers, contentID(c))
		}
		return meta.ContentChange{AddIndex: x}
	}
	f.content(index(101, []byte{1, 2}))
	v := must(f.ContentView(f.ctx, f.org))(t)
	if !slices.Equal(packNumbers(v.Packs), []byte{3, 4}) || len(v.Indexes) != 1 || v.Indexes[0].Objects != 20 || v.Indexes[0].Packs != 30 || v.Indexes[0].Bytes != 10 {
		t.Fatalf("view %+v", v)
	}
	f.refuseContent(meta.ConflictContent, index(102, []byte{2, 3}))
	f.refuseContent(meta.ConflictContent, index(102, []byte{3}, meta.ContentIndexSeen{ID: contentID(100)}))
	// A condemned pack of an index file is in the view; one that was removed is dead.
	f.content(meta.ContentChange{SetPacks: []meta.ContentPackState{{ID: contentID(1), From: meta.ContentLive, To: meta.ContentCondemned}}})
	if v = must(f.ContentView(f.ctx, f.org))(t); !slices.Equal(packNumbers(v.Packs), []byte{1, 3, 4}) {
		t.Errorf("view %+v", v)
	}
	f.content(meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(1), From: meta.ContentCondemned}}})
	if v = must(f.ContentView(f.ctx, f.org))(t); !slices.Equal(v.Indexes[0].Dead, []meta.ContentID{contentID(1)}) {
		t.Errorf("dead %v", v.Indexes[0].Dead)
	}
	// What died after it was read is dead to the new file: a pack of the old one, and
	// one that it was to cover.
	f.content(meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(2), From: meta.ContentLive}, {ID: contentID(3), From: meta.ContentLive}}})
	f.content(index(102, []byte{3, 4}, meta.ContentIndexSeen{ID: contentID(101), Dead: 1}))
	v = must(f.ContentView(f.ctx, f.org))(t)
	if len(v.Packs) > 0 || len(v.Indexes) != 1 || v.Indexes[0].ID != contentID(102) {
		t.Fatalf("view %+v", v)
	}
	if dead := v.Indexes[0].Dead; len(dead) != 2 || !slices.Contains(dead, contentID(2)) || !slices.Contains(dead, contentID(3)) {
		t.Errorf("dead %v", dead)
	}
	if p := must(f.ContentPack(f.ctx, f.org, contentID(4)))(t); p.Index != contentID(102) {
		t.Errorf("pack %+v", p)
	}
	if keys := f.retiredKeys(); !slices.Contains(keys, "content/index"+string('a'+byte(101))) {
		t.Errorf("retired %q", keys)
	}
	var live []string
	if err := f.LiveContentKeys(f.ctx, func(key string, _ int64) error { live = append(live, key); return nil }); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(live); len(live) != 2 || live[0] != "content/e" {
		t.Errorf("live keys %q", live)
	}
	if v, err := f.try(meta.Change{Content: &meta.ContentChange{AddIndex: &meta.ContentIndexWrite{}, SetPacks: []meta.ContentPackState{{}}}}); err == nil {
		t.Errorf("an index file with a change of packs: %+v", v)
	}
}

func testContentUploads(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	put := func(list *meta.ContentList, replaces ...meta.ContentID) meta.ContentChange {
		return meta.ContentChange{PutUpload: &meta.ContentUploadWrite{ID: "u", Thread: "t", Lease: time.Hour, AddList: list, Replaces: replaces}}
	}
	_, err := f.ContentUpload(f.ctx, f.org, "u")
	f.wantErr(err, meta.ErrNotFound)
	f.content(put(&meta.ContentList{ID: contentID(1), Data: []byte("one"), Bytes: 3, Objects: 1}))
	began := clock.now()
	clock.advance(30 * time.Minute)
	f.begin("content/list")
	f.content(put(&meta.ContentList{ID: contentID(2), Key: "content/list", Bytes: 70, Objects: 2}))
	u := must(f.ContentUpload(f.ctx, f.org, "u"))(t)
	if u.ID != "u" || u.Thread != "t" || !u.Begun.Equal(began) || !u.Expires.Equal(clock.now().Add(time.Hour)) || len(u.Lists) != 2 {
		t.Fatalf("upload %+v", u)
	}
	if l := u.Lists[0]; l.ID != contentID(2) || l.Key != "content/list" || l.Bytes != 70 || l.Objects != 2 || len(l.Data) > 0 {
		t.Errorf("list %+v", l)
	}
	if l := u.Lists[1]; l.ID != contentID(1) || l.Key != "" || string(l.Data) != "one" {
		t.Errorf("list %+v", l)
	}
	f.refuseContent(meta.ConflictUploadThread, meta.ContentChange{PutUpload: &meta.ContentUploadWrite{ID: "u", Thread: "another", Lease: time.Hour}})
	f.refuseContent(meta.ConflictUpload, put(&meta.ContentList{ID: contentID(3), Key: "content/absent"}))
	f.content(put(&meta.ContentList{ID: contentID(4), Data: []byte("both"), Bytes: 4, Objects: 3}, contentID(1), contentID(2)))
	if u = must(f.ContentUpload(f.ctx, f.org, "u"))(t); len(u.Lists) != 1 || u.Lists[0].ID != contentID(4) {
		t.Errorf("upload %+v", u)
	}
	if keys := f.retiredKeys(); !slices.Equal(keys, []string{"content/list"}) {
		t.Errorf("retired %q", keys)
	}
	f.content(meta.ContentChange{PutUpload: &meta.ContentUploadWrite{ID: "empty", Thread: "t", Lease: time.Minute}})
	if list := must(f.ContentUploads(f.ctx, f.org))(t); len(list) != 2 || list[0].ID != "empty" || len(list[0].Lists) != 0 || len(list[1].Lists) != 1 {
		t.Errorf("uploads %+v", list)
	}
	clock.advance(2 * time.Minute)
	if list := must(f.ContentUploads(f.ctx, f.org))(t); len(list) != 1 {
		t.Errorf("uploads %+v", list)
	}
	f.content(meta.ContentChange{ExpireUploads: true})
	f.content(meta.ContentChange{EndUpload: "u"})
	f.content(meta.ContentChange{EndUpload: "u"})
	if list := must(f.ContentUploads(f.ctx, f.org))(t); len(list) != 0 {
		t.Errorf("uploads %+v", list)
	}
	if v, err := f.try(meta.Change{Content: &meta.ContentChange{PutUpload: &meta.ContentUploadWrite{Thread: "t"}}}); err == nil {
		t.Errorf("an upload without a name: %+v", v)
	}
}

// testContentRace has appends and the condemning of a pack at the same time: no
// append is applied after it with the generation from before.
func testContentRace(t *testing.T, open Open) {
	f := setUp(t, open)
	for round := range byte(20) {
		f.content(meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(round+1, "")}})
		before := must(f.ContentVersion(f.ctx, f.org))(t)
		var condemned, appended time.Time
		var refused bool
		var both sync.WaitGroup
		both.Go(func() {
			c := meta.ContentChange{SetPacks: []meta.ContentPackState{{ID: contentID(round + 1), From: meta.ContentLive, To: meta.ContentCondemned}}}
			v, err := f.try(meta.Change{Content: &c})
			if condemned = v.At; err != nil || !v.Applied {
				t.Error(v, err)
			}
		})
		both.Go(func() {
			v, err := f.try(meta.Change{Content: &meta.ContentChange{Generation: &before.Generation, EndUpload: "u"}})
			if err != nil && !errors.Is(err, meta.ErrNotApplied) {
				t.Error(err)
			}
			appended, refused = v.At, !v.Applied
		})
		both.Wait()
		if after := must(f.ContentVersion(f.ctx, f.org))(t); after.Generation != before.Generation+1 {
			t.Fatalf("generation %d after %d", after.Generation, before.Generation)
		}
		if !refused && appended.After(condemned) {
			t.Errorf("round %d: an append was applied %s after the pack was condemned", round, appended.Sub(condemned))
		}
	}
}

// testContentQuota has the packs of checkpoint objects count for the limit of an org.
func testContentQuota(t *testing.T, open Open) {
	f := setUp(t, open)
	used := func() int64 { return must(f.Usage(f.ctx, f.org, 0))(t).Bytes }
	f.content(meta.ContentChange{AddPacks: []meta.ContentPackWrite{f.contentPack(3, "")}})
	f.apply(meta.Change{SetQuota: &meta.OrgQuota{Bytes: 1000, RepoBytes: 1}})
	upload := &meta.ContentUploadWrite{ID: "u", Thread: "t", Lease: time.Hour}
	refused := f.refuse(meta.Change{Content: &meta.ContentChange{PutUpload: upload, AddPacks: []meta.ContentPackWrite{f.contentPack(8, "")}}}, meta.ConflictQuota)
	if q := refused.Quota; q == nil || *q != (meta.QuotaConflict{Limit: 1000, Used: 300, Needed: 800}) {
		t.Errorf("quota %+v", q)
	}
	f.content(meta.ContentChange{PutUpload: upload, AddPacks: []meta.ContentPackWrite{f.contentPack(7, "")}})
	if u := must(f.Usage(f.ctx, f.org, 0))(t); u.Bytes != 1000 || u.CheckpointBytes != 1000 || u.Packs != 2 || u.Objects != 10 {
		t.Errorf("usage %+v", u)
	}
	// What the background moves may go over the limit; what it removes counts no more.
	f.content(meta.ContentChange{Moved: true, AddPacks: []meta.ContentPackWrite{f.contentPack(9, ""), f.contentPack(4, "")},
		RemovePacks: []meta.ContentPackState{{ID: contentID(7), From: meta.ContentLive}}})
	if n := used(); n != 1600 {
		t.Errorf("%d bytes are used", n)
	}
	f.content(meta.ContentChange{RemovePacks: []meta.ContentPackState{{ID: contentID(9), From: meta.ContentLive}}})
	refused = f.refuse(meta.Change{Content: &meta.ContentChange{PutUpload: upload, AddPacks: []meta.ContentPackWrite{f.contentPack(5, "")}}}, meta.ConflictQuota)
	if q := refused.Quota; q == nil || q.Used != 700 {
		t.Errorf("quota %+v", q)
	}
}

package metatest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

// positions and places are of events, in order.
func positions(list []meta.Event) (at, place []int64) {
	for _, e := range list {
		at, place = append(at, e.Position), append(place, e.Place)
	}
	return at, place
}

func (f *fixture) page(q meta.EventQuery) meta.EventPage {
	f.Helper()
	page, err := f.EventPage(f.ctx, q)
	if err != nil {
		f.Fatal(err)
	}
	return page
}

func testEventPages(t *testing.T, open Open) {
	f := setUp(t, open)
	a, b := f.newRepo("a"), f.newRepo("b")
	other := f.newOrg("beta")
	if got := f.page(meta.EventQuery{Org: f.org, Limit: 10}); len(got.Events) != 0 || got.Floor != 0 {
		t.Errorf("page of none: %+v", got)
	}
	if at := must(f.PlaceAt(f.ctx, f.org, a, math.MaxInt64))(t); at != 0 {
		t.Errorf("place %d of none", at)
	}
	f.event(a, "1")
	f.event(b, "2")
	f.apply(meta.Change{Repo: a, Events: []meta.Event{{Type: "push", Body: []byte("3")}, {Type: "push", Body: []byte("4")}}})
	f.apply(meta.Change{Org: other, Events: []meta.Event{{Type: "org"}}})
	f.event(b, "5")
	f.event(a, "6")
	all := must(f.Events(f.ctx, f.org, 0, 10))(t)
	got := f.page(meta.EventQuery{Org: f.org, Limit: 10})
	if fmt.Sprintf("%+v", got.Events) != fmt.Sprintf("%+v", all) || len(all) != 6 {
		t.Errorf("page of the org %+v, want %+v", got.Events, all)
	}
	if got := f.page(meta.EventQuery{Org: f.org, After: all[1].Position, Limit: 2}); len(got.Events) != 2 || string(got.Events[0].Body) != "3" {
		t.Errorf("second page %+v", got)
	}
	own := f.page(meta.EventQuery{Org: f.org, Repo: a, Limit: 10}).Events
	if len(own) != 4 || string(own[1].Body) != "3" || string(own[3].Body) != "6" {
		t.Fatalf("of one repository %+v", own)
	}
	_, places := positions(own)
	if !slices.IsSorted(places) || len(slices.Compact(slices.Clone(places))) != 4 {
		t.Errorf("places %v", places)
	}
	for i, e := range own {
		version, n := meta.SplitPlace(e.Place)
		if want := []int{0, 0, 1, 0}[i]; version != e.Version || n != want || meta.PlaceOf(version, n) != e.Place {
			t.Errorf("event %d of version %d has place %d, %d", i, e.Version, version, n)
		}
	}
	rest := f.page(meta.EventQuery{Org: f.org, Repo: a, After: places[1], Limit: 1})
	if len(rest.Events) != 1 || rest.Events[0].Place != places[2] {
		t.Errorf("after the second: %+v", rest)
	}
	if got := f.page(meta.EventQuery{Org: other, Repo: a, Limit: 10}); len(got.Events) != 0 {
		t.Errorf("another org reads %+v", got)
	}
	for i, e := range own {
		for at, want := range map[int64]int64{e.Position: e.Place, e.Position - 1: append([]int64{0}, places...)[i]} {
			if got := must(f.PlaceAt(f.ctx, f.org, a, at))(t); got != want {
				t.Errorf("place at %d is %d, want %d", at, got, want)
			}
		}
	}
}

func testPruneEvents(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	a, b := f.newRepo("a"), f.newRepo("b")
	for i := range 6 {
		f.event([]meta.RepoID{a, b}[i%2], fmt.Sprint(i))
		clock.advance(time.Hour)
	}
	all := must(f.Events(f.ctx, f.org, 0, 10))(t)
	at, places := positions(all)
	prune := func(before time.Time, after int64, limit int, want meta.Pruned) {
		t.Helper()
		if got := must(f.PruneEvents(f.ctx, before, after, limit))(t); got != want {
			t.Errorf("pruned %+v, want %+v", got, want)
		}
	}
	left := func(want ...int) {
		t.Helper()
		var bodies []int
		for _, e := range must(f.Events(f.ctx, f.org, 0, 10))(t) {
			bodies = append(bodies, int(e.Body[0]-'0'))
		}
		if !slices.Equal(bodies, want) {
			t.Errorf("events %v are left, want %v", bodies, want)
		}
	}
	floors := func(org, ofA, ofB int64) {
		t.Helper()
		for repo, want := range map[meta.RepoID]int64{0: org, a: ofA, b: ofB} {
			if got := f.page(meta.EventQuery{Org: f.org, Repo: repo, Limit: 10}).Floor; got != want {
				t.Errorf("floor of %d is %d, want %d", repo, got, want)
			}
		}
	}
	prune(all[0].At, 0, 10, meta.Pruned{Done: true})
	left(0, 1, 2, 3, 4, 5)
	prune(clock.now(), 0, 2, meta.Pruned{Events: 2, Next: at[1]})
	left(2, 3, 4, 5)
	floors(at[1], places[0], places[1])

	// An endpoint that is to get them keeps what is its own; one that is disabled
	// keeps none.
	hook := f.newWebhook(meta.Webhook{URL: "https://b.example/", Repo: b, Position: at[1], Enabled: true})
	off := f.newWebhook(meta.Webhook{URL: "https://c.example/", Position: at[1]})
	lease := must(f.LeaseWebhook(f.ctx, hook, "one", time.Hour))(t)
	waiting := meta.Delivery{Position: at[3], Type: "push", State: meta.DeliveryWaiting, Attempts: 1, At: clock.now(), Next: clock.now()}
	progress := meta.DeliveryProgress{Webhook: hook, Fence: lease.Fence, Position: at[2], Deliveries: []meta.Delivery{waiting}}
	if err := f.SaveDeliveries(f.ctx, progress); err != nil {
		t.Fatal(err)
	}
	prune(clock.now(), 0, 10, meta.Pruned{Events: 2, Next: at[4], Done: true})
	left(3, 5)
	floors(at[4], places[4], places[1])
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: hook, Repo: b, Limit: 10}))(t); len(list) != 1 || list[0].Place != places[3] {
		t.Errorf("deliveries %+v", list)
	}
	done := waiting
	done.State = meta.DeliveryDelivered
	progress.Position, progress.Deliveries = at[3], []meta.Delivery{done}
	if err := f.SaveDeliveries(f.ctx, progress); err != nil {
		t.Fatal(err)
	}
	prune(clock.now(), 0, 10, meta.Pruned{Events: 1, Next: at[3], Done: true})
	left(5) // the newest of all stays, so that positions go on
	floors(at[4], places[4], places[3])
	for _, id := range []meta.WebhookID{hook, off} {
		if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 10}))(t); len(list) != 0 {
			t.Errorf("deliveries %+v of what is gone", list)
		}
	}
	if last := must(f.LastEvent(f.ctx))(t); last != at[5] {
		t.Errorf("last event %d, want %d", last, at[5])
	}
	if place := must(f.PlaceAt(f.ctx, f.org, a, math.MaxInt64))(t); place != places[4] {
		t.Errorf("last place %d, want the floor %d", place, places[4])
	}
	f.apply(meta.Change{Repo: a, DeleteRepo: true, PurgeRepo: true})
	if got := f.page(meta.EventQuery{Org: f.org, Repo: a, Limit: 1}).Floor; got != 0 {
		t.Errorf("a purged repository has floor %d", got)
	}
}

func testWebhooksOfRepos(t *testing.T, open Open) {
	f := setUpAt(t, open, newManualClock().now)
	a, b := f.newRepo("a"), f.newRepo("b")
	whole := f.newWebhook(meta.Webhook{URL: "https://w.example/", Enabled: true})
	ofA := f.newWebhook(meta.Webhook{URL: "https://a.example/", Repo: a, Enabled: true})
	ofB := f.newWebhook(meta.Webhook{URL: "https://b.example/", Repo: b, Enabled: true})
	for want, q := range map[string]meta.WebhookQuery{
		fmt.Sprint(whole, ofA, ofB): {Limit: 10},
		fmt.Sprint(whole):           {Whole: true, Limit: 10},
		fmt.Sprint(ofB):             {Repo: b, Limit: 10},
		fmt.Sprint(ofA):             {After: whole, Limit: 1},
	} {
		q.Org = f.org
		var ids []any
		for _, w := range must(f.Webhooks(f.ctx, q))(t) {
			ids = append(ids, w.ID)
		}
		if got := fmt.Sprint(ids...); got != want {
			t.Errorf("%+v gives %s, want %s", q, got, want)
		}
	}
	due := func(want ...meta.WebhookID) {
		t.Helper()
		if got := must(f.DueWebhooks(f.ctx, 10))(t); !slices.Equal(got, want) {
			t.Errorf("due %v, want %v", got, want)
		}
	}
	f.event(a, "1")
	due(whole, ofA)
	f.event(b, "2")
	due(whole, ofA, ofB)
	at, _ := positions(must(f.Events(f.ctx, f.org, 0, 10))(t))
	save := func(id meta.WebhookID, position int64) {
		t.Helper()
		lease := must(f.LeaseWebhook(f.ctx, id, "one", time.Hour))(t)
		if err := f.SaveDeliveries(f.ctx, meta.DeliveryProgress{Webhook: id, Fence: lease.Fence, Position: position, Release: true}); err != nil {
			t.Fatal(err)
		}
	}
	position := func(id meta.WebhookID, want int64) {
		t.Helper()
		if w := must(f.Webhook(f.ctx, f.org, id))(t); w.Position != want {
			t.Errorf("position %d, want %d", w.Position, want)
		}
	}
	save(ofA, at[0])
	due(whole, ofB)
	save(ofA, 0)
	position(ofA, at[0]) // it never goes back

	// Made wider, an endpoint goes on with the first event that it was to get, or
	// with what happens next.
	for id, want := range map[meta.WebhookID]int64{ofA: at[1], ofB: at[1] - 1} {
		w := must(f.Webhook(f.ctx, f.org, id))(t)
		w.Repo = 0
		f.apply(meta.Change{UpdateWebhook: &w})
		position(id, want)
	}
	deliveries := []meta.Delivery{{Position: at[0], Type: "push"}, {Position: at[1], Type: "push"}}
	lease := must(f.LeaseWebhook(f.ctx, whole, "one", time.Hour))(t)
	if err := f.SaveDeliveries(f.ctx, meta.DeliveryProgress{Webhook: whole, Fence: lease.Fence, Deliveries: deliveries}); err != nil {
		t.Fatal(err)
	}
	for repo, want := range map[meta.RepoID]int{0: 2, a: 1, b: 1} {
		if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: whole, Repo: repo, Limit: 10}))(t); len(list) != want {
			t.Errorf("deliveries of repository %d: %+v", repo, list)
		}
	}
	one := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: whole, Repo: b, Limit: 10}))(t)[0]
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: whole, Repo: b, Before: one.Place, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("before the first: %+v", list)
	}
}

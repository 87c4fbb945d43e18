package metatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func (f *fixture) newWebhook(w meta.Webhook) meta.WebhookID {
	f.Helper()
	w.ID = meta.WebhookID(newID())
	f.apply(meta.Change{CreateWebhook: &w})
	return w.ID
}

func (f *fixture) event(repo meta.RepoID, body string) {
	f.Helper()
	f.apply(meta.Change{Repo: repo, Events: []meta.Event{{Type: "push", Body: []byte(body)}}})
}

func testWebhooks(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	r := f.newRepo("r")
	f.event(r, "1")
	last := must(f.LastEvent(f.ctx))(t)
	a := f.newWebhook(meta.Webhook{URL: "https://a.example/", Secret: []byte{0, 's'}, Enabled: true})
	b := f.newWebhook(meta.Webhook{URL: "https://b.example/", Repo: r, Events: []string{"push", "x"}, MuteEphemeral: true, Enabled: true})
	other := f.newOrg("beta")
	if _, err := f.Webhook(f.ctx, other, a); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("of another org: %v", err)
	}
	if list := must(f.Webhooks(f.ctx, meta.WebhookQuery{Org: other, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("endpoints of another org: %+v", list)
	}
	list := must(f.Webhooks(f.ctx, meta.WebhookQuery{Org: f.org, Limit: 10}))(t)
	if len(list) != 2 || list[0].ID != a || list[1].ID != b {
		t.Fatalf("endpoints %+v", list)
	}
	if w := list[0]; w.Org != f.org || w.URL != "https://a.example/" || string(w.Secret) != "\x00s" || w.Events != nil || w.MuteEphemeral ||
		!w.Enabled || w.Position != last || !w.CreatedAt.Equal(clock.now()) || !w.FailingSince.IsZero() {
		t.Errorf("endpoint %+v", w)
	}
	if w := list[1]; w.Repo != r || !slices.Equal(w.Events, []string{"push", "x"}) || !w.MuteEphemeral {
		t.Errorf("endpoint %+v", w)
	}
	if orgs := must(f.WebhookOrgs(f.ctx))(t); !slices.Equal(orgs, []meta.OrgID{f.org}) {
		t.Errorf("orgs %v", orgs)
	}

	change := list[0]
	change.URL, change.Secret, change.Enabled, change.Events, change.Org = "https://c.example/", nil, false, []string{"push"}, 0
	clock.advance(time.Second)
	f.apply(meta.Change{UpdateWebhook: &change})
	w := must(f.Webhook(f.ctx, f.org, a))(t)
	if w.URL != change.URL || string(w.Secret) != "\x00s" || w.Enabled || !w.UpdatedAt.Equal(clock.now()) || w.CreatedAt.Equal(clock.now()) {
		t.Errorf("after the update %+v", w)
	}
	change.Secret, change.Enabled = []byte("new"), true
	f.apply(meta.Change{Org: other, UpdateWebhook: &change})
	if w := must(f.Webhook(f.ctx, f.org, a))(t); w.Enabled {
		t.Error("another org changed an endpoint")
	}
	f.apply(meta.Change{UpdateWebhook: &change})
	if w := must(f.Webhook(f.ctx, f.org, a))(t); !w.Enabled || string(w.Secret) != "new" {
		t.Errorf("after the second update %+v", w)
	}
	for _, seal := range [][2]string{{"old", "wrong"}, {"new", "sealed"}, {"new", "wrong"}} {
		if err := f.SealWebhook(f.ctx, a, []byte(seal[0]), []byte(seal[1])); err != nil {
			t.Fatal(err)
		}
	}
	if w := must(f.Webhook(f.ctx, f.org, a))(t); string(w.Secret) != "sealed" || !w.Enabled {
		t.Errorf("after sealing %+v", w)
	}
	f.apply(meta.Change{Org: other, DeleteWebhook: a})
	must(f.Webhook(f.ctx, f.org, a))(t)
	f.apply(meta.Change{DeleteWebhook: a})
	if _, err := f.Webhook(f.ctx, f.org, a); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	f.apply(meta.Change{Repo: r, DeleteRepo: true, PurgeRepo: true})
	if _, err := f.Webhook(f.ctx, f.org, b); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("of a purged repository: %v", err)
	}
	c := f.newWebhook(meta.Webhook{URL: "https://c.example/", Enabled: true})
	f.apply(meta.Change{DeleteOrg: true})
	if _, err := f.Webhook(f.ctx, f.org, c); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("of a deleted org: %v", err)
	}
}

func testWebhookLease(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	r := f.newRepo("r")
	id := f.newWebhook(meta.Webhook{URL: "https://a.example/", Enabled: true})
	due := func(want ...meta.WebhookID) {
		t.Helper()
		if got := must(f.DueWebhooks(f.ctx, 10))(t); !slices.Equal(got, want) {
			t.Errorf("due %v, want %v", got, want)
		}
	}
	due()
	f.event(r, "1")
	due(id)
	first := must(f.LeaseWebhook(f.ctx, id, "one", time.Minute))(t)
	if first.Webhook.URL != "https://a.example/" || first.Webhook.ID != id {
		t.Errorf("lease %+v", first)
	}
	due()
	if _, err := f.LeaseWebhook(f.ctx, id, "two", time.Minute); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("a second owner: %v", err)
	}
	clock.advance(30 * time.Second)
	if again := must(f.LeaseWebhook(f.ctx, id, "one", time.Minute))(t); again.Fence != first.Fence {
		t.Errorf("fence %d after renewal of %d", again.Fence, first.Fence)
	}
	clock.advance(40 * time.Second)
	due()
	clock.advance(30 * time.Second)
	due(id)
	second := must(f.LeaseWebhook(f.ctx, id, "two", time.Minute))(t)
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	events := must(f.Events(f.ctx, f.org, 0, 10))(t)
	at := events[0].Position
	stale := meta.DeliveryProgress{Webhook: id, Fence: first.Fence, Position: at, Deliveries: []meta.Delivery{{Position: at, Type: "push"}}}
	if err := f.SaveDeliveries(f.ctx, stale); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("a stale fence: %v", err)
	}
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 10}))(t); len(list) != 0 {
		t.Errorf("a stale fence wrote %+v", list)
	}
	save := stale
	save.Fence, save.FailingSince, save.Release = second.Fence, clock.now(), true
	if err := f.SaveDeliveries(f.ctx, save); err != nil {
		t.Fatal(err)
	}
	due()
	if w := must(f.Webhook(f.ctx, f.org, id))(t); w.Position != at || !w.FailingSince.Equal(clock.now()) {
		t.Errorf("after saving %+v", w)
	}
	third := must(f.LeaseWebhook(f.ctx, id, "one", time.Minute))(t)
	if third.Fence <= second.Fence {
		t.Errorf("fence %d after release of %d", third.Fence, second.Fence)
	}
	f.event(r, "2")
	off := meta.DeliveryProgress{Webhook: id, Fence: third.Fence, Position: at, FailingSince: clock.now(), Disable: "why", Release: true}
	if err := f.SaveDeliveries(f.ctx, off); err != nil {
		t.Fatal(err)
	}
	due()
	if _, err := f.LeaseWebhook(f.ctx, id, "one", time.Minute); !errors.Is(err, meta.ErrNotFound) {
		t.Errorf("lease of a disabled endpoint: %v", err)
	}
	w := must(f.Webhook(f.ctx, f.org, id))(t)
	if w.Enabled || w.Reason != "why" {
		t.Errorf("disabled %+v", w)
	}
	w.Enabled, w.Reason = true, ""
	f.apply(meta.Change{UpdateWebhook: &w})
	if w := must(f.Webhook(f.ctx, f.org, id))(t); !w.FailingSince.IsZero() || !w.Enabled || w.Position != at {
		t.Errorf("enabled again %+v", w)
	}
	due(id)
}

func testDeliveries(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	id := f.newWebhook(meta.Webhook{URL: "https://a.example/", Enabled: true})
	lease := must(f.LeaseWebhook(f.ctx, id, "one", time.Minute))(t)
	position := int64(0)
	save := func(list ...meta.Delivery) {
		t.Helper()
		p := meta.DeliveryProgress{Webhook: id, Fence: lease.Fence, Position: position, Deliveries: list}
		if err := f.SaveDeliveries(f.ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	want := meta.Delivery{
		Position: 1, Type: "push", State: meta.DeliveryWaiting, Attempts: 3, Status: 500, Error: "status 500",
		At: clock.now(), Next: clock.now().Add(time.Minute),
	}
	save(want, meta.Delivery{Position: 2, Type: "x", State: meta.DeliveryDelivered, Attempts: 1, Status: 204, At: clock.now()})
	list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 10}))(t)
	if len(list) != 2 || list[0].Position != 2 || list[1] != want {
		t.Errorf("deliveries %+v", list)
	}
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, After: 1, Limit: 10}))(t); len(list) != 1 || list[0].Position != 2 {
		t.Errorf("after the first %+v", list)
	}
	var many []meta.Delivery
	for i := range meta.KeptDeliveries + 50 {
		many = append(many, meta.Delivery{Position: int64(10 + i), Type: fmt.Sprint(i), State: meta.DeliveryFailed})
	}
	save(many...)
	list = must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 1000}))(t)
	if len(list) != meta.KeptDeliveries+52 {
		t.Errorf("%d deliveries after the position are kept", len(list))
	}
	position = many[len(many)-1].Position
	save(many[len(many)-1])
	list = must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 1000}))(t)
	if len(list) != meta.KeptDeliveries || list[0].Position != position {
		t.Errorf("%d deliveries are kept, the last %+v", len(list), list[len(list)-1])
	}
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Before: list[3].Position, Limit: 2}))(t); len(list) != 2 || list[0].Position != many[len(many)-5].Position {
		t.Errorf("page %+v", list)
	}
	again := list[0]
	again.State, again.Attempts = meta.DeliveryDelivered, 4
	save(again)
	if list := must(f.Deliveries(f.ctx, meta.DeliveryQuery{Webhook: id, Limit: 1}))(t); list[0] != again {
		t.Errorf("saved again %+v, want %+v", list[0], again)
	}
}

func testEventOrgs(t *testing.T, open Open) {
	f := setUp(t, open)
	if last := must(f.LastEvent(f.ctx))(t); last != 0 {
		t.Errorf("last event %d of none", last)
	}
	if orgs, last, err := f.EventOrgs(f.ctx, 0); err != nil || len(orgs) != 0 || last != 0 {
		t.Errorf("%v, %d, %v of none", orgs, last, err)
	}
	other := f.newOrg("beta")
	f.event(f.newRepo("r"), "1")
	f.apply(meta.Change{Org: other, Events: []meta.Event{{Type: "x"}, {Type: "y"}}})
	last := must(f.LastEvent(f.ctx))(t)
	orgs, at, err := f.EventOrgs(f.ctx, 0)
	if err != nil || at != last || len(orgs) != 2 || !slices.Contains(orgs, f.org) || !slices.Contains(orgs, other) {
		t.Errorf("%v, %d, %v", orgs, at, err)
	}
	if orgs, at, err := f.EventOrgs(f.ctx, last-1); err != nil || at != last || !slices.Equal(orgs, []meta.OrgID{other}) {
		t.Errorf("%v, %d, %v", orgs, at, err)
	}
	if orgs, at, err := f.EventOrgs(f.ctx, last); err != nil || at != last || len(orgs) != 0 {
		t.Errorf("%v, %d, %v", orgs, at, err)
	}
}

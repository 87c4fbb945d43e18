package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
)

// TestEndpointOfOneRepository: an endpoint that is for one repository gets that
// repository's events, under ids that tell nothing of others, is not woken by
// them, and gets the rest once it is for the org.
func TestEndpointOfOneRepository(t *testing.T) {
	for engine := range engines {
		t.Run(engine, func(t *testing.T) {
			w := newWorld(t, engine)
			other := meta.RepoID(meta.NewID(time.Now()))
			w.apply(meta.Change{Repo: other, CreateRepo: &meta.Repo{Name: "other", DefaultBranch: "main"}})
			elsewhere := func() {
				w.apply(meta.Change{Repo: other, Events: []meta.Event{events.Push{Ref: "refs/heads/other", After: "elsewhere"}.Event()}})
			}
			var mu sync.Mutex
			var ids []string
			r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, req.Header.Get("X-Cairn-Event-Id"))
			}))
			t.Cleanup(r.Close)
			received := func(n int) func() bool {
				return func() bool { mu.Lock(); defer mu.Unlock(); return len(ids) >= n }
			}
			hook := w.endpoint(Spec{URL: r.URL, Repo: w.repo})
			d, _ := w.start("one", Config{Lease: time.Second})
			var want []string
			for i := range 10 {
				elsewhere()
				w.push(fmt.Sprintf("refs/heads/b%d", i%2))
				place, err := w.feed.PlaceAt(t.Context(), w.org, w.repo, 1<<62)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, events.At(w.repo, place))
			}
			w.eventually("ten deliveries", received(10))
			mu.Lock()
			slices.Sort(ids)
			slices.Sort(want)
			if !slices.Equal(ids, want) {
				t.Errorf("received %v, want %v", ids, want)
			}
			mu.Unlock()
			list, err := w.feed.Deliveries(t.Context(), meta.DeliveryQuery{Webhook: hook.ID, Limit: 50})
			w.eventually("ten recorded", func() bool {
				list, err = w.feed.Deliveries(t.Context(), meta.DeliveryQuery{Webhook: hook.ID, Limit: 50})
				return err == nil && len(list) == 10
			})
			now, err := w.endpoints.Get(t.Context(), w.org, hook.ID)
			if last, err2 := w.endpoints.LastEvent(t.Context(), now); err != nil || err2 != nil || last != events.At(w.repo, list[0].Place) {
				t.Errorf("last event %q, %v %v", last, err, err2)
			}
			if out, err := w.redeliver(now, want[0]); err != nil || !out.Delivered {
				t.Errorf("redelivery %+v, %v", out, err)
			}
			for _, id := range []string{events.At(0, list[0].Position), events.At(other, list[0].Place)} {
				if _, err := w.redeliver(now, id); !isA[*NotFoundError](err) {
					t.Errorf("redelivery of %q: %v", id, err)
				}
			}

			// It holds its lease while it is idle, so that this reaches a worker that runs.
			spec := SpecOf(now)
			spec.Repo = 0
			if _, err := w.endpoints.Update(t.Context(), meta.Change{Org: w.org}, hook.ID, spec); err != nil {
				t.Fatal(err)
			}
			w.eventually("the events of the other repository", func() bool {
				before := d.Figures().Attempts
				elsewhere()
				for range 200 {
					if d.Figures().Attempts > before {
						return true
					}
					time.Sleep(5 * time.Millisecond)
				}
				return false
			})
			w.eventually("all settled", func() bool { return w.settled(hook.ID) })
		})
	}
}

// TestRoomOfRepositories: what one repository has takes no room from another.
func TestRoomOfRepositories(t *testing.T) {
	w := newWorld(t, "sqlite")
	other := meta.RepoID(meta.NewID(time.Now()))
	w.apply(meta.Change{Repo: other, CreateRepo: &meta.Repo{Name: "other", DefaultBranch: "main"}})
	for range MaxPerRepo {
		w.endpoint(Spec{URL: "https://hooks.example.com/", Repo: w.repo})
	}
	if _, _, err := w.endpoints.Create(t.Context(), meta.Change{Org: w.org}, Spec{URL: "https://hooks.example.com/", Repo: w.repo}); !isA[*InvalidError](err) {
		t.Errorf("one too many: %v", err)
	}
	free := w.endpoint(Spec{URL: "https://hooks.example.com/", Repo: other})
	w.endpoint(Spec{URL: "https://hooks.example.com/"})
	spec := SpecOf(free)
	spec.Repo = w.repo
	if _, err := w.endpoints.Update(t.Context(), meta.Change{Org: w.org}, free.ID, spec); !isA[*InvalidError](err) {
		t.Errorf("moved to where no room is: %v", err)
	}
	seen := 0
	if err := w.endpoints.Each(t.Context(), w.org, func(meta.Webhook) error { seen++; return nil }); err != nil || seen != MaxPerRepo+2 {
		t.Errorf("%d endpoints, %v", seen, err)
	}
}

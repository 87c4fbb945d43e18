package upstream

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// told is one event of a sync.
type told struct {
	kind string
	body map[string]any
}

// events returns the events of the syncs of a repository, "" for all.
func (w *world) events(repo string) []told {
	w.Helper()
	token := w.cairn.Token(harness.Grant{Scopes: []auth.Scope{auth.OrgRead}})
	var list []told
	for after := ""; ; {
		path := "/api/events?limit=1000" + after
		if repo != "" {
			path += "&repo=" + repo
		}
		a, err := w.cairn.Do(w.client, "GET", path, token, "", nil)
		if err != nil || a.Status != http.StatusOK {
			w.Fatalf("%v %d %s", err, a.Status, a.Body)
		}
		for _, e := range a.JSON("events").([]any) {
			e := e.(map[string]any)
			if kind := e["type"].(string); strings.HasPrefix(kind, "repo.sync.") {
				list = append(list, told{kind, e["payload"].(map[string]any)})
			}
		}
		if more, ok := a.JSON("has_more").(bool); !ok || !more {
			return list
		}
		after = "&after=" + a.Text("next_after")
	}
}

// TestSyncEvents: each run is told when it begins and how it ends, in the form
// that clients parse.
func TestSyncEvents(t *testing.T) {
	w := newWorld(t, harness.Options{})
	tip := w.commit("trunk", "", "a", "1")
	w.front(always(http.NotFound))
	w.follow("m")
	w.failed("m")
	w.front(nil)
	w.pull("m")
	w.synced("m", "refs/heads/trunk "+tip)
	if a, err := w.cairn.Commit(w.client, harness.Commit{Repo: "m", Branch: "trunk", Base: "trunk", Files: map[string]string{"here": "1"}}); err != nil || a.Status != http.StatusCreated {
		t.Fatalf("%v %d %s", err, a.Status, a.Body)
	}
	w.commit("trunk", tip, "a", "2")
	w.pull("m")
	w.until("six events", func() bool { return len(w.events("m")) == 6 })
	list := w.events("m")
	id, _ := list[0].body["repository"].(map[string]any)["id"].(string)
	if a, err := w.cairn.Do(w.client, "GET", "/api/repo-urls/"+id, w.cairn.Token(harness.Grant{Scopes: everything}), "", nil); err != nil || a.Status != http.StatusOK || !strings.Contains(string(a.Body), "/m.git") {
		t.Errorf("repository %q: %v %d %s", id, err, a.Status, a.Body)
	}
	for i, e := range list {
		run := i/2 + 1
		want := map[string]any{
			"type": e.kind, "repository": fmt.Sprint(map[string]any{"id": id, "url": "m", "repo_name": "m"}),
			"run_count": float64(run), "is_first_sync": run < 3, "started_at": e.body["started_at"],
		}
		kind := "repo.sync.started"
		switch {
		case i == 1:
			kind = "repo.sync.failed"
			want["error"] = "the upstream repository is not found, or the credential does not reach it"
		case i%2 == 1:
			kind = "repo.sync.succeeded"
		}
		if i%2 == 1 {
			want["completed_at"] = e.body["completed_at"]
			if e.body["started_at"] != list[i-1].body["started_at"] {
				t.Errorf("event %d: started at %v", i, e.body["started_at"])
			}
		}
		if i == 5 {
			want["kept_refs_count"], want["kept_refs"] = 1.0, e.body["kept_refs"]
			kept, ok := e.body["kept_refs"].([]any)
			if !ok || len(kept) != 1 || kept[0].(map[string]any)["ref"] != "refs/heads/trunk" || kept[0].(map[string]any)["reason"] == "" {
				t.Errorf("kept %v", e.body["kept_refs"])
			}
		}
		if e.kind != kind {
			t.Errorf("event %d is %s, want %s", i, e.kind, kind)
		}
		got := maps.Clone(e.body)
		got["repository"] = fmt.Sprint(got["repository"])
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("event %d:\n got %v\nwant %v", i, got, want)
		}
		for _, name := range []string{"started_at", "completed_at"} {
			if text, ok := e.body[name].(string); ok {
				if at, err := time.Parse(time.RFC3339, text); err != nil || time.Since(at).Abs() > time.Hour {
					t.Errorf("event %d: %s %q", i, name, text)
				}
			}
		}
	}
	if got := w.figures(w.cairn); got["started"] != 3 || got["succeeded"] != 2 || got["failed"] != 1 {
		t.Errorf("figures %v", got)
	}
}

// figures reads what a server counts of syncs.
func (w *world) figures(s *harness.Server) map[string]int {
	w.Helper()
	a, err := s.Do(w.client, "GET", "/metrics", "", "", nil)
	if err != nil || a.Status != http.StatusOK {
		w.Fatalf("%v %d", err, a.Status)
	}
	found := make(map[string]int)
	for line := range strings.Lines(string(a.Body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind, ok := strings.CutPrefix(name, "cairn_syncs_"); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				w.Fatal(err)
			}
			found[strings.TrimSuffix(kind, "_total")] = n
		}
	}
	return found
}

// TestTwoNodes: of two servers on one database each runs syncs, never both one
// of a repository, and one takes over what the other leaves when it dies.
func TestTwoNodes(t *testing.T) {
	w := newWorld(t, harness.OnPostgresAndS3(t, harness.Options{}))
	tip := w.commit("trunk", "", "a", strings.Repeat("x\n", 10_000))
	nodes := []*harness.Server{w.cairn, w.cairn.Beside(t)}
	var repos []string
	for i := range 5 {
		repos = append(repos, fmt.Sprintf("m%d", i))
		w.follow(repos[i])
	}
	for _, repo := range repos {
		w.synced(repo, "refs/heads/trunk "+tip)
	}
	for round := range 4 {
		tip = w.commit("trunk", tip, "a", fmt.Sprint(round))
		var asking sync.WaitGroup
		for _, repo := range repos {
			for _, node := range nodes {
				asking.Go(func() {
					token := node.Token(harness.Grant{Repo: repo, Scopes: everything})
					a, err := node.Do(w.client, "POST", harness.RepoPath(repo)+"/pull-upstream", token, "", nil)
					if err != nil || a.Status != http.StatusAccepted {
						t.Errorf("%v %d %s", err, a.Status, a.Body)
					}
				})
			}
		}
		asking.Wait()
		for _, repo := range repos {
			w.synced(repo, "refs/heads/trunk "+tip)
		}
	}
	w.until("all syncs ended", func() bool {
		return slices.IndexFunc(repos, func(repo string) bool { s, _, _ := w.status(repo); return s != "synced" }) < 0
	})
	began := 0
	for _, repo := range repos {
		for i, e := range w.events(repo) {
			if want := []string{"repo.sync.started", "repo.sync.succeeded"}[i%2]; e.kind != want || e.body["run_count"] != float64(i/2+1) {
				t.Errorf("%s: event %d is %s of run %v", repo, i, e.kind, e.body["run_count"])
			}
			began += (i + 1) % 2
		}
	}
	first, second := w.figures(nodes[0]), w.figures(nodes[1])
	if first["started"]+second["started"] != began || first["succeeded"]+second["succeeded"] != began || first["started"] == 0 || second["started"] == 0 {
		t.Errorf("%d syncs began; %v and %v", began, first, second)
	}

	// The node that holds a sync dies; the other one ends it.
	hold := make(chan struct{})
	begun := make(chan struct{}, 1)
	w.front(func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			select {
			case begun <- struct{}{}:
			default:
			}
			select {
			case <-hold:
				pass.ServeHTTP(rw, r)
			case <-r.Context().Done():
			case <-time.After(settled):
			}
		})
	})
	tip = w.commit("trunk", tip, "a", "last")
	before := w.figures(nodes[0])["started"]
	w.pull("m0")
	<-begun
	holder, other := 1, 0
	if w.figures(nodes[0])["started"] > before {
		holder, other = 0, 1
	}
	nodes[holder].Kill()
	close(hold)
	w.cairn = nodes[other]
	w.synced("m0", "refs/heads/trunk "+tip)
}

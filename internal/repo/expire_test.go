package repo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
)

// TestUndeleteWindow: a repository comes back whole within the window, after it
// holds nothing but its name.
func TestUndeleteWindow(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		ctx := context.Background()
		later := time.Duration(0)
		w.engine.cfg.Clock = func() time.Time { return time.Now().Add(later) }
		r := w.create("app")
		c := w.commit(r.ID, "one", map[string]string{"f": "1"})
		remove := func() meta.Repo {
			t.Helper()
			row, err := w.engine.row(ctx, r.ID)
			if err == nil {
				err = w.engine.Delete(ctx, w.writer, row)
			}
			if err != nil {
				t.Fatal(err)
			}
			row, err = w.meta.Repo(ctx, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			return row
		}
		deleted := remove()
		later = DefaultUndeleteWindow - time.Minute
		if res, err := w.engine.Expire(ctx); err != nil || res != (ExpireResult{}) {
			t.Fatalf("expired %+v, %v", res, err)
		}
		if err := w.engine.Undelete(ctx, w.writer, deleted); err != nil {
			t.Fatal(err)
		}
		if w.ref(r.ID, "refs/heads/main") != c {
			t.Error("the branch did not come back")
		}
		w.fsck(r.ID)
		var lives *NotDeletedError
		if err := w.engine.Undelete(ctx, w.writer, deleted); !errors.As(err, &lives) {
			t.Errorf("a repository that lives: %v", err)
		}
		deleted = remove()
		later = DefaultUndeleteWindow + time.Minute
		var over *WindowError
		if err := w.engine.Undelete(ctx, w.writer, deleted); !errors.As(err, &over) {
			t.Errorf("after the window: %v", err)
		}
		if res, err := w.engine.Expire(ctx); err != nil || res.Repositories != 1 {
			t.Fatalf("expired %+v, %v", res, err)
		}
		u, err := w.meta.Usage(ctx, w.org, 0)
		if err != nil || u.Bytes != 0 || u.Packs != 0 || u.DeletedRepos != 0 {
			t.Errorf("left %+v, %v", u, err)
		}
		later = 0
		deleted, err = w.meta.Repo(ctx, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.engine.Undelete(ctx, w.writer, deleted); !errors.As(err, &over) {
			t.Errorf("an emptied repository: %v", err)
		}
		var exists *ExistsError
		if _, err := w.engine.Create(ctx, w.writer, CreateRequest{Name: "app"}); !errors.As(err, &exists) || !exists.Deleted {
			t.Errorf("the name of an emptied repository: %v", err)
		}
	})
}

// TestEphemeralAge: branches that nobody updates go, with an event each; others,
// protected ones and those of repositories that keep them stay.
func TestEphemeralAge(t *testing.T) {
	w := newWorld(t, options{})
	ctx := context.Background()
	later := time.Duration(0)
	w.engine.cfg.Clock = func() time.Time { return time.Now().Add(later) }
	r, kept := w.create("app"), w.create("kept")
	const prefix = "refs/namespaces/ephemeral/refs/heads/"
	for _, id := range []meta.RepoID{r.ID, kept.ID} {
		c := w.commit(id, "one", map[string]string{"f": "1"})
		for i := range 130 {
			_, err := w.engine.Update(ctx, w.writer, w.view(id), Update{Refs: []RefUpdate{{Name: fmt.Sprintf("%ss%03d", prefix, i), New: c}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if res, err := w.engine.Expire(ctx); err != nil || res != (ExpireResult{}) {
		t.Fatalf("nothing was asked for: %+v, %v", res, err)
	}
	week := 7 * 24 * time.Hour
	if v, err := w.meta.Apply(ctx, meta.Change{Org: w.org, SetEphemeralAge: &week}); err != nil || !v.Applied {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := w.engine.SetEphemeralAge(ctx, w.writer, kept, meta.NeverRetire); err != nil {
		t.Fatal(err)
	}
	rule, err := policy.NewProtection(prefix+"s007", []policy.Op{policy.NoDelete})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.SetProtections(ctx, w.writer, r, []policy.Protection{rule}); err != nil {
		t.Fatal(err)
	}
	later = week - time.Hour
	if res, err := w.engine.Expire(ctx); err != nil || res.Branches != 0 {
		t.Fatalf("too early: %+v, %v", res, err)
	}
	before, err := w.meta.LastEvent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	later = week + time.Hour
	if res, err := w.engine.Expire(ctx); err != nil || res.Branches != 129 {
		t.Fatalf("expired %+v, %v", res, err)
	}
	if after, err := w.meta.LastEvent(ctx); err != nil || after != before+129 {
		t.Errorf("%d events, %v", after-before, err)
	}
	count := func(id meta.RepoID) int {
		t.Helper()
		page, err := w.meta.Refs(ctx, meta.RefQuery{Repo: id, Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Refs)
	}
	if count(r.ID) != 1 || count(kept.ID) != 130 || w.ref(r.ID, "refs/heads/main").IsZero() {
		t.Errorf("%d and %d branches are left", count(r.ID), count(kept.ID))
	}
}

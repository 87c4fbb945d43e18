package metatest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
)

func testAudit(t *testing.T, open Open) {
	clock := newManualClock()
	f := setUpAt(t, open, clock.now)
	start := clock.now()
	a, b := f.newRepo("a"), f.newRepo("b")
	by := func(c meta.Change, subject string) {
		t.Helper()
		clock.advance(time.Second)
		c.Subject, c.Route, c.Agent = subject, "route of "+subject, "agent of "+subject
		f.apply(c)
	}
	by(move(a, "refs/heads/main", noID, oid(1)), "ann")
	by(meta.Change{PutKey: &meta.OrgKey{KID: "k", Fingerprint: "ff", PEM: "x"}}, "")
	two := move(b, "refs/heads/one", noID, oid(2))
	two.Refs = append(two.Refs, meta.RefWrite{Name: "refs/heads/two", New: oid(3)})
	by(two, "bob")
	by(meta.Change{Repo: a, SetProtections: &[]meta.Protection{{Pattern: "*", Ops: []string{"no-push"}}}}, "ann")
	f.refuse(move(a, "refs/heads/main", noID, oid(4)), meta.ConflictRef) // leaves no trace
	by(meta.Change{Repo: b, DeleteRepo: true}, "bob")
	f.apply(meta.Change{Org: f.newOrg("beta"), PutKey: &meta.OrgKey{KID: "k", Fingerprint: "ff", PEM: "x"}})

	show := func(q meta.AuditQuery) (lines []string) {
		t.Helper()
		q.Org = f.org
		for {
			page := must(f.Audit(f.ctx, q))(t)
			for _, e := range page {
				lines = append(lines, fmt.Sprintf("%s %s%s by %q", e.RepoName, e.Action, e.Ref, e.Subject))
				if e.Subject != "" && (e.Route != "route of "+e.Subject || e.Agent != "agent of "+e.Subject) || e.At.Before(start) {
					t.Errorf("entry %+v", e)
				}
				if e.Ref == "refs/heads/main" && (e.Old != noID || e.New != oid(1)) {
					t.Errorf("entry %+v", e)
				}
			}
			if len(page) < q.Limit {
				return lines
			}
			q.Before = &page[len(page)-1]
		}
	}
	all := []string{
		`b repo.delete by "bob"`, `a repo.protect by "ann"`, `b refrefs/heads/two by "bob"`, `b refrefs/heads/one by "bob"`,
		` key.add by ""`, `a refrefs/heads/main by "ann"`,
	}
	created := []string{` org.create by ""`, `a repo.create by ""`, `b repo.create by ""`} // at one time
	for _, limit := range []int{1, 2, 100} {
		got := show(meta.AuditQuery{Limit: limit})
		if n := len(all); len(got) != n+3 || !slices.Equal(got[:n], all) {
			t.Errorf("by pages of %d: %q", limit, got)
		} else if slices.Sort(got[n:]); !slices.Equal(got[n:], created) {
			t.Errorf("by pages of %d ends with %q", limit, got[n:])
		}
	}
	for name, tt := range map[string]struct {
		q    meta.AuditQuery
		want []string
	}{
		"repository": {meta.AuditQuery{Repo: a}, []string{all[1], all[5], created[1]}},
		"subject":    {meta.AuditQuery{Subject: "bob"}, []string{all[0], all[2], all[3]}},
		"since":      {meta.AuditQuery{Since: clock.now().Add(-time.Second)}, all[:2]},
		"all three":  {meta.AuditQuery{Repo: b, Subject: "bob", Since: clock.now()}, all[:1]},
		"nobody":     {meta.AuditQuery{Subject: "eve"}, nil},
	} {
		tt.q.Limit = 2
		if got := show(tt.q); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

package hostile_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

const sessionRef = "refs/namespaces/ephemeral/refs/heads/sessions/1"

// confinement lets a token do nothing but create or fast-forward one ephemeral
// branch.
var confinement = policy.List{{Pattern: sessionRef, Ops: []policy.Op{policy.NoForcePush}}, {Pattern: "*", Ops: []policy.Op{policy.NoPush}}}

// allRefs lists both namespaces.
func allRefs(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	token := s.Token(harness.Grant{Repo: name, Scopes: []auth.Scope{auth.GitRead}})
	var all strings.Builder
	for _, remote := range []string{"", "+ephemeral"} {
		a := fetch(t, s, name+remote, token, 2, pkt("command=ls-refs")+"0001"+pkt("symrefs")+"0000")
		if a.Status != http.StatusOK {
			t.Fatalf("list %s: %d %s", remote, a.Status, a.Body)
		}
		all.Write(a.Body)
		all.WriteByte('\n')
	}
	return all.String()
}

// TestHostileConfined tries to change anything but the one branch of a confined
// token, in every way and with every scope: nothing may move.
func TestHostileConfined(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	public := commit(publicTree.id())
	createPublic(t, s, "r", public)
	open := tokenOf(s, "r")
	second := commit(publicTree.id(), public.id())
	mustPush(t, s, "r", open, pack(second), command(zero, second.id(), "refs/heads/work"), command(zero, second.id(), "refs/tags/v1"), command(zero, second.id(), "refs/notes/commits"))
	token := s.Token(harness.Grant{Repo: "r", Scopes: allScopes, Policies: confinement})
	session := "refs/heads/sessions/1"
	mustPush(t, s, "r+ephemeral", token, pack(), command(zero, second.id(), session))
	before := allRefs(t, s, "r")

	side := commit(publicTree.id())
	side.data = append(bytes.Clone(side.data), "of another line\n"...)
	third := commit(publicTree.id(), second.id())
	var attempts int
	refuse := func(what string, a harness.Answer) {
		t.Helper()
		attempts++
		if accepted(a) || a.Status/100 == 2 && !bytes.Contains(a.Body, []byte("ng refs")) && !bytes.Contains(a.Body, []byte("ERR ")) && !bytes.Contains(a.Body, []byte("unpack ")) || a.Status >= 500 {
			t.Errorf("%s: %d %.300q, want a refusal", what, a.Status, a.Body)
		}
		if now := allRefs(t, s, "r"); now != before {
			t.Fatalf("%s moved refs:\n%s\nfrom\n%s", what, now, before)
		}
	}
	names := []string{
		"refs/heads/main", "refs/heads/work", "refs/heads/new", "refs/heads/sessions/1", "refs/heads/sessions/2", "refs/heads/sessions/1/below", "refs/heads/sessions",
		"refs/heads/Sessions/1", "refs/heads/sessions/1 ", "refs/heads//sessions/1", "refs/heads/sessions/../main", "refs/heads/../heads/main", "refs/../refs/heads/main", "refs/heads/./main",
		"refs/tags/v1", "refs/tags/new", "refs/notes/commits", "refs/pull/1/head", "refs/meta/config", "refs/stash", "HEAD", "FETCH_HEAD", "@", "refs/heads/HEAD", "heads/main", "main", "refs/heads/", "refs/", "refs", "",
		sessionRef, "refs/namespaces/ephemeral/" + sessionRef, "refs/namespaces/x/refs/heads/main", "refs/namespaces/ephemeral", "refs/namespaces/ephemeral/HEAD", "refs/namespaces/Ephemeral/refs/heads/sessions/1",
		"refs/heads/sessions/1\x00", "refs/heads/sessions/1.lock", "refs/heads/sessions%2F1", "refs/heads/séssions/1", "refs/heads/" + strings.Repeat("x", 3000), "/" + session, "refs\\heads\\main", "+refs/heads/main", "refs/heads/main^{}", "refs/replace/" + public.id(), "refs/bisect/x",
	}
	for _, remote := range []string{"r", "r+ephemeral", "r+import"} {
		for _, name := range names {
			for _, old := range []string{zero, public.id(), second.id()} {
				if remote == "r+ephemeral" && strings.TrimRight(name, "\x00") == session {
					continue // its own branch: below
				}
				refuse("push "+name+" to "+remote, push(t, s, remote, token, pack(third), command(old, third.id(), name)))
			}
		}
	}
	eph := "r+ephemeral"
	refuse("force", push(t, s, eph, token, pack(side), command(second.id(), side.id(), session)))
	refuse("force from a false old value", push(t, s, eph, token, pack(side), command(public.id(), side.id(), session)))
	refuse("force as a creation", push(t, s, eph, token, pack(side), command(zero, side.id(), session)))
	refuse("back", push(t, s, eph, token, pack(), command(second.id(), public.id(), session)))
	refuse("delete", push(t, s, eph, token, nil, command(second.id(), zero, session)))
	refuse("delete from a false old value", push(t, s, eph, token, nil, command(public.id(), zero, session)))
	refuse("delete and create", push(t, s, eph, token, pack(side), command(second.id(), zero, session), command(zero, side.id(), session)))
	refuse("twice", push(t, s, eph, token, pack(third), command(second.id(), third.id(), session), command(second.id(), third.id(), session)))
	refuse("with another", push(t, s, eph, token, pack(third), command(second.id(), third.id(), session), command(zero, third.id(), "refs/heads/x")))
	refuse("another with it", push(t, s, eph, token, pack(third), command(zero, third.id(), "refs/heads/x"), command(second.id(), third.id(), session)))
	refuse("not a commit", push(t, s, eph, token, pack(), command(second.id(), publicTree.id(), session)))
	named := tag(third.id(), "commit")
	refuse("a tag as a branch", push(t, s, eph, token, pack(third, named), command(second.id(), named.id(), session)))

	call := func(method, path string, body any) {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"/api/v1/", "/api/"} {
			what := prefix + strings.Replace(path, "{r}", "r", 1)
			a, err := s.Do(client, method, what, token, "application/json", data)
			if err != nil {
				t.Fatal(err)
			}
			refuse(method+" "+what, a)
		}
	}
	for _, p := range []string{"repos/branches/create", "repos/r/branches/create"} {
		for _, ephemeral := range []bool{false, true} {
			for _, name := range []string{"main", "x", "sessions/2", "sessions/1", "refs/heads/sessions/1", sessionRef, "../x", "HEAD"} {
				for _, force := range []bool{false, true} {
					call("POST", p, map[string]any{"base_ref": public.id(), "target_branch": name, "target_is_ephemeral": ephemeral, "force": force})
				}
			}
		}
	}
	for _, p := range []string{"repos/branches", "repos/r/branches"} {
		for _, ephemeral := range []bool{false, true} {
			for _, name := range []string{"main", "work", "sessions/1", "refs/heads/sessions/1"} {
				call("DELETE", p, map[string]any{"name": name, "target_branch": name, "ephemeral": ephemeral})
			}
		}
	}
	call("DELETE", "repos/delete", nil)
	call("DELETE", "repos/r", nil)
	call("PUT", "repos/r/protections", map[string]any{"rules": []any{}})
	call("POST", "repos", map[string]any{"default_branch": "work"})
	for _, ephemeral := range []bool{false, true} {
		for _, branch := range []string{"main", "work", "new", "sessions/2", "sessions/1/below", "refs/heads/main"} {
			for _, base := range []string{"", "main"} {
				a, err := s.Commit(client, harness.Commit{Repo: "r", Branch: branch, Base: base, Ephemeral: ephemeral, Files: map[string]string{"f": "x"}, Token: token})
				if err != nil {
					t.Fatal(err)
				}
				refuse("commit to "+branch, a)
			}
		}
	}
	a, err := s.Commit(client, harness.Commit{Repo: "r", Branch: "sessions/1", Files: map[string]string{"f": "x"}, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	refuse("commit to the normal branch of the same name", a)
	t.Logf("%d attempts were refused", attempts)

	mustPush(t, s, eph, token, pack(third), command(second.id(), third.id(), session))
	a, err = s.Commit(client, harness.Commit{Repo: "r", Branch: "sessions/1", Ephemeral: true, Files: map[string]string{"f": "x"}, Token: token})
	if err != nil || a.Status != http.StatusCreated {
		t.Errorf("the branch's own commit: %d %s %v", a.Status, a.Body, err)
	}
}

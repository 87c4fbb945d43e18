package hostile_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// vault is a small history that must not be readable.
type vault struct {
	blob, tree, commit, tag object
}

func newVault(words string) vault {
	v := vault{blob: blob("the secret of " + words + "\n")}
	v.tree = tree("100644 key.txt", v.blob.id())
	v.commit = commit(v.tree.id())
	v.tag = tag(v.commit.id(), "commit")
	return v
}

func (v vault) pack(more ...object) []byte {
	return pack(append([]object{v.blob, v.tree, v.commit, v.tag}, more...)...)
}

// absent has the same shapes and was never sent to any server.
var absent = newVault("nobody")

// allScopes opens every route.
var allScopes = []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}

// hide makes the repository name whose main branch is at public, brings the
// vault into it in one way, and takes it away again.
type hide func(t *testing.T, s *harness.Server, name string, public object, v vault)

func mustPush(t *testing.T, s *harness.Server, remote, token string, pack []byte, commands ...string) {
	t.Helper()
	if a := push(t, s, remote, token, pack, commands...); !accepted(a) {
		t.Fatalf("push %q to %s: %d %q", commands, remote, a.Status, a.Body)
	}
}

func refusedPush(t *testing.T, s *harness.Server, remote, token string, pack []byte, commands ...string) {
	t.Helper()
	if a := push(t, s, remote, token, pack, commands...); a.Status == http.StatusOK && !bytes.Contains(a.Body, []byte("ng ")) {
		t.Fatalf("push %q to %s: %d %q, want a refusal", commands, remote, a.Status, a.Body)
	}
}

var publicBlob = blob("what everybody may read\n")
var publicTree = tree("100644 a.txt", publicBlob.id())

func tokenOf(s *harness.Server, name string) string {
	return s.Token(harness.Grant{Repo: name, Scopes: allScopes})
}

func createPublic(t *testing.T, s *harness.Server, name string, public object) {
	t.Helper()
	if err := s.CreateRepo(name); err != nil {
		t.Fatal(err)
	}
	mustPush(t, s, name, tokenOf(s, name), pack(publicBlob, publicTree, public), command(zero, public.id(), "refs/heads/main"))
}

func fork(t *testing.T, s *harness.Server, name, parent string, more map[string]any) harness.Answer {
	t.Helper()
	base := map[string]any{
		"provider": "code", "owner": harness.Org, "name": parent, "operation": "fork",
		"auth": map[string]string{"token": tokenOf(s, parent)},
	}
	for k, v := range more {
		base[k] = v
	}
	body, err := json.Marshal(map[string]any{"base_repo": base})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Do(nil, http.MethodPost, "/api/repos", tokenOf(s, name), "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustFork(t *testing.T, s *harness.Server, name, parent string, more map[string]any) {
	t.Helper()
	if a := fork(t, s, name, parent, more); a.Status != http.StatusCreated {
		t.Fatalf("fork %s: %d %s", parent, a.Status, a.Body)
	}
}

// hides are the ways in which something is stored that nobody may read.
var hides = map[string]hide{
	"force-pushed away": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mustPush(t, s, name, tokenOf(s, name), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustPush(t, s, name, tokenOf(s, name), pack(), command(v.commit.id(), public.id(), "refs/heads/work"), command(v.tag.id(), public.id(), "refs/tags/v1"))
	},
	"deleted": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mustPush(t, s, name, tokenOf(s, name), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustPush(t, s, name, tokenOf(s, name), nil, command(v.commit.id(), zero, "refs/heads/work"), command(v.tag.id(), zero, "refs/tags/v1"))
	},
	"ephemeral and deleted": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mustPush(t, s, name+"+ephemeral", tokenOf(s, name), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustPush(t, s, name+"+ephemeral", tokenOf(s, name), nil, command(v.commit.id(), zero, "refs/heads/work"), command(v.tag.id(), zero, "refs/tags/v1"))
	},
	"read while it was there": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		token := tokenOf(s, name)
		mustPush(t, s, name, token, v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		for range 3 { // fills every cache of answers
			for _, o := range []object{v.commit, v.tree, v.blob, v.tag} {
				if a := fetch(t, s, name, token, 2, fetchV2("want "+o.id(), "done")); !hasPack(a) {
					t.Fatalf("fetch while it is there: %d %q", a.Status, a.Body)
				}
			}
			if a := request(t, s, "GET", harness.RepoPath(name)+"/file?path=key.txt&ref="+v.commit.id(), token, nil, nil); a.Status != 200 {
				t.Fatalf("read while it is there: %d %q", a.Status, a.Body)
			}
		}
		mustPush(t, s, name, token, nil, command(v.commit.id(), zero, "refs/heads/work"), command(v.tag.id(), zero, "refs/tags/v1"))
	},
	"of a refused push": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		refusedPush(t, s, name, tokenOf(s, name), v.pack(), command(absent.commit.id(), v.commit.id(), "refs/heads/main"))
		refusedPush(t, s, name, tokenOf(s, name), v.pack(), command(zero, v.commit.id(), "refs/heads/main/below"))
		refusedPush(t, s, name, tokenOf(s, name), v.pack(commit(absent.tree.id())), command(zero, v.commit.id(), "refs/heads/x"))
	},
	"in the pack of another branch": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mine := commit(publicTree.id(), public.id())
		mustPush(t, s, name, tokenOf(s, name), v.pack(mine), command(public.id(), mine.id(), "refs/heads/main"))
		mustPush(t, s, name, tokenOf(s, name), pack(), command(mine.id(), public.id(), "refs/heads/main"))
	},
	"the other half of a push": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mine := commit(publicTree.id(), public.id())
		a := request(t, s, "POST", "/"+name+".git/git-receive-pack", tokenOf(s, name), map[string]string{"Content-Type": "application/x-git-receive-pack-request"},
			bytes.NewReader(pushBody(v.pack(mine), "report-status", command(zero, mine.id(), "refs/heads/mine"), command(absent.commit.id(), v.commit.id(), "refs/heads/work"))))
		if !bytes.Contains(a.Body, []byte("ok refs/heads/mine")) || !bytes.Contains(a.Body, []byte("ng refs/heads/work")) {
			t.Fatalf("push: %d %q", a.Status, a.Body)
		}
	},
	"named as a submodule": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		link := tree("160000 sub", v.commit.id())
		mine := commit(link.id(), public.id())
		mustPush(t, s, name, tokenOf(s, name), v.pack(link, mine), command(public.id(), mine.id(), "refs/heads/main"))
		mustPush(t, s, name, tokenOf(s, name), pack(), command(zero, public.id(), "refs/heads/other"))
	},
	"ephemeral in a fork's source": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name+"-source", public)
		mustPush(t, s, name+"-source+ephemeral", tokenOf(s, name+"-source"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustFork(t, s, name, name+"-source", nil)
	},
	"another branch of a fork's source": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name+"-source", public)
		mustPush(t, s, name+"-source", tokenOf(s, name+"-source"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustFork(t, s, name, name+"-source", map[string]any{"ref": "main"})
	},
	"beside the commit of a fork": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name+"-source", public)
		mustPush(t, s, name+"-source", tokenOf(s, name+"-source"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
		mustFork(t, s, name, name+"-source", map[string]any{"sha": public.id()})
	},
	"pushed to a fork's source later": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name+"-source", public)
		mustFork(t, s, name, name+"-source", nil)
		mustPush(t, s, name+"-source", tokenOf(s, name+"-source"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
	},
	"in a fork": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		mustFork(t, s, name+"-fork", name, nil)
		mustPush(t, s, name+"-fork", tokenOf(s, name+"-fork"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
	},
	"a note of a fork's source": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name+"-source", public)
		mustPush(t, s, name+"-source", tokenOf(s, name+"-source"), v.pack(), command(zero, v.commit.id(), "refs/notes/commits"), command(zero, v.tag.id(), "refs/notes/tag"))
		mustFork(t, s, name, name+"-source", nil)
	},
	"of another repository": func(t *testing.T, s *harness.Server, name string, public object, v vault) {
		createPublic(t, s, name, public)
		createPublic(t, s, name+"-other", public)
		mustPush(t, s, name+"-other", tokenOf(s, name+"-other"), v.pack(), command(zero, v.commit.id(), "refs/heads/work"), command(zero, v.tag.id(), "refs/tags/v1"))
	},
}

// probes ask for a vault in one way each; the answer must be the one for a vault
// that does not exist.
func probes(t *testing.T, s *harness.Server, name string, public object, v vault) map[string]func() harness.Answer {
	token := tokenOf(s, name)
	out := make(map[string]func() harness.Answer)
	get := func(what, path string) {
		out["GET "+what] = func() harness.Answer { return request(t, s, "GET", harness.RepoPath(name)+path, token, nil, nil) }
	}
	post := func(what, path string, body map[string]any) {
		out["POST "+what] = func() harness.Answer {
			data, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			return request(t, s, "POST", path, token, map[string]string{"Content-Type": "application/json"}, bytes.NewReader(data))
		}
	}
	pushes := func(what string, pack []byte, id string, ref string) {
		for _, remote := range []string{"", "+ephemeral"} {
			out["push "+what+remote] = func() harness.Answer { return push(t, s, name+remote, token, pack, command(zero, id, ref)) }
		}
	}
	for what, o := range map[string]object{"commit": v.commit, "tree": v.tree, "blob": v.blob, "tag": v.tag} {
		id := o.id()
		for _, version := range []int{0, 1, 2} {
			body := pkt("want "+id+" side-band-64k ofs-delta\n") + "0000" + pkt("done\n")
			deep := pkt("want "+public.id()+" side-band-64k\n") + pkt("shallow "+id) + pkt("deepen 3") + "0000" + pkt("have "+id+"\n") + pkt("done\n")
			if version == 2 {
				body = fetchV2("want "+id, "done")
				deep = fetchV2("want "+public.id(), "shallow "+id, "deepen-relative", "deepen 3", "done")
			}
			for _, remote := range []string{"", "+ephemeral"} {
				out["want "+what+remote+" v"+strconv.Itoa(version)] = func() harness.Answer { return fetch(t, s, name+remote, token, version, body) }
				out["deepen "+what+remote+" v"+strconv.Itoa(version)] = func() harness.Answer { return fetch(t, s, name+remote, token, version, deep) }
			}
		}
		out["have "+what] = func() harness.Answer { return fetch(t, s, name, token, 2, fetchV2("want "+public.id(), "have "+id)) }
		out["wait "+what] = func() harness.Answer { return fetch(t, s, name, token, 2, fetchV2("wait-for-done", "have "+id)) }
		out["deepen-not "+what] = func() harness.Answer {
			return fetch(t, s, name, token, 2, fetchV2("want "+public.id(), "deepen-not "+id, "done"))
		}
		for _, form := range []string{"", "~0", "^{commit}", "^0"} {
			ref := url.QueryEscape(id + form)
			get("file "+what+form, "/file?path=key.txt&ref="+ref)
			get("files "+what+form, "/files?ref="+ref)
			get("archive "+what+form, "/archive?ref="+ref)
			post("branch "+what+form, harness.RepoPath(name)+"/branches/create", map[string]any{"base_ref": id + form, "target_branch": "stolen"})
		}
		for _, flag := range []string{"ephemeral=true", "ephemeral_base=true"} {
			get("file "+what+flag, "/file?path=key.txt&"+flag+"&ref="+id)
		}
		get("short "+what, "/files?ref="+id[:12])
		get("branch "+what, "/branch?name="+id)
		post("branch in "+what, harness.RepoPath(name)+"/branches/create", map[string]any{"base_branch": id, "target_branch": "stolen", "base_is_ephemeral": true, "target_is_ephemeral": true})
		out["fork "+what] = func() harness.Answer { return fork(t, s, "stolen", name, map[string]any{"sha": id}) }
		pushes(what+" without a pack", nil, id, "refs/tags/stolen")
		pushes(what+" with an empty pack", pack(), id, "refs/tags/stolen")
		thin := object{kind: refEntry, base: id, data: appendDelta(len(o.data), "x")}
		pushes("delta against "+what, pack(thin), public.id(), "refs/tags/stolen")
		stale := commit(publicTree.id(), public.id())
		out["push over "+what] = func() harness.Answer {
			return push(t, s, name, token, pack(stale), command(id, stale.id(), "refs/heads/main"))
		}
		out["delete at "+what] = func() harness.Answer { return push(t, s, name, token, nil, command(id, zero, "refs/heads/other-name")) }
		named := tag(id, what)
		pushes("tag of "+what, pack(named), named.id(), "refs/tags/stolen")
	}
	parent := commit(publicTree.id(), v.commit.id())
	pushes("commit upon it", pack(parent), parent.id(), "refs/heads/stolen")
	whole := commit(v.tree.id())
	pushes("commit of its tree", pack(whole), whole.id(), "refs/heads/stolen")
	inner := tree("40000 sub", v.tree.id())
	around := commit(inner.id())
	pushes("tree of its tree", pack(inner, around), around.id(), "refs/heads/stolen")
	file := tree("100644 key.txt", v.blob.id())
	holder := commit(file.id())
	if file.id() != v.tree.id() {
		t.Fatal("the vault's tree changed")
	}
	pushes("tree of its blob", pack(tree("100644 k", v.blob.id()), commit(tree("100644 k", v.blob.id()).id())), commit(tree("100644 k", v.blob.id()).id()).id(), "refs/heads/stolen")
	pushes("its commit without its tree", pack(holder), holder.id(), "refs/heads/stolen")
	pushes("its commit and tree without the blob", pack(v.tree, v.commit), v.commit.id(), "refs/heads/stolen")
	link := tree("120000 l", v.blob.id())
	pushes("link to its blob", pack(link, commit(link.id())), commit(link.id()).id(), "refs/heads/stolen")
	return out
}

// same brings two answers to a form in which only what tells a vault from an
// absent one differs.
func same(a harness.Answer, v vault) string {
	text := string(a.Body)
	for what, o := range map[string]object{"COMMIT": v.commit, "TREE": v.tree, "BLOB": v.blob, "TAG": v.tag} {
		text = strings.ReplaceAll(text, o.id(), what)
		text = strings.ReplaceAll(text, o.id()[:12], what)
	}
	return strconv.Itoa(a.Status) + " " + text
}

// TestHostileUnreachable asks in every way for what is stored and may not be
// read: no answer may differ from that for an object which does not exist.
func TestHostileUnreachable(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--unseen-grace", "1ms"}})
	type hidden struct {
		name   string
		public object
		vault  vault
	}
	var all []hidden
	i := 0
	for way, hide := range hides {
		i++
		h := hidden{name: "vault-" + strconv.Itoa(i), public: commit(publicTree.id()), vault: newVault(way)}
		hide(t, s, h.name, h.public, h.vault)
		all = append(all, h)
		t.Logf("%s: %s", h.name, way)
	}
	time.Sleep(100 * time.Millisecond) // past the grace
	for _, h := range all {
		want := probes(t, s, h.name, h.public, absent)
		for what, ask := range probes(t, s, h.name, h.public, h.vault) {
			got, missing := ask(), want[what]()
			if bytes.Contains(got.Body, []byte("the secret of")) {
				t.Errorf("%s: %s: the secret was sent", h.name, what)
			}
			if a, b := same(got, h.vault), same(missing, absent); a != b {
				t.Errorf("%s: %s: answered %.300q, and %.300q for what does not exist", h.name, what, a, b)
			}
		}
		everything := harness.NewGit(t)
		for dir, remote := range map[string]string{"normal": "", "ephemeral": "+ephemeral"} {
			everything.Run("clone", "-q", "--mirror", s.Remote(harness.Grant{Repo: h.name}, remote), dir)
			for _, o := range []object{h.vault.blob, h.vault.tree, h.vault.commit, h.vault.tag} {
				if _, err := everything.In(dir).Try("cat-file", "-e", o.id()); err == nil {
					t.Errorf("%s: a clone has %s", h.name, o.id())
				}
			}
		}
	}
}

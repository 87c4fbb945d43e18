package repo

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/policy"
)

func TestPushHistory(t *testing.T) {
	for _, limit := range []int64{0, 64} {
		t.Run(fmt.Sprintf("inline limit %d", limit), func(t *testing.T) {
			w := newWorld(t, options{inlineLimit: limit})
			r := w.create("repo")
			g := newGitDir(t)
			commits := g.history("main", 30)
			first, last := commits[9], commits[29]
			wantStatus(t, w.push(r.ID, g.packRevs(first.String()), wire.Command{Ref: "refs/heads/main", New: first}), map[string]string{"refs/heads/main": ""})
			v := w.view(r.ID)
			db, err := v.DB(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if p := db.Packs()[0].Info(); !p.Exact || len(p.Tips) != 1 || len(p.Boundary) != 0 || !v.Repo().Tidy {
				t.Errorf("first pack: %+v, tidy %v; want exact", p, v.Repo().Tidy)
			}
			wantStatus(t, w.push(r.ID, g.packRevs(last.String(), "^"+first.String()), wire.Command{Ref: "refs/heads/main", Old: first, New: last}), map[string]string{"refs/heads/main": ""})
			if got := w.ref(r.ID, "refs/heads/main"); got != last {
				t.Errorf("main is at %s, want %s", got, last)
			}
			if !w.view(r.ID).Repo().Tidy {
				t.Error("repository is not tidy after fast-forward pushes")
			}
			w.fsck(r.ID)
			if got := w.export(r.ID).run("rev-list", "--count", "main"); got != "30" {
				t.Errorf("git sees %s commits, want 30", got)
			}
		})
	}
}

func TestExactPackUponBoundary(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	commits := g.history("main", 3)
	w.push(r.ID, g.packRevs(commits[1].String()), wire.Command{Ref: "refs/heads/main", New: commits[1]})
	// Whole objects only, so that nothing had to be completed.
	var ids []object.ID
	for _, rev := range []string{commits[2].String(), commits[2].String() + "^{tree}", commits[2].String() + ":file2"} {
		ids = append(ids, g.id(rev))
	}
	w.push(r.ID, g.packOf(ids...), wire.Command{Ref: "refs/heads/main", Old: commits[1], New: commits[2]})
	db, err := w.view(r.ID).DB(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p := db.Packs()[1].Info()
	if !p.Exact || len(p.Tips) != 1 || p.Tips[0] != commits[2] || len(p.Boundary) != 1 || p.Boundary[0] != commits[1] {
		t.Errorf("second pack: %+v; want exact between %s and %s", p, commits[1], commits[2])
	}
	w.fsck(r.ID)
}

func TestPushStatuses(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 4)
	zero := object.Zero
	blob := g.id(c[0].String() + ":file0")
	wantStatus(t, w.push(r.ID, g.packRevs(c[1].String()), wire.Command{Ref: "refs/heads/main", New: c[1]}), map[string]string{"refs/heads/main": ""})

	t.Run("without atomic each stands alone", func(t *testing.T) {
		res := w.push(r.ID, g.packRevs(c[2].String(), "^"+c[1].String()),
			wire.Command{Ref: "refs/heads/main", Old: c[0], New: c[2]}, // stale
			wire.Command{Ref: "refs/heads/main/sub", New: c[1]},        // below a branch
			wire.Command{Ref: "refs/heads/blob", New: blob},            // no commit
			wire.Command{Ref: "refs/heads/unknown", New: c[3]},         // not sent
			wire.Command{Ref: "HEAD", New: c[1]},                       // outside refs/
			wire.Command{Ref: "refs/heads/a..b", New: c[1]},            // malformed
			wire.Command{Ref: "refs/namespaces/ephemeral/refs/heads/x", New: c[1]},
			wire.Command{Ref: "refs/tags/blob", New: blob},
			wire.Command{Ref: "refs/heads/next", New: c[2]})
		wantStatus(t, res, map[string]string{
			"refs/heads/main":                        "fetch first",
			"refs/heads/main/sub":                    `"refs/heads/main"`,
			"refs/heads/blob":                        "not a commit",
			"refs/heads/unknown":                     "missing necessary objects",
			"HEAD":                                   "components",
			"refs/heads/a..b":                        "invalid ref name",
			"refs/namespaces/ephemeral/refs/heads/x": "cannot be pushed to",
			"refs/tags/blob":                         "",
			"refs/heads/next":                        "",
		})
	})
	t.Run("atomic stands together", func(t *testing.T) {
		before := w.state(r.ID)
		res := w.pushAs(w.writer, r.ID, true, g.packRevs(c[3].String(), "^"+c[2].String()),
			wire.Command{Ref: "refs/heads/one", New: c[3]},
			wire.Command{Ref: "refs/heads/main", Old: c[0], New: c[3]})
		wantStatus(t, res, map[string]string{"refs/heads/one": "atomic push failed", "refs/heads/main": "fetch first"})
		if after := w.state(r.ID); after != before {
			t.Errorf("the refused push left something:\n%s\nbefore:\n%s", after, before)
		}
	})
	t.Run("the default branch stays", func(t *testing.T) {
		res := w.push(r.ID, nil, wire.Command{Ref: "refs/heads/main", Old: c[1], New: zero}, wire.Command{Ref: "refs/tags/blob", Old: blob, New: zero})
		wantStatus(t, res, map[string]string{"refs/heads/main": "default branch", "refs/tags/blob": ""})
	})
	t.Run("the value it has already", func(t *testing.T) {
		before := w.state(r.ID)
		wantStatus(t, w.push(r.ID, nil, wire.Command{Ref: "refs/heads/main", Old: c[0], New: c[1]}), map[string]string{"refs/heads/main": ""})
		if after := w.state(r.ID); after != before {
			t.Errorf("a push of nothing new wrote something:\n%s\nbefore:\n%s", after, before)
		}
	})
	t.Run("rename a branch below itself", func(t *testing.T) {
		w.push(r.ID, nil, wire.Command{Ref: "refs/heads/dev", New: c[1]})
		res := w.pushAs(w.writer, r.ID, true, nil, wire.Command{Ref: "refs/heads/dev", Old: c[1]}, wire.Command{Ref: "refs/heads/dev/x", New: c[1]})
		wantStatus(t, res, map[string]string{"refs/heads/dev": "", "refs/heads/dev/x": ""})
	})
	t.Run("names differ by case alone", func(t *testing.T) {
		wantStatus(t, w.push(r.ID, nil, wire.Command{Ref: "refs/heads/Foo", New: c[0]}, wire.Command{Ref: "refs/heads/foo", New: c[1]}),
			map[string]string{"refs/heads/Foo": "", "refs/heads/foo": ""})
		if w.ref(r.ID, "refs/heads/Foo") != c[0] || w.ref(r.ID, "refs/heads/foo") != c[1] {
			t.Error("the two branches were mixed up")
		}
	})
	w.fsck(r.ID)
	w.export(r.ID)
}

func TestPushPolicies(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 4)
	side := g.commit("side", g.id(c[0].String()+"^{tree}"), c[0])
	w.push(r.ID, g.packRevs(c[1].String(), side.String()), wire.Command{Ref: "refs/heads/main", New: c[1]}, wire.Command{Ref: "refs/heads/side", New: side})
	session := "refs/namespaces/ephemeral/refs/heads/s"
	confined := w.writer
	confined.Policies = mustPolicies(t, session+"=no-force-push", "*=no-push")

	eph := func(cmds ...wire.Command) wire.PushResult {
		rc := w.engine.Receiver(confined, w.view(r.ID), EphemeralNS)
		res, err := rc.Receive(context.Background(), &wire.Push{Commands: cmds}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	wantStatus(t, eph(wire.Command{Ref: "refs/heads/s", New: c[0]}), map[string]string{"refs/heads/s": ""})
	wantStatus(t, eph(wire.Command{Ref: "refs/heads/s", Old: c[0], New: c[1]}), map[string]string{"refs/heads/s": ""})
	if w.ref(r.ID, session) != c[1] {
		t.Error("the session branch is not in its namespace")
	}
	const other = "rejected because another ref was denied by policy"
	for _, test := range []struct {
		name string
		res  wire.PushResult
		want map[string]string
	}{
		{"force", eph(wire.Command{Ref: "refs/heads/s", Old: c[1], New: side}), map[string]string{"refs/heads/s": "force push denied by policy"}},
		{"rewind", eph(wire.Command{Ref: "refs/heads/s", Old: c[1], New: c[0]}), map[string]string{"refs/heads/s": "force push denied by policy"}},
		{"delete", eph(wire.Command{Ref: "refs/heads/s", Old: c[1]}), map[string]string{"refs/heads/s": "deletion denied by policy"}},
		{"another branch", eph(wire.Command{Ref: "refs/heads/main", New: c[1]}), map[string]string{"refs/heads/main": "push denied by policy"}},
		{"a tag", eph(wire.Command{Ref: "refs/tags/t", New: c[1]}), map[string]string{"refs/tags/t": "push denied by policy"}},
		{"all or nothing", eph(wire.Command{Ref: "refs/heads/x", New: c[1]}, wire.Command{Ref: "refs/heads/s", Old: c[1], New: side}),
			map[string]string{"refs/heads/x": "push denied by policy", "refs/heads/s": other}},
		{"stale but forward", eph(wire.Command{Ref: "refs/heads/s", Old: c[0], New: c[1]}), map[string]string{"refs/heads/s": ""}},
	} {
		t.Run(test.name, func(t *testing.T) { wantStatus(t, test.res, test.want) })
	}
	t.Run("a denied pack leaves nothing", func(t *testing.T) {
		before := w.state(r.ID)
		res := w.pushAs(confined, r.ID, false, g.packRevs(c[2].String(), "^"+c[1].String()), wire.Command{Ref: "refs/heads/main", Old: c[1], New: c[2]})
		wantStatus(t, res, map[string]string{"refs/heads/main": "push denied by policy"})
		if len(res.Messages) == 0 || !strings.Contains(res.Messages[0], "denied by policy") {
			t.Errorf("messages: %q", res.Messages)
		}
		if after := w.state(r.ID); after != before {
			t.Errorf("left something:\n%s", after)
		}
	})
	t.Run("a race is no force push", func(t *testing.T) {
		late := g.commit("late", g.id(c[0].String()+"^{tree}"), c[0])
		rc := w.engine.Receiver(confined, w.view(r.ID), EphemeralNS)
		res, err := rc.Receive(context.Background(), &wire.Push{Commands: []wire.Command{{Ref: "refs/heads/s", Old: c[0], New: late}}}, bytes.NewReader(g.packOf(late)))
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, res, map[string]string{"refs/heads/s": "fetch first"})
	})
	t.Run("the advertisement names only the session", func(t *testing.T) {
		adv, err := w.engine.Receiver(confined, w.view(r.ID), EphemeralNS).Advertise(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(adv.Refs) != 1 || adv.Refs[0].Name != "refs/heads/s" || adv.Refs[0].ID != c[1] {
			t.Errorf("refs: %+v", adv.Refs)
		}
		if len(adv.Haves) != 1 || adv.Haves[0] != side {
			t.Errorf("haves: %v, want %s alone: main has the session's tip", adv.Haves, side)
		}
	})
}

func TestProtectionsAndSignatures(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 3)
	w.push(r.ID, g.packRevs(c[2].String()), wire.Command{Ref: "refs/heads/main", New: c[1]}, wire.Command{Ref: "refs/heads/signed", New: c[1]}, wire.Command{Ref: "refs/heads/next", New: c[2]})
	rule := func(pattern string, ops ...policy.Op) policy.Protection {
		p, err := policy.NewProtection(pattern, ops)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	err := w.engine.SetProtections(context.Background(), w.writer, r, []policy.Protection{rule("main", policy.NoForcePush), rule("signed", policy.VerifySig)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ref      string
		old, new object.ID
		want     string
	}{
		{"refs/heads/main", c[1], c[0], "force push denied by policy"},
		{"refs/heads/main", c[1], object.Zero, "deletion denied by policy"},
		{"refs/heads/signed", c[1], c[2], "no signing keys are registered"},
		{"refs/heads/signed", c[1], c[0], ""}, // brings no commit
		{"refs/heads/main", c[1], c[2], ""},
	} {
		wantStatus(t, w.push(r.ID, nil, wire.Command{Ref: test.ref, Old: test.old, New: test.new}), map[string]string{test.ref: test.want})
	}
}

// TestUnreachableObjects attacks with what the packs hold and no ref reaches.
func TestUnreachableObjects(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 2)
	secretBlob := g.put("blob", "the secret\n"+strings.Repeat("padding that makes a delta worth while\n", 50))
	secretTree := g.tree(map[string]object.ID{"secret": secretBlob})
	secret := g.commit("secret", secretTree, c[0])
	w.push(r.ID, g.packRevs(c[1].String(), secret.String()), wire.Command{Ref: "refs/heads/main", New: c[1]}, wire.Command{Ref: "refs/heads/leak", New: secret})
	wantStatus(t, w.push(r.ID, nil, wire.Command{Ref: "refs/heads/leak", Old: secret, New: c[0]}), map[string]string{"refs/heads/leak": ""})
	if w.view(r.ID).Repo().Tidy {
		t.Fatal("the repository is still called tidy after a force push")
	}
	before := w.state(r.ID)

	guess := g.put("blob", "the secret\n"+strings.Repeat("padding that makes a delta worth while\n", 50)+"mine\n")
	holder := g.commit("holder", g.tree(map[string]object.ID{"f": guess}), c[1])
	byTree := g.commit("by tree", secretTree, c[1])
	blobTree := g.tree(map[string]object.ID{"stolen": secretBlob})
	byBlob := g.commit("by blob", blobTree, c[1])
	byParent := g.commit("by parent", g.id(c[1].String()+"^{tree}"), secret)
	tag := g.put("tag", fmt.Sprintf("object %s\ntype commit\ntag t\ntagger A U Thor <a@example.com> 1700000000 +0000\n\nt\n", secret))
	delta := g.deltaPack(t, guess, secretBlob, g.packOf(holder, g.id(holder.String()+"^{tree}")))
	for _, attack := range []struct {
		name string
		ref  string
		new  object.ID
		pack []byte
	}{
		{"the commit itself", "refs/heads/x", secret, nil},
		{"a tag of the blob", "refs/tags/x", secretBlob, nil},
		{"a commit with its tree", "refs/heads/x", byTree, g.packOf(byTree)},
		{"a tree with its blob", "refs/heads/x", byBlob, g.packOf(byBlob, blobTree)},
		{"a commit upon it", "refs/heads/x", byParent, g.packOf(byParent)},
		{"a tag of it", "refs/tags/x", tag, g.packOf(tag)},
		{"a delta against it", "refs/heads/x", holder, delta},
	} {
		t.Run(attack.name, func(t *testing.T) {
			res := w.push(r.ID, attack.pack, wire.Command{Ref: attack.ref, New: attack.new})
			why := res.Unpack
			if why == "" && len(res.Refs) == 1 {
				why = res.Refs[0].Error
			}
			if !strings.Contains(why, "missing necessary objects") {
				t.Errorf("got %+v, want missing objects", res)
			}
			if after := w.state(r.ID); after != before {
				t.Errorf("left something:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
	// Whoever has the content may send it again.
	wantStatus(t, w.push(r.ID, g.packOf(secret, secretTree, secretBlob), wire.Command{Ref: "refs/heads/again", New: secret}), map[string]string{"refs/heads/again": ""})
	w.fsck(r.ID)
}

func TestHostilePacks(t *testing.T) {
	for _, limit := range []int64{0, 64} {
		w := newWorld(t, options{inlineLimit: limit})
		r := w.create("repo")
		g := newGitDir(t)
		c := g.history("main", 3)
		w.push(r.ID, g.packRevs(c[0].String()), wire.Command{Ref: "refs/heads/main", New: c[0]})
		before := w.state(r.ID)
		good := g.packRevs(c[1].String(), "^"+c[0].String())
		flipped := bytes.Clone(good)
		flipped[len(flipped)/2] ^= 0x40
		dotgit := g.put("tree", "40000 .git\x00"+rawID(g.id(c[0].String()+"^{tree}")))
		evil := g.commit("evil", dotgit, c[0])
		noEmail := g.put("commit", fmt.Sprintf("tree %s\nparent %s\nauthor nobody 1 +0000\ncommitter nobody 1 +0000\n\nx\n", g.id(c[0].String()+"^{tree}"), c[0]))
		blobAsTree := g.commit("blob as tree", g.id(c[0].String()+":file0"), c[0])
		orphan := g.put("blob", "nobody names me")
		for _, attack := range []struct {
			name string
			new  object.ID
			pack []byte
			want string // in the unpack line
		}{
			{"cut short", c[1], good[:len(good)-30], "cut short"},
			{"nothing", c[1], []byte{}, "cut short"},
			{"bit flipped", c[1], flipped, ""},
			{"trailing bytes", c[1], append(bytes.Clone(good), 'x'), "data follows"},
			{"dot git", evil, g.packOf(evil, dotgit), "hasDotgit"},
			{"malformed commit", noEmail, g.packOf(noEmail), "missingEmail"},
			{"blob named as tree", blobAsTree, g.packOf(blobAsTree), "is named as a tree"},
			{"parent missing", c[2], g.packOf(c[2], g.id(c[2].String()+"^{tree}"), g.id(c[2].String()+":file2")), "missing necessary objects"},
			{"tree missing", c[1], g.packOf(c[1]), "missing necessary objects"},
		} {
			t.Run(fmt.Sprintf("%s %d", attack.name, limit), func(t *testing.T) {
				res := w.push(r.ID, attack.pack, wire.Command{Ref: "refs/heads/main", Old: c[0], New: attack.new})
				if res.Unpack == "" || !strings.Contains(res.Unpack, attack.want) {
					t.Errorf("unpack: %q, want %q", res.Unpack, attack.want)
				}
				if after := w.state(r.ID); after != before {
					t.Errorf("left something:\n%s\nbefore:\n%s", after, before)
				}
			})
		}
		// An object that no ref reaches comes along: accepted, but remembered.
		pack := g.packOf(append(g.newIn(c[1], c[0]), orphan)...)
		wantStatus(t, w.push(r.ID, pack, wire.Command{Ref: "refs/heads/main", Old: c[0], New: c[1]}), map[string]string{"refs/heads/main": ""})
		if w.view(r.ID).Repo().Tidy {
			t.Error("the repository is called tidy with an object that no ref reaches")
		}
		if missing, err := w.view(r.ID).Reachable(context.Background(), orphan); err != nil || missing != orphan {
			t.Errorf("the orphan counts as reachable (%v)", err)
		}
		w.fsck(r.ID)
	}
}

func TestShallowPush(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 3)
	pack := g.packOf(g.newIn(c[2], c[1])...)
	push := func() wire.PushResult {
		rc := w.engine.Receiver(w.writer, w.view(r.ID), Normal)
		res, err := rc.Receive(context.Background(), &wire.Push{Shallow: []object.ID{c[1]}, Commands: []wire.Command{{Ref: "refs/heads/work", New: c[2]}}}, bytes.NewReader(pack))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := push(); !strings.Contains(res.Unpack, "missing necessary objects") {
		t.Errorf("a boundary that is not here was accepted: %+v", res)
	}
	w.push(r.ID, g.packRevs(c[1].String()), wire.Command{Ref: "refs/heads/main", New: c[1]})
	wantStatus(t, push(), map[string]string{"refs/heads/work": ""})
	w.fsck(r.ID)
}

func TestTagsArePeeled(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	c := g.history("main", 1)
	inner := g.put("tag", fmt.Sprintf("object %s\ntype commit\ntag inner\ntagger A U Thor <a@example.com> 1700000000 +0000\n\nt\n", c[0]))
	outer := g.put("tag", fmt.Sprintf("object %s\ntype tag\ntag outer\ntagger A U Thor <a@example.com> 1700000000 +0000\n\nt\n", inner))
	wantStatus(t, w.push(r.ID, g.packOf(append(g.newIn(c[0]), inner, outer)...),
		wire.Command{Ref: "refs/tags/outer", New: outer}, wire.Command{Ref: "refs/heads/tag", New: outer}),
		map[string]string{"refs/tags/outer": "", "refs/heads/tag": "not a commit"})
	ref, ok, err := w.view(r.ID).Ref(context.Background(), "refs/tags/outer")
	if err != nil || !ok || ref.Peeled != c[0] {
		t.Errorf("ref %+v %v %v, want it peeled to %s", ref, ok, err, c[0])
	}
	w.fsck(r.ID)
}

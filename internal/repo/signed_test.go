package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/signature"
	"github.com/cairnstate/cairn/internal/testkit"
)

// signedWorld is a world whose org has an OpenPGP and an SSH key.
type signedWorld struct {
	*world
	g        *gitDir
	ssh, pgp []string // arguments with which git signs
	stranger []string // with a key that is not registered
	unsigned []string
}

func newSignedWorld(t *testing.T) *signedWorld {
	t.Helper()
	w := &signedWorld{world: newWorld(t, options{}), g: newGitDir(t), unsigned: []string{}}
	s := testkit.NewSigners(t)
	t.Setenv("GNUPGHOME", s.Home)
	path, public := s.NewSSH("one", "ed25519")
	strange, _ := s.NewSSH("two", "ed25519")
	fingerprint := s.NewGPG("Signer <signer@example.com>", "ed25519", "never")
	w.ssh = []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + path}
	w.stranger = []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + strange}
	w.pgp = []string{"-c", "gpg.format=openpgp", "-c", "user.signingkey=" + fingerprint}
	for _, text := range []string{public, s.PublicGPG(fingerprint)} {
		w.register(text, time.Time{})
	}
	return w
}

func (w *signedWorld) register(text string, notAfter time.Time) (fingerprint string) {
	w.t.Helper()
	key, err := signature.ParseKey([]byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	row := meta.SigningKey{Fingerprint: key.Fingerprint, Kind: string(key.Kind), Text: key.Text, NotAfter: notAfter}
	if v, err := w.meta.Apply(context.Background(), meta.Change{Org: w.org, PutSigningKey: &row}); err != nil || !v.Applied {
		w.t.Fatalf("register a key: %+v %v", v, err)
	}
	return key.Fingerprint
}

// commitAs makes an empty commit, signed by the given arguments.
func (w *signedWorld) commitAs(sign []string, message string, parents ...object.ID) object.ID {
	w.t.Helper()
	args := append(append([]string{}, sign...), "commit-tree", "-m", message)
	if len(sign) > 0 {
		args = append(args, "-S")
	}
	for _, p := range parents {
		args = append(args, "-p", p.String())
	}
	id, err := object.ParseID(w.g.run(append(args, w.g.tree(nil).String())...))
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *signedWorld) protect(r meta.Repo, rules ...string) {
	w.t.Helper()
	var list []policy.Protection
	for _, pattern := range rules {
		p, err := policy.NewProtection(pattern, []policy.Op{policy.VerifySig})
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, p)
	}
	if err := w.engine.SetProtections(context.Background(), w.writer, r, list); err != nil {
		w.t.Fatal(err)
	}
}

// try pushes one ref and expects a part of its refusal, "" for none.
func (w *signedWorld) try(name string, r meta.Repo, ref string, id object.ID, want string) {
	w.t.Helper()
	old := w.ref(r.ID, ref)
	var pack []byte
	if !id.IsZero() {
		pack = w.g.packRevs(id.String())
	}
	res := w.push(r.ID, pack, wire.Command{Ref: ref, Old: old, New: id})
	got := res.Unpack
	if got == "" {
		got = res.Refs[0].Error
	}
	if (want == "") != (got == "") || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "denied by policy") {
		w.t.Errorf("%s: got %q, want %q", name, got, want)
	}
	now := w.ref(r.ID, ref)
	if want == "" && now != id || want != "" && now != old {
		w.t.Errorf("%s: the ref is at %s", name, now)
	}
}

func TestVerifySig(t *testing.T) {
	w := newSignedWorld(t)
	r := w.create("repo")
	w.protect(r, "main", "release/*")
	base := w.commitAs(w.ssh, "base")
	plain := w.commitAs(w.unsigned, "plain", base)
	onPlain := w.commitAs(w.ssh, "signed upon unsigned", plain)
	byPGP := w.commitAs(w.pgp, "by gpg", base)
	merged := w.commitAs(w.ssh, "a merge", byPGP, onPlain)
	strange := w.commitAs(w.stranger, "by a stranger", byPGP)

	w.try("created unsigned", r, "refs/heads/main", w.commitAs(w.unsigned, "root"), "is not signed")
	w.try("created signed", r, "refs/heads/main", base, "")
	w.try("unsigned", r, "refs/heads/main", plain, "commit "+plain.String()+" is not signed")
	w.try("signed upon unsigned", r, "refs/heads/main", onPlain, "commit "+plain.String()+" is not signed")
	w.try("by gpg", r, "refs/heads/main", byPGP, "")
	w.try("by a stranger", r, "refs/heads/main", strange, "not registered")
	w.try("a merge of unsigned", r, "refs/heads/main", merged, "is not signed")

	// Pushing elsewhere first does not help, nor does a branch over REST.
	w.try("unprotected", r, "refs/heads/dev", merged, "")
	w.try("that was pushed elsewhere", r, "refs/heads/main", merged, "is not signed")
	w.try("created from elsewhere", r, "refs/heads/release/1", merged, "is not signed")
	_, err := w.engine.CreateBranch(context.Background(), w.writer, w.view(r.ID), BranchRequest{Target: "release/1", Base: "dev"})
	wantDenied(t, "a branch over REST", err)
	_, err = w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{"f": "1"})
	wantDenied(t, "a commit over REST", err)
	// main is under another rule than release/*: what it has is judged anew.
	w.try("created from a protected branch", r, "refs/heads/release/1", byPGP, "")
	w.try("back", r, "refs/heads/main", base, "")
	w.try("deleted", r, "refs/heads/release/1", object.Zero, "")

	// A ref that takes unsigned commits from before lets them pass on.
	old := w.create("old")
	w.try("before the rule", old, "refs/heads/main", plain, "")
	w.protect(old, "main", "refs/tags/*", "*")
	w.try("upon what was there", old, "refs/heads/main", onPlain, "")
	w.try("an older one at a ref of one rule", old, "refs/heads/other", plain, "")
	w.try("an older one at a ref of two", old, "refs/tags/light", plain, "is not signed")
}

func wantDenied(t *testing.T, name string, err error) {
	t.Helper()
	var denied *policy.DeniedError
	if !errors.As(err, &denied) || !strings.Contains(denied.Reason, "signed") {
		t.Errorf("%s: %v, want it denied", name, err)
	}
}

// TestForgedSignatures changes what a good signature is attached to.
func TestForgedSignatures(t *testing.T) {
	w := newSignedWorld(t)
	r := w.create("repo")
	w.protect(r, "*")
	base := w.commitAs(w.ssh, "base")
	w.try("base", r, "refs/heads/main", base, "")
	good := w.g.run("cat-file", "commit", w.commitAs(w.ssh, "good", base).String()) + "\n"
	if !strings.Contains(good, "gpgsig -----BEGIN SSH SIGNATURE-----\n") {
		t.Fatalf("git made %q", good)
	}
	head, message, _ := strings.Cut(good, "\n\n")
	lines, sig, _ := strings.Cut(head, "gpgsig ")
	sig = "gpgsig " + sig
	block := strings.ReplaceAll(strings.TrimPrefix(sig, "gpgsig "), "\n ", "\n")
	tag := w.g.put("tag", fmt.Sprintf("object %s\ntype commit\ntag t\ntagger A U Thor <a@example.com> 1700000000 +0000\n\nt\n", base))
	for name, tt := range map[string]struct{ commit, want string }{
		"as it was":                    {lines + sig + "\n\n" + message, ""},
		"another message":              {lines + sig + "\n\n" + message + "more\n", "does not match"},
		"another author":               {strings.Replace(lines, "A U Thor", "B U Thor", 1) + sig + "\n\n" + message, "does not match"},
		"another parent":               {strings.Replace(lines, "parent "+base.String()+"\n", "", 1) + sig + "\n\n" + message, "does not match"},
		"a header behind":              {lines + sig + "\nx-more y\n\n" + message, "does not match"},
		"twice":                        {lines + sig + "\n" + sig + "\n\n" + message, "cannot be read"},
		"in the message":               {lines + "\n" + message + block + "\n", "is not signed"},
		"in a mergetag":                {lines + "mergetag object " + base.String() + "\n type commit\n tag t\n tagger A U Thor <a@example.com> 1700000000 +0000\n \n t\n " + strings.ReplaceAll(block, "\n", "\n ") + "\n\n" + message, "is not signed"},
		"in a mergetag as a signature": {lines + "mergetag object " + base.String() + "\n type commit\n " + strings.ReplaceAll(sig, "\n ", "\n  ") + "\n\n" + message, "is not signed"},
		"for SHA-256 only":             {lines + strings.Replace(sig, "gpgsig", "gpgsig-sha256", 1) + "\n\n" + message, "is not signed"},
		"empty":                        {lines + "gpgsig \n\n" + message, "is not signed"},
	} {
		id := w.g.put("commit", tt.commit)
		fresh := w.create("r " + name)
		w.protect(fresh, "*")
		w.try("base", fresh, "refs/heads/main", base, "")
		w.try(name, fresh, "refs/heads/main", id, tt.want)
	}
	w.try("a tag that is not signed", r, "refs/tags/t", tag, "tag "+tag.String()+" is not signed")
	w.try("a signed commit without a tag", r, "refs/tags/light", base, "")
	w.try("a tree", r, "refs/tags/tree", w.g.tree(nil), "cannot be signed")
	w.g.run("update-ref", "refs/heads/x", base.String())
	for _, sign := range [][]string{w.ssh, w.pgp} {
		w.g.run(append(append([]string{}, sign...), "tag", "-f", "-s", "-m", "signed", "t", base.String())...)
		w.try("a signed tag", r, "refs/tags/signed", w.g.id("refs/tags/t"), "")
	}
	nested := w.g.put("tag", fmt.Sprintf("object %s\ntype tag\ntag n\ntagger A U Thor <a@example.com> 1700000000 +0000\n\nn\n", w.g.id("refs/tags/t")))
	w.try("a tag of a signed tag", r, "refs/tags/nested", nested, "is not signed")
	w.fsck(r.ID)
}

// TestSigningKeysChange follows keys that come and go.
func TestSigningKeysChange(t *testing.T) {
	w := newSignedWorld(t)
	r := w.create("repo")
	w.protect(r, "*")
	a := w.commitAs(w.stranger, "a")
	w.try("before the key is registered", r, "refs/heads/main", a, "not registered")
	public, err := os.ReadFile(strings.TrimPrefix(w.stranger[3], "user.signingkey=") + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := w.register(string(public), time.Time{})
	w.try("once it is", r, "refs/heads/main", a, "")
	w.register(string(public), time.Unix(someone.When, 0).Add(-time.Second))
	b := w.commitAs(w.stranger, "b", a)
	w.try("dated after its bound", r, "refs/heads/main", b, "ceased to count")
	w.register(string(public), time.Unix(someone.When, 0))
	w.try("dated within it", r, "refs/heads/main", b, "")
	if v, err := w.meta.Apply(context.Background(), meta.Change{Org: w.org, RemoveSigningKey: fingerprint}); err != nil || !v.Applied {
		t.Fatalf("%+v %v", v, err)
	}
	w.try("once it is gone", r, "refs/heads/main", w.commitAs(w.stranger, "c", b), "not registered")
	w.try("what it let in stays", r, "refs/heads/main", a, "")
}

// TestVerifySigInToken asks for signatures by the policies of a token.
func TestVerifySigInToken(t *testing.T) {
	w := newSignedWorld(t)
	r := w.create("repo")
	plain, signed := w.commitAs(w.unsigned, "plain"), w.commitAs(w.ssh, "signed")
	w.try("by another token", r, "refs/heads/main", plain, "")
	free, err := policy.NewRule("free/*", nil)
	if err != nil {
		t.Fatal(err)
	}
	strict, err := policy.NewRule("*", []policy.Op{policy.VerifySig})
	if err != nil {
		t.Fatal(err)
	}
	w.writer.Policies = policy.List{free, strict}
	w.try("under an explicit allow", r, "refs/heads/free/x", w.commitAs(w.unsigned, "other"), "")
	w.try("what the allowed branch has", r, "refs/heads/x", w.commitAs(w.unsigned, "other"), "is not signed")
	w.try("unsigned", r, "refs/heads/x", w.commitAs(w.unsigned, "another"), "is not signed")
	w.try("signed", r, "refs/heads/x", signed, "")

	_, err = w.engine.Fork(context.Background(), w.writer, w.view(r.ID), ForkRequest{CreateRequest: CreateRequest{Name: "fork"}})
	wantDenied(t, "a fork with unsigned commits", err)
	if _, err = w.engine.Fork(context.Background(), w.writer, w.view(r.ID), ForkRequest{CreateRequest: CreateRequest{Name: "fork"}, Revision: "x"}); err != nil {
		t.Errorf("a fork of a signed branch: %v", err)
	}
}

// TestManyNewCommits bounds what one update has verified.
func TestManyNewCommits(t *testing.T) {
	w := newSignedWorld(t)
	r := w.create("repo")
	w.protect(r, "*")
	var stream strings.Builder
	for i := range maxSigned + 1 {
		fmt.Fprintf(&stream, "commit refs/heads/many\ncommitter A <a@example.com> %d +0000\ndata 2\nx\n", 1700000000+i)
	}
	w.g.in([]byte(stream.String()), "fast-import", "--quiet")
	w.try("too many", r, "refs/heads/main", w.g.id("refs/heads/many"), "more than are verified at once")
}

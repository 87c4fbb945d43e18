package repo

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/signature"
	"github.com/cairnstate/cairn/internal/testkit"
)

// signFor gives the org of a world a key to sign with, as an operator does.
func (w *world) signFor(s *signature.Signer) {
	w.t.Helper()
	if w.engine.cfg.Secrets == nil {
		ring, err := secret.Parse(secret.Generate())
		if err != nil {
			w.t.Fatal(err)
		}
		w.engine.cfg.Secrets = ring
	}
	sealed, err := w.engine.cfg.Secrets.Seal(ServerKeyRow(w.org, s.Public.Fingerprint), s.Private())
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(meta.Change{
		PutSigningKey: &meta.SigningKey{Fingerprint: s.Public.Fingerprint, Kind: string(s.Public.Kind), Text: s.Public.Text},
		SetServerKey:  &meta.ServerKey{Fingerprint: s.Public.Fingerprint, Secret: sealed},
	})
}

// change applies a Change of the org, and has the writer see what it did.
func (w *world) change(c meta.Change) {
	w.t.Helper()
	c.Org = w.org
	if v, err := w.meta.Apply(context.Background(), c); err != nil || !v.Applied {
		w.t.Fatalf("%+v %v", v, err)
	}
	gate, err := w.meta.Gate(context.Background(), meta.GateQuery{Org: "acme"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.writer.Signer = gate.Org.Signer
}

func newSigner(t *testing.T) *signature.Signer {
	t.Helper()
	s, err := signature.GenerateSigner("the server")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lots is text of at least n bytes that does not compress much.
func lots(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text() + "\n")
	}
	return b.String()
}

// strict has every commit of the writer's refs signed.
func strict(t *testing.T) policy.List {
	t.Helper()
	rule, err := policy.NewRule("*", []policy.Op{policy.VerifySig})
	if err != nil {
		t.Fatal(err)
	}
	return policy.List{rule}
}

// TestServerSigns makes commits in each way that the server makes them, where
// only signed ones are taken, and has git verify them.
func TestServerSigns(t *testing.T) {
	ctx := context.Background()
	pgp := func(t *testing.T) *signature.Signer {
		s := testkit.NewSigners(t)
		t.Setenv("GNUPGHOME", s.Home)
		signer, err := signature.ParseSigner([]byte(s.GPG(nil, "--armor", "--export-secret-keys", s.NewGPG("Server <s@example.com>", "ed25519", "never"))))
		if err != nil {
			t.Fatal(err)
		}
		return signer
	}
	for name, make := range map[string]func(*testing.T) *signature.Signer{"ssh": newSigner, "openpgp": pgp} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			signer := make(t)
			w.signFor(signer)
			w.writer.Policies = strict(t)
			r := w.create("repo")
			want := map[string]object.ID{"commit": w.commit(r.ID, "one", map[string]string{"f": "1\n"})}
			side := w.branch(r.ID, "side", "main", map[string]string{"g": "1\n"})
			want["commit on a base"] = side
			want["large"] = w.commit(r.ID, "large", map[string]string{"big": lots(200_000)})
			patch := w.engine.NewPatch()
			defer patch.Close()
			patch.Write([]byte("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n"))
			applied, err := w.engine.CommitPatch(ctx, w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: "patch", Author: someone, Committer: someone}, patch)
			if err != nil {
				t.Fatal(err)
			}
			want["patch"] = applied.Commit
			restored, err := w.engine.Restore(ctx, w.writer, w.view(r.ID), RestoreRequest{TargetBranch: "main", Base: "HEAD~1", Author: someone, Committer: someone})
			if err != nil {
				t.Fatal(err)
			}
			want["restore"] = restored.Commit
			merged, err := w.merge(r.ID, MergeRequest{Source: "side", TargetBranch: "main"})
			if err != nil {
				t.Fatal(err)
			}
			want["merge"] = merged.Commit
			w.branch(r.ID, "two", "side", map[string]string{"h": "1\n"})
			squashed, err := w.merge(r.ID, MergeRequest{Source: "two", TargetBranch: "main", Squash: true})
			if err != nil {
				t.Fatal(err)
			}
			want["squash"] = squashed.Commit
			if forwarded, err := w.merge(r.ID, MergeRequest{Source: "main", TargetBranch: "side", Strategy: ForwardOnly}); err != nil || forwarded.Kind != Forwarded {
				t.Errorf("a fast-forward: %+v, %v", forwarded, err)
			}
			want["note"] = w.mustNote(r.ID, NoteRequest{Ref: DefaultNotes, Object: side, Text: "n", Author: someone}).New
			snap, err := w.engine.Snapshot(ctx, w.writer, w.view(r.ID), SnapshotRequest{CreateRequest: CreateRequest{Name: "snap"}, Revision: "main", Message: "s\n", Author: someone})
			if err != nil {
				t.Fatal(err)
			}
			w.verified(w.export(r.ID), signer, want)
			w.verified(w.export(snap.ID), signer, map[string]object.ID{"snapshot": w.ref(snap.ID, refname.Branch("main"))})
			w.fsck(r.ID)
		})
	}
}

// verified has git verify commits against the public half of a key.
func (w *world) verified(g *gitDir, s *signature.Signer, commits map[string]object.ID) {
	w.t.Helper()
	public := filepath.Join(w.t.TempDir(), "public")
	text := s.Public.Text + "\n"
	if s.Public.Kind == signature.SSH {
		text = "cairn " + text
	}
	if err := os.WriteFile(public, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	for name, id := range commits {
		if got := g.in(nil, "-c", "gpg.ssh.allowedSignersFile="+public, "log", "-1", "--format=%G?", id.String()); got != "G" && got != "U" {
			w.t.Errorf("%s: git finds the signature %q", name, got)
		}
		g.run("-c", "gpg.ssh.allowedSignersFile="+public, "verify-commit", id.String())
	}
}

// TestServerCommitsAsGit compares a commit that the server signed with the one
// that git makes of the same with the same key.
func TestServerCommitsAsGit(t *testing.T) {
	s := testkit.NewSigners(t)
	path, _ := s.NewSSH("key", "ed25519")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signature.ParseSigner(text)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, options{})
	w.signFor(signer)
	r := w.create("repo")
	one := w.commit(r.ID, "message\n", map[string]string{"f": "1"})
	g := w.export(r.ID)
	tree := g.run("rev-parse", one.String()+"^{tree}")
	ident := []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + path}
	theirs := g.run(append(ident, "commit-tree", "-S", "-m", "message", tree)...)
	if ours, git := g.run("cat-file", "commit", one.String()), g.run("cat-file", "commit", theirs); ours != git {
		t.Errorf("the server made\n%s\nand git\n%s", ours, git)
	}
}

// TestServerSignsOnlyItsOwn asks for more than the server's signature covers.
func TestServerSignsOnlyItsOwn(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	w.commit(r.ID, "unsigned", map[string]string{"f": "1"})
	w.branch(r.ID, "dev", "main", map[string]string{"f": "2"})
	signer := newSigner(t)
	w.signFor(signer)
	free := w.writer
	w.branch(r.ID, "signed", "dev", map[string]string{"f": "3"})
	w.writer.Policies = strict(t)
	request := func(target, base string) error {
		_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: target, BaseBranch: base}, map[string]string{"g": target})
		return err
	}
	if err := request("main", ""); err != nil {
		t.Errorf("upon what the branch has: %v", err)
	}
	if err := request("dev", ""); err != nil {
		t.Errorf("upon what the branch has: %v", err)
	}
	w.writer = free
	w.writer.Signer = ""
	w.branch(r.ID, "rough", "dev", map[string]string{"rough": "5"})
	w.writer.Signer = signer.Public.Fingerprint
	rule, err := policy.NewRule("refs/heads/new/*", []policy.Op{policy.VerifySig})
	if err != nil {
		t.Fatal(err)
	}
	w.writer.Policies = policy.List{rule}
	wantDenied(t, "a new branch upon unsigned commits", request("new/a", "rough"))
	w.writer.Policies = strict(t)
	_, err = w.merge(r.ID, MergeRequest{Source: "rough", TargetBranch: "dev"})
	wantDenied(t, "a merge of unsigned commits", err)
	if _, err = w.merge(r.ID, MergeRequest{Source: "rough", TargetBranch: "dev", Squash: true}); err != nil {
		t.Errorf("a squashed merge: %v", err)
	}
}

// TestServerKeyChanges follows a key of the server's that comes, is replaced and
// goes.
func TestServerKeyChanges(t *testing.T) {
	w := newWorld(t, options{})
	w.writer.Policies = strict(t)
	r := w.create("repo")
	request := func(text string) error {
		_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{"f": text})
		return err
	}
	refused := func(name, text, want string) {
		t.Helper()
		before := w.state(r.ID)
		err := request(text)
		var denied *policy.DeniedError
		if !errors.As(err, &denied) || !strings.Contains(denied.Reason, want) {
			t.Errorf("%s: %v, want a refusal with %q", name, err, want)
		}
		if after := w.state(r.ID); after != before {
			t.Errorf("%s: the state is\n%s\nand was\n%s", name, after, before)
		}
	}
	_, err := w.engine.Snapshot(context.Background(), w.writer, w.view(r.ID), SnapshotRequest{CreateRequest: CreateRequest{Name: "s"}, Revision: "main", Message: "s", Author: someone})
	if err == nil {
		t.Error("a snapshot of nothing")
	}
	refused("without a key", "1", "`cairn org signing-key generate`")
	first, second := newSigner(t), newSigner(t)
	w.signFor(first)
	if err := request("1"); err != nil {
		t.Errorf("with a key: %v", err)
	}
	w.signFor(second)
	if err := request("2"); err != nil {
		t.Errorf("with another: %v", err)
	}
	g := w.export(r.ID)
	w.verified(g, second, map[string]object.ID{"second": g.id("main")})
	w.verified(g, first, map[string]object.ID{"first": g.id("main~1")})
	// What the first signed counts until it is removed.
	if _, err := w.engine.CreateBranch(context.Background(), w.writer, w.view(r.ID), BranchRequest{Target: "old", Base: "main~1"}); err != nil {
		t.Errorf("a branch of what the first key signed: %v", err)
	}
	// A writer who saw the key before it went does without.
	stale := w.writer
	w.change(meta.Change{SetServerKey: new(meta.ServerKey)})
	w.writer = stale
	w.engine.signers = signers{New(Config{}).signers.cache}
	refused("once the key is gone", "3", "`cairn org signing-key generate`")
	w.signFor(second)
	w.change(meta.Change{PutSigningKey: &meta.SigningKey{Fingerprint: second.Public.Fingerprint, Kind: "ssh", Text: second.Public.Text, NotAfter: time.Unix(someone.When-1, 0)}})
	refused("dated after the key has ceased to count", "3", "ceased to count")

	// A key that does not open stops every commit, with or without a rule.
	w.writer.Policies = nil
	w.engine.signers = signers{New(Config{}).signers.cache}
	w.engine.cfg.Secrets = nil
	var broken *SignerError
	if err := request("3"); !errors.As(err, &broken) || !errors.Is(err, secret.ErrNoKey) {
		t.Errorf("without the key for secrets: %v", err)
	}
}

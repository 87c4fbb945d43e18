package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
)

// fixture is a service on stores of its own, with the org "acme".
type fixture struct {
	*Service
	t   *testing.T
	op  *Operator
	key *ecdsa.PrivateKey
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := sqlstore.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	blobs := mem.New()
	engine := repo.New(repo.Config{
		Meta: store, Blobs: blobs, Process: "test", Scratch: t.TempDir(),
		ODB: odb.New(odb.Config{Meta: store, Blobs: blobs, Scratch: t.TempDir(), Process: "test"}),
	})
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Service: New(Config{Meta: store, Engine: engine, Verifier: verifier}), t: t, op: &Operator{Meta: store}}
	f.key = newKey(t)
	if _, err := f.op.CreateOrg(t.Context(), "acme", "", public(t, f.key)); err != nil {
		t.Fatal(err)
	}
	return f
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// token mints a token of an hour; change may alter its claims.
func (f *fixture) token(key *ecdsa.PrivateKey, c auth.Claims) string {
	f.t.Helper()
	if c.Org == "" {
		c.Org = "acme"
	}
	if c.IssuedAt == 0 {
		c.IssuedAt = time.Now().Unix()
	}
	c.Expires = c.IssuedAt + 3600
	token, err := auth.Mint(key, "", c)
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

func (f *fixture) code(err error) Code {
	f.t.Helper()
	if err == nil {
		return ""
	}
	return Public(err).Code
}

var everything = []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}

func (f *fixture) create(name string) {
	f.t.Helper()
	a, err := f.OpenNew(f.t.Context(), f.token(f.key, auth.Claims{Repo: name, Scopes: everything}), auth.RepoWrite)
	if err == nil {
		_, err = f.CreateRepo(f.t.Context(), a, "", nil)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestKeysRotateAtOnce(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.create("r")
	next := newKey(t)
	open := func(key *ecdsa.PrivateKey) Code {
		_, err := f.Open(ctx, f.token(key, auth.Claims{Repo: "r", Scopes: everything}), "r", auth.GitRead)
		return f.code(err)
	}
	if c := open(next); c != Code(auth.TokenSignature) {
		t.Errorf("unknown key: %q", c)
	}
	if _, err := f.op.AddKey(ctx, "acme", "", public(t, next)); err != nil {
		t.Fatal(err)
	}
	if a, b := open(f.key), open(next); a != "" || b != "" {
		t.Errorf("both keys: %q, %q", a, b)
	}
	keys, err := f.op.Keys(ctx, "acme")
	if err != nil || len(keys) != 2 {
		t.Fatalf("%v %v", keys, err)
	}
	old := f.token(f.key, auth.Claims{Repo: "r", Scopes: everything})
	if _, err := f.Open(ctx, old, "r", auth.GitRead); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.PEM == string(public(t, f.key)) {
			if err := f.op.RemoveKey(ctx, "acme", k.Fingerprint); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The token was accepted, and remembered, a moment ago.
	if _, err := f.Open(ctx, old, "r", auth.GitRead); f.code(err) != Code(auth.TokenSignature) {
		t.Errorf("token of a removed key: %v", err)
	}
	if c := open(next); c != "" {
		t.Errorf("the key that stays: %q", c)
	}
}

func TestRevocation(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.create("r")
	f.create("q")
	now := time.Now()
	open := func(repo, sub string) Code {
		_, err := f.Open(ctx, f.token(f.key, auth.Claims{Repo: repo, Subject: sub, Scopes: everything, IssuedAt: now.Unix()}), repo, auth.GitRead)
		return f.code(err)
	}
	superseded := Code(auth.TokenSuperseded)
	if err := f.op.Revoke(ctx, "acme", Revocation{Repo: "r", Before: now.Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	if c := open("r", "a"); c != "" {
		t.Errorf("a newer token: %q", c)
	}
	if err := f.op.Revoke(ctx, "acme", Revocation{Repo: "r", Before: now}); err != nil {
		t.Fatal(err)
	}
	if a, b := open("r", "a"), open("q", "a"); a != superseded || b != "" {
		t.Errorf("revoked by repository: %q, other: %q", a, b)
	}
	if err := f.op.Revoke(ctx, "acme", Revocation{Subject: "b", Before: now}); err != nil {
		t.Fatal(err)
	}
	if a, b := open("q", "b"), open("q", "a"); a != superseded || b != "" {
		t.Errorf("revoked by subject: %q, other: %q", a, b)
	}
	// What a floor covers of a foreign repository shows in nothing.
	foreign := f.token(f.key, auth.Claims{Repo: "q", Scopes: everything})
	if _, err := f.Open(ctx, foreign, "r", auth.GitRead); f.code(err) != RepositoryMissing {
		t.Errorf("foreign repository with a floor: %v", err)
	}
	if err := f.op.Revoke(ctx, "acme", Revocation{Before: now}); err != nil {
		t.Fatal(err)
	}
	if c := open("q", "a"); c != superseded {
		t.Errorf("revoked by org: %q", c)
	}
}

func TestRevocationOfSeveral(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.create("r")
	f.create("q")
	now := time.Now()
	if err := f.op.Revoke(ctx, "acme", Revocation{Repo: "r", Subject: "b", Before: now}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		repo, sub string
		want      Code
	}{{"r", "a", Code(auth.TokenSuperseded)}, {"q", "b", Code(auth.TokenSuperseded)}, {"q", "a", ""}} {
		token := f.token(f.key, auth.Claims{Repo: tc.repo, Subject: tc.sub, Scopes: everything, IssuedAt: now.Unix()})
		if _, err := f.Open(ctx, token, tc.repo, auth.GitRead); f.code(err) != tc.want {
			t.Errorf("%s of %s: %v, want %q", tc.sub, tc.repo, err, tc.want)
		}
	}
}

func TestAuthorisation(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.create("r")
	noPush, err := policy.NewRule("*", []policy.Op{policy.NoPush})
	if err != nil {
		t.Fatal(err)
	}
	type check func(token string) error
	open := func(name string, scopes ...auth.Scope) check {
		return func(token string) error { _, err := f.Open(ctx, token, name, scopes...); return err }
	}
	change := func(token string) error { _, err := f.OpenToChange(ctx, token, "r", auth.RepoWrite); return err }
	org := func(token string) error { _, err := f.OpenOrg(ctx, token, auth.OrgRead); return err }
	fresh := func(token string) error { _, err := f.OpenNew(ctx, token, auth.RepoWrite); return err }
	rows := []struct {
		name   string
		check  check
		claims auth.Claims
		want   Code
	}{
		{"read", open("r", auth.GitRead), auth.Claims{Repo: "r", Scopes: []auth.Scope{auth.GitRead}}, ""},
		{"read by a writer", open("r", auth.GitRead), auth.Claims{Repo: "r", Scopes: []auth.Scope{auth.GitWrite}}, ""},
		{"write by a reader", open("r", auth.GitWrite), auth.Claims{Repo: "r", Scopes: []auth.Scope{auth.GitRead}}, ScopeMissing},
		{"either scope", open("r", auth.GitWrite, auth.GitRead), auth.Claims{Repo: "r", Scopes: []auth.Scope{auth.GitRead}}, ""},
		{"by the claim", open("", auth.GitRead), auth.Claims{Repo: "r", Scopes: everything}, ""},
		{"absent by the claim", open("", auth.GitRead), auth.Claims{Repo: "x", Scopes: everything}, RepositoryMissing},
		{"no claim", open("", auth.GitRead), auth.Claims{Scopes: everything}, ScopeMissing},
		{"no claim, named", open("r", auth.GitRead), auth.Claims{Scopes: everything}, RepositoryMissing},
		{"the org's claim", open("r", auth.GitRead), auth.Claims{Repo: "org", Scopes: everything}, RepositoryMissing},
		{"foreign before scope", open("r", auth.GitRead), auth.Claims{Repo: "x"}, RepositoryMissing},
		{"unknown org", open("r", auth.GitRead), auth.Claims{Org: "globex", Repo: "r", Scopes: everything}, Code(auth.TokenSignature)},
		{"change", change, auth.Claims{Repo: "r", Scopes: everything}, ""},
		{"change, confined", change, auth.Claims{Repo: "r", Scopes: everything, Policies: policy.List{noPush}}, Denied},
		{"org", org, auth.Claims{Repo: "org", Scopes: everything}, ""},
		{"org without claim", org, auth.Claims{Scopes: everything}, ""},
		{"org without scope", org, auth.Claims{Repo: "org", Scopes: []auth.Scope{auth.GitRead}}, ScopeMissing},
		{"create", fresh, auth.Claims{Repo: "n", Scopes: everything}, ""},
		{"create for the org", fresh, auth.Claims{Repo: "org", Scopes: everything}, ScopeMissing},
		{"create, confined", fresh, auth.Claims{Repo: "n", Scopes: everything, Policies: policy.List{noPush}}, Denied},
	}
	for _, row := range rows {
		if got := f.code(row.check(f.token(f.key, row.claims))); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if err := open("r", auth.GitRead)(""); f.code(err) != Code(auth.TokenMissing) {
		t.Errorf("no token: %v", err)
	}
}

func TestWiderNames(t *testing.T) {
	for name, narrow := range map[string]bool{"a/b.c_d-e": true, "über": false, "a b": false, "a$b": false} {
		if err := CheckRepoName(name, false); (err == nil) != narrow {
			t.Errorf("%q: %v", name, err)
		}
		if err := CheckRepoName(name, true); err != nil {
			t.Errorf("%q by a wider configuration: %v", name, err)
		}
	}
	for _, name := range []string{"", "org", "a\nb", "a\\b", "\xff", "../x", "x.git"} {
		if CheckRepoName(name, true) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestPublic(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("while working: %w", err) }
	rows := []struct {
		err    error
		code   Code
		status int
	}{
		{Refuse(Limited, "slow down"), Limited, 429},
		{&auth.TokenError{Code: auth.TokenExpired, Message: "m"}, Code(auth.TokenExpired), 401},
		{&repo.SupersededError{}, Code(auth.TokenSuperseded), 401},
		{&policy.DeniedError{Ref: "r", Reason: "denied by policy"}, Denied, 403},
		{&repo.StaleError{Ref: "r"}, Stale, 409},
		{&repo.NotFoundError{What: "ref", Name: "x"}, NotFound, 404},
		{&repo.RefPathError{Ref: "a", Other: "b"}, Conflict, 409},
		{&repo.ConflictError{Ref: "a"}, Conflict, 409},
		{&repo.DefaultBranchError{Branch: "main"}, DefaultBranch, 409},
		{&repo.GoneError{}, RepositoryMissing, 404},
		{&repo.DeletedError{Name: "x"}, RepositoryDeleted, 409},
		{&repo.ExistsError{What: "branch", Name: "x"}, AlreadyExists, 409},
		{&repo.ExistsError{What: "repository", Name: "x", Deleted: true}, RepositoryDeleted, 409},
		{&repo.NoChangesError{}, NoChanges, 412},
		{&repo.InvalidError{Reason: "no"}, Invalid, 400},
		{object.CheckPath("../x"), Invalid, 400},
		{object.ErrCollision, Invalid, 400},
		{syscall.ENOSPC, Unavailable, 503},
		{&policy.OpError{Op: "x", Problem: "is not known"}, Invalid, 400},
		{repo.ErrLeaseLost, Unavailable, 503},
		{meta.ErrUnavailable, Unavailable, 503},
		{errors.New("secret"), Internal, 500},
		{context.Canceled, Internal, 500},
	}
	for _, row := range rows {
		p := Public(wrap(row.err))
		if p.Code != row.code || p.Status() != row.status || p.Message == "" || strings.Contains(p.Message, "secret") || strings.Contains(p.Message, "working") {
			t.Errorf("%T: %q, %d, %q", row.err, p.Code, p.Status(), p.Message)
		}
	}
	if Public(nil) != nil {
		t.Error("no error is an error")
	}
}

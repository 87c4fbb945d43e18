package service_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/signature"
)

func ringOf(t *testing.T, keys ...[]byte) *secret.Keyring {
	t.Helper()
	ring, err := secret.Parse(bytes.Join(keys, nil))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestResealServerKeys changes the key for secrets under the keys that the server
// signs with.
func TestResealServerKeys(t *testing.T) {
	ctx := context.Background()
	store, err := sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	old, next, strange := secret.Generate(), secret.Generate(), secret.Generate()
	orgs := map[string]meta.OrgID{}
	for i, name := range []string{"a", "b", "c"} {
		id := meta.OrgID(i + 1)
		if v, err := store.Apply(ctx, meta.Change{Org: id, CreateOrg: &meta.Org{ID: id, Name: name}}); err != nil || !v.Applied {
			t.Fatalf("%+v %v", v, err)
		}
		orgs[name] = id
	}
	o := &service.Operator{Meta: store}
	if _, err := o.GenerateServerKey(ctx, "a", ""); service.Public(err).Code != service.Unsupported {
		t.Errorf("without a key for secrets: %v", err)
	}
	if org, err := o.Org(ctx, "a"); err != nil || org.Signer != "" {
		t.Errorf("the server signs with %q, %v", org.Signer, err)
	}
	o.Secrets = ringOf(t, old)
	key, err := o.GenerateServerKey(ctx, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	o.Secrets = ringOf(t, strange)
	if _, err := o.GenerateServerKey(ctx, "b", ""); err != nil {
		t.Fatal(err)
	}
	o.Secrets = ringOf(t, next, old)
	for i, want := range [][2]int{{1, 1}, {0, 1}} {
		if made, left, err := o.ResealServerKeys(ctx); err != nil || made != want[0] || left != want[1] {
			t.Errorf("run %d: made %d, left %d, %v, want %v", i, made, left, err, want)
		}
	}
	row, err := store.ServerKey(ctx, orgs["a"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := ringOf(t, next).Open(repo.ServerKeyRow(orgs["a"], key.Fingerprint), row.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := signature.ParseSigner(text); err != nil || s.Public.Text != key.Text {
		t.Errorf("another key came out: %v", err)
	}
}

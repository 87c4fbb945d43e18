package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/secret"
)

func TestKeyBesideAnEmbeddedDatabase(t *testing.T) {
	cfg := config.Config{Data: t.TempDir()}
	var wg sync.WaitGroup
	rings := make([]*secret.Keyring, 8)
	for i := range rings {
		wg.Go(func() {
			var err error
			if rings[i], err = openSecrets(cfg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sealed, err := rings[0].Seal("row", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rings {
		if got, err := r.Open("row", sealed); err != nil || string(got) != "x" {
			t.Errorf("process %d: %q, %v", i, got, err)
		}
	}
	entries, err := os.ReadDir(cfg.Data)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Name() != secretKeyFile || info.Mode().Perm() != 0o600 {
		t.Errorf("%v has mode %v, %v", info.Name(), info.Mode(), err)
	}
}

func TestKeysThatAreGiven(t *testing.T) {
	ring, err := openSecrets(config.Config{DatabaseURL: "postgres://x", Data: t.TempDir()})
	if ring != nil || err != nil {
		t.Errorf("a database elsewhere without a key: %v, %v", ring, err)
	}
	if _, err := ring.Seal("row", nil); !errors.Is(err, secret.ErrNoKey) {
		t.Errorf("seal: %v", err)
	}
	dir := t.TempDir()
	if ring, err = openSecrets(config.Config{Data: dir, SecretKeys: secret.Generate()}); ring == nil || err != nil {
		t.Errorf("a key that is given: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, secretKeyFile)); err == nil {
		t.Error("a key was made though one is given")
	}
	for _, text := range [][]byte{{}, []byte("hunter2")} {
		_, err := openSecrets(config.Config{Data: dir, SecretKeys: text})
		usage, ok := errors.AsType[*config.UsageError](err)
		if !ok || bytes.Contains([]byte(usage.Error()), []byte("hunter2")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

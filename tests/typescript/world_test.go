package typescript_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/blob/dir"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/fsx"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/rest"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

// world is a server for the tests in TypeScript.
type world struct {
	url string
	// newOrg makes an org and returns its private key.
	newOrg func(name string) (crypto.Signer, error)
	// set moves the server's clock; nil where it cannot be moved.
	set func(time.Time)
	// restart ends the server as a crash does and starts it again; nil where it cannot.
	restart func() error
}

// control serves what the tests ask of a world: POST /orgs makes an org and
// answers with tokens for the threads that are named, POST /clock moves the clock,
// POST /restart has the server crash and come back.
func (w world) control(t *testing.T) string {
	var orgs atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orgs", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct{ Threads []string }
		err := json.NewDecoder(r.Body).Decode(&asked)
		answer := struct {
			URL    string   `json:"url"`
			Tokens []string `json:"tokens"`
		}{URL: w.url}
		if err == nil {
			answer.Tokens, err = w.tokens(fmt.Sprintf("org-%d", orgs.Add(1)), asked.Threads)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(rw).Encode(answer)
	})
	mux.HandleFunc("POST /restart", func(rw http.ResponseWriter, _ *http.Request) {
		if err := w.restart(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /clock", func(rw http.ResponseWriter, r *http.Request) {
		var at struct{ Now float64 }
		if err := json.NewDecoder(r.Body).Decode(&at); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		if w.set != nil {
			w.set(time.UnixMilli(int64(at.Now)))
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// tokens makes an org and tokens of it, one for each thread.
func (w world) tokens(org string, threads []string) ([]string, error) {
	key, err := w.newOrg(org)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var all []string
	for _, thread := range threads {
		token, err := auth.Mint(key, "", auth.Claims{
			Org: org, Subject: "test", Thread: thread, Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite},
			IssuedAt: now.Unix(), Expires: now.Add(time.Hour).Unix(),
		})
		if err != nil {
			return nil, err
		}
		all = append(all, token)
	}
	return all, nil
}

// program is the built program, with the clock of the machine.
func program(t *testing.T) world {
	s := harness.Serve(t, harness.Options{})
	restart := func() error {
		s.Kill()
		return s.Restart()
	}
	return world{url: s.URL, restart: restart, newOrg: func(name string) (crypto.Signer, error) {
		file := filepath.Join(s.Dir, name+".key")
		if _, err := s.Operate("org", "create", name, "--key-out", file); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return auth.ParsePrivateKey(text)
	}}
}

// clocked is a server inside of the test, on an engine whose clock can be moved.
func clocked(t *testing.T, engine string) world {
	var now atomic.Pointer[time.Time]
	clock := func() time.Time {
		if at := now.Load(); at != nil {
			return *at
		}
		return time.Now()
	}
	ctx := context.Background()
	var store meta.Store
	var err error
	if engine == "postgres" {
		store, err = sqlstore.OpenPostgres(ctx, testkit.Postgres(t), sqlstore.PostgresOptions{Clock: clock})
	} else {
		store, err = sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{Clock: clock})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	disk := fsx.NewMem()
	blobs, err := dir.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	feed := events.NewFeed(store)
	repos := repo.New(repo.Config{
		Meta: feed, Blobs: blobs, Process: "test", Scratch: t.TempDir(), Clock: clock,
		ODB: odb.New(odb.Config{Meta: store, Blobs: blobs, Scratch: t.TempDir(), Process: "test"}),
	})
	objects := content.New(content.Config{Meta: store, Blobs: blobs, Process: "test", Begin: repos.Begin, Clock: clock})
	s := httptest.NewServer(rest.New(rest.Config{PublicURL: func() string { return "" }, Service: service.New(service.Config{
		Meta: feed, Feed: feed, Engine: repos, Verifier: verifier,
		Checkpoints: checkpoint.New(checkpoint.Config{Meta: store, Content: objects, Clock: clock}),
	})}))
	t.Cleanup(s.Close)
	return world{
		url: s.URL,
		set: func(at time.Time) { now.Store(&at) },
		newOrg: func(name string) (crypto.Signer, error) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, err
			}
			der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
			if err != nil {
				return nil, err
			}
			o := service.Operator{Meta: store}
			_, err = o.CreateOrg(ctx, name, "", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
			return key, err
		},
	}
}

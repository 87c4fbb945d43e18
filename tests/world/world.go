// Package world runs Cairn's REST interface in this process, with an org, a store
// and a clock of its own for every test: so that leases end when a test says so.
package world

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/rest"
	"github.com/cairnstate/cairn/internal/service"
)

// Clock is the real time, moved, or a time that stands still until it is set.
type Clock struct {
	ahead atomic.Int64 // nanoseconds
	fixed atomic.Int64 // microseconds since 1970; 0 is not fixed
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if at := c.fixed.Load(); at != 0 {
		return time.UnixMicro(at).Add(time.Duration(c.ahead.Load()))
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// Set makes the clock stand at a time.
func (c *Clock) Set(at time.Time) {
	c.ahead.Store(0)
	c.fixed.Store(at.UnixMicro())
}

// World is one server for one org on a store of its own.
type World struct {
	Org         string
	ID          meta.OrgID
	Clock       *Clock
	Meta        meta.Store
	Content     *content.Store
	Checkpoints *checkpoint.Engine
	Repos       *repo.Engine
	Blobs       blob.Store
	Handler     http.Handler

	process  string
	database string // of PostgreSQL, "" for SQLite
	key      *ecdsa.PrivateKey
	pem      []byte
	dir      string
}

var made atomic.Int64

// lease is how long a world counts as alive after a heartbeat, by its clock.
const lease = 1000 * time.Hour

// Open makes a world on SQLite below dir or, with the URL of a database, on
// PostgreSQL, with blobs in memory.
func Open(ctx context.Context, dir, databaseURL string) (*World, error) {
	return OpenOn(ctx, dir, databaseURL, mem.New())
}

// OpenOn is Open with blobs.
func OpenOn(ctx context.Context, dir, databaseURL string, blobs blob.Store) (_ *World, err error) {
	w := &World{Org: fmt.Sprintf("world-%d-%d", os.Getpid(), made.Add(1)), Clock: new(Clock), Blobs: blobs, database: databaseURL}
	if err := w.open(ctx, dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if err := w.createOrg(ctx); err != nil {
		return nil, err
	}
	return w, w.serve()
}

// Beside is another server of a world that is on PostgreSQL.
func (w *World) Beside(ctx context.Context, dir string) (*World, error) {
	n := &World{Org: w.Org, ID: w.ID, Clock: w.Clock, Blobs: w.Blobs, database: w.database, key: w.key, pem: w.pem}
	if err := n.open(ctx, dir); err != nil {
		return nil, err
	}
	return n, n.serve()
}

// open opens the metadata.
func (w *World) open(ctx context.Context, dir string) (err error) {
	w.process = fmt.Sprintf("process-%d-%d", os.Getpid(), made.Add(1))
	if w.dir, err = os.MkdirTemp(dir, "world"); err != nil {
		return err
	}
	var store *sqlstore.Store
	if w.database != "" {
		store, err = sqlstore.OpenPostgres(ctx, w.database, sqlstore.PostgresOptions{Clock: w.Clock.Now, Conns: 6})
	} else {
		store, err = sqlstore.OpenSQLite(ctx, filepath.Join(w.dir, "meta.db"), sqlstore.SQLiteOptions{Clock: w.Clock.Now, Readers: 4})
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(w.dir))
	}
	w.Meta = store
	return nil
}

func (w *World) createOrg(ctx context.Context) error {
	public, err := x509.MarshalPKIXPublicKey(&w.key.PublicKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(w.key)
	if err != nil {
		return err
	}
	w.pem = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	o := service.Operator{Meta: w.Meta}
	org, err := o.CreateOrg(ctx, w.Org, "", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	w.ID = org.ID
	return err
}

func (w *World) serve() error {
	feed := events.NewFeed(w.Meta)
	w.Repos = repo.New(repo.Config{
		Meta: feed, Blobs: w.Blobs, Process: w.process, Scratch: w.dir, Clock: w.Clock.Now, Lease: lease,
		ODB: odb.New(odb.Config{Meta: w.Meta, Blobs: w.Blobs, Scratch: w.dir, Process: w.process}),
	})
	w.Content = content.New(content.Config{Meta: w.Meta, Blobs: w.Blobs, Process: w.process, Begin: w.Repos.Begin, Clock: w.Clock.Now})
	w.Checkpoints = checkpoint.New(checkpoint.Config{Meta: w.Meta, Content: w.Content, Process: w.process, Clock: w.Clock.Now})
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		return err
	}
	svc := service.New(service.Config{Meta: feed, Feed: feed, Engine: w.Repos, Verifier: verifier, Checkpoints: w.Checkpoints})
	w.Handler = rest.New(rest.Config{Service: svc, PublicURL: func() string { return "http://127.0.0.1" }})
	return nil
}

// Key is the org's private key as PEM.
func (w *World) Key() string { return string(w.pem) }

// Token mints a token that may read and write a thread, "*" for all.
func (w *World) Token(thread string) (string, error) {
	now := time.Now().Unix()
	return auth.Mint(w.key, "", auth.Claims{
		Org: w.Org, Subject: "tester", Thread: thread, Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite},
		IssuedAt: now, Expires: now + 24*3600,
	})
}

// Close releases what the world has.
func (w *World) Close() error { return errors.Join(w.Meta.Close(), os.RemoveAll(w.dir)) }

// Server serves many worlds on one address: the token of a request says which one
// is meant.
type Server struct {
	dir, databaseURL string

	mu     sync.Mutex
	worlds map[string]*World
}

// NewServer returns a Server of worlds below dir, or in a PostgreSQL database.
func NewServer(dir, databaseURL string) *Server {
	return &Server{dir: dir, databaseURL: databaseURL, worlds: make(map[string]*World)}
}

// Add makes a world and serves it.
func (s *Server) Add(ctx context.Context) (*World, error) {
	w, err := Open(ctx, s.dir, s.databaseURL)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worlds[w.Org] = w
	return w, nil
}

// Close releases all worlds.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, w := range s.worlds {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}

// created is the answer to POST /control/orgs.
type created struct {
	Org   string `json:"org"`
	Token string `json:"token"` // for every thread, good for a day
	Key   string `json:"key"`   // private key as PEM
}

// ServeHTTP answers the control endpoints, and what the worlds answer.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/control/orgs" {
		s.create(w, r)
		return
	}
	world := s.of(r)
	switch {
	case world == nil:
		http.Error(w, "no such world", http.StatusUnauthorized)
	case r.URL.Path == "/control/clock":
		var to struct {
			Now float64 `json:"now"`
		}
		b, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		if err != nil || json.NewDecoder(bytes.NewReader(b)).Decode(&to) != nil {
			http.Error(w, "send {\"now\": milliseconds since 1970}", http.StatusBadRequest)
			return
		}
		world.Clock.Set(time.UnixMicro(int64(to.Now * 1000)))
		w.WriteHeader(http.StatusNoContent)
	default:
		world.Handler.ServeHTTP(w, r)
	}
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	world, err := s.Add(r.Context())
	var token string
	if err == nil {
		token, err = world.Token("*")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(created{world.Org, token, world.Key()}) // the client may be gone
}

// of returns the world that the token of a request names.
func (s *Server) of(r *http.Request) *World {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(claims, &c) != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worlds[c.Issuer]
}

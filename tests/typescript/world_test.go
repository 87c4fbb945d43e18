package typescript_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
	"github.com/cairnstate/cairn/tests/world"
)

// org is what a test is given: tokens of an org that has nothing yet.
type org struct {
	URL    string   `json:"url"`
	ID     string   `json:"id"`
	Tokens []string `json:"tokens"` // one for each thread that was asked for
}

// servers is what the tests in TypeScript run against.
type servers interface {
	add(threads []string) (org, error)
	// set moves the clock of an org.
	set(id string, at time.Time) error
	// restart has the server crash and come back.
	restart() error
}

// control serves what the tests ask of servers, and returns where.
func control(t *testing.T, s servers) string {
	t.Helper()
	answer := func(rw http.ResponseWriter, v any, err error) {
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(rw).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orgs", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct{ Threads []string }
		err := json.NewDecoder(r.Body).Decode(&asked)
		if err != nil {
			answer(rw, nil, err)
			return
		}
		o, err := s.add(asked.Threads)
		answer(rw, o, err)
	})
	mux.HandleFunc("POST /clock", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID  string
			Now float64
		}
		err := json.NewDecoder(r.Body).Decode(&asked)
		if err == nil {
			err = s.set(asked.ID, time.UnixMilli(int64(asked.Now)))
		}
		answer(rw, nil, err)
	})
	mux.HandleFunc("POST /restart", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, nil, s.restart()) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// program is the built program, with the clock of the machine.
type program struct {
	*harness.Server
	orgs atomic.Int64
}

func (p *program) add(threads []string) (org, error) {
	name := fmt.Sprintf("org-%d", p.orgs.Add(1))
	file := filepath.Join(p.Dir, name+".key")
	if _, err := p.Operate("org", "create", name, "--key-out", file); err != nil {
		return org{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return org{}, err
	}
	key, err := auth.ParsePrivateKey(text)
	if err != nil {
		return org{}, err
	}
	now, o := time.Now(), org{URL: p.URL, ID: name}
	for _, thread := range threads {
		token, err := auth.Mint(key, "", auth.Claims{
			Org: name, Subject: "test", Thread: thread, Scopes: []auth.Scope{auth.CheckpointRead, auth.CheckpointWrite},
			IssuedAt: now.Unix(), Expires: now.Add(time.Hour).Unix(),
		})
		if err != nil {
			return org{}, err
		}
		o.Tokens = append(o.Tokens, token)
	}
	return o, nil
}

func (p *program) set(string, time.Time) error {
	return fmt.Errorf("the program has the clock of the machine")
}

func (p *program) restart() error {
	p.Kill()
	return p.Restart()
}

// clocked serves worlds, each with a clock of its own.
type clocked struct {
	t      *testing.T
	url    string
	worlds *world.Server
	made   sync.Map // org → *world.World
}

// onEngine serves worlds on SQLite or on PostgreSQL.
func onEngine(t *testing.T, engine string) *clocked {
	t.Helper()
	database := ""
	if engine == "Postgres" {
		database = testkit.Postgres(t)
	}
	c := &clocked{t: t, worlds: world.NewServer(t.TempDir(), database)}
	s := httptest.NewServer(c.worlds)
	c.url = s.URL
	t.Cleanup(func() {
		s.Close()
		if err := c.worlds.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *clocked) add(threads []string) (org, error) {
	w, err := c.worlds.Add(c.t.Context())
	if err != nil {
		return org{}, err
	}
	c.made.Store(w.Org, w)
	o := org{URL: c.url, ID: w.Org}
	for _, thread := range threads {
		token, err := w.Token(thread)
		if err != nil {
			return org{}, err
		}
		o.Tokens = append(o.Tokens, token)
	}
	return o, nil
}

func (c *clocked) set(id string, at time.Time) error {
	w, ok := c.made.Load(id)
	if !ok {
		return fmt.Errorf("there is no org %q", id)
	}
	w.(*world.World).Clock.Set(at)
	return nil
}

func (c *clocked) restart() error { return fmt.Errorf("worlds do not restart") }

package world_test

import (
	"net/http/httptest"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/checkpoint/storetest"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/world"
)

// TestStore holds the store behind REST to the rules of stores, on each engine,
// with an org of its own for every test.
func TestStore(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{
		"SQLite":   func(testing.TB) string { return "" },
		"Postgres": testkit.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			worlds := world.NewServer(t.TempDir(), database(t))
			server := httptest.NewServer(worlds)
			t.Cleanup(func() {
				server.Close()
				if err := worlds.Close(); err != nil {
					t.Error(err)
				}
			})
			storetest.Run(t, func(t *testing.T) (checkpoint.Store, storetest.Clock) {
				w, err := worlds.Add(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				client, err := cairn.NewClient(option.WithBaseURL(server.URL), option.WithOrg(w.Org), option.WithPrivateKey(w.Key()))
				if err != nil {
					t.Fatal(err)
				}
				return checkpoint.NewRemote(client), w.Clock
			})
		})
	}
}

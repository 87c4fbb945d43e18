package checkpoint

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/checkpoint/storetest"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestServerKeepsTheRules puts the program through the suite of stores, each test
// in an org of its own. What needs a clock that can be moved is tested with the
// service.
func TestServerKeepsTheRules(t *testing.T) {
	for name, options := range map[string]func(testing.TB) harness.Options{
		"sqlite":   func(testing.TB) harness.Options { return harness.Options{} },
		"postgres": func(tb testing.TB) harness.Options { return harness.OnPostgresAndS3(tb, harness.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.Serve(t, options(t))
			var orgs atomic.Int64
			storetest.Run(t, func(t *testing.T) (checkpoint.Store, storetest.Clock) {
				org := fmt.Sprint("org", orgs.Add(1))
				key := filepath.Join(t.TempDir(), "key.pem")
				if _, err := server.Operate("org", "create", org, "--key-out", key); err != nil {
					t.Fatal(err)
				}
				client, err := cairn.NewClient(option.WithBaseURL(server.URL), option.WithOrg(org), option.WithPrivateKey(key))
				if err != nil {
					t.Fatal(err)
				}
				store := checkpoint.NewRemote(client)
				t.Cleanup(store.Close)
				return store, nil
			})
		})
	}
}

package git_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestExpiryAndGrace asks with URLs that expired within the server's grace and
// past it.
func TestExpiryAndGrace(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--token-grace", "60s"}})
	seeded(t, s, "my-project")
	g := harness.NewGit(t)
	for age, accepted := range map[time.Duration]bool{20 * time.Second: true, 2 * time.Minute: false} {
		grant := harness.Grant{Repo: "my-project", Scopes: []auth.Scope{auth.GitRead}, Issued: time.Now().Add(-10*time.Minute - age), TTL: 10 * time.Minute}
		out, err := g.Try("ls-remote", s.Remote(grant, ""))
		if (err == nil) != accepted || !accepted && !strings.Contains(out, "Authentication failed") {
			t.Errorf("expired %s ago: %v, want accepted %t\n%s", age, err, accepted, out)
		}
	}
}

package cairn

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestStaysLight keeps the server's libraries out of the programs that use the SDK.
func TestStaysLight(t *testing.T) {
	forbidden := map[string]string{
		"github.com/ncruces/go-sqlite3":       "the embedded database is the server's",
		"github.com/jackc/pgx/v5":             "PostgreSQL is the server's",
		"github.com/minio/minio-go/v7":        "object storage is the server's",
		"github.com/spf13/cobra":              "command lines are the program's",
		"github.com/prometheus/client_golang": "metrics are the server's",
		"github.com/go-git/go-git/v5":         "it serves in tests only",
	}
	gomod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	for module, why := range forbidden {
		if !strings.Contains(string(gomod), module+" ") {
			t.Errorf("%s is no dependency any more: take it from this list", module)
		}
		for _, dep := range deps {
			if dep == module || strings.HasPrefix(dep, module+"/") {
				t.Errorf("the SDK imports %s: %s", dep, why)
			}
		}
	}
	if !strings.Contains(string(out), "github.com/cairnstate/cairn/sdk/go/git") {
		t.Errorf("go list did not see the SDK: %q", deps)
	}
}

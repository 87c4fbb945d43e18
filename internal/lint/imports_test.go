package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cairnstate/cairn/"

// layers lists every package of the module with the packages of the module that
// its production code may import. It is the picture in docs/architecture.md as
// data: an arrow that is not here does not exist.
var layers = map[string][]string{
	"internal/fsx":               {},
	"internal/chunk":             {},
	"internal/tree":              {},
	"internal/ignore":            {},
	"internal/frame":             {"internal/tree"},
	"internal/workspace":         {"internal/chunk", "internal/tree", "internal/ignore"},
	"internal/git/object":        {},
	"internal/git/refname":       {},
	"internal/git/pktline":       {},
	"internal/git/delta":         {},
	"internal/git/notetree":      {"internal/git/object"},
	"internal/git/pack":          {"internal/git/object", "internal/git/delta"},
	"internal/git/wire":          {"internal/git/object", "internal/git/pktline", "internal/git/refname"},
	"internal/git/wire/wiretest": {"internal/git/wire", "internal/git/object", "internal/git/pktline"},
	"internal/policy":            {},
	"internal/signature":         {},
	"internal/auth":              {"internal/policy"},
	"internal/blob":              {},
	"internal/blob/blobtest":     {"internal/blob", "internal/fsx"},
	"internal/blob/mem":          {"internal/blob"},
	"internal/blob/dir":          {"internal/blob", "internal/fsx"},
	"internal/blob/s3":           {"internal/blob", "internal/lru"},
	"internal/blob/cache":        {"internal/blob", "internal/fsx"},
	"internal/meta":              {"internal/git/object"},
	"internal/meta/metatest":     {"internal/meta", "internal/git/object"},
	"internal/meta/sqlstore":     {"internal/meta", "internal/git/object", "internal/git/refname", "internal/fsx"},
	"internal/events":            {"internal/meta"},
	"internal/webhook":           {"internal/events", "internal/meta", "internal/netguard", "internal/secret", "internal/git/refname"},
	"internal/lru":               {},
	"internal/odb":               {"internal/lru", "internal/blob", "internal/meta", "internal/git/object", "internal/git/pack", "internal/git/delta"},
	"internal/content":           {"internal/blob", "internal/frame", "internal/lru", "internal/meta", "internal/tree"},
	"internal/graph":             {"internal/odb", "internal/meta", "internal/git/object", "internal/git/pack"},
	"internal/secret":            {},
	"internal/netguard":          {},
	"internal/gitcmd":            {"internal/git/object"},
	"internal/grep":              {},
	"internal/task":              {"internal/gitcmd", "internal/meta", "internal/odb", "internal/git/object", "internal/git/pack"},
	"internal/blame":             {"internal/task", "internal/gitcmd", "internal/graph", "internal/git/object"},
	"internal/merge":             {"internal/task", "internal/gitcmd", "internal/graph", "internal/odb", "internal/git/object"},
	"internal/patch":             {"internal/task", "internal/gitcmd", "internal/odb", "internal/git/object"},
	"internal/repo":              {"internal/secret", "internal/signature", "internal/blame", "internal/patch", "internal/events", "internal/gitcmd", "internal/grep", "internal/task", "internal/merge", "internal/lru", "internal/graph", "internal/odb", "internal/blob", "internal/meta", "internal/policy", "internal/git/object", "internal/git/notetree", "internal/git/pack", "internal/git/refname", "internal/git/wire"},
	"internal/tree/treetest":     {"internal/chunk", "internal/tree"},
	"internal/repo/repotest":     {"internal/graph", "internal/odb", "internal/blob", "internal/blob/mem", "internal/meta", "internal/meta/sqlstore", "internal/git/object", "internal/git/pack"},
	"internal/checkpoint":        {"internal/content", "internal/chunk", "internal/frame", "internal/lru", "internal/meta", "internal/tree"},
	"internal/upstream":          {"internal/events", "internal/repo", "internal/meta", "internal/policy", "internal/secret", "internal/netguard", "internal/git/object", "internal/git/pktline", "internal/git/refname"},
	"internal/service":           {"internal/chunk", "internal/graph", "internal/ignore", "internal/checkpoint", "internal/content", "internal/frame", "internal/tree", "internal/upstream", "internal/secret", "internal/signature", "internal/events", "internal/webhook", "internal/netguard", "internal/repo", "internal/auth", "internal/policy", "internal/meta", "internal/git/object", "internal/git/refname", "internal/git/wire"},
	"internal/githttp":           {"internal/git/wire", "internal/git/object", "internal/git/pktline"},
	"internal/rest":              {"internal/checkpoint", "internal/frame", "internal/tree", "internal/upstream", "internal/webhook", "internal/service", "internal/repo", "internal/auth", "internal/policy", "internal/meta", "internal/git/object", "internal/git/refname", "api"},
	"internal/obs":               {},
	"internal/config":            {},
	"internal/server":            {"internal/checkpoint", "internal/content", "internal/upstream", "internal/events", "internal/webhook", "internal/git/wire", "internal/rest", "internal/githttp", "internal/service", "internal/repo", "internal/odb", "internal/auth", "internal/meta", "internal/meta/sqlstore", "internal/blob", "internal/blob/dir", "internal/blob/s3", "internal/blob/cache", "internal/fsx", "internal/config", "internal/obs", "internal/policy", "internal/secret", "internal/netguard"},
	"internal/cli":               {"internal/content", "internal/webhook", "internal/server", "internal/rest", "internal/config", "internal/service", "internal/auth", "internal/policy", "internal/meta", "internal/repo", "internal/obs", "sdk/go", "sdk/go/checkpoint", "sdk/go/git", "sdk/go/option", "api"},
	"cmd/cairn":                  {"internal/cli"},
	"api":                        {},
	"sdk/go":                     {"internal/auth", "internal/policy", "sdk/go/option", "api"},
	"sdk/go/git":                 {"sdk/go", "sdk/go/option", "internal/policy"},
	"sdk/go/option":              {},
	"sdk/go/checkpoint":          {"sdk/go", "internal/chunk", "internal/frame", "internal/workspace", "internal/tree", "internal/ignore", "api"},
	"internal/lint":              {},

	"sdk/go/checkpoint/storetest": {"sdk/go/checkpoint"},
}

// anyImports are packages of tests and measurements; what they import is free,
// and nothing of the product imports them.
var anyImports = []string{"internal/testkit", "tests/", "bench"}

// owners lists the libraries that exactly these packages may import, with the
// reason.
var owners = map[string]struct {
	pkgs []string
	why  string
}{
	"github.com/ncruces/go-sqlite3":         {[]string{"internal/meta/sqlstore"}, "one package knows the embedded database"},
	"github.com/jackc/pgx":                  {[]string{"internal/meta/sqlstore"}, "one package knows PostgreSQL"},
	"github.com/pressly/goose":              {[]string{"internal/meta/sqlstore"}, "migrations belong to the store"},
	"github.com/minio/minio-go":             {[]string{"internal/blob/s3"}, "one package knows S3"},
	"github.com/golang-jwt/jwt":             {[]string{"internal/auth"}, "tokens are made and checked in one place"},
	"github.com/spf13/cobra":                {[]string{"internal/cli"}, "flags stay at the edge"},
	"github.com/prometheus/client_golang":   {[]string{"internal/obs", "internal/server"}, "metrics are wired where the server is composed"},
	"github.com/goccy/go-yaml":              {[]string{"internal/config"}, "the file format of the configuration is a detail"},
	"github.com/bmatcuk/doublestar":         {[]string{"internal/repo"}, "archive globs have one dialect"},
	"github.com/PlakarKorp/go-cdc-chunkers": {[]string{"internal/chunk"}, "cut points are part of the format, kept in one place"},
	"github.com/go-git/go-git":              {nil, "an oracle for tests only"},
	"net/http":                              {[]string{"internal/githttp", "internal/rest", "internal/server", "internal/cli", "internal/obs", "internal/blob/s3", "internal/netguard", "internal/upstream", "internal/webhook", "sdk/go", "sdk/go/checkpoint"}, "below the handlers nothing knows HTTP"},
	"github.com/pjbgf/sha1cd":               {[]string{"internal/git/object", "internal/git/pack"}, "collision detection is a property of objects"},
	"github.com/klauspost/compress":         {[]string{"internal/checkpoint", "internal/git/pack", "internal/repo", "internal/odb", "internal/githttp", "internal/frame", "internal/content"}, "compression is part of the formats"},
}

type pkgInfo struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
	Dir        string
}

func packages(t *testing.T) []pkgInfo {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles,Dir", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkgInfo
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkgInfo
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		if len(p.GoFiles) > 0 {
			pkgs = append(pkgs, p)
		}
	}
	if len(pkgs) < 10 {
		t.Fatalf("go list found %d packages", len(pkgs))
	}
	return pkgs
}

func free(pkg string) bool {
	return slices.ContainsFunc(anyImports, func(p string) bool { return strings.HasPrefix(pkg, p) })
}

func TestImportDirection(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if free(pkg) {
			continue
		}
		seen[pkg] = true
		allowed, ok := layers[pkg]
		if !ok {
			t.Errorf("package %s is not in the import table; add it where the picture in docs/architecture.md has it", pkg)
			continue
		}
		for _, imp := range p.Imports {
			if dep, inside := strings.CutPrefix(imp, module); inside {
				if !slices.Contains(allowed, dep) {
					t.Errorf("%s imports %s, which points against the direction of the layers", pkg, dep)
				}
				continue
			}
			for lib, rule := range owners {
				if (imp == lib || strings.HasPrefix(imp, lib+"/")) && !slices.Contains(rule.pkgs, pkg) {
					t.Errorf("%s imports %s: %s", pkg, imp, rule.why)
				}
			}
		}
	}
	for pkg := range layers {
		if !seen[pkg] {
			t.Errorf("the import table names %s, which does not exist", pkg)
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range packages(t) {
		if strings.TrimSpace(p.Doc) == "" {
			t.Errorf("package %s has no doc comment", p.ImportPath)
		}
	}
}

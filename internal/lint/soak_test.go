package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSoakRunsLongForms looks for tests with a long form that the pattern of `make
// soak` passes over.
func TestSoakRunsLongForms(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`CAIRN_SOAK=1 .* -run '([^']+)'`).FindSubmatch(makefile)
	if found == nil {
		t.Fatal("the Makefile has no soak with a pattern")
	}
	soaked := regexp.MustCompile(string(found[1]))
	long := 0
	for _, root := range []string{"../../internal", "../../tests"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(f.Name.Name, "Test") || !soaks(f) {
					continue
				}
				long++
				if !soaked.MatchString(f.Name.Name) {
					t.Errorf("%s: make soak does not run the long form of %s", path, f.Name.Name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if long < 10 {
		t.Errorf("%d tests have a long form; the search finds too few", long)
	}
}

// soaks reports whether a function asks for its long form.
func soaks(f *ast.FuncDecl) bool {
	asks := false
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		asks = asks || ok && s.Sel.Name == "Soaking"
		return true
	})
	return asks
}

package patch

import (
	"errors"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/task"
)

// FuzzScan reads anything: it ends, and with one of the refusals that are meant.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "words\n",
		"diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@ func\n a\n-b\n+c\n\\ No newline at end of file\n",
		"diff --git \"a/\\303\\274 b\" \"b/\\303\\274 b\"\nold mode 100644\nnew mode 100755\n",
		"diff --git a/a b/c b/a b/c\nnew file mode 100644\n", "diff --git a/x \"b/\\056git\"\n",
		"diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n",
		"--- f\t2026-01-01\n+++ f\n@@ -1 +1 @@\n-a\n+b\n--- d/g\n+++ d/g\n@@ -1 +1 @@\n-a\n+b\n",
		"diff --git a/b b/b\nnew file mode 100644\nGIT binary patch\nliteral 4\nLcmZQzU|?iu00IC2\n\nliteral 0\nHcmV?d00001\n\n",
		"diff --git a/b b/b\nGIT binary patch\ndelta 4\nLcmZQzU|?iu00IC2\n\n",
		"@@ -1 +1 @@\n", "--- a\n+++ b\n@@ -1,999999999999 +1 @@\n", "--- a/" + strings.Repeat("x/", 5000) + "\n+++ /dev/null\n@@ -1 +0,0 @@\n-\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sections, err := scan(strings.NewReader(text))
		var (
			bad   *MalformedError
			path  *PathError
			limit *task.LimitError
		)
		if err != nil && !errors.As(err, &bad) && !errors.As(err, &path) && !errors.As(err, &limit) {
			t.Fatal(err)
		}
		for _, s := range sections {
			for _, n := range s.names {
				if n == "" || strings.HasPrefix(n, "/") || strings.Contains("/"+n+"/", "/../") || strings.Contains("/"+n+"/", "/.git/") {
					t.Fatalf("name %q of %q", n, text)
				}
			}
		}
	})
}

// TestSections tells the names of files as git reads them.
func TestSections(t *testing.T) {
	for text, want := range map[string]string{
		"diff --git a/f b/f\nindex 1..2\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n":                                "f",
		"diff --git a/a b/c b/a b/c\nnew file mode 100644\n":                                                     "a b/c",
		"diff --git a/x b/y\nrename from x\nrename to dir/y\n":                                                   "x,dir/y",
		"diff --git \"a/\\303\\274\\t\" \"b/\\303\\274\\t\"\ndeleted file mode 100644\n":                         "ü\t",
		"--- a/dir/f\t2026-01-01\n+++ b/dir/f\n@@ -1 +1 @@\n-- x/y\n++ x/y\n":                                    "dir/f",
		"--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n":                                                                    "f",
		"--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+a\ndiff --git a/m b/m\nold mode 100644\nnew mode 100755\n":      "n,m",
		"mail\n\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n diff --git a/x b/x\n-@@ -1 +1 @@\n-- \n2": "f",
	} {
		sections, err := scan(strings.NewReader(text))
		var names []string
		for _, s := range sections {
			names = append(names, s.names...)
		}
		if got := strings.Join(names, ","); err != nil || got != want {
			t.Errorf("%q: %q, want %q: %v", text, got, want, err)
		}
	}
}

// TestQuote reads what it writes.
func TestQuote(t *testing.T) {
	for name, want := range map[string]string{"a b": "a b", "a\"b": `"a\"b"`, "ü\n": `"\303\274\n"`, "\x7f\x00": `"\177\000"`} {
		if got := quote(name, false); got != want {
			t.Errorf("%q is quoted as %s", name, got)
		}
		if back, rest, ok := unquote(quote(name, true) + " x"); !ok || back != name || rest != " x" {
			t.Errorf("%q comes back as %q, %q", name, back, rest)
		}
	}
	for _, bad := range []string{"", "x", `"`, `"\`, `"\4"`, `"\400"`, `"\08x"`, `"\q"`} {
		if name, _, ok := unquote(bad); ok {
			t.Errorf("%s is read as %q", bad, name)
		}
	}
}

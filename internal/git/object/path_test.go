package object

import (
	"errors"
	"strings"
	"testing"
)

// dotGitNames are single path segments; true marks those that some file system
// takes for ".git".
var dotGitNames = map[string]bool{
	".git": true, ".GIT": true, ".Git": true, ".giT": true,
	"git~1": true, "GIT~1": true, "Git~1": true,
	".git ": true, ".git.": true, ".git...": true, ".git . .": true, "git~1 ": true, "git~1.": true,
	".git::$INDEX_ALLOCATION": true, ".git:stream": true, ".GIT::$index_allocation": true, "git~1:x": true, ".git :x": true,
	"\u200c.git": true, ".g\u200dit": true, ".gi\u200et": true, ".git\u200f": true, ".g\u202ait": true, ".git\u202e": true,
	"\ufeff.git": true, ".gi\u206at": true, ".GI\u206fT": true, "\u200c\u200d.g\u200eit": true,
	".git\xff": true, ".git\ufffe": true,

	".gitx": false, ".gi": false, "git": false, "GIT": false, "git~2": false, "git~11": false, "xgit~1": false,
	".git~1": false, ".gitignore": false, ".gitmodules": false, ".gitattributes": false, ".github": false,
	"a.git": false, ".git-": false, ".git x": false, ". git": false, " .git": false, "..git": false,
	".git\u00e9": false, "\u200b.git": false, ".g\u0131t": false, "\uff0egit": false, "\xff.git": false, ".gi\xfft": false,
}

func TestCheckPath(t *testing.T) {
	rows := []struct {
		path string
		ok   bool
	}{
		{"a", true},
		{"a/b/c.txt", true},
		{"README.md", true},
		{"...", true},
		{"a/.../b", true},
		{".a", true},
		{"a.", true},
		{"a b", true},
		{" ", true},
		{"-rf", true},
		{"ü/日本", true},
		{"a\nb", true},
		{"CON", true},
		{"a:b", true},
		{strings.Repeat("x", MaxPath), true},
		{"", false},
		{"/", false},
		{"/a", false},
		{"//a", false},
		{"a/", false},
		{"a//b", false},
		{".", false},
		{"./a", false},
		{"a/.", false},
		{"a/./b", false},
		{"..", false},
		{"../a", false},
		{"a/..", false},
		{"a/../../etc/passwd", false},
		{"a\x00b", false},
		{"a/b\x00", false},
		{`a\b`, false},
		{`\`, false},
		{`a\.git`, false},
		{`.git\config`, false},
		{`..\a`, false},
		{strings.Repeat("x", MaxPath+1), false},
		{strings.Repeat("x/", MaxPath/2) + "x", false},
		{".git/config", false},
		{"a/.git/hooks/post-checkout", false},
	}
	for name, bad := range dotGitNames {
		for _, path := range []string{name, "a/" + name, name + "/a"} {
			rows = append(rows, struct {
				path string
				ok   bool
			}{path, !bad})
		}
	}
	for _, row := range rows {
		err := CheckPath(row.path)
		if (err == nil) != row.ok {
			t.Errorf("CheckPath(%.60q) = %v, want ok %t", row.path, err, row.ok)
		}
		if err == nil {
			continue
		}
		refusal, ok := errors.AsType[*PathError](err)
		if !ok || refusal.Path != row.path || refusal.Reason == "" || len(refusal.Error()) > 1000 {
			t.Errorf("CheckPath(%.60q) = %#v, want a short PathError about it", row.path, err)
		}
	}
	if len(rows) < 80 {
		t.Errorf("only %d rows", len(rows))
	}
}

func FuzzCheckPath(f *testing.F) {
	for name := range dotGitNames {
		f.Add("a/" + name)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if CheckPath(path) != nil {
			return
		}
		// What is accepted makes trees that Check accepts.
		for segment := range strings.SplitSeq(path, "/") {
			if err := Check(Tree, []byte(entry("100644", segment))); err != nil {
				t.Fatalf("CheckPath(%q) accepts what Check refuses: %v", path, err)
			}
		}
	})
}

package ignore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
)

func compile(t testing.TB, p Policy) *Matcher {
	t.Helper()
	m, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// taken walks up from path as a walk down would meet it.
func taken(m *Matcher, path string, dir bool) bool {
	within := false
	for i := range len(path) {
		if path[i] == '/' {
			v := m.Match(path[:i], true, within)
			if v == Skip {
				return false
			}
			within = within || v == Take
		}
	}
	return m.Match(path, dir, within) == Take
}

func TestDefaultLeavesOutWhatItSays(t *testing.T) {
	m := compile(t, Policy{Base: Default})
	for path, want := range map[string]bool{
		"a": true, ".git": false, "a/.git": false, ".git/config": false, ".gitignore": true, "x/node_modules/y": false,
		".env": false, ".env.local": false, "a/.envrc": false, "env": true, ".Env": true,
	} {
		if got := taken(m, path, strings.HasSuffix(path, "node_modules")); got != want {
			t.Errorf("%s: taken %v, want %v", path, got, want)
		}
	}
	if m := compile(t, Policy{Base: Full}); !taken(m, ".git/config", false) {
		t.Error("full leaves something out")
	}
}

func TestIncludeAndExclude(t *testing.T) {
	m := compile(t, Policy{Base: Default, Include: []string{"src/", "*.md"}, Exclude: []string{"*.tmp", "/src/secret"}})
	for path, want := range map[string]bool{
		"src/a": true, "deep/src/a": true, "README.md": true, "a/b.md": true, "other": false, "src/a.tmp": false,
		"src/secret": false, "a/src/secret": true, "src/.env": false, "srcs/a": false,
	} {
		if got := taken(m, path, false); got != want {
			t.Errorf("%s: taken %v, want %v", path, got, want)
		}
	}
	if v := m.Match("other", true, false); v != Descend {
		t.Errorf("a directory that is not included: %v", v)
	}
}

func TestPoliciesSurviveStorage(t *testing.T) {
	for _, p := range []Policy{{Base: Default}, {Base: Full, Exclude: []string{"a\nb"}}, {Base: Rules, Rules: "*.o\n!keep.o\n", Include: []string{"x"}}} {
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(p) {
			t.Errorf("%+v is read as %+v: %v", p, got, err)
		}
	}
	for _, bad := range []string{"", "{}", `{"version":2,"base":"full"}`, `{"version":1,"base":"x"}`, `{"version":1,"base":"full","more":1}`,
		`{"version":1,"base":"full"} `, `{"version":1,"base":"full","rules":"a"}`, `{"version":1,"base":"full","exclude":["!a"]}`, `{"version":1,"base":"full","exclude":["/"]}`} {
		if _, err := Decode([]byte(bad)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, p := range []Policy{{Base: Rules, Rules: "\xff"}, {Base: Full, Include: []string{"\xff"}}, {Base: Full, Exclude: []string{strings.Repeat("a", maxRules+1)}}} {
		if _, err := p.Encode(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20v: %v", p, err)
		}
	}
}

func TestQuoteMatchesThePathAlone(t *testing.T) {
	for _, path := range []string{"a", "a/b c ", "we*ird[x]?\\y", "new\nline", "é", "!x", "#x", "a\xffb"} {
		m := compile(t, Policy{Base: Full, Exclude: []string{Quote(path)}})
		if taken(m, path, false) {
			t.Errorf("%q is not excluded by %q", path, Quote(path))
		}
		for _, other := range []string{"x/" + path, path + "x", strings.Replace(path, "*", "Z", 1) + "y"} {
			if !taken(m, other, false) {
				t.Errorf("%q is excluded by %q", other, Quote(path))
			}
		}
	}
}

func TestAHostilePatternEnds(t *testing.T) {
	text := strings.Repeat("**/a*", 40) + "b"
	m := compile(t, Policy{Base: Full, Exclude: []string{text}})
	if !taken(m, strings.Repeat("aaaa/", 500)+"a", false) {
		t.Error("it matches")
	}
}

// TestRulesAgreeWithGit makes random rules and paths and asks git check-ignore.
func TestRulesAgreeWithGit(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 2))
	fixed := []string{"a/\n!a/b\n", "*.c\n!b.c\n/a\n", "a/**/c\n**/b\nc/**\n", "[a-c]\n[!a]x\n[^b]c\n[[:alpha:]]1\n[]a]\n[a\n[[:bad:]]\n", "\\!a\n\\#b\na\\ \nb  \nc\\\n\\a\n",
		"#a\n\n!\n/\n//\n***\n", "\ufeffa\r\nb\r\n", "a**b\na/*\n*/b\n**\n!a/\n", "[a-\\c]\n[\\]]\n[a-]\n[--0]\n[[:a]\n"}
	for round := range 40 {
		rules := ""
		if round < len(fixed) {
			rules = fixed[round]
		} else {
			for range 1 + rng.IntN(6) {
				for range 1 + rng.IntN(7) {
					rules += string("aabbc1x!*?*/[]-\\^ :."[rng.IntN(20)])
				}
				rules += "\n"
			}
		}
		compareWithGit(t, rng, rules)
	}
}

func compareWithGit(t *testing.T, rng *rand.Rand, rules string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for range 80 {
		path := ""
		for range 1 + rng.IntN(4) {
			name := ""
			for range 1 + rng.IntN(3) {
				name += string("aaabbbccc1x!#. ]-\\"[rng.IntN(18)])
			}
			if name = strings.Trim(name, "."); name == "" {
				name = "a"
			}
			path += "/" + name
		}
		if os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755) != nil || os.WriteFile(filepath.Join(dir, path), nil, 0o644) != nil {
			continue
		}
		paths[path[1:]] = false
		for i := range path {
			if i > 0 && path[i] == '/' {
				paths[path[1:i]] = true
			}
		}
	}
	var in bytes.Buffer
	for p := range paths {
		in.WriteString(p + "\x00")
	}
	cmd := exec.Command("git", "-C", dir, "-c", "core.excludesFile=/dev/null", "check-ignore", "-z", "--stdin")
	cmd.Stdin = &in
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatalf("git check-ignore: %v", err)
	}
	ignored := map[string]bool{}
	for p := range strings.SplitSeq(string(out), "\x00") {
		ignored[p] = true
	}
	m := compile(t, Policy{Base: Rules, Rules: rules})
	for p, isDir := range paths {
		if got := taken(m, p, isDir); got == ignored[p] {
			t.Errorf("rules %q: %q (directory %v): taken %v, git ignores %v", rules, p, isDir, got, ignored[p])
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"**/a", "[a-", "[[:alpha:]]", "a\\", "*/*", "**"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, rules, path string) {
		m, err := Compile(Policy{Base: Rules, Rules: rules})
		if err != nil {
			return
		}
		m.Match(path, true, false)
		if path == "" || strings.Contains(path, "\x00") {
			return
		}
		q, err := Compile(Policy{Base: Full, Exclude: []string{Quote(path)}})
		if err == nil && !strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && q.Match(path, false, false) != Skip {
			t.Errorf("%q is not matched by %q", path, Quote(path))
		}
	})
}

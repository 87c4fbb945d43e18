package object

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// modules is a .gitmodules file with one setting of a submodule.
func modules(key, value string) string {
	return fmt.Sprintf("[submodule \"lib\"]\n\tpath = lib\n\t%s = %s\n", key, value)
}

// gitmodulesFiles are .gitmodules files with the fault that git finds in them.
var gitmodulesFiles = map[string]string{
	"":                                                      "",
	"# nothing\n; here":                                     "",
	"no section = 1\n":                                      "",
	"[core]\n\turl = -x\n":                                  "",
	"[submodule]\nurl = -x":                                 "",
	modules("url", "-uphack"):                               "gitmodulesUrl",
	modules("URL", `"-x"`):                                  "gitmodulesUrl",
	modules("url", `\"-x\"`):                                "",
	modules("url", "\\\n-x"):                                "gitmodulesUrl",
	modules("url", "x # -y"):                                "",
	modules("url", "x\n-y=1"):                               "",
	modules("path", "-p"):                                   "gitmodulesPath",
	modules("path", "p -q"):                                 "",
	modules("path", "../p"):                                 "",
	modules("path", ""):                                     "",
	modules("update", "!sh"):                                "gitmodulesUpdate",
	modules("update", `" !"`):                               "",
	modules("update", "none"):                               "",
	modules("command", "!sh"):                               "",
	"[submodule \"lib\"]\nurl\npath\nupdate\n":              "",
	"[submodule \"lib\"]\nurl = a\nurl = -b\n":              "gitmodulesUrl",
	"[submodule \"lib\"] url = -x":                          "gitmodulesUrl",
	"[submodule \"lib\"]\r\n\turl = -x\r\n":                 "gitmodulesUrl",
	"[SubModule \"Lib\"]\nUrl = -x":                         "gitmodulesUrl",
	"[submodule.lib]\nurl = -x":                             "gitmodulesUrl",
	"[submodule.a.b]\nurl = -x":                             "gitmodulesUrl",
	"[submodule \"\"]\nurl = x":                             "gitmodulesName",
	"[submodule \"\"]\nfoo":                                 "gitmodulesName",
	"[submodule \"\"]\n":                                    "",
	"[submodule \"..\"]\nurl = x":                           "gitmodulesName",
	"[submodule \"../x\"]\nurl = x":                         "gitmodulesName",
	"[submodule \"a/../x\"]\nurl = x":                       "gitmodulesName",
	"[submodule \"a\\\\..\\\\x\"]\nurl = x":                 "gitmodulesName",
	"[submodule \"a/..\"]\nurl = x":                         "gitmodulesName",
	"[submodule \"a/..b\"]\nurl = x":                        "",
	"[submodule \"a..\"]\nurl = x":                          "",
	"[submodule \"..a/b\"]\nurl = x":                        "",
	"[submodule \"\\../x\"]\nurl = x":                       "gitmodulesName",
	"[submodule \"a\x00/../x\"]\nurl = -x":                  "",
	"[submodule \"../x.url\x00\"]\nfoo = 1":                 "gitmodulesName",
	"[submodule \"lib\"]\nurl = x\x00\npath = -x":           "gitmodulesPath",
	"[submodule \"lib\"]\nurl = \x00-x":                     "",
	"[submodule \"lib\"]\nurl = x\nbad key\nurl = -x\n":     "",
	"[submodule \"lib\"]\nurl = -x\nbad key\n":              "gitmodulesUrl",
	"[submodule \"lib\"]\nurl = \"x\nurl = -y\n":            "",
	"[submodule \"lib\"]\nurl = \\q\n":                      "",
	"[submodule \"lib\"\nurl = -x\n":                        "",
	"[submodule \"lib\" ]\nurl = -x\n":                      "",
	"[submodule\t\"lib\"]\nurl = -x\n":                      "gitmodulesUrl",
	"[submodule\n\"lib\"]\nurl = -x\n":                      "",
	"[submodule lib]\nurl = -x\n":                           "",
	"[sub_module \"lib\"]\n[submodule \"lib\"]\nurl = -x\n": "",
	"[a \"b\"]\nx=\n[submodule \"lib\"]\nurl=-x":            "gitmodulesUrl",
	"url = -x\n[submodule \"lib\"]\nurl=y":                  "",
	"[submodule \"lib\"]\nurl = -x ; [\n# ]\n1":             "gitmodulesUrl",
	"[submodule \"lib\"]\n1url = -x":                        "",
	"[submodule \"lib\"]\n-url = x":                         "",
	"[submodule \"lib\"]\n\turl\t \t=\t \"-\"x":             "gitmodulesUrl",
	"[submodule \"lib\"]\n\turl\v= -x":                      "",
}

// submoduleURLs are URLs that git takes (false) or refuses.
var submoduleURLs = map[string]bool{
	"https://example.com/x.git": false, "git@example.com:x.git": false, "ssh://example.com/-x": false, "/srv/x": false, "file:///x": false,
	"../x.git": false, "./x.git": false, "./-x": false, "../../x": false, "..": false, ".": false, "x/../:y": false,
	"-x": true, "--upload-pack=x": true,
	"../:x": true, "..//x": true, "../:": true, "./../:x": true, "..//": true, "./:x": false, ".//x": false, `..\:x`: true, `..\/x`: true, ".././/x": true,
	"./x%0ay": true, "./x%0Ay": true, "../%0a": true, "./x%0": false, "./x%0g": false, "./a:%0a": true, "./%0a:b": false, "./%00%0a": true,
	"http://": true, "http:///x": true, "https:///x.git": true, "ftp://": true, "ftps:///": true, "https://?x": true, "https://#x": true,
	"https://x?%0a": true, "https://x/%0a": true, "https://x%0a/": true, "https://u%0a@x/": true, "https://u:p%0a@x/": true, "https://u:p@x/": false,
	"https://@x/": false, "https://:@x/": false, "https://u@/x": true, "https://u:p@": true, "https://x@y@z/": false, "https://x/@%0a": true,
	"https://x:80%0a/": true, "https://x%0a:80/": false, "https://u:a%0a:b@x/": false, "https://u:a:b%0a@x/": true,
	"http::x": true, "https::example.com/x": true, "http::https://example.com/x": false, "http::://x": true, "ftp::file://x/y": false, "http::https:///": true,
	"HTTPS:///x": false, "httpx:///": false, "http:/x": false, "https:": false, "git::https:///x": false, "https://[::1]/x": false,
	"https://x/%": false, "https://x/%0": false, "https://%00/x": false, "https:////x": true, "https://x////": false,
}

// gitmodulesCandidates returns every file of known verdict.
func gitmodulesCandidates() map[string]string {
	all := make(map[string]string)
	for text, want := range gitmodulesFiles {
		all[text] = want
	}
	for url, bad := range submoduleURLs {
		all[modules("url", `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(url)+`"`)] = map[bool]string{true: "gitmodulesUrl"}[bad]
	}
	return all
}

func gitmodulesVerdict(t *testing.T, text string) string {
	t.Helper()
	err := CheckGitmodules([]byte(text))
	if err == nil {
		return ""
	}
	refusal, ok := errors.AsType[*CheckError](err)
	if !ok || refusal.Type != Blob || refusal.ID == "" || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
		t.Fatalf("CheckGitmodules(%q) = %q, want a CheckError of one line", text, err)
	}
	return refusal.ID
}

func TestCheckGitmodules(t *testing.T) {
	for text, want := range gitmodulesCandidates() {
		if got := gitmodulesVerdict(t, text); got != want {
			t.Errorf("CheckGitmodules(%q) = %q, want %q", text, got, want)
		}
	}
	if got := gitmodulesVerdict(t, strings.Repeat("\n", MaxGitmodules+1)); got != "gitmodulesLarge" {
		t.Errorf("a large file: %q", got)
	}
	if got := gitmodulesVerdict(t, strings.Repeat("\n", MaxGitmodules)); got != "" {
		t.Errorf("a file of the greatest size: %q", got)
	}
}

// TestCheckGitmodulesStricter has what git reads otherwise from a blob than from
// the file that it checks out: where chars have a sign it finds no byte order
// mark, and the end at a byte 0xff.
func TestCheckGitmodulesStricter(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff" + modules("url", "-x"):                 "gitmodulesUrl",
		"\ufeff":                                        "",
		"\xef\xbb" + modules("url", "-x"):               "",
		"# \xff\n" + modules("url", "-x"):               "gitmodulesUrl",
		"[submodule \"\xff\"]\nurl = \xff\npath = -x\n": "gitmodulesPath",
	} {
		if got := gitmodulesVerdict(t, text); got != want {
			t.Errorf("CheckGitmodules(%q) = %q, want %q", text, got, want)
		}
	}
}

// randomGitmodules puts pieces together that matter to one parser or the other.
func randomGitmodules(rng *rand.Rand) string {
	pieces := []string{
		"[submodule \"lib\"]\n", "[submodule \"a/../b\"]\n", "[submodule \"\"]", "[submodule.x]\n", "[core]", "[submodule \"a\\\"b\"]\r\n", "[a.b \"c\"]\n",
		"url = ", "url = -", "url=\"../", "url = https://", "path = -", "update = !", "path=", "\tupdate\t= ", "URL =", "url\n", "name-1 = ", "-x", "!x", "https://", "http::", "../", "./", ":", "//", "%0a", "%0A", "%00", "@", "?",
		"\n", "\r\n", "\r", " ", "\t", "\"", "\\", "\\\n", "\\n", "\\t", "#", ";", "[", "]", "=", ".", "\x00", "x", "é", "\v", "_", "1",
	}
	var b strings.Builder
	if rng.IntN(8) > 0 {
		b.WriteString(pieces[rng.IntN(4)])
	}
	for range 1 + rng.IntN(9) {
		b.WriteString(pieces[rng.IntN(len(pieces))])
	}
	return b.String()
}

// TestCheckGitmodulesAgainstGit compares with git fsck on the tables, on random
// mutations of them, and on random files.
func TestCheckGitmodulesAgainstGit(t *testing.T) {
	known := gitmodulesCandidates()
	var texts []string
	for text := range known {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	seeds := len(texts)
	rng := rand.New(rand.NewPCG(3, 4))
	for len(texts) < 2500 {
		if text := mutate(rng, texts[rng.IntN(seeds)]+"\n"); !strings.Contains(text, "\xff") {
			texts = append(texts, text)
		}
	}
	for range 4000 {
		texts = append(texts, randomGitmodules(rng))
	}
	var objects []candidate
	for _, text := range texts {
		blob := Hash(Blob, []byte(text))
		objects = append(objects, candidate{typ: Blob, content: text}, candidate{typ: Tree, content: "100644 .gitmodules\x00" + string(blob[:])})
	}
	faults := fsck(t, objects)
	agreed := map[bool]int{}
	for _, text := range texts {
		git, ours := faults[Hash(Blob, []byte(text))], gitmodulesVerdict(t, text)
		if (len(git) > 0) != (ours != "") || ours != "" && !slices.Contains(git, ours) {
			t.Errorf("%q: CheckGitmodules says %q, git %q", text, ours, git)
			continue
		}
		agreed[ours == ""]++
	}
	t.Logf("agreed on %d good and %d bad files", agreed[true], agreed[false])
	if agreed[true] < 500 || agreed[false] < 500 {
		t.Errorf("too few files of one kind for a comparison: %v", agreed)
	}
}

func FuzzCheckGitmodules(f *testing.F) {
	for text := range gitmodulesCandidates() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := CheckGitmodules(text); err != nil {
			if _, ok := errors.AsType[*CheckError](err); !ok {
				t.Errorf("%v is no CheckError", err)
			}
		}
	})
}

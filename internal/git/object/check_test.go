package object

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	hexTree   = "1111111111111111111111111111111111111111"
	hexParent = "3333333333333333333333333333333333333333"
	hexBlob   = "2222222222222222222222222222222222222222"
	hexTag    = "4444444444444444444444444444444444444444"
	ident     = "Ann Other <ann@example.com> 1700000000 +0130"
)

// entry writes one raw tree entry.
func entry(mode, name string) string {
	id := "bbbbbbbbbbbbbbbbbbbb"
	if strings.HasPrefix(mode, "40") || strings.HasPrefix(mode, "040") {
		id = "tttttttttttttttttttt"
	}
	return mode + " " + name + "\x00" + id
}

// commit writes a commit from its lines.
func commit(lines ...string) string { return strings.Join(lines, "\n") }

type candidate struct {
	typ     Type
	content string
	want    string // Check's message id, or "" for a good object
}

// candidates are objects with the verdict that they deserve.
var candidates = []candidate{
	{Tree, "", ""},
	{Tree, entry("100644", "a") + entry("100755", "b") + entry("120000", "c") + entry("40000", "d") + entry("160000", "e"), ""},
	{Tree, entry("100644", "a.c") + entry("40000", "a"), ""},
	{Tree, entry("40000", "a") + entry("100644", "a.c"), "treeNotSorted"},
	{Tree, entry("100644", "b") + entry("100644", "a"), "treeNotSorted"},
	{Tree, entry("100644", "a") + entry("100644", "a"), "duplicateEntries"},
	{Tree, entry("40000", "a") + entry("40000", "a"), "duplicateEntries"},
	{Tree, entry("100644", "a") + entry("40000", "a"), "duplicateEntries"},
	{Tree, entry("100644", "a") + entry("100644", "a.c") + entry("40000", "a"), "duplicateEntries"},
	{Tree, entry("100644", "a") + entry("100644", "a-b") + entry("100644", "a-b-c") + entry("40000", "a-b") + entry("40000", "a"), "duplicateEntries"},
	{Tree, entry("100644", "a") + entry("100644", "a-b") + entry("100644", "a.c") + entry("40000", "a.b"), "treeNotSorted"},
	{Tree, entry("100644", "a") + entry("100644", "a-b") + entry("40000", "a-c") + entry("40000", "a.d"), ""},
	{Tree, entry("100644", ""), "badTree"},
	{Tree, entry("100644", "a")[:20], "badTree"},
	{Tree, entry("100644", "a") + "100644 b", "badTree"},
	{Tree, entry("", "a"), "badTree"},
	{Tree, entry("100648", "a"), "badTree"},
	{Tree, entry("+100644", "a"), "badTree"},
	{Tree, "100644  a\x00bbbbbbbbbbbbbbbbbbbb", ""},
	{Tree, entry("100644", "a/b"), "fullPathname"},
	{Tree, entry("100644", "/"), "fullPathname"},
	{Tree, entry("40000", "."), "hasDot"},
	{Tree, entry("40000", ".."), "hasDotdot"},
	{Tree, entry("40000", "..."), ""},
	{Tree, entry("100644", "a")[:9] + strings.Repeat("\x00", 20), "nullSha1"},
	{Tree, entry("040000", "a"), "zeroPaddedFilemode"},
	{Tree, entry("0100644", "a"), "zeroPaddedFilemode"},
	{Tree, entry("100664", "a"), ""},
	{Tree, entry("100600", "a"), ""},
	{Tree, entry("644", "a"), ""},
	{Tree, entry("120000", ".gitmodules"), "gitmodulesSymlink"},
	{Tree, entry("120777", ".gitmodules"), "gitmodulesSymlink"},
	{Tree, entry("40000", ".gitmodules"), "gitmodulesBlob"},
	{Tree, entry("40000", "gitmod~1"), "gitmodulesBlob"},
	{Tree, entry("160000", ".gitmodules"), "gitmodulesMissing"},
	{Tree, entry("100664", ".gitmodules"), ""},
	{Tree, entry("120000", "GITMOD~1"), "gitmodulesSymlink"},
	{Tree, entry("120000", `x\.gitmodules `), "gitmodulesSymlink"},
	{Tree, entry("100644", "GITMOD~1"), ""},
	{Tree, entry("120000", ".gitignore"), ""},
	{Tree, entry("120000", ".gitattributes"), ""},
	{Tree, entry("120000", ".mailmap"), ""},

	{Commit, commit("tree "+hexTree, "author "+ident, "committer "+ident, "", "hi\n"), ""},
	{Commit, commit("tree "+hexTree, "parent "+hexParent, "parent "+hexParent[1:]+"4", "author "+ident, "committer "+ident, ""), ""},
	{Commit, commit("tree "+strings.Repeat("aB", 20), "author "+ident, "committer "+ident, "", ""), ""},
	{Commit, commit("tree "+hexTree, "author "+ident, "committer "+ident, "what ever", "", ""), ""},
	{Commit, commit("tree "+hexTree, "author "+ident, "committer "+ident, "gpgsig x\n y", "", "caf\xe9"), ""},
	{Commit, "", "unterminatedHeader"},
	{Commit, commit("tree "+hexTree, "author "+ident, "committer "+ident), "unterminatedHeader"},
	{Commit, commit("tree "+hexTree, "author A\x00"+ident, "committer "+ident, "", ""), "nulInHeader"},
	{Commit, commit("tree "+hexTree, "author "+ident, "committer "+ident, "", "a\x00b"), "nulInCommit"},
	{Commit, commit("author "+ident, "committer "+ident, "", ""), "missingTree"},
	{Commit, commit("tree "+hexTree[1:], "author "+ident, "committer "+ident, "", ""), "badTreeSha1"},
	{Commit, commit("tree "+hexTree+"0", "author "+ident, "committer "+ident, "", ""), "badTreeSha1"},
	{Commit, commit("tree "+hexTree, "parent "+hexParent[1:], "author "+ident, "committer "+ident, "", ""), "badParentSha1"},
	{Commit, commit("tree "+hexTree, "committer "+ident, "", ""), "missingAuthor"},
	{Commit, commit("tree "+hexTree, "author "+ident, "parent "+hexParent, "committer "+ident, "", ""), "missingCommitter"},
	{Commit, commit("tree "+hexTree, "author "+ident, "author "+ident, "committer "+ident, "", ""), "multipleAuthors"},
	{Commit, commit("tree "+hexTree, "author "+ident, "", "committer "+ident, ""), "missingCommitter"},
	{Commit, commit("tree "+hexTree, "", "author "+ident, "committer "+ident, ""), "missingAuthor"},

	{Tag, commit("object "+hexParent, "type commit", "tag v1", "tagger "+ident, "", "hi\n"), ""},
	{Tag, commit("object "+hexParent, "type commit", "tag v1", "", "hi\n"), ""},
	{Tag, commit("object "+hexBlob, "type blob", "tag not a ..good name", "tagger "+ident, "more", "", "a\x00b"), ""},
	{Tag, commit("object "+hexTree, "type tree", "tag ", "tagger "+ident, ""), ""},
	{Tag, commit("object "+hexTag, "type tag", "tag x", ""), "badTagObject"},
	{Tag, commit("object "+hexTag, "type tag", "tag xy", ""), ""},
	{Tag, commit("object "+hexParent, "type commit", "tag v1"), "unterminatedHeader"},
	{Tag, commit("object "+hexParent, "type commit\x00", "tag v1", ""), "nulInHeader"},
	{Tag, commit("type commit", "tag v1", "tagger "+ident, "", ""), "missingObject"},
	{Tag, commit("object "+hexParent[1:], "type commit", "tag v1", "tagger "+ident, "", ""), "badObjectSha1"},
	{Tag, commit("object "+hexTree, "tag v1", "tagger "+ident, "", ""), "missingTypeEntry"},
	{Tag, commit("object "+hexTree, "type Commit", "tag v1", "tagger "+ident, "", ""), "badType"},
	{Tag, commit("object "+hexTree, "type ", "tag v1", "tagger "+ident, "", ""), "badType"},
	{Tag, commit("object "+hexParent, "type commit", "tagger "+ident, "", ""), "missingTagEntry"},
	{Tag, commit("object "+hexParent, "type commit", "tag v1", "tagger nobody", "", ""), "missingEmail"},
}

// idents are identities with the verdict that they deserve.
var idents = map[string]string{
	ident:                                 "",
	" <> 0 +0000":                         "",
	"A <a b> 1 -1234":                     "",
	"A <> 9223372036854775807 +0000":      "",
	"A <a>  1 +0000":                      "",
	"<a> 1 +0000":                         "missingNameBeforeEmail",
	"A":                                   "missingEmail",
	"":                                    "missingEmail",
	"A> <a> 1 +0000":                      "badName",
	"A<a> 1 +0000":                        "missingSpaceBeforeEmail",
	"A <a 1 +0000":                        "badEmail",
	"A <a<b> 1 +0000":                     "badEmail",
	"A <a>1 +0000":                        "missingSpaceBeforeDate",
	"A <a>":                               "missingSpaceBeforeDate",
	"A <a> 01 +0000":                      "zeroPaddedDate",
	"A <a> 0":                             "zeroPaddedDate",
	"A <a> ":                              "badDate",
	"A <a> x +0000":                       "badDate",
	"A <a> 1":                             "badDate",
	"A <a> 1x +0000":                      "badDate",
	"A <a> 9223372036854775808 +0000":     "badDateOverflow",
	"A <a> 99999999999999999999999 +0000": "badDateOverflow",
	"A <a> 1 0000":                        "badTimezone",
	"A <a> 1 +000":                        "badTimezone",
	"A <a> 1 +00000":                      "badTimezone",
	"A <a> 1 +00x0":                       "badTimezone",
	"A <a> 1  +0000":                      "badTimezone",
	"A <a> 1 ":                            "badTimezone",
}

// allCandidates returns every object of known verdict.
func allCandidates() []candidate {
	all := slices.Clone(candidates)
	for _, text := range slices.Sorted(maps.Keys(idents)) {
		want := idents[text]
		all = append(all,
			candidate{Commit, commit("tree "+hexTree, "author "+text, "committer "+ident, "", ""), want},
			candidate{Commit, commit("tree "+hexTree, "author "+ident, "committer "+text, "", ""), want},
			candidate{Tag, commit("object "+hexParent, "type commit", "tag v1", "tagger "+text, "", ""), want})
	}
	for _, name := range slices.Sorted(maps.Keys(dotGitNames)) {
		want := ""
		if dotGitNames[name] {
			want = "hasDotgit"
		} else if IsGitmodules([]byte(name)) {
			want = "gitmodulesBlob"
		}
		all = append(all, candidate{Tree, entry("40000", name), want})
	}
	return all
}

// verdict returns the message id of Check's refusal, or "".
func verdict(t *testing.T, typ Type, content string) string {
	t.Helper()
	err := Check(typ, []byte(content))
	if err == nil {
		return ""
	}
	refusal, ok := errors.AsType[*CheckError](err)
	if !ok || refusal.Type != typ || refusal.ID == "" {
		t.Fatalf("Check(%s, %q) = %#v, want a CheckError about it", typ, content, err)
	}
	return refusal.ID
}

func TestCheck(t *testing.T) {
	for _, c := range allCandidates() {
		if got := verdict(t, c.typ, c.content); got != c.want {
			t.Errorf("Check(%s, %q) = %q, want %q", c.typ, c.content, got, c.want)
		}
	}
	if got := verdict(t, Invalid, ""); got != "unknownType" {
		t.Errorf("Check of no type = %q", got)
	}
	if got := verdict(t, Blob, "\x00"); got != "" {
		t.Errorf("Check of a blob = %q", got)
	}
}

// TestCheckStricterThanOldGit holds the rules that only newer versions of git
// have, or only older ones lack.
func TestCheckStricterThanOldGit(t *testing.T) {
	rows := []candidate{
		{Tree, entry("100644", strings.Repeat("x", maxTreeName)), ""},
		{Tree, entry("100644", strings.Repeat("x", maxTreeName+1)), "largePathname"},
	}
	for date, want := range map[string]string{
		"+1 +0000": "badDate", "-1 +0000": "badDate", "\v1 +0000": "badDate", " 01 +0000": "zeroPaddedDate",
	} {
		rows = append(rows, candidate{Commit, commit("tree "+hexTree, "author A <a> "+date, "committer "+ident, "", ""), want})
	}
	for _, c := range rows {
		if got := verdict(t, c.typ, c.content); got != c.want {
			t.Errorf("Check(%s, %.60q) = %q, want %q", c.typ, c.content, got, c.want)
		}
	}
}

// fsck stores the objects and returns the message ids of the errors that
// git fsck --strict finds in each; "unreadable" when it could not parse one.
func fsck(t *testing.T, objects []candidate) map[ID][]string {
	t.Helper()
	r := newRepo(t)
	for _, c := range objects {
		r.store(c.typ, []byte(c.content))
	}
	cmd := r.command("", "fsck", "--strict", "--no-dangling", "--no-progress")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 127 {
		t.Fatalf("git fsck: %v: %s", err, out)
	}
	faults := make(map[ID][]string)
	faultLine := regexp.MustCompile(`(?m)^error in \w+ ([0-9a-f]{40}): (\w+): |^error: ([0-9a-f]{40}): (object could not be parsed|object corrupt or missing|hash-path mismatch)`)
	for _, m := range faultLine.FindAllStringSubmatch(string(out), -1) {
		id, err := ParseID(m[1] + m[3])
		if err != nil {
			t.Fatal(err)
		}
		if m[4] == "hash-path mismatch" {
			t.Fatalf("git disagrees with the ID of %s", id)
		}
		if m[2] == "" {
			m[2] = "unreadable"
		}
		faults[id] = append(faults[id], m[2])
	}
	return faults
}

// TestCheckAgainstGit compares Check with git fsck --strict on the tables and
// on random mutations of them.
func TestCheckAgainstGit(t *testing.T) {
	objects := allCandidates()
	rng := rand.New(rand.NewPCG(1, 2))
	for seeds := slices.Clone(objects); len(objects) < 3000; {
		c := seeds[rng.IntN(len(seeds))]
		c.content = mutate(rng, c.content)
		objects = append(objects, c)
	}
	for range 2000 {
		objects = append(objects, candidate{typ: Tree, content: randomTree(rng)})
	}
	faults := fsck(t, objects)
	agreed := map[bool]int{}
	for _, c := range objects {
		git, ours := faults[Hash(c.typ, []byte(c.content))], verdict(t, c.typ, c.content)
		switch {
		case len(git) == 0 && (ours == "gitmodulesBlob" || ours == "gitmodulesMissing"):
			agreed[false]++ // git says so of what the entry names
		case (len(git) > 0) != (ours != "") && !strictDate(c, ours):
			t.Errorf("%s %q: Check says %q, git %q", c.typ, c.content, ours, git)
		case ours != "" && len(git) > 0 && git[0] != "unreadable" && !slices.Contains(git, ours) && !strictDate(c, ours):
			t.Errorf("%s %q: Check says %q, git %q", c.typ, c.content, ours, git)
		default:
			agreed[ours == ""]++
		}
	}
	t.Logf("agreed on %d good and %d bad objects", agreed[true], agreed[false])
	if agreed[true] < 500 || agreed[false] < 500 {
		t.Errorf("too few objects of one kind for a comparison: %v", agreed)
	}
}

// strictDate reports whether Check refuses a date that older versions of git
// read with strtoumax, which skips white space and takes a sign.
func strictDate(c candidate, ours string) bool {
	if c.typ == Tree || ours != "badDate" && ours != "zeroPaddedDate" {
		return false
	}
	return regexp.MustCompile(`> \s*[-+\s]\s*[0-9]`).MatchString(c.content)
}

// mutate changes a byte or two.
func mutate(rng *rand.Rand, content string) string {
	const interesting = " \n\x00<>0+-/.:~\\1aZ\xff"
	b := []byte(content)
	for range 1 + rng.IntN(2) {
		pos, c := rng.IntN(len(b)+1), interesting[rng.IntN(len(interesting))]
		switch {
		case rng.IntN(3) == 0 || pos == len(b):
			b = slices.Insert(b, pos, c)
		case rng.IntN(2) == 0:
			b = slices.Delete(b, pos, pos+1)
		default:
			b[pos] = c
		}
	}
	return string(b)
}

// randomTree makes a tree of a few entries, usually sorted, with names made of
// the pieces that disguises and the order of entries are about.
func randomTree(rng *rand.Rand) string {
	pieces := []string{
		".git", ".GIT", ".giT", "git~1", "GIT~1", ".", " ", ":", "\\", "a", "-", "0", "~", "\u200c", "\ufeff", "\ufffe", "\xff",
		".gitmodules", "gitmod~", "GI7EBA~1", "~1", "234567", "modules",
	}
	modes := []Mode{ModeRegular, ModeExecutable, ModeSymlink, ModeSubmodule, ModeDir, ModeDir}
	var entries []Entry
	for range 1 + rng.IntN(3) {
		var name strings.Builder
		for range 1 + rng.IntN(3) {
			name.WriteString(pieces[rng.IntN(len(pieces))])
		}
		// "a" and what sorts near it makes more collisions than chance would.
		if rng.IntN(3) == 0 {
			name.Reset()
			name.WriteString([]string{"a", "a-", "a.", "a0", "a-b"}[rng.IntN(5)])
		}
		entries = append(entries, Entry{modes[rng.IntN(len(modes))], []byte(name.String()), ID(bytes.Repeat([]byte{'b'}, Size))})
	}
	if rng.IntN(8) > 0 {
		slices.SortFunc(entries, CompareEntries)
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%o %s\x00%s", uint32(e.Mode), e.Name, e.ID[:])
	}
	return b.String()
}

func FuzzCheck(f *testing.F) {
	for _, c := range allCandidates() {
		f.Add(uint8(c.typ), []byte(c.content))
	}
	f.Fuzz(func(t *testing.T, typ uint8, data []byte) {
		if Check(Type(typ), data) != nil {
			return
		}
		// Whatever passes can be read.
		switch Type(typ) {
		case Commit:
			c, err := ParseCommit(data)
			if err != nil {
				t.Fatalf("ParseCommit of an accepted commit: %v", err)
			}
			tree, parents, when, err := CommitLinks(data, nil)
			if err != nil || tree != c.Tree || !slices.Equal(parents, c.Parents) || when != c.Committer.When {
				t.Fatalf("CommitLinks = %s %s %d %v, ParseCommit = %+v", tree, parents, when, err, c)
			}
		case Tag:
			tag, err := ParseTag(data)
			if err != nil {
				t.Fatalf("ParseTag of an accepted tag: %v", err)
			}
			if id, typ, err := TagTarget(data); id != tag.Object || typ != tag.Type || err != nil {
				t.Fatalf("TagTarget = %s %s %v, ParseTag = %+v", id, typ, err, tag)
			}
		case Tree:
			var entries []Entry
			it := TreeEntries(data)
			for e, ok := it.Next(); ok; e, ok = it.Next() {
				entries = append(entries, e)
			}
			if it.Err() != nil || !slices.IsSortedFunc(entries, CompareEntries) {
				t.Fatalf("an accepted tree reads as %v, %v", entries, it.Err())
			}
		}
	})
}

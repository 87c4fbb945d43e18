package hostile_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// metadata is the first line of a commit whose files are given as JSON.
func metadata(files string) string {
	return `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a","email":"a@b"},"files":[` + files + `]}}` + "\n"
}

func upsert(path string) string {
	name, err := json.Marshal(path)
	if err != nil {
		panic(err)
	}
	return metadata(`{"path":` + string(name) + `,"content_id":"a"}`)
}

// chunk is a line with content in base64.
func chunk(id, data, eof string) string {
	return `{"blob_chunk":{"content_id":"` + id + `","data":"` + data + `","eof":` + eof + `}}` + "\n"
}

var ended = chunk("a", "eA==", "true")

// newlines never ends.
type newlines struct{}

func (newlines) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// badCommits are bodies of commits that must be refused.
func badCommits(tip string) map[string]func() io.Reader {
	bodies := map[string]string{
		"empty":                     "",
		"no metadata":               ended,
		"metadata twice":            metadata("") + metadata(""),
		"no files":                  metadata(""),
		"an unended content":        upsert("a") + chunk("a", "eA==", "false"),
		"no content":                upsert("a"),
		"content nobody asked for":  upsert("a") + chunk("b", "eA==", "true"),
		"content after its end":     upsert("a") + ended + ended,
		"no base64":                 upsert("a") + chunk("a", "####", "true"),
		"base64 without padding":    upsert("a") + chunk("a", "eA", "true"),
		"a chunk over 4 MiB":        upsert("a") + chunk("a", strings.Repeat("eHh4", 3<<19), "true"),
		"a line over 8 MiB":         upsert("a") + `{"x":"` + strings.Repeat("x", 9<<20) + `"}`,
		"2,700,000 empty files":     metadata(strings.Repeat("{},", 2_700_000) + "{}"),
		"1,500,000 nulls":           metadata(strings.Repeat("null,", 1_500_000) + "null"),
		"nested metadata":           `{"metadata":` + strings.Repeat("[", 4<<20),
		"nested chunk":              upsert("a") + `{"blob_chunk":{"x":` + strings.Repeat("[", 4<<20),
		"files that are no list":    strings.Replace(metadata(""), "[]", `{"path":"a"}`, 1),
		"files that are text":       strings.Replace(metadata(""), "[]", `"a"`, 1),
		"files of numbers":          metadata("1"),
		"UTF-16":                    "\xff\xfe{\x00",
		"an author with line break": strings.Replace(upsert("a"), `"name":"a"`, `"name":"a\nb"`, 1) + ended,
		"an author with NUL":        strings.Replace(upsert("a"), `"name":"a"`, `"name":"a\u0000"`, 1) + ended,
		"an author with brackets":   strings.Replace(upsert("a"), `"name":"a"`, `"name":"a<b"`, 1) + ended,
		"no author":                 strings.Replace(upsert("a"), `"author":{"name":"a","email":"a@b"},`, "", 1) + ended,
		"a link of .gitmodules":     metadata(`{"path":".gitmodules","content_id":"a","mode":"120000"}`) + ended,
		"an option in .gitmodules":  upsert("d/.gitmodules") + chunk("a", base64.StdEncoding.EncodeToString([]byte("[submodule \"a\"]\nurl = -x\n")), "true"),
		"a folder .gitmodules":      upsert("d/.gitmodules/a") + ended,
		"a submodule of nothing":    metadata(`{"path":"m","content_id":"a","mode":"160000"}`) + ended,
		"a stale commit":            strings.Replace(upsert("a"), `"commit_message"`, `"expected_head_sha":"`+absent.commit.id()+`","commit_message"`, 1) + ended,
		"no commit":                 strings.Replace(upsert("a"), `"commit_message"`, `"expected_head_sha":"`+tip[:39]+`","commit_message"`, 1) + ended,
	}
	var deletes, deep strings.Builder
	for i := range 150_000 {
		fmt.Fprintf(&deletes, `{"path":"%d","operation":"delete"},`, i)
	}
	bodies["150,000 files"] = metadata(deletes.String() + `{"path":"z","operation":"delete"}`)
	for i := range 1900 {
		fmt.Fprintf(&deep, `{"path":"%d/%sa","content_id":"a"},`, i, strings.Repeat("b/", 2040))
	}
	bodies["3,900,000 directories"] = metadata(deep.String()+`{"path":"z","content_id":"a"}`) + ended
	for _, path := range []string{
		"", "/", ".git/config", ".GIT/config", "a/.git", "a/../b", "..", ".", "a//b", "a/./b", "a/", "git~1/x", "GIT~1", "a/.gIt /x", ".git.", ".git:x", ".git::$INDEX_ALLOCATION", "a\x00b", `a\..\b`, `.git\x`,
		".g\u200cit/x", strings.Repeat("x", 5000), strings.Repeat("x/", 3000) + "x",
	} {
		bodies[fmt.Sprintf("path %.30q", path)] = upsert(path) + ended
	}
	for _, mode := range []string{"40000", "040000", "100664", "0", "777", "-1", "99999999999"} {
		bodies["mode "+mode] = metadata(`{"path":"m","content_id":"a","mode":"`+mode+`"}`) + ended
	}
	for _, branch := range []string{"../x", "a..b", `a\u0000b`, "refs/namespaces/ephemeral/refs/heads/x", "-x", "a.lock", "@{x}", "a b", "", strings.Repeat("x", 5000), `x\ny`, "main/x"} {
		bodies[fmt.Sprintf("branch %.30q", branch)] = strings.Replace(upsert("a"), `"main"`, `"`+branch+`","base_branch":"main"`, 1) + ended
	}
	all := map[string]func() io.Reader{
		"64 MiB of line breaks": func() io.Reader { return io.LimitReader(newlines{}, 64<<20) },
		"line breaks between": func() io.Reader {
			return io.MultiReader(strings.NewReader(upsert("a")), io.LimitReader(newlines{}, 64<<20))
		},
	}
	for what, body := range bodies {
		all[what] = func() io.Reader { return strings.NewReader(body) }
	}
	return all
}

package checkpoint

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const someKey = FilesPrefix + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// manifestText makes a manifest with members laid over those of a good one; "" takes
// one away.
func manifestText(more map[string]string) json.RawMessage {
	m := map[string]string{
		"id": `"c"`, "threadId": `"t"`, "createdAt": "1", "reason": `"automatic"`, "conversation": "[]", "artifacts": "[]",
		"files": `[{"path":"a/b","kind":"file","blobKey":"` + someKey + `","size":4},{"path":"d","kind":"dir"}]`,
	}
	for k, v := range more {
		m[k] = v
	}
	var b strings.Builder
	for k, v := range m {
		if v != "" {
			fmt.Fprintf(&b, ",%q:%s", k, v)
		}
	}
	return json.RawMessage("{" + strings.TrimPrefix(b.String(), ",") + "}")
}

func file(path string) string {
	return `{"path":` + path + `,"kind":"file","blobKey":"` + someKey + `","size":4}`
}

func TestManifestRules(t *testing.T) {
	artifact := func(from, to string) map[string]string {
		a := `{"artifactId":"i","name":"n","mimeType":"m","createdAt":1,"size":1,"blobKey":"` + strings.Replace(someKey, "files", "artifacts", 1) + `"}`
		return map[string]string{"artifacts": "[" + strings.Replace(a, from, to, 1) + "]"}
	}
	entries := func(list ...string) map[string]string {
		return map[string]string{"files": "[" + strings.Join(list, ",") + "]"}
	}
	for _, c := range []struct {
		name     string
		more     map[string]string
		expected string
		writer   string
		want     Code
	}{
		{name: "good"},
		{name: "no parent", more: map[string]string{"parentCheckpointId": "null"}},
		{name: "no conversation", more: map[string]string{"conversation": ""}},
		{name: "unknown members", more: map[string]string{"x": `{"y":1}`}},
		{name: "a time", more: map[string]string{"createdAt": "-1.5e3"}},
		{name: "empty id", more: map[string]string{"id": `""`}, want: InvalidID},
		{name: "number as id", more: map[string]string{"id": `1`}, want: InvalidID},
		{name: "lone surrogate in id", more: map[string]string{"id": `"a\ud800"`}, want: InvalidID},
		{name: "pair in id", more: map[string]string{"id": `"a\ud83d\ude00"`}},
		{name: "lone surrogate in thread", more: map[string]string{"threadId": `"\udc00t"`}, want: InvalidID},
		{name: "empty parent", more: map[string]string{"parentCheckpointId": `""`}, want: InvalidID},
		{name: "empty head", expected: `""`, want: InvalidID},
		{name: "ids before the writer", more: map[string]string{"id": `""`}, writer: "other", want: InvalidID},
		{name: "the writer before entries", more: entries("1"), writer: "other", want: WriterLost},
		{name: "no time", more: map[string]string{"createdAt": "null"}, want: InvalidEntry},
		{name: "endless time", more: map[string]string{"createdAt": "1e999"}, want: InvalidEntry},
		{name: "text as time", more: map[string]string{"createdAt": `"1"`}, want: InvalidEntry},
		{name: "no files", more: map[string]string{"files": ""}, want: InvalidEntry},
		{name: "files", more: map[string]string{"files": "{}"}, want: InvalidEntry},
		{name: "no artifacts", more: map[string]string{"artifacts": ""}, want: InvalidEntry},
		{name: "conversation", more: map[string]string{"conversation": "{}"}, want: InvalidEntry},
		{name: "size", more: entries(strings.Replace(file(`"a"`), "4}", "9007199254740991}", 1))},
		{name: "size as a power", more: entries(strings.Replace(file(`"a"`), "4}", "1e3}", 1))},
		{name: "large size", more: entries(strings.Replace(file(`"a"`), "4}", "9007199254740992}", 1)), want: InvalidEntry},
		{name: "size that rounds down", more: entries(strings.Replace(file(`"a"`), "4}", "9007199254740991.4}", 1))},
		{name: "half a byte", more: entries(strings.Replace(file(`"a"`), "4}", "0.5}", 1)), want: InvalidEntry},
		{name: "negative size", more: entries(strings.Replace(file(`"a"`), "4}", "-1}", 1)), want: InvalidEntry},
		{name: "no size", more: entries(strings.Replace(file(`"a"`), `,"size":4`, "", 1)), want: InvalidEntry},
		{name: "upper-case key", more: entries(strings.Replace(file(`"a"`), "abcdef", "ABCDEF", 1)), want: InvalidEntry},
		{name: "long key", more: entries(strings.Replace(file(`"a"`), "abcdef\"", "abcdef0\"", 1)), want: InvalidEntry},
		{name: "key of an artifact", more: entries(strings.Replace(file(`"a"`), "files", "artifacts", 1)), want: InvalidEntry},
		{name: "surrogate in key", more: entries(strings.Replace(file(`"a"`), "abcdef\"", "abcde\\ud800\"", 1)), want: InvalidEntry},
		{name: "escaped key", more: entries(strings.Replace(file(`"a"`), "sandbox", "\\u0073andbox", 1))},
		{name: "directory with a size", more: entries(`{"path":"d","kind":"dir","size":0}`), want: InvalidEntry},
		{name: "directory with a key", more: entries(`{"path":"d","kind":"dir","blobKey":"x"}`), want: InvalidEntry},
		{name: "unknown kind", more: entries(`{"path":"d","kind":"socket"}`), want: InvalidEntry},
		{name: "link", more: entries(`{"path":"d","kind":"symlink","target":"x"}`)},
		{name: "link without a target", more: entries(`{"path":"d","kind":"symlink"}`), want: InvalidEntry},
		{name: "entry", more: entries(`"d"`), want: InvalidEntry},
		{name: "twice", more: entries(file(`"a"`), file(`"\u0061"`)), want: InvalidEntry},
		{name: "different surrogates", more: entries(file(`"\ud800"`), file(`"\ud801"`))},
		{name: "beneath a file", more: entries(file(`"a/b"`), file(`"a"`)), want: InvalidEntry},
		{name: "beneath a link", more: entries(`{"path":"a","kind":"symlink","target":"x"}`, file(`"a/b/c"`)), want: InvalidEntry},
		{name: "beneath a directory", more: entries(`{"path":"a","kind":"dir"}`, file(`"a/b"`))},
		{name: "beside a file", more: entries(file(`"a"`), file(`"a-b/c"`), file(`"a.b"`))},
		{name: "artifact", more: artifact("", "")},
		{name: "artifacts without ids", more: artifact(`"i"`, `""`), want: InvalidEntry},
		{name: "artifact's time", more: artifact(`"createdAt":1`, `"createdAt":"x"`), want: InvalidEntry},
		{name: "artifact's key", more: artifact("artifacts", "files"), want: InvalidEntry},
		{name: "artifact's surrogate", more: artifact(`"i"`, `"\ud800"`), want: InvalidEntry},
	} {
		expected, writer := c.expected, c.writer
		if expected == "" {
			expected = "null"
		}
		if writer == "" {
			writer = "t"
		}
		_, _, err := parseManifest(manifestText(c.more), json.RawMessage(expected), writer)
		if c.want == "" && err != nil || c.want != "" && !is(err, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for path, ok := range map[string]bool{
		"a": true, "a:b": true, "ab:/c": true, "a b/\n": true, "...": true, "é": true, "C:x": true,
		"": false, "/a": false, "a/": false, "a//b": false, ".": false, "a/..": false, "./a": false, "a\x00": false, `a\b`: false,
		"C:/a": false, "c:": false, "z:/": false,
	} {
		if validPath(path) != ok {
			t.Errorf("path %q: %t", path, !ok)
		}
	}
}

// TestManyEntries reads manifests for which quadratic work would take minutes.
func TestManyEntries(t *testing.T) {
	list := make([]string, 200_000)
	for i := range list {
		list[i] = file(fmt.Sprintf(`"d%d/e/%d"`, i%100, i))
	}
	// One path of a megabyte, with a name for each second byte.
	list = append(list, file(`"`+strings.Repeat("a/", 1<<19)+`a"`))
	m, _, err := parseManifest(manifestText(map[string]string{"files": "[" + strings.Join(list, ",") + "]"}), json.RawMessage("null"), "t")
	if err != nil || m.stats.Files != uint64(len(list)) {
		t.Error(err)
	}
}

func TestManifestComesBack(t *testing.T) {
	w := newWorld(t)
	text := manifestText(map[string]string{
		"conversation": `[{"role":"user","content":"a lone \ud800 and <b> & \u2028"}]`, "extra": `{"n":[1,2.5,null,true],"\u00e9":"x"}`, "label": `"l"`,
	})
	n := NewManifest{Thread: "t", WriterThread: "t", Checkpoint: text, Expected: json.RawMessage("null"), External: true}
	if _, err := w.AppendManifest(w.ctx, w.caller(), n); err != nil {
		t.Fatal(err)
	}
	c, err := w.Checkpoint(w.ctx, w.org, "c")
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.ManifestJSON(w.ctx, w.org, &c)
	if err != nil {
		t.Fatal(err)
	}
	var is, want map[string]any
	if json.Unmarshal(got, &is) != nil || json.Unmarshal(text, &want) != nil {
		t.Fatalf("%s", got)
	}
	want["parentCheckpointId"] = nil
	if !reflect.DeepEqual(is, want) {
		t.Errorf("%s\nof\n%s", got, text)
	}
	if !strings.Contains(string(got), `\ud800`) {
		t.Error("a lone surrogate did not come back")
	}
}

func FuzzJSONString(f *testing.F) {
	for _, s := range []string{`""`, `"a\u0041\ud83d\ude00\ud800x\n\\"`, `"\udc00\ud800"`, `"é"`, `1`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			return
		}
		got, ok := jsonString(json.RawMessage(text))
		var want string
		if err := json.Unmarshal([]byte(text), &want); (err == nil && text[0] != 'n') != ok && strings.TrimSpace(text) != "null" {
			t.Fatalf("%q is a string: %t", text, ok)
		}
		if ok && utf8.ValidString(got) && got != want {
			t.Fatalf("%q is %q, want %q", text, got, want)
		}
	})
}

func FuzzParseManifest(f *testing.F) {
	f.Add(string(manifestText(nil)), "null")
	f.Add(string(manifestText(map[string]string{"files": "[" + file(`"\ud800/a"`) + "," + file(`"b"`) + "]"})), `"x"`)
	f.Add(`{"id":"a","threadId":"t","createdAt":1e308,"files":[],"artifacts":[]}`, `""`)
	f.Add(`{`, `{}`)
	f.Fuzz(func(t *testing.T, text, expected string) {
		if !json.Valid([]byte(text)) || !json.Valid([]byte(expected)) {
			return // they are members of a body that was decoded
		}
		m, _, err := parseManifest(json.RawMessage(text), json.RawMessage(expected), "t")
		if err != nil {
			if !is(err, InvalidID) && !is(err, InvalidEntry) && !is(err, WriterLost) {
				t.Fatal(err)
			}
			return
		}
		if !slices.IsSortedFunc(m.keys, Key.compare) || !slices.Equal(decodeKeys(encodeKeys(m.keys)), m.keys) {
			t.Fatal("keys out of order")
		}
		if _, _, err := m.documents(true); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPathOrder(t *testing.T) {
	list := []string{"a", "a/b", "a/b/c", "a/b.c", "a!", "a.b", "a0", "b", "é"}
	for i := range list {
		for j := range list {
			want := slices.Compare(strings.Split(list[i], "/"), strings.Split(list[j], "/"))
			got := comparePaths(list[i], list[j])
			if want < 0 != (got < 0) || want > 0 != (got > 0) {
				t.Errorf("%q and %q: %d, want %d", list[i], list[j], got, want)
			}
		}
	}
}

package rest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

// writes reports whether a route changes something of repositories or of the org.
func (r *route) writes() bool {
	ofThread := slices.Contains(r.access.scopes, auth.CheckpointWrite) || slices.Contains(r.access.scopes, auth.CheckpointRead)
	return !ofThread && r.method != http.MethodGet && r.method != http.MethodHead && r.name != "archive.post" && r.name != "grep"
}

// place returns the path at which a sample of a route is asked, and a token for
// it.
func (s *stack) place(r *route, i int) (path, token string) {
	repo := populated
	switch r.name {
	case "repos.create":
		return r.paths(populated)[i], s.full("team/new")
	case "credentials.create":
		repo = "team/other"
	case "upstream.pull":
		repo = mirror
	}
	return r.paths(repo)[i], s.full(repo)
}

// brokenBodies are no JSON, or not what any route takes.
func brokenBodies() map[string]string {
	deep := 400_000
	return map[string]string{
		"cut in an object":      `{"target_branch":"main"`,
		"cut in a string":       `{"target_branch":"ma`,
		"cut in an escape":      `{"target_branch":"\u00`,
		"cut in a number":       `{"limit":1.`,
		"a list":                `[]`,
		"a list of itself":      `[{"target_branch":"main"}]`,
		"text":                  `"main"`,
		"a number":              `1`,
		"true":                  `true`,
		"two values":            `{} {}`,
		"a bracket more":        `{}}`,
		"a comma more":          `{"x":1,}`,
		"a name without quotes": `{x:1}`,
		"single quotes":         `{'x':1}`,
		"a comment":             `{} // x`,
		"NUL":                   "\x00",
		"UTF-16":                "\xff\xfe{\x00}\x00",
		"a byte order mark":     "\ufeff{}",
		"not a number":          `{"x":NaN}`,
		"control characters":    "{\"x\":\"a\x01b\"}",
		"invalid UTF-8":         "{\"x\":\"a\xffb\"}",
		"UTF-8 cut short":       "{\"x\":\"a\xe2\x82\"}",
		"an encoded surrogate":  "{\"x\":\"\xed\xa0\x80\"}",
		"invalid UTF-8 in keys": "{\"a\xff\":1}",
		"half a character":      `{"x":"\ud83d"}`,
		"the other half":        `{"x":"\ude00"}`,
		"halves turned round":   `{"x":"\ude00\ud83d"}`,
		"half and a letter":     `{"x":"\ud83dx"}`,
		"half in a name":        `{"\ud800":1}`,
		"deep lists":            strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"deep objects":          strings.Repeat(`{"x":`, deep/4) + "1" + strings.Repeat("}", deep/4),
		"deep and cut":          `{"x":` + strings.Repeat("[", deep),
		"a form":                "target_branch=main&base_ref=main",
		"XML":                   `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><x>&y;</x>`,
		"a multipart form":      "--x\r\nContent-Disposition: form-data; name=\"target_branch\"\r\n\r\nmain\r\n--x--\r\n",
	}
}

// checkHostile checks that a request was refused as its route refuses.
func checkHostile(t *testing.T, r *route, what string, a answer) {
	t.Helper()
	if a.status < 400 || a.status > 499 {
		t.Errorf("%s: %s: %d %.300s, want it refused", r.name, what, a.status, a.body)
		return
	}
	e := a.error(t)
	if len(a.body) > 16<<10 {
		t.Errorf("%s: %s: the refusal has %d bytes", r.name, what, len(a.body))
	}
	if (e.Result != nil) != r.commits || r.commits && (e.Result.Success || e.Result.Status == "" || e.Result.Message == "") {
		t.Errorf("%s: %s: the refusal is %.300s", r.name, what, a.body)
	}
}

// TestBrokenBodies sends every route that changes something what is no request:
// all is refused, and nothing changes.
func TestBrokenBodies(t *testing.T) {
	s := newStack(t)
	populate(s)
	counted := s.countRefusals()
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(z, io.LimitReader(spaces{}, 64<<20))
	z.Close()
	before, sent := s.state(), 0
	for _, r := range routes() {
		if !r.writes() {
			continue
		}
		for i := range r.paths(populated) {
			path, token := s.place(r, i)
			query := samples[r.name][0].query
			ask := func(what, body string, headers ...string) {
				sent++
				a := s.do(r.method, with(path, query), token, body, headers...)
				checkHostile(t, r, what, a)
			}
			for what, body := range brokenBodies() {
				ask(what, body)
				if r.op.body != "" {
					ask(what+" as "+r.op.body, body, "Content-Type", r.op.body)
				}
			}
			if i > 0 {
				continue
			}
			ask("a body too large", `{"x":"`+strings.Repeat("x", maxLine)+`"}`)
			ask("blanks without end", strings.Repeat(" ", maxLine+1)+"x")
			for _, encoding := range []string{"gzip", "deflate", "br", "zstd", "identity, gzip", "x"} {
				ask("encoding "+encoding, bomb.String(), "Content-Encoding", encoding)
			}
			ask("gzip that is not said", bomb.String())
			for _, kind := range []string{"text/plain", "application/xml", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "\u00e9"} {
				ask("type "+kind, "target_branch=main", "Content-Type", kind)
			}
			sent += s.halves(t, r, with(path, query), token)
		}
		if now := s.state(); now != before {
			t.Fatalf("%s: the state is\n%s\nand was\n%s", r.name, now, before)
		}
	}
	t.Logf("%d requests were refused", sent)
	counts := counted()
	total := 0
	for code, n := range counts {
		total += n
		if strings.HasSuffix(code, " internal") || strings.HasSuffix(code, " unavailable") {
			t.Errorf("%d refusals are counted as %s", n, code)
		}
	}
	if total != sent || counts["commits.pack invalid"] < 50 || counts["repos.update payload_too_large"] < 2 {
		t.Errorf("%d refusals of %d are counted: %v", total, sent, counts)
	}
}

// spaces is blanks without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// countRefusals has refusals counted from now on, by route and code.
func (s *stack) countRefusals() func() map[string]int {
	var mu sync.Mutex
	counts := map[string]int{}
	s.handler.Refused = func(route, code string) {
		mu.Lock()
		defer mu.Unlock()
		counts[route+" "+code]++
	}
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

// halves sends requests whose bodies end before they are whole.
func (s *stack) halves(t *testing.T, r *route, path, token string) (sent int) {
	t.Helper()
	for what, rest := range map[string]string{
		"stops midway":           "Content-Length: 1000\r\n\r\n{\"target_branch\":\"main\"",
		"stops at once":          "Content-Length: 1000\r\n\r\n",
		"stops in a chunk":       "Transfer-Encoding: chunked\r\n\r\n400\r\n{\"target_branch\":\"main\"",
		"stops between chunks":   "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"has a chunk of no size": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n",
	} {
		conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nConnection: close\r\n%s", r.method, s.filled(path), token, rest)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: a body that %s: %v", r.name, what, err)
		} else {
			data, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Errorf("%s: a body that %s: %v", r.name, what, err)
			}
			checkHostile(t, r, "a body that "+what, answer{resp.StatusCode, resp.Header, data})
			sent++
		}
		conn.Close()
	}
	return sent
}

// freeText are members that hold text of any length and kind, or one of several
// types.
var freeText = []string{"commit_message", "message", "note", "title", "date", "username", "password", "secret", "after"}

// TestWrongMembers puts the wrong thing into each member of good requests.
func TestWrongMembers(t *testing.T) {
	s := newStack(t)
	populate(s)
	before, sent := s.state(), 0
	for _, r := range routes() {
		if !r.writes() {
			continue
		}
		for i := range r.paths(populated) {
			path, token := s.place(r, i)
			itemInPath := (r.legacy == "" || i == 1) && strings.Contains(strings.Replace(r.path, repoSegment, "", 1), "{")
			for _, q := range samples[r.name] {
				for what, body := range s.wrong(t, q.body) {
					if itemInPath && (strings.HasPrefix(what, ".id is ") || strings.HasPrefix(what, ".name is ")) {
						continue // the path says which one
					}
					if r.name == "upstream.pull" && strings.HasPrefix(what, ".ref is ") {
						continue // all is synced, whatever was asked for
					}
					sent++
					a := s.do(r.method, with(path, q.query), token, body)
					checkHostile(t, r, what, a)
					if a.status < 300 {
						t.Fatalf("%s: %s changed the state", r.name, what)
					}
				}
			}
		}
		if now := s.state(); now != before {
			t.Fatalf("%s: the state is\n%s\nand was\n%s", r.name, now, before)
		}
	}
	if t.Logf("%d requests were refused", sent); sent < 1000 {
		t.Error("too few requests")
	}
}

// wrong makes bodies of a good one, each with one member of the wrong type or
// size. What follows the first line stays.
func (s *stack) wrong(t *testing.T, body any) map[string]string {
	t.Helper()
	text, ok := body.(string)
	if !ok {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(data)
	}
	text, rest, _ := strings.Cut(s.filled(text), "\n")
	var good any
	if text == "null" || text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &good); err != nil {
		t.Fatalf("%v in the sample %s", err, text)
	}
	out := map[string]string{}
	vary("", good, func(where string, now any) {
		data, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("%s is %.40v", where, now)] = string(data) + "\n" + rest
	})
	return out
}

// vary puts wrong values into a value, one at a time, and calls yield for each.
func vary(where string, v any, yield func(where string, now any)) {
	try := func(name string, old any, set func(any)) {
		for _, now := range unlike(where+"."+name, name, old) {
			set(now)
			yield(where+"."+name, now)
		}
		set(old)
		vary(where+"."+name, old, yield)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			try(name, v[name], func(now any) { v[name] = now })
		}
	case []any:
		for i, old := range v {
			try(fmt.Sprint(i), old, func(now any) { v[i] = now })
		}
	}
}

// unlike returns values that a member cannot have where it has old.
func unlike(path, name string, old any) []any {
	object, list := map[string]any{"x": 1}, []any{map[string]any{}, "x"}
	switch old.(type) {
	case string:
		values := []any{json.Number("1"), json.Number("1e400"), true, object, list}
		if slices.Contains(freeText, name) {
			return values
		}
		if values = append(values, strings.Repeat("x", 70_000), "a\x00b"); strings.Contains(path, ".author.") || strings.Contains(path, ".committer.") {
			return values
		}
		return append(values, strings.Repeat("../", 100)+"etc/passwd")
	case bool:
		return []any{json.Number("1"), json.Number("0"), "true", "", object, list}
	case float64:
		return []any{json.Number("1.5"), json.Number("1e400"), json.Number("-1"), json.Number("99999999999999999999"), "1", true, object, list}
	case map[string]any:
		return []any{json.Number("1"), "x", true, list, []any{}}
	case []any:
		return []any{json.Number("1"), "x", true, object, []any{json.Number("1")}, []any{[]any{}}, slices.Repeat([]any{json.Number("0")}, 100_000)}
	}
	return nil
}

// TestUnicodeOnly reads what stays as it is.
func TestUnicodeOnly(t *testing.T) {
	for text, want := range map[string]bool{
		``: true, `{"a":"\\ud800"}`: true, `{"a":"\\\ud800"}`: false, `"\ud83d\ude00"`: true, `"\uD83D\uDE00"`: true, `"\ud83d\\ude00"`: false,
		`"\ud83d\ud83d\ude00"`: false, `"\ud83d\ude00\ude00"`: false, `"\u00e9\ufffd"`: true, `"\`: true, `"\u`: true, `"\ud83d`: false, `"\u12"`: true,
		"\"\u00e9\"": true, "\xff": false, `"\n\t\"\u0000"`: true,
	} {
		if got := unicodeOnly([]byte(text)); got != want {
			t.Errorf("unicodeOnly(%q) = %v", text, got)
		}
	}
	var e api.Error
	if err := decodeJSON([]byte(`{"error":"\ud83d\ude00"}`), &e, true); err != nil || e.Message != "\U0001f600" {
		t.Errorf("decoded %q, %v", e.Message, err)
	}
}

package rest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestContentAgainstNetHTTP sends the same requests to send and to
// http.ServeContent, whose rules it shares.
func TestContentAgainstNetHTTP(t *testing.T) {
	const text = "0123456789abcdefghij"
	const etag = `"5f3e"`
	modified := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	at := func(d time.Duration) string { return modified.Add(d).Format(http.TimeFormat) }
	h := New(Config{PublicURL: func() string { return "" }})
	ours := func(w http.ResponseWriter, r *http.Request) {
		c := newCall(h, w, r)
		err := c.send(content{etag: etag, modified: modified, size: int64(len(text)), open: func(from, n int64) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text[from : from+n])), nil
		}})
		if err != nil {
			c.fail(err)
		}
	}
	theirs := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", modified, strings.NewReader(text))
	}
	values := map[string][]string{
		"Range": {"", "bytes=0-0", "bytes=0-", "bytes=5-9", "bytes=-3", "bytes=-100", "bytes=19-", "bytes=20-", "bytes=5-1000",
			"bytes=9-5", "bytes=99999999999999999999-", "bytes=x-", "bytes=", "bytes=-", "bytes= 3 - 4 ", "bytes=3"},
		"If-Range":            {"", etag, `"other"`, `W/"5f3e"`, at(0), at(time.Second), "yesterday"},
		"If-Match":            {"", "*", etag, `"other"`, `W/"5f3e"`, `"other", "5f3e"`, "5f3e"},
		"If-None-Match":       {"", "*", etag, `"other"`, `W/"5f3e"`, `"a","b" , W/"5f3e"`, "5f3e"},
		"If-Modified-Since":   {"", at(0), at(-time.Second), at(time.Hour), "never"},
		"If-Unmodified-Since": {"", at(0), at(-time.Second), at(time.Hour), "never"},
	}
	ask := func(serve http.HandlerFunc, method string, headers map[string]string) *http.Response {
		r := httptest.NewRequest(method, "/", nil)
		for k, v := range headers {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		serve(w, r)
		return w.Result()
	}
	compare := func(method string, headers map[string]string) {
		t.Helper()
		a, b := ask(ours, method, headers), ask(theirs, method, headers)
		got, _ := io.ReadAll(a.Body)
		want, _ := io.ReadAll(b.Body)
		if a.StatusCode != b.StatusCode {
			// net/http answers some ranges that cannot be read with 416; RFC 9110
			// has them ignored.
			if b.StatusCode == 416 && a.StatusCode == 200 && unreadable(headers["Range"]) {
				return
			}
			t.Errorf("%s %v: %d, net/http %d", method, headers, a.StatusCode, b.StatusCode)
			return
		}
		if a.StatusCode < 300 && !bytes.Equal(got, want) {
			t.Errorf("%s %v: %q, net/http %q", method, headers, got, want)
		}
		if cr, tr := a.Header.Get("Content-Range"), b.Header.Get("Content-Range"); cr != tr && !(b.StatusCode == 416 && tr == "") {
			t.Errorf("%s %v: Content-Range %q, net/http %q", method, headers, cr, tr)
		}
		if a.StatusCode < 300 && a.Header.Get("Content-Length") != b.Header.Get("Content-Length") {
			t.Errorf("%s %v: Content-Length %q, net/http %q", method, headers, a.Header.Get("Content-Length"), b.Header.Get("Content-Length"))
		}
		if a.StatusCode < 400 && (a.Header.Get("ETag") != etag || a.Header.Get("Last-Modified") != b.Header.Get("Last-Modified") && a.StatusCode != 304) {
			t.Errorf("%s %v: validators %v", method, headers, a.Header)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		for name, list := range values {
			for _, v := range list {
				for _, other := range []string{"Range", "If-Match", "If-None-Match", "If-Modified-Since"} {
					for _, w := range values[other] {
						compare(method, map[string]string{other: w, name: v})
					}
				}
			}
		}
	}
	// RFC 9110 calls a suffix of no bytes unsatisfiable; net/http sends nothing.
	if a := ask(ours, "GET", map[string]string{"Range": "bytes=-0"}); a.StatusCode != 416 {
		t.Errorf("a suffix of no bytes: %d", a.StatusCode)
	}
	a := ask(ours, "GET", map[string]string{"Range": "bytes=0-1,4-5"})
	if body, _ := io.ReadAll(a.Body); a.StatusCode != 200 || string(body) != text {
		t.Errorf("several ranges: %d %q", a.StatusCode, body)
	}
}

// unreadable reports whether a Range header does not follow the grammar.
func unreadable(header string) bool {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return true
	}
	_, _, _, use := parseRange("bytes="+spec, 20)
	return !use
}

func TestFileRoute(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	base := repoPath(populated, "file")
	get := s.want(http.StatusOK, "GET", base+"?path=/README.md", token, nil, nil)
	head := s.want(http.StatusOK, "HEAD", base+"?path=README.md", token, nil, nil)
	get.header.Del("Date")
	head.header.Del("Date")
	for _, name := range []string{"Etag", "X-Blob-Sha", "X-Last-Commit-Sha", "Last-Modified", "Accept-Ranges", "Content-Type", "Content-Length"} {
		if get.header.Get(name) == "" || get.header.Get(name) != head.header.Get(name) {
			t.Errorf("%s is %q for GET and %q for HEAD", name, get.header.Get(name), head.header.Get(name))
		}
	}
	if string(get.body) != "hello again\n" || len(head.body) != 0 {
		t.Errorf("bodies are %q and %q", get.body, head.body)
	}
	if get.header.Get("Etag") != `"`+get.header.Get("X-Blob-Sha")+`"` || get.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("headers are %v", get.header)
	}
	var branch struct {
		Branch struct {
			HeadSHA string `json:"head_sha"`
		} `json:"branch"`
	}
	s.want(http.StatusOK, "GET", repoPath(populated, "branch?name=main"), token, nil, &branch)
	if get.header.Get("X-Last-Commit-Sha") != branch.Branch.HeadSHA {
		t.Errorf("last commit is %q, tip %q", get.header.Get("X-Last-Commit-Sha"), branch.Branch.HeadSHA)
	}
	// An untouched file keeps the commit that brought it.
	old := s.want(http.StatusOK, "GET", base+"?path=src/a.txt", token, nil, nil)
	s.want(http.StatusOK, "GET", repoPath(populated, "branch?name=old"), token, nil, &branch)
	if old.header.Get("X-Last-Commit-Sha") != branch.Branch.HeadSHA {
		t.Errorf("last commit of an untouched file is %q", old.header.Get("X-Last-Commit-Sha"))
	}
	part := s.do("GET", base+"?path=README.md", token, nil, "Range", "bytes=6-10")
	if part.status != 206 || string(part.body) != "again" || part.header.Get("Content-Range") != "bytes 6-10/12" {
		t.Errorf("range: %d %q %v", part.status, part.body, part.header)
	}
	same := s.do("GET", base+"?path=README.md", token, nil, "If-None-Match", get.header.Get("Etag"))
	if same.status != 304 || len(same.body) != 0 || same.header.Get("X-Blob-Sha") == "" {
		t.Errorf("not modified: %d %v", same.status, same.header)
	}
	beyond := s.do("GET", base+"?path=README.md", token, nil, "Range", "bytes=12-")
	if beyond.status != 416 || beyond.header.Get("Content-Range") != "bytes */12" || beyond.error(t).Code != "range_not_satisfiable" {
		t.Errorf("beyond: %d %v %s", beyond.status, beyond.header, beyond.body)
	}
	if moved := s.do("GET", base+"?path=README.md", token, nil, "If-Match", `"x"`); moved.status != 412 || moved.error(t).Code != "precondition_failed" {
		t.Errorf("If-Match: %d %s", moved.status, moved.body)
	}
	for query, want := range map[string]string{
		"path=README.md&ref=old": "hello\n", "path=README.md&ref=main~1": "hello\n", "path=README.md&ref=" + branch.Branch.HeadSHA: "hello\n",
		"path=s&ref=session&ephemeral=true": "1", "path=s&ref=session&ephemeral_base=true": "1",
		"path=README.md&ref=old&ephemeral=true&ephemeral_base=true": "hello\n",
		"path=s&ref=session&ephemeral=false&ephemeral_base=true":    "1",
		"path=s&ref=refs/namespaces/ephemeral/refs/heads/session":   "1",
		"path=README.md&ref=refs/heads/old":                         "hello\n",
	} {
		if got := s.file(populated, query); got != want {
			t.Errorf("%s: %q", query, got)
		}
	}
	for query, status := range map[string]int{
		"": 400, "path=": 400, "path=/": 400, "path=..": 400, "path=a/../README.md": 400, "path=a//b": 400, "path=src/": 400, "path=a%00b": 400,
		"path=src": 404, "path=none": 404, "path=README.md/x": 404, "path=README.md&ref=none": 404, "path=s&ref=session": 404,
		"path=README.md&ephemeral=1": 400, "path=README.md&ephemeral=": 400, "path=README.md&ref=" + strings.Repeat("ab", 20): 404, "path=%zz": 400,
	} {
		a := s.do("GET", with(base, query), token, nil)
		if a.status != status {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
		a.error(t)
	}
	s.create("empty")
	s.refused(http.StatusNotFound, "not_found", "GET", repoPath("empty", "file?path=x"), s.full("empty"), nil)
}

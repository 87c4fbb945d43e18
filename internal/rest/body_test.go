package rest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/service"
)

func TestBasicCredentials(t *testing.T) {
	s := newStack(t)
	populate(s)
	for _, scheme := range []string{"Basic", "basic", "BASIC"} {
		for _, user := range []string{"t", "", "x-access-token"} {
			value := scheme + " " + base64.StdEncoding.EncodeToString([]byte(user+":"+s.full(populated)))
			if a := s.do("GET", "/api/v1/repos/archive", "", nil, "Authorization", value); a.status != http.StatusOK {
				t.Errorf("%s as %q: %d", scheme, user, a.status)
			}
		}
	}
	for _, value := range []string{"Basic", "Basic !", "Basic dDo=", "Digest x", "Bearer", "Bearer ", s.full(populated)} {
		if a := s.do("GET", "/api/v1/repo", "", nil, "Authorization", value); a.status != http.StatusUnauthorized {
			t.Errorf("%.10q: %d", value, a.status)
		}
	}
}

// TestRefusalsWaitForTheBody uploads more than sockets buffer and reads the
// answer only afterwards, as many clients do.
func TestRefusalsWaitForTheBody(t *testing.T) {
	s := newStack(t)
	populate(s)
	body := commitBody(nil, map[string]string{"big": strings.Repeat("x", 3<<20)})
	body += strings.Repeat(strings.Repeat(" ", 1<<20)+"\n", 20)
	for name, token := range map[string]string{"anonymous": "", "foreign": s.full("team/other"), "scopeless": s.token(populated, auth.GitRead)} {
		conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", repoPath(populated, "commit-pack"), token, len(body))
		if _, err := io.WriteString(conn, body); err != nil {
			t.Fatalf("%s: the upload was cut off: %v", name, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode < 400 || !strings.Contains(string(data), `"result"`) {
			t.Errorf("%s: %d %s %v", name, resp.StatusCode, data, err)
		}
	}
}

// TestUnexpectedShapes: a refusal says what is wrong with a body.
func TestUnexpectedShapes(t *testing.T) {
	s := newStack(t)
	s.create("r")
	for body, want := range map[string]string{
		`[]`:                "the request body has an unexpected array",
		`"x"`:               "the request body has an unexpected string",
		`{"name":7}`:        `the request body has an unexpected number in "name"`,
		`{"name":"x"} {}`:   "the request body holds more than one JSON value",
		`{"name":"x"`:       "the request body is not valid JSON",
		`{"name":"\ud800"}`: "the request body is not valid UTF-8, or escapes half of a character",
	} {
		e := s.refused(http.StatusBadRequest, api.Invalid, "POST", repoPath("r", "tags"), s.full("r"), body)
		if e.Message != want {
			t.Errorf("%s: %q, want %q", body, e.Message, want)
		}
	}
}

// TestExpectContinue refuses a client before it has sent anything.
func TestExpectContinue(t *testing.T) {
	s := newStack(t)
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /api/v1/repos/commit-pack HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%v %v", resp, err)
	}
}

// TestStalledBody ends requests whose body stops arriving or is cut off.
func TestStalledBody(t *testing.T) {
	s := newStack(t)
	populate(s)
	s.handler.IdleTimeout = 300 * time.Millisecond
	before := s.state()
	head := commitBody(nil, map[string]string{"f": "new"})
	for name, row := range map[string]struct {
		cut    bool
		status int
		label  string
	}{"stalled": {false, http.StatusRequestTimeout, "timeout"}, "cut off": {true, http.StatusBadRequest, "invalid"}} {
		conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", repoPath(populated, "commit-pack"), s.full(populated))
		fmt.Fprintf(conn, "%x\r\n%s\r\n", len(head), head)
		if row.cut {
			conn.(*net.TCPConn).CloseWrite()
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != row.status || !strings.Contains(string(data), `"status":"`+row.label+`"`) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, data)
		}
		if after := s.state(); after != before {
			t.Errorf("%s: the commit landed", name)
		}
	}
}

func TestBodyRules(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	// White space is no body, unknown members are passed over.
	s.want(http.StatusOK, "POST", "/api/v1/repos/archive", token, " \n ", nil)
	s.want(http.StatusOK, "POST", "/api/v1/repos/archive", token, `{"surprise":1}`, nil)
	a := s.do("POST", "/api/v1/repos/archive", token, "{}", "Content-Encoding", "gzip")
	if a.status != http.StatusBadRequest || a.error(t).Code != api.Invalid {
		t.Errorf("gzip body: %d %s", a.status, a.body)
	}
	e := s.refused(http.StatusBadRequest, api.Invalid, "POST", "/api/v1/repos/archive", token, `{"ref":{"secret":"value"}}`)
	if strings.Contains(e.Message, "value") || !strings.Contains(e.Message, "ref") {
		t.Errorf("message is %q", e.Message)
	}
}

// TestUploadMemory sends a large commit and a large file back: memory does not
// grow with them.
func TestUploadMemory(t *testing.T) {
	s := newStack(t)
	s.create("r")
	const chunks = 24
	part := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("0123456789abcdef", maxChunk/16)))
	body, w := io.Pipe()
	go func() {
		io.WriteString(w, strings.SplitN(commitBody(nil, map[string]string{"big": ""}), "\n", 2)[0]+"\n")
		for i := range chunks {
			fmt.Fprintf(w, "{\"blob_chunk\":{\"content_id\":\"c1\",\"data\":%q,\"eof\":%t}}\n", part, i == chunks-1)
		}
		w.Close()
	}()
	var most uint64
	watch := readerFunc(func(p []byte) (int, error) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		return body.Read(p)
	})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	req, err := http.NewRequest("POST", s.server.URL+repoPath("r", "commit-pack"), bufio.NewReaderSize(watch, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.full("r"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	if grown := int64(most) - int64(m.HeapAlloc); grown > 48<<20 {
		t.Errorf("memory grew by %d MiB while %d MiB arrived", grown>>20, chunks*maxChunk>>20)
	}
	a := s.do("GET", repoPath("r", "file?path=big"), s.full("r"), nil, "Range", "bytes=-16")
	if a.status != http.StatusPartialContent || string(a.body) != "0123456789abcdef" {
		t.Errorf("the end of the file: %d %q", a.status, a.body)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestFaultsSayNothing holds that unknown errors show no cause.
func TestFaultsSayNothing(t *testing.T) {
	p := service.Public(fmt.Errorf("open /var/lib/secret: broken"))
	if p.Code != service.Internal || p.Status() != 500 || strings.Contains(p.Message, "secret") || p.Err == nil {
		t.Errorf("%+v", p)
	}
}

package hostile_test

import (
	"encoding/base64"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// patience is when a test gives up on a server that does not end a request.
const patience = 30 * time.Second

// TestHostileSlow opens requests whose bodies never come: the server ends each of
// them, whether anybody reads the body or not, and goes on serving.
func TestHostileSlow(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--idle-timeout", "1s"}})
	createPublic(t, s, "r", commit(publicTree.id()))
	credential := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+tokenOf(s, "r"))) + "\r\n"
	push, commits := "Content-Type: application/x-git-receive-pack-request\r\n", "Content-Type: application/x-ndjson\r\n"
	rows := map[string]string{
		"push":                     "POST /r.git/git-receive-pack HTTP/1.1\r\n" + push + credential,
		"push without credentials": "POST /r.git/git-receive-pack HTTP/1.1\r\n" + push,
		"push of another type":     "POST /r.git/git-receive-pack HTTP/1.1\r\n" + credential,
		"fetch":                    "POST /r.git/git-upload-pack HTTP/1.1\r\nContent-Type: application/x-git-upload-pack-request\r\n" + credential,
		"listing with a body":      "GET /r.git/info/refs?service=git-upload-pack HTTP/1.1\r\n" + credential,
		"commit":                   "POST /api/repos/r/commit-pack HTTP/1.1\r\n" + commits + credential,
		"commit to nothing":        "POST /api/repos/absent/commit-pack HTTP/1.1\r\n" + commits + credential,
		"commit without token":     "POST /api/repos/r/commit-pack HTTP/1.1\r\n" + commits,
		"branch":                   "POST /api/repos/r/branches/create HTTP/1.1\r\n" + credential,
		"list with a body":         "GET /api/repos/r/branches HTTP/1.1\r\n" + credential,
		"no route":                 "POST /api/nothing HTTP/1.1\r\n",
		"nothing":                  "POST /nothing HTTP/1.1\r\n",
		"health":                   "POST /healthz HTTP/1.1\r\n",
		"metrics":                  "POST /metrics HTTP/1.1\r\n",
		"chunked":                  "POST /nothing HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
	}
	var all sync.WaitGroup
	for what, head := range rows {
		all.Go(func() {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Error(err)
				return
			}
			if !strings.Contains(head, "chunked") {
				head += "Content-Length: 100000\r\n"
			}
			if _, err := io.WriteString(c, head+"Host: x\r\n\r\n00"); err != nil {
				t.Error(err)
				return
			}
			// The end of the connection, not only an answer.
			if answer, err := io.ReadAll(c); err != nil {
				t.Errorf("%s: %v after %q", what, err, answer)
			}
		})
	}
	all.Wait()
	if a := fetch(t, s, "r", tokenOf(s, "r"), 2, fetchV2("want "+commit(publicTree.id()).id(), "done")); !hasPack(a) {
		t.Errorf("fetch afterwards: %d %q", a.Status, a.Body)
	}
}

package hostile_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// operation is what the server's own document says can be asked of it.
type operation struct{ method, path string }

// operations are those that take a body, by the server's OpenAPI document.
func operations(t *testing.T, s *harness.Server) []operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	a := request(t, s, http.MethodGet, "/api/openapi.json", "", nil, nil)
	if err := json.Unmarshal(a.Body, &doc); err != nil {
		t.Fatal(err)
	}
	var all []operation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range []string{"post", "put", "patch", "delete"} {
			if _, ok := doc.Paths[path][method]; ok {
				all = append(all, operation{strings.ToUpper(method), strings.NewReplacer("{repo}", "r", "{tag}", "v1", "{credential}", "cred_1", "{webhook}", "wh_1").Replace(path)})
			}
		}
	}
	if len(all) < 40 {
		t.Fatalf("the document has the operations %v", all)
	}
	return all
}

// heavyBodies are bodies that would cost much if they were taken as they are.
func heavyBodies() map[string]func() (io.Reader, map[string]string) {
	text := func(body string) func() (io.Reader, map[string]string) {
		return func() (io.Reader, map[string]string) { return strings.NewReader(body), nil }
	}
	bombed := gzipped(make([]byte, bomb))
	return map[string]func() (io.Reader, map[string]string){
		"deep lists":         text(strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)),
		"deep objects":       text(strings.Repeat(`{"a":`, 200_000)),
		"a long string":      text(`{"target_branch":"` + strings.Repeat("x", 16<<20) + `"}`),
		"a long name":        text(`{"` + strings.Repeat("x", 16<<20) + `":1}`),
		"a long number":      text(`{"limit":` + strings.Repeat("9", 16<<20) + `}`),
		"a list of millions": text(`{"files":[` + strings.Repeat("{},", 4_000_000) + `{}]}`),
		"many members":       text("{" + strings.Repeat(`"a":1,`, 2_000_000) + `"a":1}`),
		"blanks": func() (io.Reader, map[string]string) {
			return io.MultiReader(strings.NewReader("{"), io.LimitReader(newlines{}, 64<<20)), nil
		},
		"a gzip bomb": func() (io.Reader, map[string]string) {
			return bytes.NewReader(bombed), map[string]string{"Content-Encoding": "gzip"}
		},
		"escapes": text(`{"a":"` + strings.Repeat(`\u0041`, 2_000_000) + `"}`),
	}
}

// counters match those of refusals and of requests.
var (
	refusalCounter = regexp.MustCompile(`(?m)^cairn_refusals_total\{code="([^"]+)",route="[^"]+"\} (\d+)$`)
	failureCounter = regexp.MustCompile(`(?m)^cairn_requests_total\{.*status="5\d\d".*$`)
)

// TestHostileBodies sends heavy bodies to every operation that takes one: each is
// refused with the body that clients parse and counted, memory stays bounded, and
// afterwards nothing is left of it.
func TestHostileBodies(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	public := commit(publicTree.id())
	createPublic(t, s, "r", public)
	s.Stop()
	rows, kept := rowCounts(t, s), files(t, s)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	token := s.Token(harness.Grant{Repo: "r", Scopes: allScopes})
	before, sent := allRefs(t, s, "r"), 0
	bodies := heavyBodies()
	for _, op := range operations(t, s) {
		for _, what := range slices.Sorted(maps.Keys(bodies)) {
			for _, kind := range []string{"application/json", "application/x-ndjson"} {
				if kind == "application/x-ndjson" && !strings.Contains(op.path, "commit") {
					continue
				}
				body, header := bodies[what]()
				all := map[string]string{"Content-Type": kind}
				maps.Copy(all, header)
				sent++
				a := request(t, s, op.method, op.path, token, all, body)
				var e struct {
					Error  string `json:"error"`
					Code   string `json:"code"`
					Status int    `json:"status"`
				}
				if err := json.Unmarshal(a.Body, &e); err != nil || a.Status/100 != 4 || e.Error == "" || e.Code == "" || e.Status != a.Status {
					t.Errorf("%s %s: %s: %d %.300q (%v)", op.method, op.path, what, a.Status, a.Body, err)
				}
			}
		}
	}
	if now := peak(t, s); now > memoryLimit {
		t.Errorf("the server took %d KiB, more than %d", now, memoryLimit)
	} else {
		t.Logf("%d requests were refused; the server took %d KiB", sent, now)
	}
	if now := allRefs(t, s, "r"); now != before {
		t.Errorf("refs are now\n%s\nwere\n%s", now, before)
	}
	metrics := string(request(t, s, http.MethodGet, "/metrics", "", nil, nil).Body)
	refused := 0
	for _, m := range refusalCounter.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if refused += n; m[1] == "internal" || m[1] == "unavailable" {
			t.Errorf("the server failed: %s", m[0])
		}
	}
	for _, line := range failureCounter.FindAllString(metrics, -1) {
		t.Errorf("the server failed: %s", line)
	}
	if refused != sent {
		t.Errorf("%d refusals of %d are counted", refused, sent)
	}
	endUnchanged(t, s, rows, kept)
}

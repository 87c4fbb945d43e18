package rest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
)

// timed is how many requests of each kind a median is taken of.
const timed = 1000

// TestForeignTakesAsLong compares the time of answers to requests for what exists
// elsewhere with that for what exists nowhere, asked in turn.
func TestForeignTakesAsLong(t *testing.T) {
	if !testkit.Soaking() {
		t.Skip("it measures time, which make test does not: make soak runs it")
	}
	s := newStack(t)
	populate(s)
	hidden := s.commit(populated, nil, map[string]string{"secret": "1"}).Result.NewSHA
	s.commit("team/other", nil, map[string]string{"own": "1"})
	token := s.full("team/other")
	absent := strings.Repeat("5e", 20)
	for _, row := range []struct{ name, method, foreign, absent, body string }{
		{"a repository", "GET", repoPath(populated, ""), repoPath("team/gone", ""), ""},
		{"its branches", "GET", repoPath(populated, "branches"), repoPath("team/gone", "branches"), ""},
		{"a commit to it", "POST", repoPath(populated, "commit-pack"), repoPath("team/gone", "commit-pack"), commitBody(nil, map[string]string{"n": "1"})},
		{"a search of it", "POST", repoPath(populated, "grep"), repoPath("team/gone", "grep"), `{"query":{"pattern":"x"}}`},
		{"its deletion", "DELETE", repoPath(populated, ""), repoPath("team/gone", ""), ""},
		{"a commit of it", "GET", repoPath("team/other", "commit?ref="+hidden), repoPath("team/other", "commit?ref="+absent), ""},
		{"files of its commit", "GET", repoPath("team/other", "files?ref="+hidden), repoPath("team/other", "files?ref="+absent), ""},
		{"a diff with its commit", "GET", repoPath("team/other", "diff?ref="+hidden), repoPath("team/other", "diff?ref="+absent), ""},
	} {
		t.Run(row.name, func(t *testing.T) { s.takeAsLong(t, row.method, row.foreign, row.absent, token, row.body, row.body) })
	}
}

// takeAsLong compares the median times of two requests.
func (s *stack) takeAsLong(t *testing.T, method, foreign, absent, token, foreignBody, absentBody string) {
	t.Helper()
	var theirs, nothing time.Duration
	for range 3 { // other work on the machine may disturb a round; what is different stays so
		theirs, nothing = s.medians(method, [2]string{foreign, absent}, token, [2]string{foreignBody, absentBody})
		t.Logf("%v foreign, %v absent", theirs, nothing)
		if max(theirs, nothing).Seconds() <= 1.05*min(theirs, nothing).Seconds() {
			return
		}
	}
	t.Errorf("the median of %d answers is %v for what is foreign, %v for what is absent", timed, theirs, nothing)
}

// TestForeignThreadTakesAsLong does so for threads, checkpoints and objects.
func TestForeignThreadTakesAsLong(t *testing.T) {
	if !testkit.Soaking() {
		t.Skip("it measures time, which make test does not: make soak runs it")
	}
	s := newStack(t)
	populate(s)
	s.capture("mine", makeWorkspace(map[string]string{"own": "1"}))
	token := s.threadToken("mine")
	digest, absent := firstTree.objects[0].Digest.String(), strings.Repeat("5e", 32)
	blob := "/api/blobs/sandbox-files/sha256/"
	for _, row := range []struct{ name, method, foreign, absent, foreignBody, absentBody string }{
		{"a thread", "GET", threadPath(someThread, ""), threadPath("gone/1", ""), "", ""},
		{"a checkpoint", "GET", "/api/checkpoints/" + firstPoint, "/api/checkpoints/point-9", "", ""},
		{"a file of it", "GET", "/api/checkpoints/" + firstPoint + "/files/w/a", "/api/checkpoints/point-9/files/w/a", "", ""},
		{"its deletion", "DELETE", "/api/checkpoints/" + firstPoint, "/api/checkpoints/point-9", "", ""},
		{"a blob", "GET", blob + blobSum, blob + absent, "", ""},
		{"a chunk", "GET", blob + digest, blob + absent, "", ""},
		{"objects", "POST", threadPath("mine", "blobs/get"), threadPath("mine", "blobs/get"), `{"digests":["` + digest + `"]}`, `{"digests":["` + absent + `"]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.takeAsLong(t, row.method, row.foreign, row.absent, token, row.foreignBody, row.absentBody)
		})
	}
}

// medians asks for two things in turn, over one connection, and returns the median
// time of each.
func (s *stack) medians(method string, paths [2]string, token string, bodies [2]string) (time.Duration, time.Duration) {
	s.t.Helper()
	var times [2][]time.Duration
	for i := range 2 * (timed + 50) {
		path := paths[i%2]
		req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(bodies[i%2]))
		if err != nil {
			s.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		start := time.Now()
		resp, err := s.server.Client().Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		took := time.Since(start)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			s.t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
		}
		if i >= 100 { // the first ones warm what is remembered
			times[i%2] = append(times[i%2], took)
		}
	}
	slices.Sort(times[0])
	slices.Sort(times[1])
	return times[0][timed/2], times[1][timed/2]
}

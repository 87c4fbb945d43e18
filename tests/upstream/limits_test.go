package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// silence passes what a request is answered with on to a limit of bytes, and
// then sends nothing.
type silence struct {
	http.ResponseWriter
	left    int
	request context.Context
}

func (s *silence) Write(p []byte) (int, error) {
	if s.left < len(p) {
		s.ResponseWriter.Write(p[:s.left])
		s.left = 0
		http.NewResponseController(s.ResponseWriter).Flush()
		<-s.request.Done()
		return 0, s.request.Err()
	}
	s.left -= len(p)
	return s.ResponseWriter.Write(p)
}

func (s *silence) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// TestSilentUpstream: an upstream that stops sending, wherever it does, ends the
// sync with a reason after the idle time, and it succeeds by itself once the
// upstream speaks again.
func TestSilentUpstream(t *testing.T) {
	w := newWorld(t, harness.Options{Args: []string{"--upstream-idle", "1s"}})
	tip := w.commit("trunk", "", "a", strings.Repeat("many lines of text\n", 50_000))
	var names []string
	for name, row := range map[string]struct {
		silent func(r *http.Request, body []byte) bool
		after  int
		want   string
	}{
		"before-the-advertisement": {func(r *http.Request, _ []byte) bool { return r.Method == "GET" }, -1, "did not answer in time"},
		"in-the-advertisement":     {func(r *http.Request, _ []byte) bool { return r.Method == "GET" }, 40, "stopped sending"},
		"in-the-list-of-refs":      {func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte("command=ls-refs")) }, 10, "stopped sending"},
		"before-the-pack":          {func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte("command=fetch")) }, -1, "did not answer in time"},
		"in-the-pack":              {func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte("command=fetch")) }, 200, "stopped sending"},
	} {
		w.front(func(pass http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				switch {
				case !row.silent(r, body):
				case row.after < 0:
					<-r.Context().Done()
					return
				default:
					rw = &silence{rw, row.after, r.Context()}
				}
				pass.ServeHTTP(rw, r)
			})
		})
		w.follow(name)
		if reason := w.failed(name); !strings.Contains(reason, row.want) {
			t.Errorf("%s: %q, want %q", name, reason, row.want)
		}
		names = append(names, name)
	}
	w.front(nil)
	for _, name := range names {
		w.synced(name, "refs/heads/trunk "+tip)
	}
}

// counted counts the bytes of answers.
type counted struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

func (c counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// TestFarDiverged: an upstream that was forced back by hundreds of commits and
// forgot them knows none of the many branches here; what is shared is found all
// the same, in some rounds, and not sent again.
func TestFarDiverged(t *testing.T) {
	w := newWorld(t, harness.Options{})
	var script strings.Builder
	history := func(g harness.Git, ref, from string, n, noise int) {
		script.Reset()
		for i := range n {
			script.WriteString("commit " + ref + "\ncommitter T <t@example.com> 1700000000 +0000\ndata 1\nx\n")
			if i == 0 && from != "" {
				script.WriteString("from " + from + "\n")
			}
			script.WriteString("M 100644 inline " + ref[len("refs/heads/"):] + "\ndata <<EOT\n" + noisy(i, noise) + "\nEOT\n\n")
		}
		g.Input(script.String(), "fast-import", "--quiet", "--force")
	}
	history(w.origin, "refs/heads/trunk", "", 1500, 1000)
	w.follow("m")
	tip := strings.TrimSpace(w.origin.Run("rev-parse", "trunk"))
	w.synced("m", "refs/heads/trunk "+tip)
	imported := w.cairn.Remote(harness.Grant{Repo: "m"}, "")
	git := harness.NewGit(t)
	work := git.In(t.TempDir() + "/work")
	git.Run("clone", "-q", imported, work.Dir)
	for i := range 80 {
		history(work, "refs/heads/local/"+string(rune('a'+i%26))+strings.Repeat("x", i/26), tip, 2, 10)
	}
	work.Run("push", "-q", "origin", "refs/heads/local/*")

	fork := strings.TrimSpace(w.origin.Run("rev-parse", "trunk~500"))
	history(w.origin, "refs/heads/trunk", fork, 3, 1000)
	w.origin.Run("reflog", "expire", "--expire=now", "--all")
	w.origin.Run("gc", "-q", "--prune=now")
	if _, err := w.origin.Try("cat-file", "-e", tip); err == nil {
		t.Fatal("the upstream still has its old tip")
	}
	var rounds, sent atomic.Int64
	w.front(func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil && bytes.Contains(body, []byte("command=fetch")) {
				rounds.Add(1)
				rw = counted{rw, &sent}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			pass.ServeHTTP(rw, r)
		})
	})
	w.pull("m")
	moved := strings.TrimSpace(w.origin.Run("rev-parse", "trunk"))
	w.until("the forced tip", func() bool {
		refs := w.refs("m")
		return refs[len(refs)-1] == "refs/heads/trunk "+moved
	})
	// A full answer has some 750 KiB of noise.
	if rounds.Load() < 2 || sent.Load() > 60<<10 {
		t.Errorf("%d rounds, %d bytes", rounds.Load(), sent.Load())
	}
	t.Logf("%d rounds, %d bytes", rounds.Load(), sent.Load())
}

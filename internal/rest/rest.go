// Package rest serves the REST interface: it turns requests into calls of
// package service and answers in the types of package api. One table names
// every route; it decides who may call it, and everything else follows from it.
package rest

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/service"
)

// Config is what a Handler stands on.
type Config struct {
	Service *service.Service
	// PublicURL returns the base of the URLs that clients use, without a slash
	// at its end.
	PublicURL func() string
	// IdleTimeout is how long a client may neither send nor take anything;
	// 0 means 60 s. There is no limit for a request as a whole.
	IdleTimeout time.Duration
	// Log takes faults; it is never given a credential.
	Log *slog.Logger
	// Refused is told of each request that is refused, or fails: its route and the
	// code of the error. nil is nobody.
	Refused func(route, code string)
	// Stopping is closed when the server stops: streams then end. nil never is.
	Stopping <-chan struct{}
}

// Handler serves every path below /api. The http.Server that runs it must have
// neither ReadTimeout nor WriteTimeout.
type Handler struct {
	Config
	patterns []pattern
	streams  streams
	large    *semaphore.Weighted // for request bodies
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler.
func New(c Config) *Handler {
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 60 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Refused == nil {
		c.Refused = func(string, string) {}
	}
	h := &Handler{Config: c, large: semaphore.NewWeighted(maxBodies)}
	for _, r := range routes() {
		if r.legacy != "" {
			h.mount("api/v1/"+r.legacy, r)
		}
		if r.path != "" {
			h.mount("api/"+r.path, r)
		}
	}
	return h
}

// unrouted is the route name of what is below /api and in no table.
const unrouted = "api.none"

// documentPath is where anybody may read what the table says, as OpenAPI.
var documentPath = []string{"api", "openapi.json"}

// Match reports whether a request is for this handler, and the name of its
// route.
func (h *Handler) Match(r *http.Request) (route string, ok bool) {
	segments := split(r.URL.EscapedPath())
	if len(segments) == 0 || segments[0] != "api" {
		return "", false
	}
	if p, _ := h.find(segments); p != nil {
		if rt := p.methods[r.Method]; rt != nil {
			return rt.name, true
		}
	}
	return unrouted, true
}

// ServeHTTP answers one request. It never redirects.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(h, w, r)
	segments := split(r.URL.EscapedPath())
	if slices.Equal(segments, documentPath) && r.Method == http.MethodGet {
		c.header().Set("Content-Type", "application/json")
		_, _ = c.Write(api.OpenAPI) // the client may be gone
		return
	}
	p, at := h.find(segments)
	if p == nil {
		c.fail(&service.Error{Code: service.NotFound, Message: "there is nothing at this path"})
		return
	}
	rt := p.methods[r.Method]
	if rt == nil {
		allow := p.allow()
		c.header().Set("Allow", allow)
		c.fail(&service.Error{Code: service.MethodNotAllowed, Message: "method not allowed here: use " + allow})
		return
	}
	c.route, c.place = rt, at
	if err := c.serve(); err != nil {
		c.fail(err)
	}
}

// pattern is a path and what can be done there.
type pattern struct {
	segments []string
	methods  map[string]*route
}

// repoSegment stands for the name of a repository in the paths of routes, and
// restSegment, at the end, for one segment or more. Any other segment in braces
// stands for the name of something else, of which a path has one at most: the field
// of the request with that tag "path" takes it.
const (
	repoSegment = "{r}"
	restSegment = "{" + restTag + "}"
	restTag     = "path"
)

// place is what the segments in braces of a pattern are in a path.
type place struct{ repo, item, rest string }

func (h *Handler) mount(path string, r *route) {
	segments := strings.Split(path, "/")
	for i := range h.patterns {
		if p := &h.patterns[i]; slices.Equal(p.segments, segments) {
			p.methods[r.method] = r
			return
		}
	}
	h.patterns = append(h.patterns, pattern{segments: segments, methods: map[string]*route{r.method: r}})
}

// find returns the pattern of a path, nil for none, and what the path names.
func (h *Handler) find(segments []string) (*pattern, place) {
	for i := range h.patterns {
		if at, ok := h.patterns[i].match(segments); ok {
			return &h.patterns[i], at
		}
	}
	return nil, place{}
}

func (p *pattern) match(segments []string) (at place, ok bool) {
	last := len(p.segments) - 1
	if len(segments) != len(p.segments) && (len(segments) < len(p.segments) || p.segments[last] != restSegment) {
		return place{}, false
	}
	for i, want := range p.segments {
		switch {
		case want == restSegment:
			at.rest = strings.Join(segments[i:], "/")
		case want == repoSegment:
			at.repo = segments[i]
		case want[0] == '{':
			at.item = segments[i]
		case want != segments[i]:
			return place{}, false
		}
	}
	return at, true
}

func (p *pattern) allow() string {
	methods := make([]string, 0, len(p.methods))
	for m := range p.methods {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// split returns the segments of an escaped path, each decoded once; empty ones
// are passed over. A path with a broken escape has no segments.
func split(escaped string) []string {
	var segments []string
	for s := range strings.SplitSeq(escaped, "/") {
		if s == "" {
			continue
		}
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil
		}
		segments = append(segments, plain)
	}
	return segments
}

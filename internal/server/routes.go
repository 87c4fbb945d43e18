package server

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/githttp"
	"github.com/cairnstate/cairn/internal/obs"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/rest"
	"github.com/cairnstate/cairn/internal/service"
)

// healthWait bounds the query behind /healthz.
const healthWait = 5 * time.Second

// routes composes the main handler: Git where the path says so, then /api, then
// the operator's pages.
func (s *Server) routes(version string) http.Handler {
	git := &githttp.Handler{
		Backend:     gitBackend{s.service, s.metrics.Refused},
		ErrorStatus: status,
		Log:         s.log,
		Wire:        wire.Server{Agent: "cairn/" + version},
		Limits:      githttp.Limits{Idle: s.cfg.IdleTimeout},
	}
	api := rest.New(rest.Config{Service: s.service, PublicURL: s.URL, IdleTimeout: s.cfg.IdleTimeout, Log: s.log, Refused: s.metrics.Refused, Stopping: s.stop})
	return s.observed(func(r *http.Request) (string, http.Handler) { return s.pick(git, api, r) })
}

// observed measures and logs every request of the handlers that pick chooses, and
// answers for one that panics. The route that pick names is from a fixed set.
func (s *Server) observed(pick func(*http.Request) (string, http.Handler)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, h := pick(r)
		cleanAgent(r.Header)
		m := s.metrics.Begin(route)
		body := &countedBody{ReadCloser: r.Body}
		r.Body = body
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		start := time.Now()
		if r.ContentLength != 0 {
			// A body that nobody reads is waited for when the answer goes out. Whoever
			// reads it moves the deadline. Not every ResponseWriter knows deadlines.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(s.cfg.IdleTimeout))
		}
		defer func() {
			failure := recover()
			if failure != nil && failure != http.ErrAbortHandler {
				s.log.Error("request failed", "route", route, "panic", failure, "stack", string(debug.Stack()))
				if rec.wrote {
					failure = http.ErrAbortHandler // what was begun must not look complete
				} else {
					http.Error(rec, "internal error; the server's log has the cause", http.StatusInternalServerError)
				}
			}
			m.End(rec.status, body.n, rec.n)
			s.log.Info("request", "route", route, "method", r.Method, "status", rec.status, "remote", s.remote(r),
				"agent", first(r.Header.Get("Code-Storage-Agent"), r.UserAgent()), "received", body.n, "sent", rec.n,
				"ms", float64(time.Since(start).Microseconds())/1000)
			if failure == http.ErrAbortHandler {
				panic(failure)
			}
		}()
		h.ServeHTTP(rec, r)
	})
}

// agentHeaders say what a client calls itself, which the log and the audit keep.
var agentHeaders = []string{"Code-Storage-Agent", "User-Agent"}

// cleanAgent takes what looks like a credential out of a client's name.
func cleanAgent(h http.Header) {
	for _, name := range agentHeaders {
		for i, v := range h[name] {
			h[name][i] = obs.Redact(v)
		}
	}
}

func (s *Server) pick(git *githttp.Handler, api *rest.Handler, r *http.Request) (string, http.Handler) {
	pages := origins(s.cfg.AllowOrigins)
	if route, ok := githttp.Match(r); ok {
		return route.Name(), pages.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveGit(git, route, w, r) }))
	}
	if route, ok := api.Match(r); ok {
		return route, pages.handler(api)
	}
	switch r.URL.Path {
	case "/healthz":
		return "healthz", http.HandlerFunc(s.healthz)
	case "/readyz":
		return "readyz", http.HandlerFunc(s.readyz)
	case "/metrics":
		if s.admin == nil {
			return "metrics", s.metrics.Handler()
		}
	}
	return "none", http.HandlerFunc(notFound)
}

// serveGit registers the request as an operation, so that no pack it reads is
// removed under it, however long it takes.
func (s *Server) serveGit(git *githttp.Handler, route githttp.Route, w http.ResponseWriter, r *http.Request) {
	ctx, done, err := s.service.Begin(r.Context())
	if err != nil {
		s.log.Error("request refused", "route", route.Name(), "err", err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "the server cannot reach its database; try again in a few seconds", http.StatusServiceUnavailable)
		return
	}
	defer done()
	git.Serve(w, r.WithContext(ctx), route)
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusNotFound, map[string]any{"error": "there is nothing at this path", "status": 404, "code": "not_found"})
}

// healthz answers 200 when the database answers a real query.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthWait)
	defer cancel()
	if err := s.storage.Meta.Ping(ctx); err != nil {
		s.log.Error("health check failed", "err", err)
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable"})
		return
	}
	answer(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz answers 200 while the server takes new requests.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.stopping.Load() {
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "stopping"})
		return
	}
	s.healthz(w, r)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// remote is the client's address: the last one that a trusted proxy vouches for.
func (s *Server) remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && s.trusted(host); i-- {
		hop := strings.TrimSpace(hops[i])
		if _, err := netip.ParseAddr(hop); err != nil {
			break
		}
		host = hop
	}
	return host
}

func (s *Server) trusted(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range s.cfg.TrustedProxies {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// gitBackend hands Git requests to the use cases, and counts what they refuse.
type gitBackend struct {
	*service.Service
	refused func(route, code string)
}

var namespaces = map[githttp.Kind]repo.Namespace{
	githttp.Normal:    repo.Normal,
	githttp.Ephemeral: repo.EphemeralNS,
	githttp.Import:    repo.Normal,
}

// Routes of refusals in Git, and the codes of those that only Git knows.
const (
	fetchRoute    = "git-upload-pack"
	pushRoute     = "git-receive-pack"
	unpackRefused = "unpack_refused"
	refRefused    = "ref_refused"
)

func (b gitBackend) Upload(ctx context.Context, cred githttp.Credential, name string, kind githttp.Kind) (wire.Uploader, error) {
	up, err := b.Service.Upload(ctx, cred.Token, name, namespaces[kind])
	if err != nil {
		b.refused(fetchRoute, string(service.Public(err).Code))
	}
	return up, err
}

func (b gitBackend) Receive(ctx context.Context, cred githttp.Credential, name string, kind githttp.Kind) (wire.Receiver, error) {
	rc, err := b.Service.Receive(ctx, cred.Token, cred.Agent, name, namespaces[kind])
	if err != nil {
		b.refused(pushRoute, string(service.Public(err).Code))
		return nil, err
	}
	return countedReceiver{rc, b.refused}, nil
}

// countedReceiver counts pushes that are refused in the answer, once each.
type countedReceiver struct {
	wire.Receiver
	refused func(route, code string)
}

func (r countedReceiver) Receive(ctx context.Context, p *wire.Push, pack io.Reader) (wire.PushResult, error) {
	res, err := r.Receiver.Receive(ctx, p, pack)
	switch {
	case err != nil:
		r.refused(pushRoute, string(service.Public(err).Code))
	case res.Unpack != "":
		r.refused(pushRoute, unpackRefused)
	case slices.ContainsFunc(res.Refs, func(s wire.RefStatus) bool { return s.Error != "" }):
		r.refused(pushRoute, refRefused)
	}
	return res, err
}

func status(err error) (int, string) {
	p := service.Public(err)
	return p.Status(), p.Message
}

// recorder notes what was answered. Unwrap lets http.ResponseController reach
// the connection.
type recorder struct {
	http.ResponseWriter
	status int
	n      int64
	wrote  bool
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if status >= 200 {
		r.status, r.wrote = status, true
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.wrote = true
	n, err := r.ResponseWriter.Write(p)
	r.n += int64(n)
	return n, err
}

// ReadFrom keeps the fast path of the connection for whole files.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	r.wrote = true
	n, err := io.Copy(r.ResponseWriter, src)
	r.n += n
	return n, err
}

// countedBody counts what was received.
type countedBody struct {
	io.ReadCloser
	n int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

// Package githttp serves Git's smart HTTP protocol: it turns requests into
// exchanges of package wire and leaves to a [Backend] who may do what.
package githttp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/wire"
)

// Backend opens repositories for one request. It authenticates the credential
// and checks what it may do; a repository that is foreign must be
// indistinguishable from one that does not exist.
type Backend interface {
	Upload(ctx context.Context, cred Credential, repo string, kind Kind) (wire.Uploader, error)
	Receive(ctx context.Context, cred Credential, repo string, kind Kind) (wire.Receiver, error)
}

// Limits bound what a request may take. Zero fields stand for the defaults.
type Limits struct {
	// Idle is how long a client may neither send nor take anything (60 s). There
	// is no limit for a request as a whole.
	Idle time.Duration
	// Drain is how much of a refused request body is read so that the client gets
	// to see the answer (256 MiB).
	Drain int64
	// Inflated is how large a compressed request body may become (256 MiB).
	Inflated int64
}

// Handler serves the Git URLs that [Match] recognises. Backend, ErrorStatus and
// Log have to be set. The http.Server that runs it must have neither ReadTimeout
// nor WriteTimeout.
type Handler struct {
	Backend Backend
	// ErrorStatus maps an error of the backend to a status and to a line that the
	// client is shown. Faults map to 500 and say nothing of their cause.
	ErrorStatus func(error) (status int, message string)
	// Log takes failures; it is never given a credential.
	Log    *slog.Logger
	Wire   wire.Server
	Limits Limits
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP serves a request on its own; other paths than Git's are 404.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, ok := Match(r)
	if !ok {
		writeError(w, http.StatusNotFound, "not found")
		return
	}
	h.Serve(w, r, route)
}

// exchange is one request under way.
type exchange struct {
	h       *Handler
	stream  *stream
	r       *http.Request
	route   Route
	receive bool // receive-pack, else upload-pack
	version int
}

// Serve serves a request whose route Match returned.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, route Route) {
	x := &exchange{h: h, r: r, route: route, version: wire.Version(strings.Join(r.Header.Values("Git-Protocol"), ":"))}
	if status, message := x.check(); status != 0 {
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", x.method())
		}
		writeError(w, status, message)
		return
	}
	cred, ok := credential(r)
	if !ok {
		writeError(w, http.StatusUnauthorized, "authentication required")
		return
	}
	if route.Kind == Import && !x.receive {
		writeError(w, http.StatusForbidden, "the +import remote is write-only: push to it, and read from the repository's own URL")
		return
	}
	x.serve(w, cred)
}

// method is what the endpoint is asked with.
func (x *exchange) method() string {
	if x.route.endpoint == infoRefs {
		return http.MethodGet
	}
	return http.MethodPost
}

// check refuses what cannot be served, whatever the repository.
func (x *exchange) check() (status int, message string) {
	service := ""
	switch x.route.endpoint {
	case dumb:
		return http.StatusForbidden, "not served here: use a Git client that speaks the smart HTTP protocol"
	case infoRefs:
		service = x.r.URL.Query().Get("service")
	case uploadPack:
		service = "git-upload-pack"
	case receivePack:
		service = "git-receive-pack"
	}
	switch service {
	case "git-upload-pack":
	case "git-receive-pack":
		x.receive = true
	case "":
		return http.StatusForbidden, "the dumb HTTP protocol is not served: use a newer Git client"
	default:
		return http.StatusForbidden, "this service is not served"
	}
	if x.r.Method != x.method() && (x.route.endpoint != infoRefs || x.r.Method != http.MethodHead) {
		return http.StatusMethodNotAllowed, "method not allowed, use " + x.method()
	}
	return 0, ""
}

// name is the service as content types spell it.
func (x *exchange) name() string {
	if x.receive {
		return "git-receive-pack"
	}
	return "git-upload-pack"
}

// serve opens the repository and has the exchange.
func (x *exchange) serve(w http.ResponseWriter, cred Credential) {
	x.stream = newStream(w, x.r, x.h.Limits)
	var body io.Reader
	if x.route.endpoint != infoRefs {
		checked, refused := requestBody(x.r.Header, "application/x-"+x.name()+"-request", x.stream)
		if refused != nil {
			writeError(w, refused.status, refused.message)
			return
		}
		body = checked
	}
	x.conclude(x.talk(cred, body))
}

// talk opens the repository and has the exchange of the endpoint.
func (x *exchange) talk(cred Credential, body io.Reader) error {
	ctx, s, out := x.r.Context(), &x.h.Wire, x.stream
	out.contentType = "application/x-" + x.name() + "-result"
	if x.route.endpoint == infoRefs {
		out.contentType = "application/x-" + x.name() + "-advertisement"
	}
	if x.receive {
		rc, err := x.h.Backend.Receive(ctx, cred, x.route.Repo, x.route.Kind)
		switch {
		case err != nil:
			return err
		case x.route.endpoint == infoRefs:
			return s.AdvertiseReceive(ctx, &announced{out, "001f# service=git-receive-pack\n0000"}, rc, x.version)
		}
		return s.ReceivePack(ctx, body, out, rc)
	}
	up, err := x.h.Backend.Upload(ctx, cred, x.route.Repo, x.route.Kind)
	switch {
	case err != nil:
		return err
	case x.route.endpoint != infoRefs:
		return s.UploadPack(ctx, body, out, up, x.version)
	case x.version == 2:
		return s.AdvertiseUpload(ctx, out, up, x.version)
	}
	return s.AdvertiseUpload(ctx, &announced{out, "001e# service=git-upload-pack\n0000"}, up, x.version)
}

// announced writes a line about the service before anything else, as HTTP
// clients expect of an advertisement. Nothing is written as long as there is
// nothing to announce, so that a fault still gets a status of its own.
type announced struct {
	w    io.Writer
	line string
}

// Write writes p after the line.
func (a *announced) Write(p []byte) (int, error) {
	if a.line != "" {
		if _, err := io.WriteString(a.w, a.line); err != nil {
			return 0, err
		}
		a.line = ""
	}
	return a.w.Write(p)
}

// conclude ends the response in the way that err asks for.
func (x *exchange) conclude(err error) {
	_, reported := errors.AsType[*wire.ReportedError](err)
	status, message := x.status(err)
	if err != nil {
		x.log(err, status, reported)
	}
	switch {
	case err == nil || reported:
		x.stream.begin()
	case !x.stream.begun:
		if status != http.StatusUnauthorized {
			x.stream.drain()
		}
		writeError(x.stream.rw, status, message)
	default:
		// The response must not look complete.
		panic(http.ErrAbortHandler)
	}
}

// status maps an error of an exchange to what the client is told when nothing
// was written yet.
func (x *exchange) status(err error) (status int, message string) {
	if err == nil {
		return http.StatusOK, ""
	}
	if body, ok := x.stream.broken(); ok {
		return body.status, body.message
	}
	if body, ok := errors.AsType[*bodyError](err); ok {
		return body.status, body.message
	}
	if bad, ok := errors.AsType[*wire.MalformedError](err); ok {
		return http.StatusBadRequest, bad.Reason
	}
	return x.h.ErrorStatus(err)
}

// log records a failure: refusals and the client's faults at level Info.
func (x *exchange) log(err error, status int, reported bool) {
	level := slog.LevelInfo
	if status >= 500 && x.r.Context().Err() == nil {
		level = slog.LevelError
	}
	x.h.Log.Log(x.r.Context(), level, "git request failed",
		"service", x.name(), "repo", x.route.Repo, "kind", x.route.Kind.String(),
		"status", status, "told", reported, "err", err)
}

// writeError answers with one line that git shows to its user.
func writeError(w http.ResponseWriter, status int, message string) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	noCache(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="Git Repository"`)
	}
	w.WriteHeader(status)
	// The client may be gone; there is nobody else to tell.
	_, _ = io.WriteString(w, strings.Join(strings.Fields(message), " ")+"\n")
}

// noCache sets the headers that git http-backend sets on all that may change.
func noCache(h http.Header) {
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("X-Accel-Buffering", "no")
}

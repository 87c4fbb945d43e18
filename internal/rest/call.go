package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/service"
)

// A refused request body is read to its end within these bounds, because many
// clients look at the answer only when they have sent everything.
const (
	maxDrain  = 256 << 20 // bytes
	drainTime = 30 * time.Second
)

// call is one request under way.
type call struct {
	*Handler
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // of the operation: it ends before the call
	control *http.ResponseController
	body    *body
	once    once

	route  *route
	place  place // what the path names
	access *service.Access
	branch string // that a commit is for, once known

	held    int64 // of the room for large bodies
	begun   bool  // the response has begun
	lost    bool  // the client took it no further
	writeAt time.Time
}

func newCall(h *Handler, w http.ResponseWriter, r *http.Request) *call {
	c := &call{Handler: h, w: w, r: r, control: http.NewResponseController(w)}
	c.body = &body{r: r, control: c.control, idle: h.IdleTimeout}
	return c
}

func (c *call) header() http.Header { return c.w.Header() }

// serve authorises the request and runs its operation.
func (c *call) serve() error {
	defer func() { c.large.Release(c.held) }()
	if c.route.rows {
		return c.perform(c.r.Context())
	}
	ctx, done, err := c.Service.Begin(c.r.Context())
	if err != nil {
		return err
	}
	defer done()
	if err = c.perform(ctx); err != nil && errors.Is(context.Cause(ctx), repo.ErrLeaseLost) {
		return repo.ErrLeaseLost
	}
	return err
}

func (c *call) perform(ctx context.Context) (err error) {
	c.ctx = ctx
	if c.access, err = c.route.access.open(ctx, c.Service, token(c.r), c.place); err != nil {
		return err
	}
	c.access.Agent = clip(first(c.r.Header.Get("Code-Storage-Agent"), c.r.UserAgent()))
	if err = c.takeKey(); err != nil {
		return err
	}
	if err = c.route.op.run(c); err != nil {
		return c.settle(err)
	}
	return nil
}

// token returns the token of a Bearer or Basic (any user, the password)
// Authorization header, "" when there is none.
func token(r *http.Request) string {
	scheme, value, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	value = strings.TrimSpace(value)
	switch strings.ToLower(scheme) {
	case "bearer":
		return value
	case "basic":
		plain, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return ""
		}
		_, password, _ := strings.Cut(string(plain), ":")
		return password
	}
	return ""
}

// Write writes to the body of the response; a client has to take something
// within the idle time.
func (c *call) Write(p []byte) (int, error) {
	c.begun = true
	if now := time.Now(); now.Sub(c.writeAt) > c.IdleTimeout/8 {
		c.writeAt = now
		// Not every ResponseWriter knows deadlines; those of net/http do.
		_ = c.control.SetWriteDeadline(now.Add(c.IdleTimeout))
	}
	n, err := c.w.Write(p)
	c.lost = c.lost || err != nil
	return n, err
}

var _ io.Writer = (*call)(nil)

// answer ends the call with a JSON body.
func (c *call) answer(status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.sendJSON(status, data)
	return nil
}

// sendJSON ends the call with a JSON text.
func (c *call) sendJSON(status int, data []byte) {
	c.body.drain()
	h := c.header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	// The client may be gone; there is nobody else to tell.
	_, _ = c.Write(append(data, '\n'))
}

// fail ends the call with an error. What was begun must not look complete: the
// connection then breaks.
func (c *call) fail(err error) {
	if broken := c.body.broken(); broken != nil {
		err = broken
	}
	p := service.Public(err)
	c.log(p)
	if c.begun {
		panic(http.ErrAbortHandler)
	}
	h := c.header()
	switch p.Status() {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challenge(p))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter()))
	}
	message := clip(p.Message)
	e := api.Error{
		Message: message, Code: api.Code(p.Code), Status: p.Status(),
		Title: http.StatusText(p.Status()), Detail: message, Type: "about:blank",
	}
	if full, ok := errors.AsType[*repo.QuotaError](p.Err); ok {
		e.Limit, e.Used, e.Reserved, e.Needed = &full.Limit, &full.Used, &full.Reserved, &full.Needed
	}
	if pruned, ok := errors.AsType[*service.PrunedError](p.Err); ok {
		e.NextAfter = pruned.Next
	}
	if c.route != nil && c.route.commits {
		e.Result = refusedUpdate(p, message, clip(c.branch))
	}
	if c.route != nil && c.route.merges {
		e.MergeRefusal = refusedMerge(p)
	}
	e.SnapshotRefusal = refusedSnapshot(p)
	if err := c.answer(p.Status(), e); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// maxTold bounds in bytes what a refusal repeats of the request.
const maxTold = 2 << 10

func clip(text string) string {
	if len(text) <= maxTold {
		return text
	}
	return strings.ToValidUTF8(text[:maxTold], "") + "..."
}

func challenge(p *service.Error) string {
	if api.Code(p.Code) == api.TokenMissing {
		return `Bearer realm="cairn"`
	}
	return `Bearer realm="cairn", error="invalid_token"`
}

// log counts a refusal, and records faults as errors, unless the client left and that is why.
func (c *call) log(p *service.Error) {
	level := slog.LevelDebug
	if p.Status() >= 500 && !c.lost && c.r.Context().Err() == nil {
		level = slog.LevelError
	}
	name := unrouted
	if c.route != nil {
		name = c.route.name
	}
	c.Refused(name, string(p.Code))
	cause := error(p)
	if p.Err != nil {
		cause = p.Err
	}
	c.Log.Log(c.r.Context(), level, "request refused", "route", name, "code", string(p.Code), "err", cause)
}

// labels are the words that clients know for why a commit was refused.
var labels = map[service.Code]string{
	service.Invalid:           "invalid",
	service.Unsupported:       "invalid",
	service.ScopeMissing:      "forbidden",
	service.Denied:            "forbidden",
	service.NotFound:          "not_found",
	service.RepositoryMissing: "not_found",
	service.Timeout:           "timeout",
	service.AlreadyExists:     "conflict",
	service.Conflict:          "conflict",
	service.MergeConflict:     "conflict",
	service.DefaultBranch:     "conflict",
	service.KeyReused:         "conflict",
	service.RepositoryDeleted: "not_found",
	service.Stale:             "precondition_failed",
	service.Syncing:           "conflict",
	service.NoChanges:         "precondition_failed",
	service.Precondition:      "precondition_failed",
	service.TooLarge:          "payload_too_large",
	service.QuotaExceeded:     "failed",
	service.Limited:           "unavailable",
	service.Unavailable:       "unavailable",
	service.Internal:          "internal",
}

// refusedUpdate is the result of a commit that was refused.
func refusedUpdate(p *service.Error, message, branch string) *api.UpdateResult {
	status, ok := labels[p.Code]
	if !ok {
		status = "unauthorized" // all that is left are the codes of tokens
	}
	result := &api.UpdateResult{Status: status, Message: message}
	if p.Code == service.NoChanges {
		return result
	}
	result.Branch, result.TargetBranch = branch, branch
	if stale, ok := errors.AsType[*repo.StaleError](p.Err); ok {
		result.OldSHA, result.NewSHA = stale.Current.String(), stale.Current.String()
	}
	return result
}

package checkpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cairnstate/cairn/api"
	cairn "github.com/cairnstate/cairn/sdk/go"
)

// Remote is the Store, and the Blobs, of a Cairn server.
type Remote struct {
	client *cairn.Client
	http   *http.Client
}

var (
	_ Store   = (*Remote)(nil)
	_ Forker  = (*Remote)(nil)
	_ Counter = (*Remote)(nil)
	_ Blobs   = (*Remote)(nil)
)

// Scopes of tokens.
const (
	readScope  = "checkpoint:read"
	writeScope = "checkpoint:write"
	everything = "*" // the thread of a token for a checkpoint whose thread is not known
)

// Waits for a server.
const (
	headerWait = 2 * time.Minute // for an answer to begin
	maxWait    = 20 * time.Second
	attempts   = 5
)

// maxAnswer bounds an answer that is read into memory.
const maxAnswer = 256 << 20

// NewRemote returns what the server of client keeps. With a private key it mints tokens that are good for one thread each;
// a given token decides itself what it allows. Requests that change nothing, or the same when repeated, are repeated while no
// answer comes.
func NewRemote(client *cairn.Client) *Remote {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.ResponseHeaderTimeout = headerWait
	return &Remote{client: client, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Identity is the server's address and the organisation.
func (r *Remote) Identity() string { return r.client.BaseURL().String() + "#" + r.client.Org() }

// Close gives its connections back.
func (r *Remote) Close() { r.http.CloseIdleConnections() }

// request is one call.
type request struct {
	method, path string
	query        url.Values
	thread       string // of the token
	repo         string // of the token, if the route needs one
	scopes       []string
	in           any    // sent as JSON, if given
	body         []byte // sent as it is
	kind         string // content type of body
	key          string // Idempotency-Key
	again        bool   // whether it may be repeated
	expected     string // the head, for the error that says that it moved
}

func threadPath(thread, rest string) string { return "/api/threads/" + url.PathEscape(thread) + rest }

func checkpointPath(id, rest string) string { return "/api/checkpoints/" + url.PathEscape(id) + rest }

// call sends a request and decodes its JSON answer into out.
func (r *Remote) call(ctx context.Context, q request, out any) error {
	return r.open(ctx, q, func(resp *http.Response) error {
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return r.unreachable(err)
		}
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(b, out); err != nil {
			return errorf(ErrUnavailable, "the answer of %s is not what a Cairn server sends", r.client.BaseURL().Host)
		}
		return nil
	})
}

// open sends a request and hands its answer to read, again after answers that ask for it.
func (r *Remote) open(ctx context.Context, q request, read func(*http.Response) error) error {
	if q.in != nil {
		b, err := json.Marshal(q.in)
		if err != nil {
			return err
		}
		q.body, q.kind = b, "application/json"
	}
	for try, wait := 1, firstWait; ; try, wait = try+1, min(2*wait, lastWait) {
		asked, err := r.once(ctx, q, read)
		if err == nil || !q.again || try == attempts || ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && asked == 0 {
			return err
		}
		select {
		case <-time.After(max(wait, asked)):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// once sends a request once. It returns how long the server asks to wait, 0 if it does not.
func (r *Remote) once(ctx context.Context, q request, read func(*http.Response) error) (time.Duration, error) {
	token, err := r.client.Token(ctx, cairn.TokenParams{Thread: q.thread, RepoName: q.repo, Scopes: q.scopes})
	if err != nil {
		return 0, err
	}
	target := r.client.BaseURL().String() + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "cairn-sdk-go")
	if q.kind != "" {
		req.Header.Set("Content-Type", q.kind)
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return 0, r.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		asked := time.Duration(0)
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && time.Duration(s)*time.Second <= maxWait {
			asked = time.Duration(s) * time.Second
		}
		return asked, r.refusal(resp, q)
	}
	return 0, read(resp)
}

// unreachable says why a request got no answer.
func (r *Remote) unreachable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	host := r.client.BaseURL().Host
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{Code: ErrDenied, Message: fmt.Sprintf("the certificate of %s is not trusted (%v); trust its CA, for example with SSL_CERT_FILE", host, cert.Err), Err: err}
	}
	if asked, ok := errors.AsType[*url.Error](err); ok {
		err = asked.Err // without the URL
	}
	return &Error{Code: ErrUnavailable, Message: fmt.Sprintf("no answer from %s (%v); is the server running?", host, err), Err: err}
}

// codes are those of answers whose own code is not about checkpoints, by status.
var codes = map[int]Code{
	http.StatusBadRequest: ErrInvalid, http.StatusRequestEntityTooLarge: ErrTooLarge,
	http.StatusUnauthorized: ErrDenied, http.StatusForbidden: ErrDenied,
	http.StatusNotFound:        ErrNotFound,
	http.StatusTooManyRequests: ErrLimited, http.StatusInsufficientStorage: ErrLimited,
	http.StatusBadGateway: ErrUnavailable, http.StatusServiceUnavailable: ErrUnavailable, http.StatusGatewayTimeout: ErrUnavailable,
	http.StatusRequestTimeout: ErrUnavailable,
}

// refusal turns an answer that is no success into an error.
func (r *Remote) refusal(resp *http.Response, q request) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return r.unreachable(err)
	}
	e := api.Error{SnapshotRefusal: &api.SnapshotRefusal{}}
	if json.Unmarshal(b, &e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("%s answered %d %s, not as a Cairn server does", r.client.BaseURL().Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	code, known := codes[resp.StatusCode]
	switch {
	case e.Code == api.StaleHead:
		return &HeadConflictError{Thread: q.thread, Expected: q.expected, Head: e.Head}
	case e.Code == api.MissingObject:
		missing := &MissingBlobError{}
		for _, s := range e.Missing {
			if d, err := parseDigest(s); err == nil {
				missing.Digests = append(missing.Digests, d)
			}
		}
		return missing
	case !known || e.Code == api.Pinned || e.Code == api.ThreadMissing || len(e.Code) > 8 && e.Code[:8] == "SANDBOX_":
		code = Code(e.Code)
	}
	return &Error{Code: code, Message: e.Message}
}

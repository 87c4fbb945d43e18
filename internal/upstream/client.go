package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/netguard"
)

// Error says why an upstream could not be read. Its text is for the owner of the
// repository: it holds no address, no credential and nothing that the upstream
// sent beyond a short message.
type Error struct {
	Message string
	// Transient says that it may work later as it is.
	Transient bool
	Err       error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, for the log.
func (e *Error) Unwrap() error { return e.Err }

func refused(err error, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Err: err}
}

// errIdle ends a request when the upstream sends nothing.
var errIdle = errors.New("the upstream sends nothing")

// remote is one repository on another host, for one sync.
type remote struct {
	base           *url.URL
	user, password string
	transport      http.RoundTripper
	guard          *netguard.Guard
	idle           time.Duration // without a byte
	maxRefs        int

	format bool // it names its object format
}

// maxRedirects bounds how often the first request is led on.
const maxRedirects = 3

// do sends one request. The body of the response ends with an error when
// nothing comes for the idle time.
func (r *remote) do(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(r.idle, func() { cancel(errIdle) })
	req, err := http.NewRequestWithContext(ctx, method, r.base.String()+path, bytes.NewReader(body))
	if err != nil {
		cancel(err)
		return nil, refused(err, "the upstream's URL cannot be used")
	}
	if err := r.guard.CheckURL(req.URL); err != nil {
		cancel(err)
		return nil, refused(err, "%s", err.Error())
	}
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("User-Agent", "git/2.40 (cairn)")
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		req.Header.Set("Accept", "application/x-git-upload-pack-result")
	}
	if r.password != "" {
		req.SetBasicAuth(r.user, r.password)
	}
	client := &http.Client{Transport: r.transport, CheckRedirect: r.follow}
	resp, err := client.Do(req)
	if err != nil {
		err = r.unreachable(ctx, err)
		cancel(err)
		timer.Stop()
		return nil, err
	}
	out := &idleBody{ReadCloser: resp.Body, timer: timer, idle: r.idle, cancel: cancel, ctx: ctx}
	timer.Stop()
	if err := r.check(resp, body != nil); err != nil {
		out.Close()
		return nil, err
	}
	if base, ok := strings.CutSuffix(resp.Request.URL.Path, "/info/refs"); ok {
		r.base = &url.URL{Scheme: resp.Request.URL.Scheme, Host: resp.Request.URL.Host, Path: base}
	}
	return out, nil
}

// follow allows a redirect of the first request within the host.
func (r *remote) follow(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host:
		return refused(nil, "the upstream redirects to another host: name that host instead")
	case len(via) > maxRedirects, via[0].Method != http.MethodGet, !strings.HasSuffix(req.URL.Path, "/info/refs"):
		return refused(nil, "the upstream redirects to something that is no repository")
	}
	return r.guard.CheckURL(req.URL)
}

// unreachable turns a failure to send a request into an *Error.
func (r *remote) unreachable(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if guard, ok := errors.AsType[*netguard.RefusedError](err); ok {
		return refused(err, "%s", guard.Error())
	}
	if errors.Is(context.Cause(ctx), errIdle) {
		return &Error{Message: "the upstream did not answer in time", Transient: true, Err: err}
	}
	return &Error{Message: "the upstream cannot be reached", Transient: true, Err: err}
}

// check refuses a response that is not one of Git's smart protocol.
func (r *remote) check(resp *http.Response, result bool) error {
	err := fmt.Errorf("%s %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	want := "application/x-git-upload-pack-advertisement"
	if result {
		want = "application/x-git-upload-pack-result"
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK && resp.Header.Get("Content-Type") == want:
		return nil
	case code == http.StatusOK:
		return refused(err, "the upstream does not answer as a Git server does")
	case code == http.StatusUnauthorized && r.password == "":
		return refused(err, "the upstream asks for a credential and none is stored: store one, then pull")
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return refused(err, "the upstream refuses the credential: replace it, then pull")
	case code == http.StatusNotFound:
		return refused(err, "the upstream repository is not found, or the credential does not reach it")
	case code == http.StatusTooManyRequests, code >= 500:
		return &Error{Message: fmt.Sprintf("the upstream answers with status %d", code), Transient: true, Err: err}
	}
	return refused(err, "the upstream answers with status %d", resp.StatusCode)
}

// idleBody is a response body whose reads must not wait too long.
type idleBody struct {
	io.ReadCloser
	timer  *time.Timer
	idle   time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context
}

func (b *idleBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.idle)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
		message := "the connection to the upstream broke off"
		if errors.Is(err, errIdle) {
			message = "the upstream stopped sending"
		}
		err = &Error{Message: message, Transient: true, Err: err}
	}
	return n, err
}

func (b *idleBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(context.Canceled)
	return err
}

// garbled is what an upstream's answer that breaks the protocol is told as.
func garbled(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, pktline.ErrTruncated) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Message: "the upstream's answer ended early", Transient: true, Err: err}
	}
	return refused(err, "the upstream's answer breaks Git's protocol")
}

// refs asks for branches and tags, and the full name that HEAD points to, "" when
// it points to none.
func (r *remote) refs(ctx context.Context) (refs map[string]object.ID, head string, err error) {
	if err := r.discover(ctx); err != nil {
		return nil, "", err
	}
	args := []string{"symrefs", "ref-prefix HEAD", "ref-prefix refs/heads/", "ref-prefix refs/tags/"}
	body, err := r.command(ctx, "ls-refs", args)
	if err != nil {
		return nil, "", err
	}
	defer body.Close()
	list := refList{refs: make(map[string]object.ID), max: r.maxRefs}
	if err := list.read(body); err != nil {
		return nil, "", err
	}
	return list.refs, list.head, nil
}

// maxCapabilities bounds what an upstream may say of itself, in packets.
const maxCapabilities = 256

// discover checks that the upstream speaks protocol version 2.
func (r *remote) discover(ctx context.Context) error {
	body, err := r.do(ctx, http.MethodGet, "/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	in := pktline.NewReader(bufio.NewReader(body))
	p, err := in.Next()
	if err == nil && p.Kind == pktline.Data && string(p.Line()) == "# service=git-upload-pack" {
		if p, err = in.Next(); err == nil && p.Kind == pktline.Flush {
			p, err = in.Next()
		}
	}
	if err != nil {
		return garbled(err)
	}
	if p.Kind != pktline.Data || string(p.Line()) != "version 2" {
		return refused(nil, "the upstream does not speak version 2 of Git's protocol")
	}
	has := make(map[string]bool)
	for range maxCapabilities {
		if p, err = in.Next(); err != nil {
			return garbled(err)
		}
		if p.Kind != pktline.Data {
			break
		}
		name, value, _ := strings.Cut(string(p.Line()), "=")
		has[name] = true
		if name == "object-format" && value != "sha1" {
			return refused(nil, "the upstream uses the object format %.20q: only sha1 can be followed", value)
		}
	}
	if !has["ls-refs"] || !has["fetch"] {
		return refused(nil, "the upstream does not offer fetching")
	}
	r.format = has["object-format"]
	return nil
}

// command sends one command of protocol version 2.
func (r *remote) command(ctx context.Context, name string, args []string) (io.ReadCloser, error) {
	var req bytes.Buffer
	w := pktline.NewWriter(&req)
	lines := []string{"command=" + name, "agent=cairn"}
	if r.format {
		lines = append(lines, "object-format=sha1")
	}
	for _, l := range lines {
		if err := w.WriteString(l); err != nil {
			return nil, err
		}
	}
	err := w.Delim()
	for _, a := range args {
		err = errors.Join(err, w.WriteString(a))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return nil, err
	}
	return r.do(ctx, http.MethodPost, "/git-upload-pack", req.Bytes())
}

package cli

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
	"os"
	"time"

	"github.com/cairnstate/cairn/internal/service"
)

// remote is the REST side of a server as the client commands use it.
type remote struct {
	base *url.URL
	env  Env
	id   identity
}

// maxAnswer bounds an answer that is read into memory.
const maxAnswer = 64 << 20

// token returns the given token, or mints one for the repository and scope.
func (r *remote) token(repo, scope string) (string, error) {
	if r.id.key == "" {
		if t, err := givenToken(r.env); t != "" || err != nil {
			return t, err
		}
	}
	id := r.id
	id.repo, id.ttl = repo, time.Minute
	t, _, err := id.mint(r.env, []string{scope}, nil)
	return t, err
}

// call sends one request and decodes the JSON answer into out.
func (r *remote) call(ctx context.Context, method, path, repo, scope string, in, out any) error {
	token, err := r.token(repo, scope)
	if err != nil {
		return err
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base.String()+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "cairn/"+version)
	resp, err := client().Do(req)
	if err != nil {
		return unreachable(r.base, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.base.Host, err)
	}
	if resp.StatusCode >= 300 {
		return refusal(resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer of %s is not what a Cairn server sends: %w", r.base.Host, err)
	}
	return nil
}

// unreachable says why a request to the server got no answer.
func unreachable(base *url.URL, err error) error {
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate of %s is not trusted (%w); for a server with --dev-tls set SSL_CERT_FILE to its DATA/tls/bundle.pem", base.Host, cert.Err)
	}
	if asked, ok := errors.AsType[*url.Error](err); ok {
		err = asked.Err
	}
	return &service.Error{Code: service.Unavailable, Message: fmt.Sprintf("cannot reach %s (%v); is the server running?", base.Host, err), Err: err}
}

// refusal turns an error answer into the error that it was on the server.
func refusal(status int, answer []byte) error {
	var e struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	if json.Unmarshal(answer, &e) != nil || e.Error == "" {
		e.Error = fmt.Sprintf("the server answered %d %s, not as a Cairn server does", status, http.StatusText(status))
	}
	code := service.Code(e.Code)
	if (&service.Error{Code: code}).Status() != status {
		code = map[int]service.Code{
			400: service.Invalid, 401: service.Unauthorized, 403: service.Denied, 404: service.NotFound,
			409: service.Conflict, 412: service.NoChanges, 413: service.TooLarge, 429: service.Limited,
			502: service.Unavailable, 503: service.Unavailable, 504: service.Unavailable,
		}[status]
	}
	if code == "" {
		return fmt.Errorf("%s", e.Error)
	}
	return &service.Error{Code: code, Message: e.Error}
}

// client returns an HTTP client that follows no redirects.
func client() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func repoPath(name string) string { return "/api/repos/" + url.PathEscape(name) }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

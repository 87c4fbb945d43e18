// Package webhook delivers events to the endpoints of their orgs: signed, in
// order for each ref, at least once, and again after failures. The outbox is the
// events table with one position for each endpoint, so that writers pay nothing
// for endpoints.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/secret"
)

// Bounds of one attempt.
const (
	attemptTimeout = 10 * time.Second
	maxAnswer      = 16 << 10 // bytes of an answer's body that are read, to be dropped
)

// Sender makes single deliveries. It is safe for concurrent use.
type Sender struct {
	secrets *secret.Keyring
	client  *http.Client
	now     func() time.Time
}

// NewSender returns a Sender that connects through guard and follows no
// redirects. Without secrets nothing is signed that is stored sealed; now nil
// means time.Now.
func NewSender(secrets *secret.Keyring, guard *netguard.Guard, now func() time.Time) *Sender {
	if now == nil {
		now = time.Now
	}
	transport := guard.Transport(nil)
	transport.MaxIdleConns = 256
	return &Sender{secrets: secrets, now: now, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Outcome is what one attempt came to.
type Outcome struct {
	Delivered bool
	Status    int    // of the answer, 0 when there was none
	Error     string // a few words without addresses, "" when delivered
	Took      time.Duration
}

// Send makes one attempt to deliver an event to an endpoint.
func (s *Sender) Send(ctx context.Context, w meta.Webhook, e meta.Event) Outcome {
	start := time.Now()
	out := s.send(ctx, w, e)
	out.Took = time.Since(start)
	return out
}

func (s *Sender) send(ctx context.Context, w meta.Webhook, e meta.Event) Outcome {
	key, err := openSecret(s.secrets, w)
	if err != nil {
		return Outcome{Error: "the secret cannot be read: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(e.Body))
	if err != nil {
		return Outcome{Error: "the URL cannot be used"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Pierre-Webhook/1.0")
	req.Header.Set("X-Pierre-Event", e.Type)
	req.Header.Set("X-Pierre-Signature", Sign(key, e.Body, s.now()))
	if e.Position > 0 {
		req.Header.Set("X-Cairn-Event-Id", events.ID(e, w.Repo))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return Outcome{Error: describe(err)}
	}
	defer resp.Body.Close()
	// What the body says does not matter; a read connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	out := Outcome{Status: resp.StatusCode, Delivered: resp.StatusCode/100 == 2}
	switch {
	case out.Delivered:
	case resp.StatusCode/100 == 3:
		out.Error = fmt.Sprintf("status %d: redirects are not followed", resp.StatusCode)
	default:
		out.Error = fmt.Sprintf("status %d", resp.StatusCode)
	}
	return out
}

// describe says why there was no answer, without what the network looks like.
func describe(err error) string {
	var refused *netguard.RefusedError
	var resolve *net.DNSError
	var authority x509.UnknownAuthorityError
	var cert *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &resolve):
		return "the host's name does not resolve"
	case errors.As(err, &authority), errors.As(err, &cert):
		return "the host's certificate is not trusted"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return "the connection failed"
}

// Secrets that were stored when servers without a key took them begin with this
// byte; sealed ones begin with the version of their seal, which is never 0.
const plainSecret = 0

// sealSecret returns a secret as it is stored; [secret.ErrNoKey] when there is no
// key to seal it with.
func sealSecret(keys *secret.Keyring, id meta.WebhookID, plain string) ([]byte, error) {
	return keys.Seal(secretRow(id), []byte(plain))
}

func openSecret(keys *secret.Keyring, w meta.Webhook) ([]byte, error) {
	if len(w.Secret) > 0 && w.Secret[0] == plainSecret {
		return w.Secret[1:], nil
	}
	return keys.Open(secretRow(w.ID), w.Secret)
}

func secretRow(id meta.WebhookID) string { return "webhook/" + strconv.FormatInt(int64(id), 10) }

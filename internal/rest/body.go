package rest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/cairnstate/cairn/internal/service"
)

// body is the body of a request. A client has to send something within the idle
// time. Nothing is read before the first Read, so that a client which waits for
// "100 Continue" can be refused before it sends anything.
type body struct {
	r       *http.Request
	control *http.ResponseController
	idle    time.Duration

	copy     io.Writer // gets what is read, unless nil; it never fails
	received int64
	readAt   time.Time // when the deadline was moved last
	until    time.Time // no deadline goes beyond it, unless zero
	err      error     // why nothing more can be read; io.EOF at the end
}

// Read reads the body as it was sent. Its errors are io.EOF and *service.Error.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if now := time.Now(); now.Sub(b.readAt) > b.idle/8 {
		b.readAt = now
		deadline := now.Add(b.idle)
		if !b.until.IsZero() && deadline.After(b.until) {
			deadline = b.until
		}
		// Not every ResponseWriter knows deadlines; those of net/http do.
		_ = b.control.SetReadDeadline(deadline)
	}
	n, err := b.r.Body.Read(p)
	b.received += int64(n)
	if b.copy != nil {
		_, _ = b.copy.Write(p[:n])
	}
	switch {
	case err == io.EOF:
		// From here on net/http reads ahead, to notice that the client leaves.
		_ = b.control.SetReadDeadline(time.Time{})
		b.err = io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.err = &service.Error{Code: service.Timeout, Message: "the request body stopped arriving", Err: err}
	case err != nil:
		b.err = &service.Error{Code: service.Invalid, Message: "the request body ended early", Err: err}
	}
	return n, b.err
}

// drain reads what is left, within bounds.
func (b *body) drain() {
	if b.err != nil || b.r.Body == nil || b.r.Body == http.NoBody {
		return
	}
	if b.received == 0 && b.r.Header.Get("Expect") != "" {
		return
	}
	b.until, b.readAt = time.Now().Add(drainTime), time.Time{}
	// A failure stays in err; the answer is attempted all the same.
	_, _ = io.CopyN(io.Discard, b, maxDrain)
}

// broken returns what reading met, unless that was the end of the body.
func (b *body) broken() error {
	if b.err == io.EOF {
		return nil
	}
	return b.err
}

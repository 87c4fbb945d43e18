package githttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Defaults of Limits.
const (
	defaultIdle     = 60 * time.Second
	defaultDrain    = 256 << 20
	defaultInflated = 256 << 20
)

// stream is both directions of one exchange. Deadlines move with progress: a
// client has to send or take something within the idle time.
//
// Nothing is read before the first Read, so that a client which waits for
// "100 Continue" can be refused before it sends its body.
type stream struct {
	rw      http.ResponseWriter
	control *http.ResponseController
	body    io.Reader
	limits  Limits
	expects bool // the client waits for "100 Continue"

	contentType string
	begun       bool // the response has begun

	received        int64
	readErr         error     // why nothing more can be read; io.EOF at the end
	readAt, writeAt time.Time // when the deadlines were moved last
}

func newStream(w http.ResponseWriter, r *http.Request, limits Limits) *stream {
	if limits.Idle <= 0 {
		limits.Idle = defaultIdle
	}
	if limits.Drain <= 0 {
		limits.Drain = defaultDrain
	}
	if limits.Inflated <= 0 {
		limits.Inflated = defaultInflated
	}
	s := &stream{
		rw: w, control: http.NewResponseController(w), body: r.Body, limits: limits,
		expects: r.Header.Get("Expect") != "",
	}
	if r.Body == nil || r.Body == http.NoBody {
		s.readErr = io.EOF
	}
	return s
}

// Read reads the request body as it was sent.
func (s *stream) Read(p []byte) (int, error) {
	if s.readErr != nil {
		return 0, s.readErr
	}
	if now := time.Now(); now.Sub(s.readAt) > s.limits.Idle/8 {
		s.readAt = now
		// Not every ResponseWriter knows deadlines; those of net/http do.
		_ = s.control.SetReadDeadline(now.Add(s.limits.Idle))
	}
	n, err := s.body.Read(p)
	s.received += int64(n)
	switch {
	case err == io.EOF:
		// From here on net/http reads ahead, to notice that the client leaves.
		_ = s.control.SetReadDeadline(time.Time{})
		s.readErr = err
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.readErr = &bodyError{http.StatusRequestTimeout, "the request body stopped arriving", err}
	case err != nil:
		s.readErr = &bodyError{http.StatusBadRequest, "the request body ended early", err}
	}
	return n, s.readErr
}

// Write begins the response if need be and writes to it.
func (s *stream) Write(p []byte) (int, error) {
	s.begin()
	s.renewWrite()
	return s.rw.Write(p)
}

// Flush sends what was written.
func (s *stream) Flush() error {
	s.renewWrite()
	if err := s.control.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (s *stream) renewWrite() {
	if now := time.Now(); now.Sub(s.writeAt) > s.limits.Idle/8 {
		s.writeAt = now
		_ = s.control.SetWriteDeadline(now.Add(s.limits.Idle))
	}
}

// begin starts a successful response. The body is read to its end first: many
// clients look at the answer only when they have sent everything.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.drain()
	noCache(s.rw.Header())
	s.rw.Header().Set("Content-Type", s.contentType)
	s.rw.WriteHeader(http.StatusOK)
}

// drain reads what is left of the request body, within the limit.
func (s *stream) drain() {
	if s.expects && s.received == 0 {
		return
	}
	// A failure stays in readErr; the answer is attempted all the same.
	_, _ = io.CopyN(io.Discard, s, s.limits.Drain)
}

// broken returns what reading the body met, unless that was its end.
func (s *stream) broken() (*bodyError, bool) { return errors.AsType[*bodyError](s.readErr) }

package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/git/pktline"
)

// Defaults of [Server] and [Limits].
const (
	DefaultKeepalive    = 5 * time.Second
	DefaultRequestBytes = 32 << 20
	DefaultLines        = 600_000
	DefaultCommands     = 30_000
)

// Limits bound what one request may hold before its pack begins. Zero fields
// stand for the defaults. A request beyond them is refused.
type Limits struct {
	// RequestBytes is the size of all pkt-lines together. The default, 32 MiB, has
	// room for 600,000 wants and haves.
	RequestBytes int64
	// Lines is the number of pkt-lines, and so of wants, haves, prefixes and push
	// options.
	Lines int
	// Commands is how many refs one push may change: they change at once, or not
	// at all.
	Commands int
}

// Server speaks the protocols. Every exchange is one stateless request, as over
// HTTP. The zero value is ready; it is safe for concurrent use.
//
// Writers given to its methods may have a method Flush() error: it is called
// when bytes should not wait for more, which is after keepalives and progress.
//
// Errors: nil means that the exchange took place. [*ReportedError] means that
// the client was told of the failure and the response is complete.
// [*MalformedError] is a request that breaks the protocol; nothing was written.
// Anything else is a fault of the repository or of the connection: when nothing
// was written yet the caller can still answer in its own way, otherwise the
// response is broken off and must not look complete.
type Server struct {
	// Agent is sent as the agent capability, like "cairn/1.0".
	Agent string
	// Keepalive is how often a client hears something while a pack is made or
	// processed; zero stands for DefaultKeepalive.
	Keepalive time.Duration
	Limits    Limits
}

// MalformedError is a request that breaks the protocol.
type MalformedError struct {
	Reason string
	Err    error // what reading the request met, or nil
}

// Error says what is wrong with the request.
func (e *MalformedError) Error() string {
	if e.Err != nil {
		return e.Reason + ": " + e.Err.Error()
	}
	return e.Reason
}

// Unwrap returns the cause.
func (e *MalformedError) Unwrap() error { return e.Err }

// ReportedError is a failure that the client has been told of.
type ReportedError struct{ Err error }

// Error returns the text of the cause.
func (e *ReportedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReportedError) Unwrap() error { return e.Err }

// Version is the newest protocol version that a client asks for in
// GIT_PROTOCOL or the Git-Protocol header ("version=2:…"), 0 if it names none
// that Git knows.
func Version(gitProtocol string) int {
	version := 0
	for item := range strings.SplitSeq(gitProtocol, ":") {
		switch item {
		case "version=1":
			version = max(version, 1)
		case "version=2":
			version = 2
		}
	}
	return version
}

func (s *Server) agent() string {
	if s.Agent == "" {
		return "cairn"
	}
	return s.Agent
}

func (s *Server) keepalive() time.Duration {
	if s.Keepalive > 0 {
		return s.Keepalive
	}
	return DefaultKeepalive
}

// output gathers small writes of a response.
type output struct {
	*bufio.Writer
	under   io.Writer
	pkt     *pktline.Writer
	closing bool // the end is near: nothing needs pushing any more
}

func newOutput(w io.Writer) *output {
	o := &output{Writer: bufio.NewWriterSize(w, 8<<10), under: w}
	o.pkt = pktline.NewWriter(o.Writer)
	return o
}

// push sends on all that was written.
func (o *output) push() error {
	if err := o.Flush(); err != nil {
		return err
	}
	if f, ok := o.under.(interface{ Flush() error }); ok && !o.closing {
		return f.Flush()
	}
	return nil
}

// finish ends a message and sends it.
func (o *output) finish() error {
	if err := o.pkt.Flush(); err != nil {
		return err
	}
	return o.Flush()
}

// refusal returns the public text of err when it is a refusal.
func refusal(err error) (string, bool) {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r.Reason, true
	}
	if n, ok := errors.AsType[*NotOurRefError](err); ok {
		return "upload-pack: " + n.Error(), true
	}
	return "", false
}

// fail answers a refusal with an ERR packet and returns other errors as they
// are. Nothing may have been written before.
func (o *output) fail(err error) error {
	reason, ok := refusal(err)
	if !ok {
		return err
	}
	if err := o.pkt.WriteData([]byte(clip("ERR " + reason))); err != nil {
		return err
	}
	if err := o.Flush(); err != nil {
		return err
	}
	return &ReportedError{err}
}

// clip shortens text to what a client shows without trouble.
func clip(text string) string { return text[:min(len(text), 1000)] }

// startKeepalive sends keepalives on side until the returned function has
// returned.
func (s *Server) startKeepalive(ctx context.Context, side *pktline.Sideband) (stop func()) {
	var mu sync.Mutex
	stopped := false
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(s.keepalive(), func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped || ctx.Err() != nil || side.Keepalive() != nil {
			return
		}
		timer.Reset(s.keepalive())
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// refuse makes a RefusalError.
func refuse(format string, args ...any) error {
	return &RefusalError{Reason: fmt.Sprintf(format, args...)}
}

// malformed makes a MalformedError.
func malformed(format string, args ...any) error {
	return &MalformedError{Reason: fmt.Sprintf(format, args...)}
}

package s3

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
)

// attempts is how often a request is made before its last error is returned;
// with the default waits that takes about ten seconds.
const attempts = 9

// slowest is the least bandwidth that counts as progress, in bytes per second.
const slowest = 64 << 10

// errStalled says that a request made no progress for too long.
var errStalled = errors.New("the service does not answer in time")

// wait sleeps before the attempt after the nth (from 1), with jitter.
func (s *Store) wait(ctx context.Context, n int) error {
	d := min(s.config.MaxWait/100<<(n-1), s.config.MaxWait)
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// retry calls do until it succeeds, fails for good or has been tried often
// enough. Each call gets a context that ends after the longest time a request
// that moves the given number of bytes may take.
func (s *Store) retry(ctx context.Context, bytes int64, do func(ctx context.Context) error) error {
	limit := s.config.Stall + time.Duration(bytes/slowest)*time.Second
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := do(attempt)
		if err != nil && attempt.Err() != nil {
			err = errStalled
		}
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !transient(err) || n == attempts {
			return err
		}
		if err := s.wait(ctx, n); err != nil {
			return err
		}
	}
}

// transientCodes are errors that a server also sends inside an answer of 200.
var transientCodes = []string{
	"ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestTimeout",
	"ServiceUnavailable", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling",
}

// noRequest is the code for a server that could not read HTTP. Some refuse a
// conditional write before they have read its body and take the rest for the
// connection's next request.
const noRequest = "400 Bad Request"

// transient reports whether a request that failed with err may succeed later.
// The caller has checked that its own context has not ended.
func transient(err error) bool {
	var response minio.ErrorResponse
	if !errors.As(err, &response) || response.Code == noRequest {
		return true // the network, or a time limit of the attempt
	}
	switch code := response.StatusCode; {
	case code >= 500 && code != http.StatusNotImplemented,
		code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return true
	}
	return slices.Contains(transientCodes, response.Code)
}

func statusOf(err error) int {
	var response minio.ErrorResponse
	if errors.As(err, &response) {
		return response.StatusCode
	}
	return 0
}

func isNotFound(err error) bool { return statusOf(err) == http.StatusNotFound }

func isPreconditionFailed(err error) bool { return statusOf(err) == http.StatusPreconditionFailed }

// watch ends a request that makes no progress for a time.
type watch struct {
	timer *time.Timer
	limit time.Duration
}

func newWatch(limit time.Duration, cancel func()) *watch {
	return &watch{timer: time.AfterFunc(limit, cancel), limit: limit}
}

func (w *watch) restart() { w.timer.Reset(w.limit) }

func (w *watch) stop() { w.timer.Stop() }

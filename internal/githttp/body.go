package githttp

import (
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"strings"
)

// A compressed body may inflate to freeInflated bytes, beyond that to maxRatio
// times what was received. The lines of a fetch deflate to a third or so.
const (
	freeInflated = 1 << 20
	maxRatio     = 100
)

// bodyError is a request body that cannot be accepted.
type bodyError struct {
	status  int
	message string
	err     error // the cause, or nil
}

// Error returns the message and its cause.
func (e *bodyError) Error() string {
	if e.err != nil {
		return e.message + ": " + e.err.Error()
	}
	return e.message
}

// Unwrap returns the cause.
func (e *bodyError) Unwrap() error { return e.err }

// requestBody checks the headers of an RPC body and returns a reader of it as
// it was before compression.
func requestBody(h http.Header, contentType string, s *stream) (io.Reader, *bodyError) {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || kind != contentType {
		return nil, &bodyError{http.StatusUnsupportedMediaType, "unsupported content type, want " + contentType, nil}
	}
	switch strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding"))) {
	case "", "identity":
		return s, nil
	case "gzip", "x-gzip":
		return &inflater{raw: s}, nil
	}
	return nil, &bodyError{http.StatusUnsupportedMediaType, "unsupported content encoding, want gzip or none", nil}
}

// inflater reads a gzip body within its limits.
type inflater struct {
	raw  *stream
	zip  *gzip.Reader
	size int64 // inflated so far
	err  error
}

// Read inflates; it fails with *bodyError where the body is corrupt or grows
// out of proportion.
func (i *inflater) Read(p []byte) (int, error) {
	if i.err != nil {
		return 0, i.err
	}
	n := 0
	if i.zip == nil {
		i.zip, i.err = gzip.NewReader(i.raw)
	}
	if i.err == nil {
		n, i.err = i.zip.Read(p)
	}
	i.size += int64(n)
	if broken, ok := i.raw.broken(); ok {
		i.err = broken
	} else if i.err != nil && i.err != io.EOF {
		i.err = &bodyError{http.StatusBadRequest, "the request body is not valid gzip", i.err}
	}
	if i.size > i.raw.limits.Inflated || i.size > max(freeInflated, maxRatio*i.raw.received) {
		n, i.err = 0, &bodyError{http.StatusRequestEntityTooLarge, "the compressed request body is too large", nil}
	}
	return n, i.err
}

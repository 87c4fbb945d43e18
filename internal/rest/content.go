package rest

import (
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/service"
)

// content is a resource that is served whole or in part.
type content struct {
	etag     string // strong, with its quotes
	modified time.Time
	size     int64
	// open returns n bytes of the content from an offset on.
	open func(from, n int64) (io.ReadCloser, error)
}

// send answers a GET or HEAD with the content, by the rules of RFC 9110 for
// conditions and single ranges. A request for several ranges gets the whole.
func (c *call) send(o content) error {
	h, in := c.header(), c.r.Header
	h.Set("ETag", o.etag)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "private, no-cache")
	if !o.modified.IsZero() {
		h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	}
	switch o.condition(in) {
	case http.StatusNotModified:
		c.body.drain()
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	case http.StatusPreconditionFailed:
		return service.Refuse(service.Precondition, "the file is not in the state that the request asks for")
	}
	status, from, length := http.StatusOK, int64(0), o.size
	if rng := in.Get("Range"); rng != "" && o.rangeCounts(in) {
		f, n, ok, use := parseRange(rng, o.size)
		if use && !ok {
			h.Set("Content-Range", "bytes */"+strconv.FormatInt(o.size, 10))
			return service.Refuse(service.Range, "the range is outside of the file's %d bytes", o.size)
		}
		if use {
			status, from, length = http.StatusPartialContent, f, n
			h.Set("Content-Range", "bytes "+strconv.FormatInt(f, 10)+"-"+strconv.FormatInt(f+n-1, 10)+"/"+strconv.FormatInt(o.size, 10))
		}
	}
	return c.sendPart(o, status, from, length)
}

func (c *call) sendPart(o content, status int, from, length int64) error {
	var src io.ReadCloser
	if c.r.Method != http.MethodHead && length > 0 {
		var err error
		if src, err = o.open(from, length); err != nil {
			return err
		}
		defer src.Close()
	}
	c.body.drain()
	h := c.header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	c.w.WriteHeader(status)
	c.begun = true
	if src == nil {
		return nil
	}
	// What fails from here on is for the log; the client sees too few bytes.
	if n, err := io.Copy(c, src); err != nil || n != length {
		return fmt.Errorf("send %d bytes, %d sent: %w", length, n, err)
	}
	return nil
}

// condition evaluates the conditional headers in the order of RFC 9110, section
// 13.2.2. It returns 0 when the request goes on.
func (o *content) condition(in http.Header) int {
	if match := in.Values("If-Match"); len(match) > 0 {
		if !o.matches(match, false) {
			return http.StatusPreconditionFailed
		}
	} else if t, ok := date(in.Get("If-Unmodified-Since")); ok && !o.modified.IsZero() && o.second().After(t) {
		return http.StatusPreconditionFailed
	}
	if none := in.Values("If-None-Match"); len(none) > 0 {
		if o.matches(none, true) {
			return http.StatusNotModified
		}
	} else if t, ok := date(in.Get("If-Modified-Since")); ok && !o.modified.IsZero() && !o.second().After(t) {
		return http.StatusNotModified
	}
	return 0
}

// second is the time of modification as Last-Modified tells it.
func (o *content) second() time.Time { return o.modified.Truncate(time.Second) }

// rangeCounts reports whether If-Range lets a range be answered.
func (o *content) rangeCounts(in http.Header) bool {
	cond := strings.TrimSpace(in.Get("If-Range"))
	if cond == "" {
		return true
	}
	if strings.HasPrefix(cond, `"`) {
		return cond == o.etag
	}
	t, ok := date(cond)
	return ok && !o.modified.IsZero() && o.second().Equal(t)
}

func date(value string) (time.Time, bool) {
	if value == "" {
		return time.Time{}, false
	}
	t, err := http.ParseTime(value)
	return t, err == nil
}

// matches reports whether a list of entity tags names this content. Weak tags
// count only where weak is set.
func (o *content) matches(values []string, weak bool) bool {
	list := strings.Join(values, ",")
	for {
		list = strings.TrimLeft(list, " \t,")
		if list == "" {
			return false
		}
		if list[0] == '*' {
			return true
		}
		isWeak := strings.HasPrefix(list, "W/")
		list = strings.TrimPrefix(list, "W/")
		if !strings.HasPrefix(list, `"`) {
			return false // not a list of tags
		}
		end := strings.IndexByte(list[1:], '"')
		if end < 0 {
			return false
		}
		tag := list[:end+2]
		if tag == o.etag && (weak || !isWeak) {
			return true
		}
		list = list[end+2:]
	}
}

// parseRange reads a Range header. use is false where the header is to be
// ignored, ok where the range is within the content.
func parseRange(header string, size int64) (from, length int64, ok, use bool) {
	unit, spec, found := strings.Cut(header, "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || strings.Contains(spec, ",") {
		return 0, 0, false, false
	}
	first, last, found := strings.Cut(textproto.TrimString(spec), "-")
	if !found {
		return 0, 0, false, false
	}
	first, last = textproto.TrimString(first), textproto.TrimString(last)
	if first == "" {
		n, valid := number(last)
		if !valid {
			return 0, 0, false, false
		}
		n = min(n, size)
		return size - n, n, n > 0, true
	}
	from, valid := number(first)
	if !valid {
		return 0, 0, false, false
	}
	to := size - 1
	if last != "" {
		n, valid := number(last)
		if !valid || n < from {
			return 0, 0, false, false
		}
		to = min(n, to)
	}
	return from, to - from + 1, from < size, true
}

// number reads digits; what is too large for an int64 is the largest one.
func number(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		if n > (1<<63-1-9)/10 {
			n = (1<<63 - 1 - 9) / 10
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

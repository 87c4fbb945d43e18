package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// conn is an HTTP/1.1 client connection that costs as little as possible, so that
// what is measured is the server: a request is bytes made beforehand, an answer
// is read and thrown away.
type conn struct {
	net.Conn
	in   *bufio.Reader
	head []byte // the first bytes of the last answer's body, at most headSize
}

// received is how many bytes of bodies all conns have read.
var received atomic.Int64

// headSize is how much of an answer a conn keeps.
const headSize = 16 << 10

func dial(base string) (*conn, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 256<<10), head: make([]byte, 0, headSize)}, nil
}

// request makes a request's bytes. Headers are "Name: value".
func request(method, target string, body []byte, headers ...string) []byte {
	u, err := url.Parse(target)
	if err != nil {
		panic(err) // targets are made by this program
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, u.RequestURI(), u.Host)
	for _, h := range headers {
		fmt.Fprintf(&b, "%s\r\n", h)
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// do sends a request and returns the number of bytes in the answer's body, whose
// start is in c.head. Any status but 200 and 201 is an error.
func (c *conn) do(request []byte) (int64, error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	return c.answer()
}

// answer reads what the server answered to the request that was sent.
func (c *conn) answer() (int64, error) {
	length, chunked, status := int64(-1), false, ""
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("read the answer's head: %w", err)
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if first {
			status = text
			continue
		}
		name, value, _ := strings.Cut(text, ":")
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil {
				return 0, err
			}
		case "transfer-encoding":
			chunked = strings.Contains(value, "chunked")
		}
	}
	n, err := c.body(length, chunked)
	received.Add(n)
	if err != nil {
		return n, fmt.Errorf("read the answer's body: %w", err)
	}
	if !strings.Contains(status, " 200 ") && !strings.Contains(status, " 201 ") {
		return n, fmt.Errorf("the server answered %q", status)
	}
	return n, nil
}

// body reads an answer's body and keeps its start.
func (c *conn) body(length int64, chunked bool) (int64, error) {
	c.head = c.head[:0]
	if !chunked {
		if length < 0 {
			return 0, errors.New("no length")
		}
		return length, c.discard(length)
	}
	total := int64(0)
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return total, err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return total, err
		}
		if err := c.discard(size); err != nil {
			return total, err
		}
		total += size
		if _, err := c.in.Discard(2); err != nil { // the line end after a chunk
			return total, err
		}
		if size == 0 {
			return total, nil
		}
	}
}

// discard reads n bytes and keeps those that c.head has room for.
func (c *conn) discard(n int64) error {
	at := len(c.head)
	c.head = c.head[:at+int(min(n, int64(headSize-at)))]
	kept, err := io.ReadFull(c.in, c.head[at:])
	if err == nil {
		_, err = c.in.Discard(int(n) - kept)
	}
	return err
}

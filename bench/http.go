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
)

// conn is an HTTP/1.1 client connection that costs as little as possible, so that
// what is measured is the server: a request is bytes made beforehand, an answer
// is read and thrown away.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(base string) (*conn, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, 256<<10)}, nil
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

// do sends a request and returns the number of bytes in the answer's body. Any
// status but 200 and 201 is an error.
func (c *conn) do(request []byte) (int64, error) {
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
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
	if err != nil {
		return n, fmt.Errorf("read the answer's body: %w", err)
	}
	if !strings.Contains(status, " 200 ") && !strings.Contains(status, " 201 ") {
		return n, fmt.Errorf("the server answered %q", status)
	}
	return n, nil
}

func (c *conn) body(length int64, chunked bool) (int64, error) {
	if !chunked {
		if length < 0 {
			return 0, errors.New("no length")
		}
		n, err := c.in.Discard(int(length))
		return int64(n), err
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
		if _, err := io.CopyN(io.Discard, c.in, size); err != nil {
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

// pkt frames lines for git; "0000" and "0001" are the flush and the delimiter.
func pkt(lines ...string) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		if l == "0000" || l == "0001" {
			b.WriteString(l)
			continue
		}
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.Bytes()
}

// uploadPack makes a protocol v2 request to a repository's upload-pack.
func uploadPack(repo, authorization string, body []byte) []byte {
	headers := []string{
		"Content-Type: application/x-git-upload-pack-request", "Accept: application/x-git-upload-pack-result", "Git-Protocol: version=2",
	}
	if authorization != "" {
		headers = append(headers, "Authorization: "+authorization)
	}
	return request("POST", repo+"/git-upload-pack", body, headers...)
}

// lsRefs asks for what `git clone` asks for.
func lsRefs() []byte {
	return pkt("command=ls-refs\n", "agent=git/2.39.5", "object-format=sha1", "0001", "peel\n", "symrefs\n",
		"ref-prefix refs/heads/\n", "ref-prefix refs/tags/\n", "ref-prefix HEAD\n", "0000")
}

// fetch asks for commits, at some depth when it is not zero.
func fetch(depth int, wants ...string) []byte {
	lines := []string{"command=fetch", "agent=git/2.39.5", "object-format=sha1", "0001", "thin-pack", "no-progress", "ofs-delta"}
	if depth > 0 {
		lines = append(lines, fmt.Sprintf("deepen %d", depth))
	}
	for _, w := range wants {
		lines = append(lines, "want "+w+"\n")
	}
	return pkt(append(lines, "done\n", "0000")...)
}

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cairnstate/cairn/internal/git/object"
)

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

// lazyFetch asks for blobs, as a partial clone does for what it finds missing.
func lazyFetch(blobs []object.ID) []byte {
	lines := []string{"command=fetch", "agent=git/2.39.5", "object-format=sha1", "0001", "thin-pack", "no-progress", "ofs-delta", "filter blob:none\n"}
	for _, b := range blobs {
		lines = append(lines, "want "+b.String()+"\n")
	}
	return pkt(append(lines, "done\n", "0000")...)
}

// errAnswer is an answer of git's protocol that says no.
var errAnswer = errors.New("the server refused")

// packed returns how many objects the pack in a fetch's answer has, given the
// answer's start.
func packed(head []byte) (int, error) {
	at := bytes.Index(head, []byte("PACK\x00\x00\x00\x02"))
	if at < 0 || len(head) < at+12 {
		return 0, fmt.Errorf("%w: %.200q", errAnswer, head)
	}
	return int(binary.BigEndian.Uint32(head[at+8:])), nil
}

// basic is the Authorization of git for a token.
func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token))
}

// command is one ref that a push changes.
type command struct {
	old, new object.ID
	ref      string
}

// receivePack sends a push to a repository's receive-pack: commands and a pack of
// so many bytes. Anything but success for all of it is an error.
func (c *conn) receivePack(repo, authorization string, commands []command, pack io.Reader, size int64) error {
	var lines []string
	for i, cmd := range commands {
		line := fmt.Sprintf("%s %s %s", cmd.old, cmd.new, cmd.ref)
		if i == 0 {
			line += "\x00 report-status agent=git/2.39.5"
		}
		lines = append(lines, line)
	}
	body := pkt(append(lines, "0000")...)
	head := request("POST", repo+"/git-receive-pack", nil, "Content-Type: application/x-git-receive-pack-request",
		"Accept: application/x-git-receive-pack-result", fmt.Sprintf("Content-Length: %d", int64(len(body))+size), "Authorization: "+authorization)
	if _, err := c.Write(append(head, body...)); err != nil {
		return err
	}
	if _, err := io.CopyN(c.Conn, pack, size); err != nil {
		return fmt.Errorf("send the pack: %w", err)
	}
	if _, err := c.answer(); err != nil {
		return err
	}
	if !bytes.Contains(c.head, []byte("unpack ok")) || bytes.Contains(c.head, []byte("ng refs/")) {
		return fmt.Errorf("%w: %.500q", errAnswer, c.head)
	}
	return nil
}

// pushFile makes a branch of a repository on Cairn from a prepared pack.
func (c *conn) pushFile(repo, authorization string, p prepared) error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.receivePack(repo, authorization, []command{{new: p.tip, ref: "refs/heads/main"}}, f, p.size)
}

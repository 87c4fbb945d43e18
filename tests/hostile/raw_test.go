package hostile_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// zero is the id that stands for no object.
const zero = "0000000000000000000000000000000000000000"

// Types of pack entries.
const (
	commitEntry = 1
	treeEntry   = 2
	blobEntry   = 3
	tagEntry    = 4
	ofsEntry    = 6
	refEntry    = 7
)

var typeNames = map[int]string{commitEntry: "commit", treeEntry: "tree", blobEntry: "blob", tagEntry: "tag"}

// object is one entry of a hand-made pack.
type object struct {
	kind int
	data []byte
	base string // of a refEntry
}

// id is the object's name.
func (o object) id() string {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typeNames[o.kind], len(o.data))
	h.Write(o.data)
	return hex.EncodeToString(h.Sum(nil))
}

func blob(content string) object { return object{kind: blobEntry, data: []byte(content)} }

// tree makes a tree from "mode name", id pairs in order.
func tree(pairs ...string) object {
	var b bytes.Buffer
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(pairs[i] + "\x00")
		b.Write(rawID(pairs[i+1]))
	}
	return object{kind: treeEntry, data: b.Bytes()}
}

const signature = "Sandbox worker <worker@example.com> 1700000000 +0000"

func commit(tree string, parents ...string) object {
	var b strings.Builder
	b.WriteString("tree " + tree + "\n")
	for _, p := range parents {
		b.WriteString("parent " + p + "\n")
	}
	b.WriteString("author " + signature + "\ncommitter " + signature + "\n\nChange something\n")
	return object{kind: commitEntry, data: []byte(b.String())}
}

func tag(id, kind string) object {
	return object{kind: tagEntry, data: fmt.Appendf(nil, "object %s\ntype %s\ntag v1\ntagger %s\n\nA tag\n", id, kind, signature)}
}

func rawID(id string) []byte {
	raw, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	return raw
}

var deflater = zlib.NewWriter(nil)

func deflate(data []byte) []byte {
	var b bytes.Buffer
	deflater.Reset(&b)
	deflater.Write(data)
	deflater.Close()
	return b.Bytes()
}

// entryHead is the variable-length head of a pack entry.
func entryHead(kind int, size uint64) []byte {
	c := byte(kind<<4) | byte(size&15)
	size >>= 4
	var out []byte
	for ; size > 0; size >>= 7 {
		out = append(out, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(out, c)
}

// packHead begins a pack that claims to hold count objects.
func packHead(count uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count)
}

// sealed adds the checksum.
func sealed(body []byte) []byte {
	sum := sha1.Sum(body)
	return append(body[:len(body):len(body)], sum[:]...)
}

func pack(objects ...object) []byte {
	body := packHead(uint32(len(objects)))
	for _, o := range objects {
		body = append(body, entryHead(o.kind, uint64(len(o.data)))...)
		if o.kind == refEntry {
			body = append(body, rawID(o.base)...)
		}
		body = append(body, deflate(o.data)...)
	}
	return sealed(body)
}

// varint is a size in a delta.
func varint(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// appendDelta is a delta that puts text after a whole base of the given size.
func appendDelta(size int, text string) []byte {
	d := append(varint(uint64(size)), varint(uint64(size+len(text)))...)
	d = append(d, 0x80|0x10|0x20|0x40, byte(size), byte(size>>8), byte(size>>16))
	d = append(d, byte(len(text)))
	return append(d, text...)
}

func pkt(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }

// command is a line of a push; the first has capabilities.
func command(old, new, ref string) string { return old + " " + new + " " + ref }

// pushBody is the body of a receive-pack request.
func pushBody(pack []byte, capabilities string, commands ...string) []byte {
	var b bytes.Buffer
	for i, c := range commands {
		if i == 0 {
			c += "\x00 " + capabilities
		}
		b.WriteString(pkt(c))
	}
	b.WriteString("0000")
	b.Write(pack)
	return b.Bytes()
}

// client keeps connections: there are thousands of requests.
var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 32},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request sends one request with a Basic credential, or none.
func request(tb testing.TB, s *harness.Server, method, path, token string, header map[string]string, body io.Reader) harness.Answer {
	tb.Helper()
	req, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		tb.Fatal(err)
	}
	if token != "" {
		req.SetBasicAuth("t", token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return harness.Answer{Status: -1, Body: []byte(err.Error())}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		answer = append(answer, " [broken: "+err.Error()+"]"...)
	}
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: answer}
}

// push sends a hand-made push and returns its report.
func push(tb testing.TB, s *harness.Server, remote, token string, pack []byte, commands ...string) harness.Answer {
	tb.Helper()
	return request(tb, s, http.MethodPost, "/"+remote+".git/git-receive-pack", token,
		map[string]string{"Content-Type": "application/x-git-receive-pack-request"},
		bytes.NewReader(pushBody(pack, "report-status atomic", commands...)))
}

// accepted reports whether every command of a push was carried out.
func accepted(a harness.Answer) bool {
	return a.Status == http.StatusOK && bytes.Contains(a.Body, []byte("unpack ok")) && bytes.Contains(a.Body, []byte("ok refs/")) && !bytes.Contains(a.Body, []byte("ng "))
}

// fetch sends a hand-made upload-pack request.
func fetch(tb testing.TB, s *harness.Server, remote, token string, version int, body string) harness.Answer {
	tb.Helper()
	return request(tb, s, http.MethodPost, "/"+remote+".git/git-upload-pack", token, map[string]string{
		"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": fmt.Sprintf("version=%d", version),
	}, strings.NewReader(body))
}

// fetchV2 is the body of a v2 fetch.
func fetchV2(lines ...string) string {
	body := pkt("command=fetch") + "0001"
	for _, l := range lines {
		body += pkt(l)
	}
	return body + "0000"
}

// hasPack reports whether an answer holds a pack.
func hasPack(a harness.Answer) bool { return bytes.Contains(a.Body, []byte("PACK\x00\x00\x00\x02")) }

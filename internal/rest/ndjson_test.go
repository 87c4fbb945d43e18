package rest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cairnstate/cairn/internal/service"
)

// gathered is where chunks go in tests.
type gathered map[string]*bytes.Buffer

func (g gathered) open(id string) (io.Writer, error) {
	if g[id] == nil {
		g[id] = &bytes.Buffer{}
	}
	return g[id], nil
}

// readChunk reads one line of content.
func readChunk(line string) (piece, string, error) {
	in := newLines(strings.NewReader(line))
	ok, err := in.more()
	if !ok || err != nil {
		return piece{}, "", fmt.Errorf("no line: %w", err)
	}
	g := gathered{}
	p, err := in.chunk(g.open)
	if err != nil {
		return piece{}, "", err
	}
	return p, g[p.id].String(), nil
}

func TestChunkLines(t *testing.T) {
	rows := []struct {
		name, line string
		want       piece
		data       string
	}{
		{"as clients send it", `{"blob_chunk":{"content_id":"a","data":"aGVsbG8=","eof":true}}`, piece{"a", true}, "hello"},
		{"another order", `{"blob_chunk":{"eof":true,"data":"aGVsbG8=","content_id":"a"}}`, piece{"a", true}, "hello"},
		{"white space", " \t{ \"blob_chunk\" : { \"content_id\" : \"a\" , \"data\" : \"aGk=\" , \"eof\" : false } } \r\n", piece{"a", false}, "hi"},
		{"empty", `{"blob_chunk":{"content_id":"a","data":"","eof":true}}`, piece{"a", true}, ""},
		{"no data, no eof", `{"blob_chunk":{"content_id":"a"}}`, piece{"a", false}, ""},
		{"nulls", `{"blob_chunk":{"content_id":"a","data":null,"eof":null}}`, piece{"a", false}, ""},
		{"escapes in data", `{"blob_chunk":{"content_id":"a","data":"\u002B\/\u002b/","eof":true}}`, piece{"a", true}, "\xfb\xff\xbf"},
		{"escapes in the id", `{"blob_chunk":{"content_id":"\u00e4\"\ud83d\ude00\ud800x","data":"","eof":true}}`, piece{"ä\"😀\ufffdx", true}, ""},
		{"more members", `{"x":[1,{"y":[]},"z",null,-1e5],"blob_chunk":{"z":{},"content_id":"a","data":"aGk=","eof":true,"w":[true]},"t":1}`, piece{"a", true}, "hi"},
	}
	for _, row := range rows {
		p, data, err := readChunk(row.line)
		if err != nil || p != row.want || data != row.data {
			t.Errorf("%s: %+v, %q, %v", row.name, p, data, err)
		}
	}
}

func TestBadChunkLines(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	rows := map[string]string{
		"not an object":        `"x"`,
		"no blob_chunk":        `{"metadata":{}}`,
		"empty object":         `{}`,
		"no id":                `{"blob_chunk":{"data":"aGk=","eof":true}}`,
		"id is a number":       `{"blob_chunk":{"content_id":1,"data":"","eof":true}}`,
		"id too long":          `{"blob_chunk":{"content_id":"` + strings.Repeat("x", maxMember+1) + `","eof":true}}`,
		"eof is a string":      `{"blob_chunk":{"content_id":"a","data":"","eof":"true"}}`,
		"data is a number":     `{"blob_chunk":{"content_id":"a","data":5,"eof":true}}`,
		"two chunks":           `{"blob_chunk":{"content_id":"a"},"blob_chunk":{"content_id":"a"}}`,
		"two ids":              `{"blob_chunk":{"content_id":"a","content_id":"b"}}`,
		"two data":             `{"blob_chunk":{"content_id":"a","data":"aGk=","data":"aGk="}}`,
		"truncated base64":     `{"blob_chunk":{"content_id":"a","data":"aGVsbG8","eof":true}}`,
		"one character":        `{"blob_chunk":{"content_id":"a","data":"a","eof":true}}`,
		"data after padding":   `{"blob_chunk":{"content_id":"a","data":"aGk=aGk=","eof":true}}`,
		"url alphabet":         `{"blob_chunk":{"content_id":"a","data":"-_-_","eof":true}}`,
		"line break in data":   `{"blob_chunk":{"content_id":"a","data":"aG\nk=","eof":true}}`,
		"text after":           `{"blob_chunk":{"content_id":"a","data":"","eof":true}} x`,
		"two values":           `{"blob_chunk":{"content_id":"a"}}{"blob_chunk":{"content_id":"a"}}`,
		"cut in a string":      `{"blob_chunk":{"content_id":"a","data":"aGVs`,
		"cut in an object":     `{"blob_chunk":{"content_id":"a"`,
		"cut by a line break":  "{\"blob_chunk\":\n{\"content_id\":\"a\"}}",
		"line break in string": "{\"blob_chunk\":{\"content_id\":\"a\nb\"}}",
		"unknown escape":       `{"blob_chunk":{"content_id":"\x41"}}`,
		"broken escape":        `{"blob_chunk":{"content_id":"\u12g4"}}`,
		"bad literal":          `{"blob_chunk":{"content_id":"a","eof":tru}}`,
		"bad number":           `{"x":01,"blob_chunk":{"content_id":"a"}}`,
		"missing comma":        `{"blob_chunk":{"content_id":"a" "eof":true}}`,
		"trailing comma":       `{"blob_chunk":{"content_id":"a",}}`,
		"missing colon":        `{"blob_chunk" {"content_id":"a"}}`,
		"nested too deeply":    `{"x":` + deep + `,"blob_chunk":{"content_id":"a"}}`,
	}
	for name, line := range rows {
		_, _, err := readChunk(line)
		if p := service.Public(err); err == nil || p.Code != service.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChunkSizes(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	line := func(n int, pad string) string {
		return `{"blob_chunk":{"content_id":"a","data":"` + encode(n) + `","eof":true` + pad + `}}`
	}
	if _, data, err := readChunk(line(maxChunk, "")); err != nil || len(data) != maxChunk {
		t.Errorf("largest chunk: %d bytes, %v", len(data), err)
	}
	for name, l := range map[string]string{
		"chunk":       line(maxChunk+1, ""),
		"line":        line(maxChunk, `,"x":"`+strings.Repeat("x", 3<<20)+`"`),
		"white space": line(5, "") + strings.Repeat(" ", maxLine),
		"before":      `{"x":"` + strings.Repeat("x", maxLine) + `"}`,
	} {
		if _, _, err := readChunk(l); err == nil || service.Public(err).Code != service.TooLarge {
			t.Errorf("%s too large: %v", name, err)
		}
	}
	in := newLines(strings.NewReader(strings.Repeat("x", maxLine+1)))
	if _, err := in.whole(); err == nil || service.Public(err).Code != service.TooLarge {
		t.Errorf("first line too large: %v", err)
	}
}

// TestLinesWithoutCopies feeds the lines a byte at a time and finds the same.
func TestLinesByteByByte(t *testing.T) {
	var body strings.Builder
	want := gathered{}
	body.WriteString("\n\r\n")
	for i := range 40 {
		id, data := fmt.Sprint(i%7), strings.Repeat(fmt.Sprint(i), i)
		body.WriteString(chunkLine(id, data, i >= 33) + "  \n")
		w, _ := want.open(id)
		io.WriteString(w, data)
	}
	in := newLines(iotest.OneByteReader(strings.NewReader(strings.TrimRight(body.String(), "\n "))))
	got, n := gathered{}, 0
	for {
		ok, err := in.more()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if _, err := in.chunk(got.open); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 40 {
		t.Errorf("%d lines", n)
	}
	for id := range want {
		if want[id].String() != got[id].String() {
			t.Errorf("content %q differs", id)
		}
	}
}

// FuzzChunk holds what is accepted against encoding/json.
func FuzzChunk(f *testing.F) {
	f.Add(`{"blob_chunk":{"content_id":"a","data":"aGVsbG8=","eof":true}}`)
	f.Add(`{"blob_chunk":{"eof":false,"data":"\u002b\/+/","content_id":"\ud83d\ude00"},"x":[1.5e3,{}]}`)
	f.Add(`{"blob_chunk":{"content_id":"a","data":"aGVsbG8","eof":true}`)
	f.Add(`{"blob_chunk":{"content_id":"a","data":null,"eof":null}}`)
	f.Fuzz(func(t *testing.T, line string) {
		p, data, err := readChunk(line)
		if err != nil {
			return
		}
		// encoding/json finds members by any case and takes the last of several.
		lower := strings.ToLower(line)
		for _, name := range []string{"blob_chunk", "content_id", "eof", "data"} {
			if strings.Count(lower, name) > 1 || strings.Contains(lower, `\u`) || strings.Contains(line, "ſ") || strings.Contains(line, "K") {
				return
			}
		}
		first, _, _ := strings.Cut(strings.TrimLeft(line, " \t\r\n"), "\n")
		var want struct {
			BlobChunk *struct {
				ContentID string `json:"content_id"`
				Data      []byte `json:"data"`
				EOF       bool   `json:"eof"`
			} `json:"blob_chunk"`
		}
		if err := json.Unmarshal([]byte(first), &want); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", first, err)
		}
		id := strings.ToValidUTF8(p.id, "")
		if want.BlobChunk == nil || strings.ReplaceAll(want.BlobChunk.ContentID, "\ufffd", "") != strings.ReplaceAll(id, "\ufffd", "") ||
			string(want.BlobChunk.Data) != data || want.BlobChunk.EOF != p.eof {
			t.Fatalf("%q read as %+v %q, encoding/json has %+v", first, p, data, want.BlobChunk)
		}
	})
}

package repo

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cairnstate/cairn/internal/git/object"
)

func TestEndsOf(t *testing.T) {
	for text, want := range map[string]lineEnds{
		"": mixedEnds, "a": mixedEnds, "a\n": allLF, "a\nb": allLF, "a\r\n": allCRLF, "a\r\nb\r\n": allCRLF, "a\r\nb\n": mixedEnds, "\n\r\n": mixedEnds,
		"\r\n\r\n": allCRLF, "a\rb\n": allLF, "a\r": mixedEnds, "a\n\x00": mixedEnds, "a\r\r\n": allCRLF,
	} {
		if got, err := endsOf(iotest.OneByteReader(strings.NewReader(text))); got != want || err != nil {
			t.Errorf("endsOf(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
}

// TestConvert compares with replacing in memory, at the borders of the buffer too.
func TestConvert(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		b := make([]byte, r.IntN(12))
		for j := range b {
			b[j] = "ab\r\n"[r.IntN(4)]
		}
		text := string(b)
		if i%10 == 0 {
			text = strings.Repeat("x", 64<<10-r.IntN(4)) + text
		}
		lf := strings.ReplaceAll(text, "\r\n", "\n")
		for ends, want := range map[lineEnds]string{allLF: lf, allCRLF: strings.ReplaceAll(lf, "\n", "\r\n")} {
			var out bytes.Buffer
			if err := convert(&out, strings.NewReader(text), ends); err != nil || out.String() != want {
				t.Fatalf("convert(%.40q) to %d = %.40q, %v, want %.40q", text, ends, out.String(), err, want)
			}
		}
	}
}

// TestKeepEnds commits texts with other ends of lines than the files have.
func TestKeepEnds(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	r := w.create("repo")
	w.commit(r.ID, "base", map[string]string{
		"crlf": "a\r\nb\r\n", "lf": "a\nb\n", "mixed": "a\r\nb\n", "none": "a", ".gitattributes": "* text=auto eol=lf\n",
	})
	commit := func(keep bool, files map[string]string) {
		t.Helper()
		c := w.engine.NewContents(ctx, w.writer, r)
		defer c.Close()
		req := CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone, Contents: c}
		for path, text := range files {
			e := w.file(c, path, text)
			e.KeepEnds = keep
			req.Files = append(req.Files, e)
		}
		if _, err := w.engine.Commit(ctx, w.writer, w.view(r.ID), req); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want map[string]string) {
		t.Helper()
		g := w.export(r.ID)
		for path, text := range want {
			if got := g.run("rev-parse", "main:"+path); got != object.Hash(object.Blob, []byte(text)).String() {
				t.Errorf("%s is not %q", path, text)
			}
		}
	}
	commit(true, map[string]string{"crlf": "a\nB\r\nc", "lf": "a\r\nB\r\n", "mixed": "a\nb\r\nc\n", "none": "a\r\nb\n", "new": "a\r\nb\n", "bin": "\x00\n"})
	holds(map[string]string{"crlf": "a\r\nB\r\nc", "lf": "a\nB\n", "mixed": "a\nb\r\nc\n", "none": "a\r\nb\n", "new": "a\r\nb\n", "bin": "\x00\n"})
	commit(false, map[string]string{"crlf": "a\n", "lf": "a\r\n"})
	holds(map[string]string{"crlf": "a\n", "lf": "a\r\n"})
	w.fsck(r.ID)
}

package pktline

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll reads packets until the first error, which it returns. Payloads are
// rendered in quotes-free text, the other kinds in angle brackets.
func readAll(in io.Reader) (got []string, err error) {
	r := NewReader(in)
	for {
		p, err := r.Next()
		if err != nil {
			return got, err
		}
		if p.Kind == Data {
			got = append(got, string(p.Data))
		} else {
			got = append(got, "<"+p.Kind.String()+">")
		}
	}
}

func TestReader(t *testing.T) {
	full := strings.Repeat("x", MaxData)
	rows := []struct {
		name, in string
		want     string // packets joined with |
		err      error
	}{
		{"nothing", "", "", io.EOF},
		{"flush", "0000", "<flush>", io.EOF},
		{"data", "0006a\n0000", "a\n|<flush>", io.EOF},
		{"empty data", "00040000", "|<flush>", io.EOF},
		{"all kinds", "0005a000100010005b00000002", "a|<delimiter>|<delimiter>|b|<flush>|<response end>", io.EOF},
		{"upper case", "000Aabcdef0000", "abcdef|<flush>", io.EOF},
		{"largest", "fff0" + full + "0000", full + "|<flush>", io.EOF},
		{"open message", "0005a", "a", ErrTruncated},
		{"open section", "0001", "<delimiter>", ErrTruncated},
		{"second message open", "00000005a", "<flush>|a", ErrTruncated},
		{"half length", "00", "", ErrTruncated},
		{"half payload", "0008ab", "", ErrTruncated},
		{"no payload", "0008", "", ErrTruncated},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := readAll(iotest.OneByteReader(strings.NewReader(row.in)))
			if strings.Join(got, "|") != row.want || !errors.Is(err, row.err) {
				t.Errorf("got %.80q, %v; want %.80q, %v", got, err, row.want, row.err)
			}
		})
	}
}

func TestReaderBadLength(t *testing.T) {
	for _, field := range []string{"0003", "fff1", "ffff", "000g", "+005", "-001", "0x05", " 005", "00 5", "PACK", "\x00\x00\x00\x00", "GET "} {
		_, err := readAll(strings.NewReader(field + strings.Repeat("y", MaxPacket)))
		bad, ok := errors.AsType[*LengthError](err)
		if !ok || string(bad.Field[:]) != field {
			t.Errorf("length %q: got %v, want a LengthError about it", field, err)
		}
	}
}

func TestReaderInputError(t *testing.T) {
	broken := errors.New("broken")
	for _, in := range []string{"", "00", "0006a"} {
		_, err := readAll(io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("after %q: got %v, want the input's error", in, err)
		}
	}
}

// TestReaderStopsAtPacket checks that what follows a message is left to others.
func TestReaderStopsAtPacket(t *testing.T) {
	in := strings.NewReader("0005a0000PACK")
	r := NewReader(in)
	for {
		p, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if p.Kind == Flush {
			break
		}
	}
	if rest, _ := io.ReadAll(in); string(rest) != "PACK" {
		t.Errorf("rest = %q", rest)
	}
}

// TestPrefix checks that no strict prefix of a message passes for a message.
func TestPrefix(t *testing.T) {
	var msg bytes.Buffer
	w := NewWriter(&msg)
	write(t, w.WriteString("command=fetch"), w.Delim(), w.WriteString("done"), w.WriteData(nil), w.Flush())
	for n := range msg.Len() {
		r := NewReader(bytes.NewReader(msg.Bytes()[:n]))
		for {
			p, err := r.Next()
			if err == nil && p.Kind == Flush {
				t.Fatalf("the first %d of %d bytes pass for the whole message", n, msg.Len())
			}
			if err != nil {
				if n > 0 && !errors.Is(err, ErrTruncated) {
					t.Errorf("the first %d bytes: %v, want ErrTruncated", n, err)
				}
				break
			}
		}
	}
}

// write fails the test on the first error.
func write(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	write(t,
		w.WriteData([]byte("raw")),
		w.WriteString("line"),
		w.WriteString("line\n"),
		w.Printf("%s %d", "n", 7),
		w.WriteString(""),
		w.Delim(), w.Flush(), w.ResponseEnd())
	want := "0007raw" + "0009line\n" + "0009line\n" + "0008n 7\n" + "0005\n" + "000100000002"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestWriterLimit(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	write(t, w.WriteData(make([]byte, MaxData)))
	if got := out.String()[:4]; got != "fff0" {
		t.Errorf("length of the largest packet: %q", got)
	}
	out.Reset()
	for _, err := range []error{
		w.WriteData(make([]byte, MaxData+1)),
		w.WriteString(strings.Repeat("x", MaxData)), // the newline is too much
		w.Printf("%s", strings.Repeat("x", MaxData+1)),
	} {
		if !errors.Is(err, ErrTooLong) {
			t.Errorf("got %v, want ErrTooLong", err)
		}
	}
	if out.Len() != 0 {
		t.Errorf("%d bytes were written", out.Len())
	}
	write(t, w.WriteData([]byte("a")))
	if out.String() != "0005a" {
		t.Errorf("after a refusal: %q", out.String())
	}
}

// TestGitReadsOurs checks the framing with git as the reader.
func TestGitReadsOurs(t *testing.T) {
	dir := t.TempDir()
	git := func(in io.Reader, args ...string) ([]byte, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Stdin = dir, in
		cmd.Env = []string{"GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "GIT_PROTOCOL=version=2"}
		return cmd.Output()
	}
	if out, err := git(nil, "init", "-q", "--bare", "."); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	var req bytes.Buffer
	w := NewWriter(&req)
	write(t, w.WriteString("command=ls-refs"), w.Delim(), w.WriteString("unborn"), w.WriteString("symrefs"), w.Flush())
	out, err := git(&req, "-c", "init.defaultBranch=main", "upload-pack", "--stateless-rpc", ".")
	if err != nil {
		t.Fatalf("git upload-pack: %v", err)
	}
	got, err := readAll(bufio.NewReader(bytes.NewReader(out)))
	if len(got) == 0 || got[len(got)-1] != "<flush>" || err != io.EOF {
		t.Errorf("git answered %q, %v", got, err)
	}
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "0000", "0006a\n0000", "0005a00010002", "0003", "fff1", "000g", "00", "0009done\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var again bytes.Buffer
		r, w := NewReader(bytes.NewReader(in)), NewWriter(&again)
		for {
			p, err := r.Next()
			if err != nil {
				if _, isLength := errors.AsType[*LengthError](err); err != io.EOF && err != ErrTruncated && !isLength {
					t.Fatalf("untyped error %v", err)
				}
				if err == io.EOF && again.Len() != len(in) {
					t.Fatalf("a clean end after %d of %d bytes", again.Len(), len(in))
				}
				break
			}
			switch p.Kind {
			case Data:
				err = w.WriteData(p.Data)
			case Flush:
				err = w.Flush()
			case Delim:
				err = w.Delim()
			case ResponseEnd:
				err = w.ResponseEnd()
			}
			write(t, err)
		}
		if !bytes.EqualFold(again.Bytes(), in[:again.Len()]) {
			t.Fatalf("packets written again differ: %q, input %q", again.Bytes(), in)
		}
	})
}

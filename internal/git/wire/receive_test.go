package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
)

const (
	zero = "0000000000000000000000000000000000000000"
	one  = "1111111111111111111111111111111111111111"
	two  = "2222222222222222222222222222222222222222"
)

// fakeReceiver records a push and answers with a result.
type fakeReceiver struct {
	push   *wire.Push
	pack   string
	hold   func()
	skip   bool // do not read the pack
	result wire.PushResult
	err    error
}

func (f *fakeReceiver) Advertise(context.Context) (wire.Advertisement, error) {
	id, err := object.ParseID(one)
	return wire.Advertisement{Refs: []wire.Ref{{Name: "refs/heads/main", ID: id}}, Haves: []object.ID{id}}, err
}

func (f *fakeReceiver) Receive(_ context.Context, p *wire.Push, pack io.Reader) (wire.PushResult, error) {
	f.push = p
	if pack != nil && !f.skip {
		b, err := io.ReadAll(pack)
		if err != nil {
			return wire.PushResult{Unpack: "cannot read"}, nil
		}
		f.pack = string(b)
	}
	if f.hold != nil {
		f.hold()
	}
	return f.result, f.err
}

func receive(rc wire.Receiver, body []byte) (string, error) {
	var out bytes.Buffer
	err := (&wire.Server{}).ReceivePack(context.Background(), bytes.NewReader(body), &out, rc)
	return out.String(), err
}

func TestReceiveAdvertisement(t *testing.T) {
	var out bytes.Buffer
	s := &wire.Server{Agent: "cairn/1"}
	if err := s.AdvertiseReceive(t.Context(), &out, &fakeReceiver{}, 2); err != nil {
		t.Fatal(err)
	}
	want := one + " refs/heads/main\x00report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options object-format=sha1 agent=cairn/1" +
		"|" + one + " .have|<flush>"
	if got := strings.Join(unpack(t, out.Bytes()), "|"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	out.Reset()
	if err := s.AdvertiseReceive(t.Context(), &out, &countingUploader{}, 1); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, out.Bytes())
	if len(got) != 3 || got[0] != "version 1" || !strings.HasPrefix(got[1], zero+" capabilities^{}\x00report-status ") {
		t.Errorf("empty, version 1: %q", got)
	}
}

func TestReceiveParsesPush(t *testing.T) {
	rc := &fakeReceiver{result: wire.PushResult{Refs: []wire.RefStatus{{Ref: "refs/heads/a"}, {Ref: "refs/heads/b", Error: "no\nway"}}}}
	body := append(packets(t,
		"shallow "+two,
		zero+" "+one+" refs/heads/a\x00 report-status side-band-64k atomic push-options object-format=sha1 agent=x",
		one+" "+zero+" refs/heads/b",
		"0000", "ci.skip", "", "0000"), "PACK..."...)
	got, err := receive(rc, body)
	if err != nil {
		t.Fatal(err)
	}
	inner := "000eunpack ok\n" + "0014ok refs/heads/a\n" + "001bng refs/heads/b no way\n" + "0000"
	if want := fmt.Sprintf("%04x\x01%s0000", len(inner)+5, inner); got != want {
		t.Errorf("report %q, want %q", got, want)
	}
	p := rc.push
	if len(p.Commands) != 2 || p.Commands[0].New.String() != one || !p.Commands[1].New.IsZero() || p.Commands[1].Ref != "refs/heads/b" ||
		!p.Atomic || len(p.Options) != 2 || p.Options[0] != "ci.skip" || len(p.Shallow) != 1 || p.Shallow[0].String() != two || rc.pack != "PACK..." {
		t.Errorf("push %+v, pack %q", p, rc.pack)
	}
}

func TestReceiveReports(t *testing.T) {
	update := zero + " " + one + " refs/heads/a\x00 "
	rows := []struct {
		name, caps string
		rc         fakeReceiver
		want       string
	}{
		{"plain", "report-status", fakeReceiver{}, "unpack ok|ng refs/heads/a no outcome was reported|<flush>"},
		{"no report", "", fakeReceiver{}, ""},
		{"unpack", "report-status", fakeReceiver{result: wire.PushResult{Unpack: "over quota"}}, "unpack over quota|ng refs/heads/a unpacker error|<flush>"},
		{"fault", "report-status", fakeReceiver{err: errors.New("secret")}, "unpack the server failed, try again|ng refs/heads/a unpacker error|<flush>"},
		{"refusal", "report-status", fakeReceiver{err: &wire.RefusalError{Reason: "no room"}}, "unpack no room|ng refs/heads/a unpacker error|<flush>"},
	}
	for _, row := range rows {
		got, err := receive(&row.rc, append(packets(t, update+row.caps, "0000"), "PACK"...))
		if text := strings.Join(unpack(t, []byte(got)), "|"); text != row.want {
			t.Errorf("%s: got %q, want %q", row.name, text, row.want)
		}
		if _, reported := errors.AsType[*wire.ReportedError](err); reported != (row.rc.err != nil) || !reported && err != nil {
			t.Errorf("%s: error %v", row.name, err)
		}
	}
	got, err := receive(&fakeReceiver{result: wire.PushResult{Messages: []string{"hi"}}}, packets(t, one+" "+zero+" refs/heads/a\x00 side-band-64k", "0000"))
	if got != "0008\x02hi\n0000" || err != nil {
		t.Errorf("messages without report: %q, %v", got, err)
	}
}

func TestReceiveRefusals(t *testing.T) {
	update := zero + " " + one + " refs/heads/a"
	rc := &fakeReceiver{}
	got, err := receive(rc, packets(t, update+"\x00 report-status", zero+" "+two+" refs/heads/a", "0000"))
	if want := "unpack multiple updates for ref 'refs/heads/a' not allowed"; unpack(t, []byte(got))[0] != want || rc.push != nil || err == nil {
		t.Errorf("repeated ref: %q, %v", got, err)
	}
	for want, lines := range map[string][]string{
		"ERR signed pushes are not supported, push without --signed":              {"push-cert\x00 report-status", "0000"},
		`ERR object format "sha256" is not supported, repositories here are sha1`: {update + "\x00 object-format=sha256", "0000"},
	} {
		got, err := receive(rc, packets(t, lines...))
		if unpack(t, []byte(got))[0] != want || err == nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	for name, lines := range map[string][]string{
		"no flush":      {update},
		"short":         {"abc", "0000"},
		"no ref":        {zero + " " + one + " ", "0000"},
		"bad id":        {"x" + zero[1:] + " " + one + " refs/heads/a", "0000"},
		"control":       {update + "\x1b[2J", "0000"},
		"long name":     {update + strings.Repeat("a", 5000), "0000"},
		"delimiter":     {update, "0001"},
		"bad shallow":   {"shallow x", "0000"},
		"open options":  {update + "\x00 push-options", "0000"},
		"option marker": {update + "\x00 push-options", "0000", "0001"},
	} {
		got, err := receive(rc, packets(t, lines...))
		if _, ok := errors.AsType[*wire.MalformedError](err); !ok || got != "" || rc.push != nil {
			t.Errorf("%s: got %q, %v; want a MalformedError alone", name, got, err)
		}
	}
	if got, err := receive(rc, packets(t, "0000")); got != "" || err != nil || rc.push != nil {
		t.Errorf("a push of nothing: %q, %v", got, err)
	}
}

// TestReceiveManyRefs: more commands than one change can hold are refused before
// the receiver hears of them.
func TestReceiveManyRefs(t *testing.T) {
	s := &wire.Server{Limits: wire.Limits{Commands: 3}}
	for n, want := range map[int]string{3: "unpack ok", 4: "ERR a push changes at most 3 refs, push fewer at a time"} {
		var lines []string
		for i := range n {
			line := zero + " " + one + " refs/heads/" + strconv.Itoa(i)
			if i == 0 {
				line += "\x00 report-status"
			}
			lines = append(lines, line)
		}
		var out bytes.Buffer
		rc := &fakeReceiver{}
		err := s.ReceivePack(t.Context(), bytes.NewReader(packets(t, append(lines, "0000")...)), &out, rc)
		_, reported := errors.AsType[*wire.ReportedError](err)
		if !strings.Contains(out.String(), want) || reported != (n > 3) {
			t.Errorf("%d commands: %q, %v; want %q", n, out.String(), err, want)
		}
	}
}

// TestReceiveBrokenInput: when the pack does not arrive, nothing is written, so
// that the transport can say what happened.
func TestReceiveBrokenInput(t *testing.T) {
	broken := errors.New("broken")
	head := packets(t, zero+" "+one+" refs/heads/a\x00 report-status side-band-64k", "0000")
	var out bytes.Buffer
	err := (&wire.Server{}).ReceivePack(t.Context(), io.MultiReader(bytes.NewReader(head), iotest.ErrReader(broken)), &out, &fakeReceiver{})
	if !errors.Is(err, broken) || out.Len() > 0 {
		t.Errorf("got %v, %q", err, out.String())
	}
}

// flushCounter is a response that tells when it was pushed on twice.
type flushCounter struct {
	bytes.Buffer
	flushes int
	twice   chan struct{}
}

func (f *flushCounter) Flush() error {
	if f.flushes++; f.flushes == 2 {
		close(f.twice)
	}
	return nil
}

// TestKeepalive checks that a slow receiver and a slow uploader keep the client
// awake, from the moment when it has sent everything.
func TestKeepalive(t *testing.T) {
	s := &wire.Server{Keepalive: time.Millisecond}
	out := &flushCounter{twice: make(chan struct{})}
	rc := &fakeReceiver{hold: func() { <-out.twice }, result: wire.PushResult{Refs: []wire.RefStatus{{Ref: "refs/heads/a"}}}}
	body := append(packets(t, zero+" "+one+" refs/heads/a\x00 report-status side-band-64k", "0000"), "PACK"...)
	if err := s.ReceivePack(t.Context(), bytes.NewReader(body), out, rc); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.HasPrefix(got, "0005\x010005\x01") || !strings.HasSuffix(got, "00000000") || !strings.Contains(got, "ok refs/heads/a") {
		t.Errorf("push: %q", got)
	}

	out = &flushCounter{twice: make(chan struct{})}
	up := &slowUploader{hold: func() { <-out.twice }}
	if err := s.UploadPack(t.Context(), bytes.NewReader(packets(t, "command=fetch", "0001", "want "+one, "done", "0000")), out, up, 2); err != nil {
		t.Fatal(err)
	}
	got = out.String()
	if !strings.HasPrefix(got, "000dpackfile\n0005\x010005\x01") || !strings.HasSuffix(got, "0009\x01PACK0000") {
		t.Errorf("fetch: %q", got)
	}
}

type slowUploader struct {
	countingUploader
	hold func()
	err  error
}

func (s *slowUploader) Send(ctx context.Context, w io.Writer, f *wire.Fetch, up wire.ShallowUpdate, progress func(string)) error {
	if s.hold != nil {
		s.hold()
	}
	if s.err != nil {
		return s.err
	}
	return s.countingUploader.Send(ctx, w, f, up, progress)
}

// TestSendFails: an error after the start goes to band 3, in words that reveal
// nothing; without side-band the response is broken off.
func TestSendFails(t *testing.T) {
	up := &slowUploader{err: errors.New("disk on fire")}
	got, err := upload(up, 2, packets(t, "command=fetch", "0001", "want "+one, "done", "0000"))
	_, reported := errors.AsType[*wire.ReportedError](err)
	if !reported || !errors.Is(err, up.err) || !strings.HasSuffix(string(got), "\x03upload-pack: the server failed while it made the pack\n") {
		t.Errorf("v2: %q, %v", got, err)
	}
	_, err = upload(up, 0, packets(t, "want "+one, "0000", "done"))
	if err != up.err {
		t.Errorf("v0 without side-band: %v", err)
	}
}

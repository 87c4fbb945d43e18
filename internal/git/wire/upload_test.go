package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/git/wire/wiretest"
)

// packets renders a request: strings are lines, "0000" and "0001" the markers.
func packets(t testing.TB, items ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	pkt := pktline.NewWriter(&out)
	for _, item := range items {
		var err error
		switch item {
		case "0000":
			err = pkt.Flush()
		case "0001":
			err = pkt.Delim()
		default:
			err = pkt.WriteString(item)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// unpack renders a response as a list of lines. What follows "PACK" is left out
// and the side-band packets are joined per band.
func unpack(t testing.TB, response []byte) []string {
	t.Helper()
	var got []string
	in := pktline.NewReader(bytes.NewReader(response))
	for {
		p, err := in.Next()
		if _, bare := errors.AsType[*pktline.LengthError](err); bare {
			return append(got, "<bare pack>")
		}
		if err == io.EOF || errors.Is(err, pktline.ErrTruncated) && len(got) > 0 {
			return got
		}
		if err != nil {
			t.Fatalf("response %q: %v", response, err)
		}
		line := string(p.Line())
		switch {
		case p.Kind != pktline.Data:
			line = "<" + p.Kind.String() + ">"
		case line != "" && line[0] < 4:
			line = fmt.Sprintf("<band %d>", line[0])
			if line == "<band 2>" || got[len(got)-1] == line {
				continue // progress is free, and so is the size of packets
			}
		}
		got = append(got, line)
	}
}

// history is a repository with two diverged branches, a merge, tags and a tag
// of a tag; it returns its commits oldest first.
func history(t testing.TB) (*wiretest.Repo, []string) {
	t.Helper()
	repo := wiretest.New(t)
	work := filepath.Join(filepath.Dir(repo.Dir), "work")
	wiretest.MustGit(t, filepath.Dir(repo.Dir), "clone", "-q", repo.Dir, work)
	commit := func(n int) {
		if err := os.WriteFile(filepath.Join(work, fmt.Sprintf("f%d", n%3)), fmt.Appendf(nil, "content %d\n", n), 0o644); err != nil {
			t.Fatal(err)
		}
		wiretest.MustGit(t, work, "add", ".")
		wiretest.MustGit(t, work, "commit", "-q", "-m", fmt.Sprint("c", n))
	}
	wiretest.MustGit(t, work, "checkout", "-q", "-B", "main")
	for n := range 4 {
		commit(n)
	}
	wiretest.MustGit(t, work, "checkout", "-q", "-b", "side")
	for n := range 3 {
		commit(10 + n)
	}
	wiretest.MustGit(t, work, "tag", "-a", "-m", "t", "v1")
	wiretest.MustGit(t, work, "tag", "-a", "-m", "tt", "v1-again", "v1")
	wiretest.MustGit(t, work, "checkout", "-q", "main")
	for n := range 3 {
		commit(21 + 3*n)
	}
	wiretest.MustGit(t, work, "tag", "light")
	wiretest.MustGit(t, work, "push", "-q", "origin", "--all")
	wiretest.MustGit(t, work, "push", "-q", "origin", "--tags")
	return repo, strings.Fields(wiretest.MustGit(t, repo.Dir, "rev-list", "--all", "--reverse", "--topo-order"))
}

// upload has our server answer a request.
func upload(u wire.Uploader, version int, request []byte) ([]byte, error) {
	var out bytes.Buffer
	err := (&wire.Server{}).UploadPack(context.Background(), bytes.NewReader(request), &out, u, version)
	return out.Bytes(), err
}

// absent is an id that no repository has.
const absent = "1234567890123456789012345678901234567890"

// TestNegotiationLikeGit sends random fetch requests to git upload-pack and to
// our server and compares all lines of the answers.
func TestNegotiationLikeGit(t *testing.T) {
	repo, commits := history(t)
	rng := rand.New(rand.NewPCG(7, 7))
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	maybe := func(list []string, items ...string) []string {
		for _, item := range items {
			if rng.IntN(2) == 0 {
				list = append(list, item)
			}
		}
		return list
	}
	haves := func() (list []string) {
		for _, at := range rng.Perm(len(commits))[:rng.IntN(5)] {
			id := commits[at]
			if rng.IntN(3) == 0 {
				id = fmt.Sprintf("%040x", rng.Uint64()|1)
			}
			list = append(list, "have "+id)
		}
		return list
	}
	for i := range 60 {
		version := []int{0, 2}[i%2]
		var request []string
		deepen := []string{"", "deepen 1", "deepen 3", "deepen-not refs/heads/side", "deepen-since 1600000000"}[rng.IntN(5)]
		if version == 0 {
			words := maybe([]string{pick([]string{"multi_ack_detailed", "multi_ack_detailed no-done", "multi_ack", "ofs-delta"})},
				"side-band-64k", "thin-pack", "no-progress", "include-tag")
			request = append(request, "want "+commits[len(commits)-1]+" "+strings.Join(words, " "), "want "+pick(commits))
			if deepen != "" {
				request = append(request, deepen)
			}
			request = append(append(request, "0000"), haves()...)
			// Git thinks that enough is known only within the new boundary, we do so
			// within all history: so no open end when it deepens.
			end := pick([]string{"done", "0000"})
			if deepen != "" {
				end = "done"
			}
			request = append(request, end)
			if deepen != "" && rng.IntN(2) == 0 {
				request = request[:4]
			}
		} else {
			request = append([]string{"command=fetch", "object-format=sha1", "0001"}, maybe(nil, "thin-pack", "ofs-delta", "done", "wait-for-done")...)
			request = append(request, "want "+commits[len(commits)-1], "want-ref refs/heads/side")
			request = append(request, haves()...)
			if deepen != "" {
				request = append(request, deepen, "done")
			}
			request = append(request, "0000")
		}
		body := packets(t, request...)
		want, err := repo.UploadPack(t.Context(), version, bytes.NewReader(body))
		if err != nil {
			t.Fatalf("git refuses %q: %v", request, err)
		}
		got, err := upload(repo, version, body)
		if err != nil {
			t.Fatalf("request %q: %v", request, err)
		}
		if a, b := unpack(t, got), documentedOrder(unpack(t, want)); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("request %q\n got %q\nwant %q", request, a, b)
		}
	}
}

// documentedOrder moves the section wanted-refs of a git 2.39 answer behind
// shallow-info, where Git's documentation and client have it.
func documentedOrder(lines []string) []string {
	from, info := slices.Index(lines, "wanted-refs"), slices.Index(lines, "shallow-info")
	if from < 0 || info < from {
		return lines
	}
	end := slices.Index(lines, "packfile")
	return slices.Concat(lines[:from], lines[info:end], lines[from:info], lines[end:])
}

// TestAdvertisementLikeGit compares advertisements with git's, apart from
// agent, order of capabilities, and what only we offer.
func TestAdvertisementLikeGit(t *testing.T) {
	repo, _ := history(t)
	for version := range 2 {
		want, err := repo.UploadPack(t.Context(), version, nil, "--http-backend-info-refs")
		if err != nil {
			t.Fatal(err)
		}
		a, capsA := splitCaps(advertise(t, repo, version))
		b, capsB := splitCaps(unpack(t, want))
		if a != b {
			t.Errorf("version %d:\n got %s\nwant %s", version, a, b)
		}
		for word := range capsB {
			if !capsA[word] && !strings.HasPrefix(word, "agent=") {
				t.Errorf("version %d: git offers %q, we do not", version, word)
			}
		}
		if !capsA["agent=cairn/1"] || len(capsA) != len(capsB) {
			t.Errorf("version %d: capabilities %v", version, capsA)
		}
	}
}

func advertise(t *testing.T, u wire.Uploader, version int) []string {
	t.Helper()
	var out bytes.Buffer
	if err := (&wire.Server{Agent: "cairn/1"}).AdvertiseUpload(t.Context(), &out, u, version); err != nil {
		t.Fatal(err)
	}
	return unpack(t, out.Bytes())
}

// TestAdvertiseEmpty: without refs, capabilities need a line of their own
// (git 2.39 leaves it out, newer ones do not).
func TestAdvertiseEmpty(t *testing.T) {
	repo := wiretest.New(t)
	refs, caps := splitCaps(advertise(t, repo, 0))
	if want := strings.Repeat("0", 40) + " capabilities^{}\n<flush>"; refs != want || !caps["object-format=sha1"] || !caps["no-done"] {
		t.Errorf("got %q with %v, want %q", refs, caps, want)
	}
}

func splitCaps(lines []string) (refs string, caps map[string]bool) {
	caps = map[string]bool{}
	for i, line := range lines {
		ref, words, ok := strings.Cut(line, "\x00")
		if ok {
			lines[i] = ref
			for word := range strings.FieldsSeq(words) {
				caps[word] = true
			}
		}
	}
	return strings.Join(lines, "\n"), caps
}

func TestAdvertiseV2(t *testing.T) {
	want := "version 2|agent=cairn/1|ls-refs=unborn|fetch=shallow wait-for-done filter ref-in-want|server-option|object-format=sha1|<flush>"
	if got := strings.Join(advertise(t, nil, 2), "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestLsRefsLikeGit has hand-written ls-refs requests answered as git does.
func TestLsRefsLikeGit(t *testing.T) {
	full, _ := history(t)
	many := make([]string, 70_000)
	for i := range many {
		many[i] = fmt.Sprintf("ref-prefix refs/none/%d", i)
	}
	rows := map[string][]string{
		"no prefix":        nil,
		"HEAD":             {"ref-prefix HEAD"},
		"refs/":            {"ref-prefix refs/"},
		"two":              {"ref-prefix refs/tags/v", "ref-prefix refs/heads/main"},
		"empty prefix":     {"ref-prefix "},
		"too many":         many,
		"nothing there":    {"ref-prefix refs/none"},
		"symrefs":          {"symrefs"},
		"peel":             {"peel"},
		"all":              {"symrefs", "peel", "unborn", "ref-prefix HEAD", "ref-prefix refs/"},
		"unborn":           {"symrefs", "unborn"},
		"unborn, no links": {"unborn"},
	}
	for name, args := range rows {
		body := packets(t, append(append([]string{"command=ls-refs", "agent=test", "0001"}, args...), "0000")...)
		for _, repo := range []*wiretest.Repo{full, wiretest.New(t)} {
			want, err := repo.UploadPack(t.Context(), 2, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := upload(repo, 2, body)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s:\n got %q, %v\nwant %q", name, got, err, want)
			}
		}
	}
}

func TestUploadRefusals(t *testing.T) {
	repo, commits := history(t)
	tip := commits[len(commits)-1]
	fetch := func(args ...string) []string {
		return append(append([]string{"command=fetch", "0001"}, args...), "0000")
	}
	rows := []struct {
		version int
		request []string
		want    string // "" for a malformed request
	}{
		{0, []string{"want " + absent, "0000", "done"}, "upload-pack: not our ref " + absent},
		{2, fetch("want "+absent, "done"), "upload-pack: not our ref " + absent},
		{2, fetch("want-ref refs/heads/none", "done"), `unknown ref "refs/heads/none"`},
		{2, fetch("want "+tip, "filter sparse:oid=main", "done"), `filter "sparse:oid=main" is not supported, use blob:none, blob:limit or tree`},
		{2, fetch("want "+tip, "filter blob:none", "filter tree:0"), "multiple filter-specs cannot be combined"},
		{2, fetch("want "+tip, "deepen 1", "deepen-not main"), "deepen and deepen-since (or deepen-not) cannot be used together"},
		{2, fetch("want "+tip, "no-such-thing"), `unexpected line "no-such-thing"`},
		{2, []string{"command=fetch", "object-format=sha256", "0000"}, `object format "sha256" is not supported, repositories here are sha1`},
		{0, []string{"want " + tip + " object-format=sha256", "0000", "done"}, `object format "sha256" is not supported, repositories here are sha1`},
		{2, []string{"command=object-info", "0000"}, `invalid command "object-info"`},
		{2, []string{"command=ls-refs", "speed=9", "0000"}, `unknown capability "speed=9"`},
		{2, []string{"agent=x", "0000"}, ""},
		{2, []string{"command=fetch", "command=ls-refs", "0000"}, ""},
		{2, fetch("want 123"), ""},
		{2, fetch("want "+tip, "deepen 0"), ""},
		{2, fetch("want "+tip, "deepen 99999999999"), ""},
		{2, []string{"command=fetch", "0001", "0001", "0000"}, ""},
		{0, []string{"have " + tip, "0000"}, ""},
		{0, []string{"want " + tip, "0000", "want " + tip, "done"}, ""},
		{0, []string{"want " + tip, "0001"}, ""},
		{0, nil, ""},
		{2, nil, ""},
	}
	for _, row := range rows {
		got, err := upload(repo, row.version, packets(t, row.request...))
		if row.want == "" {
			if _, ok := errors.AsType[*wire.MalformedError](err); !ok || len(got) > 0 {
				t.Errorf("%q: got %q, %v; want a MalformedError alone", row.request, got, err)
			}
			continue
		}
		_, reported := errors.AsType[*wire.ReportedError](err)
		if text, _ := strings.CutPrefix(string(got[min(len(got), 4):]), "ERR "); text != row.want || !reported {
			t.Errorf("%q: got %q, %v; want %q", row.request, text, err, row.want)
		}
	}
}

// TestRequestLimits checks that a request beyond the limits is refused, and that
// 50,000 wants are not.
func TestRequestLimits(t *testing.T) {
	lines := []string{"command=fetch", "0001"}
	for i := range 50_000 {
		lines = append(lines, fmt.Sprintf("want %040x", i+1))
	}
	body := packets(t, append(lines, "done", "0000")...)
	counter := &countingUploader{}
	if _, err := upload(counter, 2, body); err != nil || counter.wants != 50_000 {
		t.Errorf("50,000 wants: %d arrived, %v", counter.wants, err)
	}
	for _, limits := range []wire.Limits{{Lines: 1000}, {RequestBytes: 100_000}} {
		var out bytes.Buffer
		err := (&wire.Server{Limits: limits}).UploadPack(t.Context(), bytes.NewReader(body), &out, counter, 2)
		if _, ok := errors.AsType[*wire.RefusalError](err); !ok || !strings.Contains(out.String(), "ask for less at a time") {
			t.Errorf("limits %+v: %v, %q", limits, err, out.String())
		}
	}
}

// countingUploader has whatever is asked of it.
type countingUploader struct {
	wire.Uploader
	wants, sent int
}

func (c *countingUploader) CheckWants(_ context.Context, ids []object.ID) error {
	c.wants = len(ids)
	return nil
}

func (c *countingUploader) Refs(_ context.Context, _ []string, _ func(wire.Ref) error) error {
	return nil
}

func (c *countingUploader) Common(_ context.Context, ids []object.ID) ([]object.ID, error) {
	return ids, nil
}

func (c *countingUploader) Ready(context.Context, []object.ID, []object.ID) (bool, error) {
	return true, nil
}

func (c *countingUploader) Shallow(context.Context, *wire.Fetch) (wire.ShallowUpdate, error) {
	return wire.ShallowUpdate{}, nil
}

func (c *countingUploader) Send(_ context.Context, w io.Writer, _ *wire.Fetch, _ wire.ShallowUpdate, _ func(string)) error {
	c.sent++
	_, err := io.WriteString(w, "PACK")
	return err
}

func (c *countingUploader) Advertise(context.Context) (wire.Advertisement, error) {
	return wire.Advertisement{}, nil
}

func (c *countingUploader) Receive(_ context.Context, _ *wire.Push, pack io.Reader) (wire.PushResult, error) {
	c.sent++
	if pack != nil {
		_, err := io.Copy(io.Discard, pack)
		return wire.PushResult{}, err
	}
	return wire.PushResult{}, nil
}

package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pktline"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
)

func TestSources(t *testing.T) {
	for src, want := range map[Source]string{
		{"github", "", "o", "n"}:                                    "https://github.com/o/n.git",
		{"github", "GitHub.com", "o", "n.git"}:                      "https://github.com/o/n.git",
		{"gitlab", "", "group/sub", "n"}:                            "https://gitlab.com/group/sub/n.git",
		{"gitlab", "git.example.com", "o", ".github"}:               "https://git.example.com/o/.github.git",
		{"bitbucket", "", "o", "n.js"}:                              "https://bitbucket.org/o/n.js.git",
		{"gitea", "git.example.com:3000", "o", "n"}:                 "https://git.example.com:3000/o/n.git",
		{"forgejo", "127.0.0.1:3000", "o", "n"}:                     "https://127.0.0.1:3000/o/n.git",
		{"codeberg", "", "o", "n"}:                                  "https://codeberg.org/o/n.git",
		{"sr.ht", "", "~o", "n"}:                                    "https://git.sr.ht/~o/n",
		{"sr.ht", "", "o", "n"}:                                     "https://git.sr.ht/~o/n",
		{"gitea", "", "o", "n"}:                                     "",
		{"cvs", "", "o", "n"}:                                       "",
		{"github", "evil.example", "o", "n"}:                        "",
		{"github", "", "", "n"}:                                     "",
		{"github", "", "o", ""}:                                     "",
		{"github", "", "o/p", "n"}:                                  "",
		{"github", "", "..", "n"}:                                   "",
		{"github", "", "o", ".."}:                                   "",
		{"github", "", "o", "a/b"}:                                  "",
		{"github", "", "o", "a?b"}:                                  "",
		{"github", "", "o", "a#b"}:                                  "",
		{"github", "", "-o", "n"}:                                   "",
		{"github", "", "~o", "n"}:                                   "",
		{"gitlab", "", "a//b", "n"}:                                 "",
		{"gitlab", "", "a/../b", "n"}:                               "",
		{"gitea", "u:p@git.example.com", "o", "n"}:                  "",
		{"gitea", "git.example.com/x", "o", "n"}:                    "",
		{"gitea", "git.example.com:", "o", "n"}:                     "",
		{"gitea", "git.example.com:x", "o", "n"}:                    "",
		{"gitea", "https://git.example.com", "o", "n"}:              "",
		{"gitea", "git example.com", "o", "n"}:                      "",
		{"gitea", "git.example.com", strings.Repeat("o", 300), "n"}: "",
		{"gitea", "git.example.com", "o", strings.Repeat("n", 300)}: "",
	} {
		got, err := src.Normalize()
		if _, refused := errors.AsType[*InvalidError](err); refused != (want == "") {
			t.Errorf("%+v: %v", src, err)
		} else if err == nil && got.url(false).String() != want {
			t.Errorf("%+v is asked at %s, want %s", src, got.url(false), want)
		}
	}
}

// FuzzSource takes any names: what is accepted leads to that host and nowhere
// else.
func FuzzSource(f *testing.F) {
	f.Add("gitea", "git.example.com", "o", "n")
	f.Add("sr.ht", "", "~o", "n")
	f.Add("gitlab", "h:1", "a/b", "../x")
	f.Add("gitea", "a@b", "%2e%2e", "x?y")
	f.Fuzz(func(t *testing.T, provider, host, owner, name string) {
		src, err := Source{provider, host, owner, name}.Normalize()
		if err != nil {
			return
		}
		text := src.url(false).String()
		u, err := url.Parse(text)
		if err != nil || u.Host != src.Host || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//") {
			t.Errorf("%q: %+v, %v", text, u, err)
		}
		if again, err := src.Normalize(); err != nil || again != src {
			t.Errorf("%+v becomes %+v, %v", src, again, err)
		}
	})
}

func packets(lines ...string) string {
	var out bytes.Buffer
	w := pktline.NewWriter(&out)
	for _, l := range lines {
		var err error
		switch l {
		case "0000":
			err = w.Flush()
		case "0001":
			err = w.Delim()
		default:
			err = w.WriteData([]byte(l))
		}
		if err != nil {
			panic(err)
		}
	}
	return out.String()
}

var hexA, hexB = strings.Repeat("a", 40), strings.Repeat("b", 40)

func TestRefList(t *testing.T) {
	answer := packets("unborn HEAD symref-target:refs/heads/x\n", hexA+" refs/heads/main\n", hexB+" refs/tags/v1 peeled:"+hexA+"\n",
		hexA+" refs/pull/1/head\n", hexA+" HEAD symref-target:refs/heads/main\n", "0000")
	for n := range len(answer) + 1 {
		l := refList{refs: map[string]object.ID{}, max: 10}
		err := l.read(iotest.OneByteReader(strings.NewReader(answer[:n])))
		if (err == nil) != (n == len(answer)) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(answer), err)
		}
		if err == nil && (len(l.refs) != 2 || l.head != "refs/heads/main" || l.refs["refs/tags/v1"].String() != hexB) {
			t.Errorf("%v, head %q", l.refs, l.head)
		}
	}
}

func TestPackBody(t *testing.T) {
	answer := packets("shallow-info\n", "0001", "packfile\n", "\x02working\n", "\x01PA", "\x01", "\x01CK", "0000")
	for n := range len(answer) + 1 {
		p := &packBody{body: io.NopCloser(nil), in: pktline.NewReader(strings.NewReader(answer[:n]))}
		err := p.begin()
		var data []byte
		if err == nil {
			data, err = io.ReadAll(p)
		}
		if n == len(answer) && (err != nil || string(data) != "PACK") || n < len(answer) && err == nil {
			t.Errorf("the first %d of %d bytes: %q, %v", n, len(answer), data, err)
		}
	}
}

func TestAcknowledgments(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		both   int
		ready  bool
		fails  bool
	}{
		"none":     {packets("acknowledgments\n", "NAK\n", "0000"), 0, false, false},
		"some":     {packets("acknowledgments\n", "ACK "+hexA+"\n", "ACK "+hexB+"\n", "0000"), 2, false, false},
		"ready":    {packets("acknowledgments\n", "ACK "+hexA+"\n", "ready\n", "0001", "packfile\n"), 1, true, false},
		"error":    {packets("ERR gone\n"), 0, false, true},
		"bad id":   {packets("acknowledgments\n", "ACK "+hexA[1:]+"\n", "0000"), 0, false, true},
		"a pack":   {packets("packfile\n", "\x01PACK", "0000"), 0, false, true},
		"cut":      {packets("acknowledgments\n", "ACK "+hexA+"\n"), 0, false, true},
		"too many": {packets("acknowledgments\n", "0000")[:20] + strings.Repeat(packets("NAK\n"), maxSections), 0, false, true},
	} {
		p := &packBody{body: io.NopCloser(nil), in: pktline.NewReader(strings.NewReader(row.answer))}
		both, ready, err := p.acknowledged(false)
		if len(both) != row.both || ready != row.ready || (err != nil) != row.fails {
			t.Errorf("%s: %d, %v, %v", name, len(both), ready, err)
		}
	}
}

// FuzzAnswers reads any bytes as each of the answers of an upstream.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(packets(hexA+" refs/heads/main\n", "0000")))
	f.Add([]byte(packets("packfile\n", "\x01PACK", "\x03no\n", "0000")))
	f.Add([]byte(packets("ERR \x1b[2Jgone\n")))
	f.Add([]byte("0004zzzz"))
	f.Add([]byte(packets("acknowledgments\n", "ACK "+hexA+"\n", "ready\n", "0001")))
	f.Add([]byte(packets("acknowledgments\n", "NAK\n", "0001", "packfile\n", "\x02", "\x01", "0000")))
	f.Fuzz(func(t *testing.T, in []byte) {
		l := refList{refs: map[string]object.ID{}, max: 100}
		err := l.read(bytes.NewReader(in))
		for name, id := range l.refs {
			if refname.Check(name) != nil || id.IsZero() {
				t.Errorf("ref %q at %s", name, id)
			}
		}
		p := &packBody{body: io.NopCloser(nil), in: pktline.NewReader(bytes.NewReader(in))}
		perr := p.begin()
		if perr == nil {
			_, perr = io.Copy(io.Discard, p)
		}
		a := &packBody{body: io.NopCloser(nil), in: pktline.NewReader(bytes.NewReader(in))}
		_, _, aerr := a.acknowledged(false)
		for _, err := range []error{err, perr, aerr} {
			if known, ok := errors.AsType[*Error](err); err != nil && (!ok || strings.ContainsFunc(known.Message, func(r rune) bool { return r < ' ' })) {
				t.Errorf("%T %q", err, err)
			}
		}
	})
}

func TestSeen(t *testing.T) {
	id := func(n byte) object.ID { return object.ID{n} }
	theirs := map[string]object.ID{"refs/heads/a": id(1), "refs/heads/b": id(2), "refs/heads/new": id(3), "refs/tags/ü x": id(4)}
	before := map[string]object.ID{"refs/heads/b": id(9), "refs/heads/gone": id(8), "refs/heads/kept": id(7)}
	text := encodeSeen(theirs, before, []repo.KeptRef{{Name: "refs/heads/b"}, {Name: "refs/heads/new"}, {Name: "refs/heads/kept"}})
	got, err := decodeSeen(text)
	want := map[string]object.ID{"refs/heads/a": id(1), "refs/heads/b": id(9), "refs/heads/kept": id(7), "refs/tags/ü x": id(4)}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := decodeSeen([]byte("x")); !errors.Is(err, meta.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}

func TestReseal(t *testing.T) {
	ctx := t.Context()
	store, err := sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	blobs := mem.New()
	engine := repo.New(repo.Config{Meta: store, Blobs: blobs, Process: "p", Scratch: t.TempDir(),
		ODB: odb.New(odb.Config{Meta: store, Blobs: blobs, Scratch: t.TempDir(), Process: "p"})})
	org := meta.OrgID(meta.NewID(time.Now()))
	if _, err := store.Apply(ctx, meta.Change{Org: org, CreateOrg: &meta.Org{Name: "acme"}}); err != nil {
		t.Fatal(err)
	}
	older, newer := secret.Generate(), secret.Generate()
	ring := func(texts ...[]byte) *secret.Keyring {
		r, err := secret.Parse(bytes.Join(texts, nil))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := ring(older)
	ids := make([]meta.CredentialID, resealPage+2)
	for i := range ids {
		r, err := engine.Create(ctx, repo.Writer{Org: org}, repo.CreateRequest{Name: fmt.Sprint("r", i)})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = meta.CredentialID(meta.NewID(time.Now()))
		sealed, err := old.Seal(CredentialRow(ids[i]), fmt.Append(nil, "password ", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Follow(ctx, repo.Writer{}, r, meta.FollowChange{PutCredential: &meta.Credential{ID: ids[i], Secret: sealed}}); err != nil {
			t.Fatal(err)
		}
	}
	hosts, err := netguard.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := New(Config{Meta: store, Engine: engine, Hosts: hosts, Secrets: ring(newer, older), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := s.reseal(ctx); err != nil {
		t.Fatal(err)
	}
	alone := ring(newer)
	for i, id := range ids {
		c, err := store.Credential(ctx, org, id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := alone.Open(CredentialRow(id), c.Secret); err != nil || string(got) != fmt.Sprint("password ", i) {
			t.Errorf("credential %d: %q, %v", i, got, err)
		}
	}
	if text := log.String(); !strings.Contains(text, fmt.Sprintf("count=%d left=0", len(ids))) || strings.Contains(text, "password") {
		t.Errorf("log: %s", text)
	}
}

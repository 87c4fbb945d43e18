package hostile_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// memoryLimit bounds what the server may ever take, in KiB.
const memoryLimit = 256 << 10

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// randomIDs returns n ids that no object has.
func randomIDs(n int) []string {
	raw := make([]byte, 20*n)
	rand.Read(raw)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = hex.EncodeToString(raw[20*i : 20*i+20])
	}
	return ids
}

// lines is one pkt-line for each id.
func lines(format string, ids []string) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(pkt(fmt.Sprintf(format, id)))
	}
	return b.String()
}

// changed returns a copy of a sealed pack with some bytes replaced and the
// checksum made right again.
func changed(p []byte, at int, with ...byte) []byte {
	p = bytes.Clone(p)
	copy(p[at:], with)
	return sealed(p[:len(p)-20])
}

// delta is a pack with a delta against "abcd".
func delta(instructions []byte) []byte {
	base := entry(blobEntry, 4, nil, deflate([]byte("abcd")))
	return raw(2, base, entry(ofsEntry, uint64(len(instructions)), back(uint64(len(base))), deflate(instructions)))
}

// badTree is a pack with a commit of a tree that has one bad entry.
func badTree(mode, name string) ([]byte, string) {
	b := blob("x")
	t := tree(mode+" "+name, b.id())
	c := commit(t.id())
	return pack(b, t, c), c.id()
}

// badPacks are packs that no server may take.
func badPacks() map[string][]byte {
	good := newVault("pushing").pack()
	x, y := blob("x"), blob("y")
	packs := map[string][]byte{
		"empty":                     {},
		"bad checksum":              append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1),
		"bad zlib":                  changed(good, 30, good[30]^0x55),
		"trailing bytes":            append(bytes.Clone(good), "junk"...),
		"version 4":                 changed(good, 7, 4),
		"4 Gi objects":              changed(good, 8, 255, 255, 255, 255),
		"fewer objects":             changed(good, 11, 3),
		"more objects":              changed(good, 11, 5),
		"entry type 0":              raw(1, entry(0, 4, nil, deflate([]byte("abcd")))),
		"entry type 5":              raw(1, entry(5, 4, nil, deflate([]byte("abcd")))),
		"offset zero":               raw(1, entry(ofsEntry, 4, back(0), deflate([]byte("abcd")))),
		"offset before the pack":    raw(1, entry(ofsEntry, 4, back(1<<20), deflate([]byte("abcd")))),
		"offset into an entry":      raw(2, entry(blobEntry, 4, nil, deflate([]byte("abcd"))), entry(ofsEntry, 4, back(3), deflate([]byte("abcd")))),
		"offset without end":        raw(1, entry(ofsEntry, 4, bytes.Repeat([]byte{0xff}, 30), deflate([]byte("abcd")))),
		"size without end":          raw(1, append(append([]byte{0xbf}, bytes.Repeat([]byte{0xff}, 30)...), deflate([]byte("abcd"))...)),
		"cycle":                     raw(2, entry(refEntry, uint64(len(appendDelta(1, "y"))), rawID(x.id()), deflate(appendDelta(1, "y"))), entry(refEntry, uint64(len(appendDelta(1, "x"))), rawID(y.id()), deflate(appendDelta(1, "x")))),
		"base that is not there":    pack(object{kind: refEntry, base: absent.blob.id(), data: appendDelta(4, "x")}),
		"delta for another size":    delta(appendDelta(5, "z")),
		"empty delta":               delta(nil),
		"delta opcode 0":            delta(append(append(varint(4), varint(1)...), 0, 0)),
		"delta beyond its base":     delta(append(append(varint(4), varint(9)...), 0x80|0x10, 9)),
		"delta that is short":       delta(append(append(varint(4), varint(9)...), 0x80|0x10, 4)),
		"delta that says 4 GiB":     delta(append(append(varint(4), varint(4<<30)...), 0x80|0x10, 4)),
		"delta that says 4 EiB":     delta(append(append(varint(4), varint(1<<62)...), 0x80|0x10, 4)),
		"delta that repeats":        delta(copies(4, 4, 1<<16, 4<<30)),
		"deltas that double":        doubling(20),
		"100,000 deltas":            chain(100_000),
		"10 bytes that are 320 MiB": raw(1, entry(blobEntry, 10, nil, deflatedBomb())),
		"4 GiB that are 10 bytes":   raw(1, entry(blobEntry, 4<<30, nil, deflate([]byte("abcdefghij")))),
		"tree of 4 GiB":             raw(1, entry(treeEntry, 4<<30, nil, deflate([]byte("abcdefghij")))),
		"commit of 320 MiB":         raw(1, entry(commitEntry, bomb, nil, deflatedBomb())),
		"tag of 60 MiB":             raw(1, entry(tagEntry, 60<<20, nil, zeros(60<<20))),
		"tree of zeros":             raw(1, entry(treeEntry, 30<<20, nil, zeros(30<<20))),
		"commit of nothing":         pack(object{kind: commitEntry}),
		"tag of nothing":            pack(object{kind: tagEntry}),
		"object twice":              pack(x, x),
	}
	for _, n := range []int{3, 11, 12, 20, 60, len(good) - 21, len(good) - 1} {
		packs[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	return packs
}

// inputs are requests that must be refused, by what is wrong with them.
func inputs(t *testing.T, s *harness.Server, name, tip string) map[string]func() harness.Answer {
	token := tokenOf(s, name)
	all := make(map[string]func() harness.Answer)
	pushes := func(what string, p []byte, commands ...string) {
		all["push: "+what] = func() harness.Answer { return push(t, s, name, token, p, commands...) }
	}
	post := func(what, path string, header map[string]string, body func() io.Reader) {
		all[what] = func() harness.Answer { return request(t, s, http.MethodPost, path, token, header, body()) }
	}
	for what, p := range badPacks() {
		pushes(what, p, command(zero, newVault("pushing").commit.id(), "refs/heads/x"))
	}
	for _, entry := range [][2]string{
		{"100644", ".git"}, {"100644", ".GIT"}, {"100644", "git~1"}, {"100644", "GIT~1"}, {"40000", ".git"}, {"100644", "a/b"}, {"100644", ".."}, {"100644", "."}, {"100644", ""},
		{"100644", ".git "}, {"100644", ".git."}, {"100644", ".g\u200cit"}, {"100644", ".git::$INDEX_ALLOCATION"}, {"120000", ".gitmodules"}, {"040000", "padded"}, {"100644", strings.Repeat("x", 5000)}, {"999999", "mode"}, {"", "no mode"},
		{"100644", `.git\config`},
	} {
		p, id := badTree(entry[0], entry[1])
		pushes(fmt.Sprintf("tree entry %q %.30q", entry[0], entry[1]), p, command(zero, id, "refs/heads/x"))
	}
	many := make([]string, 40_000)
	for i := range many {
		many[i] = command(zero, tip, fmt.Sprintf("refs/heads/many/%d", i))
	}
	pushes("40,000 refs", pack(), many...)
	pushes("a long ref", pack(), command(zero, tip, "refs/heads/"+strings.Repeat("x", 60_000)))
	pushes("a ref twice", pack(), command(zero, tip, "refs/heads/x"), command(zero, tip, "refs/heads/x"))
	pushes("a blob as a branch", pack(), command(zero, publicBlob.id(), "refs/heads/x"))
	pushes("a file below a branch", pack(), command(zero, tip, "refs/heads/main/x"))

	head := pkt("command=fetch") + "0001"
	ids := randomIDs(1_000_000)
	wire := map[string]string{
		"1,000,000 wants":    head + lines("want %s", ids) + pkt("done") + "0000",
		"500,000 wants":      head + lines("want %s", ids[:500_000]) + pkt("done") + "0000",
		"500,000 want-refs":  head + lines("want-ref refs/heads/main%.0s", ids[:500_000]) + pkt("done") + "0000",
		"500,000 deepen-not": head + pkt("want "+tip) + lines("deepen-not %s", ids[:500_000]) + pkt("done") + "0000",
		"unknown command":    pkt("command=dance") + "0000",
		"unknown argument":   head + pkt("dance") + "0000",
		"deep filter":        head + pkt("want "+tip) + pkt("filter "+strings.Repeat("combine:", 5000)+"tree:0") + pkt("done") + "0000",
	}
	for what, body := range wire {
		all["fetch: "+what] = func() harness.Answer { return fetch(t, s, name, token, 2, body) }
	}
	all["fetch: 1,000,000 wants in v0"] = func() harness.Answer {
		return fetch(t, s, name, token, 0, lines("want %s\n", ids)+"0000"+pkt("done\n"))
	}
	zipped, zippedLines := gzipped(make([]byte, bomb)), gzipped(bytes.Repeat([]byte(pkt("want "+tip+"\n")), 1_000_000))
	for _, service := range []string{"upload", "receive"} {
		path, kind := "/"+name+".git/git-"+service+"-pack", "application/x-git-"+service+"-pack-request"
		for _, body := range []string{"0003", "0001", "0002", "zzzz", "fff1x", "00", "ffff" + strings.Repeat("x", 70_000), "", "0009done\n", "-001", "+0ff", "00 5", "\xff\xff\xff\xff"} {
			post(fmt.Sprintf("%s: %.10q", service, body), path, map[string]string{"Content-Type": kind}, func() io.Reader { return strings.NewReader(body) })
		}
		for what, row := range map[string]struct {
			encoding, kind string
			body           []byte
		}{
			"gzip bomb of lines": {"gzip", kind, zippedLines},
			"gzip bomb of zeros": {"gzip", kind, zipped},
			"not gzip":           {"gzip", kind, []byte("junk")},
			"gzip cut short":     {"gzip", kind, gzipped([]byte("0000"))[:12]},
			"gzip twice":         {"gzip, gzip", kind, gzipped(gzipped([]byte("0000")))},
			"deflate":            {"deflate", kind, []byte("0000")},
			"text":               {"", "text/plain", []byte("0000")},
			"the other service":  {"", strings.Replace(kind, service, "other", 1), []byte("0000")},
			"no type":            {"", "", []byte("0000")},
		} {
			post(service+": "+what, path, map[string]string{"Content-Type": row.kind, "Content-Encoding": row.encoding}, func() io.Reader { return bytes.NewReader(row.body) })
		}
	}
	for what, body := range badCommits(tip) {
		post("commit: "+what, harness.RepoPath(name)+"/commit-pack", map[string]string{"Content-Type": "application/x-ndjson"}, body)
	}
	for what, body := range map[string]string{
		"nested": strings.Repeat("[", 900_000), "long": strings.Repeat(" ", 2<<20), "text": "text", "two": "{}{}", "null base": `{"base_ref":null,"target_branch":null}`,
	} {
		post("branch: "+what, harness.RepoPath(name)+"/branches/create", map[string]string{"Content-Type": "application/json"}, func() io.Reader { return strings.NewReader(body) })
	}
	for what, query := range map[string]string{
		"long glob": "include_globs=" + strings.Repeat("*a", 3000), "many alternatives": "include_globs=" + strings.Repeat("{a,b}", 40), "negative size": "max_blob_size=-1",
	} {
		all["archive: "+what] = func() harness.Answer {
			return request(t, s, http.MethodGet, harness.RepoPath(name)+"/archive?"+query, token, nil, nil)
		}
	}
	return all
}

// refusedIn reports whether an answer is a clear refusal: a status of the client's
// fault, or an error in the protocol.
func refusedIn(a harness.Answer) bool {
	if a.Status/100 == 4 {
		return len(a.Body) > 0
	}
	return a.Status == http.StatusOK && (bytes.Contains(a.Body, []byte("ng refs/")) || bytes.Contains(a.Body, []byte("ERR "))) &&
		!bytes.Contains(a.Body, []byte("server failed"))
}

// TestHostileInput sends what no client sends: each request is refused clearly,
// refs stay, memory stays bounded, and afterwards nothing is left of it.
func TestHostileInput(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	public := commit(publicTree.id())
	createPublic(t, s, "r", public)
	s.Stop()
	rows := rowCounts(t, s)
	kept := files(t, s)
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	before := allRefs(t, s, "r")
	last := peak(t, s)
	all := inputs(t, s, "r", public.id())
	for _, what := range slices.Sorted(maps.Keys(all)) {
		st := time.Now()
		if a := all[what](); !refusedIn(a) {
			t.Errorf("%s: %d %.300q, want a refusal", what, a.Status, a.Body)
		}
		if d := time.Since(st); d > time.Second/2 {
			t.Log(what, d)
		}
		if now := peak(t, s); now > last+16<<10 {
			t.Logf("%s: memory grew by %d KiB to %d", what, now-last, now)
			last = now
		}
	}
	if now := allRefs(t, s, "r"); now != before {
		t.Errorf("refs are now\n%s\nwere\n%s", now, before)
	}
	if now := peak(t, s); now > memoryLimit {
		t.Errorf("the server took %d KiB, more than %d", now, memoryLimit)
	}
	endUnchanged(t, s, rows, kept)
}

// endUnchanged stops a server and finds the rows and files that were there, whole.
func endUnchanged(t *testing.T, s *harness.Server, rows map[string]int, kept []string) {
	t.Helper()
	if status := s.Stop(); status != 0 {
		t.Errorf("the server ended with status %d", status)
	}
	if now := rowCounts(t, s); !maps.Equal(now, rows) {
		t.Errorf("rows are now %v, were %v", now, rows)
	}
	if now := files(t, s); !slices.Equal(now, kept) {
		t.Errorf("files are now %q, were %q", now, kept)
	}
	if _, err := s.Operate("fsck"); err != nil {
		t.Errorf("fsck: %v", err)
	}
}

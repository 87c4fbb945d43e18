package wire_test

import (
	"errors"
	"testing"

	"github.com/cairnstate/cairn/internal/git/wire"
)

// uploadSeeds are whole requests for a pack, by protocol version.
func uploadSeeds(t testing.TB) map[int][][]byte {
	return map[int][][]byte{
		0: {
			packets(t, "want "+one+" multi_ack_detailed no-done side-band-64k thin-pack ofs-delta", "want "+two, "0000", "done"),
			packets(t, "want "+one+" multi_ack", "shallow "+two, "deepen 3", "filter blob:none", "0000", "have "+two, "done"),
			packets(t, "want "+one+" side-band", "deepen-since 1700000000", "deepen-not main", "0000", "have "+two, "done"),
		},
		2: {
			packets(t, "command=fetch", "agent=x", "object-format=sha1", "0001", "thin-pack", "want "+one, "have "+two, "done", "0000"),
			packets(t, "command=fetch", "0001", "want "+one, "shallow "+two, "deepen 1", "deepen-relative", "filter tree:1", "0000"),
			packets(t, "command=fetch", "0001", "want "+one, "have "+two, "include-tag", "0000"),
		},
	}
}

// pushSeeds are whole pushes without their packs.
func pushSeeds(t testing.TB) [][]byte {
	return [][]byte{
		packets(t, zero+" "+one+" refs/heads/a\x00 report-status-v2 side-band-64k atomic", "0000"),
		packets(t, "shallow "+one, one+" "+zero+" refs/heads/a\x00 report-status push-options", "0000", "option", "0000"),
	}
}

// TestPrefix checks that no strict prefix of a request passes for the request:
// a connection that breaks must not make the server send or move anything.
func TestPrefix(t *testing.T) {
	for version, seeds := range uploadSeeds(t) {
		for _, request := range seeds {
			whole := &countingUploader{}
			if _, err := upload(whole, version, request); err != nil || whole.sent != 1 {
				t.Fatalf("version %d: %q: %v, %d packs", version, request, err, whole.sent)
			}
			for n := range request {
				u := &countingUploader{}
				_, err := upload(u, version, request[:n])
				if u.sent > 0 {
					t.Errorf("version %d: %q passes for the whole request, %v", version, request[:n], err)
				}
			}
		}
	}
	for _, request := range pushSeeds(t) {
		for n := range request {
			rc := &countingUploader{}
			if got, err := receive(rc, request[:n]); rc.sent > 0 || err == nil || got != "" {
				t.Errorf("%q passes for a push: %q, %v", request[:n], got, err)
			}
		}
	}
}

// checkExchange checks what holds after every exchange, however bad.
func checkExchange(t *testing.T, written int, err error) {
	_, malformed := errors.AsType[*wire.MalformedError](err)
	_, reported := errors.AsType[*wire.ReportedError](err)
	switch {
	case err != nil && !malformed && !reported:
		t.Fatalf("untyped error %v", err)
	case malformed && written > 0:
		t.Fatalf("%d bytes were written for %v", written, err)
	case reported && written == 0:
		t.Fatalf("nothing was written for %v", err)
	}
}

func FuzzUploadV0(f *testing.F) { fuzzUpload(f, 0) }
func FuzzUploadV2(f *testing.F) { fuzzUpload(f, 2) }

func fuzzUpload(f *testing.F, version int) {
	for _, seed := range uploadSeeds(f)[version] {
		f.Add(seed)
	}
	f.Add(packets(f, "command=ls-refs", "0001", "peel", "symrefs", "unborn", "ref-prefix HEAD", "0000"))
	f.Add(packets(f, "0000"))
	f.Fuzz(func(t *testing.T, request []byte) {
		got, err := upload(&countingUploader{}, version, request)
		checkExchange(t, len(got), err)
	})
}

func FuzzReceive(f *testing.F) {
	for _, seed := range pushSeeds(f) {
		f.Add(seed)
		f.Add(append(seed, "PACK"...))
	}
	f.Add(packets(f, "push-cert\x00", "0000"))
	f.Fuzz(func(t *testing.T, request []byte) {
		rc := &fakeReceiver{}
		got, err := receive(rc, request)
		checkExchange(t, len(got), err)
		if rc.push != nil && len(rc.push.Commands) == 0 {
			t.Fatal("a push without commands was handed on")
		}
	})
}

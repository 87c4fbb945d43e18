package githttp_test

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
)

// fixed is a repository in memory with one ref and a pack of a given size.
type fixed struct {
	wire.Uploader
	pack []byte
}

func (f fixed) Refs(_ context.Context, _ []string, yield func(wire.Ref) error) error {
	return yield(wire.Ref{Name: "refs/heads/main", ID: object.ID{1}})
}

func (f fixed) CheckWants(context.Context, []object.ID) error { return nil }

func (f fixed) Send(_ context.Context, w io.Writer, _ *wire.Fetch, _ wire.ShallowUpdate, _ func(string)) error {
	_, err := w.Write(f.pack)
	return err
}

// benchmark posts body again and again, without a network.
func benchmark(b *testing.B, up wire.Uploader, body string) {
	s := start(b, nil)
	s.backend.up = up
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/r.git/git-upload-pack", strings.NewReader(body))
		r.SetBasicAuth("t", "rw")
		r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		r.Header.Set("Git-Protocol", "version=2")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code, w.Body.String())
		}
	}
}

func BenchmarkLsRefs(b *testing.B) { benchmark(b, fixed{}, lsRefs) }

const fetchOne = "0012command=fetch\n00010032want 1111111111111111111111111111111111111111\n0009done\n0000"

func BenchmarkFetchTiny(b *testing.B) { benchmark(b, fixed{pack: []byte("PACK")}, fetchOne) }

func BenchmarkFetch16MB(b *testing.B) {
	b.SetBytes(16 << 20)
	benchmark(b, fixed{pack: make([]byte, 16<<20)}, fetchOne)
}

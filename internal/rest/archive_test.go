package rest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
)

// untar returns the names in a tar.gz with their modes.
func untar(t *testing.T, data []byte) []string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s:%o", h.Name, h.Mode))
	}
}

func TestArchive(t *testing.T) {
	s := newStack(t)
	s.create("team/app")
	body := commitBody(map[string]any{"files": []map[string]string{
		{"path": "README.md", "content_id": "a"}, {"path": "src/x.go", "content_id": "a"}, {"path": "src/deep/y.go", "content_id": "b"},
		{"path": "run", "content_id": "a", "mode": "100755"},
	}}, nil) + chunkLine("a", "a", true) + chunkLine("b", strings.Repeat("b", 100), true)
	if a := s.pack("team/app", body); a.status != http.StatusCreated {
		t.Fatalf("%s", a.body)
	}
	session := s.commit("team/app", map[string]any{"target_branch": "s/1", "base_branch": "main", "ephemeral": true}, map[string]string{"only": "here"})
	token := s.full("team/app")
	all := "[README.md:644 run:755 src/deep/y.go:644 src/x.go:644]"
	rows := []struct{ body, query, want string }{
		{"", "", all},
		{"{}", "", all},
		{`{"ref":"main"}`, "ref=main", all},
		{`{"ref":"` + session.Result.NewSHA + `"}`, "ref=" + session.Result.NewSHA, "[README.md:644 only:644 run:755 src/deep/y.go:644 src/x.go:644]"},
		{`{"ref":"s/1","ephemeral":true,"include_globs":["only"]}`, "ref=s/1&ephemeral=true&include_globs=only", "[only:644]"},
		{`{"include_globs":["*.go","run"],"exclude_globs":["src/deep/**"]}`, "include_globs=*.go&include_globs=run&exclude_globs=src/deep/**", "[run:755 src/x.go:644]"},
		{`{"include_globs":["nothing"]}`, "include_globs=nothing", "[]"},
		{`{"max_blob_size":50}`, "max_blob_size=50", "[README.md:644 run:755 src/x.go:644]"},
		{`{"archive":{"prefix":"p/q"},"include_globs":["run"]}`, "prefix=p/q/&include_globs=run", "[p/q/run:755]"},
	}
	for _, row := range rows {
		post := s.want(http.StatusOK, "POST", "/api/v1/repos/archive", token, row.body, nil)
		get := s.want(http.StatusOK, "GET", repoPath("team/app", with("archive", row.query)), token, nil, nil)
		if got := fmt.Sprint(untar(t, post.body)); got != row.want {
			t.Errorf("POST %s: %s, want %s", row.body, got, row.want)
		}
		if !bytes.Equal(get.body, post.body) {
			t.Errorf("GET %s gives other bytes than POST %s: %v", row.query, row.body, untar(t, get.body))
		}
	}
	a := s.want(http.StatusOK, "POST", "/api/v1/repos/archive", token, `{"ref":"s/1","ephemeral":true}`, nil)
	for name, want := range map[string]string{
		"Content-Type": "application/gzip", "Cache-Control": "no-store", "Content-Disposition": `attachment; filename="app-s-1.tar.gz"`,
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for body, want := range map[string]api.Code{
		`{"ref":"none"}`: api.NotFound, `{"ref":"s/1"}`: api.NotFound, `{"ref":"` + strings.Repeat("ab", 20) + `"}`: api.NotFound,
		`{"include_globs":["[a"]}`: api.Invalid, `{"archive":{"prefix":"/x"}}`: api.Invalid, `{"archive":{"prefix":"a/../b"}}`: api.Invalid,
		`{"archive":{"prefix":"a\\b"}}`: api.Invalid, `{"max_blob_size":-1}`: api.Invalid, `{"max_blob_size":"x"}`: api.Invalid,
	} {
		status := http.StatusBadRequest
		if want == api.NotFound {
			status = http.StatusNotFound
		}
		s.refused(status, want, "POST", "/api/v1/repos/archive", token, body)
	}
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/v1/repos/archive?max_blob_size=x", token, nil)
	s.create("empty")
	s.refused(http.StatusNotFound, api.NotFound, "POST", repoPath("empty", "archive"), s.full("empty"), nil)
}

package githttp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	rows := map[string]*Route{
		"/a.git/info/refs":                  {"a", Normal, infoRefs},
		"/a.git/git-upload-pack":            {"a", Normal, uploadPack},
		"/a.git/git-receive-pack":           {"a", Normal, receivePack},
		"/a+ephemeral.git/info/refs":        {"a", Ephemeral, infoRefs},
		"/a%2Bimport.git/git-receive-pack":  {"a", Import, receivePack},
		"/a+import+ephemeral.git/info/refs": {"a+import", Ephemeral, infoRefs},
		"/team/project.git/info/refs":       {"team/project", Normal, infoRefs},
		"/team%2Fproject.git/info/refs":     {"team/project", Normal, infoRefs},
		"//team//project.git//info//refs":   {"team/project", Normal, infoRefs},
		"/x.git/nested.git/git-upload-pack": {"x.git/nested", Normal, uploadPack},
		"/x.github/y.git/info/refs":         {"x.github/y", Normal, infoRefs},
		"/sp%20ace/%C3%BC.git/info/refs":    {"sp ace/ü", Normal, infoRefs},
		"/api/repos.git/info/refs":          {"api/repos", Normal, infoRefs},
		"/a.git":                            {"a", Normal, dumb},
		"/a.git/":                           {"a", Normal, dumb},
		"/a.git/HEAD":                       {"a", Normal, dumb},
		"/a.git/objects/info/packs":         {"a", Normal, dumb},
		"/a.git/info/refs/x":                {"a", Normal, dumb},
		"/a.git/info%2Frefs":                {"a", Normal, dumb},
		"/api/v1/repos/a.git/file":          nil,
		"/api/repos/team%2Fa.git":           nil,
		"/a/info/refs":                      nil,
		"/a.gitx/info/refs":                 nil,
		"/.git/info/refs":                   nil,
		"/+ephemeral.git/info/refs":         nil,
		"/":                                 nil,
		"/healthz":                          nil,
	}
	for path, want := range rows {
		u, err := url.Parse("http://host" + path)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Match(&http.Request{URL: u})
		switch {
		case want == nil && ok:
			t.Errorf("%s: got %+v, want none", path, got)
		case want != nil && (!ok || got != *want):
			t.Errorf("%s: got %+v, %v; want %+v", path, got, ok, *want)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"/a.git/info/refs", "//x%2Fy+ephemeral.git/git-upload-pack", "/%zz.git/HEAD", "/api/a.git/", ".git"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		route, ok := Match(&http.Request{URL: u})
		if ok && (route.Repo == "" || !strings.Contains(u.EscapedPath(), ".git")) {
			t.Fatalf("%q leads to %+v", path, route)
		}
	})
}

func TestCredential(t *testing.T) {
	rows := map[string]string{
		"Basic dDpqd3Q=":  "jwt", // t:jwt
		"basic dDpqd3Q=":  "jwt",
		"BASIC  dDpqd3Q=": "jwt",
		"Basic OmE6Yg==":  "a:b", // :a:b
		"Bearer jwt":      "jwt",
		"bearer jwt":      "jwt",
		"":                "",
		"Basic":           "",
		"Basic %%%":       "",
		"Basic dA==":      "", // t
		"Basic dDo=":      "", // t:
		"Bearer ":         "",
		"Digest dDpqd3Q=": "",
	}
	for header, want := range rows {
		r := httptest.NewRequest(http.MethodGet, "/a.git/info/refs", nil)
		r.Header.Set("Authorization", header)
		if got, ok := credential(r); got.Token != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", header, got.Token, ok, want)
		}
	}
}

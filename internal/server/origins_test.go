package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesOfOtherOrigins(t *testing.T) {
	const app, other = "https://app.example.com", "https://other.example.com"
	api, git := "/api/v1/repos/commit-pack", "/team/app.git/info/refs?service=git-upload-pack"
	servers := map[string]*running{}
	for _, tc := range []struct {
		name, setting, method, path, origin string
		allowed, vary                       string
		status                              int
	}{
		{"nothing configured", "", "OPTIONS", api, app, "", "", 405},
		{"a question", app, "OPTIONS", api, app, app, "Origin", 204},
		{"a question about Git", app, "OPTIONS", git, app, app, "Origin", 204},
		{"an answer", app, "GET", "/api/repos/x", app, app, "Origin", 401},
		{"an answer of Git", app, "GET", git, app, app, "Origin", 401},
		{"one of two", other + "," + app, "GET", "/api/repos/x", app, app, "Origin", 401},
		{"every origin", "*", "OPTIONS", api, app, "*", "", 204},
		{"another origin", app, "OPTIONS", api, other, "", "Origin", 405},
		{"a longer origin", app, "GET", "/api/repos/x", app + ".example.org", "", "Origin", 401},
		{"another scheme", app, "GET", "/api/repos/x", "http://app.example.com", "", "Origin", 401},
		{"no origin", app, "GET", "/api/repos/x", "", "", "Origin", 401},
		{"a page without an origin", app, "GET", "/api/repos/x", "null", "", "Origin", 401},
		{"what the operator reads", "*", "GET", "/metrics", app, "", "Accept", 200},
	} {
		if servers[tc.setting] == nil {
			settings := map[string]string{}
			if tc.setting != "" {
				settings["allow-origin"] = tc.setting
			}
			servers[tc.setting] = start(t, settings)
		}
		r := httptest.NewRequest(tc.method, tc.path, nil)
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		if tc.method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", http.MethodPost)
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		}
		w := httptest.NewRecorder()
		servers[tc.setting].main.Handler.ServeHTTP(w, r)
		h := w.Header()
		if w.Code != tc.status || h.Get("Access-Control-Allow-Origin") != tc.allowed || h.Get("Vary") != tc.vary {
			t.Errorf("%s: %d, %v", tc.name, w.Code, h)
		}
		if h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: the page may use what the browser knows", tc.name)
		}
		question := tc.status == 204
		if sends := h.Get("Access-Control-Allow-Headers"); question != strings.Contains(sends, "Authorization, ") || question != (h.Get("Access-Control-Allow-Methods") != "") {
			t.Errorf("%s: the page may send %q", tc.name, sends)
		}
		if reads := h.Get("Access-Control-Expose-Headers"); (tc.allowed != "" && !question) != strings.Contains(reads, "Retry-After") {
			t.Errorf("%s: the page may read %q", tc.name, reads)
		}
	}
}

package server

import (
	"net/http"
	"slices"
	"strings"
)

// origins are the web origins whose pages may call the server from a browser, each
// as browsers name it; anyOrigin stands for every one. Without any, a browser keeps
// the answers from pages of other origins.
type origins []string

const anyOrigin = "*"

// What a page may send and read, apart from what every page may. Pages are never
// allowed what the browser itself knows, such as cookies and passwords: they bring a
// token.
var (
	pageMethods = strings.Join([]string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut}, ", ")
	pageSends   = strings.Join([]string{
		"Accept", "Authorization", "Code-Storage-Agent", "Content-Type", "Git-Protocol", "Idempotency-Key",
		"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Event-ID", "Range",
	}, ", ")
	pageReads = strings.Join([]string{
		"Accept-Ranges", "Allow", "Content-Disposition", "Content-Length", "Content-Range", "ETag", "Last-Modified", "Retry-After",
		"WWW-Authenticate", "X-Blob-Sha", "X-Cache", "X-Last-Commit-Sha",
	}, ", ")
)

// pageRemembers is for how many seconds a browser need not ask again.
const pageRemembers = "7200"

// handler answers the questions of browsers, whether a page may send a request, and
// says with each answer of next whether the page may read it.
func (o origins) handler(next http.Handler) http.Handler {
	if len(o) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		origin := r.Header.Get("Origin")
		if slices.Contains(o, anyOrigin) {
			origin = anyOrigin
		} else {
			h.Add("Vary", "Origin")
		}
		if !slices.Contains(o, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", pageMethods)
			h.Set("Access-Control-Allow-Headers", pageSends)
			h.Set("Access-Control-Max-Age", pageRemembers)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", pageReads)
		next.ServeHTTP(w, r)
	})
}

package githttp

import (
	"net/http"
	"net/url"
	"strings"
)

// Kind is which remote of a repository a URL names.
type Kind int

// The kinds of remote.
const (
	Normal    Kind = iota // /{repo}.git
	Ephemeral             // /{repo}+ephemeral.git: its refs live in the ephemeral namespace
	Import                // /{repo}+import.git: the normal namespace, write only
)

// String names the kind for logs.
func (k Kind) String() string {
	switch k {
	case Ephemeral:
		return "ephemeral"
	case Import:
		return "import"
	}
	return "normal"
}

// endpoint is what a URL asks of a remote.
type endpoint int

const (
	dumb endpoint = iota // a file of the dumb protocol, or nothing at all
	infoRefs
	uploadPack
	receivePack
)

// Route is where a Git URL leads.
type Route struct {
	Repo     string // decoded, may contain slashes; not checked otherwise
	Kind     Kind
	endpoint endpoint
}

// Match reports whether a request is for Git, and for which remote. It looks at
// the escaped path: the repository ends at the last ".git" that the path's end
// or a slash follows; segments are decoded one by one and empty ones passed
// over. Below /api/ only the smart protocol's own endpoints count.
func Match(r *http.Request) (Route, bool) {
	path := r.URL.EscapedPath()
	name, rest, ok := splitLast(path)
	if !ok {
		return Route{}, false
	}
	var route Route
	switch strings.Trim(collapse(rest), "/") {
	case "info/refs":
		route.endpoint = infoRefs
	case "git-upload-pack":
		route.endpoint = uploadPack
	case "git-receive-pack":
		route.endpoint = receivePack
	}
	name = strings.Trim(collapse(name), "/")
	if route.endpoint == dumb && (name == "api" || strings.HasPrefix(name, "api/")) {
		return Route{}, false
	}
	segments := strings.Split(name, "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return Route{}, false
		}
		segments[i] = plain
	}
	name = strings.Join(segments, "/")
	if plain, ok := strings.CutSuffix(name, "+ephemeral"); ok {
		name, route.Kind = plain, Ephemeral
	} else if plain, ok := strings.CutSuffix(name, "+import"); ok {
		name, route.Kind = plain, Import
	}
	route.Repo = name
	return route, name != ""
}

// splitLast splits a path around its last ".git" component end.
func splitLast(path string) (name, rest string, ok bool) {
	for end := len(path); ; {
		i := strings.LastIndex(path[:end], ".git")
		if i < 0 {
			return "", "", false
		}
		rest = path[i+len(".git"):]
		if rest == "" || rest[0] == '/' {
			return path[:i], rest, true
		}
		end = i
	}
}

// collapse removes empty path segments.
func collapse(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

package object

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxGitmodules is the size in bytes up to which a .gitmodules file is taken.
const MaxGitmodules = 8 << 20

// IsGitmodules reports whether name, or a part of it between backslashes, opens
// the file ".gitmodules" on some file system.
func IsGitmodules(name []byte) bool { return isDotGitmodules(name) }

// CheckGitmodules refuses the content of a .gitmodules file that git fsck refuses:
// names, URLs, paths and commands with which a clone that fetches submodules could
// be made to run a program, or to write or send credentials elsewhere. What does
// not parse is accepted up to there, as Git does, which does not read on. Content
// above MaxGitmodules bytes is refused. The error is a *CheckError about the first
// fault.
func CheckGitmodules(data []byte) error {
	if len(data) > MaxGitmodules {
		return &CheckError{Type: Blob, ID: "gitmodulesLarge", Detail: fmt.Sprintf("a .gitmodules file has more than %d bytes", MaxGitmodules)}
	}
	var id, detail string
	eachSetting(data, func(name, value string, missing bool) {
		if id == "" {
			id, detail = checkSubmodule(untilNUL(name), untilNUL(value), missing)
		}
	})
	if id != "" {
		return &CheckError{Type: Blob, ID: id, Detail: detail}
	}
	return nil
}

// untilNUL returns s as a string of C.
func untilNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

// checkSubmodule names the fault of one setting, or nothing.
func checkSubmodule(setting, value string, missing bool) (id, detail string) {
	rest, ok := strings.CutPrefix(setting, "submodule.")
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return "", "" // of something else, or of no submodule
	}
	name, key := rest[:dot], rest[dot+1:]
	switch {
	case badSubmoduleName(name):
		return "gitmodulesName", fmt.Sprintf("disallowed submodule name %.100q", name)
	case missing:
		return "", ""
	case key == "url" && badSubmoduleURL(value):
		return "gitmodulesUrl", fmt.Sprintf("disallowed submodule url %.100q", value)
	case key == "path" && strings.HasPrefix(value, "-"):
		return "gitmodulesPath", fmt.Sprintf("disallowed submodule path %.100q", value)
	case key == "update" && strings.HasPrefix(value, "!"):
		return "gitmodulesUpdate", fmt.Sprintf("disallowed submodule update setting %.100q", value)
	}
	return "", ""
}

// badSubmoduleName reports whether a name would lead out of .git/modules.
func badSubmoduleName(name string) bool {
	for part := range strings.FieldsFuncSeq(name, isSlash) {
		if part == ".." {
			return true
		}
	}
	return name == ""
}

// isSlash reports whether some system takes r for a separator of directories.
func isSlash(r rune) bool { return r == '/' || r == '\\' }

// badSubmoduleURL reports whether a URL could be taken for an option, or for
// another host than it shows.
func badSubmoduleURL(url string) bool {
	up, rest, relative := cutDots(url)
	switch {
	case strings.HasPrefix(url, "-"):
		return true
	case relative:
		// It may be appended to a URL and decoded with it; with enough "../" it
		// replaces the host of that.
		return strings.ContainsRune(decodeURL(url), '\n') || up > 0 && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "/"))
	}
	for _, scheme := range []string{"http", "https", "ftp", "ftps"} {
		if helper, ok := strings.CutPrefix(url, scheme+"::"); ok {
			return badCredentialURL(helper)
		}
		if strings.HasPrefix(url, scheme+"://") {
			return badCredentialURL(url)
		}
	}
	return false
}

// cutDots counts the "../" that a URL begins with, among "./", and returns what
// follows. relative says that it begins with either.
func cutDots(url string) (up int, rest string, relative bool) {
	for rest = url; ; relative = true {
		switch {
		case len(rest) > 2 && rest[:2] == ".." && isSlash(rune(rest[2])):
			up, rest = up+1, rest[3:]
		case len(rest) > 1 && rest[0] == '.' && isSlash(rune(rest[1])):
			rest = rest[2:]
		default:
			return up, rest, relative
		}
	}
}

// badCredentialURL reports whether credentials for a URL could not be told apart
// from others: it lacks a scheme or a host, or a part of it has a newline.
func badCredentialURL(url string) bool {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme == "" || strings.ContainsRune(scheme, '\n') {
		return true
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	host := rest[:end]
	var parts []string // user name and password
	if at := strings.IndexByte(rest, '@'); 0 <= at && at < end {
		user := rest[:at]
		if colon := strings.IndexByte(user, ':'); colon >= 0 {
			parts = append(parts, user[colon+1:])
			user = user[:colon]
		}
		parts, host = append(parts, user), rest[at+1:end]
	}
	host = decodeURL(host)
	path := strings.TrimLeft(rest[end:], "/")
	for _, part := range append(parts, path) {
		if strings.ContainsRune(decodeURL(part), '\n') {
			return true
		}
	}
	return host == "" || strings.ContainsRune(host, '\n')
}

// decodeURL resolves the escapes of a URL behind its first colon, if that is not
// the first byte, as Git does. An escaped NUL stays as it is.
func decodeURL(url string) string {
	var b bytes.Buffer
	if colon := strings.IndexByte(url, ':'); colon > 0 {
		b.WriteString(url[:colon])
		url = url[colon:]
	}
	for i := 0; i < len(url); i++ {
		if url[i] == '%' && i+2 < len(url) {
			if high, low := unhex(url[i+1]), unhex(url[i+2]); high >= 0 && low >= 0 && high+low > 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(url[i])
	}
	return b.String()
}

// unhex returns the value of a hexadecimal digit, -1 if it is none.
func unhex(c byte) int {
	switch c = lower(c); {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

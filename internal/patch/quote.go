package patch

import (
	"fmt"
	"strings"
)

// letters are the escapes of one letter that git writes names with.
const letters = "\a\b\t\n\v\f\r\"\\"
const escaped = "abtnvfr\"\\"

// quote writes a name as git does: in quotes if always is set or something in it
// must be escaped, as bytes beyond ASCII are.
func quote(name string, always bool) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch at := strings.IndexByte(letters, c); {
		case at >= 0:
			b.WriteByte('\\')
			b.WriteByte(escaped[at])
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	if !always && b.Len() == len(name) {
		return name
	}
	return `"` + b.String() + `"`
}

// escapeGlob makes a pattern that matches a name and nothing else.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// unquote reads the name in quotes that text begins with, and returns what
// follows. It returns false if there is none.
func unquote(text string) (name, rest string, ok bool) {
	if text == "" || text[0] != '"' {
		return "", "", false
	}
	var b []byte
	for i := 1; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return string(b), text[i+1:], true
		case '\\':
			i++
			if i == len(text) {
				return "", "", false
			}
			if at := strings.IndexByte(escaped, text[i]); at >= 0 {
				b = append(b, letters[at])
				continue
			}
			if len(text) < i+3 || text[i] > '3' || !octal(text[i:i+3]) {
				return "", "", false
			}
			b = append(b, (text[i]-'0')<<6|(text[i+1]-'0')<<3|(text[i+2]-'0'))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return "", "", false
}

func octal(digits string) bool { return strings.Trim(digits, "01234567") == "" }

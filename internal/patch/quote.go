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

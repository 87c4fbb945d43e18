package object

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Signature says who made a commit or tag, and when.
type Signature struct {
	Name  string
	Email string
	When  int64  // seconds since 1970, UTC
	Zone  string // offset of the local time, such as "+0200"
}

// Header is one line of a commit's header, or several.
type Header struct {
	Key   string
	Value string // lines are separated by newlines; none at the end
}

// CommitData is the content of a commit.
type CommitData struct {
	Tree      ID
	Parents   []ID
	Author    Signature
	Committer Signature
	Encoding  string   // of the names and the message; "" is UTF-8
	Extra     []Header // other headers in their order, "mergetag" among them
	Signature string   // the "gpgsig" header: an OpenPGP, X.509 or SSH signature
	Message   string

	// Payload is what Signature signs: the object without its signature
	// headers. ParseCommit sets it, sharing memory with the object where it
	// can; EncodeCommit ignores it.
	Payload []byte
}

// ParseCommit reads the content of a commit. It is as lenient about the
// identities as Git: parts that cannot be read are empty, the date 0. Errors
// wrap ErrMalformed.
func ParseCommit(data []byte) (*CommitData, error) {
	c := &CommitData{Payload: data}
	var err error
	var rest []byte
	if c.Tree, c.Parents, rest, err = cutLinks(data, nil); err != nil {
		return nil, err
	}
	var payload []byte // of the headers, when it differs from data
	var author, committer bool
	for len(rest) > 0 && rest[0] != '\n' {
		key, value, after := cutHeader(rest)
		switch {
		case key == "author" && !author:
			author, c.Author = true, parseSignature(value)
		case key == "committer" && !committer:
			committer, c.Committer = true, parseSignature(value)
		case key == "encoding" && c.Encoding == "":
			c.Encoding = unfold(value)
		case key == "gpgsig":
			c.Signature = joinLines(c.Signature, unfold(value))
		default:
			c.Extra = append(c.Extra, Header{key, unfold(value)})
		}
		// Git signs a commit without any header of this kind.
		if signing := strings.HasPrefix(key, "gpgsig"); signing && payload == nil {
			payload = append(make([]byte, 0, len(data)), data[:len(data)-len(rest)]...)
		} else if !signing && payload != nil {
			payload = append(payload, rest[:len(rest)-len(after)]...)
		}
		rest = after
	}
	if !author || !committer {
		return nil, fmt.Errorf("%w: commit without author or committer", ErrMalformed)
	}
	if payload != nil {
		c.Payload = append(payload, rest...)
	}
	c.Message = string(bytes.TrimPrefix(rest, []byte("\n")))
	return c, nil
}

// CommitLinks reads from the content of a commit only what walking history
// needs: the tree, the parents, which it appends to parents, and the committer
// date in Unix seconds (0 when it cannot be read, as for Git). It allocates
// only to grow parents. Errors wrap ErrMalformed.
func CommitLinks(data []byte, parents []ID) (tree ID, parentsOut []ID, committed int64, err error) {
	tree, parents, rest, err := cutLinks(data, parents)
	if err != nil {
		return Zero, parents, 0, err
	}
	for len(rest) > 0 && rest[0] != '\n' {
		line, after, _ := bytes.Cut(rest, newline)
		if ident, ok := bytes.CutPrefix(line, committerKey); ok {
			when, _ := parseDate(ident)
			return tree, parents, when, nil
		}
		rest = after
	}
	return Zero, parents, 0, fmt.Errorf("%w: commit without committer", ErrMalformed)
}

var (
	newline      = []byte("\n")
	committerKey = []byte("committer ")
)

// cutLinks reads the tree line and the parent lines that begin a commit.
func cutLinks(data []byte, parents []ID) (tree ID, parentsOut []ID, rest []byte, err error) {
	tree, rest, ok := cutIDLine(data, "tree ")
	if !ok {
		return Zero, parents, nil, fmt.Errorf("%w: commit does not begin with a tree line", ErrMalformed)
	}
	for hasPrefix(rest, "parent ") {
		var parent ID
		if parent, rest, ok = cutIDLine(rest, "parent "); !ok {
			return Zero, parents, nil, fmt.Errorf("%w: commit has a bad parent line", ErrMalformed)
		}
		parents = append(parents, parent)
	}
	return tree, parents, rest, nil
}

// cutIDLine reads a line made of key and an ID.
func cutIDLine(data []byte, key string) (id ID, rest []byte, ok bool) {
	end := len(key) + 2*Size
	if len(data) <= end || data[end] != '\n' || !hasPrefix(data, key) {
		return Zero, nil, false
	}
	if _, err := hex.Decode(id[:], data[len(key):end]); err != nil {
		return Zero, nil, false
	}
	return id, data[end+1:], true
}

// hasPrefix reports whether data begins with prefix.
func hasPrefix(data []byte, prefix string) bool {
	return len(data) >= len(prefix) && string(data[:len(prefix)]) == prefix
}

// cutHeader reads a header with its continuation lines, which begin with a
// space. The value keeps those spaces; unfold removes them.
func cutHeader(data []byte) (key string, value, rest []byte) {
	line, rest, _ := bytes.Cut(data, newline)
	name, _, _ := bytes.Cut(line, []byte(" "))
	end := len(line)
	for len(rest) > 0 && rest[0] == ' ' {
		line, rest, _ = bytes.Cut(rest, newline)
		end += 1 + len(line)
	}
	return string(name), data[min(len(name)+1, end):end], rest
}

// unfold returns a header's value without the spaces that continue it.
func unfold(value []byte) string { return strings.ReplaceAll(string(value), "\n ", "\n") }

// joinLines appends b to a on a new line.
func joinLines(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}

// parseSignature reads "Name <email> seconds zone" as leniently as Git does.
func parseSignature(line []byte) Signature {
	s := Signature{Zone: "+0000"}
	when, zone := parseDate(line)
	s.When = when
	if isZone(zone) {
		s.Zone = string(zone)
	}
	name, rest, _ := bytes.Cut(line, []byte("<"))
	email, _, _ := bytes.Cut(rest, []byte(">"))
	s.Name, s.Email = string(bytes.TrimSpace(name)), string(email)
	return s
}

// parseDate reads the seconds behind the last ">" of an identity, 0 when they
// cannot be read, and returns what follows them.
func parseDate(line []byte) (when int64, zone []byte) {
	rest := bytes.TrimLeft(line[bytes.LastIndexByte(line, '>')+1:], " ")
	for len(rest) > 0 && isDigit(rest[0]) {
		d := int64(rest[0] - '0')
		if when > (math.MaxInt64-d)/10 {
			return 0, nil
		}
		when, rest = when*10+d, rest[1:]
	}
	return when, bytes.TrimSpace(rest)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isZone reports whether text is a sign and four digits.
func isZone(text []byte) bool {
	return len(text) == 5 && (text[0] == '+' || text[0] == '-') &&
		isDigit(text[1]) && isDigit(text[2]) && isDigit(text[3]) && isDigit(text[4])
}

// EncodeCommit returns the content of a commit, with the headers in the order
// that Git writes them. Fields that cannot be written faithfully, and content
// that Check refuses, are an error.
func EncodeCommit(c *CommitData) ([]byte, error) {
	b := fmt.Appendf(nil, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		b = fmt.Appendf(b, "parent %s\n", p)
	}
	b, err := appendSignature(b, "author", c.Author)
	if err != nil {
		return nil, err
	}
	if b, err = appendSignature(b, "committer", c.Committer); err != nil {
		return nil, err
	}
	if c.Encoding != "" {
		b = appendFolded(b, Header{"encoding", c.Encoding})
	}
	for _, h := range c.Extra {
		switch h.Key {
		case "", "tree", "parent", "author", "committer", "encoding", "gpgsig":
			return nil, fmt.Errorf("commit header %q is not an extra header", h.Key)
		}
		if strings.ContainsAny(h.Key, " \n\x00") {
			return nil, fmt.Errorf("commit header name %q contains a space, newline or NUL", h.Key)
		}
		b = appendFolded(b, h)
	}
	if c.Signature != "" {
		b = appendFolded(b, Header{"gpgsig", c.Signature})
	}
	b = append(append(b, '\n'), c.Message...)
	if err := Check(Commit, b); err != nil {
		return nil, err
	}
	return b, nil
}

// appendFolded appends a header, its further lines led by a space.
func appendFolded(b []byte, h Header) []byte {
	b = append(append(b, h.Key...), ' ')
	return append(append(b, strings.ReplaceAll(h.Value, "\n", "\n ")...), '\n')
}

// appendSignature appends an identity line, refusing what it cannot hold.
func appendSignature(b []byte, key string, s Signature) ([]byte, error) {
	const forbidden = "<>\n\x00"
	switch {
	case strings.ContainsAny(s.Name, forbidden):
		return nil, fmt.Errorf("%s name %q contains <, >, newline or NUL", key, s.Name)
	case strings.ContainsAny(s.Email, forbidden):
		return nil, fmt.Errorf("%s email %q contains <, >, newline or NUL", key, s.Email)
	case s.When < 0:
		return nil, fmt.Errorf("%s date %d is before 1970, which Git cannot store", key, s.When)
	case !isZone([]byte(s.Zone)):
		return nil, fmt.Errorf("%s time zone %q is not like %q", key, s.Zone, "+0200")
	}
	b = append(append(b, key...), ' ')
	b = append(append(b, s.Name...), " <"...)
	b = append(append(b, s.Email...), "> "...)
	b = strconv.AppendInt(b, s.When, 10)
	b = append(append(b, ' '), s.Zone...)
	return append(b, '\n'), nil
}

package workspace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
)

// Redactor zeroes secrets in what is stored beside files.
type Redactor struct{ secrets *searcher }

// NewRedactor prepares the search for secrets. allowShort takes values below 6
// bytes.
func NewRedactor(secrets []Secret, allowShort bool) (*Redactor, error) {
	s, err := newSearcher(secrets, allowShort)
	return &Redactor{s}, err
}

// Finds reports whether text holds a secret.
func (r *Redactor) Finds(text string) bool { return r.secrets.in(text) }

// String returns text with a zero for each byte of a secret in it.
func (r *Redactor) String(text string) string {
	if !r.secrets.in(text) {
		return text
	}
	b := []byte(text)
	type span struct{ at, n int }
	var spans []span
	r.secrets.find(b, func(at, n int) { spans = append(spans, span{at, len(r.secrets.secrets[n].Value)}) })
	for _, s := range spans {
		clear(b[s.at : s.at+s.n])
	}
	return string(b)
}

// JSON returns a document with secrets zeroed in its strings, names of fields
// included, after their escapes are resolved. A number that holds one becomes 0.
// What holds none is kept byte for byte.
func (r *Redactor) JSON(doc []byte) ([]byte, error) {
	if !json.Valid(doc) {
		return nil, fmt.Errorf("%w: it is not JSON", ErrInvalid)
	}
	if r.secrets == nil {
		return doc, nil
	}
	var out bytes.Buffer
	for i := 0; i < len(doc); {
		end := i + 1
		switch c := doc[i]; {
		case c == '"':
			for doc[end] != '"' {
				if doc[end] == '\\' {
					end++
				}
				end++
			}
			end++
			if err := r.literal(&out, doc[i:end]); err != nil {
				return nil, err
			}
		case c == '-' || c >= '0' && c <= '9':
			for end < len(doc) && bytes.IndexByte([]byte("+-.0123456789eE"), doc[end]) >= 0 {
				end++
			}
			if r.secrets.in(string(doc[i:end])) {
				out.WriteByte('0')
			} else {
				out.Write(doc[i:end])
			}
		default:
			out.WriteByte(c)
		}
		i = end
	}
	return out.Bytes(), nil
}

// literal writes a string, which is kept as it is written unless it holds a secret.
func (r *Redactor) literal(out *bytes.Buffer, quoted []byte) error {
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return err
	}
	clean := r.String(text)
	if clean == text && !r.secrets.in(string(quoted)) {
		out.Write(quoted)
		return nil
	}
	b, err := json.Marshal(clean)
	if !r.secrets.in(string(b)) {
		out.Write(b)
		return err
	}
	// Its escapes happen to spell a secret: write every character as one.
	out.WriteByte('"')
	for _, u := range utf16.Encode([]rune(clean)) {
		fmt.Fprintf(out, "\\u%04x", u)
	}
	out.WriteByte('"')
	return nil
}

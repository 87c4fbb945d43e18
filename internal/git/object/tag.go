package object

import (
	"bytes"
	"fmt"
	"strings"
)

// TagData is the content of an annotated tag.
type TagData struct {
	Object    ID
	Type      Type // of Object
	Name      string
	Tagger    *Signature // nil in tags of very old programs
	Message   string     // without Signature
	Signature string     // the signature that ends the message, or ""

	// Payload is what Signature signs: the object up to it. ParseTag sets
	// it, sharing memory with the object; EncodeTag ignores it.
	Payload []byte
}

// ParseTag reads the content of a tag, as leniently as ParseCommit. Errors
// wrap ErrMalformed.
func ParseTag(data []byte) (*TagData, error) {
	t := &TagData{Payload: data}
	var rest []byte
	var err error
	if t.Object, t.Type, rest, err = cutTarget(data); err != nil {
		return nil, err
	}
	line, rest, ok := bytes.Cut(rest, newline)
	name, isTag := bytes.CutPrefix(line, []byte("tag "))
	if !ok || !isTag {
		return nil, fmt.Errorf("%w: tag without a name", ErrMalformed)
	}
	t.Name = string(name)
	for len(rest) > 0 && rest[0] != '\n' {
		key, value, after := cutHeader(rest)
		if key == "tagger" && t.Tagger == nil {
			tagger := parseSignature(value)
			t.Tagger = &tagger
		}
		rest = after
	}
	message := bytes.TrimPrefix(rest, newline)
	start := signatureStart(message)
	t.Message, t.Signature = string(message[:start]), string(message[start:])
	t.Payload = data[:len(data)-len(t.Signature)]
	return t, nil
}

// TagTarget reads from the content of a tag only what it names. Errors wrap
// ErrMalformed.
func TagTarget(data []byte) (ID, Type, error) {
	id, typ, _, err := cutTarget(data)
	return id, typ, err
}

// cutTarget reads the two lines that begin a tag.
func cutTarget(data []byte) (id ID, typ Type, rest []byte, err error) {
	id, rest, ok := cutIDLine(data, "object ")
	if !ok {
		return Zero, Invalid, nil, fmt.Errorf("%w: tag does not begin with an object line", ErrMalformed)
	}
	line, rest, ok := bytes.Cut(rest, newline)
	if !ok || !hasPrefix(line, "type ") {
		return Zero, Invalid, nil, fmt.Errorf("%w: tag without a type line", ErrMalformed)
	}
	if typ = parseType(line[len("type "):]); typ == Invalid {
		return Zero, Invalid, nil, fmt.Errorf("%w: tag of the unknown type %.20q", ErrMalformed, line[len("type "):])
	}
	return id, typ, rest, nil
}

// parseType returns the type that Git calls name, or Invalid.
func parseType(name []byte) Type {
	switch string(name) {
	case "commit":
		return Commit
	case "tree":
		return Tree
	case "blob":
		return Blob
	case "tag":
		return Tag
	}
	return Invalid
}

// signatureStart returns where the signature that ends a tag's message begins:
// at the last line that opens one. Without a signature it is the length.
func signatureStart(message []byte) int {
	start := len(message)
	for pos := 0; pos < len(message); {
		line, _, _ := bytes.Cut(message[pos:], newline)
		for _, opening := range [...]string{
			"-----BEGIN PGP SIGNATURE-----",
			"-----BEGIN PGP MESSAGE-----",
			"-----BEGIN SIGNED MESSAGE-----",
			"-----BEGIN SSH SIGNATURE-----",
		} {
			if hasPrefix(line, opening) {
				start = pos
			}
		}
		pos += len(line) + 1
	}
	return start
}

// EncodeTag returns the content of a tag. Fields that cannot be written
// faithfully, and content that Check refuses, are an error.
func EncodeTag(t *TagData) ([]byte, error) {
	if t.Name == "" || strings.ContainsAny(t.Name, "\n\x00") {
		return nil, fmt.Errorf("tag name %q is empty or contains a newline or NUL", t.Name)
	}
	b := fmt.Appendf(nil, "object %s\ntype %s\ntag %s\n", t.Object, t.Type, t.Name)
	if t.Tagger != nil {
		var err error
		if b, err = appendSignature(b, "tagger", *t.Tagger); err != nil {
			return nil, err
		}
	}
	b = append(append(b, '\n'), t.Message...)
	b = append(b, t.Signature...)
	if err := Check(Tag, b); err != nil {
		return nil, err
	}
	return b, nil
}

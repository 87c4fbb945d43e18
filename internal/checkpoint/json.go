package checkpoint

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonString returns the string that a JSON text is; false where it is something
// else. A lone surrogate becomes the three bytes that it would have in UTF-8,
// which no valid UTF-8 has: strings that differ stay different, and
// utf8.ValidString tells those that are not well-formed Unicode.
func jsonString(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	out := make([]byte, 0, len(body))
	for len(body) > 0 {
		if body[0] != '\\' {
			out, body = append(out, body[0]), body[1:]
			continue
		}
		switch body[1] {
		case 'u':
			var n int
			out, n = appendEscaped(out, body)
			body = body[n:]
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, body[1])
		}
		body = body[2:]
	}
	return string(out), true
}

// appendEscaped appends what an escape that begins b stands for, or a pair of
// them, and returns how long that is.
func appendEscaped(out, b []byte) ([]byte, int) {
	r := unit(b)
	if utf16.IsSurrogate(r) {
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, unit(b[6:])); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), 12
			}
		}
		return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f), 6
	}
	return utf8.AppendRune(out, r), 6
}

// unit returns the code unit of an escape.
func unit(b []byte) rune {
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError // the text was found to be JSON
	}
	return rune(n)
}

// jsonNumber returns the finite number that a JSON text is; false where it is
// something else.
func jsonNumber(raw json.RawMessage) (float64, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}

// isNull reports whether a member is absent or null.
func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// jsonID reads an id. ok is false where it is no string, empty, too long or not
// well-formed.
func jsonID(raw json.RawMessage) (id string, ok bool) {
	id, ok = jsonString(raw)
	return id, ok && CheckID(id) == nil
}

// ParseHead reads the id of an expected head, or null.
func ParseHead(raw json.RawMessage) (Head, error) {
	if isNull(raw) {
		return Head{}, nil
	}
	id, ok := jsonID(raw)
	if !ok {
		return Head{}, refuse(InvalidID, "the expected head is null or the id of a checkpoint")
	}
	return Head{ID: id}, nil
}

// members splits a JSON object.
func members(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	return m, err == nil && m != nil
}

// each calls fn with each element of a JSON list, one after the other: a list of
// millions is refused by its first element. It is false where raw is no list.
func each(raw json.RawMessage, fn func(i int, element json.RawMessage) error) (isList bool, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return false, nil
	}
	for i := 0; d.More(); i++ {
		var element json.RawMessage
		if d.Decode(&element) != nil {
			return false, nil
		}
		if err := fn(i, element); err != nil {
			return true, err
		}
	}
	return true, nil
}

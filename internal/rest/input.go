package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/service"
)

// Bounds of JSON bodies in bytes: of one, unless its route says otherwise, and of
// all large ones that are in memory.
const (
	maxJSON    = 1 << 20
	maxBodies  = 256 << 20
	largeJSON  = 64 << 20
	digestJSON = 8 << 20
)

func invalid(format string, args ...any) *service.Error {
	return service.Refuse(service.Invalid, format, args...)
}

// decode reads the query into the fields of into that have the tag "query",
// then the JSON body, if there is one, into those that have the tag "json", then
// the path into those with the tag "path".
func (c *call) decode(into any) error {
	if err := c.decodeInput(into); err != nil {
		return err
	}
	c.decodePath(into)
	return nil
}

// decodeParameters is decode without the body.
func (c *call) decodeParameters(into any) error {
	c.decodePath(into)
	return decodeQuery(c.r.URL.RawQuery, into)
}

func (c *call) decodePath(into any) {
	if c.place.item == "" {
		return
	}
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Tag.Get("path") {
		case "":
		case restTag:
			v.Field(i).SetString(c.place.rest)
		default:
			v.Field(i).SetString(c.place.item)
		}
	}
}

func (c *call) decodeInput(into any) error {
	if err := decodeQuery(c.r.URL.RawQuery, into); err != nil {
		return err
	}
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		return nil
	}
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return invalid("content encoding %.40q is not accepted here: send the body as it is", e)
	}
	data, err := c.readJSON()
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if c.route.halves && utf8.Valid(data) {
		return unmarshal(data, into, c.route.strict)
	}
	return decodeJSON(data, into, c.route.strict)
}

// readJSON reads the body, up to what the route takes.
func (c *call) readJSON() ([]byte, error) {
	most := int64(max(maxJSON, c.route.maxBody))
	data, err := io.ReadAll(io.LimitReader(c.body, maxJSON+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > maxJSON && most > maxJSON {
		// Few large bodies are in memory at a time.
		if err := c.large.Acquire(c.ctx, most); err != nil {
			return nil, err
		}
		c.held = most
		rest, err := io.ReadAll(io.LimitReader(c.body, most-int64(len(data))+1))
		if err != nil {
			return nil, err
		}
		data = append(data, rest...)
	}
	if int64(len(data)) > most {
		return nil, service.Refuse(service.TooLarge, "the request body is longer than %d bytes", most)
	}
	return data, nil
}

// decodeJSON reads one JSON value of nothing but Unicode. Members that are not
// known are passed over, or refused when strict is set.
func decodeJSON(data []byte, into any, strict bool) error {
	if !unicodeOnly(data) {
		return invalid("the request body is not valid UTF-8, or escapes half of a character")
	}
	return unmarshal(data, into, strict)
}

func unmarshal(data []byte, into any, strict bool) error {
	if !strict && json.Unmarshal(data, into) == nil {
		return nil // else the decoder says what is wrong
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		return badJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return invalid("the request body holds more than one JSON value")
	}
	return nil
}

// unicodeOnly reports whether a JSON text holds nothing but Unicode: the decoder
// puts another character in the place of what is none, so that names would change.
func unicodeOnly(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 == len(data) {
			return true
		}
		data = data[i:]
		r, ok := escaped(data)
		switch {
		case !ok:
			data = data[2:]
			continue
		case !utf16.IsSurrogate(r):
			data = data[6:]
			continue
		}
		if second, ok := escaped(data[6:]); !ok || utf16.DecodeRune(r, second) == utf8.RuneError {
			return false
		}
		data = data[12:]
	}
}

// escaped reads the escape \uXXXX that a text begins with.
func escaped(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// elements decodes an array, or null for none, one element at a time.
func elements[T any](array json.RawMessage) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if all, ok := fewElements[T](array); ok {
			for _, element := range all {
				if !yield(element, nil) {
					return
				}
			}
			return
		}
		dec := json.NewDecoder(bytes.NewReader(array))
		open, err := dec.Token()
		if err == io.EOF || err == nil && open == nil {
			return
		}
		var none T
		if err == nil && open != json.Delim('[') {
			err = invalid("the request body has something else where a list is expected")
		}
		if err != nil {
			yield(none, badJSON(err))
			return
		}
		for dec.More() {
			var element T
			if err := dec.Decode(&element); err != nil {
				yield(none, badJSON(err))
				return
			}
			if !yield(element, nil) {
				return
			}
		}
	}
}

// fewElements decodes a short array, or null, at once; false says that it is long, or
// that something is wrong with it.
func fewElements[T any](array json.RawMessage) (all []T, ok bool) {
	const short = 8 << 10 // bytes
	ok = len(array) <= short && json.Unmarshal(array, &all) == nil
	return all, ok
}

// badJSON tells why a body cannot be decoded, naming fields and types and never
// content.
func badJSON(err error) error {
	if told, ok := errors.AsType[*service.Error](err); ok {
		return told
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		message := "the request body has an unexpected " + wrong.Value
		if wrong.Field != "" {
			message += " in " + strconv.Quote(wrong.Field)
		}
		return &service.Error{Code: service.Invalid, Message: message, Err: err}
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		message := "the request body is not valid JSON"
		if ok {
			message += " at byte " + strconv.FormatInt(syntax.Offset, 10)
		}
		return &service.Error{Code: service.Invalid, Message: message, Err: err}
	}
	return &service.Error{Code: service.Invalid, Message: "the request body cannot be read: " + err.Error(), Err: err}
}

// decodeQuery reads a query string. Parameters that are not known are passed
// over; where one comes several times and is no list, the first counts. An int
// is at least 1; a number too large for it is the largest. An empty value stands for an absent one, except of a bool.
func decodeQuery(raw string, into any) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return &service.Error{Code: service.Invalid, Message: "the query string is malformed", Err: err}
	}
	v := reflect.ValueOf(into).Elem()
	t := v.Type()
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("query")
		if name == "" || !values.Has(name) {
			continue
		}
		if err := setParameter(v.Field(i), name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

func setParameter(field reflect.Value, name string, values []string) error {
	value := values[0]
	switch field.Interface().(type) {
	case bool, *bool:
		if value != "true" && value != "false" {
			return invalid("query parameter %q is %.40q: use true or false", name, value)
		}
		set(field, value == "true")
	case int:
		if value == "" {
			return nil
		}
		n, err := strconv.Atoi(value)
		if n > 0 && errors.Is(err, strconv.ErrRange) {
			err = nil // more than any limit
		}
		if err != nil || n < 1 {
			return invalid("query parameter %q is %.40q: use a number of at least 1", name, value)
		}
		set(field, n)
	case *int64:
		if value == "" {
			return nil
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return invalid("query parameter %q is %.40q: use a number", name, value)
		}
		set(field, n)
	case string, *string:
		if value != "" {
			set(field, value)
		}
	case []string:
		set(field, values)
	}
	return nil
}

// set stores a value in a field, or a pointer to it in a field of that kind.
func set[T any](field reflect.Value, value T) {
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.ValueOf(&value))
		return
	}
	field.Set(reflect.ValueOf(value))
}

// first returns the first string that is not empty: names of one thing, the
// standard one first.
func first(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// firstFlag returns the first flag that was sent, false when none was.
func firstFlag(flags ...*bool) bool {
	for _, f := range flags {
		if f != nil {
			return *f
		}
	}
	return false
}

// pageSize returns the limit that was asked for within the bounds of a route.
func pageSize(asked, byDefault, most int) int {
	if asked == 0 {
		return byDefault
	}
	return min(asked, most)
}

package workspace

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRedactor(t *testing.T) {
	r, err := NewRedactor([]Secret{{"A", "abcdef"}, {"B", "defghi"}, {"C", "123456"}, {"D", `q"uo\te`}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                    "",
		"nothing":             "nothing",
		"abcdef":              "\x00\x00\x00\x00\x00\x00",
		"-abcdefghi-":         "-\x00\x00\x00\x00\x00\x00\x00\x00\x00-",
		"abcdeabcdef":         "abcde\x00\x00\x00\x00\x00\x00",
		"it is q\"uo\\te, so": "it is \x00\x00\x00\x00\x00\x00\x00, so",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	zeros := strings.Repeat(`\u0000`, 6)
	for doc, want := range map[string]string{
		`{"a": [1, -2.5e3, null], "\ud800": "\ud800"}`: `{"a": [1, -2.5e3, null], "\ud800": "\ud800"}`,
		`{"abcdef": "x abcdef"}`:                       `{"` + zeros + `": "x ` + zeros + `"}`,
		`["\u0061bcdef", 123456, 91234567.5]`:          `["` + zeros + `", 0, 0]`,
		`"q\"uo\\te"`:                                  `"` + strings.Repeat(`\u0000`, 7) + `"`,
	} {
		if got, err := r.JSON([]byte(doc)); err != nil || string(got) != want {
			t.Errorf("%s became %s (%v), want %s", doc, got, err, want)
		}
	}
	if _, err := r.JSON([]byte(`{"a":`)); !errors.Is(err, ErrInvalid) {
		t.Errorf("what is no JSON: %v", err)
	}
	if _, err := NewRedactor([]Secret{{"A", "short"}}, false); !errors.Is(err, ErrInvalid) {
		t.Errorf("a short secret: %v", err)
	}
}

func FuzzRedactorJSON(f *testing.F) {
	for _, doc := range []string{`{"abcdef":"x abcdef","n":123456}`, `["\u0061bcdef","\\u0061bcdef"]`, `"\ud800\udc00abcdef"`, `-0.1e+5`, `{`} {
		f.Add([]byte(doc))
	}
	secrets := []Secret{{"A", "abcdef"}, {"B", "123456"}, {"C", `\u0061`}}
	r, err := NewRedactor(secrets, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := r.JSON(doc)
		if err != nil {
			if json.Valid(doc) {
				t.Fatalf("a valid document: %v", err)
			}
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q, which is no JSON", doc, got)
		}
		var v any
		if json.Unmarshal(got, &v) == nil {
			lookFor(t, v, secrets)
		}
	})
}

// lookFor fails if a string of v holds a secret.
func lookFor(t *testing.T, v any, secrets []Secret) {
	switch v := v.(type) {
	case string:
		for _, s := range secrets {
			if strings.Contains(v, s.Value) {
				t.Fatalf("%q holds a secret", v)
			}
		}
	case []any:
		for _, e := range v {
			lookFor(t, e, secrets)
		}
	case map[string]any:
		for k, e := range v {
			lookFor(t, k, secrets)
			lookFor(t, e, secrets)
		}
	}
}

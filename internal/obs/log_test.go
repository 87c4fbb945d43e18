package obs

import "testing"

// FuzzPlain looks for a secret that is taken for plain text.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		"GET", "git/2.39.2 (Debian)", "an error: no such file", token,
		"Authorization: bAsic dDpleUphYmNkZWZnaGlq", "ba\u017fic dDpleUphYmNkZWZnaGlq",
		"https://user:pw@host/", "-----BEGIN EC PRIVATE KEY-----\nabc",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if plain(s) && secrets.MatchString(s) {
			t.Errorf("%q is taken for plain", s)
		}
	})
}

package secret

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func ring(t *testing.T, texts ...[]byte) *Keyring {
	t.Helper()
	r, err := Parse(bytes.Join(texts, nil))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealAndOpen(t *testing.T) {
	r := ring(t, Generate())
	for _, plain := range []string{"", "hunter2", strings.Repeat("x", MaxPlain)} {
		a, err := r.Seal("credential/1", []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Seal("credential/1", []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(a, b) {
			t.Error("two seals are equal: the nonce repeats")
		}
		if plain != "" && bytes.Contains(a, []byte(plain)) {
			t.Error("the plain text shows")
		}
		if got, err := r.Open("credential/1", a); err != nil || string(got) != plain {
			t.Errorf("open: %d bytes, %v", len(got), err)
		}
		if _, err := r.Open("credential/2", a); !errors.Is(err, ErrDamaged) {
			t.Errorf("another row: %v", err)
		}
	}
	if _, err := r.Seal("x", make([]byte, MaxPlain+1)); err == nil {
		t.Error("too much is sealed")
	}
}

func TestEveryChangedByteIsRefused(t *testing.T) {
	r := ring(t, Generate())
	sealed, err := r.Seal("row", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := r.Open("row", changed); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownKey) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := r.Open("row", sealed[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestRotation(t *testing.T) {
	older, newer := Generate(), Generate()
	before := ring(t, older)
	sealed, err := before.Seal("row", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	both := ring(t, []byte("# new\n"), newer, []byte("\n# old\n"), older)
	if got, err := both.Open("row", sealed); err != nil || string(got) != "secret" {
		t.Errorf("by the older key: %q, %v", got, err)
	}
	if both.Current(sealed) || !before.Current(sealed) {
		t.Error("which key sealed it is not known")
	}
	again, err := both.Seal("row", []byte("secret"))
	if err != nil || !both.Current(again) {
		t.Fatalf("not sealed with the first key: %v", err)
	}
	after := ring(t, newer)
	if got, err := after.Open("row", again); err != nil || string(got) != "secret" {
		t.Errorf("by the newer key alone: %q, %v", got, err)
	}
	if _, err := after.Open("row", sealed); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the older key: %v", err)
	}
}

func TestNoKeyring(t *testing.T) {
	var none *Keyring
	if _, err := none.Seal("row", nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("seal: %v", err)
	}
	if _, err := none.Open("row", nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("open: %v", err)
	}
	if none.Current([]byte{version}) {
		t.Error("nothing is current")
	}
}

func TestKeyFilesThatAreRefused(t *testing.T) {
	key := string(Generate())
	for name, text := range map[string]string{
		"empty":       "",
		"comments":    "# a\n\n",
		"short":       "c2hvcnQ=\n",
		"not base64":  key + "passphrase of mine\n",
		"twice":       key + key,
		"hexadecimal": strings.Repeat("0f", 32),
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "passphrase") || strings.Contains(err.Error(), strings.TrimSpace(key)) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

// FuzzParse reads any text as a key file: what is accepted seals and opens.
func FuzzParse(f *testing.F) {
	f.Add(Generate())
	f.Add([]byte("# c\n\n" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Add([]byte("\x00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		sealed, err := r.Seal("row", []byte("plain"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Open("row", sealed); err != nil || string(got) != "plain" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// FuzzOpen takes any bytes for a sealed value.
func FuzzOpen(f *testing.F) {
	r, err := Parse([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := r.Seal("row", []byte("plain"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:prefix])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		plain, err := r.Open("row", sealed)
		if err == nil && string(plain) != "plain" {
			t.Errorf("forged: %q", plain)
		}
	})
}

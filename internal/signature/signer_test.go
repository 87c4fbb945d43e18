package signature

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
)

func parseSigner(t *testing.T, text string) *Signer {
	t.Helper()
	s, err := ParseSigner([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSignSSH compares what a Signer makes with what ssh-keygen does.
func TestSignSSH(t *testing.T) {
	s := testkit.NewSigners(t)
	now := time.Now()
	for _, alg := range [][]string{{"ed25519"}, {"ecdsa", "-b", "256"}, {"ecdsa", "-b", "521"}, {"rsa", "-b", "2048"}} {
		path, public := s.NewSSH("key"+strings.Join(alg, ""), alg[0], alg[1:]...)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		signer := parseSigner(t, string(text))
		if want := parse(t, public); signer.Public.Fingerprint != want.Fingerprint || signer.Public.Text != want.Text {
			t.Errorf("%v: public half %q, want %q", alg, signer.Public.Text, want.Text)
		}
		sig, err := signer.Sign(payload, now)
		if err != nil {
			t.Fatal(err)
		}
		if !s.GoodSSH(payload, sig, "someone "+public, now.Format("20060102150405")) {
			t.Errorf("%v: ssh-keygen refuses\n%s", alg, sig)
		}
		if got, err := ringOf(signer.Public).Verify(payload, sig, now, now); err != nil || got != signer.Public.Fingerprint {
			t.Errorf("%v: %q, %v", alg, got, err)
		}
		theirs := s.SignSSH(payload, path, "git")
		if alg[0] != "ecdsa" && sig+"\n" != theirs { // ecdsa draws a random number
			t.Errorf("%v: made\n%s\nand ssh-keygen\n%s", alg, sig, theirs)
		}
		if again := parseSigner(t, string(signer.Private())); again.Public.Text != signer.Public.Text {
			t.Errorf("%v: the private half is that of %s", alg, again.Public.Text)
		}
	}
}

func TestGenerateSigner(t *testing.T) {
	s := testkit.NewSigners(t)
	one, err := GenerateSigner("the server")
	if err != nil {
		t.Fatal(err)
	}
	two, err := GenerateSigner("the server")
	if err != nil || one.Public.Fingerprint == two.Public.Fingerprint {
		t.Fatalf("made one key twice, %v", err)
	}
	now := time.Now()
	sig, err := parseSigner(t, string(one.Private())).Sign(payload, now)
	if err != nil || !s.GoodSSH(payload, sig, "someone "+one.Public.Text, now.Format("20060102150405")) {
		t.Errorf("ssh-keygen refuses what a new key signed: %v", err)
	}
	if _, err := ringOf(two.Public).Verify(payload, sig, now, now); err == nil {
		t.Error("verified with another key")
	}
}

func TestSignOpenPGP(t *testing.T) {
	s := testkit.NewSigners(t)
	subkeys := []string{"ed25519", "rsa2048", "ed25519"}
	for i, alg := range []string{"ed25519", "rsa2048", "nistp256"} {
		user := "Server " + alg + " <" + alg + "@example.com>"
		fingerprint := s.NewGPG(user, alg, "never")
		s.GPG(nil, "--quick-add-key", fingerprint, subkeys[i], "sign", "never")
		signer := parseSigner(t, s.GPG(nil, "--armor", "--export-secret-keys", fingerprint))
		if k := signer.Public; k.Kind != OpenPGP || k.Fingerprint != fingerprint || k.Owner != user || strings.Contains(k.Text, "PRIVATE") {
			t.Errorf("public half %+v", k)
		}
		now := time.Now()
		sig, err := signer.Sign(payload, now)
		if err != nil || !s.GoodGPG(payload, sig) {
			t.Errorf("%s: gpg refuses %v\n%s", alg, err, sig)
		}
		if got, err := ringOf(parse(t, s.PublicGPG(fingerprint))).Verify(payload, sig, now, now); err != nil || got != fingerprint {
			t.Errorf("%s: %q, %v", alg, got, err)
		}
		if again := parseSigner(t, string(signer.Private())); again.Public.Fingerprint != fingerprint {
			t.Errorf("%s: the private half is that of %s", alg, again.Public.Fingerprint)
		}
	}
	// A key that has expired signs no more.
	short := s.NewGPG("Short <short@example.com>", "ed25519", "1y")
	signer := parseSigner(t, s.GPG(nil, "--armor", "--export-secret-keys", short))
	if _, err := signer.Sign(payload, time.Now().AddDate(2, 0, 0)); err == nil {
		t.Error("a key signed after its end")
	}
}

func TestSignersRefused(t *testing.T) {
	s := testkit.NewSigners(t)
	path, public := s.NewSSH("one", "ed25519")
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	locked, _ := s.NewSSH("locked", "ed25519")
	weak, _ := s.NewSSH("weak", "rsa", "-b", "1024")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	s.Relock(locked, "secret word")
	const old = "20200101T000000"
	expired := s.NewGPG("Old <old@example.com>", "ed25519", "1y", "--faked-system-time", old)
	a, b := s.NewGPG("A <a@example.com>", "ed25519", "never"), s.NewGPG("B <b@example.com>", "ed25519", "never")
	secret := func(keys ...string) string {
		return s.GPG(nil, append([]string{"--armor", "--export-secret-keys"}, keys...)...)
	}
	for name, text := range map[string]string{
		"nothing":               "",
		"words":                 "not a key",
		"an SSH public key":     public,
		"two SSH keys":          string(private) + string(private),
		"a cut SSH key":         string(private[:len(private)/2]),
		"a locked SSH key":      read(locked),
		"a weak SSH key":        read(weak),
		"an OpenPGP public key": s.PublicGPG(a),
		"renamed public":        strings.ReplaceAll(s.PublicGPG(a), "PUBLIC", "PRIVATE"),
		"two OpenPGP keys":      secret(a, b),
		"two blocks":            secret(a) + secret(b),
		"an expired key":        secret(expired),
		"too large":             strings.Repeat("x", maxKey+1),
	} {
		if signer, err := ParseSigner([]byte(text)); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %+v, %v", name, signer, err)
		} else if len(text) > 100 && strings.Contains(err.Error(), text[90:100]) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
}

func FuzzParseSigner(f *testing.F) {
	s := testkit.NewSigners(f)
	path, _ := s.NewSSH("one", "ed25519")
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(s.GPG(nil, "--armor", "--export-secret-keys", s.NewGPG("A <a@example.com>", "ed25519", "never")))
	f.Fuzz(func(t *testing.T, text string) {
		signer, err := ParseSigner([]byte(text))
		if err != nil {
			if !errors.Is(err, ErrKey) {
				t.Errorf("%v is not about a key", err)
			}
			return
		}
		if again, err := ParseSigner(signer.Private()); err != nil || again.Public.Fingerprint != signer.Public.Fingerprint {
			t.Errorf("the private half of %s is not that key: %v", signer.Public.Fingerprint, err)
		}
		now := time.Now()
		sig, err := signer.Sign(payload, now)
		if err != nil {
			return // it may have expired by now
		}
		if _, err := ringOf(signer.Public).Verify(payload, sig, now, now); err != nil || bytes.ContainsAny([]byte(sig), "\r\x00") {
			t.Errorf("signed %q: %v", sig, err)
		}
	})
}

package signature

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/cairnstate/cairn/internal/testkit"
)

var payload = []byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nmessage\n")

func parse(t *testing.T, text string) Key {
	t.Helper()
	key, err := ParseKey([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ringOf(keys ...Key) *Ring {
	var trusted []Trusted
	for _, k := range keys {
		trusted = append(trusted, Trusted{Key: k})
	}
	return NewRing(trusted)
}

// wantRefusal checks that err is a refusal that holds a text.
func wantRefusal(t *testing.T, name string, err error, part string) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, part) || strings.ContainsAny(refused.Reason, "\n\r") {
		t.Errorf("%s: %v, want a refusal with %q", name, err, part)
	}
}

func TestSSH(t *testing.T) {
	s := testkit.NewSigners(t)
	now := time.Now()
	for _, alg := range [][]string{{"ed25519"}, {"ecdsa", "-b", "256"}, {"ecdsa", "-b", "384"}, {"ecdsa", "-b", "521"}, {"rsa", "-b", "2048"}} {
		path, public := s.NewSSH("owner"+strings.Join(alg, ""), alg[0], alg[1:]...)
		key := parse(t, public)
		if key.Kind != SSH || !strings.HasPrefix(key.Fingerprint, "SHA256:") || key.Owner != "owner"+strings.Join(alg, "") || strings.Contains(key.Text, key.Owner) {
			t.Errorf("key %+v", key)
		}
		if again := parse(t, key.Text); again.Fingerprint != key.Fingerprint {
			t.Errorf("the text of a key has the fingerprint %s, want %s", again.Fingerprint, key.Fingerprint)
		}
		for _, hash := range []string{"sha256", "sha512"} {
			sig := s.SignSSH(payload, path, "git", "-Ohashalg="+hash)
			if got, err := ringOf(key).Verify(payload, sig, now, now); err != nil || got != key.Fingerprint {
				t.Errorf("%v with %s: %q, %v", alg, hash, got, err)
			}
			_, err := ringOf(key).Verify(append(payload, '\n'), sig, now, now)
			wantRefusal(t, "another payload", err, "does not match")
			_, err = ringOf().Verify(payload, sig, now, now)
			wantRefusal(t, "no keys", err, "not registered")
		}
		_, err := ringOf(key).Verify(payload, s.SignSSH(payload, path, "file"), now, now)
		wantRefusal(t, "another namespace", err, "another purpose")
	}
}

// TestSSHWindow compares the bounds of keys with those of allowed signers.
func TestSSHWindow(t *testing.T) {
	s := testkit.NewSigners(t)
	path, public := s.NewSSH("key", "ed25519")
	key := parse(t, public)
	sig := s.SignSSH(payload, path, "git")
	at := func(day string) time.Time {
		d, err := time.ParseInLocation("20060102150405", day, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const after, before = "20240201000000", "20240301000000"
	ring := NewRing([]Trusted{{Key: key, NotBefore: at(after), NotAfter: at(before)}})
	allowed := fmt.Sprintf("someone valid-after=%q,valid-before=%q %s", after, before, public)
	for _, day := range []string{"20240131235959", after, "20240201000001", "20240229120000", "20240229235959", before, "20240301000001", "20250101000000"} {
		_, err := ring.Verify(payload, sig, at(day), time.Now())
		if good := s.GoodSSH(payload, sig, allowed, day); good != (err == nil) {
			t.Errorf("dated %s: %v, and ssh-keygen says %v", day, err, good)
		}
	}
}

func TestOpenPGP(t *testing.T) {
	s := testkit.NewSigners(t)
	subkeys := []string{"ed25519", "rsa2048", "ed25519"}
	for i, alg := range []string{"ed25519", "rsa2048", "nistp256"} {
		user := fmt.Sprintf("User %d <u%d@example.com>", i, i)
		fingerprint := s.NewGPG(user, alg, "never")
		s.GPG(nil, "--quick-add-key", fingerprint, subkeys[i], "sign", "never")
		key := parse(t, s.PublicGPG(fingerprint))
		now := time.Now()
		if key.Kind != OpenPGP || key.Fingerprint != fingerprint || key.Owner != user {
			t.Errorf("key %q of %q, want %q of %q", key.Fingerprint, key.Owner, fingerprint, user)
		}
		for what, signer := range map[string]string{"primary key": fingerprint + "!", "subkey": fingerprint} {
			sig := s.SignGPG(payload, signer)
			if !s.GoodGPG(payload, sig) {
				t.Fatal("gpg refuses its own signature")
			}
			if got, err := ringOf(key).Verify(payload, sig, now, now); err != nil || got != fingerprint {
				t.Errorf("%s with its %s: %q, %v", alg, what, got, err)
			}
			_, err := ringOf(key).Verify(append(payload, ' '), sig, now, now)
			wantRefusal(t, "another payload", err, "does not match")
		}
		sig := s.SignGPG(payload, fingerprint)
		for name, tt := range map[string]struct{ sig, part string }{
			"text mode":           {s.GPG(payload, "--textmode", "-bsau", fingerprint), "not one of a file"},
			"SHA-1":               {s.SignGPG(payload, fingerprint, "--digest-algo", "SHA1", "--allow-weak-digest-algos"), "SHA-1"},
			"two armoured blocks": {sig + sig, "cannot be read"},
			"two packets":         {s.GPG(payload, "-bsa", "-u", fingerprint+"!", "-u", fingerprint), "more than one"},
			"a whole message":     {s.GPG(payload, "-sa", "-u", fingerprint), "neither"},
			"clear text":          {s.GPG(payload, "--clearsign", "-u", fingerprint), "neither"},
			"a bomb":              {bomb(t, s), "cannot be read"},
			"cut off":             {sig[:len(sig)/2], "cannot be read"},
			"text before":         {"x\n" + sig, "neither"},
			"text behind":         {sig + "x", "cannot be read"},
		} {
			_, err := ringOf(key).Verify(payload, tt.sig, now, now)
			wantRefusal(t, alg+": "+name, err, tt.part)
		}
	}
}

// bomb is an armoured block of the right name that unfolds to 64 MiB.
func bomb(t *testing.T, s *testkit.Signers) string {
	t.Helper()
	body := s.GPG(make([]byte, 8<<20), "--armor", "--compress-level", "9", "--store")
	if len(body) > maxSignature {
		body = body[:maxSignature-100] // as much as is read at all
		body += "\n-----END PGP MESSAGE-----\n"
	}
	return strings.ReplaceAll(body, "PGP MESSAGE", "PGP SIGNATURE")
}

// TestOpenPGPLife follows keys that expire and are revoked, beside gpg.
func TestOpenPGPLife(t *testing.T) {
	s := testkit.NewSigners(t)
	const then = "20200101T000000"
	made := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	old := s.NewGPG("Old <old@example.com>", "ed25519", "1y", "--faked-system-time", then)
	sig := s.SignGPG(payload, old, "--faked-system-time", "20200601T000000")
	key := parse(t, s.PublicGPG(old))
	if _, err := ringOf(key).Verify(payload, sig, made, made.AddDate(0, 7, 0)); err != nil {
		t.Errorf("while the key lives: %v", err)
	}
	_, err := ringOf(key).Verify(payload, sig, made, time.Now())
	wantRefusal(t, "after the key has expired", err, "expired")
	if s.GoodGPG(payload, sig) {
		t.Error("gpg takes a signature by a key that has expired")
	}
	_, err = ringOf(key).Verify(payload, sig, made, made.AddDate(0, 2, 0))
	wantRefusal(t, "before it was made", err, "from the future")
	// A new expiry brings it back.
	s.GPG(nil, "--quick-set-expire", old, "0")
	key = parse(t, s.PublicGPG(old))
	if _, err := ringOf(key).Verify(payload, sig, made, time.Now()); err != nil || !s.GoodGPG(payload, sig) {
		t.Errorf("with the expiry lifted: %v", err)
	}

	lost := s.NewGPG("Lost <lost@example.com>", "ed25519", "never")
	sig = s.SignGPG(payload, lost)
	revocation, err := os.ReadFile(s.Home + "/openpgp-revocs.d/" + lost + ".rev")
	if err != nil {
		t.Fatal(err)
	}
	s.GPG([]byte(strings.ReplaceAll(string(revocation), ":-----BEGIN", "-----BEGIN")), "--import")
	_, err = ringOf(parse(t, s.PublicGPG(lost))).Verify(payload, sig, time.Now(), time.Now().Add(time.Second))
	wantRefusal(t, "revoked", err, "revoked")
	if s.GoodGPG(payload, sig) {
		t.Error("gpg takes a signature by a revoked key")
	}
}

func TestKeysRefused(t *testing.T) {
	s := testkit.NewSigners(t)
	path, public := s.NewSSH("one", "ed25519")
	_, other := s.NewSSH("two", "ed25519")
	_, weak := s.NewSSH("weak", "rsa", "-b", "1024")
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.NewGPG("A <a@example.com>", "ed25519", "never"), s.NewGPG("B <b@example.com>", "ed25519", "never")
	for name, text := range map[string]string{
		"nothing":              "",
		"words":                "not a key",
		"two SSH keys":         public + other,
		"a weak RSA key":       weak,
		"an SSH key's options": `command="x" ` + public,
		"an SSH private key":   string(private),
		"two OpenPGP keys":     s.GPG(nil, "--armor", "--export", a, b),
		"two armoured blocks":  s.PublicGPG(a) + s.PublicGPG(b),
		"an OpenPGP private":   s.GPG(nil, "--armor", "--export-secret-keys", a),
		"renamed private":      strings.ReplaceAll(s.GPG(nil, "--armor", "--export-secret-keys", a), "PRIVATE", "PUBLIC"),
		"a signature":          s.SignGPG(payload, a),
		"too large":            strings.Repeat("x", maxKey+1),
		"an empty block":       "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n=twTO\n-----END PGP PUBLIC KEY BLOCK-----",
	} {
		key, err := ParseKey([]byte(text))
		if !errors.Is(err, ErrKey) {
			t.Errorf("%s: %+v, %v", name, key, err)
		} else if len(text) > 40 && strings.Contains(err.Error(), text[30:40]) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
}

// TestSSHForms changes a good signature in each of its fields.
func TestSSHForms(t *testing.T) {
	s := testkit.NewSigners(t)
	path, public := s.NewSSH("one", "rsa", "-b", "2048")
	good := s.SignSSH(payload, path, "git")
	block, _ := pem.Decode([]byte(good))
	var fields sshSignature
	if err := ssh.Unmarshal(block.Bytes[len(sshMagic):], &fields); err != nil {
		t.Fatal(err)
	}
	form := func(change func(*sshSignature)) string {
		f := fields
		change(&f)
		return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte("SSHSIG"), ssh.Marshal(f)...)}))
	}
	var inner ssh.Signature
	if err := ssh.Unmarshal(fields.Signature, &inner); err != nil {
		t.Fatal(err)
	}
	inner.Format = ssh.KeyAlgoRSA
	ring, now := ringOf(parse(t, public)), time.Now()
	if _, err := ring.Verify(payload, form(func(*sshSignature) {}), now, now); err != nil {
		t.Fatalf("encoded again: %v", err)
	}
	for name, tt := range map[string]struct{ sig, part string }{
		"version":       {form(func(f *sshSignature) { f.Version = 2 }), "version"},
		"key":           {form(func(f *sshSignature) { f.PublicKey = []byte("x") }), "not registered"},
		"namespace":     {form(func(f *sshSignature) { f.Namespace = "" }), "another purpose"},
		"reserved":      {form(func(f *sshSignature) { f.Reserved = "x" }), "does not match"},
		"hash":          {form(func(f *sshSignature) { f.HashAlgorithm = "sha256" }), "does not match"},
		"weak hash":     {form(func(f *sshSignature) { f.HashAlgorithm = "md5" }), "only sha256"},
		"SHA-1":         {form(func(f *sshSignature) { f.Signature = ssh.Marshal(inner) }), "SHA-1"},
		"no signature":  {form(func(f *sshSignature) { f.Signature = nil }), "cannot be read"},
		"magic":         {string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: block.Bytes[1:]})), "cannot be read"},
		"bytes behind":  {string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append(block.Bytes, 0)})), "cannot be read"},
		"text behind":   {good + "x", "cannot be read"},
		"twice":         {good + good, "cannot be read"},
		"not base64":    {strings.Replace(good, "SSHSIG", "", 1), ""},
		"unsigned":      {"", "is not signed"},
		"too large":     {good + strings.Repeat("\n ", maxSignature) + "x", "more than"},
		"another armor": {base64.StdEncoding.EncodeToString(block.Bytes), "neither"},
	} {
		if name == "not base64" {
			tt.sig = strings.Replace(good, "U1NIU0lH", "U1NI!0lH", 1)
		}
		_, err := ring.Verify(payload, tt.sig, now, now)
		wantRefusal(t, name, err, tt.part)
	}
}

func FuzzVerify(f *testing.F) {
	s := testkit.NewSigners(f)
	path, public := s.NewSSH("one", "ed25519")
	fingerprint := s.NewGPG("A <a@example.com>", "ed25519", "never")
	var keys []Trusted
	for _, text := range []string{public, s.PublicGPG(fingerprint)} {
		key, err := ParseKey([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		keys = append(keys, Trusted{Key: key})
		f.Add(text)
	}
	f.Add(s.SignSSH(payload, path, "git"))
	f.Add(s.SignGPG(payload, fingerprint))
	ring := NewRing(keys)
	other := append([]byte("x"), payload...)
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := ParseKey([]byte(text)); err == nil {
			if again, err := ParseKey([]byte(key.Text)); err != nil || again.Fingerprint != key.Fingerprint {
				t.Errorf("the text of key %s is not that key: %v", key.Fingerprint, err)
			}
		}
		// Nobody signed this payload.
		if by, err := ring.Verify(other, text, time.Now(), time.Now()); err == nil {
			t.Errorf("forged a signature by %s: %q", by, text)
		}
	})
}

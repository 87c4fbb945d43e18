package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
)

func sumOf(raw string) digest { return sha256.Sum256([]byte(raw)) }

func pemOf(t *testing.T, kind string, der []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestParseKeysInEveryForm(t *testing.T) {
	for name, signer := range signers() {
		want := registered(t, "k", name)
		forms := map[string][]byte{"canonical": []byte(want.PublicPEM)}
		der, err := x509.MarshalPKCS8PrivateKey(signer)
		forms["PKCS#8"] = pemOf(t, "PRIVATE KEY", der, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "acme"}}
		der, err = x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
		forms["certificate"] = pemOf(t, "CERTIFICATE", der, err)
		switch key := signer.(type) {
		case *ecdsa.PrivateKey:
			der, err = x509.MarshalECPrivateKey(key)
			forms["SEC1"] = pemOf(t, "EC PRIVATE KEY", der, err)
			params := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 1, 1}})
			forms["SEC1 after parameters"] = append(params, forms["SEC1"]...)
		case *rsa.PrivateKey:
			forms["PKCS#1"] = pemOf(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), nil)
			forms["PKCS#1 public"] = pemOf(t, "RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey), nil)
		}
		for form, text := range forms {
			escaped := strings.ReplaceAll(string(text), "\n", `\n`)
			for variant, in := range map[string]string{
				"plain":         string(text),
				"CRLF":          strings.ReplaceAll(string(text), "\n", "\r\n"),
				"escaped":       escaped,
				"escaped CRLF":  strings.ReplaceAll(string(text), "\n", `\r\n`),
				"quoted":        `"` + escaped + `"`,
				"white space":   "\n  " + string(text) + "\n\n",
				"no final line": strings.TrimSuffix(string(text), "\n"),
			} {
				got, err := ParsePublicKey("k", []byte(in))
				if err != nil || got.PublicPEM != want.PublicPEM || got.Type() != want.Type() || got.KID != "k" {
					t.Errorf("%s %s %s: ParsePublicKey = %+v, %v", name, form, variant, got, err)
				}
				private, err := ParsePrivateKey([]byte(in))
				if isPublic := !strings.Contains(in, "PRIVATE KEY"); isPublic {
					if !errors.Is(err, ErrKey) {
						t.Errorf("%s %s %s: ParsePrivateKey = %v, want ErrKey", name, form, variant, err)
					}
					continue
				}
				if err != nil || !private.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(signer.Public()) {
					t.Errorf("%s %s %s: ParsePrivateKey = %v", name, form, variant, err)
				}
			}
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return pemOf(t, "PRIVATE KEY", der, err)
	}
	good := pkcs8(signers()["P-256"])
	tests := map[string][]byte{
		"empty":         nil,
		"no PEM":        []byte("/etc/passwd"),
		"P-224":         pkcs8(p224),
		"RSA 1024":      pkcs8(small),
		"broken DER":    pemOf(t, "PRIVATE KEY", []byte("secret"), nil),
		"cut off":       good[:len(good)/2],
		"wrong label":   []byte(strings.ReplaceAll(string(good), "PRIVATE KEY", "EC PRIVATE KEY")),
		"encrypted":     pemOf(t, "ENCRYPTED PRIVATE KEY", []byte("x"), nil),
		"encrypted old": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}}),
		"OpenSSH":       pemOf(t, "OPENSSH PRIVATE KEY", []byte("x"), nil),
	}
	for name, text := range tests {
		if _, err := ParsePrivateKey(text); !errors.Is(err, ErrKey) {
			t.Errorf("%s: ParsePrivateKey = %v, want ErrKey", name, err)
		}
		_, err := ParsePublicKey("", text)
		if !errors.Is(err, ErrKey) {
			t.Errorf("%s: ParsePublicKey = %v, want ErrKey", name, err)
		}
	}
}

func TestGenerateKey(t *testing.T) {
	text, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParsePublicKey("k", text)
	if err != nil || public.Type() != "P-256" || strings.Contains(public.PublicPEM, "PRIVATE") {
		t.Fatalf("public half is %+v, %v", public, err)
	}
	raw, err := Mint(signer, "", Claims{Org: "acme", IssuedAt: testNow.Unix(), Expires: testNow.Unix() + 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newVerifier(t, Options{}).Verify(raw, acme(t, public), testNow); err != nil {
		t.Error(err)
	}
	if other, err := GenerateKey(); err != nil || string(other) == string(text) {
		t.Errorf("a second key equals the first, or %v", err)
	}
}

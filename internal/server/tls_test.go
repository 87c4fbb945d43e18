package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/config"
)

// trusting returns a client that trusts the certificates of a PEM file.
func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s holds no certificate", file)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
}

func TestFirstByteDecides(t *testing.T) {
	s := start(t, map[string]string{"dev-tls": "true"}, BothProtocols())
	if !strings.HasPrefix(s.URL(), "http://") || s.TLSURL() != "https://"+strings.TrimPrefix(s.URL(), "http://") {
		t.Fatalf("URLs are %q and %q", s.URL(), s.TLSURL())
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := trusting(t, s.DevTLS().CAFile)
	for _, tc := range []struct {
		url   string
		major int
	}{{s.URL(), 1}, {s.TLSURL(), 2}, {s.URL(), 1}} {
		resp, err := client.Get(tc.url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != tc.major {
			t.Errorf("%s answered %s with %s", tc.url, resp.Status, resp.Proto)
		}
	}
	if _, err := http.Get(s.TLSURL() + "/healthz"); err == nil {
		t.Error("a client that does not trust the authority got an answer")
	}
	// What was silent so far is a connection like any other.
	if _, err := io.WriteString(silent, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(silent); err != nil || !bytes.HasPrefix(text, []byte("HTTP/1.0 200 OK\r\n")) {
		t.Errorf("the silent connection got %q, %v", text, err)
	}
}

// TestSilentConnectionsDoNotHoldUpTheEnd closes a server with a connection whose
// first byte never came.
func TestSilentConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	s := start(t, map[string]string{"dev-tls": "true"}, BothProtocols())
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-s.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestTLSOnlyWithoutTheOption(t *testing.T) {
	s := start(t, map[string]string{"dev-tls": "true"})
	if !strings.HasPrefix(s.URL(), "https://") || s.URL() != s.TLSURL() {
		t.Errorf("URLs are %q and %q", s.URL(), s.TLSURL())
	}
	resp, err := http.Get("http://" + strings.TrimPrefix(s.URL(), "https://") + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP was answered %s", resp.Status)
	}
}

func TestDevTLS(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	d, err := NewDevTLS(dir, []string{"git.example.test", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	if d.CAFile != filepath.Join(dir, "ca.pem") || d.BundleFile != filepath.Join(dir, "bundle.pem") {
		t.Errorf("files are %q and %q", d.CAFile, d.BundleFile)
	}
	ca, err := os.ReadFile(d.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := os.Stat(filepath.Join(dir, "ca-key.pem")); err != nil || key.Mode().Perm() != 0o600 {
		t.Errorf("the key of the authority: %v, %v", key.Mode(), err)
	}
	bundle, err := os.ReadFile(d.BundleFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(bundle, ca) {
		t.Error("the bundle does not end with the authority")
	}
	for _, file := range systemBundles {
		system, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if got, want := certificates(bundle), certificates(system)+1; got != want {
			t.Errorf("the bundle has %d certificates, want the %d of %s and the authority", got, want-1, file)
		}
		break
	}
	leaf, err := x509.ParseCertificate(d.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "git.example.test", "192.0.2.7"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "other.example.test", Roots: roots}); err == nil {
		t.Error("the certificate is for every name")
	}

	again, err := NewDevTLS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(again.CAFile); err != nil || !bytes.Equal(now, ca) {
		t.Errorf("a second start made another authority (%v)", err)
	}
	if err := os.WriteFile(d.CAFile, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDevTLS(dir, nil); err == nil {
		t.Error("a damaged authority was replaced: what trusts it would not know")
	}
}

func certificates(bundle []byte) int {
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

// TestReloadTLS changes the certificate under a running server.
func TestReloadTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := writeCertificate(t, certFile, keyFile)
	s := start(t, map[string]string{"tls-cert": certFile, "tls-key": keyFile})
	serial := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if got := serial(); got != first {
		t.Errorf("the certificate is %s, want %s", got, first)
	}
	second := writeCertificate(t, certFile, keyFile)
	if err := s.ReloadTLS(); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != second {
		t.Errorf("after the reload the certificate is %s, want %s", got, second)
	}
	if err := os.WriteFile(certFile, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	var usage *config.UsageError
	if err := s.ReloadTLS(); !errors.As(err, &usage) || usage.Setting != "tls-cert" {
		t.Errorf("reload of a damaged file: %v", err)
	}
	if got := serial(); got != second {
		t.Errorf("after a failed reload the certificate is %s, want %s", got, second)
	}
}

// writeCertificate writes a new certificate and returns its serial number.
func writeCertificate(t *testing.T, certFile, keyFile string) string {
	t.Helper()
	d, err := NewDevTLS(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(d.Certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := writePEM(certFile, 0o600, "CERTIFICATE", d.Certificate.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	if err := writePEM(keyFile, 0o600, "PRIVATE KEY", key); err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(d.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.String()
}

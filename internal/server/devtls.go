package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// DevTLS is the private certificate authority of one data directory: a root that
// is made once and kept, and a certificate that is made at each start.
type DevTLS struct {
	// CAFile holds the root certificate; BundleFile the system's roots and it,
	// which is what to export so that other hosts keep working.
	CAFile, BundleFile string
	Certificate        tls.Certificate
}

// systemBundles are the places where Linux distributions keep the system's
// roots (the list of crypto/x509).
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// NewDevTLS loads or makes the authority in dir (DATA/tls) and issues a
// certificate for localhost, the loopback addresses, this host's name and hosts.
func NewDevTLS(dir string, hosts []string) (*DevTLS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for certificates: %w", err)
	}
	d := &DevTLS{CAFile: filepath.Join(dir, "ca.pem"), BundleFile: filepath.Join(dir, "bundle.pem")}
	root, key, err := loadAuthority(d.CAFile, filepath.Join(dir, "ca-key.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		root, key, err = makeAuthority(d.CAFile, filepath.Join(dir, "ca-key.pem"))
	}
	if err != nil {
		return nil, err
	}
	if err := writeBundle(d.BundleFile, root); err != nil {
		return nil, err
	}
	d.Certificate, err = issue(root, key, hosts)
	return d, err
}

func loadAuthority(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the development authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || time.Now().After(pair.Leaf.NotAfter) {
		return nil, nil, fmt.Errorf("the development authority in %q cannot be used; remove the directory to make another", filepath.Dir(certFile))
	}
	return pair.Leaf, key, nil
}

func makeAuthority(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the development authority: %w", err)
	}
	host, _ := os.Hostname()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Cairn development authority (" + host + ")"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the development authority: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the development authority: %w", err)
	}
	if err := writePEM(keyFile, 0o600, "PRIVATE KEY", keyDER); err != nil {
		return nil, nil, err
	}
	if err := writePEM(certFile, 0o644, "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	root, err := x509.ParseCertificate(der)
	return root, key, err
}

func issue(root *x509.Certificate, rootKey *ecdsa.PrivateKey, hosts []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "Cairn"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "*.localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, root, &key.PublicKey, rootKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der, root.Raw}, PrivateKey: key}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}

func writePEM(path string, mode fs.FileMode, kind string, der []byte) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("write a certificate file: %w", err)
	}
	return nil
}

func writeBundle(path string, root *x509.Certificate) error {
	var bundle []byte
	for _, f := range systemBundles {
		if b, err := os.ReadFile(f); err == nil {
			bundle = append(b, '\n')
			break
		}
	}
	bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	if err := os.WriteFile(path, bundle, 0o644); err != nil {
		return fmt.Errorf("write the certificate bundle: %w", err)
	}
	return nil
}

package signature

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	beginSSH = "-----BEGIN SSH SIGNATURE-----"
	// gitNamespace is what Git signs commits and tags for: a signature of a
	// file, or of a log-in, is none of a commit.
	gitNamespace = "git"
	minRSABits   = 2048
)

// sshMagic begins a signature, and what is signed.
var sshMagic = []byte("SSHSIG")

// sshSignature is the content of a signature, as PROTOCOL.sshsig of OpenSSH
// describes it.
type sshSignature struct {
	Version       uint32
	PublicKey     []byte
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     []byte
}

// sshSigned is what the signature is over.
type sshSigned struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          []byte
}

// sshKeyTypes are the types of keys that may sign. A certificate is not among
// them: whom its authority may speak for is not registered.
var sshKeyTypes = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

type sshKey struct{ ssh.PublicKey }

func parseSSH(text string) (Key, error) {
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("%w: it is neither an armoured OpenPGP public key nor an SSH one", ErrKey)
	case len(options) > 0:
		return Key{}, fmt.Errorf("%w: options before an SSH key are not taken", ErrKey)
	case len(bytes.TrimSpace(rest)) > 0:
		return Key{}, fmt.Errorf("%w: there is more than one key: register them one by one", ErrKey)
	case !slices.Contains(sshKeyTypes, public.Type()):
		return Key{}, fmt.Errorf("%w: SSH keys of type %s are not taken", ErrKey, public.Type())
	}
	if c, ok := public.(ssh.CryptoPublicKey); ok {
		if r, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && r.N.BitLen() < minRSABits {
			return Key{}, fmt.Errorf("%w: the RSA key has %d bits: want %d or more", ErrKey, r.N.BitLen(), minRSABits)
		}
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	return Key{Kind: SSH, Fingerprint: ssh.FingerprintSHA256(public), Text: line, Owner: comment, verifier: sshKey{public}}, nil
}

// readSSH reads a signature without verifying it.
func readSSH(text string) (*parsed, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "SSH SIGNATURE" || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, refuse("has an SSH signature that cannot be read")
	}
	body, ok := bytes.CutPrefix(block.Bytes, sshMagic)
	s := new(sshSignature)
	if !ok || ssh.Unmarshal(body, s) != nil {
		return nil, refuse("has an SSH signature that cannot be read")
	}
	if s.Version != 1 {
		return nil, refuse("has an SSH signature of version %d, which is not known", s.Version)
	}
	if s.Namespace != gitNamespace {
		return nil, refuse("has an SSH signature for another purpose than Git")
	}
	return &parsed{issuer: sshIssuer(s.PublicKey), ssh: s}, nil
}

func sshIssuer(wire []byte) string { return string(SSH) + string(wire) }

// issuers returns what signatures by the key name.
func (k *Key) issuers() []string {
	switch v := k.verifier.(type) {
	case sshKey:
		return []string{sshIssuer(v.Marshal())}
	case *openPGPKey:
		return v.issuers()
	}
	return nil
}

func (k sshKey) verify(payload []byte, p *parsed, _ time.Time) error {
	s := p.ssh
	signed := sshSigned{Namespace: s.Namespace, Reserved: s.Reserved, HashAlgorithm: s.HashAlgorithm}
	switch s.HashAlgorithm {
	case "sha256":
		sum := sha256.Sum256(payload)
		signed.Hash = sum[:]
	case "sha512":
		sum := sha512.Sum512(payload)
		signed.Hash = sum[:]
	default:
		return refuse("has an SSH signature with the hash %.20q: only sha256 and sha512 are taken", s.HashAlgorithm)
	}
	var sig ssh.Signature
	if ssh.Unmarshal(s.Signature, &sig) != nil {
		return refuse("has an SSH signature that cannot be read")
	}
	if sig.Format == ssh.KeyAlgoRSA {
		return refuse("has an SSH signature with SHA-1, which is not taken")
	}
	if k.PublicKey.Verify(append(slices.Clone(sshMagic), ssh.Marshal(signed)...), &sig) != nil {
		return refuse("has a signature that does not match its content")
	}
	return nil
}

package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"golang.org/x/crypto/ssh"
)

// Signer is a private key together with its public half. Make one with
// GenerateSigner or ParseSigner. It is safe for concurrent use.
type Signer struct {
	// Public is what verifies the signatures.
	Public Key

	private []byte
	sign    func(payload []byte, now time.Time) (string, error)
}

// Private returns the private key as ParseSigner reads it. Who has it signs in
// the key's name.
func (s *Signer) Private() []byte { return bytes.Clone(s.private) }

// Sign returns a detached signature of payload, without a newline at its end, as
// Git has it in the header of a commit. now is when an OpenPGP signature says
// that it was made; a key that has expired by then is an error.
func (s *Signer) Sign(payload []byte, now time.Time) (string, error) { return s.sign(payload, now) }

// GenerateSigner makes an SSH key of the type ed25519. comment says whose it is.
func GenerateSigner(comment string) (*Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return nil, fmt.Errorf("encode a signing key: %w", err)
	}
	return ParseSigner(pem.EncodeToMemory(block))
}

// ParseSigner reads one private key without a passphrase: an SSH one as
// ssh-keygen writes it, or an armoured OpenPGP block. Errors wrap ErrKey and hold
// no key.
func ParseSigner(text []byte) (*Signer, error) {
	if len(text) > maxKey {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrKey, maxKey)
	}
	trimmed := strings.TrimSpace(string(text))
	if strings.HasPrefix(trimmed, "-----BEGIN PGP") {
		return parseOpenPGPSigner(trimmed)
	}
	return parseSSHSigner(trimmed)
}

func parseSSHSigner(text string) (*Signer, error) {
	if block, rest := pem.Decode([]byte(text)); block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: it is not one private key, SSH or armoured OpenPGP", ErrKey)
	}
	private, err := ssh.ParsePrivateKey([]byte(text))
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return nil, fmt.Errorf("%w: it has a passphrase: take it off with ssh-keygen -p, for the server keeps the key encrypted itself", ErrKey)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the SSH private key is of no known kind", ErrKey)
	}
	public, err := parseSSH(string(ssh.MarshalAuthorizedKey(private.PublicKey())))
	if err != nil {
		return nil, err
	}
	algorithm := private.PublicKey().Type()
	if algorithm == ssh.KeyAlgoRSA {
		algorithm = ssh.KeyAlgoRSASHA512
	}
	signer, ok := private.(ssh.AlgorithmSigner)
	if !ok {
		return nil, fmt.Errorf("%w: SSH keys of type %s cannot sign here", ErrKey, private.PublicKey().Type())
	}
	return &Signer{Public: public, private: []byte(text + "\n"), sign: func(payload []byte, _ time.Time) (string, error) {
		return signSSH(signer, algorithm, payload)
	}}, nil
}

// signSSH makes the signature that `ssh-keygen -Y sign -n git` makes.
func signSSH(signer ssh.AlgorithmSigner, algorithm string, payload []byte) (string, error) {
	digest := sha512.Sum512(payload)
	signed := sshSigned{Namespace: gitNamespace, HashAlgorithm: "sha512", Hash: digest[:]}
	sig, err := signer.SignWithAlgorithm(rand.Reader, append(bytes.Clone(sshMagic), ssh.Marshal(signed)...), algorithm)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	body := append(bytes.Clone(sshMagic), ssh.Marshal(sshSignature{
		Version: 1, PublicKey: signer.PublicKey().Marshal(), Namespace: signed.Namespace, HashAlgorithm: signed.HashAlgorithm,
		Signature: ssh.Marshal(sig),
	})...)
	const width = 70 // as OpenSSH breaks lines
	var b strings.Builder
	b.WriteString(beginSSH + "\n")
	for text := base64.StdEncoding.EncodeToString(body); text != ""; {
		n := min(width, len(text))
		b.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	b.WriteString("-----END SSH SIGNATURE-----")
	return b.String(), nil
}

func parseOpenPGPSigner(text string) (*Signer, error) {
	raw, err := dearmor(text, "PGP PRIVATE KEY BLOCK", maxKey)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not one armoured OpenPGP private key", ErrKey)
	}
	list, err := openpgp.ReadKeyRing(bytes.NewReader(raw))
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("%w: the block does not hold one OpenPGP private key of a known kind", ErrKey)
	}
	entity := list[0]
	var public bytes.Buffer
	w, err := armor.Encode(&public, "PGP PUBLIC KEY BLOCK", nil)
	if err == nil {
		err = errors.Join(entity.Serialize(w), w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the public half of the OpenPGP key cannot be written", ErrKey)
	}
	key, err := parseOpenPGP(public.String())
	if err != nil {
		return nil, err
	}
	s := &Signer{Public: key, private: []byte(text + "\n"), sign: func(payload []byte, now time.Time) (string, error) {
		return signOpenPGP(entity, payload, now)
	}}
	if _, err := s.Sign(nil, time.Now()); err != nil {
		return nil, fmt.Errorf("%w: the OpenPGP key does not sign: it has expired, has no key for signing, or has a passphrase, which must be taken off", ErrKey)
	}
	return s, nil
}

// signOpenPGP makes the signature that `gpg -bsa` makes.
func signOpenPGP(entity *openpgp.Entity, payload []byte, now time.Time) (string, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, "PGP SIGNATURE", nil) // with the checksum, without which older gpg reads none
	if err == nil {
		err = openpgp.DetachSign(w, []*openpgp.Entity{entity}, bytes.NewReader(payload),
			&packet.Config{DefaultHash: crypto.SHA512, Time: func() time.Time { return now }})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return strings.TrimSpace(b.String()), nil
}

package signature

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// openPGPHashes are the hashes that signatures may use: SHA-1 can be forged.
var openPGPHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

// openPGPKey is one key with its subkeys. Verifying notes in the key what it
// found out about it, hence the lock.
type openPGPKey struct {
	mu     sync.Mutex
	entity *openpgp.Entity
}

func parseOpenPGP(text string) (Key, error) {
	raw, err := dearmor(text, "PGP PUBLIC KEY BLOCK", maxKey)
	if err != nil {
		return Key{}, fmt.Errorf("%w: the armoured block cannot be read", ErrKey)
	}
	list, err := openpgp.ReadKeyRing(bytes.NewReader(raw))
	switch {
	case err != nil || len(list) == 0:
		return Key{}, fmt.Errorf("%w: the block holds no OpenPGP key of a known kind", ErrKey)
	case len(list) > 1:
		return Key{}, fmt.Errorf("%w: the block holds %d keys: register them one by one", ErrKey, len(list))
	case list[0].PrivateKey != nil:
		return Key{}, fmt.Errorf("%w: it is a private key: register the public one, and take this one for leaked", ErrKey)
	}
	e := list[0]
	key := Key{
		Kind: OpenPGP, Text: text, Fingerprint: strings.ToUpper(hex.EncodeToString(e.PrimaryKey.Fingerprint)),
		verifier: &openPGPKey{entity: e},
	}
	if _, identity := e.PrimaryIdentity(time.Time{}, nil); identity != nil {
		key.Owner = identity.Name
	}
	return key, nil
}

// dearmor decodes one armoured block which is all that text holds.
func dearmor(text, kind string, limit int) ([]byte, error) {
	if strings.Count(text, "-----BEGIN ") != 1 || !strings.HasSuffix(text, "-----END "+kind+"-----") {
		return nil, errors.New("not one armoured block")
	}
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if block.Type != kind {
		return nil, fmt.Errorf("armoured block of another type than %s", kind)
	}
	raw, err := io.ReadAll(io.LimitReader(block.Body, int64(limit)+1))
	if err == nil && len(raw) > limit {
		err = errors.New("armoured block is too large")
	}
	return raw, err
}

// readOpenPGP reads a signature without verifying it.
func readOpenPGP(text string) (*parsed, error) {
	unreadable := refuse("has an OpenPGP signature that cannot be read")
	raw, err := dearmor(text, "PGP SIGNATURE", maxSignature)
	if err != nil {
		return nil, unreadable
	}
	in := packet.NewReader(bytes.NewReader(raw))
	first, err := in.Next()
	if err != nil {
		return nil, unreadable
	}
	sig, ok := first.(*packet.Signature)
	if !ok || sig.IssuerKeyId == nil {
		return nil, unreadable
	}
	// As for Git, which of several signatures counts is not to be guessed.
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return nil, refuse("has more than one OpenPGP signature")
	}
	if sig.SigType != packet.SigTypeBinary {
		return nil, refuse("has an OpenPGP signature that is not one of a file")
	}
	if !slices.Contains(openPGPHashes, sig.Hash) {
		return nil, refuse("has an OpenPGP signature with the hash %s, which is not taken", sig.Hash)
	}
	return &parsed{issuer: openPGPIssuer(*sig.IssuerKeyId), pgp: sig}, nil
}

func openPGPIssuer(id uint64) string { return string(OpenPGP) + strconv.FormatUint(id, 16) }

func (k *openPGPKey) issuers() []string {
	ids := []string{openPGPIssuer(k.entity.PrimaryKey.KeyId)}
	for _, sub := range k.entity.Subkeys {
		ids = append(ids, openPGPIssuer(sub.PublicKey.KeyId))
	}
	return ids
}

// skew is how far ahead of this clock that of a signer may be.
const skew = 5 * time.Minute

// verify wants the key to be good now: what an expired or revoked one has signed
// counts for nothing, whenever that was, as for gpg.
func (k *openPGPKey) verify(payload []byte, p *parsed, now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	sig := p.pgp
	if ahead := sig.CreationTime.Sub(now); 0 < ahead && ahead < skew {
		now = sig.CreationTime
	}
	key, ok := k.entity.SigningKeyById(now, *sig.IssuerKeyId, nil)
	if !ok || sig.CreationTime.Before(key.PublicKey.CreationTime) {
		return refuse("is signed with a key that has expired, was revoked or is not for signing")
	}
	if sig.SigExpired(now) {
		return refuse("has a signature that has expired, or is from the future")
	}
	for _, n := range sig.Notations {
		if n.IsCritical {
			return refuse("has an OpenPGP signature with a critical notation, which is not known")
		}
	}
	digest, err := sig.PrepareVerify()
	if err != nil {
		return refuse("has an OpenPGP signature that cannot be read")
	}
	digest.Write(payload)
	if key.PublicKey.VerifySignature(digest, sig) != nil {
		return refuse("has a signature that does not match its content")
	}
	return nil
}

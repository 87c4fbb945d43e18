package repo

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/signature"
)

// signerBytes bounds the private keys that are kept ready, by their text.
const signerBytes = 4 << 20

// ServerKeyRow names the row that the private half of a server key is sealed for.
func ServerKeyRow(org meta.OrgID, fingerprint string) string {
	return fmt.Sprintf("org/%d/server_key/%s", org, fingerprint)
}

// SignerError is a fault of the key with which the server signs for an org.
type SignerError struct {
	Fingerprint string
	Err         error
}

func (e *SignerError) Error() string {
	return fmt.Sprintf("the server cannot sign with its key %s: %v", e.Fingerprint, e.Err)
}

// Unwrap returns the cause.
func (e *SignerError) Unwrap() error { return e.Err }

// signers keeps the keys ready with which the server signs.
type signers struct {
	cache *lru.Cache[meta.OrgID, *signature.Signer]
}

// signer returns what signs the commits that are made for a writer, nil when its
// org has no key for it.
func (e *Engine) signer(ctx context.Context, w Writer) (*signature.Signer, error) {
	if w.Signer == "" {
		return nil, nil
	}
	if s, ok := e.signers.cache.Get(w.Org); ok && s.Public.Fingerprint == w.Signer {
		return s, nil
	}
	row, err := e.cfg.Meta.ServerKey(ctx, w.Org)
	if errors.Is(err, meta.ErrNotFound) {
		return nil, nil // it was removed a moment ago
	}
	if err != nil {
		return nil, fmt.Errorf("read the key to sign with: %w", err)
	}
	text, err := e.cfg.Secrets.Open(ServerKeyRow(w.Org, row.Fingerprint), row.Secret)
	if err != nil {
		return nil, &SignerError{Fingerprint: row.Fingerprint, Err: err}
	}
	s, err := signature.ParseSigner(text)
	if err != nil {
		return nil, &SignerError{Fingerprint: row.Fingerprint, Err: err}
	}
	e.signers.cache.Put(w.Org, s, 4*int64(len(text)))
	return s, nil
}

// encode makes the object of a commit, signed where the writer's org has a key
// for that.
func (e *Engine) encode(ctx context.Context, w Writer, b *built, c object.CommitData) error {
	c.Tree, c.Parents = b.tree, b.parents
	data, err := object.EncodeCommit(&c)
	if err != nil {
		return &InvalidError{Reason: err.Error()}
	}
	s, err := e.signer(ctx, w)
	if err != nil {
		return err
	}
	if s != nil {
		if c.Signature, err = s.Sign(data, e.cfg.Clock()); err != nil {
			return &SignerError{Fingerprint: s.Public.Fingerprint, Err: err}
		}
		if data, err = object.EncodeCommit(&c); err != nil {
			return &InvalidError{Reason: err.Error()}
		}
	}
	b.data, b.id, b.time = data, object.Hash(object.Commit, data), c.Committer.When
	return nil
}

// errServerUnsigned says what to do where the server's own commits are refused.
var errServerUnsigned = errors.New("only signed commits are taken here, and the server has no key to sign those that it makes: " +
	"push commits that are signed, or have the operator give the org a key with `cairn org signing-key generate`")

// checkMade refuses a commit of the server's own, which cannot be read yet, where
// only signed ones are taken. What it is made upon is not looked at.
func (e *Engine) checkMade(ctx context.Context, org meta.OrgID, ref string, made *built) error {
	ring, err := e.rings.of(ctx, e.cfg.Meta, org)
	if err != nil {
		return err
	}
	s := &signedCheck{ref: ref, ring: ring, now: e.cfg.Clock()}
	c, err := object.ParseCommit(made.data)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", made.id, err)
	}
	if c.Signature == "" {
		return s.deny(errServerUnsigned)
	}
	return s.verify("commit", made.id, c.Payload, c.Signature, c.Committer.When)
}

// checkSnapshot is checkMade for the first commit of a repository.
func (e *Engine) checkSnapshot(ctx context.Context, w Writer, branch string, made *built) error {
	if len(policy.Signed(w.Policies, nil, branch)) == 0 {
		return nil
	}
	return e.checkMade(ctx, w.Org, branch, made)
}

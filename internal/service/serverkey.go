package service

import (
	"context"
	"errors"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/signature"
)

// GenerateServerKey makes a key with which the server signs, from the next
// request on, every commit that it makes for the org over REST. Its public half
// is registered beside. What the key before signed still counts, until that one
// is removed. title is for people; "" names the server.
func (o *Operator) GenerateServerKey(ctx context.Context, org, title string) (meta.SigningKey, error) {
	if title == "" {
		title = "cairn server of " + org
	}
	s, err := signature.GenerateSigner(title)
	if err != nil {
		return meta.SigningKey{}, err
	}
	return o.setServerKey(ctx, org, title, s)
}

// ImportServerKey is GenerateServerKey with a private key that exists: an SSH or
// an armoured OpenPGP one, without a passphrase. title "" takes what the key says
// of its owner.
func (o *Operator) ImportServerKey(ctx context.Context, org, title string, private []byte) (meta.SigningKey, error) {
	s, err := signature.ParseSigner(private)
	if err != nil {
		return meta.SigningKey{}, &Error{Code: Invalid, Message: "the key cannot be used: " + err.Error(), Err: err}
	}
	if len(s.Private()) > secret.MaxPlain {
		return meta.SigningKey{}, Refuse(Invalid, "the key has more than %d bytes: export it without what others have signed of it", secret.MaxPlain)
	}
	return o.setServerKey(ctx, org, title, s)
}

func (o *Operator) setServerKey(ctx context.Context, org, title string, s *signature.Signer) (meta.SigningKey, error) {
	row, err := SigningKeyRequest{Text: s.Public.Text, Title: title}.Row()
	if err != nil {
		return row, err
	}
	in, err := o.Org(ctx, org)
	if err != nil {
		return row, err
	}
	if err := mayAdd(ctx, o.Meta, in.ID); err != nil {
		return row, err
	}
	sealed, err := o.Secrets.Seal(repo.ServerKeyRow(in.ID, row.Fingerprint), s.Private())
	if err != nil {
		return row, keyMissing(err)
	}
	return row, o.change(ctx, org, func(c *meta.Change) {
		c.PutSigningKey, c.SetServerKey = &row, &meta.ServerKey{Fingerprint: row.Fingerprint, Secret: sealed}
	})
}

// RemoveServerKey forgets the private key with which the server signs for the
// org. What it signed still counts, until its public half is removed too.
func (o *Operator) RemoveServerKey(ctx context.Context, org string) error {
	row, err := o.Org(ctx, org)
	if err != nil {
		return err
	}
	if row.Signer == "" {
		return Refuse(NotFound, "the server does not sign for org %q: it has no key for that", org)
	}
	return o.change(ctx, org, func(c *meta.Change) { c.SetServerKey = new(meta.ServerKey) })
}

// ResealServerKeys encrypts the server's keys that were encrypted with an older
// key for secrets with the first one, so that the older one can go. left counts
// those that no key here opens. Without a key it does nothing.
func (o *Operator) ResealServerKeys(ctx context.Context) (made, left int, err error) {
	if o.Secrets == nil {
		return 0, 0, nil
	}
	for org, err := range meta.AllOrgs(ctx, o.Meta) {
		if err != nil {
			return made, left, err
		}
		if org.Signer == "" {
			continue
		}
		switch done, err := o.reseal(ctx, org.ID); {
		case errors.Is(err, secret.ErrUnknownKey), errors.Is(err, secret.ErrDamaged):
			left++
		case err != nil:
			return made, left, err
		case done:
			made++
		}
	}
	return made, left, nil
}

// reseal encrypts the key of one org anew; false says that it need not be.
func (o *Operator) reseal(ctx context.Context, org meta.OrgID) (bool, error) {
	key, err := o.Meta.ServerKey(ctx, org)
	if errors.Is(err, meta.ErrNotFound) || err == nil && o.Secrets.Current(key.Secret) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	plain, err := o.Secrets.Open(repo.ServerKeyRow(org, key.Fingerprint), key.Secret)
	if err != nil {
		return false, err
	}
	sealed, err := o.Secrets.Seal(repo.ServerKeyRow(org, key.Fingerprint), plain)
	if err != nil {
		return false, err
	}
	return true, o.Meta.SealServerKey(ctx, org, key.Secret, sealed)
}

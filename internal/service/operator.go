package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/secret"
)

// Operator holds the use cases of whoever runs the server. They need no token:
// reaching the storage is the permission. They work while a server runs on the
// same storage.
type Operator struct {
	Meta meta.Store
	// Secrets seals keys with which the server signs; nil refuses them.
	Secrets *secret.Keyring
	// Now is the clock for new rows; nil means time.Now.
	Now func() time.Time
}

var orgName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (o *Operator) newID() int64 {
	if o.Now != nil {
		return meta.NewID(o.Now())
	}
	return meta.NewID(time.Now())
}

// Org returns an org by name.
func (o *Operator) Org(ctx context.Context, name string) (meta.Org, error) {
	gate, err := o.Meta.Gate(ctx, meta.GateQuery{Org: name})
	if errors.Is(err, meta.ErrNotFound) {
		return meta.Org{}, Refuse(NotFound, "there is no org %q", name)
	}
	return gate.Org, err
}

// Repo returns a live or deleted repository of an org by name.
func (o *Operator) Repo(ctx context.Context, org, name string) (meta.Org, meta.Repo, error) {
	gate, err := o.Meta.Gate(ctx, meta.GateQuery{Org: org, Repo: name})
	if errors.Is(err, meta.ErrNotFound) {
		return meta.Org{}, meta.Repo{}, Refuse(NotFound, "there is no org %q", org)
	} else if err != nil {
		return meta.Org{}, meta.Repo{}, err
	}
	if gate.Repo.ID == 0 {
		return gate.Org, meta.Repo{}, Refuse(RepositoryMissing, "there is no repository %q in org %q", name, org)
	}
	return gate.Org, gate.Repo, nil
}

// CreateOrg makes an org with one public key. kid may be empty.
func (o *Operator) CreateOrg(ctx context.Context, name, kid string, publicKey []byte) (meta.Org, error) {
	if !orgName.MatchString(name) {
		return meta.Org{}, Refuse(Invalid, "org name %q: use up to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit", name)
	}
	key, err := orgKey(kid, publicKey)
	if err != nil {
		return meta.Org{}, err
	}
	for {
		org := meta.Org{ID: meta.OrgID(o.newID()), Name: name}
		v, err := o.Meta.Apply(ctx, meta.Change{Org: org.ID, CreateOrg: &org, PutKey: &key})
		switch {
		case err != nil:
			return meta.Org{}, err
		case v.Applied:
			return o.Org(ctx, name)
		case v.Conflict.Kind == meta.ConflictID:
			continue
		case v.Conflict.Kind == meta.ConflictName:
			return meta.Org{}, Refuse(AlreadyExists, "org %q exists already", name)
		default:
			return meta.Org{}, fmt.Errorf("create org %q: refused: %s", name, v.Conflict.Kind)
		}
	}
}

// DeleteOrg removes an org that has no live repositories.
func (o *Operator) DeleteOrg(ctx context.Context, name string) error {
	return o.change(ctx, name, func(c *meta.Change) { c.DeleteOrg = true })
}

// AddKey registers a further public key; tokens signed with it are accepted from
// the next request on, with no restart.
func (o *Operator) AddKey(ctx context.Context, org, kid string, publicKey []byte) (meta.OrgKey, error) {
	key, err := orgKey(kid, publicKey)
	if err != nil {
		return meta.OrgKey{}, err
	}
	return key, o.change(ctx, org, func(c *meta.Change) { c.PutKey = &key })
}

// RemoveKey forgets the key with the given fingerprint or kid; tokens signed
// with it are refused from the next request on.
func (o *Operator) RemoveKey(ctx context.Context, org, key string) error {
	keys, err := o.Keys(ctx, org)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.Fingerprint == key || (k.KID != "" && k.KID == key) {
			return o.change(ctx, org, func(c *meta.Change) { c.RemoveKey = k.Fingerprint })
		}
	}
	return Refuse(NotFound, "org %q has no key %q; list them with `cairn org key list %s`", org, key, org)
}

// Keys lists the public keys of an org.
func (o *Operator) Keys(ctx context.Context, org string) ([]meta.OrgKey, error) {
	row, err := o.Org(ctx, org)
	if err != nil {
		return nil, err
	}
	keys, err := o.Meta.Keys(ctx, row.ID)
	return keys.Keys, err
}

// SetMaxTTL caps exp - iat of the org's tokens; 0 removes the cap.
func (o *Operator) SetMaxTTL(ctx context.Context, org string, ttl time.Duration) error {
	if ttl < 0 {
		return Refuse(Invalid, "a token lifetime cannot be negative")
	}
	return o.change(ctx, org, func(c *meta.Change) { c.SetMaxTTL = &ttl })
}

// Revocation names what tokens to refuse: all of the org when no field is set,
// else those that any of the set fields covers.
type Revocation struct {
	Repo, Thread, Subject string
	// Before refuses tokens issued at or before it.
	Before time.Time
}

// Revoke raises a floor: every token of the org that it covers and that was
// issued at or before its time is refused from the next request on, whoever
// minted it.
func (o *Operator) Revoke(ctx context.Context, org string, r Revocation) error {
	var floors []meta.Floor
	for _, f := range []meta.Floor{
		{Kind: meta.FloorRepo, Target: r.Repo}, {Kind: meta.FloorThread, Target: r.Thread}, {Kind: meta.FloorSubject, Target: r.Subject},
	} {
		if f.Target != "" {
			floors = append(floors, f)
		}
	}
	if len(floors) == 0 {
		floors = []meta.Floor{{Kind: meta.FloorOrg}}
	}
	for i := range floors {
		floors[i].NotBefore = r.Before.Unix()
	}
	return o.change(ctx, org, func(c *meta.Change) { c.RaiseFloors = floors })
}

func (o *Operator) change(ctx context.Context, org string, fill func(*meta.Change)) error {
	row, err := o.Org(ctx, org)
	if err != nil {
		return err
	}
	c := meta.Change{Org: row.ID}
	fill(&c)
	v, err := o.Meta.Apply(ctx, c)
	switch {
	case err != nil:
		return err
	case v.Applied:
		return nil
	case v.Conflict.Kind == meta.ConflictNotEmpty:
		return Refuse(Conflict, "org %q still has repositories; delete them first", org)
	case v.Conflict.Kind == meta.ConflictKey:
		return Refuse(AlreadyExists, "org %q has a key with that kid already; remove it first", org)
	case v.Conflict.Kind == meta.ConflictOrgGone:
		return Refuse(NotFound, "there is no org %q", org)
	}
	return fmt.Errorf("change org %q: refused: %s", org, v.Conflict.Kind)
}

func orgKey(kid string, publicKey []byte) (meta.OrgKey, error) {
	key, err := auth.ParsePublicKey(kid, publicKey)
	if err != nil {
		return meta.OrgKey{}, Refuse(Invalid, "the public key cannot be used: %v", err)
	}
	block, _ := pem.Decode([]byte(key.PublicPEM))
	if block == nil {
		return meta.OrgKey{}, fmt.Errorf("public key without a PEM block")
	}
	sum := sha256.Sum256(block.Bytes)
	return meta.OrgKey{KID: kid, Fingerprint: hex.EncodeToString(sum[:]), PEM: key.PublicPEM}, nil
}

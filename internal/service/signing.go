package service

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/signature"
)

// Bounds on the signing keys of one org.
const (
	maxSigningKeys = 1000
	maxTitle       = 200 // bytes
)

// SigningKeyRequest asks to register a key that verifies commits and tags.
type SigningKeyRequest struct {
	// Text is an armoured OpenPGP public key or an SSH public key.
	Text string
	// Title is for people; "" takes what the key says of its owner.
	Title string
	// NotBefore and NotAfter bound the dates of what the key may sign; zero is
	// no bound.
	NotBefore, NotAfter time.Time
}

// Row checks the request and returns the row that it makes, but for its time.
func (r SigningKeyRequest) Row() (meta.SigningKey, error) {
	key, err := signature.ParseKey([]byte(r.Text))
	if err != nil {
		return meta.SigningKey{}, &Error{Code: Invalid, Message: "the key cannot be used: " + err.Error(), Err: err}
	}
	title := r.Title
	if title == "" {
		title = key.Owner[:min(len(key.Owner), maxTitle)]
	}
	title = strings.ToValidUTF8(title, "")
	switch {
	case len(title) > maxTitle || strings.ContainsFunc(title, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }):
		return meta.SigningKey{}, Refuse(Invalid, "the title is longer than %d bytes or has a control character", maxTitle)
	case !r.NotAfter.IsZero() && !r.NotBefore.Before(r.NotAfter):
		return meta.SigningKey{}, Refuse(Invalid, "the key would never count: not_before has to be earlier than not_after")
	}
	return meta.SigningKey{
		Fingerprint: key.Fingerprint, Kind: string(key.Kind), Text: key.Text, Title: title,
		NotBefore: r.NotBefore, NotAfter: r.NotAfter,
	}, nil
}

// mayAdd refuses a key that would be one too many.
func mayAdd(ctx context.Context, store meta.Store, org meta.OrgID) error {
	rows, err := store.SigningKeys(ctx, org)
	if err == nil && len(rows) >= maxSigningKeys {
		err = Refuse(Conflict, "the org has %d signing keys, which is the most that one may have", len(rows))
	}
	return err
}

// SigningKeys lists the keys that verify commits in the org.
func (s *Service) SigningKeys(ctx context.Context, a *Access) ([]meta.SigningKey, error) {
	return s.Meta.SigningKeys(ctx, a.Org.ID)
}

// AddSigningKey registers a key, or gives a registered one new bounds.
func (s *Service) AddSigningKey(ctx context.Context, a *Access, key meta.SigningKey) error {
	if err := mayAdd(ctx, s.Meta, a.Org.ID); err != nil {
		return err
	}
	return s.changeOrg(ctx, a, "POST org/signing-keys", meta.Change{Org: a.Org.ID, PutSigningKey: &key})
}

// RemoveSigningKey forgets a key by its fingerprint: nothing that it signed
// counts from the next change of a ref on.
func (s *Service) RemoveSigningKey(ctx context.Context, a *Access, fingerprint string) error {
	return s.changeOrg(ctx, a, "DELETE org/signing-keys", meta.Change{Org: a.Org.ID, RemoveSigningKey: fingerprint})
}

// changeOrg applies a Change of the org alone.
func (s *Service) changeOrg(ctx context.Context, a *Access, route string, c meta.Change) error {
	by := a.change(route)
	c.Token, c.Subject, c.Route, c.Agent, c.Idempotency = by.Token, by.Subject, by.Route, by.Agent, by.Idempotency
	v, err := s.Meta.Apply(ctx, c)
	if err != nil {
		return fmt.Errorf("change org: %w", err)
	}
	if v.Applied {
		return nil
	}
	return orgRefusal(v.Conflict)
}

// change begins a Change of the org alone.
func (a *Access) change(route string) meta.Change {
	w := a.Writer(route)
	return meta.Change{Org: a.Org.ID, Token: w.Token, Subject: w.Subject, Route: w.Route, Agent: w.Agent, Idempotency: w.Idempotency}
}

// orgRefusal turns what a Change of the org met into the error that says so.
func orgRefusal(c *meta.Conflict) error {
	switch c.Kind {
	case meta.ConflictFloor:
		return auth.Superseded()
	case meta.ConflictKey:
		return Refuse(NotFound, "the org has no such key")
	case meta.ConflictReplay:
		return &repo.ReplayError{Recorded: *c.Replay}
	}
	return fmt.Errorf("change org: refused: %s", c.Kind)
}

// AddSigningKey registers a key that verifies commits in an org's repositories,
// or gives a registered one new bounds.
func (o *Operator) AddSigningKey(ctx context.Context, org string, req SigningKeyRequest) (meta.SigningKey, error) {
	key, err := req.Row()
	if err != nil {
		return key, err
	}
	row, err := o.Org(ctx, org)
	if err != nil {
		return key, err
	}
	if err := mayAdd(ctx, o.Meta, row.ID); err != nil {
		return key, err
	}
	return key, o.change(ctx, org, func(c *meta.Change) { c.PutSigningKey = &key })
}

// SigningKeys lists the keys that verify commits in an org.
func (o *Operator) SigningKeys(ctx context.Context, org string) ([]meta.SigningKey, error) {
	row, err := o.Org(ctx, org)
	if err != nil {
		return nil, err
	}
	return o.Meta.SigningKeys(ctx, row.ID)
}

// RemoveSigningKey forgets a key by its fingerprint.
func (o *Operator) RemoveSigningKey(ctx context.Context, org, fingerprint string) error {
	rows, err := o.SigningKeys(ctx, org)
	if err != nil {
		return err
	}
	for _, k := range rows {
		if k.Fingerprint == fingerprint {
			return o.change(ctx, org, func(c *meta.Change) { c.RemoveSigningKey = fingerprint })
		}
	}
	return Refuse(NotFound, "org %q has no signing key %q; list them with `cairn org signing-key list %s`", org, fingerprint, org)
}

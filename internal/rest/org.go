package rest

import (
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

func (c *call) describeSigningKey(k meta.SigningKey) api.SigningKey {
	out := api.SigningKey{
		Fingerprint: k.Fingerprint, Kind: k.Kind, Title: k.Title, PublicKey: k.Text, Server: k.Fingerprint == c.access.Org.Signer,
	}
	if !k.NotBefore.IsZero() {
		out.NotBefore = stamp(k.NotBefore)
	}
	if !k.NotAfter.IsZero() {
		out.NotAfter = stamp(k.NotAfter)
	}
	return out
}

func (c *call) listSigningKeys(api.None) (api.SigningKeyList, error) {
	keys, err := c.Service.SigningKeys(c.ctx, c.access)
	list := api.SigningKeyList{SigningKeys: []api.SigningKey{}}
	for _, k := range keys {
		list.SigningKeys = append(list.SigningKeys, c.describeSigningKey(k))
	}
	return list, err
}

func (c *call) addSigningKey(q api.AddSigningKey) (api.SigningKey, error) {
	if q.PublicKey == "" {
		return api.SigningKey{}, invalid("public_key is missing: send an armoured OpenPGP public key or an SSH one")
	}
	req := service.SigningKeyRequest{Text: q.PublicKey, Title: q.Title}
	var err error
	if req.NotBefore, err = moment("not_before", q.NotBefore); err != nil {
		return api.SigningKey{}, err
	}
	if req.NotAfter, err = moment("not_after", q.NotAfter); err != nil {
		return api.SigningKey{}, err
	}
	key, err := req.Row()
	if err != nil {
		return api.SigningKey{}, err
	}
	added := c.describeSigningKey(key)
	c.keep(added)
	return added, c.Service.AddSigningKey(c.ctx, c.access, key)
}

func (c *call) removeSigningKey(q api.RemoveSigningKey) (api.RemovedSigningKey, error) {
	if q.Fingerprint == "" {
		return api.RemovedSigningKey{}, invalid("fingerprint is missing: it names the key to remove")
	}
	removed := api.RemovedSigningKey{Fingerprint: q.Fingerprint, Message: "signing key removed"}
	c.keep(removed)
	return removed, c.Service.RemoveSigningKey(c.ctx, c.access, q.Fingerprint)
}

// moment reads a time that may be absent.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, invalid("%s is %.40q: write a time as 2006-01-02T15:04:05Z", name, text)
	}
	return t, nil
}

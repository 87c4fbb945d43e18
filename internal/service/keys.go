package service

import (
	"context"
	"sync"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
)

// maxCachedOrgs bounds the orgs whose parsed keys are kept.
const maxCachedOrgs = 10_000

// keyCache keeps the parsed keys of orgs at the version that the gate named, so
// that a changed key set is used from the very next request on.
type keyCache struct {
	mu   sync.Mutex
	orgs map[meta.OrgID]auth.OrgKeys
}

func (c *keyCache) get(ctx context.Context, store meta.Store, org meta.Org) (auth.OrgKeys, error) {
	c.mu.Lock()
	keys, ok := c.orgs[org.ID]
	c.mu.Unlock()
	if ok && keys.Version == org.KeyVersion {
		return keys, nil
	}
	rows, err := store.Keys(ctx, org.ID)
	if err != nil {
		return auth.OrgKeys{}, err
	}
	keys = auth.OrgKeys{Name: rows.Org.Name, Version: rows.Org.KeyVersion, MaxTTL: rows.Org.MaxTTL}
	for _, row := range rows.Keys {
		key, err := auth.ParsePublicKey(row.KID, []byte(row.PEM))
		if err != nil {
			return auth.OrgKeys{}, err
		}
		keys.Keys = append(keys.Keys, key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orgs == nil || len(c.orgs) >= maxCachedOrgs {
		c.orgs = make(map[meta.OrgID]auth.OrgKeys)
	}
	c.orgs[org.ID] = keys
	return keys, nil
}

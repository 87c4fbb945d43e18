package repo

import (
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
)

// viewCache keeps the newest view of each repository. A view that is too large for
// the cache of all others has a place beside it, so that a repository with a
// million refs is not read anew for each request, and does not drive out others.
type viewCache struct {
	limit        int64 // bytes from which a view is large
	small, large *lru.Cache[meta.RepoID, *View]
}

// largeShare is by how much the large views together may be larger than the
// others.
const largeShare = 4

func newViewCache(bytes int64) viewCache {
	return viewCache{
		limit: bytes / 4,
		small: lru.New[meta.RepoID, *View](bytes), large: lru.New[meta.RepoID, *View](largeShare * bytes),
	}
}

func (c *viewCache) get(id meta.RepoID) (*View, bool) {
	if v, ok := c.small.Get(id); ok {
		return v, true
	}
	return c.large.Get(id)
}

// put keeps a view with its present weight. It is called with v.mu held, or before
// anybody else has the view.
func (c *viewCache) put(v *View) {
	bytes := v.bytes()
	if bytes > c.limit {
		c.large.Put(v.repo.ID, v, bytes)
		c.small.Remove(v.repo.ID)
		return
	}
	c.small.Put(v.repo.ID, v, bytes)
	c.large.Remove(v.repo.ID)
}
